/* The models of the methods' times, by which plans choose: what samples, bins and cells cost, and the FFT's passes by
 * their size (fft_costs.cuh). Constants are fitted to the times of the cases of bench_plans, but for those held out
 * (docs/notebook/gpu-choices.md), so that plans of a case compare rightly: times themselves, and single terms, are only
 * roughly so. */
#include "gridding/nufft/gpu/costs.cuh"
#include "gridding/nufft/gpu/fft_costs.cuh"
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/dense.h"

#include <algorithm>
#include <cmath>

enum { PART = SPLIT_SAMPLES_MOST };

/* Seconds of a call of so much work: what it waits for (launches, a full bin), and a time `hidden` in which work
 * overlaps with launches. */
static double call_seconds(double work, double wait, double hidden)
{
    return work + wait + hidden * exp(-work / hidden);
}

/* ---- three axes ---- */

/* What a transform of a volume costs, seconds. Of [1] the sums are of three products. */
struct volume_costs {
    double sample[2], wider[2]; /* a sample, with a kernel of 5 cells, and of each more */
    double part;                /* more of a sample in a bin that is cut into parts */
    double bin[2], bin_beyond;  /* a bin with samples; more if its cells are not in the cache */
    double cell, wait, hidden;
    double wide; /* waiting, for each cell of the kernel more than 6 */
    double full; /* waiting for the fullest bin if it has a whole part's samples */
};

/* The FFT's three passes: by axis, of a cell read or written; more of those beyond the cache; of a size that is not
 * compiled, as a factor, and of a call. */
struct volume_fft {
    double axis[3], beyond, cached, unknown, call;
};

static const struct volume_fft fft_back = {{4.28e-12, 9.99e-12, 1.79e-12}, 0.157, 3.96e6, 1.46, 2.17e-6},
                               fft_forth = {{3.57e-12, 1.14e-12, 3.89e-12}, 0.0618, 1.83e6, 2.17, 1.65e-6};

/* How a volume's samples lie in a method's bins. */
struct volume_bins {
    double bins, most; /* samples of a bin, or of a part of one */
    double cost;       /* of a bin, as a factor */
    double wait;       /* for neighbours */
    int together;      /* transforms on the grid together, which share its waiting */
    double unhidden;   /* the part of its waiting during which no other transform is computed */
    bool fullest;      /* whether a call waits for the fullest bin if samples are evenly spread, too */
};

static double pixels_of(const struct nufft_shape *shape)
{
    return (double)shape->n[0] * shape->n[1] * shape->n[2];
}

/* Whether samples lie in a ball, whose density decreases with the square of the distance as that of spokes does. */
static bool in_ball(const struct nufft_shape *shape)
{
    return shape->filled < 0.6;
}

/* The bins with samples: those of a ball or a cylinder, and of half a bin around it. */
static double filled_bins(const struct nufft_shape *shape, double bins)
{
    const double around = 1 + 1 / cbrt(bins);
    return shape->filled < 1 ? std::min(bins, bins * shape->filled * pow(around, in_ball(shape) ? 3 : 2)) : bins;
}

/* The share of the samples in bins of more than `most`: within some distance of the centre, as density decreases there;
 * of evenly spread samples soon all. */
static double share_of_parts(const struct nufft_shape *shape, double mean, double most)
{
    const double spread = 0.06, of_spokes = 2 / M_PI * mean / most;
    if (shape->filled < 1)
        return std::min(1., in_ball(shape) ? sqrt(of_spokes) : of_spokes);
    return 1 / (1 + exp(std::min(50., (1 - mean / most) / spread)));
}

/* The samples of the fullest bin, or a part of it: near the centre those of spokes increase as a bin's edge. */
static double fullest_bin(const struct nufft_shape *shape, size_t samples, const struct volume_bins *v)
{
    const double evenly = v->fullest ? (double)samples / v->bins / shape->filled : 0;
    const double centre = (double)samples * shape->centre * cbrt(pixels_of(shape) / v->bins);
    return std::min(v->most, std::max(evenly, centre));
}

