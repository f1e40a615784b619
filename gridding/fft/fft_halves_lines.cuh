/* fft_halves_lines.cuh: shared by the columns and the rows of a convolution in halves. Only fft_gpu_halves*.cu include
 * this.
 *
 * A line has 2 L cells, of which an image fills at most L. With w = exp(2 pi i / 2L), its frequency 2 k + q is
 *
 *   sum_j (cell[j] w^(q j)) w^(2 j k),   j, k = 0 .. L - 1:
 *
 * two transforms of L cells, and back likewise. Each has two stages of radices A and B, L = A B, with j = t + B r and
 * k = k1 + A k2: the sum over r by thread t, a twiddle factor w^(t (2 k1 + q)), the sum over t by thread k1; back, the
 * sum over k2 by thread k1, the same factor, the sum over k1 by thread t. The factors w^(q B r) of odd frequencies on
 * the image's side are constants. A thread computes its part of both halves: at most 16 values each, so that a
 * multiprocessor has registers for 512 threads. HALVES has the sizes (fft_halves.cuh). */
#ifndef MRIRECON_FFT_HALVES_LINES_CUH
#define MRIRECON_FFT_HALVES_LINES_CUH

#include "gridding/base/launch_gpu.cuh"
#include "gridding/fft/dft_gpu.cuh"
#include "gridding/fft/fft_halves.cuh"

/* The entry of n, which must be one of HALVES, in a table of them. */
template <class SIZE> static const SIZE *halves_of(const SIZE *sizes, int n)
{
    while (sizes->n != n)
        sizes++;
    return sizes;
}

/* ---- transforms ---- */

/* Inputs 5 a + 3 b mod 15, outputs 10 a + 6 b mod 15: no twiddles. */
template <> __device__ __forceinline__ void dft<15>(float2 *v)
{
#pragma unroll
    for (int b = 0; b < 5; b++)
        dft3(v[3 * b], v[(5 + 3 * b) % 15], v[(10 + 3 * b) % 15]);
#pragma unroll
    for (int a = 0; a < 3; a++)
        dft5(v[5 * a], v[(5 * a + 3) % 15], v[(5 * a + 6) % 15], v[(5 * a + 9) % 15], v[(5 * a + 12) % 15]);
    float2 t[15];
#pragma unroll
    for (int k = 0; k < 15; k++)
        t[(10 * (k / 5) + 6 * (k % 5)) % 15] = v[(5 * (k / 5) + 3 * (k % 5)) % 15];
#pragma unroll
    for (int k = 0; k < 15; k++)
        v[k] = t[k];
}

/* exp(pi i r / A), r = 0 .. A - 1. */
template <int A> struct half_turns {
    float re[A], im[A];
};

template <int A> static __host__ __device__ constexpr struct half_turns<A> half_turns_make() {
    struct half_turns<A> w = {
    };
    for (int r = 0; r < A; r++) {
        w.re[r] = (float)power_series(3.14159265358979323846 * r / A, 0);
        w.im[r] = (float)power_series(3.14159265358979323846 * r / A, 1);
    }
    return w;
}

/* Of v[r] w^(q B r). */
template <int A>
static __device__ __forceinline__ void dft_half(float2 *v, int q)
{
    if (!q) {
        dft<A>(v);
    } else if constexpr (A == 16) {
        dft16<1>(v);
    } else {
        constexpr struct half_turns<A> w = half_turns_make<A>();
#pragma unroll
        for (int r = 1; r < A; r++)
            v[r] = 2 * r == A ? mul_i(v[r]) : mul(v[r], make_float2(w.re[r], w.im[r]));
        dft<A>(v);
    }
}

/* Both halves of cell t + B R: even + odd w^(B R). */
template <int A, int R> static __device__ __forceinline__ float2 joined(float2 even, float2 odd)
{
    constexpr struct half_turns<A> w = half_turns_make<A>();
    if constexpr (R == 0)
        return add(even, odd);
    else if constexpr (2 * R == A)
        return add(even, mul_i(odd));
    else
        return make_float2(fmaf(-w.im[R], odd.y, fmaf(w.re[R], odd.x, even.x)),
                           fmaf(w.im[R], odd.x, fmaf(w.re[R], odd.y, even.y)));
}

/* Of the A cells of a thread, half Q adds and stores every second one, from Q on. */
template <int A, int Q> static constexpr int joins = (A + 1 - Q) / 2;

static __device__ __forceinline__ float2 conj(float2 a)
{
    return make_float2(a.x, -a.y);
}

/* The number of sums over t or k2 of a thread. */
template <int A, int T> static constexpr int rounds = (A + T - 1) / T;

/* ---- twiddle factors between the stages ---- */

/* w^(t (2 k1 + q)) is at index ((q pairs + k1 / 2) B + t) 2 + k1 % 2, so that a thread reads two of its factors at
 * once, and neighbouring threads read adjacent memory. */
static __host__ __device__ constexpr int turn_pairs(int a)
{
    return (a + 1) / 2;
}

static __host__ __device__ constexpr int turns_count(int a, int b)
{
    return 4 * turn_pairs(a) * b;
}

/* The first factor of thread t of half q. */
template <int A, int B> static __device__ __forceinline__ const float2 *turns_of(const float2 *turns, int q, int t)
{
    return turns + (q * turn_pairs(A) * B + t) * 2;
}

/* Multiply v[k1] by its factor. */
template <int A, int B> static __device__ __forceinline__ void turn_between(const float2 *turns, float2 (&v)[A])
{
#pragma unroll
    for (int k1 = 0; k1 < A; k1 += 2) {
        const float4 w = *(const float4 *)(turns + k1 * B);
        v[k1] = mul(v[k1], make_float2(w.x, w.y));
        if (k1 + 1 < A)
            v[k1 + 1] = mul(v[k1 + 1], make_float2(w.z, w.w));
    }
}

/* A launch of such a pass, which begins while the previous one ends. */
int fft_halves_launch(struct gpu *gpu, const void *kernel, dim3 blocks, int threads, size_t shared, void *args);

#endif
