/* Adjoints in parts (gridding/nufft/nufft_parts.h): compared with direct sums in double precision and with the whole
 * adjoint; the transpose of the forward transform; the same bits; what is left for the last part; and bad input. */
#include "gridding/base/ask.h"
#include "gridding/nufft/nufft_parts.h"
#include "tests/unit/nufft_fixture.h"

#include <omp.h>

/* A problem's data, and its adjoint in `count` parts. */
struct divided {
    const struct problem *problem;
    struct dev *dev;
    float *k, *w;
    struct c32 *data; /* [batch][samples] */
    struct nufft *plan;
    struct nufft_parts *parts;
    size_t first[8];
    int count;
};

/* In the order of x, columns of the grid are complete long before the last part; in the order of y, rows are. */
enum order { MIXED, BY_X, BY_Y };

static int by_x(const void *a, const void *b)
{
    const float *p = a, *q = b;
    return (*p > *q) - (*p < *q);
}

static int by_y(const void *a, const void *b)
{
    return by_x((const float *)a + 1, (const float *)b + 1);
}

static void divided_make(struct divided *d, const struct problem *p, int count, bool weighted, enum order order)
{
    *d = (struct divided){.problem = p, .count = count};
    assert_int_equal(dev_create(&d->dev, DEV_CPU, 0, p->threads), 0);
    d->k = make_k(p->dim, p->samples, p->spread);
    if (order != MIXED)
        qsort(d->k, p->samples, (size_t)p->dim * sizeof *d->k, order == BY_X ? by_x : by_y);
    d->w = weighted ? make_weights(p->samples) : NULL;
    d->data = make_values((size_t)p->batch * p->samples, 3);
    d->plan = make_plan(d->dev, p, d->k);
    assert_int_equal(nufft_set_weights(d->plan, d->w), 0);
    for (int i = 1; i <= count; i++) /* each part is half of the remainder */
        d->first[i] = i == count ? p->samples : d->first[i - 1] + (p->samples - d->first[i - 1]) / 2;
    if (nufft_parts_create(&d->parts, d->plan, p->batch, count, d->first, d->k, d->w) != 0)
        fail_msg("%s", err_last()->text);
}

static void divided_free(struct divided *d)
{
    nufft_parts_free(d->parts);
    nufft_free(d->plan);
    free(d->data);
    free(d->w);
    free(d->k);
    dev_free(d->dev);
}

/* Add the remaining parts up to `end`. */
static void add_until(struct divided *d, int end)
{
    const struct problem *p = d->problem;
    for (int i = nufft_parts_added(d->parts); i < end; i++) {
        const size_t from = d->first[i], count = d->first[i + 1] - from;
        for (int b = 0; b < p->batch; b++)
            memcpy(nufft_parts_data(d->parts, b), d->data + (size_t)b * p->samples + from, count * sizeof *d->data);
        assert_int_equal(nufft_parts_add(d->parts), 0);
        assert_int_equal(nufft_parts_added(d->parts), i + 1);
    }
}

static struct c32 *image_of(struct divided *d)
{
    struct c32 *image = make_values((size_t)d->problem->batch * pixels_of(d->problem), 1);
    assert_int_equal(nufft_parts_begin(d->parts), 0);
    add_until(d, d->count);
    assert_int_equal(nufft_parts_image(d->parts, image), 0);
    return image;
}

static void check(const struct problem *p, int count, bool weighted, enum order order)
{
    struct divided d;
    struct nufft_info info;
    divided_make(&d, p, count, weighted, order);
    nufft_describe(d.plan, &info);
    const size_t pixels = pixels_of(p), batch = (size_t)p->batch;
    struct c32 *image = image_of(&d), *again = image_of(&d), *x = make_values(batch * pixels, 5),
               *y = make_values(batch * p->samples, 6), *whole = make_values(batch * pixels, 7);
    for (size_t b = 0; b < batch; b++) {
        const double error = adjoint_error(p, d.k, d.w, d.data + b * p->samples, image + b * pixels);
        if (!(error < info.expected_error))
            fail_msg("%d parts, dim %d, width %d: %.3g, expected %.3g", count, p->dim, info.width, error,
                     info.expected_error);
    }
    assert_memory_equal(image, again, batch * pixels * sizeof *image);
    /* <A^H d, x> = <d, A x>: the same sums in a different order; float32 leaves about 1e-6 of their size. */
    assert_int_equal(nufft_forward(d.plan, p->batch, x, y), 0);
    const double left = dot_re(batch * pixels, image, x), right = dot_re(batch * p->samples, d.data, y);
    const double size = sqrt(dot_re(batch * pixels, image, image) * dot_re(batch * pixels, x, x));
    assert_true(fabs(left - right) < 3e-6 * size);
    /* One part equals the whole, bit for bit. */
    assert_int_equal(nufft_adjoint(d.plan, p->batch, d.data, whole), 0);
    if (count == 1)
        assert_memory_equal(image, whole, batch * pixels * sizeof *image);
    assert_true(nufft_parts_bytes(d.parts) >= batch * pixels * sizeof *image);
    free(image);
    free(again);
    free(whole);
    free(x);
    free(y);
    divided_free(&d);
}

