/* vec_cg_gpu.cu: conjugate gradients on a GPU: a step is four kernels. Those over vectors have grids of parts x frames
 * blocks; the number of a frame's parts depends on n alone. Each block writes its part of a sum, and who needs the sum
 * adds the parts in the same order. */
#include "gridding/base/vec_cg_element.h"
#include "gridding/base/dev_gpu.cuh"

static const unsigned THREADS = 256, EACH = 8; /* EACH: elements of a thread, at least, of long vectors */

/* By value: what kernels know. */
struct work {
    struct vec_cg cg;
    const struct c32 *b;
    unsigned parts;
};

/* The sum of the block's values, in its first thread. */
static __device__ __forceinline__ double block_sum(double value)
{
    __shared__ double part[THREADS];
    part[threadIdx.x] = value;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    return part[0];
}

static __device__ __forceinline__ double *parts_of(const struct work &w, int which, int frame)
{
    return w.cg.part + ((size_t)which * (size_t)w.cg.frames + (size_t)frame) * VEC_CG_PARTS;
}

/* The sum of a frame's parts, in all threads of the block. */
static __device__ __forceinline__ double sum_parts(const struct work &w, int which, int frame)
{
    __shared__ double sum;
    const double *part = parts_of(w, which, frame);
    double own = 0;
    for (unsigned i = threadIdx.x; i < w.parts; i += THREADS)
        own += part[i];
    const double all = block_sum(own);
    if (threadIdx.x == 0)
        sum = all;
    __syncthreads();
    return sum;
}

static __device__ __forceinline__ void put_part(const struct work &w, int which, double value)
{
    const double all = block_sum(value);
    if (threadIdx.x == 0)
        parts_of(w, which, (int)blockIdx.y)[blockIdx.x] = all;
}

static __device__ __forceinline__ size_t first_of()
{
    return blockIdx.x * (size_t)THREADS + threadIdx.x;
}

/* x = 0; r = p = b; parts of <b, b> */
static __global__ void __launch_bounds__(THREADS) begin_vectors(const __grid_constant__ struct work w)
{
    const size_t at = blockIdx.y * w.cg.n;
    double sum = 0;
    for (size_t i = first_of(); i < w.cg.n; i += (size_t)w.parts * THREADS) {
        const struct c32 value = w.b[at + i];
        sum += element_dot(value, value);
        w.cg.r[at + i] = w.cg.p[at + i] = value;
        w.cg.x[at + i] = {0, 0};
    }
    put_part(w, 0, sum);
}

static __global__ void __launch_bounds__(THREADS) begin_frames(const __grid_constant__ struct work w)
{
    const double bb = sum_parts(w, 0, (int)blockIdx.x);
    if (threadIdx.x == 0)
        w.cg.running[blockIdx.x] = cg_frame_begin(&w.cg.frame[blockIdx.x], bb);
}

/* q + lambda p */
static __device__ __forceinline__ struct c32 product(const struct work &w, float lambda, size_t i)
{
    return element_axpy(lambda, w.cg.p[i], w.cg.q[i]);
}

/* Parts of <p, q + lambda p> */
static __global__ void __launch_bounds__(THREADS) products(const __grid_constant__ struct work w)
{
    const size_t at = blockIdx.y * w.cg.n;
    if (!w.cg.running[blockIdx.y])
        return;
    const float lambda = (float)w.cg.frame[blockIdx.y].lambda;
    double sum = 0;
    for (size_t i = at + first_of(); i < at + w.cg.n; i += (size_t)w.parts * THREADS)
        sum += element_dot(w.cg.p[i], product(w, lambda, i));
    put_part(w, 0, sum);
}

