/* Sums of limited range on a GPU (gridding/range/sums.h): the CPU's cases compared with sums in double precision, and
 * cases of a GPU's own: the same bits on every run, parts of crowded tiles, a listener, memory estimated before it is
 * allocated, sums like the CPU's. Prints TAP; without a GPU, reports everything as skipped. */
#define SUMS_DEVICE DEV_GPU
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/sums_cases.h"

static const struct range_box crowded_box = {3, {24, 24, 24}, {0, 0, 0}, {0.5, 0.5, 0.5}, {true, true, false}};

/* Points of which nine tenths crowd in one bin. */
static struct cloud crowd_make(size_t count, bool scaled, int channels)
{
    struct cloud c = cloud_make(&crowded_box, count, EVERYWHERE, scaled, channels);
    uint64_t seed = 3;
    for (size_t i = 0; i < count; i++)
        for (size_t d = 0; d < 3 && i % 10 > 0; d++)
            c.at[3 * i + d] = (float)(6.05 + 0.2 * uniform_next(&seed));
    return c;
}

static struct range_points *points_with(const struct cloud *c, struct dev *dev, double reach, int depth,
                                        enum range_excess overflow)
{
    const struct range_points_params params = {.box = c->box,
                                               .reach = reach,
                                               .inputs = c->count,
                                               .at = c->at,
                                               .scale = c->scale,
                                               .bin_depth = depth,
                                               .overflow = overflow};
    struct range_points *points;
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    return points;
}

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

/* ---- cubes by tensor cores ---- */

