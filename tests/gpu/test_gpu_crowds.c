/* Sums of limited range on a GPU (gridding/range/sums.h) over points that crowd in one bin: the same bits on every run,
 * sums like the CPU's, at any depth of bins, with a listener, in memory that is estimated before it is allocated.
 * Prints TAP; without a GPU, reports everything as skipped. */
#define SUMS_DEVICE DEV_GPU
#include "tests/gpu/crowd.h"
#include "tests/gpu/gpu_or_skip.h"

/* ---- the same bits, and the CPU's sums ---- */

static const struct law_case *const laws[] = {&potential, &blob, &cube, &within, &force, &beyond, &shifted};
enum { LAWS = sizeof laws / sizeof *laws };

static void the_same_bits_on_every_run(void **state)
{
    (void)state;
    struct cloud c = crowd_make(60000, true, 3);
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    const size_t all = 3 * c.nodes;
    float *grid[2], *values[2];
    for (int l = 0; l < LAWS; l++) {
        const struct range_law law = law_of(laws[l]);
        for (int run = 0; run < 2; run++) {
            struct range_points *points = points_with(&c, dev, law.params.reach, RANGE_DEPTH_AUTO, RANGE_SPLIT);
            grid[run] = calloc(all, sizeof(float));
            values[run] = calloc(3 * c.count, sizeof(float));
            scatter(dev, points, &law, &c, grid[run]);
            gather(dev, points, &law, &c, grid[run], values[run]);
            range_points_free(points);
        }
        assert_memory_equal(grid[0], grid[1], all * sizeof(float));
        assert_memory_equal(values[0], values[1], 3 * c.count * sizeof(float));
        for (int run = 0; run < 2; run++) {
            free(grid[run]);
            free(values[run]);
        }
    }
    dev_free(dev);
    cloud_free(&c);
}

/* The devices' sums differ by at most the errors of float32 sums and of the fit: each is within close_to()'s bound of
 * the exact sum. Values, grids and these laws are not negative, so a sum equals the sum of magnitudes. A node's value
 * may err by the fit's error of its largest value; a point reaches fewer than CUBE nodes. */
static void the_devices_agree(void **state)
{
    (void)state;
    enum { CUBE = 3000 };
    static const struct law_case *const positive[] = {&potential, &blob, &cube, &within, &shifted};
    for (size_t l = 0; l < sizeof positive / sizeof *positive; l++)
        for (int channels = 1; channels <= 6; channels += 5) {
            struct cloud c = crowd_make(20000, l == 1 || l == 2, channels);
            const struct range_law law = law_of(positive[l]);
            const size_t all = (size_t)channels * c.nodes, held = (size_t)channels * c.count;
            float *grid[2], *values[2], *even = calloc(all, sizeof(float));
            uint64_t seed = 8;
            for (size_t i = 0; i < held; i++)
                c.values[i] = fabsf(c.values[i]);
            for (size_t i = 0; i < all; i++)
                even[i] = (float)uniform_next(&seed);
            for (int device = 0; device < 2; device++) {
                struct dev *dev;
                assert_int_equal(dev_create(&dev, device == 0 ? DEV_CPU : DEV_GPU, 0, 0), 0);
                struct range_points *points = points_with(&c, dev, law.params.reach, RANGE_DEPTH_AUTO, RANGE_SPLIT);
                grid[device] = calloc(all, sizeof(float));
                values[device] = calloc(held, sizeof(float));
                scatter(dev, points, &law, &c, grid[device]);
                gather(dev, points, &law, &c, even, values[device]);
                range_points_free(points);
                dev_free(dev);
            }
            for (size_t i = 0; i < all; i++)
                close_to(positive[l]->name, grid[1][i], (double)grid[0][i],
                         2 * fabs((double)grid[0][i]) + fit_size(positive[l], 20000) * 2);
            for (size_t i = 0; i < held; i++)
                close_to(positive[l]->name, values[1][i], (double)values[0][i],
                         2 * fabs((double)values[0][i]) + 2 * fit_size(positive[l], CUBE));
            for (int device = 0; device < 2; device++) {
                free(grid[device]);
                free(values[device]);
            }
            free(even);
            cloud_free(&c);
        }
}

/* ---- depths ---- */