/* The part of the grids of transforms together that does not stay in the cache. */
static double part_beyond(const struct nufft_shape *shape, double cached, int together)
{
    return std::max(0., 1 - cached / together / nufft_gpu_cells(shape));
}

/* Passes keep only the image's part of each axis, and along x leave out lines without samples, those outside a circle.
 */
static double volume_fft_seconds(const struct nufft_shape *shape, const struct volume_fft *fft, bool forth,
                                 double beyond, int together)
{
    double cells = nufft_gpu_cells(shape), work = 0;
    int unknown = 0;
    for (int d = 0; d < 3; d++) {
        const double kept = (double)shape->n[d] / shape->grid[d];
        const bool known = fft_size_known(shape->grid[d]);
        const double lines = d == 0 && in_ball(shape) ? M_PI / 4 : 1;
        work += fft->axis[d] * (known ? 1 : fft->unknown) * fft_size_costs_of(shape->grid[d]).volume[forth] * lines *
                cells * (1 + kept);
        cells *= kept;
        unknown += !known;
    }
    return work * (1 + fft->beyond * beyond) + fft->call * unknown / together;
}

static double volume_seconds(const struct nufft_shape *shape, size_t samples, bool split, const struct volume_costs *c,
                             const struct volume_bins *v, bool forth)
{
    const struct volume_fft *fft = forth ? &fft_forth : &fft_back;
    const double beyond = part_beyond(shape, fft->cached, v->together);
    const double each = c->sample[split] + c->wider[split] * (shape->width - 5) +
                        c->part * share_of_parts(shape, (double)samples / v->bins, v->most);
    const double of_bin = c->bin[split] * v->cost + c->bin_beyond * beyond;
    const double work = each * (double)samples + of_bin * filled_bins(shape, v->bins) +
                        c->cell * nufft_gpu_cells(shape) + volume_fft_seconds(shape, fft, forth, beyond, v->together);
    const double wait = c->wait + v->wait + c->wide * std::max(0, shape->width - 6) +
                        c->full * fullest_bin(shape, samples, v) / v->most;
    const double all = work * v->together, waiting = call_seconds(all, wait, c->hidden) - all;
    return (all + v->unhidden * waiting) / v->together;
}

/* ---- bricks of 8 x 8 x 16 cells, in slots, and tiles ---- */

static struct volume_bins brick8_bins_of(const struct nufft_shape *shape, bool fullest)
{
    struct volume_bins v = {1, PART, 1, 0, 1, 1, fullest};
    for (int d = 0; d < 3; d++)
        v.bins *= range_axis_make(shape->grid[d], nufft_gpu_brick8_size[d]).bins;
    return v;
}

double nufft_gpu_brick8_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    static const struct volume_costs costs = {
        {3.19e-11, 8.08e-11}, {0, 0}, 8.72e-13, {4.95e-10, 1e-9}, 9.55e-10, 8.61e-12, 2.2e-5, 7.61e-6, 0, 2.41e-6};
    struct volume_bins v = brick8_bins_of(shape, true);
    v.unhidden = split || shape->batch == 1 ? 1 : 0.648; /* two transforms at a time */
    return volume_seconds(shape, samples, split, &costs, &v, false);
}

/* Interpolation is in float32 in any case. */
double nufft_gpu_brick8_forward_seconds(const struct nufft_shape *shape, size_t samples, bool)
{
    static const struct volume_costs costs = {{4.35e-11, 0}, {0, 0}, 1.59e-11, {1.53e-9, 0}, 6.27e-10, 3.8e-13,
                                              1.4e-5,        6.1e-6, 0,        5.49e-7};
    const struct volume_bins v = brick8_bins_of(shape, false);
    return volume_seconds(shape, samples, false, &costs, &v, true);
}

