/* scatter_near_list.cuh: the list of points near a tile of a 3-D grid, used by the quick sums to grids
 * (scatter_nodes.cuh, scatter_spheres.cuh, scatter_cubes.cuh). Positions are packed before (scatter_pack.cuh). Each
 * warp searches its share of the rows of bins near the tile, 32 candidates at a time, and fills its own part of the
 * block's list without waiting for other warps. */
#ifndef MRIRECON_SCATTER_NEAR_LIST_CUH
#define MRIRECON_SCATTER_NEAR_LIST_CUH

#include "gridding/range/gpu/scatter_pack.cuh"

namespace
{

/* ---- a block's list ---- */

/* Up to 32 rows that a warp searches and that are not empty: the number of candidates in the rows before each (beyond
 * the last: UINT32_MAX), the offset from a candidate's number to its point, and the tile's first node relative to the
 * row's image. */
struct listed_rows {
    uint32_t before[32], shift[32];
    int low[3][32];
};

/* The tile's first node; bins near the tile, numbered continuously across images. */
struct listed_span {
    int low[3], from[3], to[3];
};

/* What is listed of a point. LEAN: its place, of which .w has the value; points have no scales. MASKS: value, and the
 * nodes that it reaches. OCTANTS: value, number, and the octants of the tile that it reaches. */
enum listing { LEAN, MASKS, OCTANTS };

/* PARTS: number of warps, each with room for CAP points. The state of a warp's search is here too, because the
 * registers are needed for the sums. */
template <int PARTS, int CAP, enum listing LISTS>
struct near_list {
    int4 place[PARTS][CAP]; /* relative to the tile's first node; .w as packed */
    float value[PARTS][LISTS == LEAN ? 1 : CAP];
    uint32_t point[PARTS][LISTS == OCTANTS ? CAP : 1];
    uint2 within[PARTS][LISTS == MASKS ? CAP : 1];      /* masks_of() */
    uint8_t octants[PARTS][LISTS == OCTANTS ? CAP : 1]; /* octants_of() */
    int held[PARTS];
    listed_span span[PARTS]; /* the same for all */
    listed_rows rows[PARTS];
    unsigned long long skip[PARTS], left[PARTS]; /* candidates to skip, and then to search */
};

/* The bins of axis d near the tile of which node `low` is the first, as near_span_of(), or one more. */
__device__ __forceinline__ void bins_about(const scatter_job &job, int d, int low, int &first, int &last)
{
    const int end = min(low + job.tile[d], job.points.box.cells[d]) - 1;
    const float wide = job.widest_bins[d], slack = 4e-3f + 4e-7f * wide; /* more than rounding errors */
    const int from = (int)floorf((float)low * job.node_bins[d] - wide - slack),
              to = (int)floorf((float)end * job.node_bins[d] + wide + slack);
    const bool open = !job.points.box.periodic[d];
    first = open ? min(max(from, 0), job.points.bins[d] - 1) : from;
    last = open ? min(max(to, 0), job.points.bins[d] - 1) : to;
}

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

/* A run of points, and the tile's first node relative to its image. */
struct packed_row {
    uint32_t first, count;
    int low[3];
};

/* Row `row` of those nearby: bins from[d] to to[d], in `images` images along x. For radial laws, bins at its ends that
 * cannot reach the tile are cut off. OPEN: no axis is periodic. */
template <bool OPEN>
__device__ __forceinline__ struct packed_row packed_row_of(const scatter_job &job, const int *first_bin,
                                                           const int *last_bin, uint32_t images, const int low[3],
                                                           uint32_t row)
{
    const points_view &p = job.points;
    const uint32_t heights = (uint32_t)(last_bin[1] - first_bin[1] + 1), line = images == 1 ? row : row / images,
                   plane = quotient(line, heights);
    const int bin[2] = {first_bin[1] + (int)(line - plane * heights), first_bin[2] + (int)plane};
    const int image[3] = {OPEN ? 0 : image_in(first_bin[0], p.bins[0]) + (int)(row - line * images),
                          OPEN ? 0 : image_in(bin[0], p.bins[1]), OPEN ? 0 : image_in(bin[1], p.bins[2])};
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
#pragma unroll
    for (int d = 0; d < 3; d++)
        r.low[d] = (low[d] - image[d] * p.box.cells[d]) << job.bits;
    return r;
}

/* List a row a lane, those that are not empty; returns their candidates. Called by all lanes. */
__device__ __forceinline__ uint32_t put_rows(listed_rows &to, const packed_row &row)
{
    const uint32_t lane = threadIdx.x & 31;
    uint32_t before = row.count;
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t added = __shfl_up_sync(~0u, before, step);
        before += lane >= (uint32_t)step ? added : 0;
    }
    const uint32_t all = __shfl_sync(~0u, before, 31);
    before -= row.count;
    const uint32_t some = __ballot_sync(~0u, row.count > 0), earlier = (1u << lane) - 1;
    const int place = row.count > 0 ? __popc(some & earlier) : __popc(some) + __popc(~some & earlier);
    __syncwarp();
    to.before[place] = row.count > 0 ? before : UINT32_MAX;
    to.shift[place] = row.first - before;
    for (int d = 0; d < 3; d++)
        to.low[d][place] = row.low[d];
    __syncwarp();
    return all;
}

