/* Sums of limited range on the CPU (gridding/range/sums.h): points crowded in few bins, shared by threads; progress and
 * cancel; memory estimated before it is allocated. */
#include "tests/unit/crowd_fixture.h"

#include <malloc.h>
#include <string.h>

/* ---- crowds ---- */

/* All sums of a scene, one after the other; pair sums take its first points only. */
enum { PAIRED = 1500 };
struct results {
    float *grid, *gathered, *vectors, *scalars;
    uint64_t counts[3];
};

static struct results results_of(const struct scene *s, const struct laws *laws, int threads)
{
    const size_t count = s->params.inputs;
    const double edge[4] = {0, 0.1, 0.3, 2};
    struct results r = {allocate(NODES, sizeof(float)),
                        allocate(count, sizeof(float)),
                        allocate((size_t)3 * PAIRED, sizeof(float)),
                        allocate(PAIRED, sizeof(float)),
                        {0}};
    const struct range_pair_sums both = {&laws->potential, &laws->force, r.scalars, r.vectors};
    struct dev *dev;
    struct range_points *points;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    assert_int_equal(range_points_create(&points, dev, &s->params, NULL), 0);
    assert_int_equal(range_scatter(points, &laws->bell, 1, s->values, r.grid, NULL), 0);
    assert_int_equal(range_gather(points, &laws->bell, 1, r.grid, r.gathered, NULL), 0);
    range_points_free(points);
    struct range_points_params some = s->params;
    some.inputs = PAIRED;
    assert_int_equal(range_points_create(&points, dev, &some, NULL), 0);
    assert_int_equal(range_pairs(points, points, &both, 1, s->values, NULL), 0);
    assert_int_equal(range_count(points, points, 4, edge, r.counts, NULL), 0);
    range_points_free(points);
    dev_free(dev);
    return r;
}

static void results_free(struct results *r)
{
    free(r->grid);
    free(r->gathered);
    free(r->vectors);
    free(r->scalars);
}

static void crowds_have_the_same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    enum { COUNT = 9000 }; /* more than a tile sums in one part: here two parts */
    const struct laws laws = laws_make();
    for (int crowd = 0; crowd < CROWDS; crowd++) {
        struct scene s = scene_make((enum crowd)crowd, COUNT);
        struct results first = results_of(&s, &laws, 1);
        for (int threads = 2; threads <= 7; threads += threads == 3 ? 4 : 1) {
            struct results r = results_of(&s, &laws, threads);
            assert_memory_equal(r.grid, first.grid, NODES * sizeof *r.grid);
            assert_memory_equal(r.gathered, first.gathered, COUNT * sizeof *r.gathered);
            assert_memory_equal(r.vectors, first.vectors, 3 * PAIRED * sizeof *r.vectors);
            assert_memory_equal(r.scalars, first.scalars, PAIRED * sizeof *r.scalars);
            assert_memory_equal(r.counts, first.counts, sizeof r.counts);
            results_free(&r);
        }
        results_free(&first);
        scene_free(&s);
    }
}

/* 400,000 points in one bin, in 49 parts of the tiles around them. */
static void a_very_full_bin_sums_correctly(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    const struct range_law law = law_make(RANGE_RADIAL, 0, 0, 1e-6, bell);
    struct scene s = scene_make(ONE_BIN, COUNT);
    float *grid = allocate(NODES, sizeof *grid);
    struct range_points_info info;
    struct range_points *points;
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 3), 0);
    assert_int_equal(range_points_create(&points, dev, &s.params, NULL), 0);
    range_points_info(points, &info);
    assert_int_equal(info.largest_bin, COUNT);
    assert_int_equal(range_scatter(points, &law, 1, s.values, grid, NULL), 0);
    for (int n = 0; n < 4; n++) {
        const int node[3] = {12 + n, 12 - n, 11};
        double sum = 0, size = 0;
        for (size_t i = 0; i < COUNT; i++) {
            double r2 = 0;
            for (int d = 0; d < 3; d++)
                r2 += pow(0.5 * node[d] - (double)s.at[3 * i + (size_t)d], 2);
            const double value = r2 < reach * reach ? (double)s.values[i] * exp(-2.5 * r2 / (reach * reach)) : 0;
            sum += value;
            size += fabs(value);
        }
        /* The error of the fit plus that of float32 sums of 1024, relative to the sum of magnitudes. */
        const float here = grid[((size_t)node[2] * 24 + (size_t)node[1]) * 24 + (size_t)node[0]];
        assert_true(fabs((double)here - sum) <= 4e-6 * size);
        assert_true(n > 2 || size > 0);
    }
    free(grid);
    range_points_free(points);
    dev_free(dev);
    scene_free(&s);
}

