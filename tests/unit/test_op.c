/* Operators: <Ax,y> = <x,A'y> and normal = A'A, for the NUFFT with its Toeplitz normal operator and for sensitivity
 * encoding. */
#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "gridding/nufft/normal.h"
#include "recon/mri/sense.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/op_test.h"

enum { NX = 24, NY = 18, SAMPLES = 900, COILS = 5, PIXELS = NX * NY };

struct encoding {
    struct dev *dev;
    float k[2 * SAMPLES];
    struct nufft_params params;
    struct nufft *plan;
    struct normal *normal;
    struct c32 *maps, *images; /* [COILS][PIXELS] */
    struct sense sense;
};

static int nufft_op_forward(void *of, const struct c32 *x, struct c32 *y)
{
    return nufft_forward(((struct encoding *)of)->plan, 1, x, y);
}

static int nufft_op_adjoint(void *of, const struct c32 *y, struct c32 *x)
{
    return nufft_adjoint(((struct encoding *)of)->plan, 1, y, x);
}

static int normal_op(void *of, const struct c32 *x, struct c32 *r)
{
    return normal_apply(((struct encoding *)of)->normal, 1, x, r);
}

/* A = F S, all coils' samples. */
static int sense_forward(void *of, const struct c32 *x, struct c32 *y)
{
    struct encoding *e = of;
    int rc = vec_multiply(e->dev, PIXELS, COILS, e->maps, x, e->images);
    return rc ? rc : nufft_forward(e->plan, COILS, e->images, y);
}

static int sense_adjoint(void *of, const struct c32 *y, struct c32 *x)
{
    struct encoding *e = of;
    int rc = dev_zero(e->dev, x, PIXELS * sizeof *x);
    rc = rc ? rc : nufft_adjoint(e->plan, COILS, y, e->images);
    rc = rc ? rc : sense_combine(&e->sense, 0, 2, e->images, x);
    return rc ? rc : sense_combine(&e->sense, 2, COILS - 2, e->images + 2 * PIXELS, x);
}

static int sense_applied(void *of, const struct c32 *x, struct c32 *r)
{
    struct encoding *e = of;
    return sense_op(&e->sense).normal(&e->sense, x, r);
}

static void encoding_open(struct encoding *e, int threads, int batch)
{
    uint64_t seed = 3;
    for (size_t i = 0; i < 2 * SAMPLES; i++)
        e->k[i] = (float)(uniform_next(&seed) - 0.5);
    e->params = (struct nufft_params){.dim = 2, .n = {NX, NY, 1}, .tolerance = 1e-5, .batch = COILS};
    assert_int_equal(dev_create(&e->dev, DEV_CPU, 0, threads), 0);
    assert_int_equal(nufft_create(&e->plan, e->dev, &e->params, SAMPLES, e->k), 0);
    assert_int_equal(normal_create_of(&e->normal, e->dev, &e->params, e->plan, e->k, NULL), 0);
    e->maps = op_test_random(e->dev, COILS * PIXELS, 21);
    e->images = op_test_random(e->dev, COILS * PIXELS, 22);
    assert_int_equal(sense_open(&e->sense, e->dev, PIXELS, COILS, batch, false), 0);
    assert_int_equal(sense_maps(&e->sense, COILS, e->maps), 0);
    assert_int_equal(sense_normal(&e->sense, e->normal, 1), 0);
}

static void encoding_close(struct encoding *e)
{
    sense_close(&e->sense);
    dev_release(e->dev, e->maps);
    dev_release(e->dev, e->images);
    normal_free(e->normal);
    nufft_free(e->plan);
    dev_free(e->dev);
}

/* The NUFFT's forward is its adjoint's transpose up to rounding (1e-6); A'A computed by two NUFFTs errs by the
 * tolerance of each, and so does the Toeplitz operator. */
static void test_nufft(void **state)
{
    (void)state;
    struct encoding e;
    encoding_open(&e, 2, COILS);
    const struct op op = {&e, PIXELS, SAMPLES, nufft_op_forward, nufft_op_adjoint, normal_op};
    op_test(e.dev, &op, 2e-6, 3e-5);
    encoding_close(&e);
}

