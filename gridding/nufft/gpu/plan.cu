/* Making a plan: the method by which it sums, its bins, tables and workspace; what it says of itself. */
#include "gridding/range/dense.h"
#include "gridding/range/kernel.h"
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cmath>
#include <cstdlib>

/* How much larger a relative error is in the image than in the grid's cells, for errors that know nothing of each
 * other: deapodising lifts them where the kernel's transform is small, the data were weighted down there with it. Root
 * mean squares over the image of 1 / transform, over the grid of the transform; axis by axis, at 16 frequencies. */
static double error_gain(const struct nufft_shape *shape)
{
    double gain = 1;
    for (int d = 0; d < shape->dim; d++) {
        double inside = 0, all = 0, edge = 0.5 * shape->n[d] / shape->grid[d];
        for (int i = 0; i < 16; i++) {
            double v = kernel_transform(shape->width, shape->beta, edge * (i + 0.5) / 16);
            double w = kernel_transform(shape->width, shape->beta, 0.5 * (i + 0.5) / 16);
            inside += 1 / (v * v) / 16;
            all += w * w / 16;
        }
        gain *= sqrt(inside * all);
    }
    return gain;
}

struct arithmetic {
    enum nufft_method method;
    bool split; /* tensor cores: three products of halves instead of one */
};

/* The relative error that an arithmetic (one product, or three of split numbers) leaves in an image; what the constants
 * were measured by: docs/notebook/gpu-choices.md. Most errors are a cell's own. Single halves also err by 1.9e-4 in a
 * sample's value, which is as if the data erred, and in its weights on each axis, which only that axis' deapodisation
 * lifts. Planes round what is summed along one axis and the weights on the other; the number is half as large again as
 * that of evenly spread mantissas, since weights are few numbers where samples lie in one place. What truncation takes
 * off long sums of split numbers is as if the data erred, too: the first number of wide bricks is what is left where
 * the middle is given back; bricks, of up to twice as many products, are given nothing. */
static double arithmetic_error(const struct arithmetic *a, double gain)
{
    double along = cbrt(gain);
    switch (a->method) {
    case NUFFT_METHOD_BRICK2D:
        return a->split ? 1.5e-6 * gain : 4.2e-4 * sqrt(gain);
    case NUFFT_METHOD_BRICK8:
        return a->split ? hypot(2.5e-5, 1.5e-6 * gain) : 3.3e-4 * gain;
    case NUFFT_METHOD_BRICK16:
    case NUFFT_METHOD_BRICK_DENSE:
        return a->split ? hypot(a->method == NUFFT_METHOD_BRICK16 ? 4.5e-6 : 0, 2e-6 * gain)
                        : 1.9e-4 * sqrt(1 + 4 * along * along + pow(along, 4));
    default:
        return 0;
    }
}

/* Sums of float32, in parts of some hundred samples, leave this much of what kernel_rounding() expects of long ones;
 * where roundings may all have one sign, as those of a tile's cell have if its samples lie in one place, that much. */
#define ROUNDING_SHARE    0.25
#define ROUNDING_ONE_SIGN 7

/* What the errors of a kernel on a grid depend on. */
struct grid_errors {
    double aliasing, rounding, gain;
    double share; /* of rounding, in tiles */
};

/* All that is expected to be wrong with an image. */
static double image_error(const struct arithmetic *a, const struct grid_errors *of)
{
    return hypot(of->aliasing, arithmetic_error(a, of->gain)) +
           (a->method == NUFFT_METHOD_TILES ? of->share : ROUNDING_SHARE) * of->rounding;
}

/* In 2-D, that of the image's corners where it is more: all of an image may lie there. */
static double aliasing_of(const struct nufft_shape *shape)
{
    double squares = 0;
    if (shape->dim == 3 || shape->kernel != NUFFT_SEPARABLE)
        return shape->aliasing;
    for (int d = 0; d < shape->dim; d++)
        squares += pow(kernel_aliasing_at(shape->width, shape->beta, 0.5 * shape->n[d] / shape->grid[d]), 2);
    return std::max(shape->aliasing, sqrt(squares));
}

