/* scatter_lists.cuh: the points that reach each box of nodes, listed for all boxes before they are summed. A box is
 * what one warp sums, a share of a tile (masks_of(), octants_of()). A warp lists the points of all boxes of a tile, so
 * that each candidate is examined once, and warps that sum have neither the search nor its registers: they need not
 * wait for each other, nor for more than the next points.
 *
 * The lists of a tile are collected in shared memory, and then take exactly their room from a pool. Where lists are in
 * the pool depends on the order of warps; what they contain, and in which order, does not. If a box has more points
 * than there is room in shared memory, or the pool is too small, this is told, and points are summed another way. Only
 * open axes: an entry does not say which image of a point it means. */
#ifndef MRIRECON_SCATTER_LISTS_CUH
#define MRIRECON_SCATTER_LISTS_CUH

#include "gridding/range/gpu/scatter_node_points.cuh"

namespace
{

enum { LISTERS = 4, LISTER_THREADS = 32 * LISTERS, LISTS_AHEAD = 2 };

/* Boxes of a tile. */
template <enum listing LISTS> struct boxes_of {
    enum { COUNT = LISTS == MASKS ? 4 : 8 };
};

struct box_list {
    uint32_t first, count;
};

struct box_lists {
    struct box_list *list;  /* [tiles][boxes] */
    uint32_t *points;       /* [most]: the pool, of numbers of points */
    struct near_sums *used; /* of it */
    unsigned long long most;
    uint32_t tiles;
    int room; /* of a box in shared memory */
    /* For boxes_reached(), of a box: its side and what its nodes span, with slack and without bias, in packed steps;
     * the law's reach, and a little more, in multiples of 2^ROUNDED_BITS steps. */
    uint32_t side[3], span[3];
    float reach[3];
};

/* A packed place, relative to a tile's first node. */
__device__ __forceinline__ int4 relative_place(const scatter_job &job, const int4 &place, const int low[3])
{
    return make_int4(place.x - (low[0] << job.bits), place.y - (low[1] << job.bits), place.z - (low[2] << job.bits),
                     place.w);
}

/* Reaches are rounded to multiples of 2^ROUNDED_BITS packed steps by the addition of ROUNDED_FROM, which needs no
 * conversion unit: the sum's bits are ROUNDED_BIAS plus the multiple. REACH_SLACK, in packed steps, is more than half a
 * multiple and the errors that make points doubtful (is_doubtful_cube()). */
enum { ROUNDED_BITS = 8, ROUNDED_BIAS = 0x4b400000, REACH_SLACK = 256 };
#define ROUNDED_FROM 12582912.f

/* A tile's first node along an axis, less the slack, in packed steps; the bias of reaches is subtracted with it. */
__device__ __forceinline__ uint32_t tile_edge(const scatter_job &job, int low)
{
    return (uint32_t)(low << job.bits) - REACH_SLACK + ((uint32_t)ROUNDED_BIAS << ROUNDED_BITS);
}

/* Which boxes of a tile a point reaches, or nearly reaches, if it is `there`. Box x + 2 z, or x + 2 y + 4 z. edge:
 * tile_edge(). Differences are modulo 2^32. */
template <enum listing LISTS>
__device__ __forceinline__ void boxes_reached(const scatter_job &job, const box_lists &lists, const int low[3],
                                              const uint32_t edge[3], const int4 &place, bool there, bool near[])
{
    if (LISTS == OCTANTS) {
        const uint32_t octants = octants_of(job, relative_place(job, place, low));
#pragma unroll
        for (int b = 0; b < 8; b++)
            near[b] = there && octants >> b & 1;
        return;
    }
    const float scale = fabsf(__int_as_float(place.w));
    const int at[3] = {place.x, place.y, place.z};
    bool in[3][2];
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const uint32_t reach = (uint32_t)__float_as_int(fmaf(scale, lists.reach[d], ROUNDED_FROM)) << ROUNDED_BITS;
        const uint32_t range = lists.span[d] + 2 * reach, from = (uint32_t)at[d] - edge[d] + reach;
#pragma unroll
        for (int k = 0; k < 2; k++)
            in[d][k] = from - k * lists.side[d] <= range;
    }
#pragma unroll
    for (int b = 0; b < 4; b++)
        near[b] = there && in[0][b & 1] && in[1][0] && in[2][b >> 1];
}

/* A tile's lists while a warp collects them, in shared memory: a box's entries are at begin + b size to end[b]
 * (exclusive), in bytes. */
template <int BOXES> struct collected {
    uint32_t begin, size;
    uint32_t end[BOXES];
};

