/* pencils_simd.h: the loops of pencils.h for one instruction set; pencils_sse2.c, pencils_avx2.c and pencils_avx512.c
 * include it and are compiled with that set's flags. Here: a point and the nodes of a grid; pairs_simd.h: two points.
 *
 * The nodes within reach are determined once for each row, in double precision, and exactly: an end of the pencil that
 * rounding could move is tested. The law is then evaluated along x without tests, except for the lanes of the last
 * vector. */
#include "gridding/range/law_simd.h"
#include "gridding/range/pairs_simd.h"
#include "gridding/range/pencils.h"

#include <math.h>
#include <string.h>

/* Nodes [first, last] of an axis that are less than `reach` from `at`, within [low, high). */
struct extent {
    int first, last;
};

INLINE struct extent clip(double first, double last, int low, int high)
{
    return (struct extent){first > low ? (int)first : low, last < high - 1 ? (int)last : high - 1};
}

/* The nodes of a row whose squared distance along x is below `rest` (lengths squared). */
INLINE struct extent pencil_of(double at, double spacing, double rest, int low, int high)
{
    double half = sqrt(rest) / spacing, from = at - half, to = at + half;
    /* Far outside the block nothing is tested, because a node must fit an int. */
    if (from > high || to < low)
        return (struct extent){0, -1};
    from = from < low - 2 ? low - 2 : from;
    to = to > high + 1 ? high + 1 : to;
    double first = ceil(from), last = floor(to), near = 1e-9 * (1 + fabs(at));
    /* A node at the boundary: test whether it is inside. */
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
    if (from + VEC_LANES <= end)
        return load(from);
    float part[VEC_LANES] = {0};
    memcpy(part, from, (size_t)(end - from) * sizeof *part);
    return load(part);
}

/* `sums` is NULL for scatter. Values of nodes out of reach do not matter, even if NaN. */
INLINE void use(const struct pencil_block *b, float *row, vec weight, const int channels, const float *value, vec *sums)
{
    for (int c = 0; c < channels; c++, row += b->channel)
        if (sums)
            sums[c] += only(weight * read_nodes(row, b->end), weight != splat(0));
        else
            store(row, load(row) + weight * splat(value[c]));
}

/* Squared distances along one axis, and their nodes. */
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
            vec_int node = lane_numbers() + splat_int(xs.first - (int)base);
            for (int left = xs.last - xs.first + 1; left > 0; left -= VEC_LANES, row += VEC_LANES) {
                const vec x = (__builtin_convertvector(node, vec) - fraction) * splat(spacing);
                vec weight = law_at(&law, x * x + splat((float)off), inverse);
                if (left < VEC_LANES)
                    weight = only(weight, lane_numbers() < splat_int(left));
                use(b, row, weight, channels, p->value, sums);
                node += splat_int(VEC_LANES);
            }
        }
}

/* Weights of an axis' nodes, in whole vectors, 0 after the last. */
INLINE struct extent weights(const struct pencil_law *l, const struct scaled *law, const struct pencil_point *p,
                             const struct pencil_block *b, const int d, double reach,
                             float weight[PENCIL_NODES + VEC_LANES])
{
    if (d >= l->dim) {
        weight[0] = 1;
        return (struct extent){0, 0};
    }
    const struct extent e = pencil_of(p->at[d], l->spacing[d], reach * reach, b->low[d], b->high[d]);
    const double base = rint(p->at[d]);
    const vec fraction = splat((float)(p->at[d] - base)), spacing = splat((float)l->spacing[d]);
    for (int first = e.first; first <= e.last; first += VEC_LANES) {
        const vec_int node = lane_numbers() + splat_int(first - (int)base);
        const vec x = (__builtin_convertvector(node, vec) - fraction) * spacing;
        store(weight + (first - e.first),
              only(law_at(law, x * x, false), lane_numbers() < splat_int(e.last - first + 1)));
    }
    return e;
}

INLINE void separable_nodes(const struct pencil_law *l, const struct pencil_point *p, const struct pencil_block *b,
                            vec *sums, const int channels)
{
    const struct scaled law = scaled_law(l->law, p->scale);
    const double reach = l->law->params.reach * p->scale;
    float weight[3][PENCIL_NODES + VEC_LANES];
    struct extent e[3];
    for (int d = 0; d < 3; d++)
        e[d] = weights(l, &law, p, b, d, reach, weight[d]);
    for (int z = e[2].first; z <= e[2].last; z++)
        for (int y = e[1].first; y <= e[1].last; y++) {
            const vec off = splat(weight[2][z - e[2].first] * weight[1][y - e[1].first]);
            float *row = row_of(b, y, z) + (e[0].first - b->low[0]);
            for (int x = 0; x <= e[0].last - e[0].first; x += VEC_LANES, row += VEC_LANES)
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