/* All coils at once, and batches that do not divide the number of coils. */
static void test_sense(void **state)
{
    (void)state;
    for (int batch = COILS; batch >= 1; batch -= 3) {
        struct encoding e;
        encoding_open(&e, 2, batch);
        const struct op op = {&e, PIXELS, COILS * SAMPLES, sense_forward, sense_adjoint, sense_applied};
        op_test(e.dev, &op, 2e-6, 3e-5);
        encoding_close(&e);
    }
}

static int refuse(void *context)
{
    return ++*(int *)context > 2 ? err_set(ERR_CANCELED, "Enough.") : 0;
}

/* A cancel request is noticed between the batches of one application. */
static void test_sense_is_canceled(void **state)
{
    (void)state;
    struct encoding e;
    int asked = 0;
    encoding_open(&e, 1, 1);
    e.sense.ask = refuse;
    e.sense.context = &asked;
    struct c32 *x = op_test_random(e.dev, PIXELS, 1), *r = op_test_random(e.dev, PIXELS, 2);
    assert_int_equal(sense_op(&e.sense).normal(&e.sense, x, r), ERR_CANCELED);
    assert_int_equal(asked, 3);
    dev_release(e.dev, x);
    dev_release(e.dev, r);
    encoding_close(&e);
}

static double decay(const void *of, const double l[3])
{
    (void)of;
    return exp(-0.01 * (l[0] * l[0] + l[1] * l[1]));
}

/* Creating an operator can be canceled. */
static void test_creation_is_canceled(void **state)
{
    (void)state;
    struct encoding e;
    struct normal *normal = NULL;
    int asked = 0;
    const struct normal_ask ask = {refuse, &asked};
    encoding_open(&e, 1, 1);
    assert_int_equal(normal_create_of(&normal, e.dev, &e.params, e.plan, e.k, &ask), ERR_CANCELED);
    assert_int_equal(asked, 3);
    const struct nufft_params deep = {.dim = 3, .n = {8, 8, 8}, .batch = 1};
    asked = 0;
    assert_int_equal(normal_create_even(&normal, e.dev, &deep, decay, NULL, &ask), ERR_CANCELED);
    assert_int_equal(asked, 3);
    assert_null(normal);
    encoding_close(&e);
}

enum { SIDE = 512, LARGE = SIDE * SIDE, MANY = 19, IMAGES = 3 };

static double slow_decay(const void *of, const double l[3])
{
    (void)of;
    return exp(-0.02 * (l[0] * l[0] + l[1] * l[1]));
}

/* Images of many coils, of fewer ones with other maps and another operator, and of many again, in one memory:
 * r[IMAGES][LARGE] of device memory. */
static void divided_images(struct dev *dev, struct normal *const normal[2], const struct c32 *maps, const struct c32 *x,
                           struct c32 *r)
{
    static const int coils[IMAGES] = {MANY, 11, MANY}, groups[IMAGES] = {3, 2, 3};
    struct sense sense;
    const struct c32 *copy = NULL;
    assert_int_equal(sense_open(&sense, dev, LARGE, MANY, 3, true), 0);
    for (int i = 0; i < IMAGES; i++) {
        assert_int_equal(sense_groups(LARGE, coils[i]), groups[i]);
        assert_int_equal(sense_maps(&sense, coils[i], maps + (i == 1 ? LARGE : 0)), 0);
        assert_int_equal(sense_normal(&sense, normal[i == 1], 1), 0);
        assert_int_equal(sense.parts, dev_parts(dev) < groups[i] ? dev_parts(dev) : groups[i]);
        assert_true(i == 0 || dev_parts(dev) == 1 || sense.part[1].copy == copy);
        copy = sense.part[1].copy;
        assert_int_equal(sense_op(&sense).normal(&sense, x, r + (size_t)i * LARGE), 0);
    }
    sense_close(&sense);
}

/* Coils of a large image on a device of one, two and three parts give the same bits, and their sum over all coils; also
 * when the parts' memory was another image's. */