/* How often planes' bricks cover a grid. */
static double plane_bricks(const struct nufft_shape *shape)
{
    double cover = 1;
    for (int d = 0; d < 2; d++) {
        struct range_axis axis = nufft_gpu_brick2d_axis(shape->grid[d], shape->width);
        cover *= (double)PLANE_EDGE * axis.bins / axis.cells;
    }
    return cover;
}

/* Seconds, after the measurements of docs/notebook/gpu-choices.md on one H200. */
static double seconds_of(const struct arithmetic *a, const struct nufft_shape *shape, size_t samples)
{
    double cells = (double)shape->grid[0] * shape->grid[1] * shape->grid[2],
           kernel_cells = pow(shape->width, shape->dim);
    double passes = 0; /* of the FFT, in the time that one of a known size takes */
    for (int d = 0; d < shape->dim; d++)
        passes += fft_size_known(shape->grid[d]) ? 1 : 4;
    switch (a->method) {
    case NUFFT_METHOD_BRICK8:
        return 3e-11 * (a->split ? 1.5 : 1) * (double)samples + (2e-12 + 5.5e-12 * passes) * cells;
    case NUFFT_METHOD_BRICK16:
        return (a->split ? 1.45e-10 : 9.5e-11) * (double)samples + (1e-11 + 2.5e-12 * passes) * cells;
    case NUFFT_METHOD_BRICK_DENSE: { /* a bin's brick is written and read once */
        double cells_of_bin = (9.0 - shape->width) * (9.0 - shape->width) * (17.0 - shape->width);
        return (a->split ? 4.3e-11 : 3.5e-11) * (double)samples + (1.1e-8 / cells_of_bin + 2.5e-12 * passes) * cells;
    }
    case NUFFT_METHOD_BRICK2D:
        /* A bin's brick is written and read once. */
        return (a->split ? 2e-11 : 1.1e-11) * (double)samples +
               (2e-12 + 3.2e-12 * plane_bricks(shape) + 4.2e-12 * passes) * cells;
    case NUFFT_METHOD_TILES:
    default:
        return 3.5e-12 * kernel_cells * (double)samples + (1e-11 + 2.5e-12 * passes) * cells;
    }
}

/* The fastest arithmetic that keeps the tolerance beside the kernel's own error; `error`: what to expect of it. */
static struct arithmetic choose_arithmetic(const struct nufft_shape *shape, size_t samples, double *error)
{
    const struct arithmetic exact = {NUFFT_METHOD_TILES, false};
    struct arithmetic a = {shape->dim == 2     ? NUFFT_METHOD_BRICK2D
                           : shape->width <= 4 ? NUFFT_METHOD_BRICK8
                                               : NUFFT_METHOD_BRICK16,
                           false};
    const bool plane = shape->dim == 2 && shape->kernel == NUFFT_SEPARABLE;
    struct grid_errors of = {aliasing_of(shape), kernel_rounding(shape->dim, shape->width, nufft_oversampling(shape)),
                             0, plane ? ROUNDING_ONE_SIGN : ROUNDING_SHARE};
    bool fits = shape->kernel == NUFFT_SEPARABLE && (shape->dim == 2 || shape->width <= 8);
    for (int d = 0; d < shape->dim; d++)
        fits = fits &&
               shape->grid[d] >= (a.method == NUFFT_METHOD_BRICK8 ? 16 : 32); /* slots: two bins an axis are enough */
    double least = image_error(&exact, &of);
    *error = least;
    if (!fits)
        return exact;
    of.gain = error_gain(shape);
    a.split = image_error(&a, &of) > shape->tolerance;
    /* Where a given kernel and grid do not keep the tolerance, exact sums could not either. */
    double most = least > shape->tolerance ? 2 * least : shape->tolerance;
    if (image_error(&a, &of) > most)
        return exact;
    const struct arithmetic dense = {NUFFT_METHOD_BRICK_DENSE, a.split};
    bool may = a.method == NUFFT_METHOD_BRICK16 &&
               shape->overflow != NUFFT_OVERFLOW_CPU; /* the CPU is given whole wide bins */
    if (may && seconds_of(&dense, shape, samples) < seconds_of(&a, shape, samples))
        a = dense;
    *error = image_error(&a, &of);
    return a;
}

