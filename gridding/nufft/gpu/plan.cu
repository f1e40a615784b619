/* Creation of plans: method, bins, tables and workspace; and their description. */
#include "gridding/range/kernel.h"
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cmath>
#include <cstdlib>

/* On grids below this oversampling deapodisation amplifies errors so steeply towards an edge that total_error()'s sum
 * is too small: by up to 2.5 times in 6,200 plans drawn at random (test_gpu_plans). */
#define STEEP_OVERSAMPLING 1.35
#define STEEP_SHORTFALL    2.6

/* The mean of 1 / transform^2 over the pixels of an axis: at 16 frequencies, or if there are few pixels and the
 * transform is steep, at theirs, one of which is the edge itself. */
static double mean_amplification(const struct nufft_shape *shape, int d)
{
    enum { FEW_PIXELS = 32, STEPS = 16 };
    const int n = shape->n[d];
    const bool each = n <= FEW_PIXELS && nufft_oversampling(shape) < STEEP_OVERSAMPLING;
    const int count = each ? n : STEPS;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const double pixel = each ? i - n / 2 : 0.5 * n * (i + 0.5) / STEPS;
        const double v = kernel_transform(shape->width, shape->beta, pixel / shape->grid[d]);
        sum += 1 / (v * v);
    }
    return sum / count;
}

/* The ratio of relative errors in the image and in the grid's cells, axis by axis, for uncorrelated errors:
 * deapodisation amplifies them where the kernel's transform is small, and the data were attenuated by it. Root mean
 * squares over the image of 1 / transform, over the grid of the transform, at 16 frequencies. */
static void error_gain(const struct nufft_shape *shape, double gain[3])
{
    for (int d = 0; d < 3; d++) {
        gain[d] = 1;
        if (d >= shape->dim || shape->kernel != NUFFT_SEPARABLE)
            continue;
        double all = 0;
        for (int i = 0; i < 16; i++) {
            double w = kernel_transform(shape->width, shape->beta, 0.5 * (i + 0.5) / 16);
            all += w * w / 16;
        }
        gain[d] = sqrt(mean_amplification(shape, d) * all);
    }
}

struct arithmetic {
    const struct nufft_gpu_method *method;
    bool split; /* tensor cores: three products of split operands instead of one */
};

/* The error of float32 sums in parts of some hundred samples, relative to kernel_rounding(), which is for long sums;
 * the second value is for correlated roundings, as of a tile's cell whose samples crowd in one place. */
#define ROUNDING_SHARE    0.2
#define ROUNDING_ONE_SIGN 2

/* The parameters of the error of a kernel on a grid. */
struct grid_errors {
    double aliasing, rounding, gain[3];
};

/* The total expected error of an image, and of the data of a forward transform if the plan is for that, too. */
static double total_error(const struct nufft_shape *shape, const struct arithmetic *a, const struct grid_errors *of)
{
    double products = a->method->error(shape, a->split, of->gain);
    if (shape->purpose != NUFFT_FOR_ADJOINT && a->method->forward_error)
        products = fmax(products, a->method->forward_error(shape, a->split, of->gain));
    const double centre = a->method->centre_error ? a->method->centre_error(shape, a->split, of->gain) : 0;
    const double sum = fmax(hypot(of->aliasing, products), centre) +
                       (a->method->tensor ? ROUNDING_SHARE : ROUNDING_ONE_SIGN) * of->rounding;
    return nufft_oversampling(shape) < STEEP_OVERSAMPLING ? STEEP_SHORTFALL * sum : sum;
}

static double seconds_of(const struct arithmetic *a, const struct nufft_shape *shape, size_t samples, double memory)
{
    double seconds = 0;
    if (shape->purpose != NUFFT_FOR_FORWARD)
        seconds += a->method->seconds(shape, samples, a->split, memory);
    if (shape->purpose != NUFFT_FOR_ADJOINT)
        seconds += a->method->forward_seconds(shape, samples, a->split, memory);
    return seconds;
}

/* Of each GPU, the time that its memory, which transfers twice a clock, takes for as many bytes as an H100's does in a
 * second; 1 if the driver does not tell. */
struct memory_times {
    double of[DEV_GPUS_MOST];

    memory_times()
    {
        const double h100 = 3.35e12; /* bytes per second */
        int count = 0;
        cudaGetDeviceCount(&count);
        for (int i = 0; i < DEV_GPUS_MOST; i++) {
            int kilohertz = 0, bits = 0;
            if (i < count) {
                cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, i);
                cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, i);
            }
            const double bandwidth = 2e3 * kilohertz * bits / 8;
            of[i] = bandwidth > 0 ? h100 / bandwidth : 1;
        }
        cudaGetLastError(); /* a question without an answer is no error of the next launch */
    }
};

/* Asked for once, because a driver takes milliseconds to tell a clock, and a plan compares hundreds of grids. */
static double memory_of(const struct gpu *gpu)
{
    static const struct memory_times times;
    return times.of[gpu->index];
}

/* The fastest method that meets the tolerance together with the kernel's own error; `error`: its expected error. Tiles,
 * the last of the table, are used if no other method supports the shape, for few samples if only a method for many
 * does, and in three dimensions by plans for the forward transform alone, if they are read faster. */
