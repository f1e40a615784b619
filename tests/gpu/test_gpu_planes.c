/* 2-D plans on a GPU with most samples at one position, for any data and scale: compared with double sums and the
 * plan's error estimate; the same bits on every run and for any number of transforms; and random plans. Prints TAP;
 * without a GPU, reports everything as skipped.
 *
 *   test_gpu_planes [DIVISOR [PLANS]]   divides the numbers of samples (for a sanitizer); number of random plans */
#include "gridding/nufft/nufft.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <complex.h>
#include <string.h>

enum place { CELL, EDGE, CORNER, POINT, MIXED, UNIFORM, SPOKES, PLACES };
enum values { RANDOM, ONE_SIGN, CORNER_PIXEL, CENTRE_PIXEL, VALUES };

struct test_case {
    const char *name;
    int n[2], batch;
    size_t samples;
    enum place place;
    enum values values;
    double tolerance;
    int width;           /* 0: the plan chooses */
    double oversampling; /* 0: the plan chooses */
    double scale;        /* of the data */
};

/* More than two million samples in one cell of the grid, or around one of its corners. */
static const struct test_case cases[] = {
    {"one cell, 1 transform, 1e-3", {256, 256}, 1, 5000000, CELL, RANDOM, 1e-3, 0, 0, 1},
    {"one cell, 1 transform, 1e-5", {120, 126}, 1, 2100000, CELL, RANDOM, 1e-5, 0, 0, 1},
    {"one cell, 1 transform, 1e-3, one sign", {120, 126}, 1, 2100000, CELL, ONE_SIGN, 1e-3, 0, 0, 1},
    {"one cell, 1 transform, 1e-5, one sign", {120, 126}, 1, 2100000, CELL, ONE_SIGN, 1e-5, 0, 0, 1},
    {"one point, 1 transform, 1e-3, one sign", {96, 96}, 1, 2100000, POINT, ONE_SIGN, 1e-3, 0, 0, 1},
    {"one point, 2 transforms, 1e-5, one sign", {96, 96}, 2, 2100000, POINT, ONE_SIGN, 1e-5, 0, 0, 1},
    {"an edge, 3 transforms, 1e-4, odd sizes", {97, 55}, 3, 2100000, EDGE, RANDOM, 1e-4, 0, 0, 1},
    {"a corner, 8 transforms, 1e-2", {64, 61}, 8, 2100000, CORNER, RANDOM, 1e-2, 0, 0, 1},
    {"a corner, 8 transforms, 1e-3, one sign", {64, 61}, 8, 2100000, CORNER, ONE_SIGN, 1e-3, 0, 0, 1},
    {"half in a cell, 8 transforms, 1e-4", {90, 80}, 8, 2100000, MIXED, RANDOM, 1e-4, 0, 0, 1},
    {"half in a cell, 16 transforms, 1e-3", {90, 80}, 16, 2100000, MIXED, ONE_SIGN, 1e-3, 0, 0, 1},
    {"half in a cell, 16 transforms, 1e-5", {90, 80}, 16, 2100000, MIXED, RANDOM, 1e-5, 0, 0, 1},
    {"spokes, 17 transforms, 1e-3", {80, 90}, 17, 500000, SPOKES, RANDOM, 1e-3, 0, 0, 1},
    {"half in a cell, width 2", {40, 44}, 2, 300000, MIXED, ONE_SIGN, 1e-1, 2, 2, 1},
    {"half in a cell, width 10, low oversampling", {64, 66}, 4, 300000, MIXED, RANDOM, 1e-4, 10, 1.125, 1},
    {"1e-35, 1e-3", {64, 66}, 1, 300000, MIXED, RANDOM, 1e-3, 0, 0, 1e-35},
    {"1e-35, 1e-5", {64, 66}, 8, 300000, MIXED, RANDOM, 1e-5, 0, 0, 1e-35},
    {"1e30, 1e-3, one sign", {64, 66}, 8, 300000, MIXED, ONE_SIGN, 1e-3, 0, 0, 1e30},
    {"1e30, 1e-5", {64, 66}, 1, 300000, MIXED, RANDOM, 1e-5, 0, 0, 1e30},
};

