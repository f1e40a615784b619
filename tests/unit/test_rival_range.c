/* The three other applications of the rival benchmarks, without a GPU: rows of bins, gathers through them and the
 * engine's sums, against sums in double precision. The GPU's kernels visit the same rows with the same functions. */
#include "tests/bench/rival_range.h"
#include "gridding/base/dev.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { CHECKED = 600 };

/* float32 sums of terms of both signs (potentials), near a source. */
#define TOLERANCE 2e-5

struct scene {
    struct rival_range_set set;
    struct rival_sample *samples;
    struct rival_check *check;
    float *sums, *found;
};

static void scene_open(struct scene *s, struct rival_range_set set)
{
    *s = (struct scene){.set = set};
    s->samples = calloc(set.samples, sizeof *s->samples);
    assert_non_null(s->samples);
    rival_range_fill(&s->set, s->samples);
    assert_int_equal(rival_check_create(&s->check, &s->set.sum, s->samples, set.samples, CHECKED), 0);
    assert_true(s->check->outputs > CHECKED / 3);
    s->sums = malloc(rival_outputs(&s->set.sum, set.samples) * sizeof *s->sums);
    s->found = malloc(3 * CHECKED * sizeof *s->found);
    assert_non_null(s->sums);
    assert_non_null(s->found);
}

static void scene_close(struct scene *s)
{
    rival_check_free(s->check);
    free(s->samples);
    free(s->sums);
    free(s->found);
}

static double error_of(struct scene *s, const struct rival_sample *rest, size_t count)
{
    const size_t parts = (size_t)s->check->parts;
    for (size_t i = 0; i < parts * s->check->outputs; i++)
        s->found[i] = s->sums[parts * s->check->output[i / parts] + i % parts];
    return rival_check_error(s->check, s->found, rest, count);
}

static void check_gather(struct scene *s, struct rival_shape shape, enum rival_access access,
                         const struct rival_rows *rows)
{
    struct rival_cpu_bins *b = NULL;
    assert_int_equal(rival_cpu_bin(&b, &shape, s->samples, s->set.samples), 0);
    memset(s->sums, 0xff, rival_outputs(&s->set.sum, s->set.samples) * sizeof *s->sums);
    rival_range_gather(&b->bins, access, &s->set.sum, rows, s->samples, s->set.samples, s->sums);
    assert_true(error_of(s, b->overflow, b->overflowed) <= TOLERANCE);
    /* The sources that overflowed are part of the sum. */
    if (b->overflowed > s->set.samples / 10)
        assert_true(error_of(s, NULL, 0) > 0.01);
    rival_cpu_bins_free(b);
}

static void check_set(struct rival_range_set set, uint32_t depth)
{
    struct scene s;
    scene_open(&s, set);
    for (int choice = RIVAL_SPHERE; choice <= RIVAL_BOX; choice++) {
        struct rival_rows rows = {0};
        if (set.sum.law != RIVAL_FORCE)
            assert_int_equal(rival_rows_make(&rows, &s.set.sum, (enum rival_choice)choice), 0);
        const struct rival_shape compact = {set.sum.grid, depth, false, 1, RIVAL_PACKED},
                                 regular = {set.sum.grid, depth, true, 1, RIVAL_PACKED};
        check_gather(&s, compact, RIVAL_ROW, &rows);
        check_gather(&s, compact, RIVAL_BIN_COUNT, &rows);
        check_gather(&s, regular, RIVAL_BIN_COUNT, &rows);
    }
    struct dev *dev = NULL;
    struct rival_engine *engine = NULL;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(rival_engine_create(&engine, dev, &s.set.sum, s.samples, set.samples, s.samples, set.samples), 0);
    assert_int_equal(rival_engine_sum(engine), 0);
    assert_int_equal(rival_engine_fetch(engine, s.sums), 0);
    rival_engine_free(engine);
    dev_free(dev);
    assert_true(error_of(&s, NULL, 0) <= TOLERANCE);
    scene_close(&s);
}

static void potential(void **state)
{
    (void)state;
    check_set((struct rival_range_set){"", "", {RIVAL_POTENTIAL, 8, 8, 3, 0, 0, 0}, 300, 2, 0, 0}, 4);
    check_set((struct rival_range_set){"", "", {RIVAL_POTENTIAL, 7, 4, 2.6f, 0, 0, 0}, 300, 0, 0, 0}, 1);
}

static void blobs(void **state)
{
    (void)state;
    check_set((struct rival_range_set){"", "", {RIVAL_BLOB, 21, 1, 3.298f, -2.5f, 1.94f, 0}, 900, 0, 50, 0}, 9);
    check_set((struct rival_range_set){"", "", {RIVAL_BLOB, 13, 2, 3.298f, -2.5f, 1.94f, 0}, 200, 1, 0, 0}, 1);
}

static void forces(void **state)
{
    (void)state;
    check_set((struct rival_range_set){"", "", {RIVAL_FORCE, 9, 0, 1, 0, 0, 0.05f}, 2000, 0, 0, 1.7}, 6);
    check_set((struct rival_range_set){"", "", {RIVAL_FORCE, 6, 0, 1.5f, 0, 0, 0.02f}, 500, 0, 0, 0}, 2);
}

/* The rows of the potential's tiles: the list has all bins that a node of the tile reaches, and no others. */
static void rows_have_the_bins_within_reach(void **state)
{
    (void)state;
    const struct rival_sum of = {RIVAL_POTENTIAL, 52, 8, 3, 0, 0, 0};
    struct rival_rows sphere, box;
    assert_int_equal(rival_rows_make(&sphere, &of, RIVAL_SPHERE), 0);
    assert_int_equal(rival_rows_make(&box, &of, RIVAL_BOX), 0);
    int within = 0, listed = 0;
    for (int z = -5; z <= 5; z++)
        for (int y = -5; y <= 5; y++)
            for (int x = -5; x <= 5; x++) {
                const int bin[3] = {x, y, z};
                double away = 0;
                for (int d = 0; d < 3; d++)
                    away += pow(fmax(fmax(bin[d] - 7.0 / 8, -1 - bin[d]), 0), 2);
                within += away < 9;
            }
    for (int i = 0; i < sphere.count; i++)
        listed += sphere.row[i].to - sphere.row[i].from + 1;
    assert_int_equal(listed, within);
    assert_int_equal(box.count, 49);
    assert_true(sphere.count < box.count);
}

/* The statistics of the sets, and those in the thesis' tables. */
static void sets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double mean, most_least, most_most;
    } known[] = {
        {"cutcp-small", 1.209648, 10, 22}, {"cutcp-large", 4.056298, 14, 28}, {"blob-small", 0.006634, 360, 362},
        {"blob-large", 0.02231, 2, 5},     {"nbody-random", 4, 70, 130},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct rival_range_set *set = rival_range_sets();
        while (strcmp(set->name, known[i].name) != 0)
            set++;
        struct rival_sample *samples = calloc(set->samples, sizeof *samples);
        struct rival_statistics found;
        assert_non_null(samples);
        rival_range_fill(set, samples);
        assert_int_equal(rival_statistics_make(&found, set->sum.grid, samples, set->samples), 0);
        assert_true(fabs(found.mean / known[i].mean - 1) < 0.01);
        assert_int_equal(found.least, 0);
        assert_true((double)found.most >= known[i].most_least && (double)found.most <= known[i].most_most);
        assert_true(found.deviation > 0);
        free(samples);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(potential), cmocka_unit_test(blobs),
        cmocka_unit_test(forces),    cmocka_unit_test(rows_have_the_bins_within_reach),
        cmocka_unit_test(sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
