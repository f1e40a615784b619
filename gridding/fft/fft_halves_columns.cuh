/* fft_halves_columns.cuh: columns of a convolution in halves: plain ones (fft_gpu_halves_columns.cu), and those of
 * coils (fft_gpu_halves_coils.cu). Only these include it. */
#ifndef MRIRECON_FFT_HALVES_COLUMNS_CUH
#define MRIRECON_FFT_HALVES_COLUMNS_CUH

#include "gridding/fft/fft_halves_lines.cuh"

enum { COLUMNS = 16, COLUMN_THREADS = 512 /* of a multiprocessor: 128 registers each */ };

struct columns_args {
    const float2 *in;
    float2 *out;
    unsigned in_step, out_step; /* below the grid's size in memory, so 32 bits suffice */
    size_t in_set, out_set;
    int kept, lines;
    const float2 *turns;
};

/* A thread's part of a block's columns: of both halves, so that nothing passes between the halves' threads.
 * Neighbouring lanes have neighbouring columns. */
template <int A, int B, int T> struct column_place {
    int column, t;
    float2 *shared; /* of its column: element (k1, t) of half q is at COLUMNS (q A B + B k1 + t) */

    __device__ __forceinline__ explicit column_place(float2 *all)
    {
        const int in_block = threadIdx.x % COLUMNS;
        t = threadIdx.x / COLUMNS;
        column = blockIdx.x * COLUMNS + in_block;
        shared = all + in_block;
    }
};

/* A 32-bit product, which becomes one instruction together with the sum. */
static __device__ __forceinline__ size_t steps(int j, unsigned step)
{
    return (size_t)(unsigned)j * step;
}

/* The sums over r of half q, times the factors between the stages, to shared memory. */
template <int A, int B, int T>
static __device__ __forceinline__ void column_begin(const float2 *turns, const struct column_place<A, B, T> &at, int q,
                                                    float2 (&v)[A])
{
    float2 *to = at.shared + COLUMNS * (q * A * B + at.t);
    dft_half<A>(v, q);
    turn_between<A, B>(turns_of<A, B>(turns, q, at.t), v);
#pragma unroll
    for (int k1 = 0; k1 < A; k1++)
        to[COLUMNS * B * k1] = v[k1];
}

/* Exponent -, computed as exponent + between conjugations: `kept` cells to all frequencies. cell(j) is the conjugate of
 * cell j, called for those of the image; out: of the column. WHOLE: kept is L, and every block is full. */
template <int A, int B, int T, bool WHOLE, class Cell>
static __device__ __forceinline__ void column_forth(const struct columns_args &a,
                                                    const struct column_place<A, B, T> &at, float2 *out, Cell cell)
{
    const bool there = WHOLE || at.column < a.lines;
    if (there && (T == B || at.t < B)) {
        float2 even[A], odd[A];
#pragma unroll
        for (int r = 0; r < A; r++)
            even[r] = odd[r] = WHOLE || at.t + B * r < a.kept ? cell(B * r) : make_float2(0.f, 0.f);
        column_begin(a.turns, at, 0, even);
        column_begin(a.turns, at, 1, odd);
    }
    __syncthreads();
    const float2 *from = at.shared + COLUMNS * B * at.t;
    out += steps(2 * at.t, a.out_step);
#pragma unroll
    for (int i = 0; i < 2 * rounds<A, T>; i++) {
        const int q = i % 2, round = i / 2;
        if (!there || (A % T != 0 && at.t + T * round >= A))
            break;
        float2 v[B];
#pragma unroll
        for (int t = 0; t < B; t++)
            v[t] = from[COLUMNS * (q * A * B + B * T * round + t)];
        dft<B>(v);
#pragma unroll
        for (int k2 = 0; k2 < B; k2++)
            out[steps(2 * (T * round + A * k2) + q, a.out_step)] = conj(v[k2]);
    }
}

/* The sums over k1 of half q. */
template <int A, int B, int T>
static __device__ __forceinline__ void column_end(const float2 *turns, const struct column_place<A, B, T> &at, int q,
                                                  float2 (&v)[A])
{
    const float2 *from = at.shared + COLUMNS * (q * A * B + at.t);
#pragma unroll
    for (int k1 = 0; k1 < A; k1++)
        v[k1] = from[COLUMNS * B * k1];
    turn_between<A, B>(turns_of<A, B>(turns, q, at.t), v);
    dft<A>(v);
}

template <int A, int B, bool WHOLE, class Put, int R = 0>
static __device__ __forceinline__ void columns_join(int left, const float2 (&even)[A], const float2 (&odd)[A], Put put)
{
    if constexpr (R < A) {
        if (WHOLE || B * R < left)
            put(B * R, joined<A, R>(even[R], odd[R]));
        columns_join<A, B, WHOLE, Put, R + 1>(left, even, odd, put);
    }
}

/* Exponent +: all frequencies to the kept cells: put(j, value) of the cells j + t, that is, of those from the thread's
 * first on. in: of the column. */
template <int A, int B, int T, bool WHOLE, class Put>
static __device__ __forceinline__ void column_back(const struct columns_args &a, const struct column_place<A, B, T> &at,
                                                   const float2 *in, Put put)
{
    const bool there = WHOLE || at.column < a.lines;
    in += steps(2 * at.t, a.in_step);
    float2 *to = at.shared + COLUMNS * B * at.t;
#pragma unroll
    for (int round = 0; round < rounds<A, T>; round++) {
        if (!there || (A % T != 0 && at.t + T * round >= A))
            break;
        float2 v[2][B]; /* all read before the first is needed */
#pragma unroll
        for (int i = 0; i < 2 * B; i++)
            v[i % 2][i / 2] = in[steps(2 * (T * round + A * (i / 2)) + i % 2, a.in_step)];
#pragma unroll
        for (int q = 0; q < 2; q++) {
            dft<B>(v[q]);
#pragma unroll
            for (int t = 0; t < B; t++)
                to[COLUMNS * (q * A * B + B * T * round + t)] = v[q][t];
        }
    }
    __syncthreads();
    if (!there || (T != B && at.t >= B))
        return;
    float2 even[A], odd[A];
    column_end(a.turns, at, 0, even);
    column_end(a.turns, at, 1, odd);
    columns_join<A, B, WHOLE>(a.kept - at.t, even, odd, put);
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
