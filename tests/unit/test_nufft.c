/* The NUFFT against direct sums in double precision. */
#include "tests/unit/nufft_fixture.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/nufft/nufft_leaf.h"
#include "gridding/nufft/nufft_spread.h"

/* Compare adjoint and forward of a problem with the oracle, for every transform of the batch, and with each other. */
static void check_problem(const struct problem *p)
{
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, p->threads), 0);
    float *k = make_k(p->dim, p->samples, p->spread), *w = make_weights(p->samples);
    size_t pixels = pixels_of(p), batch = (size_t)p->batch;
    struct c32 *data = make_values(batch * p->samples, 3), *image = make_values(batch * pixels, 4),
               *x = make_values(batch * pixels, 5), *y = make_values(batch * p->samples, 6);
    struct nufft *plan = make_plan(dev, p, k);
    struct nufft_info info;
    nufft_describe(plan, &info);
    assert_int_equal(info.method, NUFFT_METHOD_CPU);
    assert_string_equal(nufft_method_name(info.method), "cpu");
    assert_int_equal(nufft_set_weights(plan, w), 0);
    assert_int_equal(nufft_adjoint(plan, p->batch, data, image), 0);
    assert_int_equal(nufft_forward(plan, p->batch, x, y), 0);
    /* The plan's own error estimate. For the forward transform, the error of samples at a single position is one random
     * number, which exceeds three times its root mean square with a probability of exp(-9). */
    const double allowed = info.expected_error, allowed_forward = (p->spread == ONE_PLACE ? 3 : 1) * allowed;
    for (size_t b = 0; b < batch; b++) {
        double adjoint = adjoint_error(p, k, w, data + b * p->samples, image + b * pixels);
        double forward = forward_error(p, k, w, x + b * pixels, y + b * p->samples);
        if (!(adjoint < allowed && forward < allowed_forward))
            fail_msg("dim %d n %d width %d oversampling %g: adjoint %.3g, forward %.3g, expected %.3g", p->dim, p->n[0],
                     info.width, info.oversampling, adjoint, forward, info.expected_error);
    }
    /* <A^H d, x> = <d, A x>: both sides are the same sums in a different order; float32 leaves about 1e-6 of their
     * size. */
    double left = dot_re(batch * pixels, image, x), right = dot_re(batch * p->samples, data, y);
    double size = sqrt(dot_re(batch * pixels, image, image) * dot_re(batch * pixels, x, x));
    if (!(fabs(left - right) < 3e-6 * size))
        fail_msg("not adjoint: %.9g and %.9g, scale %.3g", left, right, size);
    /* Squares: the same image, squared and added to what the output already contains. */
    float *squares = calloc(pixels, sizeof *squares);
    squares[0] = 5;
    assert_int_equal(nufft_adjoint_squares(plan, p->batch, data, squares), 0);
    for (size_t r = 0; r < pixels; r++) {
        double sum = r == 0 ? 5 : 0;
        for (size_t b = 0; b < batch; b++) {
            const struct c32 *v = image + b * pixels + r;
            sum += (double)v->re * v->re + (double)v->im * v->im;
        }
        assert_true(fabs(squares[r] - sum) <= 1e-5 * (sum + 1e-3));
    }
    free(squares);
    nufft_free(plan);
    free(k);
    free(w);
    free(data);
    free(image);
    free(x);
    free(y);
    dev_free(dev);
}

static void every_width_and_oversampling(void **unused)
{
    (void)unused;
    static const double oversampling[] = {1.25, 1.5, 2};
    for (int width = 2; width <= 8; width++)
        for (int i = 0; i < 3; i++) {
            struct problem p = {2, {20, 24, 1}, 1, 300, UNIFORM, NUFFT_SEPARABLE, 1e-3, width, oversampling[i], 2};
            check_problem(&p);
            struct problem q = {3, {8, 10, 12}, 1, 200, RADIAL, NUFFT_SEPARABLE, 1e-3, width, oversampling[i], 2};
            check_problem(&q);
        }
}

static void every_tolerance(void **unused)
{
    (void)unused;
    for (double tolerance = 1e-1; tolerance > 0.9e-6; tolerance /= 10) {
        struct problem p = {2, {33, 17, 1}, 1, 500, RADIAL, NUFFT_SEPARABLE, fmax(tolerance, 1e-6), 0, 0, 2};
        check_problem(&p);
        struct problem q = {3, {11, 13, 9}, 1, 300, UNIFORM, NUFFT_SEPARABLE, fmax(tolerance, 1e-6), 0, 0, 2};
        check_problem(&q);
    }
}

