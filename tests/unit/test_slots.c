/* The slots of a grid, on the CPU: sums as a GPU's warps form them, run by run, part by part and chunk by chunk, are
 * read back as the FFT's pass along x does, and compared with the plain sum. All numbers are integers, so sums are
 * exact. */
#include "gridding/range/layout.h"
#include "tests/unit/allocate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { COLUMNS = 12, ROWS = 20, PLANES = 20, SLOT = COLUMNS * ROWS * PLANES };

struct sample {
    uint32_t bin;
    int cell[3]; /* the first cell */
    double value;
};

struct layout {
    struct range_geometry g;
    uint32_t count, samples;
    struct sample *sample; /* sorted by bin */
    uint32_t *first, *slot;
    struct range_prefix *rows, all;
    struct range_bin_run *run;
    uint32_t *heavy; /* indices of bins */
    double *slots, *grid;
    bool *written; /* [slots], in this chunk */
};

static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717) >> 20;
}

static int by_bin(const void *a, const void *b)
{
    uint32_t x = ((const struct sample *)a)->bin, y = ((const struct sample *)b)->bin;
    return (x > y) - (x < y);
}

static size_t cell_of(const struct range_geometry *g, const int at[3])
{
    const struct range_axis *a = g->axis;
    return ((size_t)(at[2] % a[2].cells) * (size_t)a[1].cells + (size_t)(at[1] % a[1].cells)) * (size_t)a[0].cells +
           (size_t)(at[0] % a[0].cells);
}

/* The kernel: integer weights, different at every cell. */
static double weight(int x, int y, int z)
{
    return 1 + x + 10 * y + 100 * z;
}

/* Samples, a third of them in one small region, and the plain sum. */
static void make_samples(struct layout *l, uint64_t seed)
{
    const struct range_geometry *g = &l->g;
    int width = g->width;
    for (uint32_t i = 0; i < l->samples; i++) {
        struct sample *s = &l->sample[i];
        int place[3], at[3];
        for (int d = 0; d < 3; d++) {
            s->cell[d] = i % 3 ? (int)(next(&seed) % (uint64_t)g->axis[d].cells) : 9 + (int)(next(&seed) % 6);
            place[d] = axis_bin(g->axis[d], s->cell[d]);
            assert_in_range(s->cell[d] - axis_first(g->axis[d], place[d]), 0, axis_size(g->axis[d], place[d]) - 1);
        }
        s->bin = range_bin_number(g, place);
        s->value = 1 + (double)(next(&seed) % 50);
        for (int z = 0; z < width; z++)
            for (int y = 0; y < width; y++)
                for (int x = 0; x < width; x++) {
                    at[0] = s->cell[0] + x;
                    at[1] = s->cell[1] + y;
                    at[2] = s->cell[2] + z;
                    l->grid[cell_of(g, at)] += s->value * weight(x, y, z);
                }
    }
    qsort(l->sample, l->samples, sizeof *l->sample, by_bin);
}

/* The lists, made as on the device: each entry from the prefixes before it. */
static void make_lists(struct layout *l)
{
    struct range_prefix before = {0};
    for (uint32_t i = 0; i < l->samples; i++)
        l->first[l->sample[i].bin + 1]++;
    for (uint32_t b = 0; b < l->count; b++)
        l->first[b + 1] += l->first[b];
    uint32_t row = (uint32_t)l->g.axis[0].bins * (uint32_t)l->g.axis[2].bins;
    for (uint32_t b = 0; b <= l->count; b++) {
        if (b % row == 0)
            l->rows[b / row] = before;
        l->slot[b] = before.slots;
        if (b == l->count)
            break;
        struct range_prefix t = range_prefix_of(&l->g, b, l->first);
        if (t.runs)
            l->run[before.runs] = range_bin_run_from(&l->g, b, l->count, l->first);
        if (t.heavies)
            l->heavy[before.heavies] = b;
        before = range_prefix_add(before, t);
    }
    l->all = before;
}

static struct layout *layout_make(const int grid[3], int width, const int size[3], uint32_t samples, uint32_t light,
                                  uint32_t run_samples, uint32_t run_bins, uint64_t seed)
{
    struct layout *l = allocate(1, sizeof *l);
    l->g = (struct range_geometry){.dim = 3, .width = width, .light = light, .depth = light};
    l->g.run_samples = run_samples;
    l->g.run_bins = run_bins;
    for (int d = 0; d < 3; d++)
        l->g.axis[d] = range_axis_make(grid[d], size[d]);
    l->count = (uint32_t)(l->g.axis[0].bins * l->g.axis[1].bins * l->g.axis[2].bins);
    l->samples = samples;
    l->sample = allocate(samples, sizeof *l->sample);
    l->first = allocate(l->count + 1, sizeof *l->first);
    l->slot = allocate(l->count + 1, sizeof *l->slot);
    l->rows = allocate((size_t)l->g.axis[1].bins + 1, sizeof *l->rows);
    l->run = allocate(l->count, sizeof *l->run);
    l->heavy = allocate(l->count, sizeof *l->heavy);
    l->grid = allocate((size_t)grid[0] * (size_t)grid[1] * (size_t)grid[2], sizeof *l->grid);
    make_samples(l, seed);
    make_lists(l);
    return l;
}

