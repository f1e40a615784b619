/* The data structures of the rival benchmarks, without a GPU: the contents of every kind of bins, and gathers through
 * them, against a sum in double precision. The GPU kernels visit the same bins with the same functions. */
#include "tests/bench/rival.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PROBED = 4000 };

/* The polynomial's error is 2e-7 of the kernel's peak, and most weights are a twentieth of the peak; sums are
 * float32. */
#define TOLERANCE 5e-6

struct scene {
    struct rival_sample *samples;
    size_t count;
    int grid;
    struct rival_probe *probe;
    struct rival_kernel kernel;
};

static struct rival_set small_set(const char *name, int grid, size_t samples, double deviation, int readout)
{
    return (struct rival_set){name, "", grid, samples, deviation, readout};
}

static void scene_open(struct scene *s, struct rival_set set)
{
    s->count = set.samples;
    s->grid = set.grid;
    s->samples = calloc(s->count, sizeof *s->samples);
    assert_non_null(s->samples);
    rival_fill(&set, s->samples);
    assert_int_equal(rival_probe_create(&s->probe, s->grid, PROBED, s->samples, s->count), 0);
    assert_true(s->probe->cells > PROBED / 3);
    assert_int_equal(rival_kernel_make(&s->kernel), 0);
}

static void scene_close(struct scene *s)
{
    rival_probe_free(s->probe);
    free(s->samples);
}

static bool same_sample(const struct rival_sample *a, const struct rival_sample *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Each bin holds its first `depth` samples in the order of the input, then empty slots; the others overflow, in order.
 */
static void check_bins(const struct scene *s, const struct rival_cpu_bins *b)
{
    const struct rival_shape *shape = &b->bins.shape;
    size_t bins = (size_t)s->grid * (size_t)s->grid * (size_t)s->grid, used = 0, over = 0;
    uint32_t *seen = calloc(bins, sizeof *seen);
    assert_non_null(seen);
    for (size_t i = 0; i < s->count; i++) {
        size_t bin = rival_bin_of(s->grid, s->samples + i);
        if (seen[bin] == shape->depth) {
            assert_true(same_sample(b->overflow + over++, s->samples + i));
            continue;
        }
        size_t first = rival_bin_range(&b->bins, shape->regular, RIVAL_BIN_COUNT, bin).first;
        struct rival_sample got = rival_get(b->slot, b->bins.slots, shape->layout, first + seen[bin]++);
        assert_true(same_sample(&got, s->samples + i));
    }
    assert_int_equal(over, b->overflowed);
    for (size_t bin = 0; bin < bins; bin++) {
        struct rival_range kept = rival_bin_range(&b->bins, shape->regular, RIVAL_BIN_COUNT, bin);
        size_t end = shape->regular ? (bin + 1) * shape->depth : b->start[bin + 1];
        assert_int_equal(kept.count, seen[bin]);
        assert_int_equal(b->count[bin], seen[bin]);
        assert_true(shape->regular || (kept.first % shape->round == 0 && end - kept.first < seen[bin] + shape->round));
        for (size_t i = kept.first + kept.count; i < end; i++)
            assert_true(rival_get(b->slot, b->bins.slots, shape->layout, i).x == RIVAL_NONE);
        used += kept.count;
    }
    assert_int_equal(used + over, s->count);
    free(seen);
}

static void check_shape(const struct scene *s, struct rival_shape shape)
{
    size_t bins = (size_t)s->grid * (size_t)s->grid * (size_t)s->grid;
    struct c32 *values = malloc(bins * sizeof *values), *probed = malloc(s->probe->cells * sizeof *probed);
    struct rival_cpu_bins *b = NULL;
    assert_non_null(values);
    assert_non_null(probed);
    assert_int_equal(rival_cpu_bin(&b, &shape, s->samples, s->count), 0);
    check_bins(s, b);
    for (int access = RIVAL_BIN_COUNT; access <= RIVAL_ROW; access++) {
        if (access == RIVAL_BIN_SENTINEL && !shape.regular)
            continue;
        memset(values, 0xff, bins * sizeof *values);
        rival_cpu_gather(&b->bins, (enum rival_access)access, &s->kernel, values);
        for (size_t i = 0; i < s->probe->cells; i++)
            probed[i] = values[s->probe->cell[i]];
        double error = rival_probe_error(s->probe, probed, b->overflow, b->overflowed);
        assert_true(error <= TOLERANCE);
        /* The last bin takes the remainder. */
        if (b->overflowed > s->count / 10)
            assert_true(rival_probe_error(s->probe, probed, NULL, 0) > 0.01);
    }
    rival_cpu_bins_free(b);
    free(values);
    free(probed);
}

static void check_set(struct rival_set set, uint32_t depth)
{
    struct scene s;
    scene_open(&s, set);
    check_shape(&s, (struct rival_shape){set.grid, depth, true, 1, RIVAL_PACKED});
    for (int layout = RIVAL_PACKED; layout <= RIVAL_VECTORS; layout++)
        check_shape(&s, (struct rival_shape){set.grid, depth, false, 1, (enum rival_layout)layout});
    check_shape(&s, (struct rival_shape){set.grid, depth, false, 4, RIVAL_PACKED});
    scene_close(&s);
}

static void kooshball(void **state)
{
    (void)state;
    /* Spokes without a sample at exactly RIVAL_WIDTH / 2 cells from k = 0: there rounding would decide whether the
     * kernel, which ends with a step, still reaches it. */
    check_set(small_set("koosh", 28, 3000, 0, 26), 9);
    check_set(small_set("koosh", 25, 3000, 0, 26), 116); /* as deep as the number of spokes: nothing overflows */
}

static void gaussian(void **state)
{
    (void)state;
    check_set(small_set("gauss", 23, 6000, 4, 0), 3);
}

static void uniform(void **state)
{
    (void)state;
    check_set(small_set("uniform", 16, 4000, 0, 0), 1);
}

/* The engine sums overflowing samples; all cells are compared. */
static void overflow_on_the_cpu(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, small_set("gauss", 30, 5000, 5, 0));
    size_t cells = (size_t)s.grid * (size_t)s.grid * (size_t)s.grid;
    struct c32 *values = malloc(cells * sizeof *values), *probed = malloc(s.probe->cells * sizeof *probed);
    assert_non_null(values);
    assert_non_null(probed);
    assert_int_equal(rival_cpu_scatter(s.grid, s.samples, s.count, 2, values), 0);
    for (size_t i = 0; i < s.probe->cells; i++)
        probed[i] = values[s.probe->cell[i]];
    assert_true(rival_probe_error(s.probe, probed, NULL, 0) <= TOLERANCE);
    probed[s.probe->cells / 2].re += 1;
    assert_true(rival_probe_error(s.probe, probed, NULL, 0) > TOLERANCE);
    free(values);
    free(probed);
    scene_close(&s);
}

