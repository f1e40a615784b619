/* Bins of limited depth on a GPU, with the overflow summed by the CPU or in parts on the GPU: the same results as with
 * unlimited depth, the same bits on every run, counts equal to naive ones, bad input. Prints TAP; without a GPU,
 * reports everything as skipped.
 *
 *   test_gpu_overflow [RUNS [CASE]]   20 runs; one case alone, 0 being the first (for a sanitizer) */
#include "gridding/nufft/nufft.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <string.h>

static void verdict_of(bool good, const char *what, const char *which, const char *why)
{
    char name[200];
    snprintf(name, sizeof name, "%s: %s", which, what);
    verdict(good, name, why);
}

struct test_case {
    const char *name;
    int dim, n[3], batch;
    size_t samples;
    double wide; /* two thirds of the samples lie within this part of k-space */
    double tolerance;
    enum nufft_kernel kernel;
    int width; /* 0: chosen by the tolerance */
    enum nufft_method method;
};

/* One case for each method of summing, with bins from nearly empty to one that contains most samples. */
static const struct test_case cases[] = {
    {"2-D, planes", 2, {60, 52, 1}, 5, 9000, 0.05, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"2-D, planes, many transforms", 2, {40, 40, 1}, 150, 3000, 0.1, 1e-4, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
    {"2-D, tiles", 2, {40, 44, 1}, 3, 6000, 0.05, 1e-3, NUFFT_RADIAL, 0, NUFFT_METHOD_TILES},
    {"3-D, bricks", 3, {40, 36, 44}, 3, 30000, 0.02, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
    {"3-D, bricks, uniform", 3, {30, 30, 30}, 1, 20000, 1, 1e-2, NUFFT_SEPARABLE, 3, NUFFT_METHOD_BRICK8},
    {"3-D, wide", 3, {24, 26, 30}, 2, 12000, 0.05, 1e-4, NUFFT_SEPARABLE, 6, NUFFT_METHOD_BRICK16},
    {"3-D, tiles", 3, {20, 22, 18}, 20, 5000, 0.1, 1e-3, NUFFT_RADIAL, 0, NUFFT_METHOD_TILES},
    {"3-D, one place", 3, {20, 20, 20}, 1, 4000, 0, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK16},
};

struct problem {
    size_t pixels;
    float *k, *weights;
    struct c32 *data, *image;
};

static void problem_make(struct problem *p, const struct test_case *c)
{
    p->pixels = (size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2];
    p->k = take(c->samples * (size_t)c->dim * sizeof *p->k);
    p->weights = take(c->samples * sizeof *p->weights);
    p->data = take((size_t)c->batch * c->samples * sizeof *p->data);
    p->image = take((size_t)c->batch * p->pixels * sizeof *p->image);
    for (size_t m = 0; m < c->samples; m++) {
        for (int d = 0; d < c->dim; d++)
            p->k[m * (size_t)c->dim + (size_t)d] =
                (float)((uniform(1000003 * (uint64_t)(d + 1) + m * 17) - 0.5) * (m % 3 || c->wide == 0 ? c->wide : 1));
        p->weights[m] = (float)(0.2 + uniform(77 + m));
    }
    for (size_t i = 0; i < (size_t)c->batch * c->samples; i++)
        p->data[i] = (struct c32){(float)(uniform(5000000 + 2 * i) - 0.5), (float)(uniform(5000001 + 2 * i) - 0.3)};
    for (size_t i = 0; i < (size_t)c->batch * p->pixels; i++)
        p->image[i] = (struct c32){(float)(uniform(9000000 + 2 * i) - 0.5), (float)(uniform(9000001 + 2 * i) - 0.3)};
}

static void problem_free(struct problem *p)
{
    free(p->k);
    free(p->weights);
    free(p->data);
    free(p->image);
}

struct outcome {
    struct c32 *image, *data;
    float *squares, *convolved;
    struct nufft_info info;
    struct nufft_times times;
};

static void outcome_free(struct outcome *o)
{
    free(o->image);
    free(o->data);
    free(o->squares);
    free(o->convolved);
}

static struct nufft_params params_of(const struct test_case *c, int depth, enum nufft_overflow overflow)
{
    struct nufft_params p = {.dim = c->dim, .tolerance = c->tolerance, .kernel = c->kernel, .batch = c->batch};
    memcpy(p.n, c->n, sizeof p.n);
    p.width = c->width;
    p.oversampling = c->width ? 2 : 0;
    p.bin_depth = depth;
    p.overflow = overflow;
    return p;
}

static void run(struct dev *dev, const struct test_case *c, const struct problem *p, int depth,
                enum nufft_overflow overflow, bool weigh, struct outcome *o)
{
    size_t data_bytes = (size_t)c->batch * c->samples * sizeof(struct c32),
           image_bytes = (size_t)c->batch * p->pixels * sizeof(struct c32), square_bytes = p->pixels * sizeof(float);
    const struct nufft_params params = params_of(c, depth, overflow);
    struct nufft *plan;
    void *data, *image, *data_out, *image_out, *squares;
    o->image = take(image_bytes);
    o->data = take(data_bytes);
    o->squares = take(square_bytes);
    o->convolved = take(c->samples * sizeof(float));
    memset(o->image, 0xff, image_bytes);
    memset(o->data, 0xff, data_bytes);
    must(dev_alloc(dev, data_bytes, &data), "dev_alloc");
    must(dev_alloc(dev, data_bytes, &data_out), "dev_alloc");
    must(dev_alloc(dev, image_bytes, &image), "dev_alloc");
    must(dev_alloc(dev, image_bytes, &image_out), "dev_alloc");
    must(dev_alloc(dev, square_bytes, &squares), "dev_alloc");
    must(dev_upload(dev, data, p->data, data_bytes), "dev_upload");
    must(dev_upload(dev, image, p->image, image_bytes), "dev_upload");
    must(dev_upload(dev, data_out, o->data, data_bytes), "dev_upload");
    must(dev_upload(dev, image_out, o->image, image_bytes), "dev_upload");
    must(dev_zero(dev, squares, square_bytes), "dev_zero");
    must(nufft_create(&plan, dev, &params, c->samples, p->k), "nufft_create");
    /* Weights that are set and then removed have no effect. */
    must(nufft_set_weights(plan, p->weights), "nufft_set_weights");
    if (!weigh)
        must(nufft_set_weights(plan, NULL), "nufft_set_weights");
    nufft_describe(plan, &o->info);
    must(nufft_adjoint_squares(plan, c->batch, data, squares), "nufft_adjoint_squares");
    must(nufft_forward(plan, c->batch, image, data_out), "nufft_forward");
    must(nufft_convolve(plan, p->weights, o->convolved), "nufft_convolve");
    must(nufft_adjoint(plan, c->batch, data, image_out), "nufft_adjoint");
    nufft_times(plan, &o->times);
    must(dev_download(dev, o->image, image_out, image_bytes), "dev_download");
    must(dev_download(dev, o->data, data_out, data_bytes), "dev_download");
    must(dev_download(dev, o->squares, squares, square_bytes), "dev_download");
    void *held[] = {data, data_out, image, image_out, squares};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        dev_release(dev, held[i]);
    nufft_free(plan);
}

static double distance(const float *a, const float *b, size_t count)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        off += pow((double)a[i] - b[i], 2);
        all += pow((double)b[i], 2);
    }
    return sqrt(off / all);
}

