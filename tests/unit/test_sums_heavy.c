/* Sums of limited range on the CPU (gridding/range/sums.h) where they are hard on their machinery: points that crowd in
 * few bins, shared by threads; progress and cancel; memory told before it is taken; positions given as doubles; vectors
 * and scalars in one pass. */
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <malloc.h>
#include <math.h>
#include <string.h>

/* exp(-2.5 (r / reach)^2), and the force and potential that erf leaves of 1 / r, 6 r_s = reach = *of. */
static double bell(const void *of, double t)
{
    (void)of;
    return exp(-2.5 * (1 - t));
}

static const double reach = 2;

static double far_force(const void *of, double t)
{
    const double root = 1.1283791670955126, a = 3 / *(const double *)of, r = *(const double *)of * sqrt(1 - t);
    const double u = a * r, v = u * u;
    if (u < 0.2)
        return root * 2 / 3 * a * a * a * (1 - v * (3.0 / 5 - v * (3.0 / 14 - v * (1.0 / 18 - v / 88))));
    return (erf(u) - root * u * exp(-v)) / (r * r * r);
}

static double far_potential(const void *of, double t)
{
    const double root = 1.1283791670955126, a = 3 / *(const double *)of, u = 3 * sqrt(1 - t);
    return u < 1e-4 ? root * a : erf(u) / u * a;
}

static struct range_law law_make(enum range_form form, int power, double soft, double error,
                                 double (*value)(const void *of, double t))
{
    struct range_law law;
    const struct range_law_params params = {.form = form, .reach = reach, .soft = soft, .power = power, .error = error};
    assert_int_equal(range_law_make(&law, &params, value, &reach), 0);
    return law;
}

struct laws {
    struct range_law bell, force, potential;
};

static struct laws laws_make(void)
{
    return (struct laws){law_make(RANGE_RADIAL, 0, 0, 1e-6, bell), law_make(RANGE_SHORT, 3, 0.02, 1e-5, far_force),
                         law_make(RANGE_SHORT, 1, 0.02, 1e-6, far_potential)};
}

/* ---- crowds ---- */

enum crowd { ONE_BIN, PLUMMER, CROWDS };

/* A crowd in a box of 12^3. */
struct scene {
    struct range_points_params params;
    float *at, *values;
};

static struct scene scene_make(enum crowd crowd, size_t count)
{
    struct scene s = {.at = allocate(3 * count, sizeof *s.at), .values = allocate(count, sizeof *s.values)};
    for (size_t i = 0; i < count; i++) {
        /* Plummer's sphere (1911): radius a (u^(-2/3) - 1)^(-1/2), a = 0.3, within the box. */
        const double u = uniform(7 * i), z = 2 * uniform(7 * i + 1) - 1, phi = 6.283185307179586 * uniform(7 * i + 2);
        const double r = fmin(5, 0.3 / sqrt(pow(u, -2.0 / 3) - 1)), flat = sqrt(1 - z * z);
        const double place[CROWDS][3] = {
            {6.05 + 0.4 * u, 6.05 + 0.4 * uniform(7 * i + 3), 6.05 + 0.4 * uniform(7 * i + 4)},
            {6 + r * flat * cos(phi), 6 + r * flat * sin(phi), 6 + r * z}};
        for (int d = 0; d < 3; d++)
            s.at[3 * i + (size_t)d] = (float)place[crowd][d];
        s.values[i] = (float)(uniform(7 * i + 5) - 0.2);
    }
    s.params = (struct range_points_params){
        .box = {3, {24, 24, 24}, {0, 0, 0}, {0.5, 0.5, 0.5}, {true, true, false}},
        .reach = reach,
        .inputs = count,
        .at = s.at,
    };
    return s;
}

static void scene_free(struct scene *s)
{
    free(s->at);
    free(s->values);
}

enum { NODES = 24 * 24 * 24 };

/* All sums of a scene, one after the other; pairs of its first points. */
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
    enum { COUNT = 9000 }; /* more than a tile sums in one part: two here */
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

/* 400,000 points in one bin: 49 parts of the tiles around them. */
static void a_very_full_bin_sums_to_what_it_holds(void **state)
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
        /* The fit's error and that of float32 sums of 1024, of the sum of what is summed. */
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
    int calls, last; /* last: the call that ends the work; 0: none does */
    double fraction;
    size_t held; /* bytes allocated, at most */
};

