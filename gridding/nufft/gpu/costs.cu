/* The models of the methods' times, by which plans choose: what samples, bins and cells cost, and the FFT's passes by
 * their size (fft_costs.cuh). Constants are fitted to the times of the cases of bench_plans and of other shapes, of
 * those that it holds out only to those that it names (docs/notebook/gpu-choices.md), so that plans of a case compare
 * rightly: times themselves, and single terms, are only roughly so. */
#include "gridding/nufft/gpu/costs.cuh"
#include "gridding/nufft/gpu/fft_costs.cuh"
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/dense.h"
#include "gridding/range/kernel.h"

#include <algorithm>
#include <cmath>

enum { PART = SPLIT_SAMPLES_MOST };

/* Seconds of a call of so much work: what it waits for (launches, a full bin), and a time `hidden` in which work
 * overlaps with launches. */
static double call_seconds(double work, double wait, double hidden)
{
    return work + wait + hidden * exp(-work / hidden);
}

/* The part of scattered accesses to an array of data, in the order of the grid: of samples that follow each other
 * within a cell all are in few sectors of memory. */
static double scattered_part(const struct nufft_shape *shape, double least, double of_cell)
{
    return std::min(1., least + of_cell * shape->apart * shape->grid[0] / shape->n[0]);
}

/* The part of the data of transforms together, so many samples each, that does not stay in the cache. */
static double data_beyond(double cached, size_t samples, int together)
{
    return std::max(0., 1 - cached / ((double)samples * together));
}

/* ---- three axes ---- */

/* What a transform of a volume costs, seconds. Of [1] the sums are of three products. */
struct volume_costs {
    double sample[2], wider[2]; /* a sample, with a kernel of 5 cells, and of each more */
    double beyond;              /* more of a sample that is scattered beyond the cache */
    double part;               /* of a bin's part: back, each is stored and added up; forth PART samples count as one */
    double bin[2], bin_beyond; /* a bin with samples; more if its cells are not in the cache */
    double cell, wait, hidden;
    double wide; /* waiting, for each cell of the kernel more than 6 */
    double full; /* waiting for the fullest bin if it has a whole part's samples */
};

/* The FFT's three passes: by axis, of a cell read or written; more of those beyond the cache; of a size that is not
 * compiled, as a factor, and of a call. */
struct volume_fft {
    double axis[3], beyond, cached, unknown, call;
};

/* An array of data, back and forth: its samples in the cache, the part that is scattered, and a scattered sample in the
 * cache. */
static const struct {
    double cached, least, of_cell, scattered;
} volume_data[2] = {{1.77e6, 0.438, 0.069, 2.35e-12}, {3.03e6, 0.138, 0.112, 1.04e-11}};

static const struct volume_fft fft_back = {{5.44e-12, 2.84e-12, 2.39e-12}, 0.0359, 2.05e6, 1.68, 1.62e-6},
                               fft_forth = {{3.72e-12, 1.98e-12, 4.09e-12}, 0.0522, 2.4e6, 1.81, 1.77e-6};

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

/* Parts of bins that are cut: `mean` samples a bin. */
static double parts_of(const struct nufft_shape *shape, double samples, double mean, double most, bool forth)
{
    const double cut = samples * share_of_parts(shape, mean, most);
    if (forth)
        return cut / PART;
    return shape->filled < 1 ? cut / most : cut / mean * ceil(mean / most);
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
    double cells = nufft_gpu_cells(shape), work = 0, wait = 0;
    for (int d = 0; d < 3; d++) {
        const double kept = (double)shape->n[d] / shape->grid[d];
        const bool known = fft_size_known(shape->grid[d]);
        const struct fft_size_costs size = fft_size_costs_of(shape->grid[d]);
        const double lines = d == 0 && in_ball(shape) ? M_PI / 4 : 1;
        work += fft->axis[d] * (known ? 1 : fft->unknown) * size.volume[forth] * lines * cells * (1 + kept);
        cells *= kept;
        wait += known ? 0 : fft->call * size.volume_wait[forth];
    }
    return work * (1 + fft->beyond * beyond) + wait / together;
}