/* 400,000 points in one bin sum correctly at any depth, however the overflow is summed. */
static void crowds_sum_correctly_at_any_depth(void **state)
{
    (void)state;
    enum { COUNT = 400000, PROBES = 5 };
    static const struct {
        int depth;
        enum range_excess overflow;
    } ways[] = {{RANGE_DEPTH_AUTO, RANGE_SPLIT},
                {RANGE_DEPTH_NONE, RANGE_SPLIT},
                {300, RANGE_SPLIT},
                {5000, RANGE_SPLIT},
                {RANGE_DEPTH_AUTO, RANGE_OVERFLOW_CPU},
                {350000, RANGE_OVERFLOW_CPU},
                {100, RANGE_OVERFLOW_CPU}};
    struct cloud c = crowd_make(COUNT, true, 1);
    const struct range_law law = law_of(&blob);
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    double exact_sum[PROBES] = {0}, size[PROBES] = {0};
    size_t node[PROBES];
    for (int n = 0; n < PROBES; n++) {
        node[n] = ((size_t)(12 + n) * 24 + (size_t)(12 - n)) * 24 + (size_t)(10 + n);
        for (size_t i = 0; i < COUNT; i++) {
            double from[3];
            node_from(&c, node[n], i, from);
            const double value = over_images(&blob, &c.box, from, scale_of(&c, i), -1) * (double)c.values[i];
            exact_sum[n] += value;
            size[n] += fabs(value) + fit_size(&blob, (double)c.values[i]) * 0.01;
        }
    }
    float *grid = calloc(c.nodes, sizeof *grid), *back = calloc(COUNT, sizeof *back), *first = NULL;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct range_points *points = points_with(&c, dev, law.params.reach * 1.5, ways[w].depth, ways[w].overflow);
        struct range_points_info info;
        range_points_info(points, &info);
        assert_true(info.count == COUNT && info.largest_bin >= COUNT / 10 * 9);
        memset(grid, 0, c.nodes * sizeof *grid);
        scatter(dev, points, &law, &c, grid);
        set_gives(dev, points, &law, &c, grid);
        for (int n = 0; n < PROBES; n++)
            close_to("a crowd", grid[node[n]], exact_sum[n], size[n]);
        /* The sum at a point differs only by rounding between the two methods. */
        gather(dev, points, &law, &c, grid, back);
        if (!first) {
            first = calloc(COUNT, sizeof *first);
            memcpy(first, back, COUNT * sizeof *first);
        }
        for (size_t i = 0; i < COUNT; i += 97)
            close_to("to a crowd", back[i], (double)first[i], 50 * fabs((double)first[i]) + 1e6);
        range_points_free(points);
    }
    free(grid);
    free(back);
    free(first);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- a listener ---- */

struct heard {
    int calls, last; /* last: the call that cancels the work; 0: none does */
    double fraction;
    size_t least; /* the least number of free bytes */
    struct dev *dev;
};

static int hear(void *context, size_t done, size_t most)
{
    struct heard *heard = context;
    size_t available, total;
    assert_true(most > 0 && done <= most);
    assert_true((double)done / (double)most >= heard->fraction);
    heard->fraction = (double)done / (double)most;
    assert_int_equal(dev_memory(heard->dev, &available, &total), 0);
    heard->least = available < heard->least ? available : heard->least;
    return ++heard->calls == heard->last ? err_set(ERR_CANCELED, "Enough.") : 0;
}

enum { CREATE, SCATTER, GATHER, SUMS };

struct work {
    struct cloud cloud;
    struct range_law law;
    struct range_points *points;
    float *values, *grid, *gathered; /* on the device */
    struct dev *dev;
    int depth;
    enum range_excess overflow;
};

static int do_work(const struct work *w, int sum, const struct listener *listener)
{
    const struct range_points_params params = {.box = w->cloud.box,
                                               .reach = w->law.params.reach,
                                               .inputs = w->cloud.count,
                                               .at = w->cloud.at,
                                               .scale = w->cloud.scale,
                                               .bin_depth = w->depth,
                                               .overflow = w->overflow};
    struct range_points *points = NULL;
    if (sum == SCATTER)
        return range_scatter(w->points, &w->law, 2, w->values, w->grid, listener);
    if (sum == GATHER)
        return range_gather(w->points, &w->law, 2, w->grid, w->gathered, listener);
    const int rc = range_points_create(&points, w->dev, &params, listener);
    assert_true(rc == 0 || !points);
    range_points_free(points);
    return rc;
}

static struct work work_make(size_t count, int depth, enum range_excess overflow)
{
    struct work w = {.cloud = crowd_make(count, true, 2), .law = law_of(&blob), .depth = depth, .overflow = overflow};
    assert_int_equal(dev_create(&w.dev, DEV_GPU, 0, 0), 0);
    w.points = points_with(&w.cloud, w.dev, w.law.params.reach, depth, overflow);
    w.values = on_device(w.dev, w.cloud.values, 2 * count);
    void *memory = NULL;
    assert_int_equal(dev_alloc(w.dev, 2 * w.cloud.nodes * sizeof(float), &memory), 0);
    w.grid = memory;
    assert_int_equal(dev_zero(w.dev, w.grid, 2 * w.cloud.nodes * sizeof(float)), 0);
    assert_int_equal(dev_alloc(w.dev, 2 * count * sizeof(float), &memory), 0);
    w.gathered = memory;
    return w;
}