/* Every plan does both transforms. A plan made for the forward transform, where a sample costs less, uses a wider
 * kernel on a smaller grid. */
static void every_purpose(void **unused)
{
    (void)unused;
    const struct problem p = {2, {32, 32, 1}, 1, 3829, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 1};
    struct nufft_params params = {.dim = 2, .n = {32, 32, 1}, .tolerance = p.tolerance, .batch = 1};
    struct nufft_info info[NUFFT_FOR_BOTH + 1];
    struct nufft_expected expected[NUFFT_FOR_BOTH + 1];
    struct dev *dev;
    float *k = make_k(p.dim, p.samples, p.spread);
    struct c32 *data = make_values(p.samples, 3), *image = make_values(pixels_of(&p), 4);
    struct c32 *data_got = make_values(p.samples, 5), *image_got = make_values(pixels_of(&p), 6);
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, p.threads), 0);
    for (int purpose = NUFFT_FOR_ADJOINT; purpose <= NUFFT_FOR_BOTH; purpose++) {
        struct nufft *plan;
        params.purpose = (enum nufft_purpose)purpose;
        assert_int_equal(nufft_create(&plan, dev, &params, p.samples, k), 0);
        assert_int_equal(nufft_adjoint(plan, 1, data, image_got), 0);
        assert_int_equal(nufft_forward(plan, 1, image, data_got), 0);
        assert_true(adjoint_error(&p, k, NULL, data, image_got) <= p.tolerance);
        assert_true(forward_error(&p, k, NULL, image, data_got) <= p.tolerance);
        nufft_describe(plan, &info[purpose]);
        nufft_free(plan);
        assert_int_equal(nufft_expect(dev, &params, p.samples, k, &expected[purpose]), 0);
        assert_int_equal(expected[purpose].width, info[purpose].width);
        assert_memory_equal(expected[purpose].grid, info[purpose].grid, sizeof info[purpose].grid);
        assert_true(expected[purpose].error == info[purpose].expected_error);
    }
    /* The best plan for both is not faster than the best for each. */
    assert_true(expected[NUFFT_FOR_ADJOINT].seconds > 0 && expected[NUFFT_FOR_FORWARD].seconds > 0);
    assert_true(expected[NUFFT_FOR_BOTH].seconds >=
                (1 - 1e-9) * (expected[NUFFT_FOR_ADJOINT].seconds + expected[NUFFT_FOR_FORWARD].seconds));
    params.tolerance = 0;
    assert_int_equal(nufft_expect(dev, &params, p.samples, k, &expected[0]), ERR_BAD_PARAMETER);
    assert_true(info[NUFFT_FOR_FORWARD].grid[0] < info[NUFFT_FOR_ADJOINT].grid[0]);
    assert_true(info[NUFFT_FOR_FORWARD].width > info[NUFFT_FOR_ADJOINT].width);
    assert_true(info[NUFFT_FOR_BOTH].grid[0] >= info[NUFFT_FOR_FORWARD].grid[0] &&
                info[NUFFT_FOR_BOTH].grid[0] <= info[NUFFT_FOR_ADJOINT].grid[0]);
    dev_free(dev);
    free(k);
    free(data);
    free(image);
    free(data_got);
    free(image_got);
}

static void every_batch(void **unused)
{
    (void)unused;
    static const int batches[] = {2, 4, 5, 8, 16, 29};
    for (int i = 0; i < 6; i++) {
        struct problem p = {2, {18, 22, 1}, batches[i], 150, RADIAL, NUFFT_SEPARABLE, 1e-4, 0, 0, 2};
        check_problem(&p);
        struct problem q = {3, {8, 7, 6}, batches[i], 60, EDGES, NUFFT_SEPARABLE, 1e-5, 0, 0, 2};
        check_problem(&q);
    }
}

static void radial_kernel(void **unused)
{
    (void)unused;
    for (int batch = 1; batch <= 9; batch += 4) {
        struct problem p = {2, {20, 26, 1}, batch, 200, UNIFORM, NUFFT_RADIAL, 1e-3, 0, 0, 2};
        check_problem(&p);
        struct problem q = {3, {8, 12, 10}, batch, 100, RADIAL, NUFFT_RADIAL, 1e-2, 0, 0, 2};
        check_problem(&q);
    }
}