/* The listed row of candidate `base` + lane: rows that begin before all of these 32, and those that begin up to it.
 * begins: the start of row `lane`. Called by all lanes. */
__device__ __forceinline__ int row_of_candidate(uint32_t begins, uint32_t base)
{
    const uint32_t ahead = begins - base, starts = __reduce_or_sync(~0u, ahead < 32 ? 1u << ahead : 0);
    return __popc(__ballot_sync(~0u, begins < base)) + __popc(starts & ((2u << (threadIdx.x & 31)) - 1)) - 1;
}

/* A packed position in nodes, less `middle`, with an error of 2^-10 nodes; avoids the conversion unit, which other
 * instructions need.
 */
__device__ __forceinline__ float place_about(const scatter_job &job, int x, float middle)
{
    return fmaf(__int_as_float((x >> 9) + 0x4b400000) - 12582912.f, 512 * job.step, -middle);
}

/* Whether a point without a scale reaches a box of nodes, or nearly reaches it. */
__device__ __forceinline__ bool place_reaches(const scatter_job &job, const int4 &p, const float middle[3],
                                              const float half[3])
{
    const float reach = job.reach * 1.00001f;
    const float x = fmaxf(fabsf(place_about(job, p.x, middle[0])) - half[0], 0.f) * job.width[0],
                y = fmaxf(fabsf(place_about(job, p.y, middle[1])) - half[1], 0.f) * job.width[1],
                z = fmaxf(fabsf(place_about(job, p.z, middle[2])) - half[2], 0.f) * job.width[2];
    return fmaf(x, x, fmaf(y, y, z * z)) < reach * reach;
}

/* The image of the box that a list entry belongs to, along axis d; `rel` is its position relative to the tile's first
 * node. */
__device__ __forceinline__ int entry_image(const scatter_job &job, int rel, int place, int d, int low)
{
    const long long whole = (long long)rel + ((long long)low << job.bits) - place;
    return (int)rint((double)whole * job.per_box[d]);
}

/* The position of a listed point in double precision, in nodes relative to the tile's first. Without divisions: they
 * are calls, for which registers are saved. */
__device__ __forceinline__ void exact_place(const scatter_job &job, uint32_t tile, uint32_t point, const int4 &rel,
                                            double at[3])
{
    const points_view &p = job.points;
    int low[3];
    tile_low(job, tile, low);
    const int4 place = job.place[point];
    const int from[3] = {rel.x, rel.y, rel.z}, packed[3] = {place.x, place.y, place.z};
    for (int d = 0; d < 3; d++) {
        const double off = points_at(p, d, point) - p.box.origin[d], about = off * job.nodes_of[d];
        /* off / spacing, rounded once */
        const double nodes = fma(fma(-about, p.box.spacing[d], off), job.nodes_of[d], about);
        at[d] =
            nodes + (double)entry_image(job, from[d], packed[d], d, low[d]) * (double)p.box.cells[d] - (double)low[d];
    }
}

/* ---- the nodes that a point reaches, as masks ---- */

/* Nodes along y and z in a mask; along x there are twice as many. */
enum { MASK_SIDE = 16 };

