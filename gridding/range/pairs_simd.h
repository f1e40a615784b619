/* pairs_simd.h: the loops of pencils.h over pairs of points, for one instruction set: sums, and counts of distances.
 * The other half of pencils_simd.h, which includes it. */
#ifndef MRIRECON_PAIRS_SIMD_H
#define MRIRECON_PAIRS_SIMD_H

#include "gridding/range/law_simd.h"
#include "gridding/range/pencils.h"

/* A point of a block. */
struct pair_place {
    float at[3], rest[3];
};

/* Differences are of float32 coordinates first: near points, they are exact or nearly so. */
INLINE vec pair_squares(const int dim, const bool rest, const struct pair_place *p, const struct pair_run *run,
                        size_t j, vec away[3])
{
    vec r2 = splat(0);
    for (int d = 0; d < dim; d++) {
        away[d] = load(run->at[d] + j) - splat(p->at[d]);
        if (rest)
            away[d] += load(run->rest[d] + j) - splat(p->rest[d]);
        r2 += away[d] * away[d];
    }
    return r2;
}

/* The lanes from point j on that are pairs; `self`: the point that is not paired. */
INLINE vec_int pair_lanes(const struct pair_run *run, size_t self, size_t j)
{
    vec_int lanes = lane_numbers() < splat_int((int32_t)(run->count - j < VEC_LANES ? run->count - j : VEC_LANES));
    if (self - j < VEC_LANES)
        lanes &= lane_numbers() != splat_int((int32_t)(self - j));
    return lanes;
}

/* Whether point i may have partners in the run, and its position. */
INLINE bool pair_point(const int dim, const bool rest, const struct pair_block *of, size_t i, struct pair_place *p)
{
    double off = 0;
    for (int d = 0; d < dim; d++) {
        p->at[d] = of->at[d][i];
        p->rest[d] = rest ? of->rest[d][i] : 0;
        const double place = (double)p->at[d] + (double)p->rest[d], below = of->low[d] - place,
                     above = place - of->high[d], away = below > above ? below : above;
        off += d > 0 && away > 0 ? away * away : 0;
    }
    return off <= of->reach2;
}

/* The laws of a sum over pairs, for scale 1. */
struct pair_scaled {
    struct scaled vectors, scalars;
    bool inverse_vectors, inverse_scalars;
    float reach2;
};

INLINE bool is_inverse(const struct range_law *law)
{
    return law && (law->params.form == RANGE_INVERSE || law->params.form == RANGE_SHORT);
}

INLINE struct pair_scaled pair_scaled(const struct pair_laws *laws)
{
    const struct range_law *any = laws->vectors ? laws->vectors : laws->scalars;
    return (struct pair_scaled){scaled_law(laws->vectors ? laws->vectors : any, 1),
                                scaled_law(laws->scalars ? laws->scalars : any, 1), is_inverse(laws->vectors),
                                is_inverse(laws->scalars), (float)(any->params.reach * any->params.reach)};
}

/* The sums wanted, as constants for which each loop below is specialised. */
struct pair_loop {
    int dim;
    bool vectors, scalars, rest;
};

INLINE void pair_vector(const struct pair_loop loop, const struct pair_scaled *l, const struct pair_run *run, size_t j,
                        size_t self, vec r2, const vec away[3], vec sum[PAIR_PARTS])
{
    vec value = load(run->value + j);
    if (run->scale) {
        const vec unit = splat(1) / load(run->scale + j);
        r2 *= unit * unit;
    }
    const vec_int lanes = pair_lanes(run, self, j) & (r2 < splat(l->reach2));
    value = only(value, lanes);
    struct inverse shared = {0};
    if (l->inverse_vectors || l->inverse_scalars)
        shared = inverse_at(l->inverse_vectors ? &l->vectors : &l->scalars, r2);
    if (loop.vectors) {
        const vec law = l->inverse_vectors ? inverse_law(&l->vectors, r2, shared) : law_at(&l->vectors, r2, false);
        const vec weight = only(law, lanes) * value;
        for (int d = 0; d < loop.dim; d++)
            sum[d] += weight * away[d];
    }
    if (loop.scalars) {
        const vec law = l->inverse_scalars ? inverse_law(&l->scalars, r2, shared) : law_at(&l->scalars, r2, false);
        sum[PAIR_SCALAR] += only(law, lanes) * value;
    }
}

