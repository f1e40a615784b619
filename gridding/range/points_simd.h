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

/* Entries of an axis in block.along. */
#define AXIS(W) ((W) <= 8 ? 8 : LAW_LANES)

enum { BLOCK = 16, AHEAD = 3 * BLOCK, MOST_VECTORS = 20 * LAW_LANES / VEC_LANES };

/* The vectors of a row are summed in at most four equal parts, each of which registers hold beside what is added (of
 * SSE2, not the longest). */
enum { PART = VEC_LANES == 8 ? 12 : 20 };
INLINE int parts_of(const int vectors)
{
    return (vectors + PART - 1) / PART;
}

/* SUM(..., first, vectors) of each part: calls of their own, so that sizes are constants. */
#define BY_PARTS(VECTORS, SUM, ...)                                                  \
    do {                                                                             \
        const int all = (VECTORS), each = (all + parts_of(all) - 1) / parts_of(all); \
        SUM(__VA_ARGS__, 0, each);                                                   \
        if (all > each)                                                              \
            SUM(__VA_ARGS__, each, all < 2 * each ? all - each : each);              \
        if (all > 2 * each)                                                          \
            SUM(__VA_ARGS__, 2 * each, all < 3 * each ? all - 2 * each : each);      \
        if (all > 3 * each)                                                          \
            SUM(__VA_ARGS__, 3 * each, all - 3 * each);                              \
    } while (0)