static double volume_seconds(const struct nufft_shape *shape, size_t samples, bool split, const struct volume_costs *c,
                             const struct volume_bins *v, bool forth)
{
    const struct volume_fft *fft = forth ? &fft_forth : &fft_back;
    const double beyond = part_beyond(shape, fft->cached, v->together);
    const auto &data = volume_data[forth];
    const double scattered = scattered_part(shape, data.least, data.of_cell);
    const double each = c->sample[split] + c->wider[split] * (shape->width - 5) +
                        (data.scattered + c->beyond * data_beyond(data.cached, samples, v->together)) * scattered;
    const double of_bin =
        c->bin[split] * v->cost +
        c->bin_beyond * (forth ? beyond : part_beyond(shape, fft->cached, 1)); /* one after the other */
    const double parts = parts_of(shape, (double)samples, (double)samples / v->bins, v->most, forth);
    const double work = each * (double)samples + c->part * parts + of_bin * filled_bins(shape, v->bins) +
                        c->cell * nufft_gpu_cells(shape) + volume_fft_seconds(shape, fft, forth, beyond, v->together);
    const double wait = c->wait + v->wait + c->wide * std::max(0, shape->width - 6) +
                        c->full * fullest_bin(shape, samples, v) / v->most;
    const double all = work * v->together, waiting = call_seconds(all, wait, c->hidden) - all;
    return (all + v->unhidden * waiting) / v->together;
}

/* ---- bricks of 8 x 8 x 16 cells, in slots, and tiles ---- */

/* Multiprocessors of the GPUs to which costs are fitted, on which the sizes of tasks depend (methods.cu). */
#define MULTIPROCESSORS 132.

static struct volume_bins brick8_bins_of(const struct nufft_shape *shape, size_t samples, bool fullest)
{
    const double run = floor((double)samples / (MULTIPROCESSORS * 16 * 4) / 64) * 64;
    struct volume_bins v = {1, std::min<double>(PART, std::max(256., run)), 1, 0, 1, 1, fullest};
    for (int d = 0; d < 3; d++)
        v.bins *= range_axis_make(shape->grid[d], nufft_gpu_brick8_size[d]).bins;
    return v;
}

double nufft_gpu_brick8_seconds(const struct nufft_shape *shape, size_t samples, bool split, double)
{
    static const struct volume_costs costs = {{3.49e-11, 7.97e-11},
                                              {0, 0},
                                              8.71e-13,
                                              5.76e-9,
                                              {1.1e-9, 1e-9},
                                              1.16e-9,
                                              4.83e-12,
                                              2.22e-5,
                                              9.88e-6,
                                              0,
                                              1.33e-6};
    struct volume_bins v = brick8_bins_of(shape, samples, true);
    v.unhidden = split || shape->batch == 1 ? 1 : 0.745; /* two transforms at a time */
    return volume_seconds(shape, samples, split, &costs, &v, false);
}

/* Interpolation is in float32 in any case. */
double nufft_gpu_brick8_forward_seconds(const struct nufft_shape *shape, size_t samples, bool, double)
{
    static const struct volume_costs costs = {{2.95e-11, 0}, {0, 0},  1.92e-11, 8.02e-10, {1.05e-9, 0}, 1.5e-10,
                                              1.1e-12,       1.38e-5, 5.19e-6,  0,        5.62e-7};
    const struct volume_bins v = brick8_bins_of(shape, samples, false);
    return volume_seconds(shape, samples, false, &costs, &v, true);
}

double nufft_gpu_tiles_seconds(const struct nufft_shape *shape, size_t samples, bool, double)
{
    double passes = 0;
    for (int d = 0; d < shape->dim; d++)
        passes += fft_size_known(shape->grid[d]) ? 1 : 2;
    return 3.5e-12 * pow(shape->width, shape->dim) * (double)samples +
           (1e-11 + 2.5e-12 * passes) * nufft_gpu_cells(shape) + (shape->dim == 3 ? 1.2e-4 : 0);
}

/* Up to 4 cells bricks of 8 x 8 x 16 cells are read by the same kernel, a little more slowly where grid cells hold many
 * samples; 5 and 6 cells are read faster than by tensor cores if there are few samples. */
double nufft_gpu_tiles_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory)
{
    const double many = 8 /* of a cell */, few = 1e5;
    const bool ahead = shape->width <= 4 ? (double)samples >= many * nufft_gpu_cells(shape)
                                         : shape->width <= 6 && (double)samples < few;
    if (shape->dim == 2 || shape->kernel != NUFFT_SEPARABLE || !ahead)
        return nufft_gpu_tiles_seconds(shape, samples, split, memory);
    struct volume_costs costs = {{2.79e-11, 0}, {0, 0},  4.6e-12, 1.08e-8, {5.45e-9, 0}, 3e-9,
                                 1.03e-12,      1.42e-5, 6.31e-6, 0,       4.74e-7};
    costs.sample[0] *= shape->width == 6 ? 4.06 : shape->width == 5 ? 1.24 : 1;
    const struct volume_bins v = brick8_bins_of(shape, samples, false);
    return volume_seconds(shape, samples, false, &costs, &v, true);
}

