/* Sums over pairs of points and counts of distances on a GPU (gridding/range/sums.h): the CPU's cases compared with
 * sums in double precision, and cases of a GPU's own: the same bits on every run, sums like the CPU's, crowds whose
 * work is divided, images beyond the box, every law, a listener, memory estimated before it is allocated. Without a
 * GPU, reports everything as skipped. */
#define SUMS_DEVICE DEV_GPU
#include "tests/gpu/gpu_or_skip.h"
#include "tests/unit/pairs_cases.h"

static const struct range_box room = {3, {24, 24, 24}, {0, 0, 0}, {0.5, 0.5, 0.5}, {true, true, false}};

enum layout { EVEN, SPHERE, CORNER /* a sphere across the periodic faces */, ONE_CELL, LAYOUTS };

/* In a box of 12^3. */
static struct cloud laid_out(enum layout layout, size_t count)
{
    struct cloud c = cloud_make(&room, count, EVERYWHERE, false, 1);
    for (size_t i = 0; i < c.count && layout != EVEN; i++) {
        /* Plummer's sphere (1911): radius a (u^(-2/3) - 1)^(-1/2), a = 0.3, within the box. */
        const double u = uniform(7 * i), z = 2 * uniform(7 * i + 1) - 1, phi = 6.283185307179586 * uniform(7 * i + 2);
        const double r = fmin(5, 0.3 / sqrt(pow(u, -2.0 / 3) - 1)), flat = sqrt(1 - z * z);
        const double place[LAYOUTS][3] = {
            [SPHERE] = {6 + r * flat * cos(phi), 6 + r * flat * sin(phi), 6 + r * z},
            [CORNER] = {fmod(12 + r * flat * cos(phi), 12), fmod(12 + r * flat * sin(phi), 12), 6 + r * z},
            [ONE_CELL] = {6.05 + 0.01 * u, 6.05 + 0.01 * uniform(7 * i + 3), 6.05 + 0.01 * uniform(7 * i + 4)}};
        for (size_t d = 0; d < 3; d++)
            c.at[3 * i + d] = (float)place[layout][d];
    }
    return c;
}

static struct range_points *points_in(struct dev *dev, const struct cloud *c, double most)
{
    const struct range_points_params params = {
        .box = c->box, .reach = most, .inputs = c->count, .at = c->at, .scale = c->scale};
    struct range_points *points;
    assert_int_equal(range_points_create(&points, dev, &params, NULL), 0);
    return points;
}

static struct dev *device(enum dev_kind kind)
{
    struct dev *dev;
    assert_int_equal(dev_create(&dev, kind, 0, 0), 0);
    return dev;
}

/* ---- the CPU's sums, and the same bits ---- */

/* Vectors [3][count] and scalars [count] of a cloud, with points created anew. */
static float *both_of(struct dev *dev, const struct cloud *c, const struct range_law *vector_law,
                      const struct range_law *scalar_law)
{
    struct range_points *points = points_in(dev, c, vector_law->params.reach);
    float *sums = allocate(4 * c->count + 1, sizeof *sums);
    const struct range_pair_sums both = {scalar_law, vector_law, sums + 3 * c->count, sums};
    sum_pairs(dev, points, points, &both, 3, 1, c->count, c->count, c->values);
    range_points_free(points);
    return sums;
}

static struct range_law near_law(enum range_form form, int power, double least, double soft, double spline)
{
    struct range_law law;
    const struct range_law_params params = {
        .form = form, .reach = 2, .least = least, .soft = soft, .power = power, .error = 1e-6, .spline = spline};
    assert_int_equal(range_law_make(&law, &params,
                                    form == RANGE_INVERSE  ? one_value
                                    : form == RANGE_RADIAL ? potential_value
                                    : power == 3           ? far_force
                                                           : far_potential,
                                    &reach),
                     0);
    return law;
}

static const struct {
    enum range_form form;
    double least, soft, spline;
    bool scaled;
} forms[] = {
    {RANGE_SHORT, 0, 0.03, 0, false},   {RANGE_SHORT, 0, 0, 0, false},     {RANGE_SHORT, 0, 0, 0.2, false},
    {RANGE_INVERSE, 0, 0.03, 0, false}, {RANGE_INVERSE, 0, 0, 0.2, false}, {RANGE_SHORT, 0.1, 0.02, 0, false},
    {RANGE_INVERSE, 0.1, 0, 0, false},  {RANGE_RADIAL, 0, 0, 0, false},    {RANGE_SHORT, 0, 0.03, 0, true},
    {RANGE_RADIAL, 0, 0, 0, true},      {RANGE_INVERSE, 0, 0, 0.2, true},
};
enum { FORMS = sizeof forms / sizeof *forms };

