/* filter_two.cuh: FFTs of lines in two stages, of up to 32 points each in a thread's registers: one exchange through
 * shared memory, where three or four stages take two or three. Only filter_kernels.cuh includes this. */
#ifndef MRIRECON_FFT_FILTER_TWO_CUH
#define MRIRECON_FFT_FILTER_TWO_CUH

#include "gridding/fft/filter_lines.cuh"

namespace
{

/* The DFT of A B points, A and B without a common factor: by the Chinese remainder theorem, without factors between its
 * two rounds (I.J. Good, doi:10.1111/j.2517-6161.1958.tb00300.x). */
template <int A, int B> __device__ __forceinline__ void dft_coprime(float2 *v)
{
    float2 t[B][A];
#pragma unroll
    for (int b = 0; b < B; b++) {
#pragma unroll
        for (int a = 0; a < A; a++)
            t[b][a] = v[(B * a + A * b) % (A * B)];
        dft<A>(t[b]);
    }
#pragma unroll
    for (int a = 0; a < A; a++) {
        float2 u[B];
#pragma unroll
        for (int b = 0; b < B; b++)
            u[b] = t[b][a];
        dft<B>(u);
#pragma unroll
        for (int b = 0; b < B; b++)
            t[b][a] = u[b];
    }
#pragma unroll
    for (int k = 0; k < A * B; k++)
        v[k] = t[k % B][k % A];
}

__device__ __forceinline__ void dft32(float2 *v)
{
    float2 even[16], odd[16];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        even[k] = add(v[k], v[k + 16]);
        odd[k] = sub(v[k], v[k + 16]);
    }
    dft16<0>(even);
    dft16<1>(odd);
#pragma unroll
    for (int k = 0; k < 16; k++) {
        v[2 * k] = even[k];
        v[2 * k + 1] = odd[k];
    }
}

template <int R> __device__ __forceinline__ void dft_long(float2 *v)
{
    if constexpr (R == 15)
        dft_coprime<3, 5>(v);
    else if constexpr (R == 18)
        dft_coprime<2, 9>(v);
    else if constexpr (R == 20)
        dft_coprime<4, 5>(v);
    else if constexpr (R == 24)
        dft_coprime<3, 8>(v);
    else if constexpr (R == 30)
        dft_coprime<5, 6>(v);
    else if constexpr (R == 32)
        dft32(v);
    else
        dft<R>(v);
}

/* Lines of R0 R1 elements. COLUMNS: as many lines of a block lie side by side in memory. */
template <int R0, int R1> struct plan_two {
    enum { N = R0 * R1, THREADS = R0 > R1 ? R0 : R1, LARGEST = THREADS };
    static __device__ __forceinline__ int size(int)
    {
        return N;
    }
    static __device__ __forceinline__ int threads(int)
    {
        return THREADS;
    }

    /* Of a line between the two stages: element a of thread b. */
    template <bool ROWS> static __device__ __forceinline__ float2 &between(const lines_memory<ROWS> &m, int a, int b)
    {
        static_assert(R0 * (R1 | 1) <= lines_memory<true>::room(N), "the room of a line");
        return ROWS ? m.shared[m.line * lines_memory<true>::room(N) + a * (R1 | 1) + b]
                    : m.shared[(a * R1 + b) * m.lines + m.line];
    }

    /* The transform of a line, of which `in` has elements thread + r R1, of R1 threads: `out` has elements
     * thread + r R0, of R0 threads. WAITS: for other threads, which still read shared memory. */
    template <bool WAITS, class MEMORY>
    static __device__ __forceinline__ void transform(const line_place &p, const MEMORY &memory, float2 (&in)[R0],
                                                     float2 (&out)[R1])
    {
        const int t = p.thread;
        dft_long<R0>(in);
        if (WAITS)
            __syncthreads();
        if (t < R1) {
#pragma unroll
            for (int r = 0; r < R0; r++)
                between(memory, r, t) = in[r];
        }
        __syncthreads();
        if (t < R0) {
            const float2 w = __ldg(p.turns + t), square = mul(w, w);
            float2 power[2] = {square, w}; /* the next even and odd one */
            out[0] = between(memory, t, 0);
#pragma unroll
            for (int r = 1; r < R1; r++) {
                out[r] = mul(between(memory, t, r), power[r & 1]);
                power[r & 1] = mul(power[r & 1], square);
            }
            dft_long<R1>(out);
        }
    }

    /* CLEARS: what is not read is 0. In a loop, the compiler would keep it from pass to pass, in registers. */
    template <bool CLEARS, class LOAD>
    static __device__ __forceinline__ void load_all(const line_place &p, const LOAD &load, float2 (&in)[R0])
    {
        const bool works = p.there && p.thread < R1;
        if (CLEARS) {
#pragma unroll
            for (int r = 0; r < R0; r++)
                in[r] = works ? load(p.thread + r * R1) : make_float2(0, 0);
        } else if (works) {
#pragma unroll
            for (int r = 0; r < R0; r++)
                in[r] = load(p.thread + r * R1);
        }
    }

    template <class STORE>
    static __device__ __forceinline__ void store_all(const line_place &p, const STORE &store, const float2 (&out)[R1])
    {
        if (p.there && p.thread < R0) {
#pragma unroll
            for (int r = 0; r < R1; r++)
                store(p.thread + r * R0, out[r]);
        }
    }

    template <int ENDS, class MEMORY, class LOAD, class STORE>
    static __device__ __forceinline__ void run(const struct fft_plan &, const line_place &p, const MEMORY &memory,
                                               const LOAD &load, const STORE &store)
    {
        float2 in[R0], out[R1];
        load_all<(ENDS & READS_SHARED) != 0>(p, load, in);
        transform<(ENDS & READS_SHARED) != 0>(p, memory, in, out);
        if (ENDS & WRITES_SHARED)
            __syncthreads();
        store_all(p, store, out);
        if (ENDS & WRITES_SHARED)
            __syncthreads();
    }

    /* The transform, multiplied, and transformed once more: change(k, v) is what replaces element k. Its elements stay
     * in registers, since the second transform has the two stages in the other order. */
    template <class MEMORY, class LOAD, class CHANGE, class STORE>
    static __device__ __forceinline__ void run_twice(const struct fft_plan &, const line_place &p, const MEMORY &memory,
                                                     const LOAD &load, const CHANGE &change, const STORE &store)
    {
        float2 ends[R0], middle[R1];
        load_all<false>(p, load, ends);
        transform<false>(p, memory, ends, middle);
        if (p.there && p.thread < R0) {
#pragma unroll
            for (int r = 0; r < R1; r++)
                middle[r] = change(p.thread + r * R0, middle[r]);
        }
        plan_two<R1, R0>::template transform<true>(p, memory, middle, ends);
        plan_two<R1, R0>::store_all(p, store, ends);
    }
};

} // namespace

#endif
