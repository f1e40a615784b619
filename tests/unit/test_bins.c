/* Compact bins (gridding/range/points.h) against a naive sort. */
#include "gridding/range/points.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct box {
    int dim, grid[3], width, tile[3];
};

/* The cell and bin of a point, computed without the engine's tables: the first cell by floor and modulo, the bin by
 * trying each.
 */
struct home {
    size_t bin, source;
    int cell[3];
    double fraction[3];
};

static struct home home_of(const struct box *box, const struct range_bins *b, const float *k, size_t source)
{
    struct home home = {.source = source};
    for (int d = box->dim - 1; d >= 0; d--) {
        double left = (double)k[d] * box->grid[d] - 0.5 * box->width, first = ceil(left);
        int cell = (int)fmod(fmod(first, box->grid[d]) + box->grid[d], box->grid[d]), bin = b->tiles[d] - 1;
        while (bin * (int64_t)box->grid[d] / b->tiles[d] > cell)
            bin--;
        home.bin = home.bin * (size_t)b->tiles[d] + (size_t)bin;
        home.cell[d] = cell - (int)(bin * (int64_t)box->grid[d] / b->tiles[d]);
        home.fraction[d] = first - left;
    }
    return home;
}

static int by_bin_then_source(const void *a, const void *b)
{
    const struct home *p = a, *q = b;
    if (p->bin != q->bin)
        return p->bin < q->bin ? -1 : 1;
    return p->source < q->source ? -1 : 1;
}

static void check_counts(const struct box *box, const struct range_bins *b, size_t count)
{
    size_t bins = 1, occupied = 0, largest = 0;
    for (int d = 0; d < 3; d++) {
        int grid = d < box->dim ? box->grid[d] : 1, most = 0;
        assert_int_equal(b->grid[d], grid);
        assert_true(b->tiles[d] == 1 || b->tiles[d] % 2 == 0);
        for (int t = 0; t < b->tiles[d]; t++) {
            int cells = range_tile_start(t + 1, b->tiles[d], grid) - range_tile_start(t, b->tiles[d], grid);
            assert_true(b->tiles[d] == 1 || (cells >= box->width && cells >= box->tile[d]));
            most = cells > most ? cells : most;
        }
        assert_int_equal(b->most_cells[d], most);
        bins *= (size_t)b->tiles[d];
    }
    assert_int_equal(b->bins, bins);
    assert_int_equal(b->count, count);
    assert_int_equal(b->offset[0], 0);
    assert_int_equal(b->offset[bins], count);
    for (size_t bin = 0; bin < bins; bin++) {
        size_t here = b->offset[bin + 1] - b->offset[bin];
        occupied += here > 0;
        largest = here > largest ? here : largest;
    }
    assert_int_equal(b->occupied, occupied);
    assert_int_equal(b->largest, largest);
}

/* Offsets, order, cells and fractions of all points are those of the naive sort, for any number of threads. */
static void check_bins(const struct box *box, size_t count, const float *k)
{
    struct home *home = allocate(count, sizeof *home);
    for (int threads = 1; threads <= 5; threads += 2) {
        struct range_bins *b = NULL;
        assert_int_equal(range_bins_create(&b, box->dim, box->grid, box->width, box->tile, count, k, threads, NULL), 0);
        check_counts(box, b, count);
        for (size_t i = 0; i < count; i++)
            home[i] = home_of(box, b, k + i * (size_t)box->dim, i);
        qsort(home, count, sizeof *home, by_bin_then_source);
        for (size_t i = 0; i < count; i++) {
            const struct range_point *p = b->point + i;
            assert_int_equal(p->source, home[i].source);
            assert_in_range(i, b->offset[home[i].bin], b->offset[home[i].bin + 1] - 1);
            for (int d = 0; d < box->dim; d++) {
                assert_int_equal(p->cell[d], home[i].cell[d]);
                /* The engine's wrapped coordinate is a double below 2^12: its error is 2^-41; the fraction is a
                 * float. */
                assert_true(fabs(p->fraction[d] - home[i].fraction[d]) <= 0x1p-24);
            }
        }
        range_bins_free(b);
    }
    free(home);
}

