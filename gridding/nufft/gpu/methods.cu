/* The table of methods, and the models by which plans choose: supported shapes, errors, times and bins of each method.
 * Times and errors are from docs/notebook/gpu-choices.md, on one H200. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/dense.h"

#include <algorithm>
#include <cmath>

static double cells_of(const struct nufft_shape *shape)
{
    return (double)shape->grid[0] * shape->grid[1] * shape->grid[2];
}

static double whole(const double gain[3])
{
    return gain[0] * gain[1] * gain[2];
}

/* What a 3-D transform waits for: launches one after the other, bins that wait for their neighbours. `idle` with no
 * work to do; work overlaps with it, `hidden` of each second, until `least` is left. */
struct waiting {
    double idle, hidden, least;
};

/* Transforms on the grid together share it. */
static double with_waiting(double work, struct waiting w, int together)
{
    return work + std::max(w.least, w.idle - w.hidden * work) / together;
}

/* Of transforms that read a grid, in which FFT passes of sizes that the compiler does not know take longer, too. */
static double reading(double work, struct waiting w, double passes, int together)
{
    return with_waiting(work, w, together) + 1.5e-6 * (passes - 3) / together;
}

static int together_of(const struct nufft_shape *shape)
{
    return std::min(shape->batch, (int)BRICK16_TRANSFORMS);
}

/* ---- tiles ---- */

static bool tiles_serve(const struct nufft_shape *)
{
    return true;
}

static double tiles_error(const struct nufft_shape *, bool, const double *)
{
    return 0;
}

static double tiles_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool)
{
    return 3.5e-12 * pow(shape->width, shape->dim) * (double)samples + (1e-11 + 2.5e-12 * passes) * cells_of(shape) +
           (shape->dim == 3 ? 1.2e-4 : 0);
}

/* Up to 4 cells bricks of 8 x 8 x 16 cells are read by the same kernel, a little more slowly where grid cells hold many
 * samples; 5 and 6 cells are read faster than by tensor cores if there are few samples. */
static double tiles_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double many = 8 /* of a cell */, few = 1e5;
    const bool ahead =
        shape->width <= 4 ? (double)samples >= many * cells_of(shape) : shape->width <= 6 && (double)samples < few;
    if (shape->dim == 2 || shape->kernel != NUFFT_SEPARABLE || !ahead)
        return tiles_seconds(shape, samples, passes, split);
    const double each = shape->width == 6 ? 1.6e-10 : shape->width == 5 ? 8.2e-11 : 4.2e-11;
    const double work = each * (double)samples + (2e-12 + 4.2e-12 * passes) * cells_of(shape);
    return reading(work, {3.2e-5, 0.35, 2.4e-5}, passes, 1); /* one transform at a time */
}

/* About 8 cells an axis, and 4/3 of the kernel's reach at least (range_gpu.cuh). */
static void tiles_bins(struct range_geometry *g, const struct gpu *, const struct nufft_shape *shape, size_t, bool)
{
    const int size = std::max(shape->dim == 2 ? 16 : 8, (4 * (shape->width - 1) + 2) / 3);
    for (int d = 0; d < shape->dim; d++)
        g->axis[d] = range_axis_make(shape->grid[d], size);
    g->by_cell = false;
    g->light = g->depth = 256; /* summed one by one in float32 */
}

/* ---- bricks of 8 x 8 x 16 cells, in slots ---- */

static const int brick8_size[3] = {4, 5, 13}; /* of a bin, in cells */

static bool brick8_serves(const struct nufft_shape *shape)
{
    const int least = 16; /* slots: two bins an axis are enough */
    return shape->dim == 3 && shape->kernel == NUFFT_SEPARABLE && shape->width <= 4 && shape->grid[0] >= least &&
           shape->grid[1] >= least && shape->grid[2] >= least;
}

/* Most errors are uncorrelated between cells. The truncation of long sums with split operands acts like an error of the
 * data. */
static double brick8_error(const struct nufft_shape *, bool split, const double gain[3])
{
    return split ? hypot(2.5e-5, 1.5e-6 * whole(gain)) : 3.3e-4 * whole(gain);
}

static double brick8_bins_of(const struct nufft_shape *shape)
{
    double bins = 1;
    for (int d = 0; d < 3; d++)
        bins *= range_axis_make(shape->grid[d], brick8_size[d]).bins;
    return bins;
}