INLINE void pair_sums(const struct pair_loop loop, const struct pair_scaled *l, const struct pair_place *p,
                      const struct pair_run *run, size_t self, double sums[PAIR_PARTS])
{
    enum { BLOCK = 256 * VEC_LANES }; /* 256 points per lane of a float32 sum */
    for (size_t from = 0; from < run->count; from += BLOCK) {
        vec sum[PAIR_PARTS] = {splat(0), splat(0), splat(0), splat(0)};
        const size_t to = run->count - from < BLOCK ? run->count : from + BLOCK;
        for (size_t j = from; j < to; j += VEC_LANES) {
            vec away[3];
            const vec r2 = pair_squares(loop.dim, loop.rest, p, run, j, away);
            pair_vector(loop, l, run, j, self, r2, away, sum);
        }
        for (int d = 0; d < loop.dim && loop.vectors; d++)
            sums[d] += total(sum[d]);
        if (loop.scalars)
            sums[PAIR_SCALAR] += total(sum[PAIR_SCALAR]);
    }
}

INLINE void pair_points(const struct pair_loop loop, const struct pair_laws *laws, const struct pair_block *of,
                        const struct pair_run *run, double (*sums)[PAIR_PARTS])
{
    const struct pair_scaled l = pair_scaled(laws);
    struct pair_place p;
    for (size_t i = 0; i < of->count; i++)
        if (pair_point(loop.dim, loop.rest, of, i, &p))
            pair_sums(loop, &l, &p, run, of->self + i, sums[i]);
}

INLINE void pair_dim(const int dim, const bool rest, const struct pair_laws *laws, const struct pair_block *of,
                     const struct pair_run *run, double (*sums)[PAIR_PARTS])
{
    if (laws->vectors && laws->scalars)
        pair_points((struct pair_loop){dim, true, true, rest}, laws, of, run, sums);
    else if (laws->vectors)
        pair_points((struct pair_loop){dim, true, false, rest}, laws, of, run, sums);
    else
        pair_points((struct pair_loop){dim, false, true, rest}, laws, of, run, sums);
}

static void pairs(const struct pair_laws *laws, int dim, const struct pair_block *of, const struct pair_run *run,
                  double (*sums)[PAIR_PARTS])
{
    if (dim == 3 && run->rest[0])
        pair_dim(3, true, laws, of, run, sums);
    else if (dim == 3)
        pair_dim(3, false, laws, of, run, sums);
    else
        pair_points((struct pair_loop){dim, laws->vectors, laws->scalars, run->rest[0]}, laws, of, run, sums);
}

#if VEC_LANES == 8
/* The lanes in `bits`, in order, a byte each, for all `bits` of eight lanes. */
#define LANE_AT(bits, i) \
    ((bits) >> (i)&1 ? (uint64_t)(i) << 8 * __builtin_popcount((unsigned)(bits) & ((1u << (i)) - 1)) : 0)
#define LANES_OF(bits)                                                                                                 \
    (LANE_AT(bits, 1) | LANE_AT(bits, 2) | LANE_AT(bits, 3) | LANE_AT(bits, 4) | LANE_AT(bits, 5) | LANE_AT(bits, 6) | \
     LANE_AT(bits, 7))