static void positions_at_the_edge(void **unused)
{
    (void)unused;
    struct problem p = {2, {32, 15, 1}, 1, 400, EDGES, NUFFT_SEPARABLE, 1e-5, 0, 0, 2};
    check_problem(&p);
    struct problem q = {3, {9, 16, 5}, 1, 400, EDGES, NUFFT_SEPARABLE, 1e-5, 0, 0, 2};
    check_problem(&q);
    struct problem tiny = {2, {1, 3, 1}, 1, 50, UNIFORM, NUFFT_SEPARABLE, 1e-4, 0, 0, 2};
    check_problem(&tiny);
    struct problem plate = {3, {24, 20, 2}, 1, 200, UNIFORM, NUFFT_SEPARABLE, 1e-4, 0, 0, 2};
    check_problem(&plate);
}

/* 60,000 samples in one bin: it is divided into parts. The sums are checked at few pixels, because the oracle is
 * slow. */
static void heavy_bin(void **unused)
{
    (void)unused;
    struct problem p = {2, {6, 5, 1}, 1, 60000, ONE_PLACE, NUFFT_SEPARABLE, 1e-4, 0, 0, 2};
    check_problem(&p);
}

static void same_bits_for_any_threads(void **unused)
{
    (void)unused;
    for (int dim = 2; dim <= 3; dim++)
        for (int batch = 1; batch <= 8; batch += 7) {
            /* Threads take what is left of a pass in 2-D, too, if the grid is large. */
            const int larger = dim == 2 && batch > 1 ? 4 : 1;
            struct problem p = {.dim = dim,
                                .n = {larger * 70, larger * 50, dim == 3 ? 34 : 1},
                                .batch = batch,
                                .samples = 50000,
                                .spread = RADIAL,
                                .tolerance = 1e-3};
            size_t pixels = pixels_of(&p);
            float *k = make_k(dim, p.samples, p.spread);
            struct c32 *data = make_values((size_t)batch * p.samples, 8),
                       *first = malloc((size_t)batch * pixels * sizeof *first),
                       *again = malloc((size_t)batch * pixels * sizeof *again),
                       *there = malloc((size_t)batch * p.samples * sizeof *there),
                       *back = malloc((size_t)batch * p.samples * sizeof *back);
            for (p.threads = 1; p.threads <= 5; p.threads++) {
                struct dev *dev;
                assert_int_equal(dev_create(&dev, DEV_CPU, 0, p.threads), 0);
                struct nufft *plan = make_plan(dev, &p, k);
                assert_int_equal(nufft_adjoint(plan, batch, data, p.threads == 1 ? first : again), 0);
                assert_int_equal(nufft_forward(plan, batch, first, p.threads == 1 ? there : back), 0);
                if (p.threads > 1) {
                    assert_memory_equal(first, again, (size_t)batch * pixels * sizeof *first);
                    assert_memory_equal(there, back, (size_t)batch * p.samples * sizeof *back);
                }
                nufft_free(plan);
                dev_free(dev);
            }
            free(k);
            free(data);
            free(first);
            free(again);
            free(there);
            free(back);
        }
}

/* A plan's adjoints have the bits of a new plan's, whatever transforms were before: where adjoints follow one another,
 * each leaves the grid cleared for the next. */
static void adjoints_in_a_row(void **unused)
{
    (void)unused;
    enum { BATCH = 8, FORWARD = -1, CONVOLVE = -2 };
    static const int batches[] = {8, 8, 5, 8, FORWARD, 1, 1, 8, 8, 4, 8, CONVOLVE, 8, 8};
    for (int dim = 2; dim <= 3; dim++) {
        const struct problem p = {
            .dim = dim, .n = {41, 30, dim == 3 ? 16 : 1}, BATCH, 3000, UNIFORM, NUFFT_SEPARABLE, 1e-3, .threads = 2};
        const size_t pixels = pixels_of(&p);
        float *k = make_k(dim, p.samples, p.spread), *weights = make_weights(p.samples);
        struct c32 *data = make_values(BATCH * p.samples, 8), *there = malloc(BATCH * p.samples * sizeof *there),
                   *fresh = malloc(BATCH * pixels * sizeof *fresh), *image = malloc(BATCH * pixels * sizeof *image);
        struct dev *dev;
        assert_int_equal(dev_create(&dev, DEV_CPU, 0, p.threads), 0);
        struct nufft *used = make_plan(dev, &p, k);
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
            if (batches[i] == FORWARD) {
                assert_int_equal(nufft_forward(used, BATCH, fresh, there), 0);
                continue;
            }
            if (batches[i] == CONVOLVE) {
                assert_int_equal(nufft_convolve(used, weights, (float *)there), 0);
                continue;
            }
            struct nufft *plan = make_plan(dev, &p, k);
            assert_int_equal(nufft_adjoint(plan, batches[i], data, fresh), 0);
            assert_int_equal(nufft_adjoint(used, batches[i], data, image), 0);
            assert_memory_equal(image, fresh, (size_t)batches[i] * pixels * sizeof *image);
            nufft_free(plan);
        }
        nufft_free(used);
        dev_free(dev);
        free(k);
        free(weights);
        free(data);
        free(there);
        free(fresh);
        free(image);
    }
}