static void layout_free(struct layout *l)
{
    void *held[] = {l->sample, l->first, l->slot, l->rows, l->run, l->heavy, l->grid, l};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        free(held[i]);
}

/* Add a bin's samples to a brick: `own` for the bin's own columns, `right` for those of the next bin that they
 * reach. */
static void sum_bin(const struct layout *l, uint32_t bin, double *own, double *right)
{
    int place[3], width = l->g.width;
    range_bin_place(&l->g, bin, place);
    int size = axis_size(l->g.axis[0], place[0]);
    for (uint32_t i = l->first[bin]; i < l->first[bin + 1]; i++)
        for (int z = 0; z < width; z++)
            for (int y = 0; y < width; y++)
                for (int x = 0; x < width; x++) {
                    const struct sample *s = &l->sample[i];
                    int column = s->cell[0] - axis_first(l->g.axis[0], place[0]) + x;
                    int line = (s->cell[2] - axis_first(l->g.axis[2], place[2]) + z) * ROWS + s->cell[1] -
                               axis_first(l->g.axis[1], place[1]) + y;
                    double *to = column < size ? own + line * COLUMNS + column : right + line * COLUMNS + column - size;
                    *to += s->value * weight(x, y, z);
                }
}

/* A slot is written once per chunk, and lies inside the workspace. */
static void put_slot(struct layout *l, const struct slot_rows *rows, int stretch, uint32_t slot, const double *sum)
{
    uint32_t at = slot - rows->base[stretch];
    assert_true(at < rows->slots);
    assert_false(l->written[at]);
    l->written[at] = true;
    memcpy(l->slots + (size_t)at * SLOT, sum, SLOT * sizeof *sum);
}

static void sum_runs(struct layout *l, const struct slot_rows *rows, int stretch)
{
    double *sum[2] = {allocate(SLOT, sizeof(double)), allocate(SLOT, sizeof(double))};
    for (uint32_t r = 0; r < rows->runs[stretch] + rows->heavies[stretch]; r++) {
        struct range_bin_run run;
        if (r < rows->runs[stretch]) {
            run = l->run[rows->run[stretch] + r];
        } else { /* its parts, summed */
            run.bin = l->heavy[rows->heavy[stretch] + r - rows->runs[stretch]];
            run.bins = 1;
            assert_true(l->first[run.bin + 1] - l->first[run.bin] > l->g.light);
        }
        assert_in_range(run.bins, 1, l->g.run_bins);
        memset(sum[0], 0, SLOT * sizeof(double));
        for (uint32_t b = run.bin; b < run.bin + run.bins; b++) {
            assert_true(l->first[b + 1] > l->first[b]);
            memset(sum[1], 0, SLOT * sizeof(double));
            sum_bin(l, b, sum[0], sum[1]);
            /* Within a run each bin has one slot, and the slots are contiguous. */
            if (b > run.bin)
                assert_int_equal(l->slot[b + 1] - l->slot[b], 1);
            put_slot(l, rows, stretch, l->slot[b + 1] - 1, sum[0]);
            double *right = sum[1];
            sum[1] = sum[0];
            sum[0] = right;
        }
        put_slot(l, rows, stretch, l->slot[range_bin_right(&l->g, run.bin + run.bins - 1)], sum[0]);
    }
    free(sum[0]);
    free(sum[1]);
}