double nufft_gpu_tiles_seconds(const struct nufft_shape *shape, size_t samples, bool)
{
    double passes = 0;
    for (int d = 0; d < shape->dim; d++)
        passes += fft_size_known(shape->grid[d]) ? 1 : 2;
    return 3.5e-12 * pow(shape->width, shape->dim) * (double)samples +
           (1e-11 + 2.5e-12 * passes) * nufft_gpu_cells(shape) + (shape->dim == 3 ? 1.2e-4 : 0);
}

/* Up to 4 cells bricks of 8 x 8 x 16 cells are read by the same kernel, a little more slowly where grid cells hold many
 * samples; 5 and 6 cells are read faster than by tensor cores if there are few samples. */
double nufft_gpu_tiles_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    const double many = 8 /* of a cell */, few = 1e5;
    const bool ahead = shape->width <= 4 ? (double)samples >= many * nufft_gpu_cells(shape)
                                         : shape->width <= 6 && (double)samples < few;
    if (shape->dim == 2 || shape->kernel != NUFFT_SEPARABLE || !ahead)
        return nufft_gpu_tiles_seconds(shape, samples, split);
    struct volume_costs costs = {{3.94e-11, 0}, {0, 0},  1.43e-11, {2.12e-9, 0}, 2.96e-9, 1.05e-12,
                                 1.56e-5,       9.11e-6, 0,        8.11e-7};
    costs.sample[0] *= shape->width == 6 ? 3.91 : shape->width == 5 ? 1.18 : 1;
    const struct volume_bins v = brick8_bins_of(shape, false);
    return volume_seconds(shape, samples, false, &costs, &v, true);
}

/* ---- bricks of 16 x 16 x 16 cells ---- */

/* A bin costs in proportion to the cells that its samples reach, and more if they are added one by one. Bins wait for
 * more of their neighbours on an axis with an odd number of bins. */
static struct volume_bins brick16_bins_of(const struct nufft_shape *shape, bool forth, bool split)
{
    struct volume_bins v = {1, PART, 1, 0, std::min(shape->batch, (int)BRICK16_TRANSFORMS), 1, split || !forth};
    for (int d = 0; d < 3; d++) {
        const struct range_axis axis = nufft_gpu_brick16_axis(shape->grid[d], shape->width);
        v.bins *= axis.bins;
        v.cost *= ((double)axis.cells / axis.bins + shape->width - 1) / BRICK16_EDGE;
        v.wait += !forth && axis.bins % 2 ? 2.81e-6 : 0;
        if (!forth && d == 0 && axis.shift == 0) {
            v.cost *= 1.97;
            v.wait += 9.88e-6;
        }
    }
    return v;
}

double nufft_gpu_brick16_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    static const struct volume_costs costs = {{4.19e-11, 7.12e-11},
                                              {5.34e-12, 6.11e-12},
                                              1.55e-11,
                                              {6.71e-9, 6e-9},
                                              1.53e-8,
                                              3.67e-13,
                                              2.18e-5,
                                              4.63e-6,
                                              1.94e-6,
                                              1.71e-5};
    const struct volume_bins v = brick16_bins_of(shape, false, split);
    return volume_seconds(shape, samples, split, &costs, &v, false);
}

double nufft_gpu_brick16_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    static const struct volume_costs costs = {{5.52e-11, 8.42e-11},
                                              {2.56e-12, 2.59e-12},
                                              2.55e-12,
                                              {1.05e-8, 1.65e-8},
                                              5.12e-9,
                                              5.23e-13,
                                              1.59e-5,
                                              1.01e-5,
                                              3.76e-7,
                                              4.13e-6};
    const struct volume_bins v = brick16_bins_of(shape, true, split);
    return volume_seconds(shape, samples, split, &costs, &v, true);
}

/* ---- bricks of 8 x 8 x 16 cells, each stored ---- */