/* These two, and those of 16^3 bricks, are too high for spokes, which leave the corners of k-space empty, and too low
 * for samples that fill it: constants are such that methods are chosen rightly for both. */
static double brick8_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double work = 3e-11 * (split ? 1.5 : 1) * (double)samples + 1.6e-9 * brick8_bins_of(shape) +
                        (2e-12 + 5.5e-12 * passes) * cells_of(shape);
    const double alone = with_waiting(work, {6.4e-5, 1.02, 5.2e-5}, 1);
    return split || shape->batch == 1 ? alone : work + 0.75 * (alone - work); /* two transforms at a time */
}

/* Interpolation is in float32 in any case. */
static double brick8_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool)
{
    const double work = 4.5e-11 * (double)samples + (2e-12 + 4.2e-12 * passes) * cells_of(shape);
    return reading(work, {3.2e-5, 0.35, 2.4e-5}, passes, 1); /* one transform at a time */
}

/* Tasks of equal size, several for each concurrent warp; but an accumulator spans two bins. */
static void brick8_bins(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape,
                        size_t samples, bool split)
{
    for (int d = 0; d < 3; d++)
        g->axis[d] = range_axis_make(shape->grid[d], brick8_size[d]);
    size_t share = samples / ((size_t)gpu->multiprocessors * 16 * 4) / 64 * 64;
    g->run_samples = (uint32_t)std::min<size_t>(std::max<size_t>(share, 256), SPLIT_SAMPLES_MOST);
    uint32_t row = (uint32_t)g->axis[0].bins, runs = (row + RUN_BINS_MOST - 1) / RUN_BINS_MOST;
    g->run_bins = (row + runs - 1) / runs;
    g->light = std::min<uint32_t>(g->run_samples, split ? SPLIT_SAMPLES_MOST / 2 : SPLIT_SAMPLES_MOST);
    g->depth = g->run_samples;
}

/* ---- bricks of 16 x 16 x 16 cells ---- */

/* No bin is shorter than the kernel's reach, and an axis has at least three bins, so a brick overlaps only those of its
 * neighbours, never itself. */
static bool brick16_serves(const struct nufft_shape *shape)
{
    bool fits = shape->dim == 3 && shape->kernel == NUFFT_SEPARABLE && shape->width >= 5 && shape->width <= 8;
    for (int d = 0; fits && d < 3; d++) {
        const struct range_axis axis = nufft_gpu_brick16_axis(shape->grid[d], shape->width);
        fits = axis.bins >= 2 && axis_least(axis) >= shape->width - 1;
    }
    return fits;
}

/* Single halves have errors of equal size in a sample's value (like an error of the data), in its weights on each axis
 * (amplified only by that axis' deapodisation), in the value times the weight on y, and in the product of weights on x
 * and z. */
static double single_halves_error(int width, const double gain[3])
{
    const double x = gain[0] * gain[0], y = gain[1] * gain[1], z = gain[2] * gain[2];
    return (width == 8 ? 2.5e-4 : width == 7 ? 2.3e-4 : 2.2e-4) * sqrt(1 + x + 2 * y + z + x * z);
}

/* Split halves: if samples crowd in one place their weights have few values, whose errors are correlated. */
static double split_halves_error(const double gain[3])
{
    return 2e-6 * pow(whole(gain), 1.04);
}

/* The factor is the remaining error after the bias correction of truncated sums. */
static double brick16_error(const struct nufft_shape *shape, bool split, const double gain[3])
{
    return split ? hypot(5.5e-6, split_halves_error(gain)) : single_halves_error(shape->width, gain);
}

static double brick16_bins_of(const struct nufft_shape *shape)
{
    double bins = 1;
    for (int d = 0; d < 3; d++)
        bins *= nufft_gpu_brick16_axis(shape->grid[d], shape->width).bins;
    return bins;
}

/* Wider kernels than 6 cells wait longer. */
static double wide_waits(const struct nufft_shape *shape)
{
    return 4e-6 * std::max(0, shape->width - 6);
}

/* Bins wait for more of their neighbours on an axis with an odd number of bins, and longer where they add cells one by
 * one. */
static struct waiting brick16_waiting(const struct nufft_shape *shape)
{
    struct waiting w = {7.3e-5 + wide_waits(shape), 0.38, 2e-5};
    for (int d = 0; d < 3; d++) {
        const struct range_axis axis = nufft_gpu_brick16_axis(shape->grid[d], shape->width);
        w.idle += axis.bins % 2 ? 8e-6 : 0;
        w.idle += d == 0 && axis.shift == 0 ? 2e-5 : 0;
    }
    return w;
}

