/* The table of methods, and what plans choose by, but for times (costs.cu): supported shapes, errors and bins of each
 * method. Errors are from docs/notebook/gpu-choices.md, on one H200. */
#include "gridding/nufft/gpu/costs.cuh"
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/dense.h"

#include <algorithm>
#include <cmath>

static double whole(const double gain[3])
{
    return gain[0] * gain[1] * gain[2];
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

/* Tasks of equal size, several for each concurrent warp; but an accumulator spans two bins. */
static void brick8_bins(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape,
                        size_t samples, bool split)
{
    for (int d = 0; d < 3; d++)
        g->axis[d] = range_axis_make(shape->grid[d], nufft_gpu_brick8_size[d]);
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

/* Of the factors by which deapodisation amplifies errors on each axis. */
struct squares {
    double x, y, z;
};

static struct squares squares_of(const double gain[3])
{
    return squares{gain[0] * gain[0], gain[1] * gain[1], gain[2] * gain[2]};
}

/* Single halves have errors of equal size in a sample's weights on each axis (amplified only by that axis'
 * deapodisation) and in the product of weights on x and z; sum: of the squared factors. */
static double single_halves_error(int width, double sum)
{
    return (width == 8 ? 2.5e-4 : width == 7 ? 2.3e-4 : 2.2e-4) * sqrt(sum);
}

/* Of a forward transform: the grid's cells are rounded, which all axes' deapodisation amplifies; the weights on x and
 * z; and their product. */
static double halves_forward_error(const struct nufft_shape *, bool split, const double gain[3])
{
    const struct squares s = squares_of(gain);
    return split ? 0 : 2.3e-4 * sqrt(s.x * s.y * s.z + s.x + s.z + s.x * s.z);
}

/* Split halves: if samples crowd in one place their weights have few values, whose errors are correlated. */
static double split_halves_error(const double gain[3])
{
    return 2e-6 * pow(whole(gain), 1.04);
}

/* With one product, the value is rounded with its weight on y. With three: what the bias correction of truncated sums
 * leaves. */
static double brick16_error(const struct nufft_shape *shape, bool split, const double gain[3])
{
    const struct squares s = squares_of(gain);
    return split ? hypot(3e-6, split_halves_error(gain))
                 : single_halves_error(shape->width, s.x + s.y + s.z + s.x * s.z);
}

/* The correction is a mean, nearer to that of data of random sign. Those of an image around its centre have one sign in
 * a bin, and the truncations of its sums add up to twice as much. */
static double brick16_centre_error(const struct nufft_shape *, bool split, const double gain[3])
{
    return split ? hypot(7e-6, split_halves_error(gain)) : 0;
}

/* A slab's part of the grid stays in the cache, as does all of a small grid. Parts: several for each concurrent block,
 * but bricks have a cost, too. With one product, sums may be long: bins of up to a part's samples have no parts, and
 * with many transforms, which fill the device, parts are longer. */
static void brick16_bins(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape,
                         size_t samples, bool split)
{
    const double whole = 8e6, slab = 3e6; /* cells */
    const size_t sums = split ? samples : samples * (size_t)shape->batch;
    const size_t rounds = sums / ((size_t)gpu->multiprocessors * 4) / (2 * SPLIT_SAMPLES_MOST);
    double bins = 1;
    for (int d = 0; d < 3; d++)
        g->axis[d] = nufft_gpu_brick16_axis(shape->grid[d], shape->width);
    for (int d = 0; d < 3; d++)
        bins *= g->axis[d].bins;
    g->slab = (uint32_t)(nufft_gpu_cells(shape) <= whole ? bins : std::max(1., bins * slab / nufft_gpu_cells(shape)));
    g->depth = rounds < 8 ? SPLIT_SAMPLES_MOST : 2 * SPLIT_SAMPLES_MOST;
    g->light = split ? (uint32_t)SPLIT_SAMPLES_MOST : g->depth;
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

/* With one product, the value is rounded, too, and its product with the weight on y. */
static double brick_dense_error(const struct nufft_shape *shape, bool split, const double gain[3])
{
    const struct squares s = squares_of(gain);
    return split ? split_halves_error(gain) : single_halves_error(shape->width, 1 + s.x + 2 * s.y + s.z + s.x * s.z);
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
 * distributed mantissas, because crowded samples have few different weights. With three products: truncation of 4 sums
 * of 16 samples (1e-6), and 4 products of a remainder (4.2e-4 of its number, root mean square) and a rounding to BF16's
 * 8 bits (1.7e-3), together 1.4e-6 of a sample's share of a cell. */
static double brick2d_error(const struct nufft_shape *, bool split, const double gain[3])
{
    return split ? 1.7e-6 * whole(gain) : 4.2e-4 * sqrt(whole(gain));
}

/* If the grid is read as TF32 numbers, their roundings are amplified by the deapodisation of both axes. */
static double brick2d_forward_error(const struct nufft_shape *shape, bool split, const double gain[3])
{
    return split || !nufft_gpu_gathers_brick2d(shape) ? 0 : 3.6e-4 * whole(gain);
}

/* Parts of bins: several for each concurrent block, but bricks have a cost, too. */
static void brick2d_bins(struct range_geometry *g, const struct gpu *gpu, const struct nufft_shape *shape,
                         size_t samples, bool split)
{
    enum { LEAST = 512, MOST = 2048, STEP = 64 };
    size_t groups = ((size_t)shape->batch + PLANE_TRANSFORMS - 1) / PLANE_TRANSFORMS;
    size_t share = samples * groups / ((size_t)gpu->multiprocessors * 16) / STEP * STEP;
    for (int d = 0; d < 2; d++)
        g->axis[d] = nufft_gpu_brick2d_axis(shape, split, d);
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
     NULL,
     NULL,
     nufft_gpu_brick8_seconds,
     nufft_gpu_brick8_forward_seconds,
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
     halves_forward_error,
     brick16_centre_error,
     nufft_gpu_brick16_seconds,
     nufft_gpu_brick16_forward_seconds,
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
     halves_forward_error,
     NULL,
     nufft_gpu_brick_dense_seconds,
     nufft_gpu_brick_dense_forward_seconds,
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
     brick2d_forward_error,
     NULL,
     nufft_gpu_brick2d_seconds,
     nufft_gpu_brick2d_forward_seconds,
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
     NULL,
     NULL,
     nufft_gpu_tiles_seconds,
     nufft_gpu_tiles_forward_seconds,
     tiles_bins,
     NULL,
     nufft_gpu_tiles_make,
     nufft_gpu_tiles_to_grid,
     NULL,
     NULL,
     NULL},
};