static double square_sum(const float *v, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)v[i] * (double)v[i];
    return sum;
}

/* Each form, for evenly spread and crowded points: two runs with the same bits, and close to the CPU's. The largest of
 * up to 1e4 terms come from close pairs, so float32 leaves about 1e-6 of their root mean square. An inverse law ends
 * with a step at the reach, and the devices may place a pair on different sides of it: a difference of at most 0.3 for
 * values up to 1.2. */
static void every_form_as_on_the_cpu(void **state)
{
    (void)state;
    for (int layout = EVEN; layout <= CORNER; layout++)
        for (int f = 0; f < FORMS; f++) {
            struct cloud c = laid_out((enum layout)layout, 6000);
            const struct range_law vectors = near_law(forms[f].form, 3, forms[f].least, forms[f].soft, forms[f].spline),
                                   scalars = near_law(forms[f].form, 1, forms[f].least, forms[f].soft, forms[f].spline);
            for (size_t i = 0; i < c.count; i++)
                c.values[i] += 0.5f; /* masses are positive */
            if (forms[f].scaled) {
                c.scale = allocate(c.count, sizeof *c.scale);
                for (size_t i = 0; i < c.count; i++)
                    c.scale[i] = (float)(0.5 + 0.5 * uniform(i));
            }
            struct dev *cpu = device(DEV_CPU), *gpu = device(DEV_GPU);
            float *wanted = both_of(cpu, &c, &vectors, &scalars), *first = both_of(gpu, &c, &vectors, &scalars),
                  *second = both_of(gpu, &c, &vectors, &scalars);
            assert_memory_equal(first, second, 4 * c.count * sizeof *first);
            const double size[2] = {sqrt(square_sum(wanted, 3 * c.count) / (double)c.count),
                                    sqrt(square_sum(wanted + 3 * c.count, c.count) / (double)c.count)};
            for (size_t i = 0; i < 4 * c.count; i++) {
                const double step = forms[f].form == RANGE_INVERSE ? 0.31 * (forms[f].scaled ? 4 : 1) : 0;
                const double bound = 3e-6 * (fabs((double)wanted[i]) + size[i >= 3 * c.count]) + 2 * step;
                if (!(fabs((double)first[i] - (double)wanted[i]) <= bound))
                    fail_msg("form %d, layout %d, %zu: %.9g, on the CPU %.9g, of rms %.3g", f, layout, i,
                             (double)first[i], (double)wanted[i], size[i >= 3 * c.count]);
            }
            free(wanted);
            free(first);
            free(second);
            dev_free(cpu);
            dev_free(gpu);
            cloud_free(&c);
        }
}

/* Forces alone, by a law fitted to `error`. */
static float *forces_of(struct dev *dev, const struct cloud *c, double soft, double error)
{
    const struct range_law_params params = {.form = RANGE_SHORT, .reach = 2, .soft = soft, .power = 3, .error = error};
    struct range_law law;
    assert_int_equal(range_law_make(&law, &params, far_force, &reach), 0);
    struct range_points *points = points_in(dev, c, 2);
    float *forces = allocate(3 * c->count, sizeof *forces);
    const struct range_pair_sums sums = {NULL, &law, NULL, forces};
    sum_pairs(dev, points, points, &sums, 3, 1, c->count, c->count, c->values);
    range_points_free(points);
    return forces;
}

/* Of each degree that has a loop of its own. As above; a polynomial in the squared distance itself errs by up to a
 * tenth of the law's error, relative to the smooth part's largest value, for each of up to 200 partners (116 are the
 * mean), which are up to 2 away and have values up to 1.5. */
