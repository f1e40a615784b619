/* bins.c: compact bins by a stable counting sort. */
#include "gridding/range/range.h"
#include "gridding/base/err.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Where a coordinate falls: bin along this axis, cell in the bin, fraction. */
struct place {
    int tile, cell;
    float fraction;
};

static inline struct place place_of(double k, int grid, int tiles, int width)
{
    double turn = k - floor(k), start = turn * grid - 0.5 * width, first = ceil(start);
    int g = (int)first;
    float fraction = (float)(first - start);
    g += g < 0 ? grid : 0;
    g -= g >= grid ? grid : 0;
    int tile = (int)((((int64_t)g + 1) * tiles - 1) / grid);
    return (struct place){tile, g - range_tile_start(tile, tiles, grid), fraction};
}

static inline uint32_t key_of(const struct range_bins *b, const float *k)
{
    uint32_t key = 0;
    for (int d = b->dim - 1; d >= 0; d--)
        key = key * (uint32_t)b->tiles[d] + (uint32_t)place_of(k[d], b->grid[d], b->tiles[d], b->width).tile;
    return key;
}

/* Histogram, scan, placement. histogram: [threads][bins]; each thread owns a run of the input, so placing keeps the
 * input's order. */
static void sort(struct range_bins *b, const float *k, int threads, size_t *histogram, uint32_t *key)
{
    size_t dim = (size_t)b->dim;
#pragma omp parallel num_threads(threads)
    {
        int team = omp_get_num_threads(), self = omp_get_thread_num();
        size_t *own = histogram + (size_t)self * b->bins;
        size_t from = b->count * (size_t)self / (size_t)team, to = b->count * ((size_t)self + 1) / (size_t)team;
        for (size_t i = from; i < to; i++)
            own[key[i] = key_of(b, k + i * dim)]++;
#pragma omp barrier
#pragma omp single
        {
            size_t next = 0;
            for (size_t bin = 0; bin < b->bins; bin++) {
                b->offset[bin] = next;
                for (int t = 0; t < team; t++) {
                    size_t n = histogram[(size_t)t * b->bins + bin];
                    histogram[(size_t)t * b->bins + bin] = next;
                    next += n;
                }
                size_t here = next - b->offset[bin];
                b->occupied += here > 0;
                b->largest = here > b->largest ? here : b->largest;
            }
            b->offset[b->bins] = next;
        }
        for (size_t i = from; i < to; i++) {
            struct range_point point = {.source = (uint32_t)i};
            for (size_t d = 0; d < dim; d++) {
                struct place p = place_of(k[i * dim + d], b->grid[d], b->tiles[d], b->width);
                point.cell[d] = (uint16_t)p.cell;
                point.fraction[d] = p.fraction;
            }
            b->point[own[key[i]]++] = point;
        }
    }
}

int range_bins_create(struct range_bins **out, int dim, const int grid[3], int width, const int tile[3], size_t count,
                      const float *k, int threads)
{
    struct range_bins *b = calloc(1, sizeof *b);
    if (b == NULL)
        return err_set(ERR_NO_MEMORY, "no memory for bins");
    *b = (struct range_bins){.dim = dim, .width = width, .bins = 1, .count = count};
    for (int d = 0; d < 3; d++) {
        int least = tile[d] > width ? tile[d] : width;
        b->grid[d] = d < dim ? grid[d] : 1;
        b->tiles[d] = d < dim && grid[d] / least > 1 ? grid[d] / least : 1;
        b->most_cells[d] = (b->grid[d] + b->tiles[d] - 1) / b->tiles[d];
        b->bins *= (size_t)b->tiles[d];
    }
    size_t *histogram = calloc((size_t)threads * b->bins, sizeof *histogram);
    uint32_t *key = malloc((count + 1) * sizeof *key);
    b->offset = malloc((b->bins + 1) * sizeof *b->offset);
    b->point = malloc((count + 1) * sizeof *b->point);
    int status = 0;
    if (histogram == NULL || key == NULL || b->offset == NULL || b->point == NULL) {
        status = err_set_bytes(ERR_NO_MEMORY, (int64_t)(count * sizeof *b->point), -1, "no memory to bin %zu samples",
                               count);
        range_bins_free(b);
    } else {
        sort(b, k, threads, histogram, key);
        *out = b;
    }
    free(histogram);
    free(key);
    return status;
}

void range_bins_free(struct range_bins *bins)
{
    if (bins == NULL)
        return;
    free(bins->offset);
    free(bins->point);
    free(bins);
}
