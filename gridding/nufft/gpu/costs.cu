/* The models of the methods' times, by which plans choose. Constants are those by which the plans of all cases of
 * bench_plans compare rightly on one H200 (docs/notebook/gpu-choices.md): times themselves, and single terms, are only
 * roughly so. */
#include "gridding/nufft/gpu/costs.cuh"
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/dense.h"

#include <algorithm>
#include <cmath>
#include <iterator>

/* What a 3-D transform waits for: launches one after the other, bins that wait for their neighbours. `idle` with no
 * work to do; work overlaps with it, `hidden` of each second, until `least` is left. */
struct waiting {
    double idle, hidden, least;
    double unknown; /* reading a grid: for each FFT pass of a size that the compiler does not know */
};

enum { PART = SPLIT_SAMPLES_MOST };

/* Transforms on the grid together share it. */
static double with_waiting(double work, struct waiting w, int together)
{
    return work + std::max(w.least, w.idle - w.hidden * work) / together;
}

/* Of transforms that read a grid, in which FFT passes of sizes that the compiler does not know take longer, too. */
static double reading(double work, struct waiting w, double passes, int together)
{
    return with_waiting(work, w, together) + w.unknown * (passes - 3) / together;
}

static int together_of(const struct nufft_shape *shape)
{
    return std::min(shape->batch, (int)BRICK16_TRANSFORMS);
}

/* The cells of a 3-D grid beyond those that stay in the cache, which grids of transforms together share. */
static double beyond_cache(const struct nufft_shape *shape, int together)
{
    const double cached = 5e6;
    return std::max(0., nufft_gpu_cells(shape) - cached / together);
}

/* The part of bins and cells that have samples nearby: a part `idle` of what is empty costs nothing. */
static double filled_part(const struct nufft_shape *shape, double idle)
{
    return 1 - idle * (1 - shape->filled);
}

/* The samples near the centre that one of `bins` bins of a volume has, or a part of it, at most `most`, for which a
 * call waits: those of spokes increase as a bin's edge. */
static double centre_bin(const struct nufft_shape *shape, size_t samples, double bins, double most)
{
    const double pixels = (double)shape->n[0] * shape->n[1] * shape->n[2];
    return std::min(most, (double)samples * shape->centre * cbrt(pixels / bins));
}

/* Of the fullest bin, the samples of which may be evenly spread. */
static double fullest_bin(const struct nufft_shape *shape, size_t samples, double bins, double most)
{
    const double evenly = (double)samples / (bins * shape->filled);
    return std::max(std::min(most, evenly), centre_bin(shape, samples, bins, most));
}

static double brick8_bins_of(const struct nufft_shape *shape)
{
    double bins = 1;
    for (int d = 0; d < 3; d++)
        bins *= range_axis_make(shape->grid[d], nufft_gpu_brick8_size[d]).bins;
    return bins;
}

/* ---- tiles ---- */

double nufft_gpu_tiles_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool)
{
    return 3.5e-12 * pow(shape->width, shape->dim) * (double)samples +
           (1e-11 + 2.5e-12 * passes) * nufft_gpu_cells(shape) + (shape->dim == 3 ? 1.2e-4 : 0);
}

/* Up to 4 cells bricks of 8 x 8 x 16 cells are read by the same kernel, a little more slowly where grid cells hold many
 * samples; 5 and 6 cells are read faster than by tensor cores if there are few samples. */
double nufft_gpu_tiles_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double many = 8 /* of a cell */, few = 1e5;
    const bool ahead = shape->width <= 4 ? (double)samples >= many * nufft_gpu_cells(shape)
                                         : shape->width <= 6 && (double)samples < few;
    if (shape->dim == 2 || shape->kernel != NUFFT_SEPARABLE || !ahead)
        return nufft_gpu_tiles_seconds(shape, samples, passes, split);
    const double each = shape->width == 6 ? 2.59e-10 : shape->width == 5 ? 6.85e-11 : 5.26e-11;
    const double work = each * (double)samples + (2.09e-12 + 3.74e-12 * passes) * nufft_gpu_cells(shape) +
                        1.04e-12 * beyond_cache(shape, 1);
    const double full = centre_bin(shape, samples, brick8_bins_of(shape), PART) / PART;
    return reading(work, {2.83e-5 + 1.27e-6 * full, 0.368, 2.28e-5, 1.43e-6}, passes, 1); /* one transform at a time */
}

/* ---- bricks of 8 x 8 x 16 cells, in slots ---- */

double nufft_gpu_brick8_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double bins = brick8_bins_of(shape);
    const double work =
        (split ? 4.53e-11 : 3.74e-11) * (double)samples +
        filled_part(shape, 0.287) * (2.02e-9 * bins + (5.65e-12 + 4.5e-12 * passes) * nufft_gpu_cells(shape) +
                                     3.67e-12 * beyond_cache(shape, 1));
    const double full = fullest_bin(shape, samples, bins, PART) / PART;
    const double alone = with_waiting(work, {3.98e-5 + 6.9e-6 * full, 1.26, 2.61e-5, 0}, 1);
    return split || shape->batch == 1 ? alone : work + 0.75 * (alone - work); /* two transforms at a time */
}