/* Samples of a part of planes' bins: several parts for each block that is under way at a time, but bricks are not free
 * either. */
static uint32_t plane_depth(const struct gpu *gpu, const struct nufft_shape *shape, size_t samples)
{
    enum { LEAST = 512, MOST = 2048, STEP = 64 };
    size_t groups = ((size_t)shape->batch + PLANE_TRANSFORMS - 1) / PLANE_TRANSFORMS;
    size_t share = samples * groups / ((size_t)gpu->multiprocessors * 16) / STEP * STEP;
    return (uint32_t)std::min<size_t>(std::max<size_t>(share, LEAST), MOST);
}

/* Bins for a plan's method. Of tiles: about 8 cells an axis, and 4/3 of the kernel's reach at least
 * (range_gpu.cuh). */
static struct range_geometry choose_geometry(const struct gpu *gpu, const struct nufft_shape *shape,
                                             enum nufft_method method, bool split, size_t samples)
{
    const int tiles = std::max(shape->dim == 2 ? 16 : 8, (4 * (shape->width - 1) + 2) / 3);
    const int bricks[3] = {4, 5, 13};
    struct range_geometry g = {};
    g.dim = shape->dim;
    g.width = shape->width;
    for (int d = 0; d < 3; d++) {
        g.axis[d] = d >= shape->dim                      ? range_axis{1, 1, 0}
                    : method == NUFFT_METHOD_BRICK16     ? nufft_gpu_brick16_axis(shape->grid[d], shape->width)
                    : method == NUFFT_METHOD_BRICK_DENSE ? dense_axis(shape->grid[d], shape->width, d == 2)
                    : method == NUFFT_METHOD_BRICK2D     ? nufft_gpu_brick2d_axis(shape->grid[d], shape->width)
                    : method == NUFFT_METHOD_BRICK8      ? range_axis_make(shape->grid[d], bricks[d])
                                                         : range_axis_make(shape->grid[d], tiles);
    }
    g.by_cell = method == NUFFT_METHOD_BRICK2D ? nufft_gpu_gathers_brick2d(shape) : method != NUFFT_METHOD_TILES;
    g.light = method == NUFFT_METHOD_BRICK16 ? SPLIT_SAMPLES_MOST
                                             : 512; /* of 256, 512, 1,024: least time in cases a, b and c together */
    g.slab = method == NUFFT_METHOD_BRICK16 ? 1500 : 6000; /* two thousand warps run at once, or five hundred blocks */
    g.depth = method == NUFFT_METHOD_BRICK16 || method == NUFFT_METHOD_BRICK_DENSE ? 2 * SPLIT_SAMPLES_MOST
                                                                                   : SPLIT_SAMPLES_MOST;
    if (method == NUFFT_METHOD_BRICK2D)
        g.depth = plane_depth(gpu, shape, samples);
    if (method == NUFFT_METHOD_BRICK_DENSE || method == NUFFT_METHOD_BRICK2D)
        g.light = g.depth; /* a part's brick is as good as a bin's */
    if (method == NUFFT_METHOD_BRICK8) {
        /* Tasks of equal size, several for each warp that is under way at a time; but an accumulator takes two bins. */
        size_t share = samples / ((size_t)gpu->multiprocessors * 16 * 4) / 64 * 64;
        g.run_samples = (uint32_t)std::min<size_t>(std::max<size_t>(share, 256), SPLIT_SAMPLES_MOST);
        uint32_t row = (uint32_t)g.axis[0].bins, runs = (row + RUN_BINS_MOST - 1) / RUN_BINS_MOST;
        g.run_bins = (row + runs - 1) / runs;
        g.light = std::min<uint32_t>(g.run_samples, split ? SPLIT_SAMPLES_MOST / 2 : SPLIT_SAMPLES_MOST);
        g.depth = g.run_samples;
    }
    if (shape->overflow == NUFFT_SPLIT && shape->bin_depth != NUFFT_DEPTH_AUTO) {
        /* Tensor cores' sums stay as short as they are, whatever is asked for. */
        uint32_t most = method == NUFFT_METHOD_TILES ? UINT32_MAX / 2 : g.depth, asked = (uint32_t)shape->bin_depth;
        g.light = method == NUFFT_METHOD_TILES ? most : g.light;
        g.depth = shape->bin_depth == NUFFT_DEPTH_NONE ? most : std::min(asked, most);
        g.light = std::min(g.light, g.depth);
    }
    return g;
}