/* Bytes that the program has allocated. */
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

/* What takes long: one of the sums, of one thread; `crowd` points crowd, one point of `one` reaches 200 cells. */
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

/* A listener is asked many times within one bin, one tile and one point, and is obeyed at once. */
static void a_listener_ends_any_sum(void **state)
{
    (void)state;
    struct work w = work_make();
    for (int sum = 0; sum < SUMS; sum++)
        for (int last = 1; last <= 2; last++) {
            struct heard heard = {.last = last};
            const struct listener listener = {&heard, hear};
            if (do_work(&w, (enum sum)sum, &listener) != ERR_CANCELED || heard.calls != last)
                fail_msg("sum %d was not ended by call %d: %d came", sum, last, heard.calls);
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

static void memory_is_told_before_it_is_taken(void **state)
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
        /* Threads and what they need are there from the first time on. */
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
            if (heard.held > base + most[sum]) /* OpenMP's library may have freed something of its own meanwhile */
                fail_msg("case %zu, sum %d: %zu bytes, %zu were told", n, sum, heard.held - base, most[sum]);
            if (sum == 0)
                base = allocated();
        }
        struct range_points_info info;
        range_points_info(points, &info);
        assert_true(base - before <= memory.points && info.bytes <= memory.points);
        /* And not far too much: nobody is refused who has the room. */
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

/* ---- doubles ---- */

enum { FINE = 400 };

/* Groups of points far from the origin, where float32 knows 1/16 at best; some across a face. */
static double *fine_points(const struct range_box *box)
{
    double *at = allocate((size_t)3 * FINE, sizeof *at);
    for (size_t i = 0; i < FINE; i++)
        for (int d = 0; d < 3; d++) {
            const double length = box->cells[d] * box->spacing[d], centre = i % 2 ? 0.7123 * length : 0;
            const double place = centre + 4 * pow(uniform(3 * i + (size_t)d), 3) - 1.5;
            at[3 * i + (size_t)d] = box->origin[d] + (place < 0 ? place + length : place);
        }
    return at;
}

static void doubles_keep_their_digits(void **state)
{
    (void)state;
    const struct laws laws = laws_make();
    const struct range_box box = {3, {1000, 1000, 1000}, {-5, 0, 1e5}, {1000, 1000, 1000}, {true, true, true}};
    double *at = fine_points(&box);
    float *values = allocate(FINE, sizeof *values), *vectors = allocate((size_t)3 * FINE, sizeof *vectors),
          *scalars = allocate(FINE, sizeof *scalars);
    for (size_t i = 0; i < FINE; i++)
        values[i] = (float)(0.5 + uniform(900 + i));
    const struct range_points_params params = {.box = box, .reach = reach, .inputs = FINE, .at_double = at};
    const struct range_pair_sums both = {&laws.potential, &laws.force, scalars, vectors};
    const double edge[3] = {0, 0.3, 2};
    uint64_t counts[2] = {0}, wanted[2] = {0};
    struct dev *dev;
    struct range_points *points;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    assert_int_equal(range_pairs(points, points, &both, 1, values, NULL), 0);
    assert_int_equal(range_count(points, points, 3, edge, counts, NULL), 0);
    for (size_t i = 0; i < FINE; i++) {
        double sum[4] = {0}, size = 0, size_scalar = 0;
        for (size_t j = 0; j < FINE; j++) {
            double away[3], r2 = 0;
            for (int d = 0; d < 3; d++) {
                const double difference = at[3 * j + (size_t)d] - at[3 * i + (size_t)d];
                away[d] = difference - 1e6 * rint(difference / 1e6);
                r2 += away[d] * away[d];
            }
            if (i == j || r2 >= reach * reach)
                continue;
            wanted[0] += r2 < edge[1] * edge[1];
            wanted[1] += r2 >= edge[1] * edge[1];
            const double t = 1 - r2 / (reach * reach), s2 = r2 + 0.02 * 0.02, v = (double)values[j];
            const double force = v * (pow(s2, -1.5) - far_force(&reach, t));
            for (int d = 0; d < 3; d++)
                sum[d] += force * away[d];
            sum[3] += v * (pow(s2, -0.5) - far_potential(&reach, t));
            /* float32's part of what is summed, and the fit's of the largest value that it has. */
            size += v * sqrt(r2) * (1e-6 * pow(s2, -1.5) + 1e-5 * far_force(&reach, 1));
            size_scalar += v * (1e-6 * pow(s2, -0.5) + 1e-6 * far_potential(&reach, 1));
        }
        for (size_t d = 0; d < 3; d++)
            assert_true(fabs((double)vectors[d * FINE + i] - sum[d]) <= size);
        assert_true(fabs((double)scalars[i] - sum[3]) <= size_scalar);
    }
    assert_true(wanted[0] > 1000 && counts[0] == wanted[0] && counts[1] == wanted[1]);
    range_points_free(points);
    dev_free(dev);
    free(at);
    free(values);
    free(vectors);
    free(scalars);
}

static void doubles_reach_nodes_exactly(void **state)
{
    (void)state;
    struct range_law law = law_make(RANGE_RADIAL, 0, 0, 1e-6, bell);
    const struct range_box box = {3, {16, 8, 8}, {1e6, 1e6, 1e6}, {0.25, 0.25, 0.25}, {false, false, false}};
    /* Beside node 12 by the reach, and a little more and less than it: 2^-30, which float32 has not at 1e6. */
    const double at[9] = {1e6 + 1, 1e6,    1e6, 1e6 + 1 - ldexp(1, -30), 1e6 + 1, 1e6, 1e6 + 1 + ldexp(1, -30),
                          1e6,     1e6 + 1};
    const float values[3] = {1, 10, 100};
    float grid[16 * 8 * 8] = {0};
    const struct range_points_params params = {.box = box, .reach = reach, .inputs = 3, .at_double = at};
    struct dev *dev;
    struct range_points *points;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    assert_int_equal(range_scatter(points, &law, 1, values, grid, NULL), 0);
    assert_true(grid[12] == 0);                                            /* at the reach: not within */
    assert_true(grid[4 * 16 + 12] == 0);                                   /* beyond */
    assert_true(fabsf(grid[4 * 16 * 8 + 12] - 100 * expf(-2.5f)) < 1e-3f); /* within */
    range_points_free(points);
    dev_free(dev);
}

/* ---- vectors and scalars ---- */

static void one_pass_sums_what_two_do(void **state)
{
    (void)state;
    enum { COUNT = 2500 };
    const struct laws laws = laws_make();
    struct range_law other = laws.potential;
    struct scene s = scene_make(PLUMMER, COUNT);
    float *vectors = allocate((size_t)2 * 3 * COUNT, sizeof *vectors),
          *scalars = allocate((size_t)2 * COUNT, sizeof *scalars);
    struct dev *dev;
    struct range_points *points;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    assert_int_equal(range_points_create(&points, dev, &s.params, NULL), 0);
    for (int agree = 0; agree < 2; agree++) {
        other.params.reach = agree ? reach : 1.7;
        const struct range_pair_sums both = {&other, &laws.force, scalars, vectors};
        const struct range_pair_sums first = {.vector_law = &laws.force, .vectors = vectors + (size_t)3 * COUNT},
                                     second = {.scalar_law = &other, .scalars = scalars + COUNT};
        assert_int_equal(range_pairs(points, points, &both, 1, s.values, NULL), 0);
        assert_int_equal(range_pairs(points, points, &first, 1, s.values, NULL), 0);
        assert_int_equal(range_pairs(points, points, &second, 1, s.values, NULL), 0);
        assert_memory_equal(vectors, vectors + (size_t)3 * COUNT, 3 * COUNT * sizeof *vectors);
        assert_memory_equal(scalars, scalars + COUNT, COUNT * sizeof *scalars);
    }
    range_points_free(points);
    dev_free(dev);
    free(vectors);
    free(scalars);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowds_have_the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(a_very_full_bin_sums_to_what_it_holds),
        cmocka_unit_test(a_listener_ends_any_sum),
        cmocka_unit_test(progress_rises_to_the_end),
        cmocka_unit_test(memory_is_told_before_it_is_taken),
        cmocka_unit_test(doubles_keep_their_digits),
        cmocka_unit_test(doubles_reach_nodes_exactly),
        cmocka_unit_test(one_pass_sums_what_two_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
