/* thesis_experiments.c: the thesis' comparisons, one function each. */
#include "tests/bench/thesis.h"

#include <stdio.h>
#include <string.h>

static struct rival_shape regular_shape(const struct scene *s, uint32_t depth)
{
    return (struct rival_shape){s->set->grid, depth, true, 1, RIVAL_PACKED};
}

static struct rival_shape compact_shape(const struct scene *s, uint32_t depth)
{
    return (struct rival_shape){s->set->grid, depth, false, 1, RIVAL_PACKED};
}

/* ---- figures 23, 25 and 27: how bins are read, and their layout in memory ---- */

struct variant {
    const char *name;
    bool regular, mark;
    uint32_t round;
    enum rival_layout layout;
    enum rival_access access;
};

static const struct variant variants[] = {
    {"regular, count", true, false, 1, RIVAL_PACKED, RIVAL_BIN_COUNT},
    {"regular, sentinel", true, true, 1, RIVAL_PACKED, RIVAL_BIN_SENTINEL},
    {"regular, x-range", true, true, 1, RIVAL_PACKED, RIVAL_ROW},
    {"compact, bin by bin", false, false, 1, RIVAL_PACKED, RIVAL_BIN_COUNT},
    {"compact, x-range", false, false, 1, RIVAL_PACKED, RIVAL_ROW},
    {"compact, x-range, samples padded to 32 bytes", false, false, 1, RIVAL_PADDED, RIVAL_ROW},
    {"compact, x-range, arrays of float4 and float2", false, false, 1, RIVAL_VECTORS, RIVAL_ROW},
    {"compact, x-range, bins padded to 96 bytes", false, true, 4, RIVAL_PACKED, RIVAL_ROW},
    {"compact, bin by bin, bins padded to 96 bytes", false, false, 4, RIVAL_PACKED, RIVAL_BIN_COUNT},
};

static void access_at(struct scene *s, uint32_t depth)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct variant *v = &variants[i];
        struct rival_recipe recipe = {.shape = {s->set->grid, depth, v->regular, v->round, v->layout},
                                      .method = v->regular ? RIVAL_FUSED : RIVAL_RANKS,
                                      .full = RIVAL_READ_FIRST,
                                      .mark = v->mark};
        struct rival_times times;
        if (!scene_has_room(s, "access", v->name, &recipe))
            continue;
        scene_bin(s, &recipe, &times);
        struct rest rest = scene_rest(s);
        double gather = scene_gather(s, v->access);
        double error = scene_check(s, v->name, rest.samples, rest.count);
        line(s, "access", v->name,
             "\"depth\":%s,\"overflow\":%zu,\"bytes\":%zu,\"binning_ms\":%.4f,\"gather_ms\":%.4f,\"error\":%.2e",
             depth_text(depth).text, rest.count, rival_gpu_bytes(s->gpu, &recipe), times.total, gather, error);
    }
}

void thesis_access(struct scene *s)
{
    /* The thesis' largest for the small MRI set, the lab manual's for its Gaussian sets. */
    access_at(s, s->set->deviation > 0 ? 80 : 9);
    product(s, "access");
}

/* ---- section 4.3.1 and the lecture: how bins are made ---- */

static void make_once(struct scene *s, const char *name, const struct rival_recipe *recipe)
{
    struct rival_times times;
    char steps[256] = "";
    if (!scene_has_room(s, "binning", name, recipe))
        return;
    scene_bin(s, recipe, &times);
    scene_check_bins(s, recipe);
    struct rest rest = scene_rest(s);
    scene_gather(s, recipe->shape.regular ? RIVAL_BIN_COUNT : RIVAL_ROW);
    double error = scene_check(s, name, rest.samples, rest.count);
    for (int i = 0; i < times.steps; i++)
        snprintf(steps + strlen(steps), sizeof steps - strlen(steps), "\"%s\":%.4f,", times.name[i], times.ms[i]);
    steps[strlen(steps) - 1] = '\0';
    line(s, "binning", name, "\"depth\":%s,\"overflow\":%zu,\"steps_ms\":{%s},\"binning_ms\":%.4f,\"error\":%.2e",
         depth_text(recipe->shape.depth).text, rest.count, steps, times.total, error);
}