static void choose_tile(struct nufft_gpu *plan)
{
    for (int d = 0; d < 3; d++) {
        plan->tile[d] = axis_largest(plan->bins.geometry.axis[d]) + (d < plan->shape.dim ? plan->shape.width - 1 : 0);
        if (plan->method == NUFFT_METHOD_BRICK16)
            plan->tile[d] = WIDE_EDGE;
    }
}

static int upload_deapodisation(struct nufft_gpu *plan, const struct nufft_shape *shape)
{
    int rc = 0;
    if (shape->kernel == NUFFT_RADIAL) {
        rc = gpu_array(plan->gpu, plan->pixels, &plan->deapodise_full, "The deapodisation");
        plan->bytes += plan->pixels * sizeof(float);
        return rc ? rc
                  : gpu_upload(plan->gpu, plan->deapodise_full, shape->deapodise_radial, plan->pixels * sizeof(float));
    }
    for (int d = 0; !rc && d < shape->dim; d++) {
        rc = gpu_array(plan->gpu, (size_t)shape->n[d], &plan->deapodise[d], "The deapodisation");
        if (!rc)
            rc = gpu_upload(plan->gpu, plan->deapodise[d], shape->deapodise[d], (size_t)shape->n[d] * sizeof(float));
        plan->bytes += (size_t)shape->n[d] * sizeof(float);
    }
    return rc;
}

static int make_ffts(struct nufft_gpu *plan)
{
    for (int d = 0; d < plan->shape.dim; d++) {
        int n = plan->shape.grid[d], same = 0;
        while (same < d && plan->fft[same].n != n)
            same++;
        if (same < d) {
            plan->fft[d] = plan->fft[same];
            continue;
        }
        int rc = fft_plan_make(&plan->fft[d], plan->gpu, n);
        if (rc)
            return rc;
        plan->bytes += (size_t)n * sizeof(float2);
    }
    return 0;
}

/* Transforms on the grid at a time, `each` bytes of workspace for one: of planes whole steps of PLANE_TRANSFORMS; of
 * wide bricks groups of about one size, whose z planes one launch can take. The batch is cut until it takes no more
 * than half of what is free, since the caller's images and samples need room too; one group is asked for in any case.
 */
static size_t choose_group(const struct nufft_gpu *plan, size_t each, size_t available)
{
    size_t batch = (size_t)plan->shape.batch, step = plan->method == NUFFT_METHOD_BRICK2D ? PLANE_TRANSFORMS : 1,
           most = 1;
    size_t fits = available / 2 / each / step * step;
    const size_t launch_rows = 65535;
    if (plan->method == NUFFT_METHOD_BRICK2D) {
        most = std::min(batch, launch_rows / step * step);
        if (plan->overflow) { /* whole groups in a chunk of the CPU's */
            most = std::min(most, (size_t)NUFFT_OVERFLOW_GROUP);
            fits -= fits > 0 && fits < most ? NUFFT_OVERFLOW_GROUP % fits : 0;
        }
    } else if (plan->method == NUFFT_METHOD_BRICK16 && !plan->overflow) {
        fits = std::min(fits, nufft_gpu_workspace_most(plan) / each);
        fits = std::min(fits, launch_rows / (size_t)plan->shape.grid[2]);
        most = std::min(batch, (size_t)WIDE_TRANSFORMS);
        if (fits > 0 && fits < most) {
            size_t groups = (batch + fits - 1) / fits;
            most = (batch + groups - 1) / groups;
        }
    }
    return std::min(most, std::max(step, fits));
}

