/* The passes along columns of a convolution in halves. */
#include "gridding/fft/fft_halves_lines.cuh"

enum { COLUMNS = 16 };

struct columns_args {
    const float2 *in;
    float2 *out;
    unsigned in_step, out_step; /* below the grid's size in memory, so 32 bits suffice */
    size_t in_set, out_set;
    int kept, lines;
    const float2 *turns;
};

/* A thread's part of a block's columns. Neighbouring lanes have neighbouring columns; all of a warp has the same q. */
template <int A, int B, int T> struct column_place {
    int column, t, q;
    size_t in, out; /* of the column's first element */
    float2 *shared; /* of its transform: element (k1, t) is at COLUMNS * (B k1 + t) */

    __device__ __forceinline__ column_place(const struct columns_args &a, float2 *all)
    {
        const int in_block = threadIdx.x % COLUMNS;
        t = threadIdx.x / COLUMNS % T;
        q = threadIdx.x / (COLUMNS * T);
        column = blockIdx.x * COLUMNS + in_block;
        in = (size_t)blockIdx.y * a.in_set + column;
        out = (size_t)blockIdx.y * a.out_set + column;
        shared = all + q * (A * B * COLUMNS) + in_block;
    }
};

/* A 32-bit product, which becomes one instruction together with the sum. */
static __device__ __forceinline__ size_t steps(int j, unsigned step)
{
    return (size_t)(unsigned)j * step;
}

/* Exponent -, computed as exponent + between conjugations: `kept` cells to all frequencies. WHOLE: kept is L, and every
 * block is full. */
template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(2 * T * COLUMNS, RESIDENT_THREADS / (2 * T * COLUMNS))
    columns_forth(const __grid_constant__ struct columns_args a)
{
    extern __shared__ float2 shared[];
    const struct column_place<A, B, T> at(a, shared);
    const bool there = WHOLE || at.column < a.lines;
    begin_after_last_pass();
    if (there && (T == B || at.t < B)) {
        float2 v[A], *to = at.shared + COLUMNS * at.t;
        const float2 *in = a.in + at.in + steps(at.t, a.in_step);
#pragma unroll
        for (int r = 0; r < A; r++)
            v[r] = WHOLE || at.t + B * r < a.kept ? conj(in[steps(B * r, a.in_step)]) : make_float2(0.f, 0.f);
        dft_half<A>(v, at.q);
        turn_between<A, B>(turns_of<A, B>(a.turns, at.q, at.t), v);
#pragma unroll
        for (int k1 = 0; k1 < A; k1++)
            to[COLUMNS * B * k1] = v[k1];
    }
    __syncthreads();
    const float2 *from = at.shared + COLUMNS * B * at.t;
    float2 *out = a.out + at.out + steps(2 * at.t + at.q, a.out_step);
#pragma unroll
    for (int round = 0; round < rounds<A, T>; round++) {
        if (!there || (A % T != 0 && at.t + T * round >= A))
            break;
        float2 v[B];
#pragma unroll
        for (int t = 0; t < B; t++)
            v[t] = from[COLUMNS * (B * T * round + t)];
        dft<B>(v);
#pragma unroll
        for (int k2 = 0; k2 < B; k2++)
            out[steps(2 * (T * round + A * k2), a.out_step)] = conj(v[k2]);
    }
}

/* Values for the other half's thread. Q: this thread's half. */
template <int A, int B, int Q> static __device__ __forceinline__ void columns_give(float2 *mine, const float2 (&v)[A])
{
#pragma unroll
    for (int r = 1 - Q; r < A; r += 2)
        mine[COLUMNS * B * r] = v[r];
}

template <int A, int B, int Q, bool WHOLE, int I = 0>
static __device__ __forceinline__ void columns_join(const struct columns_args &a, float2 *out, int t,
                                                    const float2 *other, const float2 (&v)[A])
{
    if constexpr (I < joins<A, Q>) {
        constexpr int r = 2 * I + Q;
        if (WHOLE || t + B * r < a.kept) {
            const float2 given = other[COLUMNS * B * r];
            out[steps(B * r, a.out_step)] = joined<A, r>(Q ? given : v[r], Q ? v[r] : given);
        }
        columns_join<A, B, Q, WHOLE, I + 1>(a, out, t, other, v);
    }
}

/* Exponent +: all frequencies to the kept cells. */
template <int A, int B, int T, bool WHOLE>
static __global__ void __launch_bounds__(2 * T * COLUMNS, RESIDENT_THREADS / (2 * T * COLUMNS))
    columns_back(const __grid_constant__ struct columns_args a)
{
    extern __shared__ float2 shared[];
    const struct column_place<A, B, T> at(a, shared);
    const bool there = WHOLE || at.column < a.lines, works = there && (T == B || at.t < B);
    begin_after_last_pass();
    const float2 *in = a.in + at.in + steps(2 * at.t + at.q, a.in_step);
    float2 *to = at.shared + COLUMNS * B * at.t;
#pragma unroll
    for (int round = 0; round < rounds<A, T>; round++) {
        if (!there || (A % T != 0 && at.t + T * round >= A))
            break;
        float2 v[B];
#pragma unroll
        for (int k2 = 0; k2 < B; k2++)
            v[k2] = in[steps(2 * (T * round + A * k2), a.in_step)];
        dft<B>(v);
#pragma unroll
        for (int t = 0; t < B; t++)
            to[COLUMNS * (B * T * round + t)] = v[t];
    }
    __syncthreads();
    float2 v[A], *mine = at.shared + COLUMNS * at.t;
    const float2 *other = mine + (at.q ? -A * B * COLUMNS : A * B * COLUMNS);
    if (works) {
#pragma unroll
        for (int k1 = 0; k1 < A; k1++)
            v[k1] = mine[COLUMNS * B * k1];
        turn_between<A, B>(turns_of<A, B>(a.turns, at.q, at.t), v);
        dft<A>(v);
        if (at.q)
            columns_give<A, B, 1>(mine, v);
        else
            columns_give<A, B, 0>(mine, v);
    }
    __syncthreads();
    if (!works)
        return;
    float2 *out = a.out + at.out + steps(at.t, a.out_step);
    if (at.q)
        columns_join<A, B, 1, WHOLE>(a, out, at.t, other, v);
    else
        columns_join<A, B, 0, WHOLE>(a, out, at.t, other, v);
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
    const struct size *size = sizes;
    while (size->n != plan->n)
        size++;
    const bool whole = pass->kept * 2 == plan->n && pass->lines % COLUMNS == 0;
    void (*kernel)(struct columns_args) = pass->kind == FFT_FORTH ? size->forth[whole] : size->back[whole];
    struct columns_args args = {};
    args.in = pass->in;
    args.out = pass->out;
    args.in_step = (unsigned)pass->in_view.step;
    args.in_set = pass->in_view.set;
    args.out_step = (unsigned)pass->out_view.step;
    args.out_set = pass->out_view.set;
    args.kept = pass->kept;
    args.lines = pass->lines;
    args.turns = plan->turns;
    const dim3 blocks(gpu_blocks((size_t)pass->lines, COLUMNS), (unsigned)pass->sets);
    return fft_halves_launch(gpu, (const void *)kernel, blocks, 2 * size->threads * COLUMNS,
                             (size_t)plan->n * COLUMNS * sizeof(float2), &args);
}