/* One transform at a time. Back, the wider the kernel, the more bricks are read per cell. */
static struct volume_bins brick_dense_bins_of(const struct nufft_shape *shape, bool forth, bool split)
{
    static const double wide[] = {1, 2.39, 2.42, 9.8}; /* 5 to 8 cells */
    struct volume_bins v = {1, 2 * PART, forth ? 1 : wide[shape->width - 5], 0, 1, 1, split || !forth};
    for (int d = 0; d < 3; d++)
        v.bins *= dense_axis(shape->grid[d], shape->width, d == 2).bins;
    return v;
}

double nufft_gpu_brick_dense_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    static const struct volume_costs costs = {{2.73e-11, 3.6e-11},
                                              {2.58e-12, 5.37e-12},
                                              5.09e-12,
                                              {1.63e-9, 2.45e-9},
                                              0,
                                              2.07e-11,
                                              9.45e-6,
                                              7.16e-6,
                                              1.85e-6,
                                              3.29e-5};
    const struct volume_bins v = brick_dense_bins_of(shape, false, split);
    return volume_seconds(shape, samples, split, &costs, &v, false);
}

double nufft_gpu_brick_dense_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    static const struct volume_costs costs = {{4.92e-11, 5.46e-11},
                                              {3.02e-12, 2.27e-12},
                                              9.66e-12,
                                              {2.73e-9, 5.42e-9},
                                              0,
                                              5.23e-12,
                                              1.44e-5,
                                              6.22e-6,
                                              2.15e-6,
                                              9.52e-6};
    const struct volume_bins v = brick_dense_bins_of(shape, true, split);
    return volume_seconds(shape, samples, split, &costs, &v, true);
}

/* ---- two axes: bricks of 16 x 16 cells of many transforms ---- */

/* What a call waits for in the FFT's two passes: `known` each half, and more for sizes that are not compiled. */
static double plane_fft_wait(const struct nufft_shape *shape, bool forth, double known, double unknown)
{
    double wait = 0;
    for (int d = 0; d < 2; d++)
        wait +=
            (known * fft_size_costs_of(shape->grid[d]).wait[forth] + (fft_size_known(shape->grid[d]) ? 0 : unknown)) /
            2;
    return wait;
}

/* Their work. */
static double plane_fft_seconds(const struct nufft_shape *shape, bool forth, double of_cell, double unknown)
{
    double factor = 0;
    for (int d = 0; d < 2; d++)
        factor += fft_size_costs_of(shape->grid[d]).plane[forth] * (fft_size_known(shape->grid[d]) ? 1 : unknown) / 2;
    return of_cell * factor * nufft_gpu_cells(shape);
}

static double kept_of(const struct nufft_shape *shape)
{
    return (double)shape->n[0] / shape->grid[0];
}

/* A bin's brick is written and read once: cost in proportion to the bricks' cells per grid cell. A call waits longer
 * for wider kernels and fuller bins. */
double nufft_gpu_brick2d_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    const int coils = shape->batch;
    double cover = 1, bins = 1;
    for (int d = 0; d < 2; d++) {
        const struct range_axis axis = nufft_gpu_brick2d_axis(shape->grid[d], shape->width);
        cover *= (double)PLANE_EDGE * axis.bins / axis.cells;
        bins *= axis.bins;
    }
    const double each = (split ? 2.31e-11 + 2.16e-13 * (shape->width - 5) : 1.22e-11 + 5.39e-14 * (shape->width - 5)) *
                        (coils == 1   ? 0.281
                         : coils == 2 ? 0.343
                         : coils <= 4 ? 0.837
                                      : 1);
    const double of_cell = 3.68e-12 * cover + 4.13e-12 + 1.33e-11 * kept_of(shape);
    const double work =
        each * (double)samples + 2.11e-10 * bins * shape->filled + plane_fft_seconds(shape, false, of_cell, 1.71);
    const double wait = 1.19e-6 + (split ? 4.7e-6 : 8.64e-7) + 8.03e-7 * shape->width +
                        3.62e-6 * std::min((double)samples / bins / 256, 1.) +
                        plane_fft_wait(shape, false, 1.8e-5, 1.51e-6);
    return call_seconds(work * coils, wait, 4.03e-6) / coils;
}

