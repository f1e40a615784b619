/* Samples that overflow a GPU's bins: the rows that the CPU's sums reach, these sums against double sums, and the
 * choice of the depth. */
#include "gridding/range/kernel.h"
#include "gridding/range/overflow.h"
#include "gridding/range/range.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Samples in clusters `wide` turns across, each around a position of its own; cluster 0 lies around 0, so its cells
 * wrap. */
struct cloud {
    int dim, grid[3], width, tile;
    int clusters;
    double wide;
    size_t count;
};

static const struct cloud clouds[] = {
    {2, {96, 80, 1}, 4, 12, 1, 0.05, 300}, {2, {90, 70, 1}, 5, 10, 3, 0.01, 200}, {2, {64, 64, 1}, 4, 16, 1, 1.0, 900},
    {3, {60, 48, 40}, 4, 8, 1, 0.04, 400}, {3, {33, 35, 50}, 6, 8, 2, 0.02, 60},  {3, {40, 20, 30}, 3, 8, 9, 0.01, 90},
    {3, {12, 14, 10}, 10, 8, 1, 0.01, 20}, {2, {200, 40, 1}, 2, 8, 2, 0.0, 10},   {3, {24, 24, 24}, 4, 8, 1, 0.5, 0},
};

static float *cloud_fill(const struct cloud *c)
{
    uint64_t seed = 4711 + c->count;
    float *k = allocate(c->count * (size_t)c->dim, sizeof *k);
    double at[16][3];
    for (int i = 0; i < c->clusters; i++)
        for (int d = 0; d < 3; d++)
            at[i][d] = i == 0 ? 0 : uniform_next(&seed) - 0.5;
    for (size_t i = 0; i < c->count; i++)
        for (int d = 0; d < c->dim; d++)
            k[i * (size_t)c->dim + (size_t)d] =
                (float)(at[i % (size_t)c->clusters][d] + c->wide * (uniform_next(&seed) - 0.5));
    return k;
}

static size_t cells_of(const struct cloud *c)
{
    return (size_t)c->grid[0] * (size_t)c->grid[1] * (size_t)c->grid[2];
}

/* The packed sums equal those of the whole grid bit for bit, and the grid is 0 outside the rows. A row that is one cell
 * short would miss part of a bin's tile, whose edge cells are rarely all 0. */
static void rows_hold_the_whole_sum(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof clouds / sizeof *clouds; i++) {
        const struct cloud *c = &clouds[i];
        const int tile[3] = {c->tile, c->tile, c->tile};
        uint64_t seed = 99;
        float *k = cloud_fill(c);
        struct range_bins *bins;
        struct range_kernel *law;
        struct range_cpu *sums;
        struct range_rows *rows;
        assert_int_equal(range_bins_create(&bins, c->dim, c->grid, c->width, tile, c->count, k, 2, NULL), 0);
        assert_int_equal(range_kernel_create(&law, c->width, kernel_beta(c->width, 2), false, 1e-6), 0);
        assert_int_equal(range_cpu_create(&sums, bins, law, 4, RANGE_TOGETHER, 2, NULL), 0);
        assert_int_equal(range_rows_create(&rows, bins), 0);
        struct c32 *values = allocate(4 * c->count, sizeof *values), *grid = allocate(4 * cells_of(c), sizeof *grid),
                   *packed = allocate(4 * rows->cells, sizeof *packed);
        for (size_t m = 0; m < 4 * c->count; m++)
            values[m] = (struct c32){(float)uniform_next(&seed) - 0.5f, (float)uniform_next(&seed)};
        memset(packed, 0xff, 4 * rows->cells * sizeof *packed);
        range_cpu_scatter(sums, 4, values, c->count, NULL, grid);
        range_cpu_scatter_rows(sums, rows, 4, values, c->count, NULL, packed);
        size_t at = 0;
        for (size_t r = 0; r < rows->count; r++) {
            const struct range_row *row = &rows->row[r];
            assert_true(r == 0 || row->line > row[-1].line);
            assert_int_equal(row->at, at);
            assert_int_equal(rows->of_line[row->line], r + 1);
            assert_in_range(row->cells, 1, c->grid[0]);
            for (uint32_t x = 0; x < row->cells; x++) {
                struct c32 *cell =
                    grid + 4 * ((size_t)row->line * (size_t)c->grid[0] + (row->first + x) % (uint32_t)c->grid[0]);
                assert_memory_equal(cell, packed + 4 * (row->at + x), 4 * sizeof *cell);
                memset(cell, 0, 4 * sizeof *cell);
            }
            at += row->cells;
        }
        assert_int_equal(rows->cells, at);
        for (size_t cell = 0; cell < 4 * cells_of(c); cell++)
            assert_true(grid[cell].re == 0 && grid[cell].im == 0);
        free(values);
        free(grid);
        free(packed);
        free(k);
        range_rows_free(rows);
        range_cpu_free(sums);
        range_kernel_free(law);
        range_bins_free(bins);
    }
}

