/* pair_sums.cuh: the kernels of sums over pairs of points. A lane sums in float32 over WIDE candidates of its warp, or
 * a few more, then in double precision, all in a fixed order. Only pairs_gpu.cu includes this. */
#ifndef MRIRECON_PAIR_SUMS_CUH
#define MRIRECON_PAIR_SUMS_CUH

#include "gridding/base/launch_gpu.cuh"
#include "gridding/range/gpu/pair_law.cuh"
#include "gridding/range/gpu/pair_warp.cuh"

enum { WIDE = 2048, SUM_BATCH = 64, PARTS = 4 }; /* PARTS: of a point's sums: its vector's three, and its scalar's */

struct pair_sums_args {
    struct pair_args pair;
    struct pair_laws_gpu laws;
    bool use_vectors, use_scalars;
    float *vectors, *scalars; /* of a channel, in the order of the input; NULL: not wanted */
    size_t stride;            /* between components of vectors */
    uint32_t *next;           /* see sum_pairs() */
    float4 *partial;          /* [tasks][CLUSTER], of clusters with more than one part */
};

/* DEGREE: of hot laws, at least: they are RANGE_SHORT, of power 3 (vectors) and 1 (scalars), without a least distance,
 * of points without scales, in float32, SCALARS: of both; ANY: any laws, told in the arguments. */
enum { ANY = -1, DIRECT = 8 }; /* up to DIRECT: a polynomial in the softened square itself, which saves scaling it */

/* What hot laws are softened by. */
enum softening { SOFT_NONE, SOFT_PLUMMER, SOFT_SPLINE };

/* A point's vector from itself is 0, whatever its weight: of hot vectors alone, points need not be kept from
 * themselves. */