/* The data sets stay within the limits of the rivals and have the right names. */
static void sets(void **state)
{
    (void)state;
    double wider = 0;
    for (const struct rival_set *set = rival_sets(); set->name != NULL; set++) {
        struct rival_set part = *set;
        part.samples = 20000;
        struct rival_sample *samples = calloc(part.samples, sizeof *samples);
        assert_non_null(samples);
        rival_fill(&part, samples);
        double squares = 0, middle = set->grid / 2;
        for (size_t i = 0; i < part.samples; i++) {
            const float at[3] = {samples[i].x, samples[i].y, samples[i].z};
            for (int d = 0; d < 3; d++)
                assert_true(at[d] >= RIVAL_WIDTH / 2 && at[d] < (float)(set->grid - RIVAL_WIDTH / 2));
            squares += pow((double)at[0] - middle, 2) / (double)part.samples;
            /* Sample 0 of a spoke is its outer end; the middle one is at k = 0. */
            if (set->readout > 0 && i % (size_t)set->readout == (size_t)set->readout / 2)
                assert_true(at[0] == (float)middle && at[1] == (float)middle && at[2] == (float)middle);
        }
        /* The grid's edge is almost 4 standard deviations from the centre of the first cluster. */
        if (set->deviation > 0 && set->deviation < 20)
            assert_true(fabs(sqrt(squares) / set->deviation - 1) < 0.02);
        assert_true(set->deviation == 0 || sqrt(squares) > wider);
        wider = set->deviation > 0 ? sqrt(squares) : 0;
        free(samples);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kooshball),           cmocka_unit_test(gaussian), cmocka_unit_test(uniform),
        cmocka_unit_test(overflow_on_the_cpu), cmocka_unit_test(sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