/* A cluster around 0 touches a small part of the grid, on both sides of its edge. */
static void rows_of_a_cluster_are_few_and_short(void **state)
{
    (void)state;
    const struct cloud c = {3, {120, 120, 120}, 4, 8, 1, 0.02, 200};
    const int tile[3] = {c.tile, c.tile, c.tile};
    float *k = cloud_fill(&c);
    struct range_bins *bins;
    struct range_rows *rows;
    assert_int_equal(range_bins_create(&bins, c.dim, c.grid, c.width, tile, c.count, k, 1, NULL), 0);
    assert_int_equal(range_rows_create(&rows, bins), 0);
    /* Bins of 8 or 9 cells on both sides of 0, and a halo of 3: 21 cells per axis. */
    assert_in_range(rows->count, 1, 21 * 21);
    assert_in_range(rows->cells, 1, 21 * 21 * 21);
    assert_in_range(rows->row[0].first, 100, 119);
    free(k);
    range_rows_free(rows);
    range_bins_free(bins);
}

/* Every cell's sum in double precision with the kernel's own formula. */
static void expect(const struct cloud *c, double beta, bool radial, const float *k, const struct c32 *value,
                   double *cells)
{
    for (size_t m = 0; m < c->count; m++) {
        int first[3] = {0};
        double left[3] = {0};
        for (int d = 0; d < c->dim; d++) {
            left[d] = (double)k[m * (size_t)c->dim + (size_t)d] * c->grid[d];
            first[d] = (int)ceil(left[d] - 0.5 * c->width);
        }
        for (int z = 0; z < (c->dim == 3 ? c->width : 1); z++)
            for (int y = 0; y < c->width; y++)
                for (int x = 0; x < c->width; x++) {
                    double u[3] = {first[0] + x - left[0], first[1] + y - left[1], first[2] + z - left[2]}, w = 1,
                           square = 0;
                    for (int d = 0; d < c->dim; d++) {
                        double u2 = 4 * u[d] * u[d] / c->width / c->width;
                        w *= kernel_value(beta, u2);
                        square += u2;
                    }
                    w = radial ? kernel_value(beta, square) : w;
                    size_t cell = 0;
                    for (int d = 2; d >= 0; d--) {
                        int at = first[d] + (d == 0 ? x : d == 1 ? y : z);
                        cell = cell * (size_t)c->grid[d] + (size_t)((at % c->grid[d] + c->grid[d]) % c->grid[d]);
                    }
                    cells[2 * cell] += w * (double)value[m].re;
                    cells[2 * cell + 1] += w * (double)value[m].im;
                }
    }
}

/* Values are given in the requested order; transforms are computed in passes. */
static void sums_are_those_of_the_kernel(void **state)
{
    (void)state;
    static const int transforms[] = {1, 3, 7, 21};
    for (size_t i = 0; i < sizeof clouds / sizeof *clouds; i++) {
        const struct cloud *c = &clouds[i];
        const int count = transforms[i % 4];
        const bool radial = i % 3 == 2;
        uint64_t seed = 5;
        float *k = cloud_fill(c);
        struct overflow_shape shape = {
            .dim = c->dim, .width = c->width, .beta = kernel_beta(c->width, 2), .error = 1e-7};
        shape.radial = radial;
        shape.lanes = 16;
        shape.threads = 2;
        memcpy(shape.grid, c->grid, sizeof shape.grid);
        struct range_overflow *o = NULL;
        assert_int_equal(range_overflow_ops.create(&o, &shape, c->count, k), 0);
        const uint32_t *order = range_overflow_ops.order(o);
        const struct range_rows *rows = range_overflow_ops.rows(o);
        struct c32 *data = allocate((size_t)count * c->count, sizeof *data),
                   *values = allocate((size_t)count * c->count, sizeof *values),
                   *packed = allocate((size_t)count * rows->cells, sizeof *packed);
        for (size_t m = 0; m < (size_t)count * c->count; m++)
            data[m] = (struct c32){(float)uniform_next(&seed) - 0.5f, (float)uniform_next(&seed)};
        for (int t = 0; t < count; t++)
            for (size_t m = 0; m < c->count; m++)
                values[(size_t)t * c->count + m] = data[(size_t)t * c->count + order[m]];
        range_overflow_ops.scatter(o, count, values, packed);
        double *cells = allocate(2 * cells_of(c), sizeof *cells), error = 0, norm = 1e-30;
        for (int t = 0, first = 0, lanes = overflow_lanes(count, 16); t < count; t++) {
            if (t == first + lanes) {
                first = t;
                lanes = overflow_lanes(count - t, 16);
            }
            memset(cells, 0, 2 * cells_of(c) * sizeof *cells);
            expect(c, shape.beta, radial, k, data + (size_t)t * c->count, cells);
            for (size_t r = 0; r < rows->count; r++)
                for (uint32_t x = 0; x < rows->row[r].cells; x++) {
                    size_t cell = (size_t)rows->row[r].line * (size_t)c->grid[0] +
                                  (rows->row[r].first + x) % (uint32_t)c->grid[0];
                    struct c32 got = packed[(size_t)first * rows->cells + (rows->row[r].at + x) * (size_t)lanes +
                                            (size_t)(t - first)];
                    error += pow((double)got.re - cells[2 * cell], 2) + pow((double)got.im - cells[2 * cell + 1], 2);
                    norm += pow(cells[2 * cell], 2) + pow(cells[2 * cell + 1], 2);
                }
        }
        assert_true(sqrt(error / norm) < 2e-6); /* float32 sums of up to a few hundred values */
        free(cells);
        free(data);
        free(values);
        free(packed);
        free(k);
        range_overflow_ops.destroy(o);
    }
}