static const struct grid_case cubes[] = {
    {"cubes, open", &cube, {3, {37, 15, 21}, {-3, 1, 0.25}, {0.5, 0.5, 0.5}, OPEN3}, 60, AROUND, true, 1},
    {"cubes, periodic", &cube, {3, {20, 9, 14}, {0, 0, 0}, {0.5, 0.9, 0.6}, PERIODIC3}, 40, AROUND, true, 1},
    {"cubes, a short axis", &cube, {3, {30, 12, 3}, {5, 5, 5}, {0.4, 0.5, 0.8}, PERIODIC3}, 40, EVERYWHERE, false, 1},
    {"cubes, clustered", &cube, {3, {12, 12, 12}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 3000, CLUSTERED, true, 1},
    {"boxes on cut-offs", &bell_box, {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3}, 90, LATTICE, false, 1},
    {"of several tiles", &bell_box, {3, {40, 19, 33}, {0, 0, 0}, {0.5, 0.5, 0.5}, PERIODIC3}, 150, LATTICE, false, 1},
    {"and open", &bell_box, {3, {67, 30, 17}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 150, LATTICE, false, 1},
    {"a lone box", &bell_box, {3, {40, 40, 40}, {0, 0, 0}, {0.1, 0.1, 0.1}, OPEN3}, 1, CLUSTERED, false, 1},
    {"no box", &bell_box, {3, {12, 13, 14}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3}, 0, EVERYWHERE, false, 1},
};

/* A node's terms are rounded to half precision four times, by at most 2^-11 each; values below 2^-24 of the largest
 * become 0. */
static void cubes_case(const struct grid_case *g)
{
    struct cloud c = cloud_make(&g->box, g->count, g->spread, g->scaled, 1);
    struct range_law law = law_of(g->law);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach, &dev);
    float *grid = calloc(c.nodes, sizeof *grid), *again = calloc(c.nodes, sizeof *again);
    double error = 0, all = 0;
    law.params.tolerance = 5e-4;
    scatter(dev, points, &law, &c, grid);
    scatter(dev, points, &law, &c, again);
    assert_memory_equal(grid, again, c.nodes * sizeof *grid);
    set_gives(dev, points, &law, &c, grid);
    for (size_t node = 0; node < c.nodes; node++) {
        double sum = 0, size = 0, nothing = 0;
        for (size_t i = 0; i < c.count; i++) {
            double from[3];
            node_from(&c, node, i, from);
            const double value = over_images(g->law, &c.box, from, scale_of(&c, i), -1) * (double)c.values[i];
            sum += value;
            size += fabs(value);
            nothing += value != 0 ? 2e-7 : 0;
        }
        if (!(fabs((double)grid[node] - sum) <= 2.1e-3 * size + nothing))
            fail_msg("%s: %.9g, expected %.9g (magnitudes sum to %.3g)", g->name, (double)grid[node], sum, size);
        error += ((double)grid[node] - sum) * ((double)grid[node] - sum);
        all += size * size;
    }
    assert_true(sqrt(error) <= 5e-4 * sqrt(all));
    free(grid);
    free(again);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

static void cubes_by_tensor_cores_to_grids(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof cubes / sizeof *cubes; g++)
        cubes_case(&cubes[g]);
}

/* 400,000 points in one bin, in one part and in many; a NaN value affects the nodes within its reach, and the others
 * are summed in float32. */
static void crowds_of_cubes_in_parts(void **state)
{
    (void)state;
    enum { COUNT = 400000, PROBES = 5 };
    static const int depths[] = {RANGE_DEPTH_NONE, RANGE_DEPTH_AUTO, 300};
    struct cloud c = crowd_make(COUNT, true, 1);
    struct range_law law = law_of(&cube);
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    law.params.tolerance = 5e-4;
    float *grid = calloc(c.nodes, sizeof *grid);
    for (size_t w = 0; w < sizeof depths / sizeof *depths; w++) {
        struct range_points *points = points_with(&c, dev, law.params.reach * 1.5, depths[w], RANGE_SPLIT);
        memset(grid, 0, c.nodes * sizeof *grid);
        scatter(dev, points, &law, &c, grid);
        set_gives(dev, points, &law, &c, grid);
        for (int n = 0; n < PROBES; n++) {
            const size_t node = ((size_t)(12 + n) * 24 + (size_t)(12 - n)) * 24 + (size_t)(10 + n);
            double sum = 0, size = 0;
            for (size_t i = 0; i < COUNT; i++) {
                double from[3];
                node_from(&c, node, i, from);
                const double value = over_images(&cube, &c.box, from, scale_of(&c, i), -1) * (double)c.values[i];
                sum += value;
                size += fabs(value);
            }
            assert_true(fabs((double)grid[node] - sum) <= 1e-4 * size);
        }
        range_points_free(points);
    }
    struct range_points *points = points_with(&c, dev, law.params.reach * 1.5, RANGE_DEPTH_AUTO, RANGE_SPLIT);
    c.values[7] = NAN;
    memset(grid, 0, c.nodes * sizeof *grid);
    scatter(dev, points, &law, &c, grid);
    size_t finite = 0;
    for (size_t i = 0; i < c.nodes; i++)
        finite += isfinite(grid[i]);
    assert_true(finite > 0 && finite < c.nodes);
    set_gives(dev, points, &law, &c, grid);
    range_points_free(points);
    free(grid);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- spheres of any values ---- */

/* Sums of values times a power of two are the sums times it, also close to the ends of float32's range; a value that is
 * not finite affects the nodes within its reach and no others. */
static void spheres_of_any_values(void **state)
{
    (void)state;
    static const int powers[] = {-90, -20, 20, 110};
    const struct range_box box = {3, {40, 21, 19}, {0, 0, 0}, {0.5, 0.5, 0.5}, OPEN3};
    struct cloud c = cloud_make(&box, 200, EVERYWHERE, true, 1);
    const struct range_law law = law_of(&bell_ball);
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach * 1.5, &dev);
    float *grid = allocate(c.nodes, sizeof *grid), *other = allocate(c.nodes, sizeof *other);
    memset(grid, 0, c.nodes * sizeof *grid);
    scatter(dev, points, &law, &c, grid);
    for (size_t w = 0; w < sizeof powers / sizeof *powers; w++) {
        for (size_t i = 0; i < c.count; i++)
            c.values[i] = ldexpf(c.values[i], powers[w]);
        memset(other, 0, c.nodes * sizeof *other);
        scatter(dev, points, &law, &c, other);
        for (size_t i = 0; i < c.nodes; i++)
            assert_true(other[i] == ldexpf(grid[i], powers[w]));
        for (size_t i = 0; i < c.count; i++)
            c.values[i] = ldexpf(c.values[i], -powers[w]);
    }
    for (int bad = 0; bad < 2; bad++) {
        c.values[7] = bad ? NAN : -INFINITY;
        memset(other, 0, c.nodes * sizeof *other);
        scatter(dev, points, &law, &c, other);
        set_gives(dev, points, &law, &c, other);
        for (size_t i = 0; i < c.nodes; i++) {
            double from[3];
            node_from(&c, i, 7, from);
            const bool reached = exact(&bell_ball, from, scale_of(&c, 7)) > 0;
            assert_true(isfinite(other[i]) == !reached);
        }
    }
    free(grid);
    free(other);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

/* Each point's reach ends next to a node, before or behind it by 1e-8 to 1e-5 of the reach, which float32 cannot tell:
 * the node counts if it is within in double precision. */
static void reaches_that_end_next_to_nodes(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    const struct range_box box = {3, {60, 50, 40}, {0, 0, 0}, {0.2, 0.2, 0.2}, OPEN3};
    struct cloud c = cloud_make(&box, COUNT, EVERYWHERE, true, 1);
    const struct range_law law = law_of(&bell_ball);
    size_t *node = allocate(COUNT, sizeof *node);
    uint64_t seed = 21;
    for (size_t i = 0; i < c.count; i++) {
        double from[3], r = 0;
        while (r < 0.6 || r > 2.2) {
            node[i] = (size_t)(uniform_next(&seed) * (double)c.nodes);
            node_from(&c, node[i], i, from);
            r = sqrt(from[0] * from[0] + from[1] * from[1] + from[2] * from[2]);
        }
        const double off = pow(10, -8 + 3 * uniform_next(&seed)) * (uniform_next(&seed) < 0.5 ? -1 : 1);
        c.scale[i] = (float)(r * (1 + off) / law.params.reach);
    }
    struct dev *dev;
    struct range_points *points = points_of(&c, 2, law.params.reach * 1.5, &dev);
    float *grid = allocate(c.nodes, sizeof *grid);
    memset(grid, 0, c.nodes * sizeof *grid);
    scatter(dev, points, &law, &c, grid);
    for (size_t n = 0; n < c.count; n++) {
        double sum = 0, size = 0;
        for (size_t i = 0; i < c.count; i++) {
            double from[3];
            node_from(&c, node[n], i, from);
            const double value = exact(&bell_ball, from, scale_of(&c, i)) * (double)c.values[i];
            sum += value;
            size += fabs(value);
        }
        close_to("next to a node", grid[node[n]], sum, size + 1e-3);
    }
    free(node);
    free(grid);
    range_points_free(points);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- positions as doubles ---- */

/* In a box that begins at 1e6, float32 positions would be multiples of 1/16. */
static void positions_given_as_doubles_keep_their_digits(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    const struct range_box box = {3, {20, 20, 20}, {1e6, -1e6, 0}, {0.5, 0.5, 0.5}, {true, false, true}};
    const struct range_law law = law_of(&blob);
    struct cloud c = {.box = box, .count = COUNT, .nodes = 8000, .channels = 1};
    double at[3 * COUNT];
    float values[COUNT];
    uint64_t seed = 12;
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t d = 0; d < 3; d++)
            at[3 * i + d] = box.origin[d] + 10 * uniform_next(&seed);
        values[i] = (float)(uniform_next(&seed) - 0.3);
    }
    c.values = values;
    const struct range_points_params params = {.box = box, .reach = law.params.reach, .inputs = COUNT, .at_double = at};
    struct dev *dev;
    struct range_points *points;
    float *grid = calloc(c.nodes, sizeof *grid);
    assert_int_equal(dev_create(&dev, DEV_GPU, 0, 0), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    scatter(dev, points, &law, &c, grid);
    for (size_t node = 0; node < c.nodes; node++) {
        double sum = 0, size = 0;
        const size_t place[3] = {node % 20, node / 20 % 20, node / 400};
        for (size_t i = 0; i < COUNT; i++) {
            double from[3];
            for (size_t d = 0; d < 3; d++)
                from[d] = box.origin[d] + (double)place[d] * 0.5 - at[3 * i + d];
            const double value = over_images(&blob, &box, from, 1, -1) * (double)values[i];
            sum += value;
            size += fabs(value) + fit_size(&blob, (double)values[i]);
        }
        close_to("doubles", grid[node], sum, size);
    }
    free(grid);
    range_points_free(points);
    dev_free(dev);
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

/* test_gpu_sums [PATTERN]: runs the tests whose names match; under a sanitizer all of them take long. */
int main(int argc, char **argv)
{
    gpu_or_skip();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_to_grids),
        cmocka_unit_test(grids_to_points_are_the_transpose),
        cmocka_unit_test(nodes_beyond_reach_have_no_effect),
        cmocka_unit_test(exclusion_is_a_law),
        cmocka_unit_test(parts_sum_to_the_whole),
        cmocka_unit_test(the_same_bits_on_every_run),
        cmocka_unit_test(the_devices_agree),
        cmocka_unit_test(crowds_sum_correctly_at_any_depth),
        cmocka_unit_test(cubes_by_tensor_cores_to_grids),
        cmocka_unit_test(crowds_of_cubes_in_parts),
        cmocka_unit_test(spheres_of_any_values),
        cmocka_unit_test(reaches_that_end_next_to_nodes),
        cmocka_unit_test(positions_given_as_doubles_keep_their_digits),
        cmocka_unit_test(a_listener_gets_progress_and_can_cancel),
        cmocka_unit_test(memory_is_estimated_before_it_is_allocated),
        cmocka_unit_test(out_of_memory_is_reported_as_such),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