static void every_division(void **unused)
{
    (void)unused;
    static const int batches[] = {1, 3, 16, 21};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
        for (int count = 1; count <= 6; count += count < 2 ? 1 : 4) {
            const struct problem flat = {2, {20, 24, 1}, batches[i], 700, RADIAL, NUFFT_SEPARABLE, 1e-3, 0, 0, 2};
            const struct problem deep = {3, {12, 10, 14}, batches[i], 500, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 2};
            check(&flat, count, true, i % 2 == 0 ? BY_X : MIXED);
            check(&flat, count, true, BY_Y);
            check(&deep, count, i % 2 == 0, i % 2 == 1 ? BY_X : MIXED);
        }
    const struct problem radial = {2, {16, 18, 1}, 2, 400, UNIFORM, NUFFT_RADIAL, 1e-3, 0, 0, 2};
    const struct problem crowded = {2, {16, 18, 1}, 2, 4000, ONE_PLACE, NUFFT_SEPARABLE, 1e-4, 0, 0, 2};
    check(&radial, 3, true, MIXED);
    check(&radial, 3, true, BY_Y);
    check(&crowded, 4, true, MIXED);
    check(&crowded, 4, true, BY_Y); /* most rows are reached by no part */
}

/* Squares are added to the output; bits are the same for any number of threads, and after a start that was
 * abandoned. */
static void squares_and_threads_of(const struct problem *one, int threads, enum order order)
{
    struct problem many = *one;
    struct divided a, b;
    many.threads = threads;
    divided_make(&a, one, 5, true, order);
    divided_make(&b, &many, 5, true, order);
    const size_t pixels = pixels_of(one);
    float *squares = calloc(pixels, sizeof *squares), *other = calloc(pixels, sizeof *other);
    squares[0] = other[0] = 5;
    struct c32 *image = image_of(&a);
    assert_int_equal(nufft_parts_begin(a.parts), 0);
    add_until(&a, 5);
    assert_int_equal(nufft_parts_squares(a.parts, squares), 0);
    assert_int_equal(nufft_parts_begin(b.parts), 0);
    add_until(&b, 3);
    assert_int_equal(nufft_parts_begin(b.parts), 0);
    assert_int_equal(nufft_parts_added(b.parts), 0);
    add_until(&b, 5);
    assert_int_equal(nufft_parts_squares(b.parts, other), 0);
    assert_memory_equal(squares, other, pixels * sizeof *squares);
    for (size_t r = 0; r < pixels; r++) {
        double sum = r == 0 ? 5 : 0;
        for (size_t t = 0; t < 5; t++) {
            const struct c32 *v = image + t * pixels + r;
            sum += (double)v->re * v->re + (double)v->im * v->im;
        }
        assert_true(fabs(squares[r] - sum) <= 1e-5 * (sum + 1e-3)); /* five float32 products and sums */
    }
    free(image);
    free(squares);
    free(other);
    divided_free(&a);
    divided_free(&b);
}

static void squares_and_threads(void **unused)
{
    (void)unused;
    const struct problem flat = {2, {30, 26, 1}, 5, 6000, RADIAL, NUFFT_SEPARABLE, 1e-3, 0, 0, 1};
    const struct problem deep = {3, {12, 10, 14}, 5, 3000, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 1};
    squares_and_threads_of(&flat, 3, MIXED);
    squares_and_threads_of(&flat, 3, BY_Y);
    squares_and_threads_of(&deep, 3, BY_X);
    squares_and_threads_of(&deep, 4, BY_X); /* too few planes for each thread to have some */
}

static int count_one(void *context)
{
    ++*(int *)context;
    return 0;
}