/* All four results equal those of another run within `bound`. */
static void same_results(const struct test_case *c, const struct problem *p, const struct outcome *a,
                         const struct outcome *b, double bound, const char *what)
{
    const double far[] = {
        distance((float *)a->image, (float *)b->image, 2 * (size_t)c->batch * p->pixels),
        distance((float *)a->data, (float *)b->data, 2 * (size_t)c->batch * c->samples),
        distance(a->squares, b->squares, p->pixels),
        distance(a->convolved, b->convolved, c->samples),
    };
    static const char *const names[] = {"adjoint", "forward", "squares", "convolution"};
    for (int i = 0; i < 4; i++) {
        char name[160], why[160];
        snprintf(name, sizeof name, "%s, %s as with unlimited depth", what, names[i]);
        snprintf(why, sizeof why, "%.3g apart, allowed %.3g", far[i], bound);
        verdict_of(far[i] <= bound, name, c->name, why);
    }
}

/* CPU = GPU: the overflow is gridded with the exact kernel and the rest by the method's arithmetic, both within the
 * tolerance; squares and convolutions square an error. */
static void depth_run(struct dev *gpu, const struct test_case *c, const struct problem *p, const struct outcome *plain,
                      int depth)
{
    struct outcome o;
    char what[80];
    snprintf(what, sizeof what, "depth %d", depth);
    run(gpu, c, p, depth, NUFFT_OVERFLOW_CPU, true, &o);
    same_results(c, p, &o, plain, 2 * c->tolerance + 2e-6, what);
    char why[200];
    snprintf(why, sizeof why, "%zu of %zu samples, bins %zu, largest %zu, depth %zu", o.info.overflowed, c->samples,
             plain->info.occupied_bins, plain->info.largest_bin, o.info.depth);
    bool all_kept = (size_t)depth >= plain->info.largest_bin;
    bool counts = all_kept
                      ? o.info.overflowed == 0 && o.info.largest_bin == plain->info.largest_bin
                      : o.info.overflowed > 0 && o.info.overflowed < c->samples && o.info.largest_bin == (size_t)depth;
    if (depth == 1)
        counts = counts && o.info.overflowed == c->samples - plain->info.occupied_bins;
    verdict_of(counts && o.info.occupied_bins == plain->info.occupied_bins && o.info.depth == (size_t)depth, what,
               "counts", why);
    snprintf(why, sizeof why, "gpu %g cpu %g merge %g hidden %g", o.times.gpu, o.times.cpu, o.times.merge,
             o.times.hidden);
    verdict_of(o.times.gpu > 0 && (o.times.cpu > 0) == !all_kept && (o.times.merge > 0) == !all_kept &&
                   o.times.hidden >= 0 && o.times.hidden <= o.times.cpu,
               what, "times", why);
    outcome_free(&o);
}

