/* scatter_near_list.cuh: the list of points near a tile of a 3-D grid, used by the quick sums to grids
 * (scatter_nodes.cuh, scatter_spheres.cuh, scatter_cubes.cuh). Positions are packed before (scatter_pack.cuh). Each
 * warp searches its share of the rows of bins near the tile, 32 candidates at a time, and fills its own part of the
 * block's list without waiting for other warps. */
#ifndef MRIRECON_SCATTER_NEAR_LIST_CUH
#define MRIRECON_SCATTER_NEAR_LIST_CUH

#include "gridding/range/gpu/scatter_near_parts.cuh"

namespace
{

/* ---- a block's list ---- */

/* Up to 32 rows that a warp searches and that are not empty: the number of candidates in the rows before each (beyond
 * the last: UINT32_MAX), and the offset from a candidate's number to its point. */
struct listed_rows {
    uint32_t before[32], shift[32];
};

/* The image of the box along each axis, between -IMAGES / 2 and IMAGES / 2 (packed_bits() in scatter_job.cuh). */
enum { IMAGE_BITS = 10, IMAGES = 1 << IMAGE_BITS };

__device__ __forceinline__ uint32_t image_word(const int image[3])
{
    uint32_t word = 0;
    for (int d = 2; d >= 0; d--)
        word = word << IMAGE_BITS | (uint32_t)(image[d] + IMAGES / 2);
    return word;
}

__device__ __forceinline__ int image_along(uint32_t word, int d)
{
    return (int)(word >> d * IMAGE_BITS & (IMAGES - 1)) - IMAGES / 2;
}

/* The tile's first node; bins near the tile, numbered continuously across images. */
struct listed_span {
    int low[3], from[3], to[3];
};

/* What is listed of a point. LEAN: its place, of which .w has the value, and the slices of the tile that it reaches;
 * points have no scales, and those of value 0 are left out. SIGNED: the same, and points of negative value from the end
 * of a warp's list backwards. MASKS: value, and the nodes that it reaches. OCTANTS: value, number, and the octants of
 * the tile that it reaches. */
enum listing { LEAN, SIGNED, MASKS, OCTANTS };

/* PARTS: number of warps, each with room for CAP points. The state of a warp's search is here too, because the
 * registers are needed for the sums. */
template <int PARTS, int CAP, enum listing LISTS>
struct near_list {
    int4 place[PARTS][CAP]; /* relative to the tile's first node; .w as packed */
    float value[PARTS][LISTS == LEAN || LISTS == SIGNED ? 1 : CAP];
    uint32_t point[PARTS][LISTS == OCTANTS ? CAP : 1];
    uint2 within[PARTS][LISTS == MASKS ? CAP : 1];                      /* masks_of() */
    uint8_t octants[PARTS][LISTS == OCTANTS ? CAP : 1];                 /* octants_of() */
    uint32_t slices[PARTS][LISTS == LEAN || LISTS == SIGNED ? CAP : 1]; /* slices_of() */
    int held[PARTS], behind[PARTS];                                     /* points from the start, and from the end */
    listed_span span[PARTS];                                            /* the same for all */
    listed_rows rows[PARTS];
    /* Of each row: the tile's first node relative to the row's image; or, which takes less room, that image. */
    int low[PARTS][3][LISTS == LEAN || LISTS == SIGNED ? 1 : 32];
    uint32_t image[PARTS][LISTS == LEAN || LISTS == SIGNED ? 32 : 1];
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

/* A run of points, and its image. */
struct packed_row {
    uint32_t first, count;
    int image[3];
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
    struct packed_row r = {0, 0, {image[0], image[1], image[2]}};
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
    return r;
}

/* List a row a lane, those that are not empty; returns their candidates, and where the lane's row is. Called by all
 * lanes, which then need a barrier. */
__device__ __forceinline__ uint32_t put_rows(listed_rows &to, const packed_row &row, int &place)
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
    place = row.count > 0 ? __popc(some & earlier) : __popc(some) + __popc(~some & earlier);
    __syncwarp();
    to.before[place] = row.count > 0 ? before : UINT32_MAX;
    to.shift[place] = row.first - before;
    return all;
}

/* The listed row of candidate `base` + lane: rows that begin before all of these 32, and those that begin up to it.
 * begins: the start of row `lane`. Called by all lanes. */
__device__ __forceinline__ int row_of_candidate(uint32_t begins, uint32_t base)
{
    const uint32_t ahead = begins - base, starts = __reduce_or_sync(~0u, ahead < 32 ? 1u << ahead : 0);
    return __popc(__ballot_sync(~0u, begins < base)) + __popc(starts & ((2u << (threadIdx.x & 31)) - 1)) - 1;
}

/* ---- the search ---- */

/* A warp's share of the candidates: rows part, part + PARTS, ..., 32 at a time, one per lane. MIXED: in an order in
 * which every part of a list has points of all sides of the tile, so that warps have alike much to do. AHEAD: for how
 * many times 32 candidates a warp waits at once. */
template <int PARTS, int CAP, bool MIXED, enum listing LISTS, int AHEAD = 1> struct near_scan {
    /* Fewer candidates are not examined to fill the list. */
    enum { PLAIN = LISTS == LEAN || LISTS == SIGNED, LEAST = PLAIN ? 8 : 32 };
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

    /* The tile's first node relative to an image, as a place. */
    __device__ __forceinline__ int tile_place(int d, int image) const
    {
        return (span().low[d] - image * job.points.box.cells[d]) << job.bits;
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
        int place;
        if (own < rows)
            row = packed_row_of<false>(job, span().from, span().to, images, span().low, own);
        all = put_rows(list.rows[part], row, place);
        if (PLAIN)
            list.image[part][place] = image_word(row.image);
        else
            for (int d = 0; d < 3; d++)
                list.low[part][d][place] = tile_place(d, row.image[d]);
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
                to[k].value = PLAIN ? 0 : job.packed[to[k].point];
            }
        }
    }

    /* Examine up to 32 AHEAD candidates from `next` on. */
    __device__ __forceinline__ void look(uint32_t count, int &held, int &behind)
    {
        const uint32_t lane = threadIdx.x & 31, part = threadIdx.x / 32, earlier = (1u << lane) - 1;
        candidate found[AHEAD];
        load(count, found);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            bool near = lane + 32 * k < count;
            uint2 within = make_uint2(0, 0);
            uint32_t parts = 0;
            int4 &place = found[k].place;
            if (k > 0 && 32 * k >= count)
                break;
            if (near) {
                const int row = found[k].row;
                const uint32_t image = PLAIN ? list.image[part][row] : 0;
                place.x -= PLAIN ? tile_place(0, image_along(image, 0)) : list.low[part][0][row];
                place.y -= PLAIN ? tile_place(1, image_along(image, 1)) : list.low[part][1][row];
                place.z -= PLAIN ? tile_place(2, image_along(image, 2)) : list.low[part][2][row];
                if (LISTS == MASKS)
                    within = masks_of(job, tile, found[k].point, place);
                else
                    parts = LISTS == OCTANTS ? octants_of(job, place) : slices_of(job, place);
                near = LISTS == MASKS ? within.x != 0 : parts != 0 && (!PLAIN || __int_as_float(place.w) != 0);
            }
            const uint32_t hits = __ballot_sync(~0u, near);
            uint32_t backwards = 0;
            if (LISTS == SIGNED)
                backwards = __ballot_sync(~0u, near && place.w < 0);
            if (near) {
                int to = held + __popc(hits & ~backwards & earlier);
                if (LISTS == SIGNED && place.w < 0)
                    to = CAP - 1 - behind - __popc(backwards & earlier);
                list.place[part][to] = place;
                if (!PLAIN)
                    list.value[part][to] = found[k].value;
                if (PLAIN)
                    list.slices[part][to] = parts;
                if (LISTS == OCTANTS) {
                    list.point[part][to] = found[k].point;
                    list.octants[part][to] = (uint8_t)parts;
                }
                if (LISTS == MASKS)
                    list.within[part][to] = within;
            }
            held += __popc(hits & ~backwards);
            behind += __popc(backwards);
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
        int held = 0, behind = 0;
        bool more = true;
        while (more && held + behind + LEAST <= CAP) {
            if (next >= all) {
                more = (whole || list.left[threadIdx.x / 32] > 0) && next_rows();
                continue;
            }
            uint32_t count = min(min(32u * AHEAD, all - next), (uint32_t)(CAP - held - behind));
            if (!whole) {
                count = of_part(count);
                more = list.left[threadIdx.x / 32] > 0;
            }
            if (count > 0)
                look(count, held, behind);
            if (whole && next >= all)
                more = begun < rows_near();
        }
        if ((threadIdx.x & 31) == 0) {
            list.held[threadIdx.x / 32] = held;
            if (LISTS == SIGNED)
                list.behind[threadIdx.x / 32] = behind;
        }
        return more;
    }
};

} // namespace

#endif