/* Reading grids on tensor cores (gather_brick2d.cu), seconds of a sample, of a square of 4 x 4 base cells with samples,
 * and of waiting, by the kernel's width from 5 cells on. Samples are written in the caller's order, which costs more
 * than products where a call's samples exceed the cache and their order is not that of squares, as it is in one place.
 */
static double gather_planes_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    static const double of_sample[2][4] = {{1.83e-12, 3.92e-12, 6.11e-12, 4.84e-12},
                                           {3.33e-12, 6.53e-12, 1.03e-11, 8.47e-12}},
                        of_square[4] = {2.37e-11, 6.94e-11, 6.07e-11, 9.05e-11},
                        of_call[2][4] = {{9.58e-6, 1.56e-5, 1.6e-5, 1.53e-5}, {1.55e-5, 2.29e-5, 2.23e-5, 2.11e-5}};
    const int kernel = std::max(shape->width, 5) - 5, coils = shape->batch,
              together = std::min(coils, (int)PLANE_TRANSFORMS),
              each = coils <= PLANE_TRANSFORMS / 2 ? PLANE_TRANSFORMS / 2 : PLANE_TRANSFORMS;
    const int warps = (coils + each - 1) / each;
    const double carried = (double)warps * each / coils, groups = (double)warps * PLANE_TRANSFORMS / 2 / coils,
                 cached = 2.25e6;
    const int across =
        ((PLANE_EDGE + 1 - shape->width) / 2 * 2 + RANGE_SQUARE - 1) / RANGE_SQUARE; /* squares of a bin */
    double squares = shape->filled * (1 - shape->centre);
    for (int d = 0; d < 2; d++)
        squares *= nufft_gpu_brick2d_axis(shape->grid[d], shape->width).bins * across;
    const double scattered =
        (7.34e-12 * std::max(0., 1 - cached / ((double)samples * together)) + 1.28e-12) / carried * (1 - shape->centre);
    const double of_each = carried * cbrt(pow(of_sample[split][kernel], 3) + pow(scattered, 3)) + 8.59e-13 * groups;
    const double work = of_each * (double)samples +
                        of_square[kernel] * (split ? 2.39 : 1) * groups * std::min(squares, (double)samples) +
                        plane_fft_seconds(shape, true, 6.24e-12 + 3.48e-11 * kept_of(shape), 1.48);
    const double in_turn = std::min(64., 64 * squares / (double)samples); /* squares of a warp, one after the other */
    const double wait =
        1.18e-6 + of_call[split][kernel] + 3e-6 * in_turn + 0.258 * plane_fft_wait(shape, true, 1.17e-5, 1.93e-6);
    return call_seconds(work * coils, wait, 3.47e-6) / coils;
}

/* On tensor cores if there are many transforms. Else in float32 (gather.cu), the widest kernels without unrolled loops.
 */
double nufft_gpu_brick2d_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split)
{
    const int width = shape->width, coils = shape->batch;
    const bool unrolled = width <= 8;
    if (nufft_gpu_gathers_brick2d(shape))
        return gather_planes_seconds(shape, samples, split);
    const double work = (unrolled ? 8.26e-13 : 1.73e-12) * width * width * (double)samples +
                        plane_fft_seconds(shape, true, 1.05e-11 + 1.39e-11 * kept_of(shape), 1.48);
    const double wait =
        1.18e-6 + (unrolled ? 0 : 1.07e-5) + 7.5e-7 + 1.01e-6 * width + plane_fft_wait(shape, true, 1.17e-5, 1.93e-6);
    return call_seconds(work * coils, wait, 3.47e-6) / coils;
}