struct problem {
    struct test_case c;
    size_t pixels;
    float *k;
    struct c32 *data, *image;
    uint64_t seed;
};

static float place_of(const struct problem *p, size_t m, int d)
{
    const double u = uniform(p->seed + 1000003 * (uint64_t)(d + 1) + 17 * m), cell = 0.5 / p->c.n[d];
    const double angle = 1.9416 * (double)(m / 64), radius = (double)(m % 64) / 64 - 0.5;
    switch (p->c.place) {
    case CELL:
        return (float)(0.1 + u * cell);
    case EDGE:
        return (float)((d == 0 ? -0.5 : 0.2) + (u - 0.5) * cell);
    case CORNER:
        return (float)(-0.5 + (u - 0.5) * cell);
    case POINT:
        return d == 0 ? 0.1234567f : -0.3456789f;
    case MIXED:
        return (float)(m % 2 ? (u - 0.5) * cell : u - 0.5);
    case SPOKES:
        return (float)(radius * (d == 0 ? cos(angle) : sin(angle)));
    default:
        return (float)(u - 0.5);
    }
}

static struct c32 value_of(const struct problem *p, size_t m, uint64_t seed)
{
    const int *n = p->c.n;
    double turns = 0, scale = p->c.scale;
    switch (p->c.values) {
    case ONE_SIGN:
        return (struct c32){(float)(0.6 * scale), (float)(0.37 * scale)};
    case CORNER_PIXEL:
        turns = (double)p->k[2 * m] * (n[0] / 2) + (double)p->k[2 * m + 1] * (n[1] / 2);
        return (struct c32){(float)(scale * cos(2 * M_PI * turns)), (float)(scale * sin(2 * M_PI * turns))};
    case CENTRE_PIXEL:
        return (struct c32){(float)scale, 0};
    default:
        return (struct c32){(float)(scale * (uniform(seed) - 0.5)), (float)(scale * (uniform(seed + 1) - 0.5))};
    }
}

static void problem_make(struct problem *p, const struct test_case *c, uint64_t seed)
{
    p->c = *c;
    p->seed = seed;
    p->pixels = (size_t)c->n[0] * (size_t)c->n[1];
    p->k = take(c->samples * 2 * sizeof *p->k);
    p->data = take((size_t)c->batch * c->samples * sizeof *p->data);
    p->image = take((size_t)c->batch * p->pixels * sizeof *p->image);
#pragma omp parallel for
    for (size_t m = 0; m < c->samples; m++)
        for (int d = 0; d < 2; d++)
            p->k[2 * m + (size_t)d] = place_of(p, m, d);
#pragma omp parallel for
    for (size_t i = 0; i < (size_t)c->batch * c->samples; i++)
        p->data[i] = value_of(p, i % c->samples, seed + 5000000 + 2 * i);
    for (size_t i = 0; i < (size_t)c->batch * p->pixels; i++)
        p->image[i] = (struct c32){(float)(c->scale * (uniform(seed + 9000000 + 2 * i) - 0.5)),
                                   (float)(c->scale * (uniform(seed + 9000001 + 2 * i) - 0.3))};
}

static void problem_free(struct problem *p)
{
    free(p->k);
    free(p->data);
    free(p->image);
}

/* ---- double sums ---- */

enum { LINES_MOST = 64 };

/* Columns or rows of the image that are checked: all if there are few, else LINES_MOST / 2 from edge to edge. */
static int lines_of(int n, int *line)
{
    const int count = n <= LINES_MOST ? n : LINES_MOST / 2;
    for (int i = 0; i < count; i++)
        line[i] = count == n ? i : (int)((int64_t)i * (n - 1) / (count - 1));
    return count;
}

static double complex turn(double turns)
{
    turns -= floor(turns);
    return cos(2 * M_PI * turns) + I * sin(2 * M_PI * turns);
}

