/* pair_warp.cuh: a warp's task: a cluster of points, two per lane in eight lanes, against the points near its box.
 * Candidates go through a queue in shared memory, 32 at a time, which four groups of lanes share; the derived class
 * processes them. Each inlined function has few callers, so that the loop over pairs is instantiated rarely and has
 * enough registers. Only the GPU's leaf of sums.h includes this.
 *
 * Differences do not lose digits: those of float32 positions in one image are computed directly; for another image the
 * cluster's points are shifted, as pairs of floats; doubles become pairs of floats relative to the cluster's first
 * point. */
#ifndef MRIRECON_PAIR_WARP_CUH
#define MRIRECON_PAIR_WARP_CUH

#include "gridding/range/gpu/pair_scan.cuh"

enum { PAIR_WARPS = 4, ALONG_I = 8, ALONG_J = 32 / ALONG_I, EACH = CLUSTER / ALONG_I, QUEUE = 64 };

/* One launch: tasks begin to begin + tasks. */
struct pair_args {
    struct cells_view to, from;
    const uint64_t *offset; /* of the plan */
    uint64_t begin;
    uint32_t tasks;
    bool itself;      /* to and from are the same points */
    float scan_reach; /* scale times the law's, and a little */
};

struct pair_task {
    uint32_t cluster;
    uint64_t part, parts;
};

static __device__ __forceinline__ struct pair_task task_of(const uint64_t *offset, uint32_t clusters, uint64_t task)
{
    struct pair_task t = {(uint32_t)task, 0, 1};
    if (!offset)
        return t;
    uint32_t low = 0, high = clusters; /* offset[low] <= task < offset[high] */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (offset[middle] <= task)
            low = middle;
        else
            high = middle;
    }
    t.cluster = low;
    t.part = task - offset[low];
    t.parts = offset[low + 1] - offset[low];
    return t;
}

/* The candidates of a part; the last one has the rest. */
struct pair_part {
    uint64_t first, last, seen;
};

static __device__ __forceinline__ struct pair_part part_of(const struct pair_task &t)
{
    const uint64_t each = PART_CANDIDATES, first = t.part * each;
    struct pair_part p = {first, t.part + 1 == t.parts ? ~(uint64_t)0 : first + each, 0};
    return p;
}

/* Restrict a run to the part. */
static __device__ __forceinline__ uint2 part_clip(struct pair_part &p, uint2 run)
{
    const uint64_t begin = p.seen, end = begin + (run.y - run.x);
    const uint32_t first = run.x;
    p.seen = end;
    if (begin < p.first)
        run.x = end <= p.first ? run.y : first + (uint32_t)(p.first - begin);
    if (end > p.last)
        run.y = begin >= p.last ? run.x : first + (uint32_t)(p.last - begin);
    return run;
}

/* The box around a cluster, in the coordinates of candidates; lanes as of cluster_least(). */
struct pair_box {
    float middle[3], half[3];
};

static __device__ __forceinline__ struct pair_box box_of(const float at[3])
{
    struct pair_box b;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const float low = cluster_least(at[d]), high = -cluster_least(-at[d]);
        b.middle[d] = 0.5f * (low + high);
        b.half[d] = fmaxf(high - b.middle[d], b.middle[d] - low) * 1.0001f + 4e-7f * fabsf(b.middle[d]);
    }
    return b;
}

static __device__ __forceinline__ bool near_box(const struct pair_box &b, const float4 &p, float reach2)
{
    const float x = fmaxf(0.f, fabsf(p.x - b.middle[0]) - b.half[0]),
                y = fmaxf(0.f, fabsf(p.y - b.middle[1]) - b.half[1]),
                z = fmaxf(0.f, fabsf(p.z - b.middle[2]) - b.half[2]);
    return fmaf(x, x, fmaf(y, y, z * z)) < reach2;
}

enum { TURN = 4 * ALONG_J }; /* entries of the queue that are processed at a time */

/* Far from everything: padding of the queue. */
static __device__ __forceinline__ float4 far_off(void)
{
    return make_float4(3e38f, 0, 0, 0);
}

/* Shared memory of a warp; REST: the rounding error of a float32 position, and 1 / scale^2. */
template <bool REST> struct pair_queue {
    float4 at[QUEUE]; /* position, and ACTION::payload() */
    float4 rest[REST ? (int)QUEUE : 1];
    float4 own[CLUSTER], own_rest[CLUSTER]; /* the cluster's points, shifted to the image */
    struct pair_group group;
};

/* ACTION derives from this and has payload(p, j), apply_pairs(b, count): pairs with the queue's places b to b + count,
 * a multiple of TURN, own(): pairs of the cluster's points with each other, which are then in its places 0 to 15,
 * ending(): called when an image has been seen. DOUBLES: positions of one set at least are doubles. APART: a point is
 * no candidate of its own cluster, whose pairs own() is for. ONCE: and of the pairs (i, j) and (j, i) of one set, one
 * is enough: candidates are points after the cluster, or of images of which the opposite ones are left out. */