/* How often the device's owner is asked, about once per estimated millisecond, in the last part and the end. */
static int asked_at_last(enum order order, size_t *bytes)
{
    const struct problem p = {2, {256, 256, 1}, 64, 4000, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 1};
    struct divided d;
    int asked = 0;
    divided_make(&d, &p, 6, true, order);
    *bytes = nufft_parts_bytes(d.parts);
    struct c32 *image = make_values((size_t)p.batch * pixels_of(&p), 1);
    assert_int_equal(nufft_parts_begin(d.parts), 0);
    add_until(&d, 5);
    dev_ask_set(d.dev, &(struct dev_ask){&asked, count_one});
    add_until(&d, 6);
    assert_int_equal(nufft_parts_image(d.parts, image), 0);
    free(image);
    divided_free(&d);
    return asked;
}

/* One of the two passes of a 2-D FFT is mostly done before the last part, along whichever axis it can be. In order, the
 * last 125 samples lie in a strip at an edge and reach few lines of that axis: little but the other pass is left, which
 * is less than half of both, because it has only the image's columns or rows. Where rows come first, the image's
 * columns lie beside the grid between the passes, and their memory counts. */
static void first_pass_ahead(void **unused)
{
    (void)unused;
    size_t of_mixed, of_columns, of_rows;
    const int mixed = asked_at_last(MIXED, &of_mixed), columns = asked_at_last(BY_X, &of_columns);
    const int rows = asked_at_last(BY_Y, &of_rows);
    assert_true(of_rows >= of_columns + (size_t)64 * 256 * 256 * sizeof(struct c32));
    if (!(columns < 3 * mixed / 4 && rows < 3 * mixed / 4))
        fail_msg("asked %d times; in the order of x %d, of y %d", mixed, columns, rows);
}

static int team_note(void *context)
{
    int *most = context;
    *most = omp_get_num_threads() > *most ? omp_get_num_threads() : *most;
    return 0;
}

/* Other threads are not woken for few samples and rows, but for the end. The sums' memory is per thread. */
static void small_parts_alone(void **unused)
{
    (void)unused;
    const struct problem one = {2, {256, 256, 1}, 64, 4000, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 1};
    struct problem many = one;
    struct divided a, b;
    int team = 0;
    many.threads = 3;
    divided_make(&a, &one, 6, true, BY_Y);
    divided_make(&b, &many, 6, true, BY_Y);
    assert_int_equal(nufft_parts_bytes(a.parts), nufft_parts_bytes(b.parts));
    struct c32 *image = make_values((size_t)many.batch * pixels_of(&many), 1);
    assert_int_equal(nufft_parts_begin(b.parts), 0);
    add_until(&b, 5);
    dev_ask_set(b.dev, &(struct dev_ask){&team, team_note});
    add_until(&b, 6);
    assert_int_equal(team, 1);
    assert_int_equal(nufft_parts_image(b.parts, image), 0);
    assert_int_equal(team, 3);
    free(image);
    divided_free(&a);
    divided_free(&b);
}

static void bad_input(void **unused)
{
    (void)unused;
    const struct problem p = {2, {12, 12, 1}, 2, 100, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 1};
    struct divided d;
    struct nufft_parts *none = NULL;
    struct c32 image[2 * 144];
    divided_make(&d, &p, 2, false, MIXED);
    static const struct {
        int batch, count;
        size_t first[4];
    } bad[] = {{0, 1, {0, 100}},      {1, 0, {0}},         {1, 2, {0, 50, 99}}, {1, 2, {1, 50, 100}},
               {1, 2, {0, 101, 100}}, {1, 2, {0, 0, 100}}, {1, 1, {0, 101}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(nufft_parts_create(&none, d.plan, bad[i].batch, bad[i].count, bad[i].first, d.k, NULL),
                         ERR_BAD_PARAMETER);
        assert_null(none);
        assert_true(strlen(err_last()->text) > 20);
    }
    d.k[2 * 70] = NAN;
    assert_int_equal(nufft_parts_create(&none, d.plan, 1, 2, d.first, d.k, NULL), ERR_TRAJ_NONFINITE);
    assert_null(none);
    /* Some parts are missing. */
    assert_int_equal(nufft_parts_begin(d.parts), 0);
    add_until(&d, 1);
    assert_int_equal(nufft_parts_image(d.parts, image), ERR_INTERNAL);
    nufft_parts_free(NULL);
    divided_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_division),    cmocka_unit_test(squares_and_threads), cmocka_unit_test(first_pass_ahead),
        cmocka_unit_test(small_parts_alone), cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
