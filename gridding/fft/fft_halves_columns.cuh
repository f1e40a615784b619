/* fft_halves_columns.cuh: columns of a convolution in halves: plain ones (fft_gpu_halves_columns.cu), and those of
 * coils (fft_gpu_halves_coils.cu). Only these include it. */
#ifndef MRIRECON_FFT_HALVES_COLUMNS_CUH
#define MRIRECON_FFT_HALVES_COLUMNS_CUH

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
    float2 *shared; /* of its transform: element (k1, t) is at COLUMNS * (B k1 + t) */

    __device__ __forceinline__ explicit column_place(float2 *all)
    {
        const int in_block = threadIdx.x % COLUMNS;
        t = threadIdx.x / COLUMNS % T;
        q = threadIdx.x / (COLUMNS * T);
        column = blockIdx.x * COLUMNS + in_block;
        shared = all + q * (A * B * COLUMNS) + in_block;
    }
};

/* A 32-bit product, which becomes one instruction together with the sum. */
static __device__ __forceinline__ size_t steps(int j, unsigned step)
{
    return (size_t)(unsigned)j * step;
}

/* Exponent -, computed as exponent + between conjugations: `kept` cells to all frequencies. cell(j) is the conjugate of
 * cell j, called for those of the image; out: of the column. WHOLE: kept is L, and every block is full. */
template <int A, int B, int T, bool WHOLE, class Cell>
static __device__ __forceinline__ void column_forth(const struct columns_args &a,
                                                    const struct column_place<A, B, T> &at, float2 *out, Cell cell)
{
    const bool there = WHOLE || at.column < a.lines;
    if (there && (T == B || at.t < B)) {
        float2 v[A], *to = at.shared + COLUMNS * at.t;
#pragma unroll
        for (int r = 0; r < A; r++)
            v[r] = WHOLE || at.t + B * r < a.kept ? cell(B * r) : make_float2(0.f, 0.f);
        dft_half<A>(v, at.q);
        turn_between<A, B>(turns_of<A, B>(a.turns, at.q, at.t), v);
#pragma unroll
        for (int k1 = 0; k1 < A; k1++)
            to[COLUMNS * B * k1] = v[k1];
    }
    __syncthreads();
    const float2 *from = at.shared + COLUMNS * B * at.t;
    out += steps(2 * at.t + at.q, a.out_step);
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

template <int A, int B, int Q, bool WHOLE, class Put, int I = 0>
static __device__ __forceinline__ void columns_join(const struct columns_args &a, int t, const float2 *other,
                                                    const float2 (&v)[A], Put put)
{
    if constexpr (I < joins<A, Q>) {
        constexpr int r = 2 * I + Q;
        if (WHOLE || t + B * r < a.kept) {
            const float2 given = other[COLUMNS * B * r];
            put(B * r, joined<A, r>(Q ? given : v[r], Q ? v[r] : given));
        }
        columns_join<A, B, Q, WHOLE, Put, I + 1>(a, t, other, v, put);
    }
}

/* Exponent +: all frequencies to the kept cells: put(j, value) of the cells j + t, that is, of those from the thread's
 * first on. in: of the column. */
template <int A, int B, int T, bool WHOLE, class Put>
static __device__ __forceinline__ void column_back(const struct columns_args &a, const struct column_place<A, B, T> &at,
                                                   const float2 *in, Put put)
{
    const bool there = WHOLE || at.column < a.lines, works = there && (T == B || at.t < B);
    in += steps(2 * at.t + at.q, a.in_step);
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
    if (at.q)
        columns_join<A, B, 1, WHOLE>(a, at.t, other, v, put);
    else
        columns_join<A, B, 0, WHOLE>(a, at.t, other, v, put);
}

/* Whether the kept cells are half a column, and every block is full. */
static bool columns_whole(const struct fft_plan *plan, const struct fft_pass *pass)
{
    return pass->kept * 2 == plan->n && pass->lines % COLUMNS == 0;
}

static struct columns_args columns_args_of(const struct fft_plan *plan, const struct fft_pass *pass)
{
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
    return args;
}

#endif