/* ---- a listener ---- */

struct heard {
    int calls, last; /* last: the call that cancels the work; 0: none does */
    double fraction;
    size_t held; /* the most bytes allocated */
};

/* Bytes that the program has allocated; only sanitizers define it. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static int hear(void *context, size_t done, size_t most)
{
    struct heard *heard = context;
    assert_true(most > 0 && done <= most);
    const double fraction = (double)done / (double)most;
    assert_true(fraction >= heard->fraction);
    heard->fraction = fraction;
    const size_t held = allocated();
    heard->held = held > heard->held ? held : heard->held;
    return ++heard->calls == heard->last ? err_set(ERR_CANCELED, "Enough.") : 0;
}

enum sum { CREATE, SCATTER, GATHER, PAIRS, TWO_PAIRS, COUNTS, SUMS };

/* A long sum on one thread; the points of `crowd` are crowded, and the single point of `one` reaches 200 cells. */
struct work {
    struct scene scene;
    struct dev *dev;
    struct range_points *crowd, *one;
    struct laws laws;
    float *grid, *sums;
};

static int do_work(const struct work *w, enum sum sum, const struct listener *listener)
{
    const float *values = w->scene.values;
    struct range_law wide = w->laws.force;
    const double edge[2] = {0, 1};
    uint64_t counts[1] = {0};
    struct range_pair_sums sums = {.vector_law = &w->laws.force, .vectors = w->sums};
    struct range_points *points = NULL;
    int rc;
    switch (sum) {
    case CREATE:
        rc = range_points_create(&points, w->dev, &w->scene.params, listener);
        assert_true(rc == 0 || points == NULL);
        range_points_free(points);
        return rc;
    case SCATTER:
        return range_scatter(w->crowd, &w->laws.bell, 1, values, w->grid, listener);
    case GATHER:
        return range_gather(w->one, &w->laws.bell, 1, w->grid, w->sums, listener);
    case PAIRS:
        return range_pairs(w->one, w->crowd, &sums, 1, values, listener);
    case TWO_PAIRS:
        wide.params.soft = 0.03;
        sums.scalar_law = &wide;
        sums.scalars = w->sums + 3;
        return range_pairs(w->one, w->crowd, &sums, 1, values, listener);
    default:
        rc = range_count(w->one, w->crowd, 2, edge, counts, listener);
        assert_true(rc == 0 || counts[0] == 0);
        return rc;
    }
}

static struct work work_make(void)
{
    static const float at[3] = {6.2f, 6.2f, 6.2f}, scale[1] = {40};
    struct work w = {.scene = scene_make(ONE_BIN, 600000), .laws = laws_make()};
    struct range_points_params one = w.scene.params;
    w.scene.params.box.periodic[2] = true;
    one.box.periodic[2] = true;
    one.inputs = 1;
    one.at = at;
    one.scale = scale;
    w.grid = allocate(NODES, sizeof *w.grid);
    w.sums = allocate(4, sizeof *w.sums);
    assert_int_equal(dev_create(&w.dev, DEV_CPU, 0, 1), 0);
    assert_int_equal(range_points_create(&w.crowd, w.dev, &w.scene.params, NULL), 0);
    assert_int_equal(range_points_create(&w.one, w.dev, &one, NULL), 0);
    return w;
}

static void work_free(struct work *w)
{
    range_points_free(w->crowd);
    range_points_free(w->one);
    dev_free(w->dev);
    scene_free(&w->scene);
    free(w->grid);
    free(w->sums);
}

/* The listener is called many times within one bin, one tile and one point, and a cancel ends the sum at once. */
static void a_listener_can_cancel_any_sum(void **state)
{
    (void)state;
    struct work w = work_make();
    for (int sum = 0; sum < SUMS; sum++)
        for (int last = 1; last <= 2; last++) {
            struct heard heard = {.last = last};
            const struct listener listener = {&heard, hear};
            if (do_work(&w, (enum sum)sum, &listener) != ERR_CANCELED || heard.calls != last)
                fail_msg("sum %d was not canceled by call %d: %d calls were made", sum, last, heard.calls);
            assert_string_equal(err_last()->text, "Enough.");
        }
    work_free(&w);
}

