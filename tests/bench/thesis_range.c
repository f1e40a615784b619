/* thesis_range.c: the thesis' three other applications: the statistics of the data (tables 2 to 4), how bins are read
 * (figure 25 and the lecture), depth with the overflow on the CPU (figures 30 and 32 to 34, table 5). */
#include "tests/bench/thesis.h"
#include "gridding/base/dev.h"
#include "tests/bench/rival_range_gpu.h"

#include <stdio.h>
#include <string.h>

struct range_scene {
    struct scene base; /* its set is `as` */
    struct rival_set as;
    const struct rival_sum *sum;
    struct rival_check *check;
    struct rival_range_gpu *gpu;
    struct dev *cpu;
    float *sums, *found;
};

static void range_open(struct range_scene *s, const struct rival_range_set *set, int runs, int threads,
                       const char *device)
{
    s->as = (struct rival_set){set->name, set->what, set->sum.grid, set->samples, 0, 0};
    s->base = (struct scene){
        .set = &s->as, .reach = (double)set->sum.reach, .runs = runs, .threads = threads, .device = device};
    s->sum = &set->sum;
    s->base.samples = take(set->samples * sizeof *s->base.samples);
    rival_range_fill(set, s->base.samples);
    must(rival_check_create(&s->check, s->sum, s->base.samples, set->samples, THESIS_PROBED / 2), set->name);
    s->sums = take(rival_outputs(s->sum, set->samples) * sizeof *s->sums);
    s->found = take((size_t)s->check->parts * s->check->outputs * sizeof *s->found);
    must(rival_gpu_create(&s->base.gpu, set->sum.grid, s->base.samples, set->samples), set->name);
    must(rival_range_gpu_create(&s->gpu, s->base.gpu, s->sum), set->name);
    must(dev_create(&s->cpu, DEV_CPU, 0, threads), set->name);
}

static void range_close(struct range_scene *s)
{
    rival_range_gpu_free(s->gpu);
    rival_gpu_free(s->base.gpu);
    rival_check_free(s->check);
    dev_free(s->cpu);
    free(s->base.samples);
    free(s->sums);
    free(s->found);
}

/* The error of s->sums plus the rest; a wrong sum ends the program. */
static double range_error(struct range_scene *s, const char *what, const struct rest *rest)
{
    const size_t parts = (size_t)s->check->parts;
    for (size_t i = 0; i < parts * s->check->outputs; i++)
        s->found[i] = s->sums[parts * s->check->output[i / parts] + i % parts];
    double error = rival_check_error(s->check, s->found, rest ? rest->samples : NULL, rest ? rest->count : 0);
    if (!(error <= THESIS_ERROR))
        must(err_set(ERR_INTERNAL, "%s is wrong: relative error %g, allowed %g", what, error, THESIS_ERROR),
             s->as.name);
    return error;
}

static double range_check(struct range_scene *s, const char *what, const struct rest *rest)
{
    must(rival_range_gpu_fetch(s->gpu, s->sums), "rival_range_gpu_fetch");
    return range_error(s, what, rest);
}

/* One way in which a gather reads its bins. */
struct reading {
    const char *name;
    bool regular;
    enum rival_access access;
    enum rival_choice choice;
    bool cylinder;
};

static double range_gather(struct range_scene *s, const struct reading *how)
{
    double ms[THESIS_RUNS_MOST], warm;
    for (int run = -1; run < s->base.runs; run++) {
        must(rival_range_gpu_gather(s->gpu, how->access, how->choice, how->cylinder), "rival_range_gpu_gather");
        must(rival_gpu_finish(s->base.gpu, run < 0 ? &warm : &ms[run]), "rival_gpu_finish");
    }
    return median(ms, s->base.runs);
}

static struct rival_recipe recipe_of(const struct range_scene *s, bool regular, uint32_t depth)
{
    return (struct rival_recipe){.shape = {s->as.grid, depth, regular, 1, RIVAL_PACKED},
                                 .method = regular ? RIVAL_FUSED : RIVAL_RANKS,
                                 .full = RIVAL_READ_FIRST};
}

/* ---- the product: points and a sum through gridding/range/sums.h ---- */

static void range_product(struct range_scene *s, const char *experiment)
{
    enum { PLANS = 5 };
    double create[PLANS], sum[THESIS_RUNS_MOST], start;
    struct dev *dev;
    struct rival_engine *engine = NULL;
    must(dev_create(&dev, DEV_GPU, 0, s->base.threads), "the product's GPU leaves");
    for (int run = -1; run < PLANS; run++) {
        rival_engine_free(engine);
        engine = NULL;
        start = clock_seconds();
        must(rival_engine_create(&engine, dev, s->sum, s->base.samples, s->as.samples, s->base.samples, s->as.samples),
             "rival_engine_create");
        if (run >= 0)
            create[run] = 1e3 * (clock_seconds() - start);
    }
    for (int run = -1; run < s->base.runs; run++) {
        start = clock_seconds();
        must(rival_engine_sum(engine), "rival_engine_sum");
        must(dev_finish(dev), "dev_finish");
        if (run >= 0)
            sum[run] = 1e3 * (clock_seconds() - start);
    }
    must(rival_engine_fetch(engine, s->sums), "rival_engine_fetch");
    line(&s->base, experiment, "product", "\"product\":true,\"create_ms\":%.3f,\"gather_ms\":%.3f,\"error\":%.2e",
         median(create, PLANS), median(sum, s->base.runs), range_error(s, "the product", NULL));
    rival_engine_free(engine);
    dev_free(dev);
}

