/* Potentials with a cutoff of 12 angstroms on a lattice of 0.5: the direct sum beside the split (recon/cutcp): 570,000
 * charges at random between -1 and 1 on 368^3 points, the density of water. One line of JSON each: seconds of processor
 * time of all threads, wall-clock seconds (in all and of each part, the device waited for after it; copying the grid to
 * the host is no part), the expected error and the one measured against double precision (cutcp_measure()), which a job
 * does only after a split. On a GPU, milliseconds of wall-clock time: of whole sums, and of their stages when the
 * device is waited for after each, medians of 11.
 *
 *   bench_cutcp [threads [share [RUNS]]]   share: of the box's volume (default 1)
 *   bench_cutcp gpu [share [RUNS [TOLERANCE]]]   TOLERANCE: only this one */
#include "gridding/range/sums.h"
#include "recon/cutcp/cutcp_split.h"
#include "tests/bench/bench.h"

#include <string.h>
#include <time.h>

struct box {
    struct dev *dev;
    struct cutcp_sum sum;
    size_t nodes;
    double *at;
    float *charge;
    float *values, *grid; /* the device's */
};

struct timer {
    double processor, wall;
};

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static struct timer timer_now(void)
{
    return (struct timer){processor_seconds(), clock_seconds()};
}

static struct timer timer_since(struct timer from)
{
    return (struct timer){processor_seconds() - from.processor, clock_seconds() - from.wall};
}

static struct box box_create(bool gpu, int threads, double share)
{
    const int cells = (int)(368 * cbrt(share) + 0.5);
    struct box b = {.nodes = (size_t)cells * (size_t)cells * (size_t)cells};
    must(dev_create(&b.dev, gpu ? DEV_GPU : DEV_CPU, 0, threads), "dev_create");
    b.sum = (struct cutcp_sum){.cutoff = 12, .lattice = {.dim = 3}};
    b.sum.count = (size_t)(570000 * share);
    for (int d = 0; d < 3; d++) {
        b.sum.lattice.cells[d] = cells;
        b.sum.lattice.spacing[d] = 0.5;
    }
    b.at = take(3 * b.sum.count * sizeof *b.at);
    b.charge = take(b.sum.count * sizeof *b.charge);
    void *values, *grid;
    must(dev_alloc(b.dev, b.sum.count * sizeof *b.values, &values), "dev_alloc");
    must(dev_alloc(b.dev, b.nodes * sizeof *b.grid, &grid), "dev_alloc");
    b.values = values;
    b.grid = grid;
    uint64_t seed = 1;
    for (size_t i = 0; i < b.sum.count; i++) {
        for (size_t d = 0; d < 3; d++)
            b.at[3 * i + d] = 0.5 * (cells - 1) * uniform_next(&seed);
        b.charge[i] = (float)(2 * uniform_next(&seed) - 1);
        b.sum.squares += (double)b.charge[i] * (double)b.charge[i];
    }
    must(dev_upload(b.dev, b.values, b.charge, b.sum.count * sizeof *b.values), "dev_upload");
    return b;
}

/* The error of the device's grid, and the time that measuring it takes on the host. */
static double error_of(const struct box *b, struct timer *taken)
{
    double error;
    float *copy = dev_is_gpu(b->dev) ? take(b->nodes * sizeof *copy) : NULL;
    if (copy)
        must(dev_download(b->dev, copy, b->grid, b->nodes * sizeof *copy), "dev_download");
    const struct timer start = timer_now();
    must(cutcp_measure(&b->sum, 1, 0, b->at, b->charge, copy ? copy : b->grid, dev_threads(b->dev), NULL, &error),
         "cutcp_measure");
    *taken = timer_since(start);
    free(copy);
    return error;
}

static void direct_run(struct box *b, enum cutcp_form form)
{
    struct range_law law;
    struct range_points *points;
    struct timer measure;
    b->sum.form = form;
    b->sum.tolerance = 1e-3;
    const struct timer start = timer_now();
    must(cutcp_law_make(&law, form, b->sum.cutoff), "cutcp_law_make");
    const struct timer made = timer_since(start), points_start = timer_now();
    const struct range_points_params params = {
        .box = b->sum.lattice, .reach = law.params.reach, .inputs = b->sum.count, .at_double = b->at};
    must(range_points_create(&points, b->dev, &params, NULL), "range_points_create");
    must(dev_finish(b->dev), "dev_finish");
    const struct timer sorted = timer_since(points_start), sum_start = timer_now();
    must(dev_zero(b->dev, b->grid, b->nodes * sizeof *b->grid), "dev_zero");
    must(range_scatter(points, &law, 1, b->values, b->grid, NULL), "range_scatter");
    must(dev_finish(b->dev), "dev_finish");
    const struct timer sum = timer_since(sum_start), all = timer_since(start);
    range_points_free(points);
    printf("{\"form\": %d, \"direct\": true, \"processor_s\": %.3f, \"wall_s\": %.4f, \"law_s\": %.4f, "
           "\"points_s\": %.4f, \"sum_s\": %.4f, \"measured\": %.2g}\n",
           (int)form, all.processor, all.wall, made.wall, sorted.wall, sum.wall, error_of(b, &measure));
}

/* When each stage was reported. */
struct stages {
    double at[SPLIT_STAGES + 1];
};