template <bool DOUBLES, int DEGREE, enum softening SOFT, bool SCALARS>
struct sum_warp : pair_warp<sum_warp<DOUBLES, DEGREE, SOFT, SCALARS>, DOUBLES, DEGREE == ANY, DEGREE == ANY || SCALARS,
                            false, SUM_BATCH>
{
    static const bool HOT = DEGREE != ANY;
    enum { SUMS = HOT && !SCALARS ? 3 : (int)PARTS }; /* of a point, at most */
    /* Of many partners, loops over pairs take most of the time, and are quicker so; of few, they are slower. */
    static const bool ABREAST = DEGREE == DIRECT && SOFT != SOFT_SPLINE && !SCALARS;
    enum { AT_A_TIME = 2 * EACH };
    using base = pair_warp<sum_warp, DOUBLES, !HOT, !HOT || SCALARS, false, SUM_BATCH>;
    using base::ii;
    using base::jj;
    using base::lane;
    using base::q;
    const struct pair_sums_args &a;
    double(*wide)[32]; /* [PARTS EACH] */
    int applied;
    bool widened;
    float sum[EACH][PARTS];

    __device__ __forceinline__ sum_warp(const struct pair_sums_args &args, struct pair_queue<!HOT, SUM_BATCH> &queue,
                                        double(*room)[32])
        : base(args.pair, queue), a(args), wide(room), applied(0), widened(false)
    {
#pragma unroll
        for (int n = 0; n < PARTS * EACH; n++)
            sum[n / PARTS][n % PARTS] = 0;
    }

    __device__ __forceinline__ float payload(float value, uint32_t) const
    {
        return value;
    }

    __device__ __forceinline__ void ending()
    {
    }

    __device__ __forceinline__ void previous() const
    {
        gpu_wait_for_previous();
    }

    /* Nothing but a spline is finite at a distance of 0 that is not softened. */
    __device__ __forceinline__ bool counts(float softened) const
    {
        const bool within = softened < a.laws.reach2 + a.laws.soft2;
        return within && (SOFT != SOFT_NONE || softened > 0);
    }

    __device__ __forceinline__ void hot_pair(int t, const float d[3], float softened, float value)
    {
        enum { TERMS = HOT ? DEGREE : 0 };
        const struct pair_laws_gpu &l = a.laws;
        const float root = law_root(softened), s = DEGREE <= DIRECT ? softened : fmaf(softened, l.slope, l.start);
        float force = poly_at<TERMS>(l.vectors.c, s), potential = SCALARS ? poly_at<TERMS>(l.scalars.c, s) : 0;
        if (SOFT == SOFT_SPLINE && softened < l.spline2) {
            force += spline_at(l.spline, 3, softened, root);
            potential += SCALARS ? spline_at(l.spline, 1, softened, root) : 0;
        } else {
            force = fmaf(root * root, root, force);
            potential += root;
        }
        if (!counts(softened))
            return;
        const float weight = value * force;
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            sum[t][axis] = fmaf(weight, d[axis], sum[t][axis]);
        if (SCALARS)
            sum[t][3] = fmaf(value, potential, sum[t][3]);
    }

    /* Two candidates with the lane's points, side by side: as many independent chains of operations. */
    __device__ __forceinline__ void hot_pairs(const float d[AT_A_TIME][3], const float softened[AT_A_TIME],
                                              const float value[2])
    {
        enum { TERMS = HOT ? DEGREE : 0 };
        const float *c = a.laws.vectors.c;
        float root[AT_A_TIME], force[AT_A_TIME];
#pragma unroll
        for (int n = 0; n < AT_A_TIME; n++) {
            root[n] = law_root(softened[n]);
            force[n] = c[TERMS];
        }
#pragma unroll
        for (int term = TERMS - 1; term >= 0; term--)
#pragma unroll
            for (int n = 0; n < AT_A_TIME; n++)
                force[n] = fmaf(force[n], softened[n], c[term]);
#pragma unroll
        for (int n = 0; n < AT_A_TIME; n++)
            force[n] = fmaf(root[n] * root[n], root[n], force[n]);
#pragma unroll
        for (int n = 0; n < AT_A_TIME; n++) {
            if (!counts(softened[n]))
                continue;
            const float weight = value[n / EACH] * force[n];
#pragma unroll
            for (int axis = 0; axis < 3; axis++)
                sum[n % EACH][axis] = fmaf(weight, d[n][axis], sum[n % EACH][axis]);
        }
    }

    /* The queue's places b to b + SUM_BATCH. */
    __device__ __forceinline__ void pairs_abreast(int b)
    {
        const struct base::lane_points own_points = this->lane_points_of();
#pragma unroll 1
        for (int from = b + (int)jj; from < b + SUM_BATCH; from += 32)
#pragma unroll
            for (int turn = 0; turn < 32; turn += 2 * ALONG_J) {
                float d[AT_A_TIME][3], r2[AT_A_TIME], value[2];
#pragma unroll
                for (int n = 0; n < AT_A_TIME; n++) {
                    const float4 p = q.at[from + turn + n / EACH * ALONG_J];
                    base::template away<false>(own_points, n % EACH, p, make_float4(0, 0, 0, 1), d[n]);
                    r2[n] = fmaf(d[n][2], d[n][2], fmaf(d[n][1], d[n][1], fmaf(d[n][0], d[n][0], a.laws.soft2)));
                    value[n / EACH] = p.w;
                }
                hot_pairs(d, r2, value);
            }
    }

    __device__ __forceinline__ void any_pair(int t, const float d[3], float r2, float value, float unit2)
    {
        r2 *= unit2;
        if (!(r2 < a.laws.reach2))
            return;
        if (a.use_vectors) {
            const float weight = value * law_at(a.laws, a.laws.vectors, r2);
#pragma unroll
            for (int axis = 0; axis < 3; axis++)
                sum[t][axis] = fmaf(weight, d[axis], sum[t][axis]);
        }
        if (a.use_scalars)
            sum[t][3] = fmaf(value, law_at(a.laws, a.laws.scalars, r2), sum[t][3]);
    }

    /* FULL: `count` is SUM_BATCH. */
    template <bool SHIFTED, bool OWN, bool FULL> __device__ __forceinline__ void pairs(int b, int count)
    {
        enum { AT_ONCE = FULL ? 32 : (int)TURN };
        const struct base::lane_points own_points = this->lane_points_of();
#pragma unroll 1
        for (int k = (int)jj; k < (FULL ? (int)SUM_BATCH : count); k += AT_ONCE)
#pragma unroll
            for (int turn = 0; turn < AT_ONCE; turn += ALONG_J) {
                const float4 p = q.at[b + k + turn], left = this->rest_of(b + k + turn);
#pragma unroll
                for (int t = 0; t < EACH; t++) {
                    if (OWN && k + turn == (int)ii + t * ALONG_I)
                        continue;
                    float d[3];
                    base::template away<SHIFTED>(own_points, t, p, left, d);
                    const float r2 = fmaf(d[2], d[2], fmaf(d[1], d[1], fmaf(d[0], d[0], HOT ? a.laws.soft2 : 0.f)));
                    if (HOT)
                        hot_pair(t, d, r2, p.w);
                    else
                        any_pair(t, d, r2, p.w, left.w);
                }
            }
    }

    /* Lanes' float32 sums into wider ones. */
    __device__ __forceinline__ void widen()
    {
#pragma unroll
        for (int n = 0; n < SUMS * EACH; n++) {
            wide[n][lane] = (widened ? wide[n][lane] : 0.0) + (double)sum[n / SUMS][n % SUMS];
            sum[n / SUMS][n % SUMS] = 0;
        }
        widened = true;
        applied = 0;
    }

    __device__ __forceinline__ void apply_pairs(int b, int count)
    {
        if (!HOT || this->shifted)
            pairs<true, false, false>(b, count);
        else if (ABREAST && count == SUM_BATCH)
            pairs_abreast(b);
        else if (count == SUM_BATCH)
            pairs<false, false, true>(b, count);
        else
            pairs<false, false, false>(b, count);
        applied += count;
        if (applied >= WIDE)
            widen();
    }

    __device__ __forceinline__ void own()
    {
        pairs<false, true, false>(0, CLUSTER);
    }

    __device__ __forceinline__ void store_point(uint32_t number, int t, const double sums[PARTS])
    {
        const uint32_t place = ii + t * ALONG_I, i = this->first + place;
        if (!this->whole) {
            a.partial[(size_t)number * CLUSTER + place] =
                make_float4((float)sums[0], (float)sums[1], (float)sums[2], (float)sums[3]);
            return;
        }
        if (i >= this->last)
            return;
        const uint32_t to = a.pair.to.source[i];
        for (int d = 0; d < a.pair.to.dim && a.vectors; d++)
            a.vectors[d * a.stride + to] = (float)sums[d];
        if (a.scalars)
            a.scalars[to] = (float)sums[3];
    }

    __device__ __forceinline__ void store(uint32_t number)
    {
#pragma unroll
        for (int t = 0; t < EACH; t++) {
            double sums[PARTS] = {0, 0, 0, 0};
#pragma unroll
            for (int n = 0; n < SUMS; n++) {
                double s = (double)sum[t][n] + (widened ? wide[SUMS * t + n][lane] : 0.0);
#pragma unroll
                for (int o = ALONG_I; o < 32; o *= 2)
                    s += __shfl_xor_sync(ALL_LANES, s, o);
                sums[n] = s;
            }
            if (jj == 0)
                store_point(number, t, sums);
        }
    }
};

