/* Copies from the caller's order to the sorted one. */
#include "gridding/base/launch_gpu.cuh"
#include "gridding/nufft/gpu/nufft_gpu.cuh"

enum { SORTED = 4 }; /* samples of a thread, whose loads overlap */

/* The largest of all |real| and |imaginary| parts of each transform, as bits: floats >= 0 are in the order of their
 * bits. `now` (NULL: not wanted) is raised to them; `next`, of the next call, is cleared. */
struct largest_parts {
    uint32_t *now, *next;
    int count; /* of `next` */
};

/* Blocks of 256; a thread owns SORTED sorted samples of all transforms: data[transform][stride] to
 * sorted[transform][stride]. */
static __global__ void __launch_bounds__(256)
    sort_data(uint32_t samples, size_t stride, int transforms, const uint32_t *order, const float *weights,
              const float2 *data, float2 *sorted, struct largest_parts largest)
{
    __shared__ uint32_t of_block[BRICK16_TRANSFORMS];
    const size_t first = (size_t)blockIdx.x * (256 * SORTED) + threadIdx.x;
    gpu_let_next_start();
    uint32_t from[SORTED];
    float w[SORTED];
#pragma unroll
    for (int j = 0; j < SORTED; j++) {
        const size_t i = first + j * 256;
        from[j] = i < samples ? order[i] : 0;
        w[j] = i < samples && weights ? weights[i] : 1.f;
    }
    if (threadIdx.x < BRICK16_TRANSFORMS)
        of_block[threadIdx.x] = 0;
    if (largest.now && blockIdx.x == 0 && (int)threadIdx.x < largest.count)
        largest.next[threadIdx.x] = 0;
    __syncthreads();
    for (int t = 0; t < transforms; t++) {
        uint32_t most = 0;
        float2 v[SORTED];
#pragma unroll
        for (int j = 0; j < SORTED; j++)
            v[j] = __ldg(data + t * stride + from[j]);
#pragma unroll
        for (int j = 0; j < SORTED; j++) {
            v[j] = make_float2(v[j].x * w[j], v[j].y * w[j]);
            if (first + j * 256 >= samples)
                continue;
            sorted[t * stride + first + j * 256] = v[j];
            most = max(most, max(__float_as_uint(fabsf(v[j].x)), __float_as_uint(fabsf(v[j].y))));
        }
        if (largest.now) {
            most = __reduce_max_sync(~0u, most);
            if (threadIdx.x % 32 == 0)
                atomicMax(&of_block[t], most);
        }
    }
    __syncthreads();
    /* Most blocks find it already as large. */
    if (largest.now && (int)threadIdx.x < transforms &&
        of_block[threadIdx.x] > *(const volatile uint32_t *)(largest.now + threadIdx.x))
        atomicMax(largest.now + threadIdx.x, of_block[threadIdx.x]);
}

/* Blocks of 256; a thread owns one sorted sample. */
static __global__ void sort_values(uint32_t samples, const uint32_t *order, const float *values, float *sorted)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < samples)
        sorted[i] = values[order[i]];
}

int nufft_gpu_sort_data(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights)
{
    uint32_t n = plan->bins.samples;
    if (n == 0)
        return 0;
    const uint32_t turn = plan->bins.round & 1; /* of two that alternate */
    struct largest_parts largest = {};
    if (plan->largest)
        largest = {plan->largest + turn * plan->group, plan->largest + (turn ^ 1) * plan->group, plan->group};
    sort_data<<<gpu_blocks(n, 256 * SORTED), 256, 0, plan->gpu->stream>>>(
        n, plan->samples, transforms, plan->bins.order, weights, (const float2 *)data, (float2 *)plan->sorted, largest);
    return gpu_launched("Sorting the data");
}

/* values[samples] to sorted[bins.samples]. */
static int sort_weights(struct nufft_gpu *plan, const float *values, float *sorted)
{
    uint32_t n = plan->bins.samples;
    if (n == 0)
        return 0;
    sort_values<<<gpu_blocks(n, 256), 256, 0, plan->gpu->stream>>>(n, plan->bins.order, values, sorted);
    return gpu_launched("Sorting the weights");
}

int nufft_gpu_set_weights(void *state, const float *weights)
{
    struct nufft_gpu *plan = (struct nufft_gpu *)state;
    struct gpu *gpu = plan->gpu;
    float *unsorted = NULL;
    uint32_t n = plan->bins.samples;
    int rc = gpu_enter(gpu);
    if (rc)
        return rc;
    if (!weights || n == 0) {
        rc = nufft_gpu_overflow_weights(plan, NULL);
        plan->bytes -= plan->weights ? n * sizeof(float) : 0;
        gpu_release(gpu, plan->weights);
        plan->weights = NULL;
        return rc;
    }
    rc = gpu_array(gpu, plan->samples, &unsorted, "The weights");
    if (!rc)
        rc = gpu_upload(gpu, unsorted, weights, plan->samples * sizeof(float));
    if (!rc && !plan->weights) {
        rc = gpu_array(gpu, n, &plan->weights, "The weights");
        plan->bytes += rc ? 0 : n * sizeof(float);
    }
    if (!rc)
        rc = sort_weights(plan, unsorted, plan->weights);
    if (!rc)
        rc = nufft_gpu_overflow_weights(plan, unsorted);
    gpu_release(gpu, unsorted);
    return rc ? rc : gpu_finish(gpu, "Sorting the weights");
}