static int stage_note(void *context, size_t done, size_t most)
{
    struct stages *s = context;
    if (most == SPLIT_STAGES)
        s->at[done] = clock_seconds();
    return 0;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { GPU_RUNS = 11 };

static double median_ms(double of[GPU_RUNS])
{
    qsort(of, GPU_RUNS, sizeof *of, by_size);
    return 1e3 * of[GPU_RUNS / 2];
}

static void stages_run(struct box *b, struct split *parts)
{
    static const char *const names[SPLIT_STAGES] = {"points",   "bins",   "spread", "x forth", "y forth",
                                                    "z filter", "y back", "x back", "near"};
    double whole[GPU_RUNS], stage[SPLIT_STAGES][GPU_RUNS];
    float *grid[2] = {take(b->nodes * sizeof(float)), take(b->nodes * sizeof(float))};
    for (int run = 0; run < GPU_RUNS; run++) {
        struct stages s;
        double start = clock_seconds();
        must(split_sum(parts, b->at, b->values, b->grid, NULL), "split_sum");
        must(dev_finish(b->dev), "dev_finish");
        whole[run] = clock_seconds() - start;
        must(split_sum(parts, b->at, b->values, b->grid, &(struct listener){&s, stage_note}), "split_sum");
        for (int i = 0; i < SPLIT_STAGES; i++)
            stage[i][run] = s.at[i + 1] - s.at[i];
        if (run < 2)
            must(dev_download(b->dev, grid[run], b->grid, b->nodes * sizeof(float)), "dev_download");
    }
    double sum = 0;
    printf("  {\"whole_ms\": %.3f", median_ms(whole));
    for (int i = 0; i < SPLIT_STAGES; i++) {
        const double ms = median_ms(stage[i]);
        sum += i >= SPLIT_SPREAD ? ms : 0;
        printf(", \"%s\": %.3f", names[i], ms);
    }
    printf(", \"without points and bins\": %.3f, \"same_bits\": %s}\n", sum,
           memcmp(grid[0], grid[1], b->nodes * sizeof(float)) ? "false" : "true");
    free(grid[0]);
    free(grid[1]);
}

static void split_run(struct box *b, enum cutcp_form form, double tolerance)
{
    struct cutcp_split split = {.mesh = {0}};
    struct split *parts;
    b->sum.form = form;
    b->sum.tolerance = tolerance;
    const struct timer start = timer_now();
    const char *why = cutcp_split_choose(&split, &b->sum, dev_is_gpu(b->dev));
    if (why && split.mesh[0] == 0) {
        printf("{\"form\": %d, \"tolerance\": %g, \"direct\": \"%s\"}\n", (int)form, tolerance, why);
        return;
    }
    const struct timer choice = timer_since(start), tables_start = timer_now();
    must(cutcp_parts_create(&parts, b->dev, &split, &b->sum, 0), "cutcp_parts_create");
    must(dev_finish(b->dev), "dev_finish");
    const struct timer tables = timer_since(tables_start), sum_start = timer_now();
    must(split_sum(parts, b->at, b->values, b->grid, NULL), "split_sum");
    must(dev_finish(b->dev), "dev_finish");
    const struct timer sum = timer_since(sum_start), all = timer_since(start);
    struct timer measure;
    const double error = error_of(b, &measure);
    printf("{\"form\": %d, \"tolerance\": %g, \"processor_s\": %.3f, \"wall_s\": %.4f, \"choice_s\": %.4f, "
           "\"tables_s\": %.4f, \"sum_s\": %.4f, \"measure_s\": %.4f, \"mesh\": %d, \"extended\": %d, "
           "\"radius\": %.3g, \"expected\": %.2g, \"measured\": %.2g, \"expected_gain\": %.2f, \"chosen\": %s}\n",
           (int)form, tolerance, all.processor + measure.processor, all.wall + measure.wall, choice.wall, tables.wall,
           sum.wall, measure.wall, split.mesh[0], split.extended[0], split.radius, split.error, error, split.gain,
           why ? "false" : "true");
    if (dev_is_gpu(b->dev))
        stages_run(b, parts);
    split_free(parts);
}

int main(int count, char **argument)
{
    const bool gpu = count > 1 && strcmp(argument[1], "gpu") == 0;
    const int threads = count > 1 && !gpu ? atoi(argument[1]) : 0, runs = count > 3 ? atoi(argument[3]) : 1;
    struct box b = box_create(gpu, threads, count > 2 ? atof(argument[2]) : 1);
    static const double tolerances[] = {1e-2, 1e-3, 1.1e-4, 1e-4, 2.1e-5, 1e-5};
    for (int run = 0; run < runs; run++)
        for (int form = 0; form < 2; form++) {
            direct_run(&b, (enum cutcp_form)form);
            for (size_t i = 0; count <= 4 && i < sizeof tolerances / sizeof *tolerances; i++)
                split_run(&b, (enum cutcp_form)form, tolerances[i]);
            if (count > 4)
                split_run(&b, (enum cutcp_form)form, atof(argument[4]));
            fflush(stdout);
        }
    free(b.at);
    free(b.charge);
    dev_release(b.dev, b.values);
    dev_release(b.dev, b.grid);
    dev_free(b.dev);
    return 0;
}
