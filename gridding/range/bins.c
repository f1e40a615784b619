/* bins.c: compact bins by a stable counting sort. */
#include "gridding/range/range.h"
#include "gridding/base/err.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* The position of a coordinate: its bin along this axis, its cell in the bin, and the fraction. */
struct place {
    int tile, cell;
    float fraction;
};

/* The bin of every cell of each axis: saves a division per sample and axis. */
struct tables {
    uint16_t *tile[3];
};

static inline struct place place_of(const struct range_bins *b, const struct tables *t, int d, double k)
{
    k = fabs(k) < 0x1p-40 ? 0 : k; /* k is a float32; the following arithmetic adds no rounding, as on the GPU */
    double turn = k - floor(k), start = turn * b->grid[d] - 0.5 * b->width, first = ceil(start);
    int g = (int)first;
    g += g < 0 ? b->grid[d] : 0;
    g -= g >= b->grid[d] ? b->grid[d] : 0;
    int tile = t->tile[d][g];
    return (struct place){tile, g - range_tile_start(tile, b->tiles[d], b->grid[d]), (float)(first - start)};
}

static inline uint32_t key_of(const struct range_bins *b, const struct tables *t, const float *k)
{
    uint32_t key = 0;
    for (int d = b->dim - 1; d >= 0; d--)
        key = key * (uint32_t)b->tiles[d] + (uint32_t)place_of(b, t, d, k[d]).tile;
    return key;
}

/* One allocation, tile[0]. */
static int make_tables(struct tables *t, const struct range_bins *b)
{
    uint16_t *next = malloc(((size_t)b->grid[0] + (size_t)b->grid[1] + (size_t)b->grid[2]) * sizeof *next);
    for (int d = 0; d < 3; d++) {
        t->tile[d] = next;
        for (int tile = 0; next && tile < b->tiles[d]; tile++)
            for (int g = range_tile_start(tile, b->tiles[d], b->grid[d]);
                 g < range_tile_start(tile + 1, b->tiles[d], b->grid[d]); g++)
                *next++ = (uint16_t)tile;
    }
    return t->tile[0] ? 0 : ERR_NO_MEMORY;
}

enum {
    PIECE = 1 << 14, /* points between two questions to the asker */
    POINT_COST = 20  /* ns */
};

static size_t piece_end(size_t from, size_t to)
{
    return to - from < PIECE ? to : from + PIECE;
}

/* Count the bins of points [from, to). */
static void points_count(const struct range_bins *b, const struct tables *t, const float *k, size_t from, size_t to,
                         size_t *own, uint32_t *key, struct asker *asker)
{
    const size_t dim = (size_t)b->dim;
    for (size_t until; from < to && !asker_stopped(asker, PIECE * POINT_COST); from = until) {
        until = piece_end(from, to);
        for (size_t i = from; i < until; i++)
            own[key[i] = key_of(b, t, k + i * dim)]++;
    }
}

/* Put them in their places. */
static void points_place(struct range_bins *b, const struct tables *t, const float *k, size_t from, size_t to,
                         size_t *own, const uint32_t *key, struct asker *asker)
{
    const size_t dim = (size_t)b->dim;
    for (size_t until; from < to && !asker_stopped(asker, PIECE * POINT_COST); from = until) {
        until = piece_end(from, to);
        for (size_t i = from; i < until; i++) {
            struct range_point point = {.source = (uint32_t)i};
            for (size_t d = 0; d < dim; d++) {
                struct place p = place_of(b, t, (int)d, k[i * dim + d]);
                point.cell[d] = (uint16_t)p.cell;
                point.fraction[d] = p.fraction;
            }
            b->point[own[key[i]]++] = point;
        }
    }
}

/* Histogram, prefix sums, placement. histogram: [threads][bins]; each thread owns a run of the input, so the order of
 * the input is preserved (a stable sort). Where the asker stops the counting, nothing is placed. */
static int sort(struct range_bins *b, const struct tables *t, const float *k, int threads, size_t *histogram,
                uint32_t *key, struct asker *asker)
{
#pragma omp parallel num_threads(threads)
    {
        int team = omp_get_num_threads(), self = omp_get_thread_num();
        size_t *own = histogram + (size_t)self * b->bins;
        size_t from = b->count * (size_t)self / (size_t)team, to = b->count * ((size_t)self + 1) / (size_t)team;
        points_count(b, t, k, from, to, own, key, asker);
#pragma omp barrier
#pragma omp single
        {
            size_t next = 0;
            for (size_t bin = 0; bin < b->bins; bin++) {
                b->offset[bin] = next;
                for (int thread = 0; thread < team; thread++) {
                    size_t *part = histogram + (size_t)thread * b->bins + bin, n = *part;
                    *part = next;
                    next += n;
                }
                size_t here = next - b->offset[bin];
                b->occupied += here > 0;
                b->largest = here > b->largest ? here : b->largest;
            }
            b->offset[b->bins] = next;
        }
        points_place(b, t, k, from, to, own, key, asker);
    }
    return asker_rc(asker);
}

int range_bins_create(struct range_bins **out, int dim, const int grid[3], int width, const int tile[3], size_t count,
                      const float *k, int threads, struct asker *asker)
{
    struct range_bins *b = calloc(1, sizeof *b);
    if (!b)
        return err_no_memory("bins");
    *b = (struct range_bins){.dim = dim, .width = width, .bins = 1, .count = count};
    for (int d = 0; d < 3; d++) {
        int least = tile[d] > width ? tile[d] : width, tiles = d < dim ? grid[d] / least : 1;
        b->grid[d] = d < dim ? grid[d] : 1;
        /* An even number, so that neighbours on the periodic axis differ in parity. */
        b->tiles[d] = tiles > 1 ? tiles / 2 * 2 : 1;
        b->most_cells[d] = (b->grid[d] + b->tiles[d] - 1) / b->tiles[d];
        b->bins *= (size_t)b->tiles[d];
    }
    struct tables tables;
    int rc = make_tables(&tables, b);
    size_t *histogram = calloc((size_t)threads * b->bins, sizeof *histogram);
    uint32_t *key = malloc((count + 1) * sizeof *key);
    b->offset = malloc((b->bins + 1) * sizeof *b->offset);
    b->point = malloc((count + 1) * sizeof *b->point);
    if (rc || !histogram || !key || !b->offset || !b->point)
        rc = err_no_memory_bytes(count * sizeof *b->point, "binning %zu samples", count);
    else
        rc = sort(b, &tables, k, threads, histogram, key, asker);
    if (!rc)
        *out = b;
    else
        range_bins_free(b);
    free(tables.tile[0]);
    free(histogram);
    free(key);
    return rc;
}

void range_bins_free(struct range_bins *bins)
{
    if (!bins)
        return;
    free(bins->offset);
    free(bins->point);
    free(bins);
}
