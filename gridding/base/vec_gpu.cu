/* vec_gpu.cu: vector arithmetic on a GPU: one element per thread, or several of a long vector. The number of a sum's
 * blocks depends only on n; each writes its part to host memory, where they are added in order. */
#include "gridding/base/vec_element.h"
#include "gridding/base/vec_run.cuh"

static const unsigned THREADS = 256, EACH = 8; /* EACH: elements of a thread, in sums */

struct axpy_body {
    float a;
    const struct c32 *x;
    struct c32 *y;
    __device__ void operator()(size_t i) const
    {
        y[i] = element_axpy(a, x[i], y[i]);
    }
};

struct xpay_body {
    const struct c32 *x;
    float a;
    struct c32 *y;
    __device__ void operator()(size_t i) const
    {
        y[i] = element_axpy(a, y[i], x[i]);
    }
};

struct scale_body {
    float a;
    struct c32 *x;
    __device__ void operator()(size_t i) const
    {
        x[i] = element_scale(a, x[i]);
    }
};

struct multiply_body {
    size_t n;
    int count;
    const struct c32 *m, *x;
    struct c32 *y;
    __device__ void operator()(size_t i) const
    {
        const struct c32 value = x[i];
        for (int c = 0; c < count; c++)
            y[c * n + i] = element_multiply(m[c * n + i], value);
    }
};

struct multiply_conj_add_body {
    size_t n;
    int count;
    const struct c32 *m, *y;
    struct c32 *x;
    __device__ void operator()(size_t i) const
    {
        struct c32 sum = x[i];
        for (int c = 0; c < count; c++)
            sum = element_multiply_conj_add(m[c * n + i], y[c * n + i], sum);
        x[i] = sum;
    }
};

struct multiply_each_body {
    size_t n;
    int count;
    const struct c32 *m, *x;
    struct c32 *y;
    __device__ void operator()(size_t i) const
    {
        const struct c32 value = m[i];
        for (int c = 0; c < count; c++)
            y[c * n + i] = element_multiply(value, x[c * n + i]);
    }
};

struct multiply_conj_add_each_body {
    size_t n;
    int count;
    const struct c32 *m, *y;
    struct c32 *x;
    __device__ void operator()(size_t i) const
    {
        const struct c32 value = m[i];
        for (int c = 0; c < count; c++)
            x[c * n + i] = element_multiply_conj_add(value, y[c * n + i], x[c * n + i]);
    }
};

struct wave_body {
    double a;
    const float *f;
    struct c32 *y;
    __device__ void operator()(size_t i) const
    {
        y[i] = element_wave(a, f[i]);
    }
};

struct squares_add_body {
    size_t n;
    int count;
    const struct c32 *x;
    float *squares;
    __device__ void operator()(size_t i) const
    {
        float sum = squares[i];
        for (int c = 0; c < count; c++)
            sum = element_square_add(x[c * n + i], sum);
        squares[i] = sum;
    }
};

struct soft_body {
    float t;
    struct c32 *x;
    __device__ void operator()(size_t i) const
    {
        x[i] = element_soft(t, x[i]);
    }
};

static int zero(struct dev *dev, size_t n, struct c32 *x)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    if (rc || n == 0)
        return rc;
    return gpu_check(cudaMemsetAsync(x, 0, n * sizeof *x, gpu->stream), "Clearing a vector");
}

static int copy(struct dev *dev, size_t n, const struct c32 *x, struct c32 *y)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    if (rc || n == 0)
        return rc;
    return gpu_check(cudaMemcpyAsync(y, x, n * sizeof *y, cudaMemcpyDeviceToDevice, gpu->stream), "Copying a vector");
}

static int axpy(struct dev *dev, size_t n, float a, const struct c32 *x, struct c32 *y)
{
    return vec_run(dev, n, "Adding vectors", axpy_body{a, x, y});
}

static int xpay(struct dev *dev, size_t n, const struct c32 *x, float a, struct c32 *y)
{
    return vec_run(dev, n, "Adding vectors", xpay_body{x, a, y});
}

static int scale(struct dev *dev, size_t n, float a, struct c32 *x)
{
    return vec_run(dev, n, "Scaling a vector", scale_body{a, x});
}

static int multiply(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    return vec_run(dev, n, "Multiplying by maps", multiply_body{n, count, m, x, y});
}

static int multiply_conj_add(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                             struct c32 *x)
{
    return vec_run(dev, n, "Adding by maps", multiply_conj_add_body{n, count, m, y, x});
}

static int multiply_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    return vec_run(dev, n, "Multiplying by a map", multiply_each_body{n, count, m, x, y});
}

static int multiply_conj_add_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                                  struct c32 *x)
{
    return vec_run(dev, n, "Adding by a map", multiply_conj_add_each_body{n, count, m, y, x});
}

static int wave(struct dev *dev, size_t n, double a, const float *f, struct c32 *y)
{
    return vec_run(dev, n, "Waves", wave_body{a, f, y});
}

static int squares_add(struct dev *dev, size_t n, int count, const struct c32 *x, float *squares)
{
    return vec_run(dev, n, "Adding squares", squares_add_body{n, count, x, squares});
}

static int soft(struct dev *dev, size_t n, float t, struct c32 *x)
{
    return vec_run(dev, n, "Shrinking a vector", soft_body{t, x});
}

/* ---- sums ---- */

/* A thread adds its elements in order; a block adds its threads' sums in a binary tree. */
template <class Value> static __global__ void sum_blocks(size_t n, Value value, double *sums)
{
    __shared__ double part[THREADS];
    double sum = 0;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * THREADS)
        sum += value(i);
    part[threadIdx.x] = sum;
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}

template <class Value> static int sum(struct dev *dev, size_t n, double *out, Value value)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    *out = 0;
    if (rc || n == 0)
        return rc;
    const size_t wanted = (n + THREADS * EACH - 1) / (THREADS * EACH);
    const unsigned blocks = wanted < GPU_SUMS ? (unsigned)wanted : (unsigned)GPU_SUMS;
    sum_blocks<<<blocks, THREADS, 0, gpu->stream>>>(n, value, gpu->sums);
    rc = gpu_launched("Summing a vector");
    if (!rc)
        rc = gpu_finish(gpu, "Summing a vector");
    for (unsigned b = 0; b < blocks && !rc; b++)
        *out += gpu->sums[b];
    return rc;
}

struct dot_value {
    const struct c32 *x, *y;
    __device__ double operator()(size_t i) const
    {
        return element_dot(x[i], y[i]);
    }
};

struct size_value {
    const struct c32 *x;
    __device__ double operator()(size_t i) const
    {
        return element_size(x[i]);
    }
};

static int dot(struct dev *dev, size_t n, const struct c32 *x, const struct c32 *y, double *out)
{
    return sum(dev, n, out, dot_value{x, y});
}

static int size_sum(struct dev *dev, size_t n, const struct c32 *x, double *out)
{
    return sum(dev, n, out, size_value{x});
}

extern "C" const struct vec_leaf vec_leaf_gpu;
const struct vec_leaf vec_leaf_gpu = {zero,
                                      copy,
                                      axpy,
                                      xpay,
                                      scale,
                                      dot,
                                      size_sum,
                                      multiply,
                                      multiply_conj_add,
                                      multiply_each,
                                      multiply_conj_add_each,
                                      wave,
                                      squares_add,
                                      soft,
                                      vec_cg_begin_gpu,
                                      vec_cg_step_gpu};