#define LANES_OF_4(bits)  LANES_OF(bits), LANES_OF((bits) + 1), LANES_OF((bits) + 2), LANES_OF((bits) + 3)
#define LANES_OF_16(bits) LANES_OF_4(bits), LANES_OF_4((bits) + 4), LANES_OF_4((bits) + 8), LANES_OF_4((bits) + 12)
#define LANES_OF_64(bits) \
    LANES_OF_16(bits), LANES_OF_16((bits) + 16), LANES_OF_16((bits) + 32), LANES_OF_16((bits) + 48)
static const uint64_t lanes_of[256] = {LANES_OF_64(0), LANES_OF_64(64), LANES_OF_64(128), LANES_OF_64(192)};
#endif

/* The numbers of the lanes in `bits`, written from `to` on; up to VEC_LANES numbers may be overwritten. */
INLINE void pack(int32_t *to, vec_int numbers, unsigned bits)
{
#if VEC_LANES == 16
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, (__m512i)numbers));
#elif VEC_LANES == 8
    const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)&lanes_of[bits]));
    _mm256_storeu_si256((__m256i *)to, _mm256_permutevar8x32_epi32((__m256i)numbers, order));
#else
    int32_t lane[VEC_LANES] __attribute__((aligned(4 * VEC_LANES)));
    *(vec_int *)lane = numbers;
    for (int n = 0, i = 0; i < VEC_LANES; i++) {
        to[n] = lane[i];
        n += bits >> i & 1;
    }
#endif
}

/* The lanes from point j on that are near; to the box, not to its points. */
INLINE vec_int near_lanes_of(const int dim, const struct pair_run *run, const struct pair_near *near, size_t j)
{
    vec off2 = splat(0);
    for (int d = 0; d < dim; d++) {
        const vec at = load(run->at[d] + j), below = splat(near->low[d]) - at, above = at - splat(near->high[d]);
        const vec away = only(below, splat(0) < below) + only(above, splat(0) < above);
        off2 += away * away;
    }
    return pair_lanes(run, SIZE_MAX, j) & (off2 <= splat(near->reach2));
}

INLINE void near_pack(float *to, const float *from, unsigned bits)
{
    pack((int32_t *)to, (vec_int)load(from), bits);
}

INLINE void near_run(const int dim, const bool rest, const struct pair_run *run, struct pair_near *near)
{
    for (size_t j = 0; j < run->count; j += VEC_LANES) {
        const unsigned bits = mask_bits(near_lanes_of(dim, run, near, j));
        for (int d = 0; d < dim; d++) {
            near_pack(near->at[d] + near->count, run->at[d] + j, bits);
            if (rest)
                near_pack(near->rest[d] + near->count, run->rest[d] + j, bits);
        }
        near_pack(near->value + near->count, run->value + j, bits);
        if (run->scale)
            near_pack(near->scale + near->count, run->scale + j, bits);
        near->count += (size_t)__builtin_popcount(bits);
    }
}

static void near(int dim, const struct pair_run *run, struct pair_near *near)
{
    if (dim == 3 && run->rest[0])
        near_run(3, true, run, near);
    else if (dim == 3)
        near_run(3, false, run, near);
    else
        near_run(dim, run->rest[0], run, near);
}

/* Pairs within the table's range, listed before they are counted: table index, and points: i PAIR_RUN + j. */
enum { LIST = 1024 };
struct listed {
    int32_t place[LIST + VEC_LANES], points[LIST + VEC_LANES];
};

INLINE void count_listed(const struct listed *l, int pairs, const struct pair_counts *to)
{
    const uint16_t *table = to->table;
    uint64_t *counts = to->counts;
    for (int n = 0; n < pairs; n++) {
        const unsigned interval = table[l->place[n]];
        if (__builtin_expect(interval < INTERVAL_DOUBT, 1))
            counts[interval * PAIR_COPIES + (unsigned)n % PAIR_COPIES]++;
        else if (interval == INTERVAL_DOUBT)
            to->doubt(to->of, (size_t)(l->points[n] / PAIR_RUN), (size_t)(l->points[n] % PAIR_RUN));
    }
}

