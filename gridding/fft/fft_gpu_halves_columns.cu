/* The passes along columns of a convolution in halves. */
#include "gridding/fft/fft_halves_columns.cuh"

template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(T *COLUMNS, COLUMN_THREADS / (T * COLUMNS))
    columns_forth(const __grid_constant__ struct columns_args a)
{
    extern __shared__ float2 shared[];
    const struct column_place<A, B, T> at(shared);
    gpu_begin_behind();
    const float2 *in = a.in + (size_t)blockIdx.y * a.in_set + at.column + steps(at.t, a.in_step);
    column_forth<A, B, T, WHOLE>(a, at, a.out + (size_t)blockIdx.y * a.out_set + at.column,
                                 [&](int j) { return conj(in[steps(j, a.in_step)]); });
}

template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(T *COLUMNS, COLUMN_THREADS / (T * COLUMNS))
    columns_back(const __grid_constant__ struct columns_args a)
{
    extern __shared__ float2 shared[];
    const struct column_place<A, B, T> at(shared);
    gpu_begin_behind();
    float2 *out = a.out + (size_t)blockIdx.y * a.out_set + at.column + steps(at.t, a.out_step);
    column_back<A, B, T, WHOLE>(a, at, a.in + (size_t)blockIdx.y * a.in_set + at.column,
                                [&](int j, float2 value) { out[steps(j, a.out_step)] = value; });
}

struct size {
    int n, threads;                        /* of a transform */
    void (*forth[2])(struct columns_args); /* of any columns, and WHOLE */
    void (*back[2])(struct columns_args);
};

static const struct size sizes[] = {
#define SIZE(N, A, B, T)                                            \
    {N,                                                             \
     T,                                                             \
     {columns_forth<A, B, T, false>, columns_forth<A, B, T, true>}, \
     {columns_back<A, B, T, false>, columns_back<A, B, T, true>}},
    HALVES(SIZE)
#undef SIZE
};

int fft_halves_columns(struct gpu *gpu, const struct fft_plan *plan, const struct fft_pass *pass)
{
    const struct size *size = halves_of(sizes, plan->n);
    const bool whole = columns_whole(plan, pass);
    void (*kernel)(struct columns_args) = pass->kind == FFT_FORTH ? size->forth[whole] : size->back[whole];
    struct columns_args args = columns_args_of(plan, pass);
    const dim3 blocks(gpu_blocks((size_t)pass->lines, COLUMNS), (unsigned)pass->sets);
    return fft_halves_launch(gpu, (const void *)kernel, blocks, size->threads * COLUMNS,
                             (size_t)plan->n * COLUMNS * sizeof(float2), &args);
}