/* The adjoint of one transform at those pixels, [rows][columns]. */
static void sum_pixels(const struct problem *p, int transform, int rows, const int *row, int columns, const int *column,
                       double complex *to)
{
    const struct c32 *data = p->data + (size_t)transform * p->c.samples;
#pragma omp parallel
    {
        double complex *own = take((size_t)(rows * columns) * sizeof *own), x[LINES_MOST];
#pragma omp for
        for (size_t m = 0; m < p->c.samples; m++) {
            for (int i = 0; i < columns; i++)
                x[i] = turn((double)p->k[2 * m] * (column[i] - p->c.n[0] / 2));
            for (int j = 0; j < rows; j++) {
                const double complex y = turn((double)p->k[2 * m + 1] * (row[j] - p->c.n[1] / 2));
                const double re = data[m].re * creal(y) - data[m].im * cimag(y);
                const double im = data[m].re * cimag(y) + data[m].im * creal(y);
                double *sum = (double *)(own + j * columns);
                for (int i = 0; i < columns; i++) {
                    sum[2 * i] += re * creal(x[i]) - im * cimag(x[i]);
                    sum[2 * i + 1] += re * cimag(x[i]) + im * creal(x[i]);
                }
            }
        }
#pragma omp critical
        for (int i = 0; i < rows * columns; i++)
            to[i] += own[i];
        free(own);
    }
}

/* The expected sum of squares over random positions: errors are not relative to sums that cancel by chance. */
static double squares(const struct problem *p, const struct c32 *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += pow(values[i].re / p->c.scale, 2) + pow(values[i].im / p->c.scale, 2);
    return sum;
}

static double adjoint_error(const struct problem *p, int transform, const struct c32 *image)
{
    int row[LINES_MOST], column[LINES_MOST], rows = lines_of(p->c.n[1], row), columns = lines_of(p->c.n[0], column);
    double complex *wanted = take((size_t)(rows * columns) * sizeof *wanted);
    double off = 0, all = 0;
    sum_pixels(p, transform, rows, row, columns, column, wanted);
    for (int j = 0; j < rows; j++)
        for (int i = 0; i < columns; i++) {
            const struct c32 v = image[(size_t)row[j] * (size_t)p->c.n[0] + (size_t)column[i]];
            const double complex w = wanted[j * columns + i];
            off += pow((v.re - creal(w)) / p->c.scale, 2) + pow((v.im - cimag(w)) / p->c.scale, 2);
            all += pow(creal(w) / p->c.scale, 2) + pow(cimag(w) / p->c.scale, 2);
        }
    free(wanted);
    return sqrt(off / fmax(all, rows * columns * squares(p, p->data + (size_t)transform * p->c.samples, p->c.samples)));
}

/* The forward transform, at some samples. */
static double forward_error(const struct problem *p, int transform, const struct c32 *data)
{
    enum { CHECKED = 300 };
    const struct c32 *image = p->image + (size_t)transform * p->pixels;
    double off = 0, all = 0;
#pragma omp parallel for reduction(+ : off, all)
    for (int i = 0; i < CHECKED; i++) {
        const size_t m = splitmix(p->seed + 77 + (uint64_t)i) % p->c.samples;
        double complex sum = 0;
        for (int y = 0; y < p->c.n[1]; y++)
            for (int x = 0; x < p->c.n[0]; x++) {
                const struct c32 v = image[y * p->c.n[0] + x];
                const double complex w =
                    turn(-(double)p->k[2 * m] * (x - p->c.n[0] / 2) - (double)p->k[2 * m + 1] * (y - p->c.n[1] / 2));
                sum += v.re * creal(w) - v.im * cimag(w) + I * (v.re * cimag(w) + v.im * creal(w));
            }
        off += pow((data[m].re - creal(sum)) / p->c.scale, 2) + pow((data[m].im - cimag(sum)) / p->c.scale, 2);
        all += pow(creal(sum) / p->c.scale, 2) + pow(cimag(sum) / p->c.scale, 2);
    }
    return sqrt(off / fmax(all, CHECKED * squares(p, image, p->pixels)));
}