void thesis_binning(struct scene *s)
{
    const uint32_t depth = s->set->deviation > 0 ? 80 : 9;
    const struct {
        const char *name;
        struct rival_recipe recipe;
    } ways[] = {
        {"regular, one pass, add and subtract", {regular_shape(s, depth), RIVAL_FUSED, RIVAL_SUBTRACT, false}},
        {"regular, largest bin first, read first", {regular_shape(s, depth), RIVAL_LARGEST, RIVAL_READ_FIRST, false}},
        {"regular, one pass, read first", {regular_shape(s, depth), RIVAL_FUSED, RIVAL_READ_FIRST, false}},
        {"compact, atomics again, add and subtract", {compact_shape(s, depth), RIVAL_AGAIN, RIVAL_SUBTRACT, false}},
        {"compact, atomics again, read first", {compact_shape(s, depth), RIVAL_AGAIN, RIVAL_READ_FIRST, false}},
        {"compact, saved indices, add and subtract", {compact_shape(s, depth), RIVAL_RANKS, RIVAL_SUBTRACT, false}},
        {"compact, saved indices, read first", {compact_shape(s, depth), RIVAL_RANKS, RIVAL_READ_FIRST, false}},
        {"compact, sort-reduce, read first", {compact_shape(s, depth), RIVAL_SORT_REDUCE, RIVAL_READ_FIRST, false}},
        {"compact, atomics again, all samples", {compact_shape(s, THESIS_ALL), RIVAL_AGAIN, RIVAL_SUBTRACT, false}},
        {"compact, saved indices, all samples", {compact_shape(s, THESIS_ALL), RIVAL_RANKS, RIVAL_SUBTRACT, false}},
        {"compact, sort-reduce, all samples", {compact_shape(s, THESIS_ALL), RIVAL_SORT_REDUCE, RIVAL_SUBTRACT, false}},
        {"compact, stable radix sort, all samples", {compact_shape(s, THESIS_ALL), RIVAL_RADIX, RIVAL_SUBTRACT, false}},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        make_once(s, ways[i].name, &ways[i].recipe);
    product(s, "binning");
}

/* ---- figures 30 and 31: depth, with the overflow summed on the CPU ---- */

struct shared {
    double binning, download, gpu, cpu, both, merge, total, error;
    size_t overflow;
};

/* The CPU's part on its own. */
static double cpu_alone(struct scene *s, const struct rest *rest)
{
    double ms[THESIS_RUNS_MOST];
    if (rest->count == 0)
        return 0;
    for (int run = -1; run < s->runs; run++) {
        double start = clock_seconds();
        must(rival_cpu_scatter(s->set->grid, rest->samples, rest->count, s->threads, rival_gpu_host_grid(s->gpu)),
             "rival_cpu_scatter");
        if (run >= 0)
            ms[run] = 1e3 * (clock_seconds() - start);
    }
    return median(ms, s->runs);
}

/* GPU and CPU concurrently; then the CPU's grid is added to the GPU's. */
static void at_once(struct scene *s, enum rival_access access, const struct rest *rest, struct shared *t)
{
    double both[THESIS_RUNS_MOST], merge[THESIS_RUNS_MOST], gpu;
    for (int run = -1; run < s->runs; run++) {
        int i = run < 0 ? 0 : run;
        double start = clock_seconds();
        must(rival_gpu_gather(s->gpu, access, &s->kernel), "rival_gpu_gather");
        if (rest->count > 0)
            must(rival_cpu_scatter(s->set->grid, rest->samples, rest->count, s->threads, rival_gpu_host_grid(s->gpu)),
                 "rival_cpu_scatter");
        must(rival_gpu_finish(s->gpu, &gpu), "rival_gpu_finish");
        both[i] = 1e3 * (clock_seconds() - start);
        merge[i] = 0;
        if (rest->count > 0)
            must(rival_gpu_merge(s->gpu, &merge[i]), "rival_gpu_merge");
    }
    t->both = median(both, s->runs);
    t->merge = median(merge, s->runs);
}

/* One recipe completely. `cpu` < 0: also time the CPU's part on its own. */
static struct shared share(struct scene *s, const char *what, const struct rival_recipe *recipe,
                           enum rival_access access, double cpu)
{
    struct shared t;
    struct rival_times times;
    scene_bin(s, recipe, &times);
    struct rest rest = scene_rest(s);
    t.binning = times.total;
    t.download = rest.count > 0 ? rest.ms : 0;
    t.overflow = rest.count;
    t.gpu = scene_gather(s, access);
    t.cpu = cpu < 0 ? cpu_alone(s, &rest) : cpu;
    at_once(s, access, &rest, &t);
    t.total = t.binning + t.download + t.both + t.merge;
    t.error = scene_check(s, what, NULL, 0);
    return t;
}

static void share_line(struct scene *s, const char *experiment, const char *name, const struct rival_recipe *recipe,
                       const struct shared *t)
{
    const size_t bins = (size_t)s->set->grid * (size_t)s->set->grid * (size_t)s->set->grid;
    const size_t kept = s->set->samples - t->overflow;
    const double wasted = recipe->shape.regular && recipe->shape.depth > 0
                              ? 100 - 100.0 * (double)kept / ((double)bins * recipe->shape.depth)
                              : 0;
    line(s, experiment, name,
         "\"depth\":%s,\"overflow\":%zu,\"overflow_percent\":%.3f,\"wasted_percent\":%.3f,\"bytes\":%zu,"
         "\"binning_ms\":%.4f,\"download_ms\":%.4f,\"gather_ms\":%.4f,\"cpu_ms\":%.3f,\"both_ms\":%.3f,\"merge_ms\":%."
         "3f,"
         "\"total_ms\":%.3f,\"error\":%.2e",
         depth_text(recipe->shape.depth).text, t->overflow, 100.0 * (double)t->overflow / (double)s->set->samples,
         wasted, rival_gpu_bytes(s->gpu, recipe), t->binning, t->download, t->gpu, t->cpu, t->both, t->merge, t->total,
         t->error);
}

void thesis_depth(struct scene *s)
{
    static const uint32_t depths[] = {0, 1, 2, 4, 6, 9, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, THESIS_ALL};
    static const char *const names[2] = {"compact, x-range", "regular, count"};
    bool nothing_left = false;
    for (size_t i = 0; i < sizeof depths / sizeof *depths && !nothing_left; i++) {
        double cpu = -1;
        for (int regular = 0; regular < 2; regular++) {
            struct rival_shape shape = regular ? regular_shape(s, depths[i]) : compact_shape(s, depths[i]);
            struct rival_recipe recipe = {shape, regular ? RIVAL_FUSED : RIVAL_RANKS, RIVAL_READ_FIRST, false};
            if (regular && (depths[i] == THESIS_ALL || !scene_has_room(s, "depth", names[1], &recipe)))
                continue;
            struct shared t =
                share(s, names[regular], &recipe, regular ? RIVAL_BIN_COUNT : RIVAL_ROW, regular ? cpu : -1);
            cpu = t.cpu;
            nothing_left = t.overflow == 0;
            share_line(s, "depth", names[regular], &recipe, &t);
        }
    }
    product(s, "depth");
}

/* ---- the lab manual's tables 2 (regular bins) and 4 (sort-reduce) ---- */

void thesis_table(struct scene *s)
{
    static const uint32_t capacities[2][4] = {{16, 48, 80, 112}, {80, 112, 144, 176}};
    static const char *const names[2] = {"table 2: regular bins", "table 4: sort-reduce"};
    for (int table = 0; table < 2; table++)
        for (int i = 0; i < 4; i++) {
            struct rival_shape shape =
                table == 0 ? regular_shape(s, capacities[0][i]) : compact_shape(s, capacities[1][i]);
            struct rival_recipe recipe = {shape, table == 0 ? RIVAL_FUSED : RIVAL_SORT_REDUCE, RIVAL_READ_FIRST, false};
            if (!scene_has_room(s, "table", names[table], &recipe))
                continue;
            struct shared t = share(s, names[table], &recipe, table == 0 ? RIVAL_BIN_COUNT : RIVAL_ROW, -1);
            share_line(s, "table", names[table], &recipe, &t);
        }
    product(s, "table");
}