static void same_bits(struct dev *gpu, const struct test_case *c, const struct problem *p, int depth, int runs)
{
    struct outcome first, again;
    bool same = true;
    run(gpu, c, p, depth, NUFFT_OVERFLOW_CPU, true, &first);
    for (int i = 1; i < runs && same; i++) {
        run(gpu, c, p, depth, NUFFT_OVERFLOW_CPU, true, &again);
        same = memcmp(first.image, again.image, (size_t)c->batch * p->pixels * sizeof(struct c32)) == 0 &&
               memcmp(first.data, again.data, (size_t)c->batch * c->samples * sizeof(struct c32)) == 0 &&
               memcmp(first.squares, again.squares, p->pixels * sizeof(float)) == 0 &&
               memcmp(first.convolved, again.convolved, c->samples * sizeof(float)) == 0;
        outcome_free(&again);
    }
    outcome_free(&first);
    verdict_of(same, "the same bits on every run", c->name, "a run differs from the first");
}

static void case_run(struct dev *gpu, const struct test_case *c, int runs)
{
    struct problem p;
    struct outcome plain, o;
    problem_make(&p, c);
    run(gpu, c, &p, NUFFT_DEPTH_AUTO, NUFFT_SPLIT, true, &plain);
    verdict_of(plain.info.method == c->method, "the way it was made for", c->name,
               nufft_method_name(plain.info.method));
    const int largest = (int)plain.info.largest_bin;
    const int depths[] = {1, largest / 4 + 1, largest - 1, largest, largest + 1000};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        depth_run(gpu, c, &p, &plain, depths[i]);
    same_bits(gpu, c, &p, largest / 4 + 1, runs);
    run(gpu, c, &p, NUFFT_DEPTH_AUTO, NUFFT_OVERFLOW_CPU, true, &o);
    same_results(c, &p, &o, &plain, 2 * c->tolerance + 2e-6, "auto");
    outcome_free(&o);
    run(gpu, c, &p, NUFFT_DEPTH_NONE, NUFFT_OVERFLOW_CPU, true, &o);
    verdict_of(o.info.overflowed == 0 && o.info.depth == 0 &&
                   memcmp(o.image, plain.image, (size_t)c->batch * p.pixels * sizeof(struct c32)) == 0,
               "without a limit nothing overflows", c->name, "the image differs, or the counts");
    outcome_free(&o);
    const int cuts[] = {16, 100, 5000};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char what[80];
        snprintf(what, sizeof what, "parts of %d", cuts[i]);
        run(gpu, c, &p, cuts[i], NUFFT_SPLIT, true, &o);
        same_results(c, &p, &o, &plain, c->tolerance + 2e-6, what);
        verdict_of(o.info.overflowed == 0 && o.times.cpu == 0, what, "the CPU has nothing to do", "it has");
        outcome_free(&o);
    }
    outcome_free(&plain);
    /* Without weights. */
    run(gpu, c, &p, NUFFT_DEPTH_AUTO, NUFFT_SPLIT, false, &plain);
    run(gpu, c, &p, largest / 4 + 1, NUFFT_OVERFLOW_CPU, false, &o);
    same_results(c, &p, &o, &plain, 2 * c->tolerance + 2e-6, "no weights");
    outcome_free(&o);
    outcome_free(&plain);
    problem_free(&p);
}