/* ---- tables 2 to 4 ---- */

static void range_statistics(struct range_scene *s)
{
    struct rival_statistics of;
    must(rival_statistics_make(&of, s->as.grid, s->base.samples, s->as.samples), "rival_statistics_make");
    line(&s->base, "range-statistics", "bins",
         "\"bins\":%zu,\"least\":%zu,\"most\":%zu,\"mean\":%.6f,\"deviation\":%.6f", of.bins, of.least, of.most,
         of.mean, of.deviation);
}

/* ---- figure 25 and the lecture: how bins are read ---- */

static const struct reading lattice_readings[] = {
    {"regular, bin by bin", true, RIVAL_BIN_COUNT, RIVAL_SPHERE, true},
    {"compact, bin by bin", false, RIVAL_BIN_COUNT, RIVAL_SPHERE, true},
    {"compact, x-range", false, RIVAL_ROW, RIVAL_SPHERE, true},
    {"compact, x-range, all bins of the box", false, RIVAL_ROW, RIVAL_BOX, true},
    {"compact, x-range, without the cylinder test", false, RIVAL_ROW, RIVAL_SPHERE, false},
};
static const struct reading body_readings[] = {
    {"regular, bin by bin", true, RIVAL_BIN_COUNT, RIVAL_SPHERE, false},
    {"compact, bin by bin", false, RIVAL_BIN_COUNT, RIVAL_SPHERE, false},
    {"compact, x-range", false, RIVAL_ROW, RIVAL_SPHERE, false},
};

static const struct reading *readings_of(const struct range_scene *s, size_t *count)
{
    const bool bodies = s->sum->law == RIVAL_FORCE;
    *count = bodies ? sizeof body_readings / sizeof *body_readings : sizeof lattice_readings / sizeof *lattice_readings;
    return bodies ? body_readings : lattice_readings;
}

/* The size of the fullest bin: with this depth nothing overflows. */
static uint32_t fullest(const struct range_scene *s)
{
    struct rival_statistics of;
    must(rival_statistics_make(&of, s->as.grid, s->base.samples, s->as.samples), "rival_statistics_make");
    return (uint32_t)of.most;
}

static void range_access(struct range_scene *s)
{
    size_t count;
    const struct reading *how = readings_of(s, &count);
    const uint32_t depth = fullest(s);
    for (; count > 0; count--, how++) {
        struct rival_recipe recipe = recipe_of(s, how->regular, depth);
        struct rival_times times;
        if (!scene_has_room(&s->base, "range-access", how->name, &recipe))
            continue;
        scene_bin(&s->base, &recipe, &times);
        double gather = range_gather(s, how);
        line(&s->base, "range-access", how->name,
             "\"depth\":%s,\"bytes\":%zu,\"binning_ms\":%.4f,\"gather_ms\":%.4f,\"error\":%.2e", depth_text(depth).text,
             rival_gpu_bytes(s->base.gpu, &recipe), times.total, gather, range_check(s, how->name, NULL));
    }
    range_product(s, "range-access");
}

/* ---- figures 30 and 32 to 34, table 5 ---- */

/* Sum the overflow into the host's memory, with the engine on the CPU. */
static void cpu_sum(struct range_scene *s, const struct rest *rest)
{
    struct rival_engine *engine = NULL;
    must(rival_engine_create(&engine, s->cpu, s->sum, rest->samples, rest->count, s->base.samples, s->as.samples),
         "rival_engine_create");
    must(rival_engine_sum(engine), "rival_engine_sum");
    must(rival_engine_fetch(engine, rival_range_gpu_host(s->gpu)), "rival_engine_fetch");
    rival_engine_free(engine);
}

static double range_cpu_alone(struct range_scene *s, const struct rest *rest)
{
    double ms[THESIS_RUNS_MOST];
    for (int run = -1; rest->count > 0 && run < s->base.runs; run++) {
        double start = clock_seconds();
        cpu_sum(s, rest);
        if (run >= 0)
            ms[run] = 1e3 * (clock_seconds() - start);
    }
    return rest->count > 0 ? median(ms, s->base.runs) : 0;
}

