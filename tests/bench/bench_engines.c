/* One Kaiser-Bessel kernel by the two engines of gridding/range on the CPU: range.h, which a NUFFT uses, and sums.h,
 * which takes any law. Complex samples of a kooshball are summed to a grid of 144^3. One JSON line each: processor
 * seconds of all threads, for bins and for a sum (the minimum of three runs), and the relative l2 difference of the
 * grids.
 *
 *   bench_engines [threads] */
#include "gridding/range/kernel.h"
#include "gridding/range/range.h"
#include "gridding/range/sums.h"
#include "tests/bench/bench.h"

#include <string.h>
#include <time.h>

enum { GRID = 144, READOUT = 192, SAMPLES = 1000000, RUNS = 3 };

static const size_t nodes = (size_t)GRID * GRID * GRID;

struct result {
    double bins, sum;
    float *grid; /* [2 * transforms][nodes]: real and imaginary parts */
};

static double processor(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void by_range(struct result *r, int width, double beta, int transforms, const float *k, const struct c32 *values,
                     int threads)
{
    const int grid[3] = {GRID, GRID, GRID}, tile[3] = {16, 16, 16}, lanes = range_cpu_lanes(transforms);
    struct range_kernel *kernel;
    struct c32 *sums = take(nodes * (size_t)lanes * sizeof *sums);
    must(range_kernel_create(&kernel, width, beta, false, 1e-6), "range_kernel_create");
    for (int run = 0; run < RUNS; run++) {
        struct range_bins *bins;
        struct range_cpu *cpu;
        double start = processor();
        must(range_bins_create(&bins, 3, grid, width, tile, SAMPLES, k, threads, NULL), "range_bins_create");
        must(range_cpu_create(&cpu, bins, kernel, lanes, RANGE_TOGETHER, threads, NULL), "range_cpu_create");
        r->bins = fmin(r->bins, processor() - start);
        start = processor();
        for (int done = 0; done < transforms; done += lanes)
            range_cpu_scatter(cpu, lanes, values + (size_t)done * SAMPLES, SAMPLES, NULL, sums);
        r->sum = fmin(r->sum, processor() - start);
        range_cpu_free(cpu);
        range_bins_free(bins);
    }
    for (size_t i = 0; i < nodes * (size_t)lanes; i++) {
        const size_t lane = i % (size_t)lanes, node = i / (size_t)lanes;
        r->grid[2 * lane * nodes + node] = sums[i].re;
        r->grid[(2 * lane + 1) * nodes + node] = sums[i].im;
    }
    range_kernel_free(kernel);
    free(sums);
}

static double kaiser_bessel(const void *of, double t)
{
    return kernel_value(*(const double *)of, 1 - t);
}

static void by_sums(struct result *r, int width, double beta, int transforms, const float *k, const struct c32 *values,
                    struct dev *dev)
{
    struct range_law law;
    float *at = take(3 * SAMPLES * sizeof *at), *parts = take(2 * (size_t)transforms * SAMPLES * sizeof *parts);
    const struct range_law_params of = {.form = RANGE_SEPARABLE, .reach = width / 2.0, .error = 1e-6};
    must(range_law_make(&law, &of, kaiser_bessel, &beta), "range_law_make");
    for (size_t i = 0; i < 3 * (size_t)SAMPLES; i++)
        at[i] = (k[i] - floorf(k[i])) * GRID;
    for (size_t i = 0; i < (size_t)transforms * SAMPLES; i++) {
        const size_t transform = i / SAMPLES, sample = i % SAMPLES;
        parts[2 * transform * SAMPLES + sample] = values[i].re;
        parts[(2 * transform + 1) * SAMPLES + sample] = values[i].im;
    }
    struct range_points_params params = {.box = {.dim = 3}, .reach = law.params.reach, .inputs = SAMPLES, .at = at};
    for (int d = 0; d < 3; d++) {
        params.box.cells[d] = GRID;
        params.box.spacing[d] = 1;
        params.box.periodic[d] = true;
    }
    for (int run = 0; run < RUNS; run++) {
        struct range_points *points;
        double start = processor();
        must(range_points_create(&points, dev, &params, NULL), "range_points_create");
        r->bins = fmin(r->bins, processor() - start);
        memset(r->grid, 0, 2 * (size_t)transforms * nodes * sizeof *r->grid);
        start = processor();
        must(range_scatter(points, &law, 2 * transforms, parts, r->grid, NULL), "range_scatter");
        r->sum = fmin(r->sum, processor() - start);
        range_points_free(points);
    }
    free(at);
    free(parts);
}

static void compare(struct dev *dev, int width, int transforms)
{
    const double beta = kernel_beta(width, 1.5);
    const size_t floats = 2 * (size_t)transforms * nodes;
    struct result range = {INFINITY, INFINITY, take(floats * sizeof(float))},
                  sums = {INFINITY, INFINITY, take(floats * sizeof(float))};
    float *k = take(3 * SAMPLES * sizeof *k);
    struct c32 *values = take((size_t)transforms * SAMPLES * sizeof *values);
    double off = 0, all = 0;
    for (size_t m = 0; m < SAMPLES; m++) {
        double at[3];
        koosh_sample(READOUT, m, at);
        for (size_t d = 0; d < 3; d++)
            k[3 * m + d] = (float)at[d];
    }
    for (size_t i = 0; i < (size_t)transforms * SAMPLES; i++)
        values[i] = random_data(i);
    by_range(&range, width, beta, transforms, k, values, dev_threads(dev));
    by_sums(&sums, width, beta, transforms, k, values, dev);
    for (size_t i = 0; i < floats; i++) {
        off += pow((double)sums.grid[i] - (double)range.grid[i], 2);
        all += pow((double)range.grid[i], 2);
    }
    printf("{\"width\":%d,\"transforms\":%d,\"threads\":%d,\"range_bins_s\":%.4f,\"range_sum_s\":%.4f,"
           "\"sums_bins_s\":%.4f,\"sums_sum_s\":%.4f,\"times\":%.2f,\"apart\":%.2g}\n",
           width, transforms, dev_threads(dev), range.bins, range.sum, sums.bins, sums.sum, sums.sum / range.sum,
           sqrt(off / all));
    fflush(stdout);
    free(range.grid);
    free(sums.grid);
    free(k);
    free(values);
}

int main(int argc, char **argv)
{
    struct dev *dev;
    must(dev_create(&dev, DEV_CPU, 0, argc > 1 ? atoi(argv[1]) : 0), "dev_create");
    for (int width = 4; width <= 6; width += 2)
        for (int transforms = 1; transforms <= 8; transforms *= 8)
            compare(dev, width, transforms);
    dev_free(dev);
    return 0;
}