/* The lines y of chunk [from, to), read from slots, must equal the grid's. */
static void check_lines(const struct layout *l, const struct slot_rows *rows, int from, int to)
{
    const struct range_axis *axis = l->g.axis;
    int reach = l->g.width - 1;
    for (int z = 0; z < axis[2].cells; z++)
        for (int y = axis_first(axis[1], from); y < axis_first(axis[1], to); y++) {
            struct slot_cell cy = slot_cell_of(axis[1], reach, y), cz = slot_cell_of(axis[2], reach, z);
            for (int x = 0; x < axis[0].cells; x++) {
                int bin_x = axis_bin(axis[0], x), at[3] = {x, y, z};
                double sum = 0;
                for (int i = 0; i < 4; i++) {
                    int place[3] = {bin_x, i & 1 ? cy.before : cy.bin, i >> 1 ? cz.before : cz.bin};
                    int row = i & 1 ? cy.before_offset : cy.offset, plane = i >> 1 ? cz.before_offset : cz.offset;
                    uint32_t bin = range_bin_number(&l->g, place);
                    uint32_t base = (i & 1) && cy.bin == from ? rows->base[0] : rows->base[rows->stretches - 1];
                    assert_true(l->slot[bin + 1] - l->slot[bin] <= 2);
                    for (uint32_t s = l->slot[bin]; row >= 0 && plane >= 0 && s < l->slot[bin + 1]; s++) {
                        assert_true(l->written[s - base]);
                        sum += l->slots[(size_t)(s - base) * SLOT +
                                        (size_t)((plane * ROWS + row) * COLUMNS + x - axis_first(axis[0], bin_x))];
                    }
                }
                assert_true(sum == l->grid[cell_of(&l->g, at)]);
            }
        }
}

static void check_chunks(struct layout *l, int chunk)
{
    int rows = l->g.axis[1].bins;
    uint32_t runs = l->all.runs, parts = l->all.parts;
    for (int from = 0; from < rows; from += chunk) {
        int to = from + chunk < rows ? from + chunk : rows;
        struct slot_rows r = slot_rows_of(l->rows, rows, from, to);
        l->slots = allocate((size_t)r.slots * SLOT, sizeof *l->slots);
        l->written = allocate(r.slots, sizeof *l->written);
        for (int i = 0; i < r.stretches; i++)
            sum_runs(l, &r, i);
        for (uint32_t s = 0; s < r.slots; s++)
            assert_true(l->written[s]);
        check_lines(l, &r, from, to);
        runs -= r.runs[0] + r.runs[1];
        parts -= r.parts[0] + r.parts[1];
        if (chunk < rows) { /* the row below is summed again */
            const struct range_prefix *below = l->rows + (from > 0 ? from : rows) - 1;
            runs += below[1].runs - below[0].runs;
            parts += below[1].parts - below[0].parts;
        }
        free(l->slots);
        free(l->written);
    }
    assert_int_equal(runs, 0);
    assert_int_equal(parts, 0);
}

/* Bins of the sizes used for bricks, with different lengths along each axis; heavy bins; single runs; a wide kernel. */
static void lines_read_from_slots_are_the_grid(void **state)
{
    static const struct {
        int grid[3], width, size[3];
        uint32_t samples, light, run_samples, run_bins;
    } cases[] = {
        {{40, 35, 52}, 4, {4, 5, 13}, 900, 20, 100000, 10}, {{42, 33, 40}, 4, {4, 5, 13}, 1500, 12, 24, 31},
        {{54, 32, 36}, 3, {4, 5, 13}, 300, 100, 1000, 7},   {{38, 40, 34}, 4, {4, 5, 13}, 25, 100, 1000, 31},
        {{44, 36, 40}, 7, {9, 10, 10}, 700, 15, 40, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout *l = layout_make(cases[i].grid, cases[i].width, cases[i].size, cases[i].samples, cases[i].light,
                                       cases[i].run_samples, cases[i].run_bins, 77 + i);
        int rows = l->g.axis[1].bins;
        check_chunks(l, rows);
        check_chunks(l, 1);
        check_chunks(l, (rows + 2) / 3);
        layout_free(l);
    }
}

/* Every cell lies in one bin, and also in the previous one if that reaches it. */
static void each_cell_lies_in_the_bins_that_reach_it(void **state)
{
    (void)state;
    for (int cells = 32; cells < 90; cells++)
        for (int size = 4; size < 14; size += 3)
            for (int shift = 0; shift <= (cells % 2 == 0 && size > 4); shift++) {
                struct range_axis axis = range_axis_make(cells, size);
                axis.shift = shift;
                for (int cell = 0; cell < cells; cell++) {
                    struct slot_cell c = slot_cell_of(axis, 3, cell);
                    int before = c.bin > 0 ? c.bin - 1 : axis.bins - 1;
                    int past = (cell + (c.bin > 0 ? 0 : cells)) - axis_first(axis, before);
                    assert_in_range(c.offset, 0, axis_size(axis, c.bin) - 1);
                    assert_int_equal(axis_first(axis, c.bin) + c.offset, cell);
                    assert_int_equal(c.before, before);
                    assert_int_equal(c.before_offset, past < axis_size(axis, before) + 3 ? past : -1);
                    assert_true(axis_size(axis, c.bin) <= axis_largest(axis));
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_cell_lies_in_the_bins_that_reach_it),
        cmocka_unit_test(lines_read_from_slots_are_the_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