static void forces_of_every_degree_as_on_the_cpu(void **state)
{
    (void)state;
    static const double errors[] = {5e-3, 2e-3, 1e-4, 1e-5, 1e-6};
    struct dev *cpu = device(DEV_CPU), *gpu = device(DEV_GPU);
    struct cloud c = laid_out(EVEN, 6000);
    for (size_t i = 0; i < c.count; i++)
        c.values[i] = 0.5f + (float)uniform(i);
    for (int n = 0; n < 10; n++) {
        const double soft = n % 2 ? 0.03 : 0, error = errors[n / 2];
        float *wanted = forces_of(cpu, &c, soft, error), *forces = forces_of(gpu, &c, soft, error);
        const double size = sqrt(square_sum(wanted, 3 * c.count) / (double)c.count),
                     smooth = fmax(0.1 * error, 1e-6) * far_force(&reach, 1) * 2 * 200 * 1.5;
        for (size_t i = 0; i < 3 * c.count; i++)
            if (!(fabs((double)forces[i] - (double)wanted[i]) <= 3e-6 * (fabs((double)wanted[i]) + size) + smooth))
                fail_msg("error %g, soft %g, %zu: %.9g, not %.9g", error, soft, i, (double)forces[i],
                         (double)wanted[i]);
        free(wanted);
        free(forces);
    }
    cloud_free(&c);
    dev_free(cpu);
    dev_free(gpu);
}

static void counts_as_on_the_cpu(void **state)
{
    (void)state;
    enum { EDGES = 20001 };
    double *edge = allocate(EDGES, sizeof *edge);
    for (int layout = EVEN; layout <= CORNER; layout++)
        for (int edges = 21; edges <= EDGES; edges = edges == 21 ? 301 : edges == 301 ? 9001 : edges + 11000) {
            struct cloud c = laid_out((enum layout)layout, 9000);
            uint64_t *counts[2];
            for (int e = 0; e < edges; e++)
                edge[e] = 1.5 * e / (edges - 1);
            for (int which = 0; which < 2; which++) {
                struct dev *dev = device(which ? DEV_GPU : DEV_CPU);
                struct range_points *points = points_in(dev, &c, 1.5);
                counts[which] = allocate((size_t)edges, sizeof *counts[which]);
                memset(counts[which], 0, (size_t)edges * sizeof *counts[which]);
                assert_int_equal(range_count(points, points, edges, edge, counts[which], NULL), 0);
                range_points_free(points);
                dev_free(dev);
            }
            for (int e = 0; e < edges - 1; e++)
                if (counts[0][e] != counts[1][e])
                    fail_msg("layout %d, %d edges, interval %d: %ju, on the CPU %ju", layout, edges, e,
                             (uintmax_t)counts[1][e], (uintmax_t)counts[0][e]);
            free(counts[0]);
            free(counts[1]);
            cloud_free(&c);
        }
    free(edge);
}

/* ---- crowds ---- */

/* The contribution of a point with this value to a vector and a potential, and to the sum of magnitudes, in double
 * precision: the laws of near_law() with a softening of 0.03 and a reach of 2. */
static void pair_add(const double away[3], double r2, double value, double sum[4], double size[4])
{
    const double s2 = r2 + 0.03 * 0.03, t = 1 - r2 / 4;
    for (int d = 0; d < 3; d++) {
        sum[d] += value * away[d] * (pow(s2, -1.5) - far_force(&reach, t));
        size[d] += fabs(value * away[d]) * pow(s2, -1.5);
    }
    sum[3] += value * (pow(s2, -0.5) - far_potential(&reach, t));
    size[3] += fabs(value) * pow(s2, -0.5);
}