static void work_free(struct work *w)
{
    range_points_free(w->points);
    dev_release(w->dev, w->values);
    dev_release(w->dev, w->grid);
    dev_release(w->dev, w->gathered);
    dev_free(w->dev);
    cloud_free(&w->cloud);
}

static void a_listener_gets_progress_and_can_cancel(void **state)
{
    (void)state;
    struct work w = work_make(3000000, 2000, RANGE_SPLIT);
    for (int sum = 0; sum < SUMS; sum++) {
        struct heard all = {.least = SIZE_MAX, .dev = w.dev};
        const struct listener listener = {&all, hear};
        assert_int_equal(do_work(&w, sum, &listener), 0);
        assert_true(all.calls >= 2 && all.fraction == 1);
        for (int last = 1; last <= all.calls; last += all.calls > 3 ? all.calls / 3 : 1) {
            struct heard some = {.last = last, .least = SIZE_MAX, .dev = w.dev};
            const struct listener ends = {&some, hear};
            assert_int_equal(do_work(&w, sum, &ends), ERR_CANCELED);
            assert_int_equal(some.calls, last);
            assert_string_equal(err_last()->text, "Enough.");
        }
    }
    work_free(&w);
}

/* ---- memory ---- */

/* Never more than was estimated. */
static void memory_is_estimated_before_it_is_allocated(void **state)
{
    (void)state;
    static const enum range_excess overflow[2] = {RANGE_SPLIT, RANGE_OVERFLOW_CPU};
    for (int o = 0; o < 2; o++) {
        struct work w = work_make(500000, 1000, overflow[o]);
        const struct range_points_params params = {.box = w.cloud.box,
                                                   .reach = w.law.params.reach,
                                                   .inputs = w.cloud.count,
                                                   .at = w.cloud.at,
                                                   .scale = w.cloud.scale,
                                                   .bin_depth = w.depth,
                                                   .overflow = w.overflow};
        struct range_memory memory;
        struct range_points_info info;
        assert_int_equal(range_memory(w.dev, &params, &memory), 0);
        range_points_info(w.points, &info);
        assert_true(info.bytes <= memory.points && memory.points <= memory.create);
        const size_t told[SUMS] = {memory.create, memory.scatter, memory.gather};
        for (int sum = 0; sum < SUMS; sum++) {
            size_t available, total;
            assert_int_equal(dev_memory(w.dev, &available, &total), 0);
            struct heard all = {.least = SIZE_MAX, .dev = w.dev};
            const struct listener listener = {&all, hear};
            assert_int_equal(do_work(&w, sum, &listener), 0);
            assert_true(all.least + told[sum] >= available);
        }
        work_free(&w);
    }
}

/* A GPU that is out of memory reports it, and sums again once memory is free. */
static void out_of_memory_is_reported_as_such(void **state)
{
    (void)state;
    struct work w = work_make(2000000, 500, RANGE_SPLIT);
    size_t available, total;
    void *hog[64] = {NULL};
    int hogs = 0;
    assert_int_equal(dev_memory(w.dev, &available, &total), 0);
    for (size_t bytes = available / 2; bytes >= 1 << 19 && hogs < 64;)
        if (dev_alloc(w.dev, bytes, &hog[hogs]) == 0)
            hogs++;
        else
            bytes /= 2;
    assert_int_equal(do_work(&w, CREATE, NULL), ERR_GPU_OOM);
    assert_int_equal(do_work(&w, SCATTER, NULL), ERR_GPU_OOM);
    for (int i = 0; i < hogs; i++)
        dev_release(w.dev, hog[i]);
    assert_int_equal(do_work(&w, CREATE, NULL), 0);
    assert_int_equal(do_work(&w, SCATTER, NULL), 0);
    work_free(&w);
}

/* test_gpu_crowds [PATTERN]: runs the tests whose names match; under a sanitizer all of them take long. */
int main(int argc, char **argv)
{
    gpu_or_skip();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_on_every_run),
        cmocka_unit_test(the_devices_agree),
        cmocka_unit_test(crowds_sum_correctly_at_any_depth),
        cmocka_unit_test(a_listener_gets_progress_and_can_cancel),
        cmocka_unit_test(memory_is_estimated_before_it_is_allocated),
        cmocka_unit_test(out_of_memory_is_reported_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