static const struct box boxes[] = {
    {2, {64, 48, 1}, 4, {8, 8, 1}},     {2, {61, 35, 1}, 5, {7, 9, 1}},   {2, {16, 300, 1}, 6, {12, 12, 1}},
    {3, {24, 20, 36}, 4, {6, 6, 6}},    {3, {19, 27, 33}, 3, {3, 1, 8}},  {3, {12, 12, 12}, 10, {8, 8, 8}},
    {3, {16, 16, 16}, 2, {16, 16, 16}}, {3, {40, 8, 64}, 7, {16, 4, 16}},
};
enum { BOXES = sizeof boxes / sizeof *boxes };

static void random_points(void **state)
{
    (void)state;
    enum { COUNT = 3001 };
    float *k = allocate(3 * COUNT, sizeof *k);
    for (size_t box = 0; box < BOXES; box++) {
        uint64_t seed = 11 + box;
        /* Coordinates span three periods, so they wrap. A third of the points lies close together. */
        for (size_t i = 0; i < 3 * COUNT; i++)
            k[i] = (float)(uniform_next(&seed) * 3 - 1.5) * (i / 3 % 3 == 0 ? 0.02f : 1.0f);
        check_bins(&boxes[box], COUNT, k);
    }
    free(k);
}

/* Points whose kernel begins exactly on a cell, at the box's ends and at bins' first cells, and points one float beside
 * them. */
static void points_on_edges(void **state)
{
    (void)state;
    for (size_t box = 0; box < BOXES; box++) {
        const struct box *b = &boxes[box];
        int longest = b->grid[0] > b->grid[1] ? b->grid[0] : b->grid[1];
        longest = longest > b->grid[2] ? longest : b->grid[2];
        size_t count = (size_t)(longest + 2 * b->width) * 2 * 3, n = 0;
        float *k = allocate(count * (size_t)b->dim, sizeof *k);
        for (int half = -2 * b->width; half < 2 * longest + 2 * b->width; half++)
            for (int side = -1; side <= 1; side++, n++)
                for (int d = 0; d < b->dim; d++) {
                    float exact = (float)(half * 0.5 / b->grid[d]);
                    k[n * (size_t)b->dim + (size_t)d] =
                        side == 0 ? exact : nextafterf(exact, side < 0 ? -INFINITY : INFINITY);
                }
        assert_true(n == count);
        check_bins(b, count, k);
        free(k);
    }
}

/* The tie rule for a point at 0: its kernel begins at -W/2, which is a cell if the width is even; it gets fraction
 * 0. */
static void kernels_that_begin_on_a_cell_have_fraction_0(void **state)
{
    (void)state;
    static const int tile[3] = {8, 8, 1};
    static const float zero[2] = {0, 0};
    for (int width = 2; width <= 8; width++) {
        struct range_bins *b = NULL;
        assert_int_equal(range_bins_create(&b, 2, (const int[3]){32, 32, 1}, width, tile, 1, zero, 1, NULL), 0);
        int first = 32 - width / 2;
        for (int d = 0; d < 2; d++) {
            assert_int_equal(b->point->cell[d] + range_tile_start(b->tiles[d] - 1, b->tiles[d], 32), first);
            assert_true(b->point->fraction[d] == (width % 2 == 0 ? 0.0f : 0.5f));
        }
        assert_int_equal(b->offset[b->bins - 1], 0);
        range_bins_free(b);
    }
}

static void tiny_and_huge_coordinates(void **state)
{
    (void)state;
    static const float k[] = {-1e-30f, 1e-30f, -0.0f,   0.0f,     1.0f,    -1.0f,       7.0f,       -7.0f,
                              0.5f,    -0.5f,  511.75f, -511.25f, 4096.0f, 0.99999994f, 1.0000001f, -0.99999994f};
    for (size_t box = 0; box < BOXES; box++)
        check_bins(&boxes[box], sizeof k / sizeof *k / (size_t)boxes[box].dim, k);
    check_bins(&boxes[0], 0, k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_points),
        cmocka_unit_test(points_on_edges),
        cmocka_unit_test(kernels_that_begin_on_a_cell_have_fraction_0),
        cmocka_unit_test(tiny_and_huge_coordinates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
