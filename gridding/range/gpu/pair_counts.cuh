/* pair_counts.cuh: the kernel of counts of distances. Pairs that float32 cannot decide are listed, and decided in
 * double precision. Only counts_gpu.cu includes this. */
#ifndef MRIRECON_PAIR_COUNTS_CUH
#define MRIRECON_PAIR_COUNTS_CUH

#include "gridding/range/gpu/pair_warp.cuh"
#include "gridding/range/intervals.h"

enum { COUNT_WARPS = 8, DOUBTS = 64, COUNT_BATCH = 32 };

struct pair_counts_args {
    struct pair_args pair;
    float step; /* struct interval_equal's */
    int places, edges;
    const uint16_t *table;
    const double *edge2;
    int copies;                 /* of each count in shared memory: a power of 2, up to 32; 0: none */
    unsigned long long *counts; /* [edges - 1] */
};

/* sqrt(x), to 2^-22. */
static __device__ __forceinline__ float root_of(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The interval of a pair (its points in `to` and `from`, and the latter's image), in double precision; -1: none. */
static __device__ __noinline__ int decided(const struct pair_counts_args &a, int x, int y, int z, uint2 pair)
{
    const int image[3] = {x, y, z};
    double r2 = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        if (d >= a.pair.to.dim)
            continue;
        const double away =
            cells_at(a.pair.from, d, pair.y) - cells_at(a.pair.to, d, pair.x) + image[d] * a.pair.from.length[d];
        r2 += away * away;
    }
    return interval_of(a.edges, a.edge2, r2);
}

/* Of points of one set, each pair is counted once. */
template <bool DOUBLES> struct count_warp : pair_warp<count_warp<DOUBLES>, DOUBLES, DOUBLES, true, true, COUNT_BATCH> {
    using base = pair_warp<count_warp, DOUBLES, DOUBLES, true, true, COUNT_BATCH>;
    using base::ii;
    using base::jj;
    using base::lane;
    using base::q;
    const struct pair_counts_args &a;
    const uint16_t *table;
    unsigned *own_counts; /* shared: [edges - 1][copies] */
    uint2 *doubt;         /* shared: [DOUBTS] */
    int doubts;

    __device__ __forceinline__ count_warp(const struct pair_counts_args &args,
                                          struct pair_queue<DOUBLES, COUNT_BATCH> &queue, const uint16_t *places,
                                          unsigned *counts, uint2 *list)
        : base(args.pair, queue), a(args), table(places), own_counts(counts), doubt(list), doubts(0)
    {
    }

    __device__ __forceinline__ float payload(float, uint32_t j) const
    {
        return __uint_as_float(j);
    }

    __device__ __forceinline__ void add(unsigned interval)
    {
        if (a.copies)
            atomicAdd(&own_counts[interval * a.copies + (lane & (a.copies - 1))], 1u);
        else
            atomicAdd(&a.counts[interval], 1ull);
    }

    /* Decide the last `count` pairs of the list, up to 32. */
    __device__ __forceinline__ void settle(int count)
    {
        __syncwarp();
        doubts -= count;
        if ((int)lane < count) {
            const int interval = decided(a, this->image[0], this->image[1], this->image[2], doubt[doubts + lane]);
            if (interval >= 0)
                add((unsigned)interval);
        }
        __syncwarp();
    }

    __device__ __forceinline__ void ending()
    {
        if (doubts > 0)
            settle(doubts);
    }

    template <bool SHIFTED, bool OWN> __device__ __forceinline__ void pairs(int b, int count)
    {
        const struct base::lane_points own_points = this->lane_points_of();
#pragma unroll 1
        for (int k = (int)jj; k < count + (int)jj; k += ALONG_J) {
            const float4 p = q.at[b + k], left = this->rest_of(b + k);
#pragma unroll
            for (int t = 0; t < EACH; t++) {
                const uint32_t i = this->first + ii + t * ALONG_I;
                float d[3];
                base::template away<SHIFTED>(own_points, t, p, left, d);
                const float place = root_of(fmaf(d[2], d[2], fmaf(d[1], d[1], d[0] * d[0]))) * a.step;
                const bool in = place < (float)a.places && i < this->last && !(OWN && k <= (int)ii + t * ALONG_I);
                const unsigned interval = in ? table[(int)place] : (unsigned)INTERVAL_FAR;
                if (interval < INTERVAL_DOUBT)
                    add(interval);
                note(interval == INTERVAL_DOUBT, i, __float_as_uint(p.w));
            }
        }
    }

    /* Append an undecided pair to the list; 32 of them are decided together. */
    __device__ __forceinline__ void note(bool doubtful, uint32_t i, uint32_t j)
    {
        const unsigned bits = __ballot_sync(ALL_LANES, doubtful);
        if (bits == 0)
            return;
        if (doubtful)
            doubt[doubts + __popc(bits & ((1u << lane) - 1))] = make_uint2(i, j);
        doubts += __popc(bits);
        if (doubts >= 32)
            settle(32);
    }

    __device__ __forceinline__ void apply_pairs(int b, int count)
    {
        if (this->shifted)
            pairs<true, false>(b, count);
        else
            pairs<false, false>(b, count);
    }

    __device__ __forceinline__ void own()
    {
        pairs<false, true>(0, CLUSTER);
    }
};

/* Persistent blocks: each processes every gridDim-th task of the slice. */
template <bool DOUBLES>
static __global__ void __launch_bounds__(32 * COUNT_WARPS, DOUBLES ? 2 : 3)
    count_pairs(const __grid_constant__ struct pair_counts_args args)
{
    extern __shared__ unsigned room[];
    __shared__ struct pair_queue<DOUBLES, COUNT_BATCH> queue[COUNT_WARPS];
    __shared__ uint2 doubt[COUNT_WARPS][DOUBTS];
    const unsigned held = (unsigned)((args.edges - 1) * args.copies), own = threadIdx.x / 32;
    uint16_t *table = (uint16_t *)(room + held);
    for (unsigned n = threadIdx.x; n < held; n += blockDim.x)
        room[n] = 0;
    for (unsigned n = threadIdx.x; n < (unsigned)args.places; n += blockDim.x)
        table[n] = args.table[n];
    __syncthreads();
    for (uint32_t number = blockIdx.x * COUNT_WARPS + own; number < args.pair.tasks;
         number += gridDim.x * COUNT_WARPS) {
        struct count_warp<DOUBLES> warp(args, queue[own], table, room, doubt[own]);
        warp.work(number);
    }
    __syncthreads();
    for (unsigned interval = threadIdx.x; interval + 1 < (unsigned)args.edges && held; interval += blockDim.x) {
        unsigned long long count = 0;
        for (int copy = 0; copy < args.copies; copy++)
            count += room[interval * args.copies + copy];
        if (count)
            atomicAdd(&args.counts[interval], count);
    }
}

#endif