/* The values computed for a block of points before its sums. */
struct block {
    /* Weights (separable) or squared distances (radial) of a point's cells along x, y and z, at axis * AXIS(W). */
    float along[BLOCK][3 * LAW_LANES] __attribute__((aligned(64)));
    float value[BLOCK][2 * RANGE_LANES_MOST] __attribute__((aligned(64)));
    float row[BLOCK][MOST_VECTORS * LAW_LANES] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

/* Vectors that hold one row of W cells. */
INLINE int row_vectors(const int W, const int L)
{
    return (W * 2 * L + VEC_LANES - 1) / VEC_LANES;
}

/* Squared distances, as (2 u / W)^2, of the cells 0..15 from a point. */
INLINE void distances(float fraction, int width, float to[LAW_LANES])
{
    for (int x = 0; x < LAW_LANES; x += VEC_LANES) {
        const vec cell = __builtin_convertvector(lane_numbers() + splat_int(x), vec),
                  u = (cell + splat(fraction - 0.5f * (float)width)) * splat(2 / (float)width);
        store(to + x, u * u);
    }
}

/* The values of two lanes; of one lane, twice. */
INLINE __m128 pair_load(const struct c32 *from, size_t stride, const int L)
{
    const __m128 first = _mm_loadl_pi(_mm_setzero_ps(), (const __m64 *)from);
    return L == 1 ? _mm_movelh_ps(first, first) : _mm_loadh_pi(first, (const __m64 *)(from + stride));
}

INLINE void load_values(const struct points_run *run, size_t first, size_t n, const int L, const struct c32 *values,
                        size_t stride, struct block *b)
{
    const int pairs = (L + 1) / 2, copies = pairs * 4 < VEC_LANES ? VEC_LANES / (pairs * 4) : 1;
    /* Neighbours in a bin come from all over the scan: prefetch the values of a later block. */
    for (size_t i = first + AHEAD; i < first + AHEAD + n && i < run->count; i++)
        for (int l = 0; l < L; l++)
            __builtin_prefetch(values + (size_t)l * stride + run->point[i].source);
    for (size_t i = 0; i < n; i++) {
        const __m128 w = _mm_set1_ps(run->weight ? run->weight[first + i] : 1);
        const struct c32 *from = values + run->point[first + i].source;
        for (int pair = 0; pair < pairs; pair++, from += 2 * stride) {
            const __m128 two = pair_load(from, stride, L) * w;
            for (int copy = 0; copy < copies; copy++)
                _mm_store_ps(b->value[i] + (copy * pairs + pair) * 4, two);
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

/* What vector v of the weights of all axes holds: entries of AXIS(W) floats, of which a vector has a part, one or two.
 */
INLINE vec of_axes(const float *c, const int W, const int v)
{
#if VEC_LANES == 16
    if (AXIS(W) == 8) {
        const __m512 once = _mm512_castps256_ps512(_mm256_loadu_ps(c));
        return (vec)_mm512_shuffle_f32x4(once, once, 0x44);
    }
#endif
    return load(c + v * VEC_LANES % AXIS(W));
}

INLINE vec place_of_axes(const float s[4], const int W, const int v)
{
    const int axis = v * VEC_LANES / AXIS(W);
#if VEC_LANES == 16
    if (AXIS(W) == 8)
        return (vec)_mm512_mask_blend_ps(0xff00, _mm512_set1_ps(s[axis]), _mm512_set1_ps(s[axis + 1]));
#endif
    return splat(s[axis]);
}

/* Weights of a point's cells along all axes. The Horner chains of its vectors are interleaved to hide latency. */
INLINE void weigh_point(const struct range_kernel *law, const float *fraction, const int dim, const int W, float *along)
{
    const float s[4] = {2 * fraction[0] - 1, 2 * fraction[1] - 1, 2 * fraction[2] - 1, 0};
    const int vectors = (dim * AXIS(W) + VEC_LANES - 1) / VEC_LANES;
    vec sum[3 * LAW_LANES / VEC_LANES], at[3 * LAW_LANES / VEC_LANES];
    for (int v = 0; v < vectors; v++) {
        sum[v] = of_axes(law->c[law->degree], W, v);
        at[v] = place_of_axes(s, W, v);
    }
    for (int d = law->degree - 1; d >= 0; d--)
        for (int v = 0; v < vectors; v++)
            sum[v] = sum[v] * at[v] + of_axes(law->c[d], W, v);
    for (int v = 0; v < vectors; v++)
        store(along + v * VEC_LANES, sum[v]);
}

/* Whether a vector holds lanes of one cell only: its weight is then loaded to all lanes where it is used. */
INLINE bool is_splat(const int L)
{
    return 2 * L >= VEC_LANES;
}

/* The weights along x of vector v of a row, for each cell and lane. */
INLINE vec row_weights(const float *along, const int L, const int v)
{
    const float *x = along + v * VEC_LANES / (2 * L);
    if (is_splat(L))
        return splat(*x);
#if VEC_LANES == 16
    if (L == 4)
        return place_of_axes(x, 8, 0);
    const vec cells = load(x);
    return __builtin_shufflevector(cells, cells, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
#elif VEC_LANES == 8
    const vec cells = load(x);
    return __builtin_shufflevector(cells, cells, 0, 0, 1, 1, 2, 2, 3, 3);
#else
    const vec cells = load(x);
    return __builtin_shufflevector(cells, cells, 0, 0, 1, 1);
#endif
}

/* Weights of a block; row[i] = those along x, per cell and lane, unless they are splat. */
INLINE void weigh(const struct points_run *run, size_t first, size_t n, const int W, const int L, struct block *b)
{
    for (size_t i = 0; i < n; i++)
        if (run->dim == 3)
            weigh_point(run->law, run->point[first + i].fraction, 3, W, b->along[i]);
        else
            weigh_point(run->law, run->point[first + i].fraction, 2, W, b->along[i]);
    for (size_t i = 0; i < n && !is_splat(L); i++)
        for (int v = 0; v < row_vectors(W, L); v++)
            store(b->row[i] + v * VEC_LANES, row_weights(b->along[i], L, v));
}

/* row_weights() of point i of the block. */
INLINE vec row_of(const struct block *b, size_t i, const int L, const int v)
{
    return is_splat(L) ? row_weights(b->along[i], L, v) : load(b->row[i] + v * VEC_LANES);
}

/* Vectors `first` to `first` + `vectors`, at most PART, of a point's rows. */
INLINE void scatter_rows(const struct points_run *run, const struct block *b, size_t i, float *plane, const int W,
                         const int L, const int first, const int vectors)
{
    const int turn = 2 * L > VEC_LANES ? 2 * L / VEC_LANES : 1, planes = run->dim == 3 ? W : 1;
    const size_t row_step = (size_t)run->tile.row, plane_step = (size_t)run->tile.rows * row_step;
    vec row[PART];
    for (int v = 0; v < vectors; v++)
        row[v] = row_of(b, i, L, first + v) * load(b->value[i] + (first + v) % turn * VEC_LANES);
    plane += first * VEC_LANES;
    for (int z = 0; z < planes; z++, plane += plane_step) {
        float *t = plane;
        vec level[PART];
        for (int v = 0; v < vectors; v++)
            level[v] = planes > 1 ? row[v] * splat(b->along[i][2 * AXIS(W) + z]) : row[v];
        for (int y = 0; y < W; y++, t += row_step)
            for (int v = 0; v < vectors; v++)
                store(t + v * VEC_LANES, load(t + v * VEC_LANES) + level[v] * splat(b->along[i][AXIS(W) + y]));
    }
}

INLINE void scatter_separable(const struct points_run *run, const struct c32 *values, size_t stride, const int W,
                              const int L)
{
    const int vectors = row_vectors(W, L);
    struct block b;
    for (size_t first = 0; first < run->count; first += BLOCK) {
        size_t n = run->count - first < BLOCK ? run->count - first : BLOCK;
        load_values(run, first, n, L, values, stride, &b);
        weigh(run, first, n, W, L, &b);
        for (size_t i = 0; i < n; i++) {
            float *plane = corner(run, run->point + first + i, L);
            BY_PARTS(vectors, scatter_rows, run, &b, i, plane, W, L);
        }
    }
}

/* Sum the cells of one vector, which holds several. */
INLINE void fold_lanes(vec v, const int L, float *sums)
{
#if VEC_LANES == 16
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    if (L == 4) {
        _mm256_storeu_ps(sums, half);
        return;
    }
#elif VEC_LANES == 8
    const __m256 half = (__m256)v;
#endif
#if VEC_LANES > 4
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#else
    const __m128 quarter = (__m128)v;
#endif
    if (L == 1) {
        sums[0] = quarter[0] + quarter[2];
        sums[1] = quarter[1] + quarter[3];
    }
}

/* Sum the values of the same lane: `row` holds `vectors` vectors of cells x lanes. */
INLINE void fold(const vec *row, const int vectors, const int L, float *sums)
{
    const int turn = 2 * L > VEC_LANES ? 2 * L / VEC_LANES : 1;
    for (int t = 0; t < turn; t++) {
        vec sum = row[t];
        for (int v = t + turn; v < vectors; v += turn)
            sum += row[v];
        store(sums + t * VEC_LANES, sum);
    }
    if (2 * L < VEC_LANES)
        fold_lanes(load(sums), L, sums);
}

/* row: of sums over y and z of the tile. */
INLINE void gather_rows(const struct points_run *run, const struct block *b, size_t i, const float *plane, vec *row,
                        const int W, const int first, const int vectors)
{
    const int planes = run->dim == 3 ? W : 1;
    const size_t row_step = (size_t)run->tile.row, plane_step = (size_t)run->tile.rows * row_step;
    plane += first * VEC_LANES;
    row += first;
    for (int v = 0; v < vectors; v++)
        row[v] = splat(0);
    /* One sum per plane: a single chain of additions through all rows would be bound by latency. */
    for (int z = 0; z < planes; z++, plane += plane_step) {
        const float *t = plane;
        vec level[PART];
        for (int v = 0; v < vectors; v++)
            level[v] = load(t + v * VEC_LANES) * splat(b->along[i][AXIS(W)]);
        t += row_step;
        for (int y = 1; y < W; y++, t += row_step)
            for (int v = 0; v < vectors; v++)
                level[v] += load(t + v * VEC_LANES) * splat(b->along[i][AXIS(W) + y]);
        for (int v = 0; v < vectors; v++)
            row[v] = planes > 1 ? row[v] + level[v] * splat(b->along[i][2 * AXIS(W) + z]) : level[v];
    }
}

INLINE void gather_separable(const struct points_run *run, struct c32 *values, size_t stride, const int W, const int L)
{
    const int vectors = row_vectors(W, L);
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
            BY_PARTS(vectors, gather_rows, run, &b, i, plane, row, W);
            for (int v = 0; v < vectors; v++)
                row[v] *= row_of(&b, i, L, v);
            float sums[2 * RANGE_LANES_MOST];
            fold(row, vectors, L, sums);
            store_value(run, first + i, L, sums, values, stride);
        }
    }
}

/* Kernel values of the cells from x on of a row, at squared distances `rest` + those of b->x; 0 outside. */
INLINE vec radial_row(const struct range_kernel *law, const struct block *b, size_t i, int x, float rest)
{
    const vec t = splat(1 - rest) - load(b->along[i] + x);
    vec value = splat(law->c[law->degree][0]);
    for (int d = law->degree - 1; d >= 0; d--)
        value = value * t + splat(law->c[d][0]);
    return only(value, splat(0) < t);
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
            for (int d = 0; d < 3; d++)
                distances(p->fraction[d], W, b.along[i] + d * LAW_LANES);
            float *plane = corner(run, p, L), sums[2 * RANGE_LANES_MOST] = {0};
            for (int z = 0; z < (run->dim == 3 ? W : 1); z++, plane += (size_t)run->tile.rows * (size_t)run->tile.row) {
                float *t = plane;
                for (int y = 0; y < W; y++, t += run->tile.row) {
                    float w[LAW_LANES];
                    const float rest = b.along[i][LAW_LANES + y] + (run->dim == 3 ? b.along[i][2 * LAW_LANES + z] : 0);
                    for (int x = 0; x < LAW_LANES; x += VEC_LANES)
                        store(w + x, radial_row(run->law, &b, i, x, rest));
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