static void test_sense_is_divided(void **state)
{
    (void)state;
    const struct nufft_params params = {.dim = 2, .n = {SIDE, SIDE, 1}, .batch = 3};
    struct c32 *first = NULL;
    for (int parts = 1; parts <= 3; parts++) {
        struct dev *dev = NULL;
        struct normal *normal[2] = {NULL, NULL};
        assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
        for (int p = 1; p < parts; p++)
            assert_int_equal(dev_join(dev, 0), 0);
        assert_int_equal(dev_parts(dev), parts);
        assert_int_equal(normal_create_even(&normal[0], dev, &params, decay, NULL, NULL), 0);
        assert_int_equal(normal_create_even(&normal[1], dev, &params, slow_decay, NULL, NULL), 0);
        struct c32 *maps = op_test_random(dev, MANY * LARGE, 1), *x = op_test_random(dev, LARGE, 2);
        struct c32 *r = op_test_random(dev, IMAGES * LARGE, 3), *one = op_test_random(dev, LARGE, 4);
        divided_images(dev, normal, maps, x, r);
        assert_memory_equal(r, r + 2 * LARGE, LARGE * sizeof *r);
        if (!first) {
            struct c32 *all = op_test_random(dev, LARGE, 5);
            first = malloc(IMAGES * LARGE * sizeof *first);
            assert_non_null(first);
            memcpy(first, r, IMAGES * LARGE * sizeof *first);
            assert_int_equal(vec_zero(dev, LARGE, all), 0);
            for (size_t c = 0; c < MANY; c++) {
                assert_int_equal(vec_multiply(dev, LARGE, 1, maps + c * LARGE, x, one), 0);
                assert_int_equal(normal_apply(normal[0], 1, one, one), 0);
                assert_int_equal(vec_multiply_conj_add(dev, LARGE, 1, maps + c * LARGE, one, all), 0);
            }
            assert_true(op_test_distance(dev, LARGE, r, all) < 1e-6);
            assert_true(op_test_distance(dev, LARGE, r, r + LARGE) > 0.1);
            dev_release(dev, all);
        }
        assert_memory_equal(first, r, IMAGES * LARGE * sizeof *first);
        dev_release(dev, maps);
        dev_release(dev, x);
        dev_release(dev, r);
        dev_release(dev, one);
        normal_free(normal[1]);
        normal_free(normal[0]);
        dev_free(dev);
    }
    free(first);
}

/* A plan's normal operator uses the plan's weights. */
static void test_normal_has_the_plans_weights(void **state)
{
    (void)state;
    struct encoding e;
    float weights[SAMPLES];
    struct normal *weighted = NULL, *direct = NULL;
    uint64_t seed = 5;
    encoding_open(&e, 1, 1);
    for (size_t m = 0; m < SAMPLES; m++)
        weights[m] = (float)uniform_next(&seed);
    assert_int_equal(nufft_set_weights(e.plan, weights), 0);
    assert_int_equal(normal_create_of(&weighted, e.dev, &e.params, e.plan, e.k, NULL), 0);
    assert_int_equal(normal_create(&direct, e.dev, &e.params, SAMPLES, e.k, weights), 0);
    struct c32 *x = op_test_random(e.dev, PIXELS, 1), *r = op_test_random(e.dev, PIXELS, 2);
    struct c32 *q = op_test_random(e.dev, PIXELS, 3);
    assert_int_equal(normal_apply(weighted, 1, x, r), 0);
    assert_int_equal(normal_apply(direct, 1, x, q), 0);
    assert_true(op_test_distance(e.dev, PIXELS, r, q) < 3e-5);
    assert_int_equal(normal_apply(e.normal, 1, x, q), 0);
    assert_true(op_test_distance(e.dev, PIXELS, r, q) > 0.1);
    dev_release(e.dev, x);
    dev_release(e.dev, r);
    dev_release(e.dev, q);
    normal_free(weighted);
    normal_free(direct);
    encoding_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nufft),
        cmocka_unit_test(test_sense),
        cmocka_unit_test(test_sense_is_canceled),
        cmocka_unit_test(test_creation_is_canceled),
        cmocka_unit_test(test_sense_is_divided),
        cmocka_unit_test(test_normal_has_the_plans_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