static double brick16_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double bins = brick16_bins_of(shape);
    /* If the average bin is heavy, most bins are cut into parts, which are stored and added up. */
    const double each = (split ? 1.05e-10 : 6.1e-11) + ((double)samples > SPLIT_SAMPLES_MOST * bins ? 4e-11 : 0);
    const double of_cell = cells_of(shape) < 1e6 ? 4.5e-12 : 3e-12;
    const double work = each * (double)samples + 9.5e-9 * bins + (of_cell + 3.2e-12 * passes) * cells_of(shape);
    return with_waiting(work, brick16_waiting(shape), together_of(shape));
}

static double brick16_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double each = (split ? 5.7e-11 : 4.9e-11) + (split ? 6.4e-12 : 5.3e-12) * (shape->width - 5);
    const double work = each * (double)samples + (split ? 1.13e-8 : 7e-9) * brick16_bins_of(shape) +
                        (2e-12 + 4.2e-12 * passes) * cells_of(shape);
    return reading(work, {3.9e-5 + wide_waits(shape), 0.45, 2.1e-5}, passes, together_of(shape));
}

/* A slab's part of the grid stays in the cache, as does all of a small grid. Parts: several for each concurrent block,
 * but bricks have a cost, too. */
static void brick16_bins(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape,
                         size_t samples, bool)
{
    const double whole = 8e6, slab = 3e6; /* cells */
    const size_t rounds = samples / ((size_t)gpu->multiprocessors * 4) / (2 * SPLIT_SAMPLES_MOST);
    double bins = 1;
    for (int d = 0; d < 3; d++)
        g->axis[d] = nufft_gpu_brick16_axis(shape->grid[d], shape->width);
    for (int d = 0; d < 3; d++)
        bins *= g->axis[d].bins;
    g->light = SPLIT_SAMPLES_MOST;
    g->slab = (uint32_t)(cells_of(shape) <= whole ? bins : std::max(1., bins * slab / cells_of(shape)));
    g->depth = rounds < 8 ? SPLIT_SAMPLES_MOST : 2 * SPLIT_SAMPLES_MOST;
}

/* Groups of about equal size, limited by the z planes of a launch. */
static size_t brick16_group(const struct nufft_gpu *plan, size_t each, size_t available)
{
    const size_t batch = (size_t)plan->shape.batch;
    size_t fits = available / 2 / each, most = std::min(batch, (size_t)BRICK16_TRANSFORMS);
    if (plan->overflow)
        return 1;
    fits = std::min(fits, nufft_gpu_workspace_most(plan) / each);
    fits = std::min(fits, (size_t)NUFFT_LAUNCH_ROWS / (size_t)plan->shape.grid[2]);
    if (fits > 0 && fits < most) {
        size_t groups = (batch + fits - 1) / fits;
        most = (batch + groups - 1) / groups;
    }
    return std::min(most, std::max((size_t)1, fits));
}

/* ---- bricks of 8 x 8 x 16 cells, each stored ---- */

/* Any grid: a cell adds up the bricks that contain it, also if one of them contains it several times. */
static bool brick_dense_serves(const struct nufft_shape *shape)
{
    return shape->dim == 3 && shape->kernel == NUFFT_SEPARABLE && shape->width >= 5 && shape->width <= 8 &&
           shape->overflow != NUFFT_OVERFLOW_CPU; /* overflow to the CPU is by bins of brick16 */
}

static double brick_dense_error(const struct nufft_shape *shape, bool split, const double gain[3])
{
    return split ? split_halves_error(gain) : single_halves_error(shape->width, gain);
}

static double brick_dense_bins_of(const struct nufft_shape *shape)
{
    double bins = 1;
    for (int d = 0; d < 3; d++)
        bins *= dense_axis(shape->grid[d], shape->width, d == 2).bins;
    return bins;
}

/* A bin's brick is written once; the wider the kernel, the more bricks are read per cell. */
static double brick_dense_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double of_bin = shape->width == 5 ? 4.5e-9 : shape->width == 6 ? 7.5e-9 : 1.1e-8;
    const double bins = brick_dense_bins_of(shape);
    const double work =
        (split ? 4.3e-11 : 3.5e-11) * (double)samples + of_bin * bins + 3.2e-12 * passes * cells_of(shape);
    return with_waiting(work, {7.8e-5, 0.35, 3e-5}, std::min(shape->batch, 2));
}