/* Interpolation is in float32 in any case. */
double nufft_gpu_brick8_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool)
{
    const double work = 5.59e-11 * (double)samples + (1.45e-12 + 4.04e-12 * passes) * nufft_gpu_cells(shape) +
                        1.47e-12 * beyond_cache(shape, 1);
    const double full = centre_bin(shape, samples, brick8_bins_of(shape), PART) / PART;
    return reading(work, {1.83e-5 + 9.93e-7 * full, 0.292, 1.85e-5, 3.59e-6}, passes, 1); /* one transform at a time */
}

/* ---- bricks of 16 x 16 x 16 cells ---- */

static double brick16_bins_of(const struct nufft_shape *shape)
{
    double bins = 1;
    for (int d = 0; d < 3; d++)
        bins *= nufft_gpu_brick16_axis(shape->grid[d], shape->width).bins;
    return bins;
}

/* Kernels wider than 6 cells wait longer. */
static double wide_waits(const struct nufft_shape *shape, double each)
{
    return each * std::max(0, shape->width - 6);
}

/* Bins wait for more of their neighbours on an axis with an odd number of bins, and longer where they add cells one by
 * one. */
static double brick16_idle(const struct nufft_shape *shape)
{
    double idle = 1.75e-5 + wide_waits(shape, 5.08e-6);
    for (int d = 0; d < 3; d++) {
        const struct range_axis axis = nufft_gpu_brick16_axis(shape->grid[d], shape->width);
        idle += axis.bins % 2 ? 7.5e-7 : 0;
        idle += d == 0 && axis.shift == 0 ? 4.75e-5 : 0;
    }
    return idle;
}

double nufft_gpu_brick16_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double bins = brick16_bins_of(shape);
    const int together = together_of(shape);
    /* If the average bin is heavy, most bins are cut into parts, which are stored and added up. */
    const double each = (split ? 1.03e-10 : 4.16e-11) + 6.07e-12 * (shape->width - 5) +
                        ((double)samples > SPLIT_SAMPLES_MOST * bins ? 3.21e-11 : 0);
    const double beyond = beyond_cache(shape, together) / nufft_gpu_cells(shape);
    const double of_bin = 1.23e-8 + 8.18e-9 * beyond, of_cell = 6.84e-13 + 3.53e-12 * passes + 1.02e-11 * beyond;
    const double work =
        each * (double)samples + filled_part(shape, 0.258) * (of_bin * bins + of_cell * nufft_gpu_cells(shape));
    const double full = fullest_bin(shape, samples, bins, PART) / PART;
    return with_waiting(work, {brick16_idle(shape) + 4.53e-5 * full, 0.123, 1.94e-5, 0}, together);
}

double nufft_gpu_brick16_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double bins = brick16_bins_of(shape),
                 each = (split ? 7.25e-11 : 6.13e-11) + (split ? 8.67e-12 : 2.17e-11) * (shape->width - 5);
    const int together = together_of(shape);
    const double work = each * (double)samples + (split ? 1.65e-8 : 8.12e-9) * bins +
                        (1.55e-12 + 3.53e-12 * passes) * nufft_gpu_cells(shape) +
                        1.41e-12 * beyond_cache(shape, together);
    const double full = (split ? fullest_bin : centre_bin)(shape, samples, bins, PART) / PART;
    return reading(work, {1.96e-5 + wide_waits(shape, 2.03e-6) + 2.48e-5 * full, 0.717, 3.62e-6, 2.16e-6}, passes,
                   together);
}

/* ---- bricks of 8 x 8 x 16 cells, each stored ---- */

static double brick_dense_bins_of(const struct nufft_shape *shape)
{
    double bins = 1;
    for (int d = 0; d < 3; d++)
        bins *= dense_axis(shape->grid[d], shape->width, d == 2).bins;
    return bins;
}

/* A bin's brick is written once; the wider the kernel, the more bricks are read per cell. One transform at a time. */
double nufft_gpu_brick_dense_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double of_bin = shape->width == 5 ? 4.56e-9 : shape->width == 6 ? 5.72e-9 : 1.19e-8;
    const double bins = brick_dense_bins_of(shape);
    const double work = (split ? 4.04e-11 : 3.7e-11) * (double)samples + of_bin * bins * filled_part(shape, 0.306) +
                        4.73e-12 * passes * nufft_gpu_cells(shape) + 1.63e-12 * beyond_cache(shape, 1);
    const double full = fullest_bin(shape, samples, bins, 2 * PART) / (2 * PART);
    return with_waiting(work, {1.05e-5 + 0.000177 * full, 0.082, 1.51e-5, 0}, 1);
}