/* The next data arrive while the last are gridded: each image must be that of its own data. */
static void test_beside(struct dev *gpu)
{
    enum { ROUNDS = 6 };
    const struct test_case *c = &cases[3];
    const size_t values = (size_t)c->batch * c->samples, bytes = values * sizeof(struct c32);
    const struct nufft_params params = params_of(c, NUFFT_DEPTH_AUTO, NUFFT_SPLIT);
    struct problem p;
    struct nufft *plan;
    void *data[2], *squares;
    float *wanted[ROUNDS], *got;
    bool same = true;
    problem_make(&p, c);
    size_t square_bytes = p.pixels * sizeof(float);
    got = take(square_bytes);
    must(nufft_create(&plan, gpu, &params, c->samples, p.k), "nufft_create");
    must(dev_alloc(gpu, bytes, &data[0]), "dev_alloc");
    must(dev_alloc(gpu, bytes, &data[1]), "dev_alloc");
    must(dev_alloc(gpu, square_bytes, &squares), "dev_alloc");
    for (int beside = 0; beside < 2; beside++) {
        for (int i = 0; i < ROUNDS; i++) {
            for (size_t v = 0; v < values && i == 0; v++)
                p.data[v].re = (float)(splitmix(v) >> 40) * 0x1p-24f;
            if (i == 0 || !beside)
                must(dev_upload(gpu, data[i % 2], p.data, bytes), "dev_upload");
            must(dev_upload_order(gpu), "dev_upload_order");
            must(dev_zero(gpu, squares, square_bytes), "dev_zero");
            must(nufft_adjoint_squares_begin(plan, c->batch, data[i % 2], squares), "nufft_adjoint_squares_begin");
            for (size_t v = 0; v < values; v++)
                p.data[v].re += (float)(v % (size_t)(i + 2));
            if (beside)
                must(dev_upload_begin(gpu, data[!(i % 2)], p.data, bytes), "dev_upload_begin");
            must(nufft_finish(plan), "nufft_finish");
            must(dev_download(gpu, got, squares, square_bytes), "dev_download");
            if (!beside)
                wanted[i] = memcpy(take(square_bytes), got, square_bytes);
            same = same && memcmp(wanted[i], got, square_bytes) == 0 &&
                   (i == 0 || memcmp(wanted[i - 1], got, square_bytes) != 0);
        }
    }
    verdict_of(same, "each image is of its own data", "uploads beside gridding", "images differ");
    for (int i = 0; i < ROUNDS; i++)
        free(wanted[i]);
    free(got);
    dev_release(gpu, squares);
    dev_release(gpu, data[1]);
    dev_release(gpu, data[0]);
    nufft_free(plan);
    problem_free(&p);
}

static void test_bad_input(struct dev *gpu)
{
    struct nufft *plan = NULL;
    float k[60];
    for (int i = 0; i < 60; i++)
        k[i] = 0.1f;
    k[41] = NAN;
    struct nufft_params params = {.dim = 2, .n = {32, 32, 1}, .tolerance = 1e-3, .batch = 1, .bin_depth = 3};
    params.overflow = NUFFT_OVERFLOW_CPU;
    int rc = nufft_create(&plan, gpu, &params, 30, k);
    verdict_of(rc == ERR_TRAJ_NONFINITE && strstr(err_last()->text, "Sample 20") && !plan, "k that is not a number",
               "bad input", said_of(rc));
    params.bin_depth = NUFFT_DEPTH_AUTO;
    rc = nufft_create(&plan, gpu, &params, 30, k);
    verdict_of(rc == ERR_TRAJ_NONFINITE && !plan, "k that is not a number, with automatic depth", "bad input",
               said_of(rc));
    struct c32 image[32 * 32], *there;
    void *memory;
    for (int depth = -1; depth <= 1; depth++) {
        params.bin_depth = depth;
        must(nufft_create(&plan, gpu, &params, 0, k), "nufft_create");
        must(dev_alloc(gpu, sizeof image, &memory), "dev_alloc");
        there = memory;
        memset(image, 0xff, sizeof image);
        must(dev_upload(gpu, there, image, sizeof image), "dev_upload");
        must(nufft_adjoint(plan, 1, there, there), "nufft_adjoint");
        must(dev_download(gpu, image, there, sizeof image), "dev_download");
        bool zero = true;
        for (int i = 0; i < 32 * 32; i++)
            zero = zero && image[i].re == 0 && image[i].im == 0;
        verdict_of(zero, "no samples give an image of zeros", "bad input", "it has other pixels");
        dev_release(gpu, memory);
        nufft_free(plan);
        plan = NULL;
    }
}

int main(int argc, char **argv)
{
    struct dev *gpu = tap_gpu();
    const int runs = argc > 1 ? atoi(argv[1]) : 20, only = argc > 2 ? atoi(argv[2]) : -1;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        if (only < 0 || i == only)
            case_run(gpu, &cases[i], runs);
    if (only < 0) {
        test_beside(gpu);
        test_bad_input(gpu);
    }
    dev_free(gpu);
    return tap_end();
}
