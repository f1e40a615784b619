/* pair_warp.cuh: a warp's task: a cluster of points, two per lane in eight lanes, against the points near its box.
 * Candidates go through a queue in shared memory, BATCH at a time, which four groups of lanes share; the derived class
 * processes them. Each inlined function has few callers, so that the loop over pairs is instantiated rarely and has
 * enough registers. Only the GPU's leaf of sums.h includes this.
 *
 * Differences do not lose digits: those of float32 positions in one image are computed directly; candidates
 * of other images are moved, where that is exact, or else the cluster's points, as pairs of floats; doubles become
 * pairs of floats relative to the cluster's first point. */
#ifndef MRIRECON_PAIR_WARP_CUH
#define MRIRECON_PAIR_WARP_CUH

#include "gridding/range/gpu/pair_task.cuh"

enum { PAIR_WARPS = 4, ALONG_I = 8, ALONG_J = 32 / ALONG_I, EACH = CLUSTER / ALONG_I };

enum { TURN = 4 * ALONG_J }; /* entries of the queue that are processed at a time */

/* Far from everything: padding of the queue. */
static __device__ __forceinline__ float4 far_off(void)
{
    return make_float4(3e38f, 0, 0, 0);
}

/* Shared memory of a warp; REST: the rounding error of a float32 position, and 1 / scale^2; BATCH: of pair_warp. */
template <bool REST, int BATCH> struct pair_queue {
    enum { QUEUE = BATCH + 64 }; /* up to 64 are added at once */
    float4 at[QUEUE];            /* position, and ACTION::payload() */
    float4 rest[REST ? (int)QUEUE : 1];
    float4 own[CLUSTER], own_rest[CLUSTER]; /* the cluster's points, shifted to the image */
    struct pair_group group;
    struct pair_part part;
    struct pair_side side[3]; /* of the cluster, where its points are */
    uint2 run[33]; /* of the rows that are searched: where it ends, if candidates are numbered through, and the
                      difference from a candidate's number to its index; after the last one UINT_MAX */
};

/* ACTION derives from this and has payload(p, j), apply_pairs(b, count): pairs with the queue's places b to b + count,
 * a multiple of TURN, own(): pairs of the cluster's points with each other, which are then in its places 0 to 15,
 * ending(): called when an image has been seen. DOUBLES: positions of one set at least are doubles. APART: a point is
 * no candidate of its own cluster, whose pairs own() is for. ONCE: and of the pairs (i, j) and (j, i) of one set, one
 * is enough: candidates are points after the cluster, or of images of which the opposite ones are left out. BATCH:
 * entries of the queue that are processed together, a multiple of 32. */