/* ---- bricks of 16 x 16 x 16 cells ---- */

/* A bin costs more the more cells its samples reach, and if they are added one by one. Bins wait for
 * more of their neighbours on an axis with an odd number of bins. */
static struct volume_bins brick16_bins_of(const struct nufft_shape *shape, size_t samples, bool forth, bool split)
{
    static const double reach[2][2] = {{0.696, 0.458}, {0.459, 0.283}}; /* along x and y, and z */
    const double rounds = (double)samples * shape->batch / (MULTIPROCESSORS * 4) / (2 * PART);
    const double most = !split && rounds >= 8 ? 2 * PART : PART;
    struct volume_bins v = {1, most, 1, 0, std::min(shape->batch, (int)BRICK16_TRANSFORMS), 1, split || !forth};
    for (int d = 0; d < 3; d++) {
        const struct range_axis axis = nufft_gpu_brick16_axis(shape->grid[d], shape->width);
        v.bins *= axis.bins;
        v.cost *= pow(((double)axis.cells / axis.bins + shape->width - 1) / BRICK16_EDGE, reach[forth][d == 2]);
        v.wait += !forth && axis.bins % 2 ? 3.43e-6 : 0;
        if (!forth && d == 0 && axis.shift == 0) {
            v.cost *= 1.71;
            v.wait += 8.97e-6;
        }
    }
    return v;
}

/* Back, and forth. */
static double brick16_seconds(const struct nufft_shape *shape, size_t samples, bool split, bool forth)
{
    static const struct volume_costs costs[2] = {{{2.24e-11, 6.13e-11},
                                                  {4.05e-12, 5.95e-12},
                                                  4.6e-11,
                                                  1.13e-8,
                                                  {9.29e-9, 1.08e-8},
                                                  4.37e-9,
                                                  3.02e-13,
                                                  2.99e-5,
                                                  2.53e-6,
                                                  2.44e-6,
                                                  1.04e-5},
                                                 {{3.93e-11, 6.01e-11},
                                                  {2.64e-12, 5.57e-12},
                                                  5.44e-12,
                                                  3.39e-9,
                                                  {9.25e-9, 1.39e-8},
                                                  3.24e-9,
                                                  3.34e-13,
                                                  1.3e-5,
                                                  1.12e-5,
                                                  6.28e-7,
                                                  4.72e-6}};
    const struct volume_bins v = brick16_bins_of(shape, samples, forth, split);
    return volume_seconds(shape, samples, split, &costs[forth], &v, forth);
}

double nufft_gpu_brick16_seconds(const struct nufft_shape *shape, size_t samples, bool split, double)
{
    return brick16_seconds(shape, samples, split, false);
}

double nufft_gpu_brick16_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double)
{
    return brick16_seconds(shape, samples, split, true);
}

/* ---- bricks of 8 x 8 x 16 cells, each stored ---- */

/* One transform at a time. Back, the wider the kernel, the more bricks are read per cell. */
static struct volume_bins brick_dense_bins_of(const struct nufft_shape *shape, bool forth, bool split)
{
    static const double wide[] = {1, 1.47, 1.6, 7.57}; /* 5 to 8 cells */
    struct volume_bins v = {1, 2 * PART, forth ? 1 : wide[shape->width - 5], 0, 1, 1, split || !forth};
    for (int d = 0; d < 3; d++)
        v.bins *= dense_axis(shape->grid[d], shape->width, d == 2).bins;
    return v;
}