/* Append a point a lane to the lists of the boxes that it reaches. */
template <int BOXES>
__device__ __forceinline__ void collect(collected<BOXES> &to, const bool near[BOXES], uint32_t point)
{
    const uint32_t earlier = (1u << (threadIdx.x & 31)) - 1;
#pragma unroll
    for (int b = 0; b < BOXES; b++) {
        const uint32_t hits = __ballot_sync(~0u, near[b]);
        /* A predicated store: of an `if`, the compiler makes a branch for each box. */
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.shared.u32 [%1], %2; }" ::"r"((uint32_t)near[b]),
                     "r"(to.end[b] + 4 * __popc(hits & earlier)), "r"(point)
                     : "memory");
        to.end[b] += 4 * __popc(hits);
    }
}

/* Whether every list has room for so many points. */
template <int BOXES> __device__ __forceinline__ bool have_room(const collected<BOXES> &to, uint32_t points)
{
    uint32_t most = 0;
#pragma unroll
    for (int b = 0; b < BOXES; b++)
        most = max(most, to.end[b] - b * to.size);
    return most + 4 * points <= to.begin + to.size;
}

/* Loads the `all` candidates of the listed rows in their order, 32 at a time, one a lane. */
struct candidates {
    const scatter_job &job;
    const listed_rows &rows;
    const uint32_t begins, upto, all; /* begins: of row `lane`; upto: the bits of lanes up to this one */
    int started;                      /* rows that begin before the next 32 */

    __device__ __forceinline__ candidates(const scatter_job &j, const listed_rows &r, uint32_t count)
        : job(j), rows(r), begins(r.before[threadIdx.x & 31]), upto((2u << (threadIdx.x & 31)) - 1), all(count),
          started(0)
    {
    }

    /* Candidate base + lane, or the last one; base is 32 more each time. */
    __device__ __forceinline__ void load(uint32_t base, uint32_t &point, int4 &place)
    {
        uint32_t begun;                                               /* bit k: a row begins at base + k */
        asm("shl.b32 %0, 1, %1;" : "=r"(begun) : "r"(begins - base)); /* 0 if that is 32 or more */
        begun = __reduce_or_sync(~0u, begun);
        point = rows.shift[started + __popc(begun & upto) - 1] + min(base + (threadIdx.x & 31), all - 1);
        started += __popc(begun);
        place = job.place[point];
    }
};

/* Collect the `all` candidates of the listed rows; false: there is no room for them. low: the tile's first node. */
template <enum listing LISTS>
__device__ __forceinline__ bool collect_rows(const scatter_job &job, const box_lists &lists, const int low[3],
                                             const listed_rows &rows, uint32_t all,
                                             collected<boxes_of<LISTS>::COUNT> &to)
{
    const uint32_t edge[3] = {tile_edge(job, low[0]), tile_edge(job, low[1]), tile_edge(job, low[2])};
    const bool roomy = have_room(to, all);
    candidates from(job, rows, all);
    int4 place[LISTS_AHEAD];
    uint32_t point[LISTS_AHEAD];
    if (all == 0)
        return true;
    from.load(0, point[0], place[0]);
    for (uint32_t next = 0; next < all; next += 32 * LISTS_AHEAD) {
        if (!roomy && !have_room(to, 32 * LISTS_AHEAD))
            return false;
#pragma unroll
        for (int k = 0; k < LISTS_AHEAD; k++) {
            const uint32_t base = next + 32 * k;
            bool near[boxes_of<LISTS>::COUNT];
            if (k > 0 && base >= all)
                break;
            /* The next are on their way while these are examined, and need not be copied when they are there. */
            from.load(base + 32, point[1 - k], place[1 - k]);
            boxes_reached<LISTS>(job, lists, low, edge, place[k], base + (threadIdx.x & 31) < all, near);
            collect(to, near, point[k]);
        }
    }
    return true;
}

/* Copy collected lists to their room in the pool, if there is any. */
template <int BOXES>
__device__ __forceinline__ void hand_over(const box_lists &lists, uint32_t tile, const uint32_t *entries,
                                          const collected<BOXES> &from, bool complete)
{
    const int lane = threadIdx.x & 31;
    uint32_t sum = 0;
#pragma unroll
    for (int b = 0; b < BOXES; b++)
        sum += (from.end[b] - from.begin - b * from.size) / 4;
    unsigned long long first = lane == 0 ? atomicAdd(&lists.used->listed, (unsigned long long)sum) : 0;
    first = __shfl_sync(~0u, first, 0);
    if (!complete || first + sum > lists.most) {
        if (lane == 0)
            lists.used->failed = 1;
        return;
    }
    uint32_t *to = lists.points + first;
#pragma unroll
    for (int b = 0; b < BOXES; b++) {
        const int count = (int)(from.end[b] - from.begin - b * from.size) / 4;
        if (lane == 0) {
            const struct box_list list = {(uint32_t)first, (uint32_t)count};
            lists.list[(size_t)tile * BOXES + b] = list;
        }
        for (int i = lane; i < count; i += 32)
            to[i] = entries[b * lists.room + i];
        to += count;
        first += (uint32_t)count;
    }
}