/* ---- plans ---- */

/* Images and data on the device, filled with NaN, which the transforms must overwrite. */
struct outcome {
    struct nufft_info info;
    struct c32 *image, *data;
};

static struct nufft_params params_of(const struct test_case *c)
{
    return (struct nufft_params){.dim = 2,
                                 .n = {c->n[0], c->n[1], 1},
                                 .tolerance = c->tolerance,
                                 .width = c->width,
                                 .oversampling = c->oversampling,
                                 .batch = c->batch};
}

static void *upload(struct dev *gpu, const void *host, size_t bytes)
{
    void *device;
    must(dev_alloc(gpu, bytes, &device), "dev_alloc");
    must(dev_upload(gpu, device, host, bytes), "dev_upload");
    return device;
}

/* `count` of the plan's transforms per call. */
static void run(struct dev *gpu, const struct problem *p, int count, struct outcome *o)
{
    const struct nufft_params params = params_of(&p->c);
    const size_t batch = (size_t)p->c.batch, data_bytes = batch * p->c.samples * sizeof(struct c32),
                 image_bytes = batch * p->pixels * sizeof(struct c32);
    struct nufft *plan;
    must(nufft_create(&plan, gpu, &params, p->c.samples, p->k), "nufft_create");
    nufft_describe(plan, &o->info);
    o->image = take(image_bytes);
    o->data = take(data_bytes);
    memset(o->image, 0xff, image_bytes);
    memset(o->data, 0xff, data_bytes);
    struct c32 *data = upload(gpu, p->data, data_bytes), *image = upload(gpu, p->image, image_bytes);
    struct c32 *to_data = upload(gpu, o->data, data_bytes), *to_image = upload(gpu, o->image, image_bytes);
    for (int t = 0; t < p->c.batch; t += count) {
        const int now = t + count <= p->c.batch ? count : p->c.batch - t;
        must(nufft_adjoint(plan, now, data + (size_t)t * p->c.samples, to_image + (size_t)t * p->pixels),
             "nufft_adjoint");
        must(nufft_forward(plan, now, image + (size_t)t * p->pixels, to_data + (size_t)t * p->c.samples),
             "nufft_forward");
    }
    must(dev_download(gpu, o->image, to_image, image_bytes), "dev_download");
    must(dev_download(gpu, o->data, to_data, data_bytes), "dev_download");
    void *held[] = {data, image, to_data, to_image};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        dev_release(gpu, held[i]);
    nufft_free(plan);
}

static void outcome_free(struct outcome *o)
{
    free(o->image);
    free(o->data);
}

static void verdict_error(double error, double most, const char *name, const char *what)
{
    char text[200], why[100];
    snprintf(text, sizeof text, "%s: %s", name, what);
    snprintf(why, sizeof why, "error %.3g, allowed %.3g", error, most);
    printf("# %s: %.3g of %.3g\n", text, error, most);
    verdict(error <= most, text, why);
}

static void verdict_bits(const struct problem *p, const struct outcome *a, const struct outcome *b, const char *what)
{
    char text[200];
    const size_t batch = (size_t)p->c.batch;
    snprintf(text, sizeof text, "%s: the same bits %s", p->c.name, what);
    verdict(memcmp(a->image, b->image, batch * p->pixels * sizeof *a->image) == 0 &&
                memcmp(a->data, b->data, batch * p->c.samples * sizeof *a->data) == 0,
            text, "they differ");
}