/* GPU and CPU concurrently; then the CPU's sums are added to the GPU's. */
static void range_at_once(struct range_scene *s, const struct reading *how, const struct rest *rest, double *both,
                          double *merge)
{
    double both_ms[THESIS_RUNS_MOST], merge_ms[THESIS_RUNS_MOST], gpu;
    for (int run = -1; run < s->base.runs; run++) {
        const int i = run < 0 ? 0 : run;
        double start = clock_seconds();
        must(rival_range_gpu_gather(s->gpu, how->access, how->choice, how->cylinder), "rival_range_gpu_gather");
        if (rest->count > 0)
            cpu_sum(s, rest);
        must(rival_gpu_finish(s->base.gpu, &gpu), "rival_gpu_finish");
        both_ms[i] = 1e3 * (clock_seconds() - start);
        merge_ms[i] = 0;
        if (rest->count > 0)
            must(rival_range_gpu_merge(s->gpu, &merge_ms[i]), "rival_range_gpu_merge");
    }
    *both = median(both_ms, s->base.runs);
    *merge = median(merge_ms, s->base.runs);
}

/* Everything at one depth. *cpu < 0: also time the CPU's part on its own. Returns the number of sources that
 * overflowed. */
static size_t range_share(struct range_scene *s, const struct reading *how, uint32_t depth, double *cpu)
{
    const struct rival_recipe recipe = recipe_of(s, how->regular, depth);
    struct rival_times times;
    double both, merge;
    if (!scene_has_room(&s->base, "range-depth", how->name, &recipe))
        return s->as.samples;
    scene_bin(&s->base, &recipe, &times);
    const struct rest rest = scene_rest(&s->base);
    const double gather = range_gather(s, how), download = rest.count > 0 ? rest.ms : 0;
    if (*cpu < 0)
        *cpu = range_cpu_alone(s, &rest);
    range_at_once(s, how, &rest, &both, &merge);
    line(&s->base, "range-depth", how->name,
         "\"depth\":%s,\"overflow\":%zu,\"overflow_percent\":%.3f,\"bytes\":%zu,\"binning_ms\":%.4f,"
         "\"download_ms\":%.4f,\"gather_ms\":%.4f,\"cpu_ms\":%.3f,\"both_ms\":%.3f,\"merge_ms\":%.3f,\"total_ms\":%.3f,"
         "\"error\":%.2e",
         depth_text(depth).text, rest.count, 100.0 * (double)rest.count / (double)s->as.samples,
         rival_gpu_bytes(s->base.gpu, &recipe), times.total, download, gather, *cpu, both, merge,
         times.total + download + both + merge, range_check(s, how->name, NULL));
    return rest.count;
}

static void range_depth(struct range_scene *s)
{
    static const uint32_t depths[] = {0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512};
    static const struct reading ways[2] = {{"compact, x-range", false, RIVAL_ROW, RIVAL_SPHERE, true},
                                           {"regular, count", true, RIVAL_BIN_COUNT, RIVAL_SPHERE, true}};
    size_t overflow = s->as.samples;
    for (size_t i = 0; i < sizeof depths / sizeof *depths && overflow > 0; i++) {
        double cpu = -1;
        overflow = range_share(s, &ways[0], depths[i], &cpu);
        range_share(s, &ways[1], depths[i], &cpu);
    }
    range_product(s, "range-depth");
}

/* ---- all of them ---- */

static const struct range_experiment {
    const char *name, *sets; /* used if none are given */
    void (*run)(struct range_scene *s);
} experiments[] = {
    {"range-statistics", "cutcp-small,cutcp-large,blob-small,blob-large,blob-random,nbody-random", range_statistics},
    {"range-access", "cutcp-small,cutcp-large,blob-small,blob-large,blob-random,nbody-random", range_access},
    /* Not cutcp-large: 16 threads take 5 s for the sum of depth 0, and minutes for all depths. */
    {"range-depth", "cutcp-small,blob-small,blob-large,blob-random,nbody-random", range_depth},
};
enum { EXPERIMENTS = sizeof experiments / sizeof *experiments };

bool thesis_range_knows_experiment(const char *name, size_t length)
{
    for (int i = 0; i < EXPERIMENTS; i++)
        if (strlen(experiments[i].name) == length && strncmp(experiments[i].name, name, length) == 0)
            return true;
    return false;
}

bool thesis_range_knows_set(const char *name, size_t length)
{
    for (const struct rival_range_set *set = rival_range_sets(); set->name; set++)
        if (strlen(set->name) == length && strncmp(set->name, name, length) == 0)
            return true;
    return false;
}

void thesis_range(const char *wanted, const char *sets, int runs, int threads, const char *device)
{
    for (const struct rival_range_set *set = rival_range_sets(); set->name; set++) {
        struct range_scene scene = {.sum = NULL};
        for (int i = 0; i < EXPERIMENTS; i++) {
            if (!among(wanted, experiments[i].name) || !among(sets ? sets : experiments[i].sets, set->name))
                continue;
            if (!scene.sum)
                range_open(&scene, set, runs, threads, device);
            experiments[i].run(&scene);
        }
        if (scene.sum)
            range_close(&scene);
    }
}
