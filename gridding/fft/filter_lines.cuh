/* filter_lines.cuh: FFTs of lines in shared memory whose ends the caller gives: what a line reads first and writes
 * last. Only filter_gpu.cu includes this. */
#ifndef MRIRECON_FFT_FILTER_LINES_CUH
#define MRIRECON_FFT_FILTER_LINES_CUH

#include "gridding/fft/dft_gpu.cuh"
#include "gridding/fft/fft_gpu.cuh"

namespace
{

/* Elements of a block's lines in shared memory. Rows lie one after the other, padded so that strides of 8 and 16 spread
 * over the banks; columns lie side by side. */
template <bool ROWS> struct lines_memory {
    float2 *shared;
    int line, lines, n;

    static __host__ __device__ constexpr int room(int n)
    {
        return ROWS ? n + n / 16 + 1 : n;
    }
    __device__ __forceinline__ float2 &at(int k) const
    {
        return ROWS ? shared[line * room(n) + k + (k >> 4)] : shared[k * lines + line];
    }
};

/* Which ends of a line are in shared memory: its threads wait for each other between reading and writing that. */
enum line_ends { ENDS_OUTSIDE = 0, READS_SHARED = 1, WRITES_SHARED = 2 };

struct line_place {
    int n, thread;
    bool there;
    const float2 *turns; /* [n]: exp(2 pi i j / n) */
};

/* One Stockham stage (exponent +): thread t does butterfly t. done: the product of the radices before. */
template <int R, bool FIRST, bool LAST, int ENDS, class MEMORY, class LOAD, class STORE>
__device__ __forceinline__ void line_stage(const line_place &p, const MEMORY &memory, int done, const LOAD &load,
                                           const STORE &store)
{
    const int apart = p.n / R, t = p.thread, block = t / done, j = t - block * done;
    const bool works = p.there && t < apart;
    float2 v[R];
    if (works) {
#pragma unroll
        for (int r = 0; r < R; r++)
            v[r] = FIRST ? load(t + r * apart) : memory.at(t + r * apart);
        if (!FIRST) {
            const float2 w = __ldg(p.turns + j * (apart / done));
            float2 power = w;
#pragma unroll
            for (int r = 1; r < R; r++) {
                v[r] = mul(v[r], power);
                power = mul(power, w);
            }
        }
        dft<R>(v);
    }
    if (FIRST ? (ENDS & READS_SHARED) != 0 : !LAST || (ENDS & WRITES_SHARED))
        __syncthreads();
    if (works) {
        const int first = block * done * R + j;
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (LAST)
                store(first + r * done, v[r]);
            else
                memory.at(first + r * done) = v[r];
        }
    }
    if (!LAST || (ENDS & WRITES_SHARED))
        __syncthreads();
}

/* The transform of a line, multiplied, and transformed once more: change(k, v) is what replaces element k. */
template <class PLAN, class MEMORY, class LOAD, class CHANGE, class STORE>
__device__ __forceinline__ void line_twice(const struct fft_plan &plan, const line_place &p, const MEMORY &memory,
                                           const LOAD &load, const CHANGE &change, const STORE &store)
{
    const auto changed = [&](int k, float2 v) { memory.at(k) = change(k, v); };
    const auto again = [&](int k) { return memory.at(k); };
    PLAN::template run<WRITES_SHARED>(plan, p, memory, load, changed);
    PLAN::template run<READS_SHARED>(plan, p, memory, again, store);
}

/* A size known to the compiler. A fourth radix of 1: three stages. */
template <int R0, int R1, int R2, int R3> struct plan_known {
    enum { N = R0 * R1 * R2 * R3, LEAST = R3 > 1 ? R3 : R2, THREADS = N / LEAST, LARGEST = R0 };
    static __device__ __forceinline__ int size(int)
    {
        return N;
    }
    static __device__ __forceinline__ int threads(int)
    {
        return THREADS;
    }

    template <int ENDS, class MEMORY, class LOAD, class STORE>
    static __device__ __forceinline__ void run(const struct fft_plan &, const line_place &p, const MEMORY &memory,
                                               const LOAD &load, const STORE &store)
    {
        line_stage<R0, true, false, ENDS>(p, memory, 1, load, store);
        line_stage<R1, false, false, ENDS>(p, memory, R0, load, store);
        line_stage<R2, false, (R3 == 1), ENDS>(p, memory, R0 * R1, load, store);
        if constexpr (R3 > 1)
            line_stage<R3, false, true, ENDS>(p, memory, R0 * R1 * R2, load, store);
    }

    template <class MEMORY, class LOAD, class CHANGE, class STORE>
    static __device__ __forceinline__ void run_twice(const struct fft_plan &plan, const line_place &p,
                                                     const MEMORY &memory, const LOAD &load, const CHANGE &change,
                                                     const STORE &store)
    {
        line_twice<plan_known>(plan, p, memory, load, change, store);
    }
};

/* Any other. */
struct plan_any {
    enum { N = 0, THREADS = 0, LARGEST = 10 };
    static __device__ __forceinline__ int size(int n)
    {
        return n;
    }
    static __device__ __forceinline__ int threads(int threads)
    {
        return threads;
    }

    template <bool FIRST, bool LAST, int ENDS, class MEMORY, class LOAD, class STORE>
    static __device__ __forceinline__ void stage(int radix, const line_place &p, const MEMORY &memory, int done,
                                                 const LOAD &load, const STORE &store)
    {
        switch (radix) {
#define STAGE(R)                                                        \
    case R:                                                             \
        line_stage<R, FIRST, LAST, ENDS>(p, memory, done, load, store); \
        break;
            STAGE(1)
            STAGE(2)
            STAGE(3)
            STAGE(4)
            STAGE(5)
            STAGE(6)
            STAGE(7)
            STAGE(8)
            STAGE(9)
            STAGE(10)
#undef STAGE
        }
    }

    template <int ENDS, class MEMORY, class LOAD, class STORE>
    static __device__ __forceinline__ void run(const struct fft_plan &plan, const line_place &p, const MEMORY &memory,
                                               const LOAD &load, const STORE &store)
    {
        int done = plan.radix[0];
        stage<true, false, ENDS>(plan.radix[0], p, memory, 1, load, store);
        for (int s = 1; s < plan.stages - 1; s++) {
            stage<false, false, ENDS>(plan.radix[s], p, memory, done, load, store);
            done *= plan.radix[s];
        }
        stage<false, true, ENDS>(plan.radix[plan.stages - 1], p, memory, done, load, store);
    }

    template <class MEMORY, class LOAD, class CHANGE, class STORE>
    static __device__ __forceinline__ void run_twice(const struct fft_plan &plan, const line_place &p,
                                                     const MEMORY &memory, const LOAD &load, const CHANGE &change,
                                                     const STORE &store)
    {
        line_twice<plan_any>(plan, p, memory, load, change, store);
    }
};

} // namespace

#endif