double nufft_gpu_brick_dense_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const double bins = brick_dense_bins_of(shape), each = (split ? 6.9e-11 : 5.78e-11) + 2.62e-12 * (shape->width - 5);
    const double work = each * (double)samples + (split ? 7.52e-9 : 2.31e-9) * bins +
                        (2e-12 + 2.4e-12 * passes) * nufft_gpu_cells(shape) + 1.56e-12 * beyond_cache(shape, 1);
    const double full = centre_bin(shape, samples, bins, 2 * PART) / (2 * PART);
    return with_waiting(work, {1.96e-5 + 2.37e-5 * full, 0.394, 1.72e-5, 0}, 1);
}

/* ---- 2-D: bricks of 16 x 16 cells of many transforms ---- */

/* The cells that cost time: so many of a call's grids are done while it waits. */
static double cells_beyond(const struct nufft_shape *shape, double waiting)
{
    return std::max(0., nufft_gpu_cells(shape) - waiting / shape->batch);
}

static bool is_of(int cells, const int *sizes, size_t count)
{
    return std::find(sizes, sizes + count, cells) != sizes + count;
}

/* A bin's brick is written and read once: cost in proportion to the bricks' cells per grid cell. A call waits longer
 * for wider kernels, fuller bins and FFT passes of sizes that the compiler does not know, and of some that it knows:
 * `late` ones by a time per call, `slow` ones by a time per cell. */
double nufft_gpu_brick2d_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    static const int late[] = {320, 360, 384, 400, 512}, slow[] = {640, 720, 800};
    double cover = 1, bins = 1;
    for (int d = 0; d < 2; d++) {
        struct range_axis axis = nufft_gpu_brick2d_axis(shape->grid[d], shape->width);
        cover *= (double)PLANE_EDGE * axis.bins / axis.cells;
        bins *= axis.bins;
    }
    const double of_cell =
        3.5e-12 + 9.28e-12 * cover + 1.05e-11 * passes + (is_of(shape->grid[0], slow, std::size(slow)) ? 1.74e-11 : 0);
    const double of_call = 1.34e-6 * shape->width + 7.43e-6 * std::min((double)samples / bins / 256, 1.) +
                           1.53e-6 * (passes - 2) + (is_of(shape->grid[0], late, std::size(late)) ? 2.47e-6 : 0);
    return (split ? 1.17e-11 : 3.28e-12) * (double)samples + of_cell * cells_beyond(shape, 1.73e5) +
           of_call / shape->batch;
}

/* What a cell costs more in forward FFT passes of three stages one of which has radix 16, seconds. */
static double sixteen_costs(const struct nufft_shape *shape)
{
    static const int sizes[] = {672, 768, 864, 896, 960, 1008, 1024};
    return is_of(shape->grid[0], sizes, std::size(sizes)) ? 3.71e-12 : 0;
}

/* Reading grids on tensor cores (gather_brick2d.cu): samples are written in the caller's order, whatever the kernel;
 * rows of up to 8 cells are one product, which kernels of up to 5 cells have. Squares of 4 x 4 base cells divide the
 * bins of kernels of 5 and 8 cells; others have more squares, with fewer samples each. A call of few samples waits for
 * a warp's products, which are of 8 or 16 transforms. The FFT's first pass goes over the image's columns only. */
static double gather_planes_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    static const double of_sample[2][4] = {{2.66e-12, 6.53e-12, 9.78e-12, 8.52e-12}, /* of 5 to 8 cells */
                                           {3.75e-12, 2.43e-11, 2.88e-11, 2.65e-11}},
                        of_call[2][4] = {{4e-7, 1.19e-5, 1.08e-5, 9e-6}, {1.78e-5, 5e-6, 5.02e-6, 3.6e-6}};
    const int kernel = std::max(shape->width, 5) - 5,
              each = shape->batch <= PLANE_TRANSFORMS / 2 ? PLANE_TRANSFORMS / 2 : PLANE_TRANSFORMS;
    const double carried = (double)((shape->batch + each - 1) / each * each) / shape->batch;
    const double swept = passes / 2 * shape->grid[1] * ((double)shape->grid[0] + shape->n[0]);
    const double of_cell = 1.98e-11 + sixteen_costs(shape);
    return of_sample[split][kernel] * (double)samples * carried + of_cell * nufft_gpu_cells(shape) + 1.05e-11 * swept +
           (of_call[split][kernel] + 4.02e-6 * (passes - 2)) / shape->batch;
}

/* On tensor cores if there are many transforms. Else in float32 (gather.cu), the widest kernels without unrolled loops.
 */
double nufft_gpu_brick2d_forward_seconds(const struct nufft_shape *shape, size_t samples, double passes, bool split)
{
    const int width = shape->width;
    const bool unrolled = width <= 8;
    if (nufft_gpu_gathers_brick2d(shape))
        return gather_planes_seconds(shape, samples, passes, split);
    const double of_call = (unrolled ? 0 : 4.82e-6) + 3.6e-6 + 6.45e-7 * width + 7e-7 * (passes - 2);
    return (unrolled ? 1.02e-12 : 1.48e-12) * width * width * (double)samples +
           (2.01e-12 + 3.94e-12 * passes + sixteen_costs(shape)) * cells_beyond(shape, 8e4) + of_call / shape->batch;
}
