/* rival_range_cpu.c: the gathers of rival_range.cu on the CPU. */
#include "tests/bench/rival_range.h"

#include <string.h>

/* Sums of one tile of a lattice. */
struct tile {
    const struct rival_sum *of;
    const struct rival_bins *bins;
    int first[3]; /* node */
    float sum[RIVAL_TILE][RIVAL_TILE][RIVAL_TILE];
};

/* One source and the nodes of a thread: RIVAL_COARSE along y. */
static void add_source(struct tile *t, const struct rival_sample *s)
{
    const float per_bin = 1 / (float)t->of->nodes;
    for (int z = 0; z < RIVAL_TILE; z++)
        for (int x = 0; x < RIVAL_TILE; x++) {
            const float dx = s->x - (float)(t->first[0] + x) * per_bin, dz = s->z - (float)(t->first[2] + z) * per_bin;
            for (int y = 0; !rival_misses(t->of, dx, dz) && y < RIVAL_TILE; y++) {
                const float dy = s->y - (float)(t->first[1] + y) * per_bin, r2 = dx * dx + dy * dy + dz * dz;
                if (r2 > 0)
                    t->sum[z][y][x] += rival_term(t->of, t->of->law, r2, s->re, s->density);
            }
        }
}

static void add_range(struct tile *t, struct rival_range range)
{
    const struct rival_bins *b = t->bins;
    for (size_t i = 0; i < range.count; i++) {
        const struct rival_sample s = rival_get(b->slot, b->slots, b->shape.layout, range.first + i);
        add_source(t, &s);
    }
}

static void add_row(struct tile *t, enum rival_access access, const struct rival_row *row)
{
    const struct rival_bins *b = t->bins;
    const int nodes = t->of->nodes;
    const struct rival_run run =
        rival_run_of(t->of->grid, row, t->first[0] / nodes, t->first[1] / nodes, t->first[2] / nodes);
    if (access == RIVAL_ROW && run.to >= run.from)
        add_range(t, rival_row_range(b, b->shape.regular, run.row + (size_t)run.from, run.row + (size_t)run.to));
    for (int x = run.from; access != RIVAL_ROW && x <= run.to; x++)
        add_range(t, rival_bin_range(b, b->shape.regular, access, run.row + (size_t)x));
}

static void gather_lattice(const struct rival_bins *bins, enum rival_access access, const struct rival_sum *of,
                           const struct rival_rows *rows, float *sums)
{
    const int side = of->grid * of->nodes;
    for (int z = 0; z < side; z += RIVAL_TILE)
        for (int y = 0; y < side; y += RIVAL_TILE)
            for (int x = 0; x < side; x += RIVAL_TILE) {
                struct tile t = {.of = of, .bins = bins, .first = {x, y, z}};
                for (int i = 0; i < rows->count; i++)
                    add_row(&t, access, rows->row + i);
                for (int dz = 0; dz < RIVAL_TILE && z + dz < side; dz++)
                    for (int dy = 0; dy < RIVAL_TILE && y + dy < side; dy++)
                        for (int dx = 0; dx < RIVAL_TILE && x + dx < side; dx++)
                            sums[((size_t)(z + dz) * (size_t)side + (size_t)(y + dy)) * (size_t)side +
                                 (size_t)(x + dx)] = t.sum[dz][dy][dx];
            }
}

static void pull(const struct rival_bins *b, struct rival_range range, const struct rival_sum *of,
                 const struct rival_sample *body, float sum[3])
{
    for (size_t i = 0; i < range.count; i++) {
        const struct rival_sample s = rival_get(b->slot, b->slots, b->shape.layout, range.first + i);
        const float dx = s.x - body->x, dy = s.y - body->y, dz = s.z - body->z, r2 = dx * dx + dy * dy + dz * dz;
        const float factor = r2 > 0 ? rival_term(of, RIVAL_FORCE, r2, s.re, 1) : 0;
        sum[0] += factor * dx;
        sum[1] += factor * dy;
        sum[2] += factor * dz;
    }
}

static void gather_bodies(const struct rival_bins *bins, enum rival_access access, const struct rival_sum *of,
                          const struct rival_sample *bodies, size_t count, float *sums)
{
    const size_t grid = (size_t)of->grid;
    for (size_t m = 0; m < count; m++) {
        const struct rival_sample *body = bodies + m;
        const size_t from = (size_t)rival_lowest(of, body->x), to = (size_t)rival_highest(of, body->x);
        float sum[3] = {0};
        for (int z = rival_lowest(of, body->z); z <= rival_highest(of, body->z); z++)
            for (int y = rival_lowest(of, body->y); y <= rival_highest(of, body->y); y++) {
                const size_t row = ((size_t)z * grid + (size_t)y) * grid;
                if (access == RIVAL_ROW)
                    pull(bins, rival_row_range(bins, bins->shape.regular, row + from, row + to), of, body, sum);
                for (size_t x = from; access != RIVAL_ROW && x <= to; x++)
                    pull(bins, rival_bin_range(bins, bins->shape.regular, access, row + x), of, body, sum);
            }
        memcpy(sums + 3 * m, sum, sizeof sum);
    }
}

void rival_range_gather(const struct rival_bins *bins, enum rival_access access, const struct rival_sum *of,
                        const struct rival_rows *rows, const struct rival_sample *samples, size_t count, float *sums)
{
    if (of->law == RIVAL_FORCE)
        gather_bodies(bins, access, of, samples, count, sums);
    else
        gather_lattice(bins, access, of, rows, sums);
}
