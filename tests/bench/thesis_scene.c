/* thesis_scene.c: a data set on the GPU, measured and checked. */
#include "tests/bench/thesis.h"

#include <stdarg.h>
#include <string.h>

void scene_open(struct scene *s, const struct rival_set *set, int runs, int threads, const char *device)
{
    *s = (struct scene){.set = set, .reach = RIVAL_WIDTH / 2.0, .runs = runs, .threads = threads, .device = device};
    s->samples = malloc(set->samples * sizeof *s->samples);
    if (s->samples == NULL)
        must(err_set(ERR_NO_MEMORY, "no memory for %zu samples", set->samples), set->name);
    rival_fill(set, s->samples);
    must(rival_kernel_make(&s->kernel), "the kernel");
    must(rival_probe_create(&s->probe, set->grid, THESIS_PROBED, s->samples, set->samples), "sums to compare with");
    s->probed = malloc(s->probe->cells * sizeof *s->probed);
    if (s->probed == NULL)
        must(err_set(ERR_NO_MEMORY, "no memory for probed cells"), set->name);
    must(rival_gpu_create(&s->gpu, set->grid, s->samples, set->samples), set->name);
}

void scene_close(struct scene *s)
{
    rival_gpu_free(s->gpu);
    rival_probe_free(s->probe);
    free(s->probed);
    free(s->samples);
}

void scene_bin(struct scene *s, const struct rival_recipe *recipe, struct rival_times *times)
{
    static double step[RIVAL_STEPS][THESIS_RUNS_MOST], total[THESIS_RUNS_MOST];
    must(rival_gpu_prepare(s->gpu, recipe), "rival_gpu_prepare");
    for (int run = -1; run < s->runs; run++) {
        must(rival_gpu_bin(s->gpu, times), "rival_gpu_bin");
        for (int i = 0; run >= 0 && i < times->steps; i++)
            step[i][run] = times->ms[i];
        if (run >= 0)
            total[run] = times->total;
    }
    for (int i = 0; i < times->steps; i++)
        times->ms[i] = median(step[i], s->runs);
    times->total = median(total, s->runs);
}

/* After a stable sort, the slots are identical too. */
void scene_check_bins(struct scene *s, const struct rival_recipe *r)
{
    if (s->set->samples > THESIS_SERIAL_MOST)
        return;
    size_t bins = (size_t)r->shape.grid * (size_t)r->shape.grid * (size_t)r->shape.grid;
    size_t floats = s->set->samples * rival_floats(r->shape.layout);
    struct rival_cpu_bins *cpu = NULL;
    must(rival_cpu_bin(&cpu, &r->shape, s->samples, s->set->samples), "the CPU's bins");
    uint32_t *count = malloc((bins + 1) * sizeof *count), *start = malloc((bins + 1) * sizeof *start);
    float *slot = malloc((floats + 1) * sizeof *slot);
    bool stable = r->method == RIVAL_RADIX;
    if (count == NULL || start == NULL || slot == NULL)
        must(err_set(ERR_NO_MEMORY, "no memory to compare bins"), s->set->name);
    must(rival_gpu_fetch(s->gpu, count, start, stable ? slot : NULL, s->set->samples), "rival_gpu_fetch");
    bool same = stable || memcmp(count, cpu->count, bins * sizeof *count) == 0;
    same = same && (r->shape.regular || memcmp(start, cpu->start, (bins + 1) * sizeof *start) == 0);
    same = same && (!stable || memcmp(slot, cpu->slot, floats * sizeof *slot) == 0);
    if (!same)
        must(err_set(ERR_INTERNAL, "the GPU's bins are not the CPU's (method %d)", (int)r->method), s->set->name);
    rival_cpu_bins_free(cpu);
    free(count);
    free(start);
    free(slot);
}

double scene_gather(struct scene *s, enum rival_access access)
{
    double ms[THESIS_RUNS_MOST], warm;
    for (int run = -1; run < s->runs; run++) {
        must(rival_gpu_gather(s->gpu, access, &s->kernel), "rival_gpu_gather");
        must(rival_gpu_finish(s->gpu, run < 0 ? &warm : &ms[run]), "rival_gpu_finish");
    }
    return median(ms, s->runs);
}

struct rest scene_rest(struct scene *s)
{
    struct rest rest;
    must(rival_gpu_overflow(s->gpu, &rest.samples, &rest.count, &rest.ms), "rival_gpu_overflow");
    return rest;
}

double scene_check(struct scene *s, const char *what, const struct rival_sample *rest, size_t count)
{
    must(rival_gpu_probe(s->gpu, s->probe->cell, s->probe->cells, s->probed), "rival_gpu_probe");
    double error = rival_probe_error(s->probe, s->probed, rest, count);
    if (!(error <= THESIS_ERROR))
        must(err_set(ERR_INTERNAL, "%s is wrong: relative error %g, allowed %g", what, error, THESIS_ERROR),
             s->set->name);
    return error;
}

bool scene_has_room(struct scene *s, const char *experiment, const char *variant, const struct rival_recipe *recipe)
{
    size_t needed = rival_gpu_bytes(s->gpu, recipe);
    must(rival_gpu_prepare(
             s->gpu, &(struct rival_recipe){.shape = {s->set->grid, 1, false, 1, RIVAL_PACKED}, .method = RIVAL_RANKS}),
         "rival_gpu_prepare");
    if (needed < rival_gpu_free_bytes())
        return true;
    line(s, experiment, variant, "\"depth\":%s,\"no_room\":true,\"bytes\":%zu", depth_text(recipe->shape.depth).text,
         needed);
    return false;
}

struct depth_text depth_text(uint32_t depth)
{
    struct depth_text t = {"null"};
    if (depth != THESIS_ALL)
        snprintf(t.text, sizeof t.text, "%u", depth);
    return t;
}

void line(const struct scene *s, const char *experiment, const char *variant, const char *format, ...)
{
    va_list arguments;
    time_t now = time(NULL);
    struct tm utc;
    char date[16];
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &utc));
    printf(
        "{\"experiment\":\"%s\",\"variant\":\"%s\",\"set\":\"%s\",\"samples\":%zu,\"grid\":%d,\"reach\":%g,\"runs\":%d,"
        "\"threads\":%d,\"device\":\"%s\",\"date\":\"%s\",",
        experiment, variant, s->set->name, s->set->samples, s->set->grid, s->reach, s->runs, s->threads, s->device,
        date);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("}\n");
    fflush(stdout);
}
