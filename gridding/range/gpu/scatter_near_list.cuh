/* scatter_near_list.cuh: the list of points near a tile of a 3-D grid, used by the quick sums to grids
 * (scatter_nodes.cuh, scatter_spheres.cuh, scatter_cubes.cuh). Positions are first packed as fixed-point numbers: 16
 * bytes contain a point's position and reach, and differences of positions are exact. Each warp searches its share of
 * the rows of bins near the tile, 32 candidates at a time, and fills its own part of the block's list without waiting
 * for other warps. */
#ifndef MRIRECON_SCATTER_NEAR_LIST_CUH
#define MRIRECON_SCATTER_NEAR_LIST_CUH

#include "gridding/range/gpu/scatter_near.cuh"

namespace
{

/* ---- packed points ---- */

/* sqrt(x), with an error of 2^-22. */
__device__ __forceinline__ float root_about(float x)
{
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x rounded to the nearest integer; |x| below 2^22. */
__device__ __forceinline__ float rounded(float x)
{
    return (x + 12582912.f) - 12582912.f;
}

/* Sphere: whether a node may lie exactly on the point's reach, within float32's precision; then the sign of .w is set.
 * The surface at the reach is followed along z, column by column of nodes. Lengths are nodes along z; x, y and z are
 * relative to the node next to the point. unit: 1 / reach^2, of squared distances in nodes along each axis. */
__device__ bool is_doubtful(const float from[3], const float unit[3])
{
    const float most = fmaxf(fmaxf(unit[0], unit[1]), unit[2]); /* 1 / (the shortest reach in nodes)^2 */
    const float over = 1 / unit[2], error = 4e-6f * (1 + 4 * root_about(most)) * over;
    const float by_x = unit[0] * over, by_y = unit[1] * over, wide = 1 / by_x, off = fabsf(from[2]);
    const int y = (int)(1 / sqrtf(unit[1])) + 1;
    float least = INFINITY;
    if (over > 300.f * 300) /* columns that are tangent to the surface may be missed */
        return true;
    for (int j = -y; j <= y; j++) {
        const float dy = (float)j - from[1], rest = fmaf(-dy * by_y, dy, over);
        if (rest < -error)
            continue;
        const float half = root_about((rest + error) * wide) + 1e-3f;
        const float last = floorf(from[0] + half);
#pragma unroll 2
        for (float i = ceilf(from[0] - half); i <= last; i++) {
            const float dx = i - from[0], high = root_about(fabsf(fmaf(-dx * by_x, dx, rest)));
            /* A node is `away` from the surface, which is `high` above and below the point. */
            const float away = fabsf(fabsf(high - rounded(high)) - off);
            least = fminf(least, away * fmaf(2.f, high, -away));
        }
    }
    return least < error;
}

/* Cube: whether a node may lie exactly on the point's reach along an axis, within float32's precision; then the sign of
 * .w is set. Distances from the point are rounded five times, relative to 16 nodes and the reach, and positions are
 * multiples of at most 2^-19. from: the point's position relative to a node; nodes: its reach, in nodes. */
__device__ bool is_doubtful_cube(const float from[3], const float nodes[3])
{
    bool doubtful = false;
    for (int d = 0; d < 3; d++) {
        const float low = from[d] - nodes[d], high = from[d] + nodes[d], error = 1e-6f * (32 + nodes[d]);
        doubtful = doubtful || fabsf(low - rintf(low)) < error || fabsf(high - rintf(high)) < error;
    }
    return doubtful;
}

/* x rounded to the nearest integer, which 32 bits can hold, without the conversion unit. */
__device__ __forceinline__ int rounded_integer(double x)
{
    return __double2loint(x + 6755399441055744.0); /* 1.5 * 2^52 */
}

/* Packs points in the order of the bins. *largest: bits of the largest magnitude of a value. */
__global__ void pack_points(const __grid_constant__ scatter_job job, int4 *place, float *value, unsigned *largest)
{
    const points_view &p = job.points;
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned magnitude = 0;
    if (i < p.count) {
        const float scale = p.scale ? p.scale[i] : 1, reach = job.reach * scale;
        int at[3];
        float from[3], unit[3], nodes_within[3];
        for (int d = 0; d < 3; d++) {
            const double nodes = (points_at(p, d, i) - p.box.origin[d]) * job.nodes_of[d];
            const double held = fmin(fmax(nodes, -job.margin[d]), p.box.cells[d] + job.margin[d]);
            at[d] = rounded_integer(held * (double)(1 << job.bits));
            from[d] = (float)(at[d] - ((at[d] + (1 << (job.bits - 1))) >> job.bits << job.bits)) * job.step;
            unit[d] = job.spacing2[d] / (reach * reach);
            nodes_within[d] = reach * job.per_width[d];
        }
        value[i] = job.values[p.source[i]];
        const bool marked = job.law.form == RANGE_RADIAL      ? is_doubtful(from, unit)
                            : job.law.form == RANGE_SEPARABLE ? is_doubtful_cube(from, nodes_within)
                                                              : false;
        place[i] = make_int4(at[0], at[1], at[2], __float_as_int(job.lean ? value[i] : marked ? -scale : scale));
        magnitude = __float_as_uint(fabsf(value[i]));
    }
    magnitude = __reduce_max_sync(~0u, magnitude);
    /* Atomics at one address wait for each other: few warps have more than what is there. */
    if ((threadIdx.x & 31) == 0 && magnitude > __ldcg(largest))
        atomicMax(largest, magnitude);
}

/* ---- a block's list ---- */

/* Up to 32 rows that a warp searches and that are not empty: the number of candidates in the rows before each (beyond
 * the last: UINT32_MAX), the offset from a candidate's number to its point, and the tile's first node relative to the
 * row's image. */
struct listed_rows {
    uint32_t before[32], shift[32];
    int low[3][32];
};

/* PARTS: number of warps, each with room for CAP points. LEAN: points without scales, of which .w has the value, and no
 * more is listed. MASKS: a point's nodes are listed, not its number. The state of a warp's search is here too, because
 * the registers are needed for the sums. */
template <int PARTS, int CAP, bool LEAN = false, bool MASKS = false> struct near_list {
    int4 place[PARTS][CAP]; /* relative to the tile's first node; .w as packed */
    float value[PARTS][LEAN ? 1 : CAP];
    uint32_t point[PARTS][LEAN || MASKS ? 1 : CAP];
    uint2 within[PARTS][MASKS ? CAP : 1]; /* masks_of() */
    int held[PARTS];
    int low[3];         /* the tile's first node */
    int from[3], to[3]; /* bins near the tile, numbered continuously across images */
    listed_rows rows[PARTS];
    unsigned long long skip[PARTS], left[PARTS]; /* candidates to skip, and then to search */
};

/* As image_of(), for the bins that are near a tile, which 32 bits can number. */
__device__ __forceinline__ int image_in(int bin, int bins)
{
    return bin >= 0 && bin < bins ? 0 : (bin >= 0 ? bin : bin - (bins - 1)) / bins;
}

/* The distance of a row of bins from the tile along axis d, in nodes, at most; `bin` is numbered continuously across
 * images. */
__device__ __forceinline__ float row_gap(const scatter_job &job, int d, int bin, int low)
{
    const points_view &p = job.points;
    const float edge = job.bin_nodes[d], at = (float)bin * edge;
    float above = at - (float)(low + job.tile[d] - 1), below = (float)low - (at + edge);
    if (!p.box.periodic[d] && bin == 0)
        above = 0;
    if (!p.box.periodic[d] && bin == p.bins[d] - 1)
        below = 0;
    return fmaxf(0.f, fmaxf(above, below) - 0.01f * edge - 0.01f) * job.width[d];
}

/* a / b, exactly; without an integer division where float32 can tell it. */
__device__ __forceinline__ uint32_t quotient(uint32_t a, uint32_t b)
{
    return a < 1 << 20 ? (uint32_t)__fdividef((float)a + 0.5f, (float)b) : a / b;
}

/* A run of points, and the tile's first node relative to its image. */
struct packed_row {
    uint32_t first, count;
    int low[3];
};

/* Row `row` of those nearby: bins from[d] to to[d], in `images` images along x. For radial laws, bins at its ends that
 * cannot reach the tile are cut off. */
__device__ __forceinline__ struct packed_row packed_row_of(const scatter_job &job, const int *first_bin,
                                                           const int *last_bin, uint32_t images, const int low[3],
                                                           uint32_t row)
{
    const points_view &p = job.points;
    const uint32_t heights = (uint32_t)(last_bin[1] - first_bin[1] + 1), line = images == 1 ? row : row / images,
                   plane = quotient(line, heights);
    const int bin[2] = {first_bin[1] + (int)(line - plane * heights), first_bin[2] + (int)plane};
    const int image[3] = {image_in(first_bin[0], p.bins[0]) + (int)(row - line * images), image_in(bin[0], p.bins[1]),
                          image_in(bin[1], p.bins[2])};
    int from = first_bin[0], to = last_bin[0];
    struct packed_row r = {0, 0, {0, 0, 0}};
    if (job.law.form != RANGE_SEPARABLE) {
        const float y = row_gap(job, 1, bin[0], low[1]), z = row_gap(job, 2, bin[1], low[2]);
        const float widest = (float)job.widest, rest = widest * widest - y * y - z * z;
        if (!(rest > 0))
            return r;
        const float by = (float)job.bins_of[0], high = fmaf(root_about(rest), by, 0.01f), nodes = by * job.width[0];
        const int cut_from = (int)floorf(fmaf((float)low[0], nodes, -high)),
                  cut_to = (int)floorf(fmaf((float)(low[0] + job.tile[0] - 1), nodes, high));
        /* The outermost bins of an open axis also contain the points outside the grid. */
        const int least = p.box.periodic[0] || cut_from < p.bins[0] ? cut_from : p.bins[0] - 1,
                  most = p.box.periodic[0] || cut_to > 0 ? cut_to : 0;
        from = from > least ? from : least;
        to = to < most ? to : most;
    }
    const int base = image[0] * p.bins[0];
    from = from > base ? from - base : 0;
    to = to < base + p.bins[0] - 1 ? to - base : p.bins[0] - 1;
    if (from > to)
        return r;
    const uint32_t first =
        points_bin(p, 0, (uint32_t)(bin[0] - image[1] * p.bins[1]), (uint32_t)(bin[1] - image[2] * p.bins[2]));
    r.first = p.first[first + from];
    r.count = p.first[first + to + 1] - r.first;
    for (int d = 0; d < 3; d++)
        r.low[d] = (low[d] - image[d] * p.box.cells[d]) << job.bits;
    return r;
}

/* A packed position in nodes, less `middle`, with an error of 2^-10 nodes; avoids the conversion unit, which other
 * instructions need.
 */
__device__ __forceinline__ float place_about(const scatter_job &job, int x, float middle)
{
    return fmaf(__int_as_float((x >> 9) + 0x4b400000) - 12582912.f, 512 * job.step, -middle);
}

/* Whether a point reaches a box of nodes, or nearly reaches it. LEAN: as in near_list. */
template <bool LEAN>
__device__ __forceinline__ bool place_reaches(const scatter_job &job, const int4 &p, const float middle[3],
                                              const float half[3])
{
    const float reach = job.reach * (LEAN ? 1 : fabsf(__int_as_float(p.w))) * 1.00001f;
    const float x = fmaxf(fabsf(place_about(job, p.x, middle[0])) - half[0], 0.f) * job.width[0],
                y = fmaxf(fabsf(place_about(job, p.y, middle[1])) - half[1], 0.f) * job.width[1],
                z = fmaxf(fabsf(place_about(job, p.z, middle[2])) - half[2], 0.f) * job.width[2];
    return job.law.form == RANGE_SEPARABLE ? x < reach && y < reach && z < reach
                                           : fmaf(x, x, fmaf(y, y, z * z)) < reach * reach;
}

/* The image of the box that a list entry belongs to, along axis d; `rel` is its position relative to the tile's first
 * node. */
__device__ __forceinline__ int entry_image(const scatter_job &job, int rel, int place, int d, int low)
{
    const long long whole = (long long)rel + ((long long)low << job.bits) - place;
    return (int)(whole / ((long long)job.points.box.cells[d] << job.bits));
}

/* The position of a listed point in double precision, in nodes relative to the tile's first. */
__device__ __forceinline__ void exact_place(const scatter_job &job, uint32_t tile, uint32_t point, const int4 &rel,
                                            double at[3])
{
    const points_view &p = job.points;
    int low[3];
    tile_low(job, tile, low);
    const int4 place = job.place[point];
    const int from[3] = {rel.x, rel.y, rel.z}, packed[3] = {place.x, place.y, place.z};
    for (int d = 0; d < 3; d++)
        at[d] = (points_at(p, d, point) - p.box.origin[d]) / p.box.spacing[d] +
                (double)entry_image(job, from[d], packed[d], d, low[d]) * (double)p.box.cells[d] - (double)low[d];
}

/* ---- the nodes that a point reaches, as masks ---- */

/* Which of a tile's MASK_SIDE nodes along axis d are within reach of a point, in double precision: bit k. rel: as in
 * near_list. */
enum { MASK_SIDE = 16 };

__device__ __noinline__ uint32_t exact_mask(const scatter_job &job, uint32_t tile, uint32_t point, int4 rel, int d)
{
    double at[3];
    exact_place(job, tile, point, rel, at);
    const double reach = job.law.reach * (double)fabsf(__int_as_float(rel.w));
    uint32_t mask = 0;
    for (int k = 0; k < MASK_SIDE; k++)
        mask |= (fabs((k - at[d]) * job.spacing[d]) < reach) << k;
    return mask;
}

/* 2^n, n being `at` rounded down and held between 0 and MASK_SIDE. */
__device__ __forceinline__ uint32_t bit_below(float at)
{
    const float held = fminf(fmaxf(at, 0.f), (float)MASK_SIDE);
    return 1u << (__float_as_int(__fadd_rd(held, 8388608.f)) & 31); /* 2^23: integers are the lowest bits */
}

/* The same in float32. No node lies next to where the reach ends (is_doubtful_cube()). */
__device__ __forceinline__ uint32_t node_mask(float at, float reach)
{
    return bit_below(at + reach + 1.f) - bit_below(at - reach + 1.f);
}

/* The nodes of a tile that a point reaches: x: along x; y: along y, and along z in the upper half. 0: none along some
 * axis. */
__device__ __forceinline__ uint2 masks_of(const scatter_job &job, uint32_t tile, uint32_t point, const int4 &rel)
{
    const float scale = __int_as_float(rel.w), reach = job.reach * fabsf(scale);
    uint32_t x = node_mask((float)rel.x * job.step, reach * job.per_width[0]),
             y = node_mask((float)rel.y * job.step, reach * job.per_width[1]),
             z = node_mask((float)rel.z * job.step, reach * job.per_width[2]);
    if (scale < 0) {
        x = exact_mask(job, tile, point, rel, 0);
        y = exact_mask(job, tile, point, rel, 1);
        z = exact_mask(job, tile, point, rel, 2);
    }
    return x && y && z ? make_uint2(x, y | z << MASK_SIDE) : make_uint2(0, 0);
}

/* ---- the search ---- */

/* A warp's share of the candidates: rows part, part + PARTS, ..., 32 at a time, one per lane. MIXED: in an order in
 * which every part of a list has points of all sides of the tile, so that warps have alike much to do. */
template <int PARTS, int CAP, bool MIXED, bool LEAN = false, bool MASKS = false> struct near_scan {
    /* Fewer candidates are not examined to fill the list. */
    enum { LEAST = LEAN ? 8 : 32 };
    const scatter_job &job;
    near_list<PARTS, CAP, LEAN, MASKS> &list;
    uint32_t tile;
    uint32_t begun;     /* rows of which a warp's search has begun, of all warps */
    uint32_t all, next; /* candidates of the pass; the next candidate */
    bool whole;         /* all candidates are to be searched */

    __device__ __forceinline__ near_scan(const scatter_job &j, near_list<PARTS, CAP, LEAN, MASKS> &l, uint32_t t)
        : job(j), list(l), tile(t), begun(0), all(0), next(0), whole(true)
    {
        if (threadIdx.x < 3) {
            const int d = (int)threadIdx.x;
            int low[3];
            tile_low(job, tile, low);
            list.low[d] = low[d];
            find_span(d);
        }
        __syncthreads();
    }

    /* The bins of axis d near the tile, as near_span_of(), or one more. */
    __device__ __forceinline__ void find_span(int d)
    {
        const int low = list.low[d], last = min(low + job.tile[d], job.points.box.cells[d]) - 1;
        const float wide = job.widest_bins[d], slack = 4e-3f + 4e-7f * wide; /* more than rounding errors */
        const int from = (int)floorf((float)low * job.node_bins[d] - wide - slack),
                  to = (int)floorf((float)last * job.node_bins[d] + wide + slack);
        const bool open = !job.points.box.periodic[d];
        list.from[d] = open ? min(max(from, 0), job.points.bins[d] - 1) : from;
        list.to[d] = open ? min(max(to, 0), job.points.bins[d] - 1) : to;
    }

    /* Images along x of the rows near the tile; these rows. */
    __device__ __forceinline__ uint32_t images_near() const
    {
        const int bins = job.points.bins[0];
        const bool one = list.from[0] >= 0 && list.to[0] < bins;
        return one ? 1 : (uint32_t)(image_in(list.to[0], bins) - image_in(list.from[0], bins) + 1);
    }

    __device__ __forceinline__ uint32_t rows_near() const
    {
        return images_near() * (uint32_t)(list.to[1] - list.from[1] + 1) * (uint32_t)(list.to[2] - list.from[2] + 1);
    }

    /* Advance to the warp's next 32 rows; false if there are none. */
    __device__ __forceinline__ bool next_rows()
    {
        const uint32_t lane = threadIdx.x & 31, part = threadIdx.x / 32, images = images_near(), rows = rows_near();
        if (begun >= rows)
            return false;
        const uint32_t line = MIXED ? __brev(lane) >> 27 : lane;
        const uint32_t own = begun + line * PARTS + (part + 3 * line) % PARTS;
        struct packed_row row = {0, 0, {0, 0, 0}};
        const int low[3] = {list.low[0], list.low[1], list.low[2]};
        if (own < rows)
            row = packed_row_of(job, list.from, list.to, images, low, own);
        uint32_t before = row.count;
        for (int step = 1; step < 32; step *= 2) {
            const uint32_t added = __shfl_up_sync(~0u, before, step);
            before += lane >= (uint32_t)step ? added : 0;
        }
        all = __shfl_sync(~0u, before, 31);
        before -= row.count;
        listed_rows &to = list.rows[part];
        const uint32_t some = __ballot_sync(~0u, row.count > 0), earlier = (1u << lane) - 1;
        const int place = row.count > 0 ? __popc(some & earlier) : __popc(some) + __popc(~some & earlier);
        __syncwarp();
        to.before[place] = row.count > 0 ? before : UINT32_MAX;
        to.shift[place] = row.first - before;
        for (int d = 0; d < 3; d++)
            to.low[d][place] = row.low[d];
        __syncwarp();
        next = 0;
        begun += 32 * PARTS;
        return true;
    }

    /* Restrict the search to part `part` of `parts` of the warp's candidates. */
    __device__ __forceinline__ void take_part(unsigned long long part, unsigned long long parts)
    {
        unsigned long long sum = 0;
        if (parts == 1)
            return;
        while (next_rows())
            sum += all;
        whole = false;
        if ((threadIdx.x & 31) == 0) {
            const unsigned long long skip = sum * part / parts;
            list.skip[threadIdx.x / 32] = skip;
            list.left[threadIdx.x / 32] = sum * (part + 1) / parts - skip;
        }
        __syncwarp();
        begun = 0;
        all = next = 0;
    }

    /* Examine up to 32 candidates from `next` on. */
    __device__ __forceinline__ void look(uint32_t count, int &held)
    {
        const uint32_t lane = threadIdx.x & 31, part = threadIdx.x / 32, number = next + lane;
        const listed_rows &rows = list.rows[part];
        /* A candidate's row: those that begin before all of these 32, and those that begin up to it. */
        const uint32_t begins = rows.before[lane], ahead = begins - next;
        const uint32_t starts = __reduce_or_sync(~0u, ahead < 32 ? 1u << ahead : 0);
        const int of = __popc(__ballot_sync(~0u, begins < next)) + __popc(starts & ((2u << lane) - 1)) - 1;
        const uint32_t point = rows.shift[of] + number;
        bool near = lane < count;
        int4 place;
        uint2 within = make_uint2(0, 0);
        float value = 0;
        if (near) {
            place = job.place[point];
            value = LEAN ? 0 : job.packed[point];
            place.x -= rows.low[0][of];
            place.y -= rows.low[1][of];
            place.z -= rows.low[2][of];
            if (MASKS)
                within = masks_of(job, tile, point, place);
            near = MASKS ? within.x != 0 : place_reaches<LEAN>(job, place, job.middle, job.half);
        }
        const uint32_t hits = __ballot_sync(~0u, near);
        if (near) {
            const int to = held + __popc(hits & ((1u << lane) - 1));
            list.place[part][to] = place;
            if (!LEAN)
                list.value[part][to] = value;
            if (!LEAN && !MASKS)
                list.point[part][to] = point;
            if (MASKS)
                list.within[part][to] = within;
        }
        held += __popc(hits);
        next += count;
    }

    /* For a part: how many of `count` candidates from `next` on are to be searched, after skipping those before the
     * part. */
    __device__ __forceinline__ uint32_t of_part(uint32_t count)
    {
        const uint32_t part = threadIdx.x / 32;
        const unsigned long long skip = list.skip[part], left = list.left[part];
        const uint32_t over = skip < all - next ? (uint32_t)skip : all - next;
        next += over;
        count = over > 0 ? 0 : left < count ? (uint32_t)left : count;
        __syncwarp();
        if ((threadIdx.x & 31) == 0) {
            list.skip[part] = skip - over;
            list.left[part] = left - count;
        }
        __syncwarp();
        return count;
    }

    /* Fill the warp's part of the list; returns whether there may be more candidates. */
    __device__ __forceinline__ bool fill()
    {
        int held = 0;
        bool more = true;
        while (more && held + LEAST <= CAP) {
            if (next >= all) {
                more = (whole || list.left[threadIdx.x / 32] > 0) && next_rows();
                continue;
            }
            uint32_t count = min(min(32u, all - next), (uint32_t)(CAP - held));
            if (!whole) {
                count = of_part(count);
                more = list.left[threadIdx.x / 32] > 0;
            }
            if (count > 0)
                look(count, held);
            if (whole && next >= all)
                more = begun < rows_near();
        }
        if ((threadIdx.x & 31) == 0)
            list.held[threadIdx.x / 32] = held;
        return more;
    }
};

} // namespace

#endif