/* Warps per multiprocessor, for as many registers as the loop over pairs needs. */
template <int DEGREE, enum softening SOFT, bool SCALARS> static constexpr int sum_warps()
{
    return SCALARS ? 16 : DEGREE != ANY && DEGREE <= DIRECT && SOFT != SOFT_SPLINE ? 24 : 20;
}

/* Warps take tasks one after the other: those of their numbers first, then the next one that is left, as many times as
 * there are tasks, so that args.next, which counts them, is 0 again at the end. */
template <bool DOUBLES, int DEGREE, enum softening SOFT, bool SCALARS>
static __global__ void __launch_bounds__(32 * PAIR_WARPS, sum_warps<DEGREE, SOFT, SCALARS>() / PAIR_WARPS)
    sum_pairs(const __grid_constant__ struct pair_sums_args args)
{
    __shared__ struct pair_queue<DEGREE == ANY, SUM_BATCH> queue[PAIR_WARPS];
    __shared__ double wide[PAIR_WARPS][PARTS * EACH][32];
    const uint32_t own = threadIdx.x / 32, warps = gridDim.x * PAIR_WARPS;
#pragma unroll 1
    for (uint32_t number = blockIdx.x * PAIR_WARPS + own; number < args.pair.tasks;) {
        struct sum_warp<DOUBLES, DEGREE, SOFT, SCALARS> warp(args, queue[own], wide[own]);
        warp.work(number);
        warp.store(number);
        uint32_t taken = 0;
        if ((threadIdx.x & 31) == 0)
            taken = atomicInc(args.next, args.pair.tasks - 1);
        number = warps + __shfl_sync(ALL_LANES, taken, 0);
    }
}

/* Parts of a slice of tasks are added up, by the warp of the first of them that the slice has. */
static __global__ void __launch_bounds__(32 * PAIR_WARPS) add_parts(const __grid_constant__ struct pair_sums_args args)
{
    const uint32_t number = blockIdx.x * PAIR_WARPS + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (number >= args.pair.tasks)
        return;
    const struct pair_task t = task_of(args.pair.offset, args.pair.to.clusters, args.pair.begin + number);
    const uint2 cluster = args.pair.to.cluster[t.cluster];
    const uint32_t i = cluster.x + lane;
    if (t.parts == 1 || (t.part > 0 && number > 0) || i >= cluster.y)
        return;
    const uint64_t left = t.parts - t.part;
    const uint32_t end = args.pair.tasks - number < left ? args.pair.tasks : number + (uint32_t)left;
    const uint32_t to = args.pair.to.source[i];
    double sums[PARTS] = {0, 0, 0, 0};
    for (uint32_t part = number; part < end; part++) {
        const float4 p = args.partial[(size_t)part * CLUSTER + lane];
        sums[0] += (double)p.x;
        sums[1] += (double)p.y;
        sums[2] += (double)p.z;
        sums[3] += (double)p.w;
    }
    for (int d = 0; d < args.pair.to.dim && args.vectors; d++) {
        float *sum = args.vectors + d * args.stride + to;
        *sum = t.part > 0 ? (float)((double)*sum + sums[d]) : (float)sums[d];
    }
    if (args.scalars)
        args.scalars[to] = t.part > 0 ? (float)((double)args.scalars[to] + sums[3]) : (float)sums[3];
}

#endif