/* Workspace, per transform: a grid, sorted samples, partial tiles; of wide bricks some words. */
static int make_workspace(struct nufft_gpu *plan)
{
    struct gpu *gpu = plan->gpu;
    size_t available, total, partial, each,
        words = plan->method == NUFFT_METHOD_BRICK16 ? 1 + (size_t)plan->bins.count : 0;
    const int slot[3] = {4, BRICK_Y, BRICK_Z};
    plan->group = 1;
    if (nufft_gpu_in_slots(plan))
        return nufft_gpu_slots_make(plan, slot, plan->split ? 1 : 2);
    if (plan->method == NUFFT_METHOD_BRICK_DENSE)
        return nufft_gpu_brick_dense_make(plan);
    const bool planes = plan->method == NUFFT_METHOD_BRICK2D;
    const size_t sorted = planes ? 0 : plan->samples;
    partial = planes ? nufft_gpu_brick2d_cells(plan)
                     : (size_t)plan->bins.slots * plan->tile[0] * plan->tile[1] * plan->tile[2];
    each = (plan->cells + sorted + partial) * sizeof(struct c32) + words * sizeof(uint32_t);
    int rc = gpu_available(gpu, &available, &total);
    if (rc)
        return rc;
    size_t group = choose_group(plan, each, available);
    plan->group = (int)group;
    if (each * group > available)
        return nufft_gpu_no_room(plan, each * group, available);
    plan->bytes += each * group;
    rc = gpu_array(gpu, partial * group, &plan->partial, "Partial sums");
    if (!rc)
        rc = gpu_array(gpu, plan->cells * group, &plan->grid, "The grid");
    if (!rc)
        rc = gpu_array(gpu, sorted * group, &plan->sorted, "The sorted data");
    if (!rc && planes)
        return nufft_gpu_brick2d_make(plan);
    if (rc || plan->method != NUFFT_METHOD_BRICK16)
        return rc;
    rc = gpu_array(gpu, words * group, &plan->largest, "The largest samples");
    plan->done = plan->largest + group;
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(plan->largest, 0, words * group * sizeof *plan->largest, gpu->stream),
                       "Preparing the gridding");
    return rc;
}

void nufft_gpu_destroy(void *state)
{
    struct nufft_gpu *plan = (struct nufft_gpu *)state;
    if (!plan)
        return;
    struct gpu *gpu = plan->gpu;
    if (gpu_enter(gpu) == 0) {
        nufft_gpu_overflow_free(plan);
        nufft_gpu_clock_free(plan);
        range_bins_free(&plan->bins, gpu);
        gpu_release(gpu, plan->weights);
        for (int d = 0; d < 3; d++) {
            gpu_release(gpu, plan->deapodise[d]);
            bool shared = false;
            for (int e = 0; e < d; e++)
                shared = shared || plan->fft[e].twiddles == plan->fft[d].twiddles;
            if (!shared)
                gpu_release(gpu, plan->fft[d].twiddles);
        }
        gpu_release(gpu, plan->deapodise_full);
        gpu_release(gpu, plan->sorted);
        gpu_release(gpu, plan->grid);
        gpu_release(gpu, plan->slots.cells);
        gpu_release(gpu, plan->partial);
        gpu_release(gpu, plan->largest);
        gpu_release(gpu, plan->bricks);
    }
    free(plan);
}

static int fill_plan(struct nufft_gpu *plan, const struct nufft_shape *shape, const float *k)
{
    struct gpu *gpu = plan->gpu;
    float *on_device = NULL;
    size_t values;
    double error;
    const struct arithmetic arithmetic = choose_arithmetic(shape, plan->samples, &error);
    plan->method = arithmetic.method;
    plan->split = arithmetic.split;
    nufft_gpu_fit_kaiser(&plan->kernel, shape, plan->method == NUFFT_METHOD_BRICK8 ? (plan->split ? 9 : 6) : 0);
    if (plan->method != NUFFT_METHOD_TILES)
        nufft_gpu_fit_pairs(&plan->pairs, shape, plan->split ? 4 : 3);
    if (!size_mul(plan->samples, (size_t)shape->dim, &values))
        return err_set(ERR_BAD_PARAMETER, "%zu samples are more than one plan can hold.", plan->samples);
    int rc = make_ffts(plan);
    if (!rc)
        rc = gpu_array(gpu, values, &on_device, "The trajectory");
    if (!rc)
        rc = gpu_upload(gpu, on_device, k, values * sizeof *k);
    if (!rc) {
        struct range_geometry geometry = choose_geometry(gpu, shape, plan->method, plan->split, plan->samples);
        bool caps = shape->overflow == NUFFT_OVERFLOW_CPU && shape->bin_depth != NUFFT_DEPTH_NONE;
        rc = caps ? nufft_gpu_partition(plan, &geometry, on_device)
                  : range_bins_make(&plan->bins, gpu, &geometry, plan->samples, on_device);
        plan->bytes += plan->bins.bytes;
        if (!rc && plan->bins.nonfinite != SIZE_MAX)
            rc = nufft_nonfinite(plan->bins.nonfinite, shape->dim);
    }
    gpu_release(gpu, on_device);
    if (rc)
        return rc;
    choose_tile(plan);
    if (plan->method == NUFFT_METHOD_TILES && nufft_gpu_tile_bytes(plan->tile, shape->width) > gpu->shared_most)
        return err_set(ERR_BAD_PARAMETER,
                       "A kernel %d cells wide needs more shared memory than this GPU has. Ask for a larger tolerance.",
                       shape->width);
    rc = upload_deapodisation(plan, shape);
    if (!rc)
        rc = make_workspace(plan);
    if (!rc)
        rc = nufft_gpu_clock_make(plan, (shape->batch + plan->group - 1) / plan->group);
    return rc ? rc : gpu_finish(gpu, "Making a plan");
}

