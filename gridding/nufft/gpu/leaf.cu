/* The GPU's NUFFT leaf: transforms, composed of sorting, sums, FFT passes and interpolation. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cstring>

/* Without a grid if possible; adding the CPU's sums needs one. */
static int adjoint_groups(struct nufft_gpu *plan, int batch, const struct c32 *data, struct c32 *image, float *squares)
{
    int rc = gpu_enter(plan->gpu), transforms;
    const bool no_grid = plan->gridless && !plan->overflow;
    if (!rc)
        rc = nufft_gpu_overflow_begin(plan, batch, data, true);
    for (int b = 0; !rc && b < batch; b += transforms) {
        const struct c32 *from = data + (size_t)b * plan->samples;
        struct c32 *to = image ? image + (size_t)b * plan->pixels : NULL;
        transforms = std::min(no_grid ? plan->together : plan->group, batch - b);
        rc = nufft_gpu_clock_turn(plan);
        if (!rc && no_grid)
            rc = plan->method->to_image(plan, transforms, from, to, squares);
        if (no_grid)
            continue;
        if (!rc)
            rc = plan->method->to_grid(plan, transforms, from, plan->weights);
        if (!rc)
            rc = nufft_gpu_clock(plan, MOMENT_GRIDDED, plan->gpu->stream);
        if (!rc)
            rc = nufft_gpu_overflow_add(plan, b, transforms, batch, data, true);
        if (!rc)
            rc = nufft_gpu_grid_to_image(plan, transforms, to, squares);
    }
    return rc;
}

static int leaf_adjoint(void *state, int batch, const struct c32 *data, struct c32 *image)
{
    return adjoint_groups((struct nufft_gpu *)state, batch, data, image, NULL);
}

static int leaf_adjoint_squares(void *state, int batch, const struct c32 *data, float *squares)
{
    return adjoint_groups((struct nufft_gpu *)state, batch, data, NULL, squares);
}

static int leaf_forward(void *state, int batch, const struct c32 *image, struct c32 *data)
{
    struct nufft_gpu *plan = (struct nufft_gpu *)state;
    int rc = gpu_enter(plan->gpu), transforms;
    for (int b = 0; !rc && b < batch; b += transforms) {
        transforms = std::min(plan->group, batch - b);
        rc = nufft_gpu_image_to_grid(plan, transforms, image + (size_t)b * plan->pixels);
        if (!rc)
            rc = nufft_gpu_overflow_gather(plan, transforms, true, data + (size_t)b * plan->samples);
    }
    return rc ? rc : gpu_finish(plan->gpu, "The forward transform");
}

/* Blocks of 256; a thread owns one value. */
static __global__ void from_real(uint32_t samples, const float *values, float2 *to)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples)
        to[i] = make_float2(values[i], 0.f);
}

static __global__ void real_parts(uint32_t samples, const float2 *data, float *to)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples)
        to[i] = data[i].x;
}

/* Scatter data [samples] (the caller's order) and interpolate the grid at the samples, in place. The workspace has
 * slots and, if the CPU adds its sums, a grid; otherwise a grid is allocated here. */
static int convolve_in_slots(struct nufft_gpu *plan, struct c32 *data)
{
    struct c32 *workspace = plan->grid, *grid = NULL;
    int rc = plan->overflow ? 0 : gpu_array(plan->gpu, plan->cells, &grid, "The grid");
    if (!rc)
        rc = nufft_gpu_overflow_begin(plan, 1, data, false);
    if (!rc)
        rc = nufft_gpu_slots_to_grid(plan, data, NULL, grid ? grid : plan->grid);
    if (!rc)
        rc = nufft_gpu_overflow_add(plan, 0, 1, 1, data, false);
    if (!rc) {
        plan->grid = grid ? grid : plan->grid;
        rc = nufft_gpu_overflow_gather(plan, 1, false, data);
        plan->grid = workspace;
    }
    gpu_release(plan->gpu, grid);
    return rc;
}

static int convolve_on_grid(struct nufft_gpu *plan, struct c32 *data)
{
    int rc = nufft_gpu_overflow_begin(plan, 1, data, false);
    if (!rc)
        rc = plan->method->to_grid(plan, 1, data, NULL);
    if (!rc)
        rc = nufft_gpu_overflow_add(plan, 0, 1, 1, data, false);
    return rc ? rc : nufft_gpu_overflow_gather(plan, 1, false, data);
}

static int leaf_convolve(void *state, const float *weights, float *convolved)
{
    struct nufft_gpu *plan = (struct nufft_gpu *)state;
    struct gpu *gpu = plan->gpu;
    uint32_t n = (uint32_t)plan->samples;
    float *values = NULL;
    struct c32 *result = NULL;
    int rc = gpu_enter(gpu);
    if (rc || n == 0)
        return rc;
    rc = gpu_array(gpu, n, &values, "The weights");
    if (!rc)
        rc = gpu_array(gpu, n, &result, "The convolved weights");
    if (!rc)
        rc = gpu_upload(gpu, values, weights, n * sizeof(float));
    if (!rc) {
        from_real<<<gpu_blocks(n, 256), 256, 0, gpu->stream>>>(n, values, (float2 *)result);
        rc = gpu_launched("Preparing the weights");
    }
    if (!rc)
        rc = nufft_gpu_in_slots(plan) ? convolve_in_slots(plan, result) : convolve_on_grid(plan, result);
    if (!rc) {
        real_parts<<<gpu_blocks(n, 256), 256, 0, gpu->stream>>>(n, (const float2 *)result, values);
        rc = gpu_launched("Reading the convolved weights");
    }
    if (!rc)
        rc = gpu_download(gpu, convolved, values, n * sizeof(float));
    gpu_release(gpu, result);
    gpu_release(gpu, values);
    return rc;
}

static int leaf_finish(void *state, struct nufft_times *times)
{
    struct nufft_gpu *plan = (struct nufft_gpu *)state;
    int rc = gpu_enter(plan->gpu);
    if (!rc)
        rc = nufft_gpu_clock_read(plan);
    *times = plan->times;
    memset(&plan->times, 0, sizeof plan->times);
    return rc;
}

extern "C" const struct nufft_leaf nufft_leaf_gpu;
const struct nufft_leaf nufft_leaf_gpu = {
    nufft_gpu_cost,
    fft_known_size,
    nufft_gpu_create,
    nufft_gpu_destroy,
    nufft_gpu_describe,
    nufft_gpu_bins,
    nufft_gpu_set_weights,
    leaf_adjoint,
    leaf_adjoint_squares,
    leaf_finish,
    leaf_forward,
    leaf_convolve,
    NULL,
};
