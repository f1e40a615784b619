/* pencils_simd.h: the loops of pencils.h for one instruction set; pencils_sse2.c, pencils_avx2.c and pencils_avx512.c
 * include it and are compiled with that set's flags. Vectors are the compiler's own: 16 floats.
 *
 * Which nodes lie within reach is decided once for each row, in double precision, and exactly: an end of the pencil
 * that rounding could move is tried. The law is then evaluated along x without any test but for the last vector's
 * lanes. */
#include "gridding/range/pencils.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors stay inside this file */

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(64)));
typedef float vec_unaligned __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vec_int __attribute__((vector_size(64)));

static const vec_int lane_number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

INLINE vec load(const float *p)
{
    return *(const vec_unaligned *)p;
}

INLINE void store(float *p, vec v)
{
    *(vec_unaligned *)p = v;
}

INLINE vec splat(float f)
{
    return (vec){f, f, f, f, f, f, f, f, f, f, f, f, f, f, f, f};
}

INLINE vec_int splat_int(int32_t i)
{
    return (vec_int){i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i};
}

INLINE vec only(vec v, vec_int mask)
{
    return (vec)((vec_int)v & mask);
}

/* The sum of a vector's lanes. */
INLINE double total(vec v)
{
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    return (double)v[0] + (double)v[1] + (double)v[2] + (double)v[3];
}

/* 1 / sqrt(x), x > 0, by the unit's estimate and one step of Newton's: to 2^-22. */
INLINE vec inverse_root(vec x)
{
    vec y;
#if defined(__AVX512F__)
    y = (vec)_mm512_rsqrt14_ps((__m512)x);
#elif defined(__AVX__)
    for (int half = 0; half < 2; half++) {
        __m256 part;
        memcpy(&part, (const char *)&x + 32 * half, 32);
        part = _mm256_rsqrt_ps(part);
        memcpy((char *)&y + 32 * half, &part, 32);
    }
#else
    for (int quarter = 0; quarter < 4; quarter++) {
        __m128 part;
        memcpy(&part, (const char *)&x + 16 * quarter, 16);
        part = _mm_rsqrt_ps(part);
        memcpy((char *)&y + 16 * quarter, &part, 16);
    }
#endif
    return y * (splat(1.5f) - splat(0.5f) * x * y * y);
}

INLINE unsigned mask_bits(vec_int mask)
{
#if defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX__)
    unsigned bits = 0;
    for (int half = 0; half < 2; half++) {
        __m256 part;
        memcpy(&part, (const char *)&mask + 32 * half, 32);
        bits |= (unsigned)_mm256_movemask_ps(part) << (8 * half);
    }
    return bits;
#else
    unsigned bits = 0;
    for (int quarter = 0; quarter < 4; quarter++) {
        __m128 part;
        memcpy(&part, (const char *)&mask + 16 * quarter, 16);
        bits |= (unsigned)_mm_movemask_ps(part) << (4 * quarter);
    }
    return bits;
#endif
}

/* ---- the law ---- */

/* A law for one scale. */
struct scaled {
    const float *c;
    int degree, power;
    bool shorter; /* RANGE_SHORT */
    float slope;  /* s = 1 + slope r^2 */
    float unit2;  /* r^2 unit2: in units of the scale */
    float least2, soft2;
    float spline, spline2; /* its radius, and that squared; 0: none */
};

INLINE struct scaled scaled_law(const struct range_law *law, double scale)
{
    const struct range_law_params *p = &law->params;
    return (struct scaled){law->c,
                           law->degree,
                           p->power,
                           p->form == RANGE_SHORT,
                           (float)(-2 / (p->reach * p->reach * scale * scale)),
                           (float)(1 / (scale * scale)),
                           (float)(p->least * p->least * scale * scale),
                           (float)(p->soft * p->soft),
                           (float)p->spline,
                           (float)(p->spline * p->spline)};
}

INLINE vec polynomial(const struct scaled *law, vec s)
{
    vec value = splat(law->c[law->degree]);
    for (int d = law->degree - 1; d >= 0; d--)
        value = value * s + splat(law->c[d]);
    return value;
}

/* 1 / r^power of a mass smoothed by a spline of radius h, where r < h; x = r / h. The integrals of the spline: V.
 * Springel, N. Yoshida, S.D.M. White, New Astron. 6, 79, 2001, doi:10.1016/S1384-1076(01)00042-2, eq. 71 and its
 * potential. */
