/* Dense bricks, on the CPU: the bins that reach a cell, and sums in bricks in the order of a GPU's warps, part by part,
 * read back as the GPU does, against the plain sum. All numbers are integers, so sums are exact. */
#include "gridding/range/dense.h"
#include "tests/unit/allocate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { BRICK = DENSE_PLANES * DENSE_SIDE * DENSE_SIDE, SAMPLES = 4000, DEPTH = 40 };

static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717) >> 20;
}

/* The kernel: integer weights, different at every cell. */
static double weight(int x, int y, int z)
{
    return 1 + x + 10 * y + 100 * z;
}

static struct range_geometry geometry_of(const int grid[3], int width)
{
    struct range_geometry g = {.dim = 3, .width = width};
    for (int d = 0; d < 3; d++)
        g.axis[d] = dense_axis(grid[d], width, d == 2);
    return g;
}

struct sample {
    int cell[3]; /* the first cell */
    double value;
};

/* Add a sample to its bin's brick, or to one of its bricks. */
static void add_to_brick(const struct range_geometry *g, const struct sample *s, double *brick)
{
    int at[3];
    for (int d = 0; d < 3; d++) {
        at[d] = s->cell[d] - axis_first(g->axis[d], axis_bin(g->axis[d], s->cell[d]));
        assert_in_range(at[d], 0, (d == 2 ? DENSE_PLANES : DENSE_SIDE) - g->width);
    }
    for (int z = 0; z < g->width; z++)
        for (int y = 0; y < g->width; y++)
            for (int x = 0; x < g->width; x++)
                brick[((at[2] + z) * DENSE_SIDE + at[1] + y) * DENSE_SIDE + at[0] + x] += s->value * weight(x, y, z);
}

static void add_to_grid(const struct range_geometry *g, const struct sample *s, double *grid)
{
    const struct range_axis *a = g->axis;
    for (int z = 0; z < g->width; z++)
        for (int y = 0; y < g->width; y++)
            for (int x = 0; x < g->width; x++)
                grid[((size_t)((s->cell[2] + z) % a[2].cells) * (size_t)a[1].cells +
                      (size_t)((s->cell[1] + y) % a[1].cells)) *
                         (size_t)a[0].cells +
                     (size_t)((s->cell[0] + x) % a[0].cells)] += s->value * weight(x, y, z);
}

static uint32_t bin_of(const struct range_geometry *g, const struct sample *s)
{
    int place[3];
    for (int d = 0; d < 3; d++)
        place[d] = axis_bin(g->axis[d], s->cell[d]);
    return range_bin_number(g, place);
}

/* Check that the grid's cells, each summed from the bricks that contain a share of it, equal `grid`. */
static void check_cells(const struct range_geometry *g, const struct brick_list *of_bin, const double *bricks,
                        const double *grid)
{
    const struct range_axis *a = g->axis;
    for (int z = 0; z < a[2].cells; z++)
        for (int y = 0; y < a[1].cells; y++) {
            struct dense_line lines[DENSE_LINES_MOST];
            int count = dense_lines(g, y, z, lines);
            assert_in_range(count, 1, DENSE_LINES_MOST);
            for (int x = 0; x < a[0].cells; x++, grid++) {
                struct dense_reach at = dense_first(a[0], x);
                double sum = 0;
                do {
                    assert_in_range(at.offset, 0, DENSE_SIDE - 1);
                    for (int i = 0; i < count; i++) {
                        struct brick_list held = of_bin[lines[i].bin + (uint32_t)at.bin];
                        for (uint32_t b = held.first; b < held.first + held.count; b++)
                            sum += bricks[(size_t)b * BRICK + (size_t)(lines[i].cell + at.offset)];
                    }
                } while (dense_next(a[0], g->width - 1, &at));
                assert_true(sum == *grid);
            }
        }
}

/* A third of the samples in one small region, so that there are bins without a brick, with one, and with several. */
static void cells_read_from_bricks_are_the_grid(void **state)
{
    static const struct {
        int grid[3], width;
    } cases[] = {{{32, 35, 40}, 5}, {{33, 40, 52}, 6}, {{33, 32, 37}, 7}, {{40, 45, 32}, 7}, {{32, 34, 39}, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct range_geometry g = geometry_of(cases[i].grid, cases[i].width);
        const size_t bins = (size_t)g.axis[0].bins * (size_t)g.axis[1].bins * (size_t)g.axis[2].bins,
                     cells = (size_t)g.axis[0].cells * (size_t)g.axis[1].cells * (size_t)g.axis[2].cells;
        struct sample *sample = allocate(SAMPLES, sizeof *sample);
        struct brick_list *of_bin = allocate(bins, sizeof *of_bin);
        uint32_t *held = allocate(bins, sizeof *held), count = 0, several = 0;
        double *grid = allocate(cells, sizeof *grid);
        uint64_t seed = 99 + i;
        for (int s = 0; s < SAMPLES; s++) {
            for (int d = 0; d < 3; d++)
                sample[s].cell[d] = s % 3 ? (int)(next(&seed) % (uint64_t)g.axis[d].cells) : 7 + (int)(next(&seed) % 5);
            sample[s].value = 1 + (double)(next(&seed) % 50);
            held[bin_of(&g, &sample[s])]++;
            add_to_grid(&g, &sample[s], grid);
        }
        for (size_t b = 0; b < bins; b++) {
            of_bin[b] = (struct brick_list){count, (held[b] + DEPTH - 1) / DEPTH};
            several += of_bin[b].count > 1;
            count += of_bin[b].count;
        }
        assert_true(several > 0);
        double *bricks = allocate((size_t)count * BRICK, sizeof *bricks);
        for (int s = 0; s < SAMPLES; s++) {
            uint32_t bin = bin_of(&g, &sample[s]);
            add_to_brick(&g, &sample[s], bricks + (size_t)(of_bin[bin].first + --held[bin] / DEPTH) * BRICK);
        }
        check_cells(&g, of_bin, bricks, grid);
        void *all[] = {sample, of_bin, held, grid, bricks};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            free(all[k]);
    }
}

/* The bins that reach a cell are all those whose cells, extended by the reach, contain it: once each, the cell's own
 * bin first. */
static void a_cell_lists_each_bin_that_reaches_it_once(void **state)
{
    (void)state;
    for (int width = 5; width <= 8; width++)
        for (int cells = 32; cells < 75; cells++)
            for (int deep = 0; deep < 2; deep++) {
                const struct range_axis axis = dense_axis(cells, width, deep);
                const int side = deep ? DENSE_PLANES : DENSE_SIDE, reach = width - 1;
                assert_true(axis_largest(axis) + reach <= side);
                for (int cell = 0; cell < cells; cell++) {
                    int wanted = 0, found = 0;
                    for (int bin = 0; bin < axis.bins; bin++)
                        wanted += (cell + cells - axis_first(axis, bin)) % cells < axis_size(axis, bin) + reach ? 1 : 0;
                    struct dense_reach at = dense_first(axis, cell);
                    assert_int_equal(at.bin, axis_bin(axis, cell));
                    do {
                        found++;
                        assert_int_equal((axis_first(axis, at.bin) + at.offset) % cells, cell);
                        assert_true(at.offset < axis_size(axis, at.bin) + reach);
                    } while (dense_next(axis, reach, &at));
                    assert_int_equal(found, wanted);
                    assert_true(found <= (deep ? 3 : 8));
                }
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_lists_each_bin_that_reaches_it_once),
        cmocka_unit_test(cells_read_from_bricks_are_the_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