/* ---- the depth ---- */

enum { BINS = 300 };

/* Bins of a scan with a dense centre: a few contain most samples. */
static uint32_t fill_bins(uint32_t *first, uint64_t seed)
{
    uint32_t largest = 0;
    first[0] = 0;
    for (int b = 0; b < BINS; b++) {
        double u = uniform_next(&seed);
        uint32_t held = uniform_next(&seed) < 0.2 ? 0 : (uint32_t)(20 / (u * u + 1e-3));
        first[b + 1] = first[b] + held;
        largest = held > largest ? held : largest;
    }
    return largest;
}

static void depth_is_the_least_that_keeps_enough(void **state)
{
    (void)state;
    uint32_t first[BINS + 1];
    for (uint64_t seed = 1; seed < 20; seed++) {
        uint32_t largest = fill_bins(first, seed);
        size_t past = 0;
        for (uint32_t i = 0; i < first[BINS]; i++) { /* per sample, by its rank in its bin */
            int b = 0;
            while (first[b + 1] <= i)
                b++;
            past += i - first[b] >= 7;
        }
        assert_int_equal(overflow_count(first, BINS, 7), past);
        assert_int_equal(overflow_count(first, BINS, 0), first[BINS]);
        assert_int_equal(overflow_count(first, BINS, largest), 0);
        assert_true(overflow_count(first, BINS, largest - 1) > 0);
        assert_int_equal(overflow_depth_of(first, BINS, 0), largest);
        for (size_t most = 1; most < first[BINS]; most = 3 * most) {
            uint32_t depth = overflow_depth_of(first, BINS, most);
            assert_true(overflow_count(first, BINS, depth) <= most);
            assert_true(depth == 0 || overflow_count(first, BINS, depth - 1) > most);
        }
    }
}

/* The model reproduces the measurements at the probes, and its choice costs no more than the best of all depths. */
static void the_chosen_depth_costs_least(void **state)
{
    (void)state;
    uint32_t first[BINS + 1], largest = fill_bins(first, 3);
    const double all = first[BINS], some = all / 4;
    /* The CPU's time per sample relative to the GPU's, and the fixed cost of any overflow in seconds. */
    static const double slower[] = {0.5, 1, 3, 20, 100}, fixed[] = {0, 1e-5, 1e-3};
    bool none = false, much = false;
    for (int i = 0; i < 15; i++) {
        double gpu = 1e-8, cpu = gpu * slower[i % 5], start = fixed[i / 5];
        struct overflow_costs c = {
            .all = {all, 0, all * gpu, 0, 0, all * gpu},
            .some = {all - some, some, (all - some) * gpu, start + some * cpu, some * 1e-10, 0},
            .few = {all - 1, 1, (all - 1) * gpu, start, 0, fmax((all - 1) * gpu, start) + start},
        };
        c.some.total = fmax(c.some.gpu, c.some.cpu) + c.some.merge + start;
        assert_true(fabs(overflow_expected(&c, 0) - c.all.total) <= 1e-12);
        assert_true(fabs(overflow_expected(&c, some) - c.some.total) <= 1e-3 * c.some.total);
        uint32_t depth = overflow_choose(&c, first, BINS);
        double least = overflow_expected(&c, 0),
               chosen = overflow_expected(&c, (double)overflow_count(first, BINS, depth));
        for (uint32_t d = 1; d < largest; d++)
            least = fmin(least, overflow_expected(&c, (double)overflow_count(first, BINS, d)));
        assert_true(chosen <= 1.05 * least);
        none = none || depth == largest;
        much = much || overflow_count(first, BINS, depth) > all / 3;
    }
    assert_true(none && much); /* the cases cover both choices */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_hold_the_whole_sum),      cmocka_unit_test(rows_of_a_cluster_are_few_and_short),
        cmocka_unit_test(sums_are_those_of_the_kernel), cmocka_unit_test(depth_is_the_least_that_keeps_enough),
        cmocka_unit_test(the_chosen_depth_costs_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