/* The convolution is symmetric, and for a single sample it is the kernel's own sum of squares. */
static void convolution(void **unused)
{
    (void)unused;
    struct problem p = {2, {40, 40, 1}, 1, 700, UNIFORM, NUFFT_SEPARABLE, 1e-4, 0, 0, 2};
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    float *k = make_k(2, p.samples, UNIFORM), *a = make_weights(p.samples), *ca = calloc(p.samples, sizeof *ca),
          *b = calloc(p.samples, sizeof *b), *cb = calloc(p.samples, sizeof *cb);
    for (size_t m = 0; m < p.samples; m++)
        b[m] = (float)(m % 13) - 4;
    struct nufft *plan = make_plan(dev, &p, k);
    assert_int_equal(nufft_convolve(plan, a, ca), 0);
    assert_int_equal(nufft_convolve(plan, b, cb), 0);
    double left = 0, right = 0, size = 0;
    for (size_t m = 0; m < p.samples; m++) {
        left += (double)ca[m] * b[m];
        right += (double)a[m] * cb[m];
        size += fabs((double)ca[m] * b[m]);
    }
    assert_true(fabs(left - right) < 1e-5 * size);
    nufft_free(plan);
    struct nufft_info info;
    p.samples = 1;
    k[0] = k[1] = 0;
    plan = make_plan(dev, &p, k);
    nufft_describe(plan, &info);
    float one = 2, answer = 0;
    assert_int_equal(nufft_convolve(plan, &one, &answer), 0);
    double sum = 0;
    for (int j = -info.width; j <= info.width; j++) {
        double u = 2.0 * j / info.width, v = kernel_value(info.beta, u * u);
        sum += fabs(u) < 1 ? v * v : 0;
    }
    /* Cells exactly on the kernel's edge hold 1 / I0(beta), far below the tolerance. */
    assert_true(fabs(answer - 2 * sum * sum) < 1e-3 * answer);
    nufft_free(plan);
    free(k);
    free(a);
    free(b);
    free(ca);
    free(cb);
    dev_free(dev);
}

/* Adjoints computed in halves equal those computed at once, and no time is counted twice. */
static void halves(void **unused)
{
    (void)unused;
    struct problem p = {2, {16, 18, 1}, 3, 50, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 2};
    struct dev *dev;
    struct nufft_times times;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    float k[100], squares[2][16 * 18] = {{0}};
    struct c32 data[150], image[2][3 * 16 * 18];
    for (size_t i = 0; i < p.samples; i++) {
        k[2 * i] = (float)(i % 7) / 15 - 0.2f;
        k[2 * i + 1] = (float)(i % 11) / 23 - 0.25f;
    }
    for (size_t i = 0; i < 3 * p.samples; i++)
        data[i] = (struct c32){(float)(i % 13) - 6, (float)(i % 5) - 1};
    struct nufft *plan = make_plan(dev, &p, k);
    assert_int_equal(nufft_adjoint(plan, 3, data, image[0]), 0);
    assert_int_equal(nufft_adjoint_begin(plan, 3, data, image[1]), 0);
    assert_int_equal(nufft_finish(plan), 0);
    assert_memory_equal(image[0], image[1], sizeof image[0]);
    assert_int_equal(nufft_adjoint_squares(plan, 3, data, squares[0]), 0);
    assert_int_equal(nufft_adjoint_squares_begin(plan, 3, data, squares[1]), 0);
    assert_int_equal(nufft_finish(plan), 0);
    assert_memory_equal(squares[0], squares[1], sizeof squares[0]);
    assert_true(squares[0][5] > 0);
    nufft_times(plan, &times);
    assert_true(times.gpu == 0 && times.cpu == 0 && times.merge == 0 && times.hidden == 0);
    nufft_free(plan);
    dev_free(dev);
}