/* blockDim.x is LISTER_THREADS; dynamic shared memory: 4 bytes for `room` entries of each box of LISTERS tiles. */
template <enum listing LISTS>
__global__ void __launch_bounds__(LISTER_THREADS, LISTS == MASKS ? 9 : 10)
    list_boxes(const __grid_constant__ scatter_job job, const __grid_constant__ box_lists lists)
{
    enum { BOXES = boxes_of<LISTS>::COUNT };
    extern __shared__ uint32_t entries[];
    __shared__ listed_rows rows_of[LISTERS];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, tile = blockIdx.x * LISTERS + warp;
    uint32_t *own = entries + warp * BOXES * lists.room;
    collected<BOXES> to = {(uint32_t)__cvta_generic_to_shared(own), 4 * (uint32_t)lists.room, {}};
    int low[3], from[3], last[3];
    bool complete = true;
    if (tile >= lists.tiles)
        return;
#pragma unroll
    for (int b = 0; b < BOXES; b++)
        to.end[b] = to.begin + b * to.size;
    tile_low(job, tile, low);
    for (int d = 0; d < 3; d++)
        bins_about(job, d, low[d], from[d], last[d]);
    const uint32_t rows = (uint32_t)((last[1] - from[1] + 1) * (last[2] - from[2] + 1));
    for (uint32_t first = 0; first < rows && complete; first += 32) {
        struct packed_row row = {0, 0, {0, 0, 0}};
        int place;
        if (first + lane < rows)
            row = packed_row_of<true>(job, from, last, 1, low, first + lane);
        const uint32_t all = put_rows(rows_of[warp], row, place);
        __syncwarp();
        complete = collect_rows<LISTS>(job, lists, low, rows_of[warp], all, to);
        __syncwarp();
    }
    hand_over(lists, tile, own, to, complete);
}

/* ---- on the host ---- */

/* The most room for a box's list in shared memory; entries of a point, on average. */
enum { LIST_ROOM_MOST = 320, LISTED_MOST = 16 };

/* Bytes of `boxes` lists of `most` points in all. */
inline size_t lists_bytes(size_t boxes, unsigned long long most)
{
    return boxes * sizeof(struct box_list) + most * sizeof(uint32_t);
}

/* The most that lists of `inputs` points may have. */
inline unsigned long long lists_most(size_t inputs)
{
    return LISTED_MOST * (unsigned long long)inputs + 1024;
}

/* Whether it is quicker to list points: if few reach a box, where there are any, so that the search is a good part of
 * the work; and the room for them. occupied: bins with points; share: boxes of a tile along each axis. */
inline bool lists_chosen(const scatter_job &job, size_t occupied, const int share[3], struct box_lists *lists)
{
    const struct points_view &p = job.points;
    const double count = (double)p.count, held = count / (double)(occupied > 0 ? occupied : 1);
    /* Points of a bin, where there are any, are m if m / (1 - exp(-m)) are in a bin that is not empty; at most: */
    double near = fmax(0, fmin(2 * (held - 1), held)), each = 1;
    for (int d = 0; d < 3; d++) {
        const double side = (double)job.tile[d] / share[d], wide = 2 * job.widest * job.nodes_of[d];
        near *= (side + wide) / (double)job.bin_nodes[d];
        each *= 1 + wide / side;
        if (p.box.periodic[d])
            return false;
    }
    /* With room for the candidates of one step more, and for boxes that have more than others. */
    lists->room = (int)fmin(1.25 * near + 32 * LISTS_AHEAD + 48, LIST_ROOM_MOST + 1.0);
    lists->most = (unsigned long long)(1.1 * each * count) + 1024;
    for (int d = 0; d < 3; d++) {
        const uint32_t side = (uint32_t)(job.tile[d] / share[d]), slack = REACH_SLACK;
        lists->side[d] = side << job.bits;
        lists->span[d] = ((side - 1) << job.bits) + 2 * (slack - ((uint32_t)ROUNDED_BIAS << ROUNDED_BITS));
        lists->reach[d] = job.reach_steps[d] * (1.00001f / (1 << ROUNDED_BITS));
    }
    return lists->room <= LIST_ROOM_MOST && lists->most <= lists_most(p.inputs) && lists->most <= UINT32_MAX;
}