/* 400,000 points in one cell: compare the sums at some of them, and the number of pairs. */
static void a_crowd_sums_correctly(void **state)
{
    (void)state;
    enum { COUNT = 400000, PROBES = 5 };
    struct cloud c = laid_out(ONE_CELL, COUNT);
    const struct range_law vectors = near_law(RANGE_SHORT, 3, 0, 0.03, 0),
                           scalars = near_law(RANGE_SHORT, 1, 0, 0.03, 0);
    struct dev *dev = device(DEV_GPU);
    float *first = both_of(dev, &c, &vectors, &scalars), *second = both_of(dev, &c, &vectors, &scalars);
    assert_memory_equal(first, second, (size_t)4 * COUNT * sizeof *first);
    for (size_t probe = 0; probe < PROBES; probe++) {
        const size_t i = probe * (COUNT / PROBES) + 17;
        double sum[4] = {0}, size[4] = {0};
        for (size_t j = 0; j < COUNT; j++) {
            double away[3], r2 = 0;
            for (size_t d = 0; d < 3; d++) {
                away[d] = (double)c.at[3 * j + d] - (double)c.at[3 * i + d];
                r2 += away[d] * away[d];
            }
            if (i == j)
                continue;
            pair_add(away, r2, (double)c.values[j], sum, size);
        }
        for (size_t n = 0; n < 4; n++)
            close_to("a crowd", first[n * COUNT + i], sum[n], size[n]);
    }
    const double edge[3] = {0, 0.1, 2};
    uint64_t counts[2] = {5, 7};
    struct range_points *points = points_in(dev, &c, 2);
    assert_int_equal(range_count(points, points, 3, edge, counts, NULL), 0);
    assert_true(counts[0] == (uint64_t)COUNT * (COUNT - 1) + 5 && counts[1] == 7);
    range_points_free(points);
    free(first);
    free(second);
    dev_free(dev);
    cloud_free(&c);
}

/* Few points against many, and many against few: the work of one cluster is divided. */
static void few_against_many(void **state)
{
    (void)state;
    enum { MANY = 200000, FEW = 20 };
    struct cloud many = laid_out(SPHERE, MANY), few = laid_out(SPHERE, FEW);
    const struct range_law law = near_law(RANGE_SHORT, 1, 0, 0.03, 0);
    float *sums[2], *back[2];
    for (int which = 0; which < 2; which++) {
        struct dev *dev = device(which ? DEV_GPU : DEV_CPU);
        struct range_points *a = points_in(dev, &few, 2), *b = points_in(dev, &many, 2);
        sums[which] = allocate(FEW, sizeof(float));
        back[which] = allocate(MANY, sizeof(float));
        sum_pairs(dev, a, b, &(struct range_pair_sums){.scalar_law = &law, .scalars = sums[which]}, 3, 1, FEW, MANY,
                  many.values);
        sum_pairs(dev, b, a, &(struct range_pair_sums){.scalar_law = &law, .scalars = back[which]}, 3, 1, MANY, FEW,
                  few.values);
        range_points_free(a);
        range_points_free(b);
        dev_free(dev);
    }
    for (size_t i = 0; i < FEW; i++)
        close_to("few", sums[1][i], (double)sums[0][i], 3 * sqrt(square_sum(sums[0], FEW)));
    for (size_t i = 0; i < MANY; i++)
        close_to("many", back[1][i], (double)back[0][i], FEW / 0.03);
    for (int which = 0; which < 2; which++) {
        free(sums[which]);
        free(back[which]);
    }
    cloud_free(&many);
    cloud_free(&few);
}

/* ---- images ---- */

/* A reach of five boxes: 11^3 images of every point, including itself. */
static void a_reach_beyond_the_box(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    static const struct range_box small = {3, {2, 2, 2}, {1, 0, 0}, {0.2, 0.2, 0.2}, PERIODIC3};
    struct cloud c = cloud_make(&small, COUNT, EVERYWHERE, false, 1);
    const struct range_law vectors = near_law(RANGE_SHORT, 3, 0, 0.03, 0),
                           scalars = near_law(RANGE_SHORT, 1, 0, 0.03, 0);
    const double edge[4] = {0.1, 0.5, 1.5, 2};
    uint64_t counts[3] = {0}, wanted[3] = {0};
    struct dev *dev = device(DEV_GPU);
    struct range_points *points = points_in(dev, &c, 2);
    float *sums = both_of(dev, &c, &vectors, &scalars);
    assert_int_equal(range_count(points, points, 4, edge, counts, NULL), 0);
    for (size_t i = 0; i < COUNT; i++) {
        double sum[4] = {0}, size[4] = {0};
        for (size_t n = 0; n < COUNT * 13 * 13 * 13; n++) {
            const size_t j = n / (13 * 13 * 13), image[3] = {n % 13, n / 13 % 13, n / 169 % 13};
            double away[3], r2 = 0;
            for (size_t d = 0; d < 3; d++) {
                away[d] = (double)c.at[3 * j + d] - (double)c.at[3 * i + d] + ((double)image[d] - 6) * 0.4;
                r2 += away[d] * away[d];
            }
            const bool itself = i == j && image[0] == 6 && image[1] == 6 && image[2] == 6;
            if (r2 >= 4 || itself)
                continue;
            for (int e = 0; e < 3; e++)
                wanted[e] += r2 >= edge[e] * edge[e] && r2 < edge[e + 1] * edge[e + 1];
            pair_add(away, r2, (double)c.values[j], sum, size);
        }
        for (size_t n = 0; n < 4; n++)
            close_to("images", sums[n * COUNT + i], sum[n], size[n]);
    }
    for (int e = 0; e < 3; e++)
        assert_true(counts[e] == wanted[e]);
    range_points_free(points);
    free(sums);
    dev_free(dev);
    cloud_free(&c);
}