static void no_samples(void **unused)
{
    (void)unused;
    struct problem p = {2, {16, 16, 1}, 1, 0, UNIFORM, NUFFT_SEPARABLE, 1e-3, 0, 0, 2};
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 2), 0);
    float none[2];
    struct c32 image[256], data[1];
    memset(image, 0x55, sizeof image);
    struct nufft *plan = make_plan(dev, &p, none);
    assert_int_equal(nufft_adjoint(plan, 1, data, image), 0);
    for (int i = 0; i < 256; i++)
        assert_true(image[i].re == 0 && image[i].im == 0);
    nufft_free(plan);
    dev_free(dev);
}

static void bad_input(void **unused)
{
    (void)unused;
    struct dev *dev;
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    const float k[4] = {0.1f, 0.2f, NAN, 0.3f};
    const struct nufft_params good = {.dim = 2, .n = {16, 16, 1}, .tolerance = 1e-3, .batch = 1};
    struct nufft *plan = NULL, *const untouched = plan;
    struct nufft_params p = good;
    assert_int_equal(nufft_create(&plan, dev, &p, 2, k), ERR_TRAJ_NONFINITE);
    assert_non_null(strstr(err_last()->text, "Sample 1 "));
    const struct {
        size_t field;
        int value;
    } wrong[] = {{offsetof(struct nufft_params, dim), 1},        {offsetof(struct nufft_params, dim), 4},
                 {offsetof(struct nufft_params, n), 0},          {offsetof(struct nufft_params, n), 2049},
                 {offsetof(struct nufft_params, n) + 8, 2},      {offsetof(struct nufft_params, width), 1},
                 {offsetof(struct nufft_params, width), 11},     {offsetof(struct nufft_params, batch), 0},
                 {offsetof(struct nufft_params, bin_depth), -2}, {offsetof(struct nufft_params, overflow), 2},
                 {offsetof(struct nufft_params, purpose), -1},   {offsetof(struct nufft_params, purpose), 3}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        p = good;
        memcpy((char *)&p + wrong[i].field, &wrong[i].value, sizeof(int));
        assert_int_equal(nufft_create(&plan, dev, &p, 1, k), ERR_BAD_PARAMETER);
    }
    static const double tolerances[] = {0, -1, 1e-7, 0.2, NAN};
    for (int i = 0; i < 5; i++) {
        p = good;
        p.tolerance = tolerances[i];
        assert_int_equal(nufft_create(&plan, dev, &p, 1, k), ERR_BAD_PARAMETER);
    }
    static const double oversamplings[] = {1, 2.5, NAN};
    for (int i = 0; i < 3; i++) {
        p = good;
        p.oversampling = oversamplings[i];
        assert_int_equal(nufft_create(&plan, dev, &p, 1, k), ERR_BAD_PARAMETER);
    }
    p = good;
    p.tolerance = 1e-6;
    p.width = 3;
    assert_int_equal(nufft_create(&plan, dev, &p, 1, k), ERR_BAD_PARAMETER);
    assert_ptr_equal(plan, untouched);
    dev_free(dev);
}

/* A device that transforms sizes of 360, 720 and 1000 cells ten times as fast as others. */
static int few_fast_sizes(int cells)
{
    return cells <= 360 ? 360 : cells <= 720 ? 720 : cells <= 1000 ? 1000 : 0;
}

static struct nufft_cost cost_with_fast_sizes(const struct dev *dev, const struct nufft_shape *shape, size_t samples)
{
    struct nufft_cost cost = nufft_leaf_cpu.cost(dev, shape, samples);
    for (int d = 0; d < shape->dim; d++)
        if (few_fast_sizes(shape->grid[d]) == shape->grid[d])
            cost.seconds /= 10;
    return cost;
}

/* And whose bricks support axes of at least 1000 cells. */
static struct nufft_cost cost_with_large_bricks(const struct dev *dev, const struct nufft_shape *shape, size_t samples)
{
    struct nufft_cost cost = cost_with_fast_sizes(dev, shape, samples);
    cost.as_asked = shape->method != NUFFT_METHOD_BRICK2D || shape->grid[0] >= 1000;
    return cost;
}

/* 720 / 500 is none of the oversamplings that are tried on any device. An axis that a fast size would lengthen much
 * keeps another one. A method that is asked for gets a grid that it supports, if there is one. */
