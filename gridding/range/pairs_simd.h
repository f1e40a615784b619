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

/* The numbers of the lanes in `bits`, written from `to` on; up to VEC_LANES numbers may be overwritten. */
INLINE void pack(int32_t *to, vec_int numbers, unsigned bits)
{
#if VEC_LANES == 16
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, (__m512i)numbers));
#else
    int32_t lane[VEC_LANES] __attribute__((aligned(4 * VEC_LANES)));
    *(vec_int *)lane = numbers;
    for (int n = 0, i = 0; i < VEC_LANES; i++) {
        to[n] = lane[i];
        n += bits >> i & 1;
    }
#endif
}

/* Pairs within the table's range, listed before they are counted: table index, and points i and j. */
enum { LIST = 1024 };
struct listed {
    int pairs;
    int32_t place[LIST + VEC_LANES], i[LIST + VEC_LANES], j[LIST + VEC_LANES];
};

INLINE void count_listed(struct listed *l, const struct pair_counts *to)
{
    const uint16_t *table = to->table;
    uint64_t *counts = to->counts;
    for (int n = 0; n < l->pairs; n++) {
        const unsigned interval = table[l->place[n]];
        if (__builtin_expect(interval < INTERVAL_DOUBT, 1))
            counts[interval * PAIR_COPIES + (unsigned)n % PAIR_COPIES]++;
        else if (interval == INTERVAL_DOUBT)
            to->doubt(to->of, (size_t)l->i[n], (size_t)l->j[n]);
    }
    l->pairs = 0;
}

INLINE void list_pairs(const int dim, const bool rest, const struct pair_place *p, const struct pair_run *run, size_t i,
                       size_t self, const struct pair_counts *to, struct listed *l)
{
    const struct interval_octaves octaves = to->octaves;
    for (size_t j = 0; j < run->count; j += VEC_LANES) {
        vec away[3];
        const vec r2 = pair_squares(dim, rest, p, run, j, away);
        const vec_int place = ((vec_int)r2 >> octaves.shift) - splat_int(octaves.first);
        const unsigned bits = mask_bits(pair_lanes(run, self, j) & (r2 < splat(octaves.limit)));
        pack(l->place + l->pairs, place & (splat_int(0) < place), bits);
        pack(l->j + l->pairs, lane_numbers() + splat_int((int32_t)j), bits);
        store((float *)(l->i + l->pairs), (vec)splat_int((int32_t)i));
        l->pairs += __builtin_popcount(bits);
        if (l->pairs >= LIST)
            count_listed(l, to);
    }
}

INLINE void count_block(const int dim, const bool rest, const struct pair_block *of, const struct pair_run *run,
                        const struct pair_counts *to)
{
    struct listed l;
    struct pair_place p;
    l.pairs = 0;
    for (size_t i = 0; i < of->count; i++)
        if (pair_point(dim, rest, of, i, &p))
            list_pairs(dim, rest, &p, run, i, of->self + i, to, &l);
    count_listed(&l, to);
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