int nufft_gpu_create(void **state, struct dev *dev, const struct nufft_shape *shape, size_t samples, const float *k)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    if (rc)
        return rc;
    struct nufft_gpu *plan = (struct nufft_gpu *)calloc(1, sizeof *plan);
    if (!plan)
        return err_no_memory("a plan");
    plan->gpu = gpu;
    plan->shape = *shape;
    plan->samples = samples;
    plan->threads = dev->threads;
    plan->cells = (size_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
    plan->pixels = (size_t)shape->n[0] * shape->n[1] * shape->n[2];
    if (shape->overflow == NUFFT_OVERFLOW_CPU && shape->bin_depth == NUFFT_DEPTH_AUTO)
        rc = nufft_gpu_choose_depth(dev, shape, samples, k, &plan->shape.bin_depth);
    if (!rc)
        rc = fill_plan(plan, &plan->shape, k);
    if (rc)
        nufft_gpu_destroy(plan);
    else
        *state = plan;
    return rc;
}

void nufft_gpu_describe(const void *state, struct nufft_info *info)
{
    const struct nufft_gpu *plan = (const struct nufft_gpu *)state;
    info->method = plan->method;
    info->products = plan->method == NUFFT_METHOD_TILES ? 0 : plan->split ? 3 : 1;
    info->bins = plan->bins.count;
    info->occupied_bins = plan->bins.occupied;
    info->largest_bin = plan->bins.largest;
    info->bytes = plan->bytes;
    info->binning = plan->bins.seconds;
    info->depth = plan->bins.geometry.light > 0 ? plan->bins.geometry.depth : 0;
    if (info->depth > UINT32_MAX / 2 - 1)
        info->depth = 0;
    if (plan->shape.overflow == NUFFT_OVERFLOW_CPU)
        info->depth = plan->shape.bin_depth > 0 ? (size_t)plan->shape.bin_depth : 0;
    info->overflowed = nufft_gpu_overflowed(plan);
}

int nufft_gpu_bins(const void *state, struct nufft_bins *out)
{
    const struct nufft_gpu *plan = (const struct nufft_gpu *)state;
    const struct range_bins_gpu *bins = &plan->bins;
    for (int d = 0; d < 3; d++) {
        out->axis[d] = bins->geometry.axis[d].bins;
        out->pairs[d] = bins->geometry.axis[d].shift;
    }
    out->by_cell = bins->geometry.by_cell;
    int rc = gpu_enter(plan->gpu);
    if (!rc)
        rc = gpu_download(plan->gpu, out->first, bins->first, ((size_t)bins->count + 1) * sizeof *bins->first);
    return rc ? rc : gpu_download(plan->gpu, out->order, bins->order, (size_t)bins->samples * sizeof *bins->order);
}

double nufft_gpu_cost(const struct dev *dev, const struct nufft_shape *shape, size_t samples, double *error)
{
    (void)dev;
    const struct arithmetic arithmetic = choose_arithmetic(shape, samples, error);
    return seconds_of(&arithmetic, shape, samples);
}