static void sizes_that_a_device_transforms_fast(void **state)
{
    (void)state;
    static const struct {
        int n[2], grid[2];
        enum nufft_method method;
    } rows[] = {
        {{500, 500}, {720, 720}, 0},
        {{250, 500}, {360, 720}, 0},
        {{500, 10}, {720, 16}, 0},
        {{500, 500}, {1000, 1000}, NUFFT_METHOD_BRICK2D},
        {{250, 500}, {360, 720}, NUFFT_METHOD_BRICK2D},
        {{500, 500}, {720, 720}, NUFFT_METHOD_TILES},
    };
    const float k[2] = {0.1f, 0.2f};
    struct nufft_leaf nufft = nufft_leaf_cpu;
    struct dev_leaf leaf;
    struct dev *cpu, dev;
    nufft.cost = cost_with_large_bricks;
    nufft.fast_size = few_fast_sizes;
    assert_int_equal(dev_create(&cpu, DEV_CPU, 0, 1), 0);
    dev = *cpu;
    leaf = *cpu->leaf;
    leaf.nufft = &nufft;
    dev.leaf = &leaf;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int *n = rows[i].n, *grid = rows[i].grid;
        const struct nufft_params params = {
            .dim = 2, .n = {n[0], n[1], 1}, .tolerance = 1e-2, .batch = 1, .method = rows[i].method};
        struct nufft_info info;
        struct nufft *plan;
        assert_int_equal(nufft_create(&plan, &dev, &params, 1, k), 0);
        nufft_describe(plan, &info);
        nufft_free(plan);
        if (info.grid[0] != grid[0] || info.grid[1] != grid[1])
            fail_msg("%d x %d by %d on %d x %d", n[0], n[1], rows[i].method, info.grid[0], info.grid[1]);
    }
    dev_free(cpu);
}

/* Spokes leave corners empty and crowd at 0, in any period; uniform samples do neither. */
static void how_samples_lie(void **unused)
{
    (void)unused;
    enum { SPOKES = 200, READOUT = 100, COUNT = SPOKES * READOUT };
    float *k = malloc(3 * COUNT * sizeof *k);
    assert_non_null(k);
    for (int dim = 2; dim <= 3; dim++)
        for (int spokes = 0; spokes < 2; spokes++) {
            const struct nufft_params params = {.dim = dim, .n = {50, 50, dim == 3 ? 50 : 1}};
            for (int m = 0; m < COUNT; m++) {
                const double r = (double)(m % READOUT) / READOUT - 0.5, turn = 2.4 * (m / READOUT),
                             z = dim == 3 ? (double)(m / READOUT) / SPOKES : 0, across = sqrt(1 - z * z);
                const double at[3] = {1 + r * across * cos(turn), r * across * sin(turn), r * z};
                for (int d = 0; d < dim; d++)
                    k[m * dim + d] = (float)(spokes ? at[d] : uniform((uint64_t)(3 * m + d)) - 0.5);
            }
            const struct nufft_spread spread = nufft_spread_of(&params, COUNT, k);
            const double pi = 3.14159265358979, filled = !spokes ? 1 : dim == 2 ? pi / 4 : pi / 6;
            assert_true(fabs(spread.filled - filled) < 1e-9);
            /* Two to three samples of each spoke are in the box around 0; 1024 samples are examined. */
            assert_true(spokes ? spread.centre > 0.01 && spread.centre < 0.04 : spread.centre < 0.005);
            assert_true(spread.crowded == 0);
            /* Of 100 samples of a spoke, 50 pixels long, 99 are half a pixel before the next one. */
            assert_true(spokes ? spread.apart > 0.49 && spread.apart < 0.6 : spread.apart > 3.9);
        }
    memset(k, 0, 3 * COUNT * sizeof *k);
    const struct nufft_params params = {.dim = 3, .n = {50, 50, 50}};
    assert_true(nufft_spread_of(&params, COUNT, k).crowded == 1);
    assert_true(nufft_spread_of(&params, COUNT, k).apart == 0);
    free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_and_oversampling),
        cmocka_unit_test(every_tolerance),
        cmocka_unit_test(every_purpose),
        cmocka_unit_test(every_batch),
        cmocka_unit_test(radial_kernel),
        cmocka_unit_test(positions_at_the_edge),
        cmocka_unit_test(heavy_bin),
        cmocka_unit_test(same_bits_for_any_threads),
        cmocka_unit_test(adjoints_in_a_row),
        cmocka_unit_test(convolution),
        cmocka_unit_test(halves),
        cmocka_unit_test(no_samples),
        cmocka_unit_test(sizes_that_a_device_transforms_fast),
        cmocka_unit_test(how_samples_lie),
        cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