static double brick_dense_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double each = (split ? 5.6e-11 : 5.3e-11) + 4e-12 * (shape->width - 5);
    const double work = each * (double)samples + (split ? 2.9e-9 : 2.3e-9) * brick_dense_bins_of(shape) +
                        (2e-12 + 4e-12 * passes) * cells_of(shape);
    return with_waiting(work, {4.8e-5, 0.45, 2.8e-5}, together_of(shape));
}

static void brick_dense_bins(struct range_geometry *g, const struct gpu *, const struct nufft_shape *shape, size_t,
                             bool)
{
    for (int d = 0; d < 3; d++)
        g->axis[d] = dense_axis(shape->grid[d], shape->width, d == 2);
    g->light = g->depth = 2 * SPLIT_SAMPLES_MOST; /* a part's brick is handled as a bin's */
}

/* ---- 2-D: bricks of 16 x 16 cells of many transforms ---- */

static bool brick2d_serves(const struct nufft_shape *shape)
{
    const int least = 32;
    return shape->dim == 2 && shape->kernel == NUFFT_SEPARABLE && shape->grid[0] >= least && shape->grid[1] >= least;
}

/* Values times weights of one axis are rounded, and the weights of the other; the factor is 1.5 times that of uniformly
 * distributed mantissas, because crowded samples have few different weights. */
static double brick2d_error(const struct nufft_shape *, bool split, const double gain[3])
{
    return split ? 1.5e-6 * whole(gain) : 4.2e-4 * sqrt(whole(gain));
}

/* Seconds a transform of what does not depend on the number of cells: a call waits longer for wider kernels, fuller
 * bins and FFT passes of sizes that the compiler does not know. */
static double plane_latency(const struct nufft_shape *shape, double passes, double samples_of_bin)
{
    return (2e-6 * shape->width + 1e-8 * std::min(samples_of_bin, 256.) + 1e-6 * (passes - 2)) / shape->batch;
}

/* The cells that cost time: so many of a call's grids are done while it waits. */
static double cells_beyond(const struct nufft_shape *shape)
{
    const double waiting = 1.8e5;
    return std::max(0., cells_of(shape) - waiting / shape->batch);
}

/* A bin's brick is written and read once: cost in proportion to the bricks' cells per grid cell. */
static double brick2d_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    double cover = 1, bins = 1;
    for (int d = 0; d < 2; d++) {
        struct range_axis axis = nufft_gpu_brick2d_axis(shape->grid[d], shape->width);
        cover *= (double)PLANE_EDGE * axis.bins / axis.cells;
        bins *= axis.bins;
    }
    return (split ? 2e-11 : 1.1e-11) * (double)samples +
           (2e-12 + 3.2e-12 * cover + 4.2e-12 * passes) * cells_beyond(shape) +
           plane_latency(shape, passes, (double)samples / bins);
}

/* Reading grids on tensor cores (gather_brick2d.cu): samples are written in the caller's order, whatever the kernel;
 * rows of up to 8 cells are one product, which kernels of up to 5 cells have. Squares of 4 x 4 base cells divide the
 * bins of kernels of 5 and 8 cells; others have more squares, with fewer samples each. A call of few samples waits for
 * a warp's products. The FFT's first pass goes over the image's columns only. */
static double gather_planes_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    static const double of_sample[2][4] = {{1.53e-11, 1.73e-11, 1.86e-11, 1.71e-11}, /* of 5 to 8 cells */
                                           {1.52e-11, 2.35e-11, 2.74e-11, 2.49e-11}},
                        of_call[2][4] = {{3e-7, 6.7e-6, 8.4e-6, 6.5e-6}, {1.76e-5, 2.13e-5, 1.95e-5, 1.69e-5}};
    const int kernel = std::max(shape->width, 5) - 5;
    const double swept = passes / 2 * shape->grid[1] * ((double)shape->grid[0] + shape->n[0]);
    return of_sample[split][kernel] * (double)samples + 9.6e-12 * cells_of(shape) + 4.2e-12 * swept +
           (of_call[split][kernel] + 9.3e-6 * (passes - 2)) / shape->batch;
}

/* On tensor cores if there are many transforms. Else in float32 (gather.cu), the widest kernels without unrolled loops.
 */