static void progress_rises_to_the_end(void **state)
{
    (void)state;
    enum { PROGRESS = 9000 };
    struct scene s = scene_make(PLUMMER, PROGRESS);
    const struct laws laws = laws_make();
    struct work w = {.scene = s, .laws = laws};
    w.grid = allocate(NODES, sizeof *w.grid);
    w.sums = allocate((size_t)3 * PROGRESS, sizeof *w.sums);
    assert_int_equal(dev_create(&w.dev, DEV_CPU, 0, 1), 0);
    assert_int_equal(range_points_create(&w.crowd, w.dev, &s.params, NULL), 0);
    for (int sum = SCATTER; sum <= PAIRS; sum++) {
        struct heard heard = {0};
        const struct listener listener = {&heard, hear};
        w.one = w.crowd;
        assert_int_equal(do_work(&w, (enum sum)sum, &listener), 0);
        assert_true(heard.calls > 1 && heard.fraction == 1);
    }
    w.one = NULL;
    work_free(&w);
}

/* ---- memory ---- */

static void memory_is_estimated_before_it_is_allocated(void **state)
{
    (void)state;
    static const struct {
        size_t count;
        bool scaled, fine;
        int channels, threads;
        double reach, law_reach;
    } cases[] = {{0, false, false, 1, 1, 2, 1},   {1, true, true, 1, 2, 2, 2},      {9000, false, false, 1, 2, 2, 0.3},
                 {1500, true, false, 5, 7, 3, 2}, {9000, true, true, 1, 3, 0.5, 2}, {1500, false, true, 2, 1, 5, 2}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        struct scene s = scene_make(PLUMMER, cases[n].count);
        const size_t count = cases[n].count, channels = (size_t)cases[n].channels;
        float *scale = allocate(count, sizeof *scale), *values = allocate(channels * count, sizeof *values);
        float *grid = allocate(channels * NODES, sizeof *grid), *sums = allocate(4 * channels * count, sizeof *sums);
        double *fine = allocate(3 * count, sizeof *fine);
        for (size_t i = 0; i < 3 * count; i++) {
            fine[i] = (double)s.at[i];
            scale[i / 3] = 1;
        }
        s.params.reach = cases[n].reach;
        s.params.scale = cases[n].scaled ? scale : NULL;
        s.params.at = cases[n].fine ? NULL : s.at;
        s.params.at_double = cases[n].fine ? fine : NULL;
        struct laws laws = laws_make();
        laws.bell.params.reach = cases[n].law_reach;
        const struct range_pair_sums both = {&laws.potential, &laws.force, sums, sums + channels * count};
        const double edge[3] = {0, 0.2, 1};
        uint64_t counts[2];
        struct dev *dev;
        struct range_points *points;
        struct range_memory memory;
        assert_int_equal(dev_create(&dev, DEV_CPU, 0, cases[n].threads), 0);
        assert_int_equal(range_memory(dev, &s.params, &memory), 0);
        /* The first call creates threads and their memory. */
        assert_int_equal(range_points_create(&points, dev, &s.params, NULL), 0);
        range_points_free(points);
        size_t most[5] = {memory.create, memory.scatter, memory.gather, memory.pairs, memory.count};
        const size_t before = allocated();
        size_t base = before;
        for (int sum = 0; sum < 5; sum++) {
            struct heard heard = {0};
            const struct listener listener = {&heard, hear};
            int rc = sum == 0   ? range_points_create(&points, dev, &s.params, &listener)
                     : sum == 1 ? range_scatter(points, &laws.bell, cases[n].channels, values, grid, &listener)
                     : sum == 2 ? range_gather(points, &laws.bell, cases[n].channels, grid, values, &listener)
                     : sum == 3 ? range_pairs(points, points, &both, cases[n].channels, values, &listener)
                                : range_count(points, points, 3, edge, counts, &listener);
            assert_int_equal(rc, 0);
            assert_true(heard.calls > 0);
            if (heard.held > base + most[sum]) /* OpenMP's library may have freed memory of its own meanwhile */
                fail_msg("case %zu, sum %d: %zu bytes, estimated %zu", n, sum, heard.held - base, most[sum]);
            if (sum == 0)
                base = allocated();
        }
        struct range_points_info info;
        range_points_info(points, &info);
        assert_true(base - before <= memory.points && info.bytes <= memory.points);
        /* The estimate is not far too high, so a job that fits is not refused. */
        assert_true(memory.points <= info.bytes + 65536 && memory.create <= memory.points + 4 * count + 65536);
        range_points_free(points);
        dev_free(dev);
        free(scale);
        free(values);
        free(grid);
        free(sums);
        free(fine);
        scene_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowds_have_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(a_very_full_bin_sums_correctly),
        cmocka_unit_test(a_listener_can_cancel_any_sum),
        cmocka_unit_test(progress_rises_to_the_end),
        cmocka_unit_test(memory_is_estimated_before_it_is_allocated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