/* ---- reading lists, a point a lane; the next points are on their way while some are added ---- */

/* Tiles that a block sums, one after the other: it waits for the first points of only one. */
enum { TILES_EACH = 4 };

struct listed_points {
    int4 place[2][32];
    float value[2][32];
    struct box_list boxes[TILES_EACH + 1]; /* that the warp sums, and one without points */
};

struct listed_point {
    uint32_t number;
    int4 place; /* as packed */
    float value;
};

template <int BYTES> __device__ __forceinline__ void copy_async(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
                 "l"(global), "n"(BYTES)
                 : "memory");
}

/* The lists of the boxes that a warp sums. */
struct list_reader {
    const scatter_job &job;
    const box_lists &lists;
    listed_points &coming;
    struct box_list following; /* of the next box */
    uint32_t entry;            /* a lane's, of the points that are on their way */
    uint32_t next, after;      /* its point of these, and of those after them */
    uint32_t second;           /* its point of the next box's after the first 32 */
    int left, stage;           /* points of this box */
    int turned;                /* boxes begun */

    /* Box `box` of `tile` and of the tiles after it, which have `boxes` each. */
    __device__ __forceinline__ list_reader(const scatter_job &j, const box_lists &l, uint32_t tile, uint32_t boxes,
                                           uint32_t box, listed_points &memory)
        : job(j), lists(l), coming(memory), following({0, 0}), entry(0), next(0), after(0), second(0), left(0),
          stage(0), turned(0)
    {
        const uint32_t lane = threadIdx.x & 31;
        if (lane < TILES_EACH && tile + lane < lists.tiles)
            following = lists.list[(tile + lane) * boxes + box];
        if (lane <= TILES_EACH)
            coming.boxes[lane] = following;
        __syncwarp();
        following = coming.boxes[0];
        look_ahead();
        look_beyond();
        end();
    }

    /* A lane's point of the next box's after the first `from`; of other lanes, if it has less. */
    __device__ __forceinline__ uint32_t point_of_next(uint32_t from) const
    {
        const uint32_t own = from + (threadIdx.x & 31);
        return following.count > 0 ? following.first + (own < following.count ? own : 0) : 0;
    }

    /* Load the numbers of the next box's points after the first 32, a box before they are needed. */
    __device__ __forceinline__ void look_beyond()
    {
        second = lists.points[point_of_next(32)];
    }

    /* Load the numbers of the points after those that are on their way: of this box, or the next one's first. Without
     * branches: where they join, the compiler copies what was loaded, and so waits for it. */
    __device__ __forceinline__ void look_ahead()
    {
        const uint32_t lane = threadIdx.x & 31, own = entry + ((int)lane < left - 32 ? 32 : -lane);
        after = lists.points[left > 32 ? own : point_of_next(0)];
    }

    /* Begin to load the points `after`. */
    __device__ __forceinline__ void start()
    {
        const int lane = threadIdx.x & 31;
        next = after;
        stage ^= 1;
        copy_async<16>(&coming.place[stage][lane], job.place + next);
        copy_async<4>(&coming.value[stage][lane], job.packed + next);
    }

    /* Turn to the next box, whose first points are on their way, and the numbers of those after them known. */
    __device__ __forceinline__ void turn()
    {
        left = (int)following.count;
        entry = following.first + (threadIdx.x & 31);
        after = second;
        following = coming.boxes[++turned];
        look_beyond();
        if (left == 0)
            look_ahead();
    }

    /* The next points of this box; lanes from `left` on have any. */
    __device__ __forceinline__ listed_point take()
    {
        const int lane = threadIdx.x & 31;
        listed_point p;
        asm volatile("cp.async.wait_all;" ::: "memory");
        p.number = next;
        p.place = coming.place[stage][lane];
        p.value = coming.value[stage][lane];
        left -= 32;
        if (left > 0) {
            start();
            entry += 32;
        }
        look_ahead();
        return p;
    }

    /* When the last points of a box have been added. */
    __device__ __forceinline__ void end()
    {
        if (following.count > 0)
            start();
    }
};

/* The beginning of a block that sums from lists: tells the host how it went, and returns the factor of values, or 0:
 * then they are summed another way. */
__device__ __forceinline__ float lists_begin(const scatter_job &job, const box_lists &lists)
{
    const unsigned largest = *job.largest, failed = lists.used->failed;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        job.told[0] = largest;
        job.told[1] = failed;
    }
    return failed ? 0 : relative_of(largest);
}

} // namespace

#endif