INLINE vec splined(const struct scaled *law, vec r2, vec root)
{
    const vec_int some = r2 > splat(0), inside = r2 < splat(law->spline2);
    const float unit = 1 / law->spline;
    const vec x = only(r2 * root, some) * splat(unit), x2 = x * x, over = root * splat(law->spline);
    vec inner, outer, far = root;
    if (law->power == 3) {
        inner = splat(32.0f / 3) + x2 * (splat(32) * x - splat(38.4f));
        outer = splat(64.0f / 3) - splat(48) * x + splat(38.4f) * x2 - splat(32.0f / 3) * x2 * x -
                splat(1.0f / 15) * over * over * over;
        inner *= splat(unit * unit * unit);
        outer *= splat(unit * unit * unit);
        far = root * root * root;
    } else {
        inner = splat(2.8f) - x2 * (splat(16.0f / 3) - x2 * (splat(9.6f) - splat(6.4f) * x));
        outer = splat(3.2f) - splat(1.0f / 15) * over -
                x2 * (splat(32.0f / 3) - x * (splat(16) - x * (splat(9.6f) - splat(32.0f / 15) * x)));
        inner *= splat(unit);
        outer *= splat(unit);
    }
    const vec_int half = x < splat(0.5f);
    const vec near = only(inner, half) + only(outer, ~half);
    return only(near, inside) + only(far, ~inside);
}

/* What inverse laws of one least, soft and spline share. */
struct inverse {
    vec softened, root; /* r^2 + soft^2, and 1 / its root */
    vec_int held;       /* lanes that are not 0 */
};

INLINE struct inverse inverse_at(const struct scaled *law, vec r2)
{
    const vec softened = r2 * splat(law->unit2) + splat(law->soft2);
    return (struct inverse){softened, inverse_root(softened), (softened > splat(0)) & (r2 >= splat(law->least2))};
}

INLINE vec inverse_law(const struct scaled *law, vec r2, struct inverse i)
{
    const vec value = polynomial(law, splat(1) + r2 * splat(law->slope));
    if (law->spline > 0 && mask_bits(i.softened < splat(law->spline2))) {
        const vec near = splined(law, i.softened, i.root);
        return law->shorter ? near - value : near * value;
    }
    const vec root = law->power == 3 ? i.root * i.root * i.root : i.root;
    return only(law->shorter ? root - value : root * value, i.held);
}

/* The law at squared distances r2. */
INLINE vec law_at(const struct scaled *law, vec r2, const bool inverse)
{
    if (!inverse)
        return polynomial(law, splat(1) + r2 * splat(law->slope));
    return inverse_law(law, r2, inverse_at(law, r2));
}

/* ---- a point and nodes ---- */

/* Nodes from `first` to `last` (with both) of an axis, less than `reach` from `at`, of low to high (without). */
struct extent {
    int first, last;
};

INLINE struct extent clip(double first, double last, int low, int high)
{
    return (struct extent){first > low ? (int)first : low, last < high - 1 ? (int)last : high - 1};
}

/* Those of a row whose squared distance along x is below `rest` (lengths squared). */
INLINE struct extent pencil_of(double at, double spacing, double rest, int low, int high)
{
    double half = sqrt(rest) / spacing, from = at - half, to = at + half;
    /* Far from the block nothing is tried: a node is an int there. */
    if (from > high || to < low)
        return (struct extent){0, -1};
    from = from < low - 2 ? low - 2 : from;
    to = to > high + 1 ? high + 1 : to;
    double first = ceil(from), last = floor(to), near = 1e-9 * (1 + fabs(at));
    /* A node at the very end: beside it, or on it? */
    double end = rint(from), away = (end - at) * spacing;
    if (fabs(from - end) < near)
        first = away * away < rest ? end : end + 1;
    end = rint(to);
    away = (end - at) * spacing;
    if (fabs(to - end) < near)
        last = away * away < rest ? end : end - 1;
    return clip(first, last, low, high);
}

INLINE vec read_nodes(const float *from, const float *end)
{
    if (from + PENCIL_LANES <= end)
        return load(from);
    float part[PENCIL_LANES] = {0};
    memcpy(part, from, (size_t)(end - from) * sizeof *part);
    return load(part);
}

/* `sums` is NULL for scatter. What a node beyond reach holds does not matter, if it is no number either. */
INLINE void use(const struct pencil_block *b, float *row, vec weight, const int channels, const float *value, vec *sums)
{
    for (int c = 0; c < channels; c++, row += b->channel)
        if (sums)
            sums[c] += only(weight * read_nodes(row, b->end), weight != splat(0));
        else
            store(row, load(row) + weight * splat(value[c]));
}