/* ---- a listener, memory ---- */

struct heard {
    struct dev *dev;
    size_t calls, last, most, least_free;
    size_t stop_at; /* call at which the work is canceled; 0: never */
};

static int hear(void *context, size_t done, size_t most)
{
    struct heard *h = context;
    size_t available, total;
    assert_true(done >= h->last && done <= most && (h->calls == 0 || most == h->most));
    assert_int_equal(dev_memory(h->dev, &available, &total), 0);
    h->least_free = h->calls == 0 || available < h->least_free ? available : h->least_free;
    h->last = done;
    h->most = most;
    h->calls++;
    return h->calls == h->stop_at ? err_set(ERR_CANCELED, "Enough.") : 0;
}

/* Progress rises to the end, any call can cancel the work, and no more memory is allocated than was estimated. */
static void a_listener_gets_progress_and_can_cancel(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    struct cloud c = laid_out(SPHERE, COUNT);
    const struct range_law vectors = near_law(RANGE_SHORT, 3, 0, 0.03, 0),
                           scalars = near_law(RANGE_SHORT, 1, 0, 0.03, 0);
    const struct range_points_params params = {.box = c.box, .reach = 2, .inputs = c.count, .at = c.at};
    const double edge[3] = {0, 0.1, 1};
    struct dev *dev = device(DEV_GPU);
    struct range_memory memory;
    float *values = on_device(dev, c.values, COUNT), *sums = on_device(dev, c.at, (size_t)3 * COUNT),
          *more = on_device(dev, c.values, COUNT);
    const struct range_pair_sums both = {&scalars, &vectors, more, sums};
    assert_int_equal(range_memory(dev, &params, &memory), 0);
    for (int count = 0; count < 2; count++)
        for (size_t stop_at = 0; stop_at < 4; stop_at++) {
            struct heard heard = {.dev = dev, .stop_at = stop_at};
            const struct listener listener = {&heard, hear};
            struct range_points *points = points_in(dev, &c, 2);
            size_t available, total;
            uint64_t counts[2] = {3, 3};
            assert_int_equal(dev_memory(dev, &available, &total), 0);
            const int rc = count ? range_count(points, points, 3, edge, counts, &listener)
                                 : range_pairs(points, points, &both, 1, values, &listener);
            assert_int_equal(rc, stop_at ? ERR_CANCELED : 0);
            assert_true(stop_at ? heard.calls == stop_at : heard.calls >= 2 && heard.last == heard.most);
            assert_true(!stop_at || (counts[0] == 3 && counts[1] == 3));
            if (available - heard.least_free > (count ? memory.count : memory.pairs))
                fail_msg("%zu bytes used, estimated %zu", available - heard.least_free,
                         count ? memory.count : memory.pairs);
            range_points_free(points);
        }
    dev_release(dev, values);
    dev_release(dev, sums);
    dev_release(dev, more);
    dev_free(dev);
    cloud_free(&c);
}

static void nothing_to_sum(void **state)
{
    (void)state;
    struct cloud none = laid_out(EVEN, 0), some = laid_out(EVEN, 50);
    const struct range_law law = near_law(RANGE_SHORT, 1, 0, 0.03, 0);
    const double edge[2] = {0, 1};
    uint64_t counts[1] = {4};
    struct dev *dev = device(DEV_GPU);
    struct range_points *a = points_in(dev, &none, 2), *b = points_in(dev, &some, 2);
    float sums[50];
    for (size_t i = 0; i < 50; i++)
        sums[i] = 1;
    sum_pairs(dev, b, a, &(struct range_pair_sums){.scalar_law = &law, .scalars = sums}, 3, 1, 50, 0, none.values);
    for (size_t i = 0; i < 50; i++)
        assert_true(sums[i] == 0);
    sum_pairs(dev, a, b, &(struct range_pair_sums){.scalar_law = &law, .scalars = sums}, 3, 1, 0, 50, some.values);
    assert_int_equal(range_count(a, b, 2, edge, counts, NULL), 0);
    assert_int_equal(range_count(b, a, 2, edge, counts, NULL), 0);
    assert_int_equal(range_count(a, a, 2, edge, counts, NULL), 0);
    assert_int_equal(counts[0], 4);
    range_points_free(a);
    range_points_free(b);
    dev_free(dev);
    cloud_free(&none);
    cloud_free(&some);
}