/* The points of a block that may have partners in a run: their numbers, times PAIR_RUN, and positions. */
struct near_points {
    int count;
    int32_t number[PAIR_BLOCK];
    float at[3][PAIR_BLOCK], rest[3][PAIR_BLOCK];
};

INLINE void near_points_of(const int dim, const bool rest, const struct pair_block *of, struct near_points *near)
{
    int count = 0;
    for (size_t i = 0; i < of->count; i++) {
        struct pair_place p;
        const bool some = pair_point(dim, rest, of, i, &p);
        for (int d = 0; d < dim; d++) {
            near->at[d][count] = p.at[d];
            near->rest[d][count] = p.rest[d];
        }
        near->number[count] = (int32_t)i * PAIR_RUN;
        count += some;
    }
    near->count = count;
}

/* Points j to j + VEC_LANES of the run with all of the block's, after `pairs` that are listed; returns how many then
 * are. itself: the run contains some of the block. */
INLINE int list_pairs(const int dim, const bool rest, const bool itself, const struct near_points *near,
                      const struct pair_run *run, size_t j, size_t self, const struct pair_counts *to, struct listed *l,
                      int pairs)
{
    const struct interval_octaves octaves = to->octaves;
    const vec_int there = pair_lanes(run, SIZE_MAX, j), numbers = lane_numbers() + splat_int((int32_t)j);
    vec at[3], left[3];
    for (int d = 0; d < dim; d++) {
        at[d] = load(run->at[d] + j);
        left[d] = rest ? load(run->rest[d] + j) : splat(0);
    }
    for (int i = 0; i < near->count; i++) {
        vec r2 = splat(0);
        for (int d = 0; d < dim; d++) {
            vec away = at[d] - splat(near->at[d][i]);
            if (rest)
                away += left[d] - splat(near->rest[d][i]);
            r2 += away * away;
        }
        const vec_int place = ((vec_int)r2 >> octaves.shift) - splat_int(octaves.first);
        vec_int near_lanes = there & (r2 < splat(octaves.limit));
        if (itself)
            near_lanes &= splat_int((int32_t)self + near->number[i] / PAIR_RUN) < numbers;
        const unsigned bits = mask_bits(near_lanes);
        pack(l->place + pairs, place & (splat_int(0) < place), bits);
        pack(l->points + pairs, numbers + splat_int(near->number[i]), bits);
        pairs += __builtin_popcount(bits);
        if (pairs >= LIST) {
            count_listed(l, pairs, to);
            pairs = 0;
        }
    }
    return pairs;
}

/* Vectors of the run are the outer loop: of many short runs, an inner one would end at a branch that is not predicted.
 */
INLINE void count_run(const int dim, const bool rest, const bool itself, const struct near_points *near,
                      const struct pair_run *run, size_t self, const struct pair_counts *to)
{
    struct listed l;
    int pairs = 0;
    for (size_t j = 0; j < run->count; j += VEC_LANES)
        pairs = list_pairs(dim, rest, itself, near, run, j, self, to, &l, pairs);
    count_listed(&l, pairs, to);
}

INLINE void count_block(const int dim, const bool rest, const struct pair_block *of, const struct pair_run *run,
                        const struct pair_counts *to)
{
    struct near_points near;
    near_points_of(dim, rest, of, &near);
    if (of->self < run->count || of->self > SIZE_MAX - PAIR_BLOCK)
        count_run(dim, rest, true, &near, run, of->self, to);
    else
        count_run(dim, rest, false, &near, run, of->self, to);
}

static void count(int dim, const struct pair_block *of, const struct pair_run *run, const struct pair_counts *to)
{
    if (dim == 3 && run->rest[0])
        count_block(3, true, of, run, to);
    else if (dim == 3)
        count_block(3, false, of, run, to);
    else
        count_block(dim, run->rest[0], of, run, to);
}

#endif