static double brick2d_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const int width = shape->width;
    const bool unrolled = width <= 8;
    if (nufft_gpu_gathers_brick2d(shape))
        return gather_planes_seconds(shape, samples, passes, split);
    return (unrolled ? 1.7e-12 : 2.3e-12) * width * width * (double)samples + (unrolled ? 0 : 1.5e-5 / shape->batch) +
           (2e-12 + 4.2e-12 * passes) * cells_beyond(shape) + plane_latency(shape, passes, 0);
}

/* Parts of bins: several for each concurrent block, but bricks have a cost, too. */
static void brick2d_bins(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape,
                         size_t samples, bool)
{
    enum { LEAST = 512, MOST = 2048, STEP = 64 };
    size_t groups = ((size_t)shape->batch + PLANE_TRANSFORMS - 1) / PLANE_TRANSFORMS;
    size_t share = samples * groups / ((size_t)gpu->multiprocessors * 16) / STEP * STEP;
    for (int d = 0; d < 2; d++)
        g->axis[d] = nufft_gpu_brick2d_axis(shape->grid[d], shape->width);
    g->by_cell = nufft_gpu_gathers_brick2d(shape);
    g->light = g->depth = (uint32_t)std::min<size_t>(std::max<size_t>(share, LEAST), MOST);
}

/* Multiples of PLANE_TRANSFORMS; if samples overflow, a whole number of groups per chunk of the CPU. */
static size_t brick2d_group(const struct nufft_gpu *plan, size_t each, size_t available)
{
    const size_t step = PLANE_TRANSFORMS;
    size_t fits = available / 2 / each / step * step;
    size_t most = std::min((size_t)plan->shape.batch, (size_t)NUFFT_LAUNCH_ROWS / step * step);
    if (plan->overflow) {
        most = std::min(most, (size_t)NUFFT_OVERFLOW_GROUP);
        fits -= fits > 0 && fits < most ? NUFFT_OVERFLOW_GROUP % fits : 0;
    }
    return std::min(most, std::max(step, fits));
}

/* ---- the table ---- */

enum { CHUNK = 16, THREADS = 128, THREADS_OF_BRICK8 = 64 /* light bins have some 80 samples */ };

const struct nufft_gpu_method nufft_gpu_methods[NUFFT_GPU_METHODS] = {
    {NUFFT_METHOD_BRICK8,
     true,
     true,
     {6, 9},
     THREADS_OF_BRICK8,
     CHUNK,
     brick8_serves,
     brick8_error,
     brick8_seconds,
     brick8_forward_seconds,
     brick8_bins,
     NULL,
     nufft_gpu_brick8_make,
     nufft_gpu_slots_to_plan_grid,
     nufft_gpu_slots_to_image,
     NULL,
     NULL},
    {NUFFT_METHOD_BRICK16,
     true,
     true,
     {0, 0},
     THREADS,
     CHUNK,
     brick16_serves,
     brick16_error,
     brick16_seconds,
     brick16_forward_seconds,
     brick16_bins,
     brick16_group,
     nufft_gpu_brick16_make,
     nufft_gpu_brick16_to_grid,
     NULL,
     nufft_gpu_gathers_brick16,
     nufft_gpu_gather_brick16},
    {NUFFT_METHOD_BRICK_DENSE,
     true,
     false,
     {0, 0},
     THREADS,
     0,
     brick_dense_serves,
     brick_dense_error,
     brick_dense_seconds,
     brick_dense_forward_seconds,
     brick_dense_bins,
     NULL,
     nufft_gpu_brick_dense_make,
     nufft_gpu_brick_dense_to_grid,
     NULL,
     nufft_gpu_gathers_brick16,
     nufft_gpu_gather_brick16},
    {NUFFT_METHOD_BRICK2D,
     true,
     true,
     {0, 0},
     THREADS,
     NUFFT_OVERFLOW_GROUP,
     brick2d_serves,
     brick2d_error,
     brick2d_seconds,
     brick2d_forward_seconds,
     brick2d_bins,
     brick2d_group,
     nufft_gpu_brick2d_make,
     nufft_gpu_brick2d_to_grid,
     nufft_gpu_brick2d_to_image,
     nufft_gpu_gathers_brick2d,
     nufft_gpu_gather_brick2d},
    {NUFFT_METHOD_TILES,
     false,
     true,
     {0, 0},
     THREADS,
     CHUNK,
     tiles_serve,
     tiles_error,
     tiles_seconds,
     tiles_forward_seconds,
     tiles_bins,
     NULL,
     nufft_gpu_tiles_make,
     nufft_gpu_tiles_to_grid,
     NULL,
     NULL,
     NULL},
};
