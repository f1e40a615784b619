/* points_simd.h: the loops of points.h for one instruction set; points_sse2.c, points_avx2.c and points_avx512.c
 * include it and are compiled with that set's flags.
 *
 * A point's contribution is a product of three rows. The x row (width cells of `lanes` complex values, contiguous in
 * the tile) is computed once per point, for all lanes: kernel_x * value. It is added, times one scalar, to each of the
 * width^(dim-1) rows of the tile. Points are processed in blocks, first all their rows, then all their sums, so that no
 * load waits for a recent store. */
#include "gridding/range/points.h"
#include "gridding/range/vec_simd.h"

#include <string.h>

typedef float vec_half __attribute__((vector_size(32), aligned(4), may_alias));
typedef float vec_quarter __attribute__((vector_size(16)));

/* Entries of an axis in block.along. */
#define AXIS(W) ((W) <= 8 ? 8 : LAW_LANES)

enum { BLOCK = 16, AHEAD = 3 * BLOCK, MOST_VECTORS = 20 };

/* The values computed for a block of points before its sums. */
struct block {
    /* Weights (separable) or squared distances (radial) of a point's cells along x, y and z, at axis * AXIS(W). */
    float along[BLOCK][3 * LAW_LANES] __attribute__((aligned(64)));
    float value[BLOCK][2 * RANGE_LANES_MOST] __attribute__((aligned(64)));
    float row[BLOCK][MOST_VECTORS * LAW_LANES] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

/* 8 floats, twice. */
INLINE vec twice(const float *p)
{
    const vec_half h = *(const vec_half *)p;
    return __builtin_shufflevector(h, h, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
}

INLINE vec halves(float a, float b)
{
    return (vec){a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
}

/* Squared distances, as (2 u / W)^2, of the cells 0..15 from a point. */
INLINE vec distances(float fraction, int width)
{
    const vec cell = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vec u = (cell + splat(fraction - 0.5f * (float)width)) * splat(2 / (float)width);
    return u * u;
}

INLINE void load_values(const struct points_run *run, size_t first, size_t n, const int L, const struct c32 *values,
                        size_t stride, struct block *b)
{
    const int copies = 2 * L < LAW_LANES ? LAW_LANES / (2 * L) : 1;
    /* Neighbours in a bin come from all over the scan: prefetch the values of a later block. */
    for (size_t i = first + AHEAD; i < first + AHEAD + n && i < run->count; i++)
        for (int l = 0; l < L; l++)
            __builtin_prefetch(values + (size_t)l * stride + run->point[i].source);
    for (size_t i = 0; i < n; i++) {
        float w = run->weight ? run->weight[first + i] : 1;
        const struct c32 *from = values + run->point[first + i].source;
        for (int l = 0; l < L; l++, from += stride)
            for (int copy = 0; copy < copies; copy++) {
                b->value[i][copy * 2 * L + 2 * l] = from->re * w;
                b->value[i][copy * 2 * L + 2 * l + 1] = from->im * w;
            }
    }
}

INLINE void store_value(const struct points_run *run, size_t i, const int L, const float *sums, struct c32 *values,
                        size_t stride)
{
    float w = run->weight ? run->weight[i] : 1;
    struct c32 *to = values + run->point[i].source;
    for (int l = 0; l < L; l++, to += stride) {
        to->re = sums[2 * l] * w;
        to->im = sums[2 * l + 1] * w;
    }
}

INLINE float *corner(const struct points_run *run, const struct range_point *p, const int L)
{
    size_t plane = run->dim == 3 ? p->cell[2] : 0;
    size_t row = plane * (size_t)run->tile.rows + p->cell[1];
    return run->tile.cells + row * (size_t)run->tile.row + (size_t)p->cell[0] * 2 * (size_t)L;
}

/* Weights of a point's cells along all axes. Their Horner chains are interleaved to hide latency, and kernels of up to
 * 8 cells have x and y in one vector. */
INLINE void weigh_point(const struct range_kernel *law, const float *fraction, const bool deep, const int W,
                        float *along)
{
    const float sx = 2 * fraction[0] - 1, sy = 2 * fraction[1] - 1, sz = 2 * fraction[2] - 1;
    if (AXIS(W) == 8) {
        const vec s = halves(sx, sy);
        vec xy = twice(law->c[law->degree]);
        vec_half z = *(const vec_half *)law->c[law->degree];
        for (int d = law->degree - 1; d >= 0; d--) {
            xy = xy * s + twice(law->c[d]);
            if (deep)
                z = z * sz + *(const vec_half *)law->c[d];
        }
        store(along, xy);
        *(vec_half *)(along + 2 * AXIS(W)) = z;
        return;
    }
    vec x = load(law->c[law->degree]), y = x, z = x;
    for (int d = law->degree - 1; d >= 0; d--) {
        const vec c = load(law->c[d]);
        x = x * splat(sx) + c;
        y = y * splat(sy) + c;
        if (deep)
            z = z * splat(sz) + c;
    }
    store(along, x);
    store(along + AXIS(W), y);
    store(along + 2 * AXIS(W), z);
}

/* Weights of a block; row[i] = those along x, per cell and lane. */
INLINE void weigh(const struct points_run *run, size_t first, size_t n, const int W, const int L, struct block *b)
{
    const int vectors = points_vectors(W, L);
    for (size_t i = 0; i < n; i++)
        weigh_point(run->law, run->point[first + i].fraction, run->dim == 3, W, b->along[i]);
    for (size_t i = 0; i < n; i++)
        for (int v = 0; v < vectors; v++) {
            const float *x = b->along[i] + v * LAW_LANES / (2 * L);
            vec row = splat(*x);
            if (L == 1) {
                const vec cells = load(x);
                row = __builtin_shufflevector(cells, cells, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
            } else if (L == 4) {
                row = halves(x[0], x[1]);
            }
            store(b->row[i] + v * LAW_LANES, row);
        }
}

INLINE void scatter_separable(const struct points_run *run, const struct c32 *values, size_t stride, const int W,
                              const int L)
{
    const int vectors = points_vectors(W, L), turn = 2 * L > LAW_LANES ? 2 * L / LAW_LANES : 1;
    const size_t row_step = (size_t)run->tile.row, plane_step = (size_t)run->tile.rows * row_step;
    const int planes = run->dim == 3 ? W : 1;
    struct block b;
    for (size_t first = 0; first < run->count; first += BLOCK) {
        size_t n = run->count - first < BLOCK ? run->count - first : BLOCK;
        load_values(run, first, n, L, values, stride, &b);
        weigh(run, first, n, W, L, &b);
        for (size_t i = 0; i < n; i++) {
            float *plane = corner(run, run->point + first + i, L);
            vec row[MOST_VECTORS];
            for (int v = 0; v < vectors; v++)
                row[v] = load(b.row[i] + v * LAW_LANES) * load(b.value[i] + v % turn * LAW_LANES);
            for (int z = 0; z < planes; z++, plane += plane_step) {
                float *t = plane;
                vec level[MOST_VECTORS];
                for (int v = 0; v < vectors; v++)
                    level[v] = planes > 1 ? row[v] * splat(b.along[i][2 * AXIS(W) + z]) : row[v];
                for (int y = 0; y < W; y++, t += row_step)
                    for (int v = 0; v < vectors; v++)
                        store(t + v * LAW_LANES, load(t + v * LAW_LANES) + level[v] * splat(b.along[i][AXIS(W) + y]));
            }
        }
    }
}

/* Sum the values of the same lane: `row` holds `vectors` vectors of cells x lanes. */
INLINE void fold(const vec *row, const int vectors, const int L, float *sums)
{
    const int turn = 2 * L > LAW_LANES ? 2 * L / LAW_LANES : 1;
    for (int t = 0; t < turn; t++) {
        vec sum = row[t];
        for (int v = t + turn; v < vectors; v += turn)
            sum += row[v];
        store(sums + t * LAW_LANES, sum);
    }
    if (2 * L < LAW_LANES) {
        const vec v = load(sums);
        const vec_half half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                              __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
        if (L == 4) {
            *(vec_half *)sums = half;
            return;
        }
        const vec_quarter quarter =
            __builtin_shufflevector(half, half, 0, 1, 2, 3) + __builtin_shufflevector(half, half, 4, 5, 6, 7);
        sums[0] = quarter[0] + quarter[2];
        sums[1] = quarter[1] + quarter[3];
    }
}

INLINE void gather_separable(const struct points_run *run, struct c32 *values, size_t stride, const int W, const int L)
{
    const int vectors = points_vectors(W, L), planes = run->dim == 3 ? W : 1;
    const size_t row_step = (size_t)run->tile.row, plane_step = (size_t)run->tile.rows * row_step;
    struct block b;
    for (size_t first = 0; first < run->count; first += BLOCK) {
        size_t n = run->count - first < BLOCK ? run->count - first : BLOCK;
        /* Neighbours in a bin are written all over the scan: prefetch the addresses of a later block. */
        for (size_t i = first + AHEAD; i < first + AHEAD + n && i < run->count; i++)
            for (int l = 0; l < L; l++)
                __builtin_prefetch(values + (size_t)l * stride + run->point[i].source, 1);
        weigh(run, first, n, W, L, &b);
        for (size_t i = 0; i < n; i++) {
            const float *plane = corner(run, run->point + first + i, L);
            vec row[MOST_VECTORS];
            for (int v = 0; v < vectors; v++)
                row[v] = splat(0);
            /* One sum per plane: a single chain of additions through all rows would be bound by latency. */
            for (int z = 0; z < planes; z++, plane += plane_step) {
                const float *t = plane;
                vec level[MOST_VECTORS];
                for (int v = 0; v < vectors; v++)
                    level[v] = load(t + v * LAW_LANES) * splat(b.along[i][AXIS(W)]);
                t += row_step;
                for (int y = 1; y < W; y++, t += row_step)
                    for (int v = 0; v < vectors; v++)
                        level[v] += load(t + v * LAW_LANES) * splat(b.along[i][AXIS(W) + y]);
                for (int v = 0; v < vectors; v++)
                    row[v] = planes > 1 ? row[v] + level[v] * splat(b.along[i][2 * AXIS(W) + z]) : level[v];
            }
            for (int v = 0; v < vectors; v++)
                row[v] *= load(b.row[i] + v * LAW_LANES);
            float sums[2 * RANGE_LANES_MOST];
            fold(row, vectors, L, sums);
            store_value(run, first + i, L, sums, values, stride);
        }
    }
}

/* Kernel values of one row of cells, at squared distances `rest` + those of b->x; 0 outside. */
INLINE vec radial_row(const struct range_kernel *law, const struct block *b, size_t i, float rest)
{
    vec t = splat(1 - rest) - load(b->along[i]), value = splat(law->c[law->degree][0]);
    for (int d = law->degree - 1; d >= 0; d--)
        value = value * t + splat(law->c[d][0]);
    return (vec)((vec_int)value & below(splat(0), t));
}

/* The radial kernel is not separable: every row has its own weights. */
INLINE void radial(const struct points_run *run, const struct c32 *from, struct c32 *to, size_t stride, const int L)
{
    const int W = run->law->width;
    struct block b;
    for (size_t first = 0; first < run->count; first += BLOCK) {
        size_t n = run->count - first < BLOCK ? run->count - first : BLOCK;
        if (from)
            load_values(run, first, n, L, from, stride, &b);
        for (size_t i = 0; i < n; i++) {
            const struct range_point *p = run->point + first + i;
            store(b.along[i], distances(p->fraction[0], W));
            store(b.along[i] + LAW_LANES, distances(p->fraction[1], W));
            store(b.along[i] + 2 * LAW_LANES, distances(p->fraction[2], W));
            float *plane = corner(run, p, L), sums[2 * RANGE_LANES_MOST] = {0};
            for (int z = 0; z < (run->dim == 3 ? W : 1); z++, plane += (size_t)run->tile.rows * (size_t)run->tile.row) {
                float *t = plane;
                for (int y = 0; y < W; y++, t += run->tile.row) {
                    float w[LAW_LANES];
                    store(w,
                          radial_row(run->law, &b, i,
                                     b.along[i][LAW_LANES + y] + (run->dim == 3 ? b.along[i][2 * LAW_LANES + z] : 0)));
                    for (int x = 0; x < W; x++)
                        for (int e = 0; e < 2 * L; e++)
                            if (from)
                                t[x * 2 * L + e] += w[x] * b.value[i][e];
                            else
                                sums[e] += w[x] * t[x * 2 * L + e];
                }
            }
            if (to)
                store_value(run, first + i, L, sums, to, stride);
        }
    }
}

#define FOR_WIDTHS(CALL, L)    \
    switch (run->law->width) { \
    case 2:                    \
        CALL(2, L);            \
        break;                 \
    case 3:                    \
        CALL(3, L);            \
        break;                 \
    case 4:                    \
        CALL(4, L);            \
        break;                 \
    case 5:                    \
        CALL(5, L);            \
        break;                 \
    case 6:                    \
        CALL(6, L);            \
        break;                 \
    case 7:                    \
        CALL(7, L);            \
        break;                 \
    case 8:                    \
        CALL(8, L);            \
        break;                 \
    case 9:                    \
        CALL(9, L);            \
        break;                 \
    default:                   \
        CALL(10, L);           \
    }
#define SCATTER(W, L) scatter_separable(run, values, stride, W, L)
#define GATHER(W, L)  gather_separable(run, values, stride, W, L)
#define FOR_LANES(NAME, VALUES, CALL, FROM, TO)                                     \
    static void NAME##_1(const struct points_run *run, VALUES, size_t stride)       \
    {                                                                               \
        FOR_WIDTHS(CALL, 1)                                                         \
    }                                                                               \
    static void NAME##_4(const struct points_run *run, VALUES, size_t stride)       \
    {                                                                               \
        FOR_WIDTHS(CALL, 4)                                                         \
    }                                                                               \
    static void NAME##_8(const struct points_run *run, VALUES, size_t stride)       \
    {                                                                               \
        FOR_WIDTHS(CALL, 8)                                                         \
    }                                                                               \
    static void NAME##_16(const struct points_run *run, VALUES, size_t stride)      \
    {                                                                               \
        FOR_WIDTHS(CALL, 16)                                                        \
    }                                                                               \
    static void NAME(const struct points_run *run, VALUES, size_t stride)           \
    {                                                                               \
        bool r = run->law->radial;                                                  \
        switch (run->lanes) {                                                       \
        case 1:                                                                     \
            r ? radial(run, FROM, TO, stride, 1) : NAME##_1(run, values, stride);   \
            break;                                                                  \
        case 4:                                                                     \
            r ? radial(run, FROM, TO, stride, 4) : NAME##_4(run, values, stride);   \
            break;                                                                  \
        case 8:                                                                     \
            r ? radial(run, FROM, TO, stride, 8) : NAME##_8(run, values, stride);   \
            break;                                                                  \
        default:                                                                    \
            r ? radial(run, FROM, TO, stride, 16) : NAME##_16(run, values, stride); \
        }                                                                           \
    }

FOR_LANES(scatter, const struct c32 *values, SCATTER, values, NULL)
FOR_LANES(gather, struct c32 *values, GATHER, NULL, values)

const struct points_leaf POINTS_LEAF = {scatter, gather};