/* Back, and forth. */
static double brick_dense_seconds(const struct nufft_shape *shape, size_t samples, bool split, bool forth)
{
    static const struct volume_costs costs[2] = {{{3.67e-11, 3.67e-11},
                                                  {1.69e-12, 7.33e-12},
                                                  9.76e-13,
                                                  6.54e-9,
                                                  {3.24e-9, 4.21e-9},
                                                  0,
                                                  1.46e-11,
                                                  9.92e-6,
                                                  1.28e-5,
                                                  1.2e-6,
                                                  3.36e-5},
                                                 {{3.34e-11, 3.4e-11},
                                                  {2.34e-12, 2.79e-12},
                                                  5.7e-12,
                                                  8.24e-9,
                                                  {2.62e-9, 5.63e-9},
                                                  0,
                                                  6.25e-12,
                                                  1.35e-5,
                                                  5.06e-6,
                                                  1.78e-6,
                                                  1.04e-5}};
    const struct volume_bins v = brick_dense_bins_of(shape, forth, split);
    return volume_seconds(shape, samples, split, &costs[forth], &v, forth);
}

double nufft_gpu_brick_dense_seconds(const struct nufft_shape *shape, size_t samples, bool split, double)
{
    return brick_dense_seconds(shape, samples, split, false);
}

double nufft_gpu_brick_dense_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double)
{
    return brick_dense_seconds(shape, samples, split, true);
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

/* Of the forward transform: more of grids that do not stay in the cache until samples are read from them. */
static double plane_fft_forth_seconds(const struct nufft_shape *shape, double of_cell)
{
    const double beyond = part_beyond(shape, 2.56e6, std::min(shape->batch, (int)PLANE_TRANSFORMS));
    return plane_fft_seconds(shape, true, of_cell, 1.71) * (1 + 0.0702 * beyond);
}

static double kept_of(const struct nufft_shape *shape)
{
    return (double)shape->n[0] / shape->grid[0];
}

/* Widths of 2 cells on: what the sums of samples cost beside a square law, or a linear one. */
enum { WIDTHS = 9 };

/* The part of scattered accesses in a plane: of samples in one place none are. */
static double plane_scattered(const struct nufft_shape *shape, double least, double of_cell)
{
    return std::min(1., least + of_cell * (1 - shape->centre) * shape->apart * shape->grid[0] / shape->n[0]);
}

/* A bin's brick is written and read once: cost in proportion to the bricks' cells per grid cell. Bricks of bins that
 * are shorter than the kernel's reach are added up to grids, which the FFT's first pass reads: a launch more, and a
 * cost of each cell. A call waits longer for wider kernels and fuller bins. In plans of up to 4 transforms, each warp
 * of a block has samples of its own. */
double nufft_gpu_brick2d_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory)
{
    static const double of_width[WIDTHS] = {1, 1, 0.97, 1.02, 1.08, 1.05, 0.984, 0.965, 0.936};
    const int coils = shape->batch, wider = shape->width - 5;
    const bool few = coils <= 4;
    double cover = 1, bins = 1;
    bool gridless = true;
    for (int d = 0; d < 2; d++) {
        const struct range_axis axis = nufft_gpu_brick2d_axis(shape, split, d);
        cover *= (double)PLANE_EDGE * axis.bins / axis.cells;
        bins *= axis.bins;
        gridless = gridless && nufft_gpu_brick2d_few_reach(&axis, shape->width);
    }
    const double summed =
        (split ? 1.49e-11 + 5.29e-13 * wider : 6.18e-12 + 1.26e-13 * wider) * of_width[shape->width - KERNEL_MIN_WIDTH];
    const double beyond = data_beyond(2.25e6, samples, std::min(coils, (int)PLANE_TRANSFORMS));
    const double read = (2.49e-11 * beyond * pow(memory, 0.594) + 2.24e-12) * plane_scattered(shape, 0.22, 0.154);
    const double each = (few ? 0.74 * summed + (split ? 1.24e-12 : 6.89e-12) / coils : summed) + read;
    const double of_cell = 2.71e-12 * cover + 4.09e-12 + 1.51e-11 * kept_of(shape) + (gridless ? 0 : 2.49e-12);
    const double work =
        each * (double)samples + 4.39e-10 * bins * shape->filled + plane_fft_seconds(shape, false, of_cell, 1.67);
    const double wait = 6.16e-7 + (split ? 5.43e-6 : 4.22e-7) + 8.85e-7 * shape->width +
                        5.89e-6 * std::min((double)samples / bins / 256, 1.) +
                        plane_fft_wait(shape, false, 1.77e-5, 1.23e-6) + (gridless ? 0 : 3.19e-6);
    return call_seconds(work * coils, wait, 2.75e-6) / coils;
}