/* x = x + alpha p; r = r - alpha (q + lambda p); parts of <r, r> */
static __global__ void __launch_bounds__(THREADS) steps(const __grid_constant__ struct work w)
{
    const size_t at = blockIdx.y * w.cg.n;
    if (!w.cg.running[blockIdx.y])
        return;
    const double pq = sum_parts(w, 0, (int)blockIdx.y);
    if (!cg_positive(pq))
        return;
    const double alpha = w.cg.frame[blockIdx.y].rr / pq;
    const float lambda = (float)w.cg.frame[blockIdx.y].lambda;
    double sum = 0;
    for (size_t i = at + first_of(); i < at + w.cg.n; i += (size_t)w.parts * THREADS) {
        const struct c32 r = element_axpy((float)-alpha, product(w, lambda, i), w.cg.r[i]);
        w.cg.x[i] = element_axpy((float)alpha, w.cg.p[i], w.cg.x[i]);
        w.cg.r[i] = r;
        sum += element_dot(r, r);
    }
    put_part(w, 1, sum);
}

/* A block for each frame. */
static __global__ void __launch_bounds__(THREADS) end_frames(const __grid_constant__ struct work w)
{
    const int f = (int)blockIdx.x;
    if (!w.cg.running[f])
        return;
    const double pq = sum_parts(w, 0, f);
    __syncthreads();
    const double rr = cg_positive(pq) ? sum_parts(w, 1, f) : 0;
    if (threadIdx.x == 0)
        w.cg.running[f] = cg_frame_end(&w.cg.frame[f], pq, rr, w.cg.tolerance);
}

/* p = r + beta p */
static __global__ void __launch_bounds__(THREADS) directions(const __grid_constant__ struct work w)
{
    const size_t at = blockIdx.y * w.cg.n;
    if (!w.cg.running[blockIdx.y])
        return;
    const float beta = (float)w.cg.frame[blockIdx.y].beta;
    for (size_t i = at + first_of(); i < at + w.cg.n; i += (size_t)w.parts * THREADS)
        w.cg.p[i] = element_axpy(beta, w.cg.p[i], w.cg.r[i]);
}

static struct work work_of(const struct vec_cg *cg, const struct c32 *b)
{
    const size_t wanted = (cg->n + THREADS * EACH - 1) / (THREADS * EACH);
    return {*cg, b, wanted < VEC_CG_PARTS ? (unsigned)wanted : (unsigned)VEC_CG_PARTS};
}

int vec_cg_begin_gpu(struct dev *dev, const struct vec_cg *cg, const struct c32 *b)
{
    struct gpu *gpu = gpu_of(dev);
    const struct work w = work_of(cg, b);
    int rc = gpu_enter(gpu);
    if (rc || cg->n == 0 || cg->frames == 0)
        return rc;
    begin_vectors<<<dim3(w.parts, (unsigned)cg->frames), THREADS, 0, gpu->stream>>>(w);
    rc = gpu_launched("Conjugate gradients");
    if (rc)
        return rc;
    begin_frames<<<(unsigned)cg->frames, THREADS, 0, gpu->stream>>>(w);
    return gpu_launched("Conjugate gradients");
}

int vec_cg_step_gpu(struct dev *dev, const struct vec_cg *cg)
{
    struct gpu *gpu = gpu_of(dev);
    const struct work w = work_of(cg, NULL);
    const dim3 vectors(w.parts, (unsigned)cg->frames);
    int rc = gpu_enter(gpu);
    if (rc || cg->n == 0 || cg->frames == 0)
        return rc;
    products<<<vectors, THREADS, 0, gpu->stream>>>(w);
    rc = gpu_launched("Conjugate gradients");
    if (rc)
        return rc;
    steps<<<vectors, THREADS, 0, gpu->stream>>>(w);
    rc = gpu_launched("Conjugate gradients");
    if (rc)
        return rc;
    end_frames<<<(unsigned)cg->frames, THREADS, 0, gpu->stream>>>(w);
    rc = gpu_launched("Conjugate gradients");
    if (rc)
        return rc;
    directions<<<vectors, THREADS, 0, gpu->stream>>>(w);
    return gpu_launched("Conjugate gradients");
}
