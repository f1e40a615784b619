/* rival_cpu.c: the rivals' bins and gather on the CPU, and the engine's sum of samples that overflow. */
#include "tests/bench/rival.h"
#include "gridding/base/err.h"
#include "gridding/range/range.h"

#include <stdlib.h>
#include <string.h>

static size_t bins_of(const struct rival_shape *shape)
{
    return (size_t)shape->grid * (size_t)shape->grid * (size_t)shape->grid;
}

/* Counts up to the depth, the first slot of each bin, and the total number of slots. */
static void count_and_scan(struct rival_cpu_bins *b, const struct rival_sample *samples, size_t count)
{
    const struct rival_shape *s = &b->bins.shape;
    size_t bins = bins_of(s);
    for (size_t i = 0; i < count; i++) {
        uint32_t *n = &b->count[rival_bin_of(s->grid, samples + i)];
        *n += *n < s->depth;
    }
    for (size_t bin = 0; bin < bins; bin++)
        b->start[bin + 1] = b->start[bin] + (b->count[bin] + s->round - 1) / s->round * s->round;
    b->bins.slots = s->regular ? bins * s->depth : b->start[bins];
}

static void place(struct rival_cpu_bins *b, const struct rival_sample *samples, size_t count, uint32_t *filled)
{
    const struct rival_shape *s = &b->bins.shape;
    const struct rival_sample none = {.x = RIVAL_NONE};
    for (size_t i = 0; i < b->bins.slots; i++)
        rival_put(b->slot, b->bins.slots, s->layout, i, &none);
    for (size_t i = 0; i < count; i++) {
        size_t bin = rival_bin_of(s->grid, samples + i);
        if (filled[bin] < s->depth)
            rival_put(b->slot, b->bins.slots, s->layout, (s->regular ? bin * s->depth : b->start[bin]) + filled[bin]++,
                      samples + i);
        else
            b->overflow[b->overflowed++] = samples[i];
    }
}

int rival_cpu_bin(struct rival_cpu_bins **out, const struct rival_shape *shape, const struct rival_sample *samples,
                  size_t count)
{
    struct rival_cpu_bins *b = calloc(1, sizeof *b);
    if (b == NULL)
        return err_set(ERR_NO_MEMORY, "no memory for bins");
    b->bins.shape = *shape;
    uint32_t *filled = calloc(bins_of(shape), sizeof *filled);
    b->count = calloc(bins_of(shape), sizeof *b->count);
    b->start = calloc(bins_of(shape) + 1, sizeof *b->start);
    b->overflow = malloc((count + 1) * sizeof *b->overflow);
    if (filled != NULL && b->count != NULL && b->start != NULL && b->overflow != NULL) {
        count_and_scan(b, samples, count);
        b->slot = aligned_alloc(64, (b->bins.slots * 8 * sizeof(float) + 64) / 64 * 64);
    }
    int status = 0;
    if (b->slot == NULL) {
        status = err_set(ERR_NO_MEMORY, "no memory for bins");
        rival_cpu_bins_free(b);
    } else {
        place(b, samples, count, filled);
        b->bins.count = b->count;
        b->bins.start = b->start;
        b->bins.slot = b->slot;
        *out = b;
    }
    free(filled);
    return status;
}

void rival_cpu_bins_free(struct rival_cpu_bins *bins)
{
    if (bins == NULL)
        return;
    free(bins->count);
    free(bins->start);
    free(bins->slot);
    free(bins->overflow);
    free(bins);
}

/* The cells of a block, from `first`. */
struct block {
    const struct rival_bins *bins;
    const struct rival_kernel *kernel;
    int first[3];
    struct c32 sum[RIVAL_TILE_Z][RIVAL_TILE_Y][RIVAL_TILE_X];
};

/* Add the samples of a range; if slots use sentinels, an empty slot ends the range. */
static void add_range(struct block *k, struct rival_range range, bool sentinel)
{
    const struct rival_bins *b = k->bins;
    for (size_t i = 0; i < range.count; i++) {
        struct rival_sample s = rival_get(b->slot, b->slots, b->shape.layout, range.first + i);
        if (sentinel && s.x == RIVAL_NONE)
            break;
        for (int y = 0; y < RIVAL_TILE_Y; y++)
            for (int x = 0; x < RIVAL_TILE_X; x++) {
                float flat = rival_flat(s.x - (float)(k->first[0] + x), s.y - (float)(k->first[1] + y));
                for (int z = 0; flat > 0 && z < RIVAL_TILE_Z; z++) {
                    float w = rival_weight(k->kernel, flat, s.z - (float)(k->first[2] + z)) * s.density;
                    k->sum[z][y][x].re += w * s.re;
                    k->sum[z][y][x].im += w * s.im;
                }
            }
    }
}