static struct arithmetic choose_arithmetic(const struct nufft_shape *shape, size_t samples, double memory,
                                           double *error)
{
    const struct arithmetic tiles = {&nufft_gpu_methods[NUFFT_GPU_METHODS - 1], false};
    struct arithmetic best = tiles;
    struct grid_errors of = {
        shape->corner_aliasing, kernel_rounding(shape->dim, shape->width, nufft_oversampling(shape)), {1, 1, 1}};
    error_gain(shape, of.gain);
    const double exact = total_error(shape, &tiles, &of), of_tiles = seconds_of(&tiles, shape, samples, memory);
    /* If a given kernel and grid do not meet the tolerance, exact sums could not either. */
    const double most = exact > shape->tolerance ? 2 * exact : shape->tolerance;
    double least = INFINITY;
    *error = exact;
    for (int i = 0; i < NUFFT_GPU_METHODS - 1; i++) {
        struct arithmetic a = {&nufft_gpu_methods[i], false};
        if (!a.method->serves(shape) || (shape->method != 0 && shape->method != a.method->id))
            continue;
        a.split = total_error(shape, &a, &of) > shape->tolerance;
        const double wrong = total_error(shape, &a, &of), seconds = seconds_of(&a, shape, samples, memory);
        if (wrong > most || seconds >= least || (!a.method->sparse && shape->method == 0 && seconds >= of_tiles))
            continue;
        best = a;
        least = seconds;
        *error = wrong;
    }
    if (shape->method == 0 && shape->dim == 3 && shape->purpose == NUFFT_FOR_FORWARD && of_tiles < least) {
        best = tiles;
        *error = exact;
    }
    return best;
}

/* Bins for a plan's method. */
static struct range_geometry choose_geometry(const struct gpu *gpu, const struct nufft_shape *shape,
                                             const struct arithmetic *a, size_t samples)
{
    struct range_geometry g = {};
    g.dim = shape->dim;
    g.width = shape->width;
    for (struct range_axis &axis : g.axis)
        axis = range_axis{1, 1, 0};
    g.by_cell = true;
    g.light = 512; /* of 256, 512, 1,024: least total time in cases a, b and c of bench_nufft */
    g.slab = 6000; /* two thousand concurrent warps */
    g.depth = SPLIT_SAMPLES_MOST;
    a->method->bins(&g, gpu, shape, samples, a->split);
    if (shape->overflow == NUFFT_SPLIT && shape->bin_depth != NUFFT_DEPTH_AUTO) {
        /* Sums on tensor cores keep their maximum length, whatever depth is requested. */
        uint32_t most = a->method->tensor ? g.depth : (uint32_t)RANGE_UNLIMITED, asked = (uint32_t)shape->bin_depth;
        g.light = a->method->tensor ? g.light : most;
        g.depth = shape->bin_depth == NUFFT_DEPTH_NONE ? most : std::min(asked, most);
        g.light = std::min(g.light, g.depth);
    }
    return g;
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

void nufft_gpu_destroy(void *state)
{
    struct nufft_gpu *plan = (struct nufft_gpu *)state;
    if (!plan)
        return;
    struct gpu *gpu = plan->gpu;
    if (gpu_enter(gpu) == 0) {
        nufft_gpu_overflow_free(plan);
        nufft_gpu_clock_free(plan);
        range_bins_gpu_free(&plan->bins, gpu);
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
        gpu_release(gpu, plan->lines);
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
    const struct arithmetic arithmetic = choose_arithmetic(shape, plan->samples, memory_of(gpu), &error);
    plan->method = arithmetic.method;
    plan->split = arithmetic.split;
    nufft_gpu_fit_kaiser(&plan->kernel, shape, plan->method->degree[plan->split]);
    if (plan->method->tensor)
        nufft_gpu_fit_pairs(&plan->pairs, shape, plan->split ? 4 : 3);
    if (!size_mul(plan->samples, (size_t)shape->dim, &values))
        return err_set(ERR_BAD_PARAMETER, "%zu samples are more than one plan can hold.", plan->samples);
    int rc = make_ffts(plan);
    if (!rc)
        rc = gpu_array(gpu, values, &on_device, "The trajectory");
    if (!rc)
        rc = gpu_upload(gpu, on_device, k, values * sizeof *k);
    if (!rc) {
        struct range_geometry geometry = choose_geometry(gpu, shape, &arithmetic, plan->samples);
        bool caps = shape->overflow == NUFFT_OVERFLOW_CPU && shape->bin_depth != NUFFT_DEPTH_NONE;
        rc = caps ? nufft_gpu_partition(plan, &geometry, on_device)
                  : range_bins_gpu_make(&plan->bins, gpu, &geometry, plan->samples, on_device);
        plan->bytes += plan->bins.bytes;
        if (!rc && plan->bins.nonfinite != SIZE_MAX)
            rc = nufft_nonfinite(plan->bins.nonfinite, shape->dim);
    }
    gpu_release(gpu, on_device);
    if (rc)
        return rc;
    rc = upload_deapodisation(plan, shape);
    if (!rc)
        rc = nufft_gpu_lines_make(plan);
    if (!rc)
        rc = plan->method->make(plan);
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
    info->method = plan->method->id;
    info->products = !plan->method->tensor ? 0 : plan->split ? 3 : 1;
    info->bins = plan->bins.count;
    info->occupied_bins = plan->bins.occupied;
    info->largest_bin = plan->bins.largest;
    info->bytes = plan->bytes;
    info->binning = plan->bins.seconds;
    const bool limited = plan->bins.geometry.light > 0 && plan->bins.geometry.depth < RANGE_UNLIMITED;
    info->depth = limited ? plan->bins.geometry.depth : 0;
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

struct nufft_cost nufft_gpu_cost(const struct dev *dev, const struct nufft_shape *shape, size_t samples)
{
    const double memory = memory_of((const struct gpu *)dev->state);
    double error;
    const struct arithmetic a = choose_arithmetic(shape, samples, memory, &error);
    const bool as_asked = shape->method == 0 || shape->method == a.method->id;
    return nufft_cost{seconds_of(&a, shape, samples, memory), error, as_asked};
}