/* Which of 32 nodes along axis d are within reach of a point, in double precision: bit k. rel: as in near_list. */
__device__ __noinline__ uint32_t exact_mask(const scatter_job &job, uint32_t tile, uint32_t point, int4 rel, int d)
{
    double at[3];
    exact_place(job, tile, point, rel, at);
    const double reach = job.law.reach * (double)fabsf(__int_as_float(rel.w));
    uint32_t mask = 0;
    for (int k = 0; k < 2 * MASK_SIDE; k++)
        mask |= (uint32_t)(fabs((k - at[d]) * job.spacing[d]) < reach) << k;
    return mask;
}

/* The same of fixed-point numbers. No node lies next to where the reach ends (is_doubtful_cube()). */
__device__ __forceinline__ uint32_t node_mask(int at, int reach, int bits)
{
    const int from = max(((at - reach) >> bits) + 1, 0), to = (at + reach + (1 << bits) - 1) >> bits;
    uint32_t mask;
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(mask) : "r"(from), "r"(max(to - from, 0)));
    return mask;
}

/* The nodes of a tile that a point reaches: x: along x; y: along y, and along z in the upper half. 0: none along some
 * axis. */
__device__ __forceinline__ uint2 masks_of(const scatter_job &job, uint32_t tile, uint32_t point, const int4 &rel)
{
    const float scale = __int_as_float(rel.w), positive = fabsf(scale);
    uint32_t x = node_mask(rel.x, __float2int_rn(positive * job.reach_steps[0]), job.bits),
             y = node_mask(rel.y, __float2int_rn(positive * job.reach_steps[1]), job.bits),
             z = node_mask(rel.z, __float2int_rn(positive * job.reach_steps[2]), job.bits);
    if (scale < 0) {
        x = exact_mask(job, tile, point, rel, 0);
        y = exact_mask(job, tile, point, rel, 1);
        z = exact_mask(job, tile, point, rel, 2);
    }
    const uint32_t flat = __byte_perm(y, z, 0x5410);
    return x && flat & 0xffff && flat >> MASK_SIDE ? make_uint2(x, flat) : make_uint2(0, 0);
}

/* ---- the octants that a point reaches ---- */

enum { OCTANT_SIDE = MASK_SIDE / 2 };

/* Which octants of a tile of MASK_SIDE^3 nodes a point reaches, or nearly reaches: bit x + 2 y + 4 z. */
__device__ __forceinline__ uint32_t octants_of(const scatter_job &job, const int4 &p)
{
    const float half = half_side(OCTANT_SIDE), reach = job.reach * fabsf(__int_as_float(p.w)) * 1.00001f;
    const int at[3] = {p.x, p.y, p.z};
    float gap2[3][2];
#pragma unroll
    for (int d = 0; d < 3; d++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float middle = 0.5f * (float)(OCTANT_SIDE - 1) + (float)(h * OCTANT_SIDE);
            const float gap = fmaxf(fabsf(place_about(job, at[d], middle)) - half, 0.f) * job.width[d];
            gap2[d][h] = gap * gap;
        }
    uint32_t octants = 0;
#pragma unroll
    for (int n = 0; n < 8; n++)
        octants |= gap2[0][n & 1] + gap2[1][n >> 1 & 1] < fmaf(reach, reach, -gap2[2][n >> 2]) ? 1u << n : 0;
    return octants;
}

/* ---- the search ---- */

/* A warp's share of the candidates: rows part, part + PARTS, ..., 32 at a time, one per lane. MIXED: in an order in
 * which every part of a list has points of all sides of the tile, so that warps have alike much to do. AHEAD: for how
 * many times 32 candidates a warp waits at once. */