static void gather_block(struct block *k, enum rival_access access)
{
    const struct rival_bins *b = k->bins;
    const int grid = b->shape.grid;
    const size_t from = (size_t)rival_first_bin(k->first[0]),
                 to = (size_t)rival_last_bin(k->first[0], RIVAL_TILE_X, grid);
    for (int z = rival_first_bin(k->first[2]); z <= rival_last_bin(k->first[2], RIVAL_TILE_Z, grid); z++)
        for (int y = rival_first_bin(k->first[1]); y <= rival_last_bin(k->first[1], RIVAL_TILE_Y, grid); y++) {
            size_t row = ((size_t)z * (size_t)grid + (size_t)y) * (size_t)grid;
            if (access == RIVAL_ROW)
                add_range(k, rival_row_range(b, b->shape.regular, row + from, row + to), false);
            else
                for (size_t x = from; x <= to; x++)
                    add_range(k, rival_bin_range(b, b->shape.regular, access, row + x), access == RIVAL_BIN_SENTINEL);
        }
}

void rival_cpu_gather(const struct rival_bins *bins, enum rival_access access, const struct rival_kernel *kernel,
                      struct c32 *values)
{
    const int grid = bins->shape.grid;
    for (int z = 0; z < grid; z += RIVAL_TILE_Z)
        for (int y = 0; y < grid; y += RIVAL_TILE_Y)
            for (int x = 0; x < grid; x += RIVAL_TILE_X) {
                struct block block = {.bins = bins, .kernel = kernel, .first = {x, y, z}};
                gather_block(&block, access);
                for (int dz = 0; dz < RIVAL_TILE_Z && z + dz < grid; dz++)
                    for (int dy = 0; dy < RIVAL_TILE_Y && y + dy < grid; dy++)
                        for (int dx = 0; dx < RIVAL_TILE_X && x + dx < grid; dx++)
                            values[((size_t)(z + dz) * (size_t)grid + (size_t)(y + dy)) * (size_t)grid +
                                   (size_t)(x + dx)] = block.sum[dz][dy][dx];
            }
}

int rival_cpu_scatter(int grid, const struct rival_sample *samples, size_t count, int threads, struct c32 *values)
{
    /* Bins of the size that the product's 3-D plans use. */
    static const int tile[3] = {16, 12, 12};
    const int cells[3] = {grid, grid, grid};
    struct range_bins *bins = NULL;
    struct range_kernel *law = NULL;
    struct range_cpu *sums = NULL;
    float *k = malloc((3 * count + 1) * sizeof *k);
    struct c32 *value = malloc((count + 1) * sizeof *value);
    int status = k != NULL && value != NULL ? 0 : err_set(ERR_NO_MEMORY, "no memory for %zu samples", count);
    if (status == 0) {
#pragma omp parallel for schedule(static) num_threads(threads)
        for (size_t i = 0; i < count; i++) {
            const struct rival_sample *s = samples + i;
            k[3 * i] = s->x / (float)grid;
            k[3 * i + 1] = s->y / (float)grid;
            k[3 * i + 2] = s->z / (float)grid;
            value[i] = (struct c32){s->re * s->density, s->im * s->density};
        }
        status = range_bins_create(&bins, 3, cells, RIVAL_WIDTH, tile, count, k, threads, NULL);
    }
    if (status == 0)
        status = range_kernel_create(&law, RIVAL_WIDTH, rival_beta(), true, RIVAL_KERNEL_ERROR);
    if (status == 0)
        status = range_cpu_create(&sums, bins, law, 1, RANGE_TOGETHER, threads, NULL);
    if (status == 0)
        range_cpu_scatter(sums, 1, value, count, NULL, values);
    range_cpu_free(sums);
    range_kernel_free(law);
    range_bins_free(bins);
    free(k);
    free(value);
    return status;
}