static void run_case(struct dev *gpu, const struct test_case *c, size_t divisor)
{
    struct problem p;
    struct outcome all, again;
    struct test_case small = *c;
    small.samples = c->samples / divisor;
    problem_make(&p, &small, 1);
    run(gpu, &p, c->batch, &all);
    verdict(all.info.method == NUFFT_METHOD_BRICK2D, c->name, "the plan does not use planes");
    /* A plan that chooses for itself must meet the tolerance; one with a given width, its own estimate. */
    const double most = c->width ? all.info.expected_error : c->tolerance;
    /* Samples at one position share one random error: it exceeds three times its root mean square with a probability of
     * exp(-9). */
    const bool spread = c->place == MIXED || c->place == SPOKES;
    for (int i = 0; i < (c->batch > 1 ? 2 : 1); i++) {
        const int t = i * (c->batch - 1);
        verdict_error(adjoint_error(&p, t, all.image + (size_t)t * p.pixels), most, c->name,
                      i ? "adjoint, last" : "adjoint");
        verdict_error(forward_error(&p, t, all.data + (size_t)t * small.samples), (spread ? 1 : 3) * most, c->name,
                      i ? "forward, last" : "forward");
    }
    run(gpu, &p, c->batch, &again);
    verdict_bits(&p, &all, &again, "in two runs");
    outcome_free(&again);
    static const int counts[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof counts / sizeof *counts && counts[i] < c->batch; i++) {
        char what[100];
        snprintf(what, sizeof what, "%d of %d transforms at a time", counts[i], c->batch);
        run(gpu, &p, counts[i], &again);
        verdict_bits(&p, &all, &again, what);
        outcome_free(&again);
    }
    outcome_free(&all);
    problem_free(&p);
}

/* Random plans of given widths and oversamplings: no error exceeds the estimate. */
static void test_random_plans(struct dev *gpu, int plans)
{
    double worst = 0;
    char which[200] = "no plan was made", name[200];
    for (int i = 0; i < plans; i++) {
        const uint64_t seed = 31337 + 100 * (uint64_t)i;
        struct test_case c = {"a plan at random", {0}, 1, 0, UNIFORM, RANDOM, 1e-1, 0, 0, 1};
        for (int d = 0; d < 2; d++)
            c.n[d] = 20 + (int)(uniform(seed + (uint64_t)d) * 44);
        c.samples = (size_t)(500 * pow(100, uniform(seed + 2)));
        c.place = (enum place)(splitmix(seed + 3) % PLACES);
        c.values = (enum values)(splitmix(seed + 4) % VALUES);
        c.width = 2 + (int)(splitmix(seed + 5) % 9);
        c.oversampling = splitmix(seed + 6) % 4 ? 1.125 + 0.875 * uniform(seed + 7) : 1.125;
        c.tolerance = pow(10, -2 - 4 * uniform(seed + 8));
        struct problem p;
        struct outcome o;
        problem_make(&p, &c, seed);
        run(gpu, &p, 1, &o);
        const double error = adjoint_error(&p, 0, o.image), ratio = error / o.info.expected_error;
        if (!(ratio <= 1))
            printf("# ratio %.2f: error %.3g, %d x %d, width %d, oversampling %.3f, products %d, method %d, place %d, "
                   "values %d, %zu samples\n",
                   ratio, error, c.n[0], c.n[1], c.width, o.info.oversampling, o.info.products, (int)o.info.method,
                   (int)c.place, (int)c.values, c.samples);
        if (!(ratio <= worst)) {
            worst = ratio;
            snprintf(which, sizeof which,
                     "plan %d: %d x %d, width %d, oversampling %.3f, products %d, place %d, values %d, %zu samples: "
                     "error %.3g",
                     i, c.n[0], c.n[1], c.width, o.info.oversampling, o.info.products, (int)c.place, (int)c.values,
                     c.samples, error);
        }
        outcome_free(&o);
        problem_free(&p);
    }
    printf("# the largest error of %d random plans is %.2f times the estimate: %s\n", plans, worst, which);
    snprintf(name, sizeof name, "the errors of %d random plans are within their estimates", plans);
    verdict(worst <= 1, name, which);
}

int main(int argc, char **argv)
{
    const size_t divisor = argc > 1 && atoi(argv[1]) > 0 ? (size_t)atoi(argv[1]) : 1;
    struct dev *gpu = tap_gpu();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(gpu, &cases[i], divisor);
    test_random_plans(gpu, argc > 2 ? atoi(argv[2]) : 300);
    dev_free(gpu);
    return tap_end();
}