/* One axis' squared distances, and the nodes that they are of. */
INLINE struct extent squares(const struct pencil_law *l, const struct pencil_point *p, const struct pencil_block *b,
                             const int d, double reach, double square[PENCIL_NODES])
{
    if (d >= l->dim) {
        square[0] = 0;
        return (struct extent){0, 0};
    }
    struct extent e = pencil_of(p->at[d], l->spacing[d], reach * reach, b->low[d], b->high[d]);
    for (int i = e.first; i <= e.last; i++) {
        double away = (i - p->at[d]) * l->spacing[d];
        square[i - b->low[d]] = away * away;
    }
    return e;
}

INLINE float *row_of(const struct pencil_block *b, int y, int z)
{
    return b->cells + (size_t)(z - b->low[2]) * b->plane + (size_t)(y - b->low[1]) * b->row;
}

INLINE void radial_nodes(const struct pencil_law *l, const struct pencil_point *p, const struct pencil_block *b,
                         vec *sums, const int channels, const bool inverse)
{
    const struct scaled law = scaled_law(l->law, p->scale);
    const double reach = l->law->params.reach * p->scale, reach2 = reach * reach;
    const float spacing = (float)l->spacing[0];
    double square[2][PENCIL_NODES];
    const struct extent ys = squares(l, p, b, 1, reach, square[0]), zs = squares(l, p, b, 2, reach, square[1]);
    const double base = rint(p->at[0]);
    const vec fraction = splat((float)(p->at[0] - base));
    for (int z = zs.first; z <= zs.last; z++)
        for (int y = ys.first; y <= ys.last; y++) {
            const double off = square[0][y - b->low[1]] + square[1][z - b->low[2]], rest = reach2 - off;
            if (rest <= 0)
                continue;
            const struct extent xs = pencil_of(p->at[0], l->spacing[0], rest, b->low[0], b->high[0]);
            float *row = row_of(b, y, z) + (xs.first - b->low[0]);
            vec_int node = lane_number + splat_int(xs.first - (int)base);
            for (int left = xs.last - xs.first + 1; left > 0; left -= PENCIL_LANES, row += PENCIL_LANES) {
                const vec x = (__builtin_convertvector(node, vec) - fraction) * splat(spacing);
                vec weight = law_at(&law, x * x + splat((float)off), inverse);
                if (left < PENCIL_LANES)
                    weight = only(weight, lane_number < splat_int(left));
                use(b, row, weight, channels, p->value, sums);
                node += splat_int(PENCIL_LANES);
            }
        }
}

/* Weights of an axis' nodes, whole vectors of them, 0 behind the last. */
INLINE struct extent weights(const struct pencil_law *l, const struct scaled *law, const struct pencil_point *p,
                             const struct pencil_block *b, const int d, double reach,
                             float weight[PENCIL_NODES + PENCIL_LANES])
{
    if (d >= l->dim) {
        weight[0] = 1;
        return (struct extent){0, 0};
    }
    const struct extent e = pencil_of(p->at[d], l->spacing[d], reach * reach, b->low[d], b->high[d]);
    const double base = rint(p->at[d]);
    const vec fraction = splat((float)(p->at[d] - base)), spacing = splat((float)l->spacing[d]);
    for (int first = e.first; first <= e.last; first += PENCIL_LANES) {
        const vec_int node = lane_number + splat_int(first - (int)base);
        const vec x = (__builtin_convertvector(node, vec) - fraction) * spacing;
        store(weight + (first - e.first), only(law_at(law, x * x, false), lane_number < splat_int(e.last - first + 1)));
    }
    return e;
}

INLINE void separable_nodes(const struct pencil_law *l, const struct pencil_point *p, const struct pencil_block *b,
                            vec *sums, const int channels)
{
    const struct scaled law = scaled_law(l->law, p->scale);
    const double reach = l->law->params.reach * p->scale;
    float weight[3][PENCIL_NODES + PENCIL_LANES];
    struct extent e[3];
    for (int d = 0; d < 3; d++)
        e[d] = weights(l, &law, p, b, d, reach, weight[d]);
    for (int z = e[2].first; z <= e[2].last; z++)
        for (int y = e[1].first; y <= e[1].last; y++) {
            const vec off = splat(weight[2][z - e[2].first] * weight[1][y - e[1].first]);
            float *row = row_of(b, y, z) + (e[0].first - b->low[0]);
            for (int x = 0; x <= e[0].last - e[0].first; x += PENCIL_LANES, row += PENCIL_LANES)
                use(b, row, load(weight[0] + x) * off, channels, p->value, sums);
        }
}