template <int PARTS, int CAP, bool MIXED, enum listing LISTS, int AHEAD = 1> struct near_scan {
    /* Fewer candidates are not examined to fill the list. */
    enum { LEAST = LISTS == LEAN ? 8 : 32 };
    const scatter_job &job;
    near_list<PARTS, CAP, LISTS> &list;
    uint32_t tile;
    uint32_t begun;     /* rows of which a warp's search has begun, of all warps */
    uint32_t all, next; /* candidates of the pass; the next candidate */
    bool whole;         /* all candidates are to be searched */

    __device__ __forceinline__ near_scan(const scatter_job &j, near_list<PARTS, CAP, LISTS> &l, uint32_t t)
        : job(j), list(l), tile(t), begun(0), all(0), next(0), whole(true)
    {
        const int d = (int)(threadIdx.x & 31);
        int low[3];
        tile_low(job, tile, low);
        if (d < 3) {
            span().low[d] = d == 0 ? low[0] : d == 1 ? low[1] : low[2];
            find_span(d);
        }
        __syncwarp();
    }

    __device__ __forceinline__ listed_span &span() const
    {
        return list.span[threadIdx.x / 32];
    }

    __device__ __forceinline__ void find_span(int d)
    {
        listed_span &s = span();
        bins_about(job, d, s.low[d], s.from[d], s.to[d]);
    }

    /* Images along x of the rows near the tile; these rows. */
    __device__ __forceinline__ uint32_t images_near() const
    {
        const int bins = job.points.bins[0];
        const int from = span().from[0], to = span().to[0];
        return from >= 0 && to < bins ? 1 : (uint32_t)(image_in(to, bins) - image_in(from, bins) + 1);
    }

    __device__ __forceinline__ uint32_t rows_near() const
    {
        const listed_span &s = span();
        return images_near() * (uint32_t)(s.to[1] - s.from[1] + 1) * (uint32_t)(s.to[2] - s.from[2] + 1);
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
        if (own < rows)
            row = packed_row_of<false>(job, span().from, span().to, images, span().low, own);
        all = put_rows(list.rows[part], row);
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

    /* Candidate `next` + lane + 32 k: its place as packed, its value, and its row. */
    struct candidate {
        int4 place;
        float value;
        uint32_t point;
        int row;
    };

    /* Load the candidates of a lane, of `count` from `next` on. */
    __device__ __forceinline__ void load(uint32_t count, candidate to[AHEAD]) const
    {
        const uint32_t lane = threadIdx.x & 31;
        const listed_rows &rows = list.rows[threadIdx.x / 32];
        const uint32_t begins = rows.before[lane];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint32_t base = next + 32 * k;
            if (k > 0 && 32 * k >= count)
                break;
            to[k].row = row_of_candidate(begins, base);
            to[k].point = rows.shift[to[k].row] + base + lane;
            if (lane + 32 * k < count) {
                to[k].place = job.place[to[k].point];
                to[k].value = LISTS == LEAN ? 0 : job.packed[to[k].point];
            }
        }
    }

    /* Examine up to 32 AHEAD candidates from `next` on. */
    __device__ __forceinline__ void look(uint32_t count, int &held)
    {
        const uint32_t lane = threadIdx.x & 31, part = threadIdx.x / 32;
        const listed_rows &rows = list.rows[part];
        candidate found[AHEAD];
        load(count, found);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            bool near = lane + 32 * k < count;
            uint2 within = make_uint2(0, 0);
            uint32_t octants = 0;
            int4 &place = found[k].place;
            if (k > 0 && 32 * k >= count)
                break;
            if (near) {
                place.x -= rows.low[0][found[k].row];
                place.y -= rows.low[1][found[k].row];
                place.z -= rows.low[2][found[k].row];
                if (LISTS == MASKS)
                    within = masks_of(job, tile, found[k].point, place);
                if (LISTS == OCTANTS)
                    octants = octants_of(job, place);
                near = LISTS == MASKS     ? within.x != 0
                       : LISTS == OCTANTS ? octants != 0
                                          : place_reaches(job, place, job.middle, job.half);
            }
            const uint32_t hits = __ballot_sync(~0u, near);
            if (near) {
                const int to = held + __popc(hits & ((1u << lane) - 1));
                list.place[part][to] = place;
                if (LISTS != LEAN)
                    list.value[part][to] = found[k].value;
                if (LISTS == OCTANTS)
                    list.point[part][to] = found[k].point;
                if (LISTS == MASKS)
                    list.within[part][to] = within;
                if (LISTS == OCTANTS)
                    list.octants[part][to] = (uint8_t)octants;
            }
            held += __popc(hits);
        }
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
            uint32_t count = min(min(32u * AHEAD, all - next), (uint32_t)(CAP - held));
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