template <class ACTION, bool DOUBLES, bool REST, bool APART, bool ONCE> struct pair_warp {
    static_assert(REST || !DOUBLES, "doubles leave a rest");
    static_assert(APART || !ONCE, "own() is for a cluster's own pairs");
    const struct pair_args &pair;
    struct pair_queue<REST> &q;
    const unsigned lane, ii, jj;
    uint32_t first, last; /* the cluster's points */
    struct pair_part part;
    bool whole;     /* the cluster has no other parts */
    bool own_apart; /* this image contains the cluster itself */
    int image[3];
    bool shifted; /* candidates are of another image */
    int queued;
    struct pair_box box;
    double origin[3]; /* doubles are relative to it */
    double move[3];   /* to be added to candidates that are doubles */

    __device__ __forceinline__ pair_warp(const struct pair_args &args, struct pair_queue<REST> &queue)
        : pair(args), q(queue), lane(threadIdx.x & 31), ii(lane % ALONG_I), jj(lane / ALONG_I)
    {
    }

    __device__ __forceinline__ ACTION &action()
    {
        return static_cast<ACTION &>(*this);
    }

    __device__ __forceinline__ uint32_t own_point(unsigned i) const
    {
        return min(first + i, last - 1);
    }

    /* The lane's points: ii + t ALONG_I. */
    struct lane_points {
        float4 at[EACH], rest[EACH];
    };

    __device__ __forceinline__ struct lane_points lane_points_of() const
    {
        struct lane_points l;
#pragma unroll
        for (int t = 0; t < EACH; t++) {
            l.at[t] = q.own[ii + t * ALONG_I];
            l.rest[t] = q.own_rest[ii + t * ALONG_I];
        }
        return l;
    }

    /* From point t of the lane to a candidate. */
    template <bool SHIFTED>
    static __device__ __forceinline__ void away(const struct lane_points &l, int t, const float4 &p, const float4 &left,
                                                float d[3])
    {
        d[0] = p.x - l.at[t].x;
        d[1] = p.y - l.at[t].y;
        d[2] = p.z - l.at[t].z;
        if (DOUBLES) {
            d[0] += left.x - l.rest[t].x;
            d[1] += left.y - l.rest[t].y;
            d[2] += left.z - l.rest[t].z;
        } else if (SHIFTED) {
            d[0] -= l.rest[t].x;
            d[1] -= l.rest[t].y;
            d[2] -= l.rest[t].z;
        }
    }

    __device__ __forceinline__ float4 rest_of(int place) const
    {
        return REST ? q.rest[place] : make_float4(0, 0, 0, 1);
    }

    __device__ __forceinline__ void put(int place, const float4 &p, const float4 &left)
    {
        q.at[place] = p;
        if (REST)
            q.rest[place] = left;
    }

    __device__ __forceinline__ void apply(int b, int count)
    {
        __syncwarp();
        action().apply_pairs(b, count);
        __syncwarp();
    }

    /* The position of candidate j, a double, relative to the origin. */
    __device__ __forceinline__ void two_floats(uint32_t j, float4 *p, float4 *left) const
    {
        float high[3], low[3];
#pragma unroll
        for (int d = 0; d < 3; d++) {
            const double place = d < pair.from.dim ? cells_at(pair.from, d, j) + move[d] : 0.0;
            high[d] = (float)place;
            low[d] = (float)(place - (double)high[d]);
        }
        *p = make_float4(high[0], high[1], high[2], p->w);
        *left = make_float4(low[0], low[1], low[2], left->w);
    }

    /* Candidate j in the queue's form. */
    __device__ __forceinline__ void candidate(uint32_t j, bool there, float4 *p, float4 *left)
    {
        *p = make_float4(0, 0, 0, 0);
        *left = make_float4(0, 0, 0, 1);
        if (!there)
            return;
        *p = pair.from.point[j];
        p->w = action().payload(p->w, j);
        if (REST && pair.from.unit2)
            left->w = pair.from.unit2[j];
        if (DOUBLES)
            two_floats(j, p, left);
    }

    /* Up to 32 candidates, one per lane. */
    struct batch {
        int count;
        uint32_t j;
        float4 p, left;
    };

    /* The next candidates of `run` and of the runs of the lanes `rows`, which are `from` to `to`. */
    __device__ __forceinline__ struct batch fetch(unsigned &rows, uint2 &run, uint32_t from, uint32_t to)
    {
        struct batch c;
        c.count = 0;
        c.j = 0;
        while (c.count < 32) {
            if (run.x == run.y) {
                if (!rows)
                    break;
                const int row = __ffs((int)rows) - 1;
                run.x = __shfl_sync(ALL_LANES, from, row);
                run.y = __shfl_sync(ALL_LANES, to, row);
                rows &= rows - 1;
                if (!whole)
                    run = part_clip(part, run);
            }
            const int taken = (int)min(run.y - run.x, (uint32_t)(32 - c.count)), place = (int)lane - c.count;
            c.j = place >= 0 ? run.x + (uint32_t)place : c.j;
            run.x += (uint32_t)taken;
            c.count += taken;
        }
        candidate(c.j, (int)lane < c.count, &c.p, &c.left);
        return c;
    }

    /* Those near the cluster go into the queue. */
    __device__ __forceinline__ void look(const struct batch &c)
    {
        const bool self = APART && !ONCE && own_apart && c.j - first < last - first;
        const bool taken = near_box(box, c.p, pair.scan_reach * pair.scan_reach) & ((int)lane < c.count) & !self;
        const unsigned bits = __ballot_sync(ALL_LANES, taken);
        if (taken)
            put(queued + __popc(bits & ((1u << lane) - 1)), c.p, c.left);
        queued += __popc(bits);
        if (queued >= 32) {
            queued -= 32;
            apply(queued, 32);
        }
    }

    /* ---- callbacks of pair_scan() ---- */

    __device__ __forceinline__ bool wants(int x, int y, int z) const
    {
        return !ONCE || !pair.itself || (z != 0 ? z > 0 : y != 0 ? y > 0 : x >= 0);
    }

    __device__ __forceinline__ void begin(int x, int y, int z)
    {
        __syncwarp(); /* the previous image's points have been read */
        image[0] = x;
        image[1] = y;
        image[2] = z;
        shifted = x || y || z;
        own_apart = APART && pair.itself && !shifted;
        float at[3], rest[3];
#pragma unroll
        for (int d = 0; d < 3; d++) {
            const double by = image[d] * pair.from.length[d], to = DOUBLES ? -origin[d] : -by;
            const double place = d < pair.to.dim ? cells_at(pair.to, d, own_point(lane % CLUSTER)) + to : 0.0;
            move[d] = by - origin[d];
            at[d] = (float)place;
            rest[d] = (float)(place - (double)at[d]);
        }
        box = box_of(at);
        if (lane < CLUSTER) {
            q.own[lane] = make_float4(at[0], at[1], at[2], 0);
            q.own_rest[lane] = make_float4(rest[0], rest[1], rest[2], 0);
        }
        __syncwarp();
        if (APART && own_apart && part.first == 0)
            own_pairs();
    }

    /* Process the rest of the queue, padded. */
    __device__ __forceinline__ void end()
    {
        if (queued > 0) {
            const int count = (queued + TURN - 1) / TURN * TURN;
            if ((int)lane >= queued && (int)lane < count)
                put((int)lane, far_off(), make_float4(0, 0, 0, 1));
            queued = 0;
            apply(0, count);
        }
        action().ending();
    }

    /* The next points are loaded while the present ones are processed. */
    __device__ __forceinline__ void runs(uint32_t from, uint32_t to)
    {
        if (ONCE && own_apart) {
            from = max(from, last);
            to = max(to, from);
        }
        unsigned rows = __ballot_sync(ALL_LANES, to > from);
        uint2 run = {0, 0};
        struct batch now = fetch(rows, run, from, to);
        while (now.count > 0) {
            const struct batch next = fetch(rows, run, from, to);
            look(now);
            now = next;
        }
    }

    /* ---- a task ---- */

    __device__ __forceinline__ void own_pairs()
    {
        float4 p, left;
        candidate(own_point(lane), first + lane < last, &p, &left);
        if (lane < CLUSTER)
            put((int)lane, first + lane < last ? p : far_off(), left);
        __syncwarp();
        action().own();
        __syncwarp();
    }

    __device__ __forceinline__ void work(uint32_t number)
    {
        const struct pair_task task = task_of(pair.offset, pair.to.clusters, pair.begin + number);
        const uint2 cluster = pair.to.cluster[task.cluster];
        first = cluster.x;
        last = cluster.y;
        whole = task.parts == 1;
        part = part_of(task);
        queued = 0;
        double near[3];
#pragma unroll
        for (int d = 0; d < 3; d++) {
            near[d] = d < pair.to.dim ? cells_at(pair.to, d, own_point(lane % CLUSTER)) : 0.0;
            origin[d] = DOUBLES ? __shfl_sync(ALL_LANES, near[d], 0) : 0.0;
        }
        group_make(&q.group, pair.from, near, pair.scan_reach);
        pair_scan(pair.from, q.group, pair.scan_reach, *this);
        __syncwarp();
    }
};

#endif