/* Reading grids on tensor cores (gather_brick2d.cu), seconds of a sample, of a square of 4 x 4 base cells whose cells
 * are read, and of waiting, by the kernel's width from 5 cells on. A warp has 64 samples of some squares and computes
 * 16 of a square at a time, of spokes (whose density decreases with the distance) in the mean as many times as
 * groups_of_16(). Reading squares, and writing samples in the caller's order, overlap with that. */
static double groups_of_16(double squares, double samples)
{
    const double filled = samples / squares / 16;
    return squares * (filled < 1 ? 1 + 0.5 * filled * filled : filled + 0.5);
}

static double gather_planes_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory)
{
    static const double of_sample[2][4] = {{4.03e-12, 7.35e-12, 9.01e-12, 8.69e-12},
                                           {7.33e-12, 1.06e-11, 1.42e-11, 1.34e-11}},
                        of_square[4] = {1.05e-11, 4.76e-11, 4.25e-11, 3.2e-11},
                        of_call[2][4] = {{8.04e-6, 1.16e-5, 1.16e-5, 1.26e-5}, {1.1e-5, 2.03e-5, 1.83e-5, 2.04e-5}};
    const int kernel = std::max(shape->width, 5) - 5, coils = shape->batch;
    const bool half = coils <= PLANE_TRANSFORMS / 2; /* of a warp's transforms */
    const int each = half ? PLANE_TRANSFORMS / 2 : PLANE_TRANSFORMS, warps = (coils + each - 1) / each;
    const double carried = (double)warps * each / coils, groups = (double)warps * PLANE_TRANSFORMS / 2 / coils,
                 all = (double)samples;
    const int across =
        ((PLANE_EDGE + 1 - shape->width) / 2 * 2 + RANGE_SQUARE - 1) / RANGE_SQUARE; /* squares of a bin */
    double squares = shape->filled * (1 - shape->centre);
    for (int d = 0; d < 2; d++)
        squares *= nufft_gpu_brick2d_axis(shape, split, d).bins * across;
    const double read = std::max(1., std::min(squares, all)),
                 beyond = data_beyond(7.63e5, samples, std::min(coils, (int)PLANE_TRANSFORMS));
    const double computed =
        (of_sample[split][kernel] * (half ? 1.12 : 1) * carried + 7.31e-13 * groups) * 16 * groups_of_16(read, all);
    const double moved =
        (4.57e-11 * beyond * pow(memory, 0.687) + 1.28e-12) * plane_scattered(shape, 0.115, 0.282) * all +
        of_square[kernel] * (split ? 1.99 : 1) * (half ? 0.565 : 1) * groups * (read + all / 64);
    const double work = pow(pow(computed, 13.9) + pow(moved, 13.9), 1 / 13.9) +
                        plane_fft_forth_seconds(shape, 5.55e-12 + 2.21e-11 * kept_of(shape));
    const double in_turn = std::min(64., 64 * squares / all); /* squares of a warp, one after the other */
    const double wait =
        6.18e-7 + of_call[split][kernel] + 3.56e-6 * in_turn + 0.317 * plane_fft_wait(shape, true, 1.2e-5, 7.34e-7);
    return call_seconds(work * coils, wait, 4.47e-6) / coils;
}

/* On tensor cores if there are many transforms. Else in float32 (gather.cu), the widest kernels without unrolled loops.
 */
double nufft_gpu_brick2d_forward_seconds(const struct nufft_shape *shape, size_t samples, bool split, double memory)
{
    static const double of_width[WIDTHS] = {1, 1, 1.09, 0.99, 0.976, 1, 0.951, 0.999, 1};
    const int width = shape->width, coils = shape->batch;
    const bool unrolled = width <= 8;
    if (nufft_gpu_gathers_brick2d(shape))
        return gather_planes_seconds(shape, samples, split, memory);
    const double each = (unrolled ? 8.61e-13 : 1.55e-12) * width * width * of_width[width - KERNEL_MIN_WIDTH] +
                        4.46e-12 * plane_scattered(shape, 0.115, 0.282);
    const double work = each * (double)samples + plane_fft_forth_seconds(shape, 5.64e-12 + 1.64e-11 * kept_of(shape));
    const double wait =
        6.18e-7 + (unrolled ? 0 : 1.86e-5) + 4.05e-7 + 1.27e-6 * width + plane_fft_wait(shape, true, 1.2e-5, 7.34e-7);
    return call_seconds(work * coils, wait, 4.47e-6) / coils;
}