INLINE void nodes(const struct pencil_law *l, const struct pencil_point *p, const struct pencil_block *b, vec *sums,
                  const int channels)
{
    if (l->law->params.form == RANGE_SEPARABLE)
        separable_nodes(l, p, b, sums, channels);
    else if (l->law->params.form == RANGE_RADIAL)
        radial_nodes(l, p, b, sums, channels, false);
    else
        radial_nodes(l, p, b, sums, channels, true);
}

static void scatter(const struct pencil_law *l, const struct pencil_point *p, const struct pencil_block *b)
{
    if (l->channels == 1)
        nodes(l, p, b, NULL, 1);
    else
        nodes(l, p, b, NULL, l->channels);
}

static void gather(const struct pencil_law *l, struct pencil_point *p, const struct pencil_block *b)
{
    vec sums[PENCIL_CHANNELS];
    for (int c = 0; c < l->channels; c++)
        sums[c] = splat(0);
    if (l->channels == 1)
        nodes(l, p, b, sums, 1);
    else
        nodes(l, p, b, sums, l->channels);
    for (int c = 0; c < l->channels; c++)
        p->value[c] += (float)total(sums[c]);
}

/* ---- a point and points ---- */

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

/* Which lanes from point j on are pairs; `self`: the point that is not paired. */
INLINE vec_int pair_lanes(const struct pair_run *run, size_t self, size_t j)
{
    vec_int lanes = lane_number < splat_int((int32_t)(run->count - j < PENCIL_LANES ? run->count - j : PENCIL_LANES));
    if (self - j < PENCIL_LANES)
        lanes &= lane_number != splat_int((int32_t)(self - j));
    return lanes;
}

/* Whether point i may have partners in the run, and where it lies. */
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

/* What to sum, as constants that each loop below is compiled for. */
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
    enum { BLOCK = 4096 }; /* points that a lane's float32 sum takes, times 16 */
    for (size_t from = 0; from < run->count; from += BLOCK) {
        vec sum[PAIR_PARTS] = {splat(0), splat(0), splat(0), splat(0)};
        const size_t to = run->count - from < BLOCK ? run->count : from + BLOCK;
        for (size_t j = from; j < to; j += PENCIL_LANES) {
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

/* Numbers of the lanes in `bits`, one after the other from `to` on; PENCIL_LANES of them may be written. */
INLINE void pack(int32_t *to, vec_int numbers, unsigned bits)
{
#if defined(__AVX512F__)
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)bits, (__m512i)numbers));
#else
    int32_t lane[PENCIL_LANES] __attribute__((aligned(64)));
    *(vec_int *)lane = numbers;
    for (int n = 0, i = 0; i < PENCIL_LANES; i++) {
        to[n] = lane[i];
        n += bits >> i & 1;
    }
#endif
}

/* Pairs within the table's range, listed before they are counted: their places, and points i and j. */
enum { LIST = 1024 };
struct listed {
    int pairs;
    int32_t place[LIST + PENCIL_LANES], i[LIST + PENCIL_LANES], j[LIST + PENCIL_LANES];
};

INLINE void count_listed(struct listed *l, const struct pair_counts *to)
{
    const uint16_t *table = to->table;
    uint64_t *counts = to->counts;
    for (int n = 0; n < l->pairs; n++) {
        const unsigned interval = table[l->place[n]];
        if (__builtin_expect(interval < PAIR_DOUBT, 1))
            counts[interval * PAIR_COPIES + (unsigned)n % PAIR_COPIES]++;
        else if (interval == PAIR_DOUBT)
            to->doubt(to->of, (size_t)l->i[n], (size_t)l->j[n]);
    }
    l->pairs = 0;
}

INLINE void list_pairs(const int dim, const bool rest, const struct pair_place *p, const struct pair_run *run, size_t i,
                       size_t self, const struct pair_counts *to, struct listed *l)
{
    const vec most = splat((float)to->places);
    for (size_t j = 0; j < run->count; j += PENCIL_LANES) {
        vec away[3];
        const vec places = pair_squares(dim, rest, p, run, j, away) * splat(to->step);
        const vec_int near = places < most;
        const unsigned bits = mask_bits(pair_lanes(run, self, j) & near);
        pack(l->place + l->pairs, __builtin_convertvector(only(places, near), vec_int), bits);
        pack(l->j + l->pairs, lane_number + splat_int((int32_t)j), bits);
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