template <class ACTION, bool DOUBLES, bool REST, bool APART, bool ONCE, int BATCH> struct pair_warp {
    static_assert(REST || !DOUBLES, "doubles leave a rest");
    static_assert(APART || !ONCE, "own() is for a cluster's own pairs");
    const struct pair_args &pair;
    struct pair_queue<REST, BATCH> &q;
    const unsigned lane, ii, jj;
    uint32_t first, last; /* the cluster's points */
    bool whole;           /* the cluster has no other parts */
    bool own_apart;       /* this image contains the cluster itself */
    int image[3];
    int shifted;    /* the cluster's points are pairs of floats, in the coordinates of the image's candidates */
    int moved;      /* all images are searched together, and there are several */
    unsigned frame; /* the axes along which the cluster is moved then, of move_by() */
    int queued;
    struct pair_side side[3];
    double origin[3]; /* doubles are relative to it */
    double move[3];   /* to be added to candidates that are doubles */

    __device__ __forceinline__ pair_warp(const struct pair_args &args, struct pair_queue<REST, BATCH> &queue)
        : pair(args), q(queue), lane(threadIdx.x & 31), ii(lane % ALONG_I), jj(lane / ALONG_I)
    {
    }

    __device__ __forceinline__ ACTION &action()
    {
        return static_cast<ACTION &>(*this);
    }

    /* Called before points' values are read; positions may have been. */
    __device__ __forceinline__ void previous() const
    {
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

    /* Down by the box's length along the axes whose bits are set. */
    __device__ __forceinline__ void move_by(float4 &p, unsigned axes) const
    {
        p.x -= axes & 1 ? pair.length[0] : 0.f;
        p.y -= axes & 2 ? pair.length[1] : 0.f;
        p.z -= axes & 4 ? pair.length[2] : 0.f;
    }

    /* A candidate to the image that is nearest to the cluster. */
    __device__ __forceinline__ void move_near(float4 &p) const
    {
        p.x -= p.x - side[0].middle > 0.5f * pair.length[0] ? pair.length[0] : 0.f;
        p.y -= p.y - side[1].middle > 0.5f * pair.length[1] ? pair.length[1] : 0.f;
        p.z -= p.z - side[2].middle > 0.5f * pair.length[2] ? pair.length[2] : 0.f;
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
    __device__ __forceinline__ void candidate(uint32_t j, float4 *p, float4 *left)
    {
        *p = pair.from.point[j];
        *left = make_float4(0, 0, 0, 1);
        p->w = action().payload(p->w, j);
        if (REST && pair.from.unit2)
            left->w = pair.from.unit2[j];
        if (DOUBLES)
            two_floats(j, p, left);
    }

    /* Runs of up to 32 rows, numbered through from 0; the lanes' numbers advance by 32. */
    struct search {
        uint32_t end;    /* of the numbers */
        uint32_t number; /* the lane's */
        uint32_t row;    /* index in q.run of the run that contains it, or of an earlier one */
        uint2 run;       /* that run */
    };

    /* Up to 32 candidates, one per lane. */
    struct batch {
        uint32_t j;
        float4 p, left;
    };

    /* Number the runs through; without numbers that other parts have. */
    __device__ __forceinline__ struct search search_of(uint2 run)
    {
        const uint32_t count = run.y - run.x;
        const unsigned some = __ballot_sync(ALL_LANES, count > 0);
        uint32_t before = count;
#pragma unroll
        for (int o = 1; o < 32; o *= 2) {
            const uint32_t more = __shfl_up_sync(ALL_LANES, before, o);
            before += lane >= (unsigned)o ? more : 0;
        }
        struct search s;
        s.end = __shfl_sync(ALL_LANES, before, 31);
        __syncwarp(); /* the previous runs have been read */
        if (count > 0)
            q.run[__popc(some & ((1u << lane) - 1))] = make_uint2(before, run.y - before);
        if (lane == 0)
            q.run[__popc(some)] = make_uint2(~0u, 0);
        __syncwarp();
        s.number = lane;
        if (!whole) {
            const struct pair_part part = q.part;
            const uint64_t seen = part.seen, begin = part.first > seen ? part.first - seen : 0,
                           left = part.last > seen ? part.last - seen : 0;
            __syncwarp(); /* it has been read */
            if (lane == 0)
                q.part.seen = seen + s.end;
            s.end = (uint32_t)min((uint64_t)s.end, left);
            s.number += (uint32_t)min((uint64_t)s.end, begin);
        }
        s.row = 0;
        s.run = q.run[0];
        return s;
    }

    /* The next candidates; loaded, but not waited for. After the last one it is repeated. */
    __device__ __forceinline__ void fetch(struct search &s, struct batch &c)
    {
        const uint32_t number = min(s.number, s.end - 1);
        while (number >= s.run.x)
            s.run = q.run[++s.row];
        c.j = number + s.run.y;
        candidate(c.j, &c.p, &c.left);
        s.number += 32;
    }

    /* Whether the lane's candidate is near the cluster; `there`: of the first lanes. */
    __device__ __forceinline__ bool is_near(struct batch &c, uint32_t there)
    {
        const bool self = APART && !ONCE && own_apart && c.j - first < last - first;
        if (moved)
            move_near(c.p);
        const float x = side_gap(side[0], c.p.x), y = side_gap(side[1], c.p.y), z = side_gap(side[2], c.p.z);
        const bool near = fmaf(x, x, fmaf(y, y, z * z)) < pair.scan_reach * pair.scan_reach;
        return near & (lane < there) & !self;
    }

    /* Those near the cluster go into the queue. */
    __device__ __forceinline__ void look(struct batch c[2], int left)
    {
        const bool taken[2] = {is_near(c[0], (uint32_t)left), is_near(c[1], (uint32_t)max(left - 32, 0))};
        const unsigned bits[2] = {__ballot_sync(ALL_LANES, taken[0]), __ballot_sync(ALL_LANES, taken[1])},
                       before = (1u << lane) - 1;
        const int place = queued + __popc(bits[0]);
        if (taken[0])
            put(queued + __popc(bits[0] & before), c[0].p, c[0].left);
        if (taken[1])
            put(place + __popc(bits[1] & before), c[1].p, c[1].left);
        queued = place + __popc(bits[1]);
        while (queued >= BATCH) {
            queued -= BATCH;
            apply(queued, BATCH);
        }
    }

    /* ---- callbacks of pair_scan() ---- */

    /* Whether all images can be searched together: candidates of one of an axis' two images are moved to the other,
     * and so is the cluster if its own image is the one. That is exact if all that are near the cluster are moved by
     * half to twice their coordinate (P.H. Sterbenz, Floating-Point Computation, 1974). No point is near itself in
     * another image then. */
    __device__ __forceinline__ bool joins(const struct cells_view &from, const struct pair_group &g)
    {
        frame = 0;
        moved = 0;
        if (DOUBLES || ONCE)
            return false;
        bool exact = true;
#pragma unroll
        for (int d = 0; d < 3; d++) {
            const int low = g.image_from[d], high = g.image_to[d];
            const bool upper = high > 0, images = low != 0 || high != 0;
            const float by = pair.length[d], middle = q.side[d].middle - (upper ? by : 0);
            frame |= upper ? 1u << d : 0;
            moved |= (int)images;
            exact &= !images || (low >= -1 && high <= 1 && high - low <= 1 && (double)by == from.length[d] &&
                                 fabsf(middle) + q.side[d].half + pair.scan_reach < 0.499f * by);
        }
        frame = exact ? frame : 0;
        moved &= (int)exact;
        return exact;
    }

    /* The cluster in the coordinates of an image's candidates: the lane's point as a pair of floats. */
    __device__ __forceinline__ void begin_axis(int d, float *at, float *rest)
    {
        const double by = image[d] * pair.from.length[d], place = (double)*at - by;
        *at = (float)place;
        *rest = (float)(place - (double)*at);
        side[d].middle = (float)((double)side[d].middle - by);
        side[d].half += 4e-7f * fabsf(side[d].middle);
    }

    __device__ __forceinline__ void own_put(const float at[3], const float rest[3])
    {
        if (lane < CLUSTER) {
            q.own[lane] = make_float4(at[0], at[1], at[2], 0);
            q.own_rest[lane] = make_float4(rest[0], rest[1], rest[2], 0);
        }
    }

    __device__ __forceinline__ bool first_part() const
    {
        return whole || q.part.first == 0;
    }

    __device__ __forceinline__ bool wants(int x, int y, int z) const
    {
        return !ONCE || !pair.itself || (z != 0 ? z > 0 : y != 0 ? y > 0 : x >= 0);
    }

    __device__ __forceinline__ void begin(bool joined, int x, int y, int z)
    {
        image[0] = x;
        image[1] = y;
        image[2] = z;
        shifted = !joined && (x || y || z);
        own_apart = APART && pair.itself && !shifted;
        __syncwarp(); /* the previous image's points have been read */
#pragma unroll
        for (int d = 0; d < 3; d++)
            side[d] = q.side[d];
        if (DOUBLES) {
#pragma unroll
            for (int d = 0; d < 3; d++)
                move[d] = image[d] * pair.from.length[d] - origin[d];
        } else {
            float4 p = pair.to.point[own_point(lane % CLUSTER)];
            move_by(p, frame);
            float at[3] = {p.x, p.y, p.z}, rest[3] = {0, 0, 0};
            if (shifted) {
#pragma unroll
                for (int d = 0; d < 3; d++)
                    begin_axis(d, &at[d], &rest[d]);
            }
#pragma unroll
            for (int d = 0; d < 3; d++)
                side[d].middle -= frame >> d & 1 ? pair.length[d] : 0.f;
            own_put(at, rest);
        }
        __syncwarp();
        if (APART && own_apart && first_part())
            own_pairs();
    }

    /* Process the rest of the queue, padded. */
    __device__ __forceinline__ void end()
    {
        if (queued > 0) {
            const int count = (queued + TURN - 1) / TURN * TURN;
            if (queued + (int)lane < count)
                put(queued + (int)lane, far_off(), make_float4(0, 0, 0, 1));
            queued = 0;
            apply(0, count);
        }
        action().ending();
    }

    /* 64 candidates are loaded while 64 are looked at: where many are far, a look at 32 does not take as long as a
     * load, and two batches share the instructions of a round. */
    __device__ __forceinline__ void runs(uint2 run)
    {
        if (ONCE && own_apart) {
            run.x = max(run.x, last);
            run.y = max(run.y, run.x);
        }
        struct search s = search_of(run);
        int left = (int)(s.end - (s.number - lane));
        if (left <= 0)
            return;
        struct batch now[2], next[2];
        fetch(s, now[0]);
        fetch(s, now[1]);
        for (;; left -= 64) {
            fetch(s, next[0]);
            fetch(s, next[1]);
            look(now, left);
            if (left <= 64)
                break;
            now[0] = next[0];
            now[1] = next[1];
        }
    }

    /* ---- a task ---- */

    __device__ __forceinline__ void own_pairs()
    {
        float4 p, left;
        candidate(own_point(lane), &p, &left);
        move_by(p, frame);
        if (lane < CLUSTER)
            put((int)lane, first + lane < last ? p : far_off(), left);
        __syncwarp();
        action().own();
        __syncwarp();
    }

    /* The cluster's extent, and the cells near it. */
    __device__ __forceinline__ void locate()
    {
        float at[3], rest[3], low[3], high[3];
        if (DOUBLES) {
#pragma unroll
            for (int d = 0; d < 3; d++) {
                const double place = d < pair.to.dim ? cells_at(pair.to, d, own_point(lane % CLUSTER)) : 0.0;
                origin[d] = __shfl_sync(ALL_LANES, place, 0);
                at[d] = (float)(place - origin[d]);
                rest[d] = (float)(place - origin[d] - (double)at[d]);
            }
            own_put(at, rest);
        } else {
            const float4 p = pair.to.point[own_point(lane % CLUSTER)];
            at[0] = p.x;
            at[1] = p.y;
            at[2] = p.z;
            origin[0] = origin[1] = origin[2] = 0;
        }
#pragma unroll
        for (int d = 0; d < 3; d++) {
            low[d] = cluster_least(at[d]);
            high[d] = -cluster_least(-at[d]);
            if (lane == 0)
                q.side[d] = side_of(low[d], high[d]);
            low[d] = (float)((double)low[d] + (origin[d] - pair.from.origin[d]));
            high[d] = (float)((double)high[d] + (origin[d] - pair.from.origin[d]));
        }
        group_make(&q.group, pair.from, low, high, pair.scan_reach);
    }

    __device__ __forceinline__ void work(uint32_t number)
    {
        const struct pair_task task = task_of(pair.offset, pair.to.clusters, pair.begin + number);
        const uint2 cluster = pair.to.cluster[task.cluster];
        first = cluster.x;
        last = cluster.y;
        whole = task.parts == 1;
        if (lane == 0)
            q.part = part_of(task);
        __syncwarp();
        queued = 0;
        locate();
        action().previous();
        pair_scan(pair.from, q.group, pair.scan_reach, *this);
        __syncwarp();
    }
};

#endif
