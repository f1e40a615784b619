/* Potentials with a cutoff of 12 angstroms on a lattice of 0.5: the direct sum beside the split (recon/cutcp), on the
 * CPU: 570,000 charges at random between -1 and 1 on 368^3 points, the density of water. One line of JSON each: seconds
 * of processor time of all threads, wall-clock seconds, the expected error and the one measured against double
 * precision (cutcp_measure()).
 *
 *   bench_cutcp [threads [share [RUNS]]]   share: of the box's volume (default 1) */
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
    float *values, *grid;
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

static struct box box_create(int threads, double share)
{
    const int cells = (int)(368 * cbrt(share) + 0.5);
    struct box b = {.nodes = (size_t)cells * (size_t)cells * (size_t)cells};
    must(dev_create(&b.dev, DEV_CPU, 0, threads), "dev_create");
    b.sum = (struct cutcp_sum){.cutoff = 12, .lattice = {.dim = 3}};
    b.sum.count = (size_t)(570000 * share);
    for (int d = 0; d < 3; d++) {
        b.sum.lattice.cells[d] = cells;
        b.sum.lattice.spacing[d] = 0.5;
    }
    b.at = take(3 * b.sum.count * sizeof *b.at);
    b.values = take(b.sum.count * sizeof *b.values);
    b.grid = take(b.nodes * sizeof *b.grid);
    uint64_t seed = 1;
    for (size_t i = 0; i < b.sum.count; i++) {
        for (size_t d = 0; d < 3; d++)
            b.at[3 * i + d] = 0.5 * (cells - 1) * uniform_next(&seed);
        b.values[i] = (float)(2 * uniform_next(&seed) - 1);
        b.sum.squares += (double)b.values[i] * (double)b.values[i];
    }
    return b;
}

static void laws_add(const struct box *b, const struct range_law *law, int laws)
{
    const struct range_points_params params = {
        .box = b->sum.lattice, .reach = law->params.reach, .inputs = b->sum.count, .at_double = b->at};
    struct range_points *points;
    must(range_points_create(&points, b->dev, &params, NULL), "range_points_create");
    for (int i = 0; i < laws; i++)
        must(range_scatter(points, &law[i], 1, b->values, b->grid, NULL), "range_scatter");
    range_points_free(points);
}

static double error_of(const struct box *b)
{
    double error;
    must(cutcp_measure(&b->sum, 1, b->at, b->values, b->grid, dev_threads(b->dev), NULL, &error), "cutcp_measure");
    return error;
}

static void direct_run(struct box *b, enum cutcp_form form)
{
    struct range_law law;
    b->sum.form = form;
    b->sum.tolerance = 1e-3;
    must(cutcp_law_make(&law, form, b->sum.cutoff), "cutcp_law_make");
    const struct timer start = timer_now();
    memset(b->grid, 0, b->nodes * sizeof *b->grid);
    laws_add(b, &law, 1);
    const struct timer t = timer_since(start);
    printf("{\"form\": %d, \"direct\": true, \"processor_s\": %.3f, \"wall_s\": %.3f, \"measured\": %.2g}\n", (int)form,
           t.processor, t.wall, error_of(b));
}

static void split_run(struct box *b, enum cutcp_form form, double tolerance)
{
    struct range_law near[CUTCP_NEAR_LAWS];
    struct cutcp_split split;
    struct cutcp_mesh *mesh;
    int laws;
    b->sum.form = form;
    b->sum.tolerance = tolerance;
    const char *why = cutcp_split_choose(&split, &b->sum);
    if (why) {
        printf("{\"form\": %d, \"tolerance\": %g, \"direct\": \"%s\"}\n", (int)form, tolerance, why);
        return;
    }
    const struct timer start = timer_now();
    must(cutcp_split_near(&split, near, &laws), "cutcp_split_near");
    must(cutcp_mesh_create(&mesh, b->dev, &split), "cutcp_mesh_create");
    const struct timer tables = timer_since(start), mesh_start = timer_now();
    must(cutcp_mesh_sum(mesh, &b->sum.lattice, b->sum.count, b->at, b->values, b->grid, NULL), "cutcp_mesh_sum");
    const struct timer smooth = timer_since(mesh_start), near_start = timer_now();
    laws_add(b, near, laws);
    const struct timer near_part = timer_since(near_start), measure_start = timer_now();
    const double error = error_of(b);
    const struct timer measure = timer_since(measure_start), all = timer_since(start);
    printf("{\"form\": %d, \"tolerance\": %g, \"processor_s\": %.3f, \"wall_s\": %.3f, \"tables_s\": %.3f, "
           "\"smooth_s\": %.3f, \"near_s\": %.3f, \"measure_s\": %.3f, \"mesh\": %d, \"radius\": %.3g, "
           "\"expected\": %.2g, \"measured\": %.2g, \"expected_gain\": %.2f}\n",
           (int)form, tolerance, all.processor, all.wall, tables.processor, smooth.processor, near_part.processor,
           measure.processor, split.mesh[0], split.radius, split.error, error, split.gain);
    cutcp_mesh_free(mesh);
}

int main(int count, char **argument)
{
    const int threads = count > 1 ? atoi(argument[1]) : 0, runs = count > 3 ? atoi(argument[3]) : 1;
    struct box b = box_create(threads, count > 2 ? atof(argument[2]) : 1);
    static const double tolerances[] = {1e-2, 1e-3, 1e-4, 1e-5};
    for (int run = 0; run < runs; run++)
        for (int form = 0; form < 2; form++) {
            direct_run(&b, (enum cutcp_form)form);
            for (size_t i = 0; i < sizeof tolerances / sizeof *tolerances; i++)
                split_run(&b, (enum cutcp_form)form, tolerances[i]);
            fflush(stdout);
        }
    free(b.at);
    free(b.values);
    free(b.grid);
    dev_free(b.dev);
    return 0;
}