/* Pairs of bodies across the faces of a periodic box, 1e-4 to 3e-4 apart: of an axis whose length float32 holds and
 * whose coordinates begin at 0, of one whose length it does not hold, and of one whose coordinates are small at the
 * upper face. Their forces are 1e7 times those of all others, and have the relative error of float32's law, 1e-6, if no
 * digit of a distance is lost. */
static void distances_across_faces_keep_their_digits(void **state)
{
    (void)state;
    enum { PAIRS = 300, COUNT = 2 * PAIRS };
    static const struct range_box box = {3, {80, 101, 70}, {0, 0, -6.9}, {0.1, 0.1, 0.1}, {true, true, true}};
    static float at[3 * COUNT], masses[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        masses[i] = 1;
    for (size_t i = 0; i < PAIRS; i++)
        for (size_t d = 0; d < 3; d++) {
            const double length = box.cells[d] * box.spacing[d], some = length * uniform(7 * i + d);
            const double off[2] = {5e-5 + 1e-4 * uniform(7 * i + 3), 5e-5 + 1e-4 * uniform(7 * i + 4)};
            at[6 * i + d] = (float)(box.origin[d] + (d == i % 3 ? off[0] : some));
            at[6 * i + 3 + d] = d == i % 3 ? (float)(box.origin[d] + length - off[1]) : at[6 * i + d];
        }
    struct dev *gpu = device(DEV_GPU);
    const struct cloud c = {.box = box, .count = COUNT, .at = at, .values = masses};
    float *forces = forces_of(gpu, &c, 1e-5, 1e-6);
    for (size_t i = 0; i < COUNT; i++) {
        double wanted[3] = {0}, size = 0;
        for (size_t j = 0; j < COUNT; j++) {
            double away[3], r2 = 0;
            for (size_t d = 0; d < 3; d++) {
                const double length = box.cells[d] * box.spacing[d],
                             plain = (double)at[3 * j + d] - (double)at[3 * i + d];
                away[d] = plain - length * rint(plain / length);
                r2 += away[d] * away[d];
            }
            if (j == i || r2 >= reach * reach)
                continue;
            const double value = pow(r2 + 1e-10, -1.5) - far_force(&reach, 1 - r2 / (reach * reach));
            size += value * sqrt(r2);
            for (size_t d = 0; d < 3; d++)
                wanted[d] += value * away[d];
        }
        for (size_t d = 0; d < 3; d++)
            if (!(fabs((double)forces[d * COUNT + i] - wanted[d]) <= 3e-6 * size))
                fail_msg("body %zu, axis %zu: %.9g instead of %.9g", i, d, (double)forces[d * COUNT + i], wanted[d]);
    }
    free(forces);
    dev_free(gpu);
}

/* test_gpu_pairs [PATTERN]: runs the tests whose names match; under a sanitizer all of them take long. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pair_sums),
        cmocka_unit_test(pair_counts),
        cmocka_unit_test(doubles_keep_their_digits),
        cmocka_unit_test(one_pass_equals_two),
        cmocka_unit_test(every_form_as_on_the_cpu),
        cmocka_unit_test(forces_of_every_degree_as_on_the_cpu),
        cmocka_unit_test(counts_as_on_the_cpu),
        cmocka_unit_test(a_crowd_sums_correctly),
        cmocka_unit_test(few_against_many),
        cmocka_unit_test(a_reach_beyond_the_box),
        cmocka_unit_test(distances_across_faces_keep_their_digits),
        cmocka_unit_test(a_listener_gets_progress_and_can_cancel),
        cmocka_unit_test(nothing_to_sum),
    };
    gpu_or_skip();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
