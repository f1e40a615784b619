/* The GPU's leaves, on a GPU: against double sums, against the CPU, adjointness, the same bits on every run, memory
 * limits, bad input. Prints TAP; skips everything, loudly, where there is no GPU. */
#include "tests/gpu/problem.h"

/* ok when `error` (a relative l2 distance) is within `bound`. */
static void verdict_error(double error, double bound, const char *format, const char *what, int line)
{
    char name[200], why[200];
    snprintf(name, sizeof name, format, what);
    snprintf(why, sizeof why, "error %.3g, allowed %.3g (line %d)", error, bound, line);
    if (error <= bound)
        printf("# %s: %.3g of %.3g\n", name, error, bound);
    verdict(error <= bound, name, why);
}

static void verdict_code(int code, int wanted, const char *name)
{
    char why[1000];
    snprintf(why, sizeof why, "got %d %s (%s), wanted %d", code, err_name(code), code ? err_last()->text : "", wanted);
    verdict(code == wanted, name, why);
}

/* ---- the ways plans took ---- */

static bool seen[NUFFT_METHOD_BRICK_DENSE + 1][4]; /* [method][products] */

static void verdict_way(const struct test_case *c, const struct nufft_info *info)
{
    char name[200], why[100];
    seen[info->method][info->products] = true;
    if (c->method == NUFFT_METHOD_CPU)
        return;
    snprintf(name, sizeof name, "%s: by %s", c->name, nufft_method_name(c->method));
    snprintf(why, sizeof why, "the plan took %s", nufft_method_name(info->method));
    verdict(info->method == c->method, name, why);
}

static void verdict_ways(void)
{
    char missing[200] = "";
    for (enum nufft_method method = NUFFT_METHOD_TILES; method <= NUFFT_METHOD_BRICK_DENSE; method++)
        for (int products = 0; products <= 3; products++)
            if (!seen[method][products] && (method == NUFFT_METHOD_TILES ? products == 0 : products % 2 == 1))
                snprintf(missing + strlen(missing), sizeof missing - strlen(missing), " %s, %d products;",
                         nufft_method_name(method), products);
    verdict(missing[0] == 0, "the cases take every method, on tensor cores with one product and with three", missing);
}

/* ---- running a plan from host arrays ---- */

struct outcome {
    struct c32 *image, *data;
    float *squares, *convolved;
    struct nufft_info info;
};

static void *device_copy(struct dev *dev, const void *host, size_t bytes)
{
    void *to;
    must(dev_alloc(dev, bytes, &to), "dev_alloc");
    if (host)
        must(dev_upload(dev, to, host, bytes), "dev_upload");
    return to;
}

static struct nufft_params params_of(const struct test_case *c)
{
    struct nufft_params p = {.dim = c->dim, .tolerance = c->tolerance, .kernel = c->kernel, .batch = c->batch};
    memcpy(p.n, c->n, sizeof p.n);
    p.method = c->method;
    p.width = c->width;
    p.oversampling = c->width ? 2 : 0;
    return p;
}

static void run_problem(struct dev *dev, const struct problem *p, const struct nufft_params *params, struct outcome *o)
{
    size_t batch = (size_t)p->c.batch, data_bytes = batch * p->c.samples * sizeof(struct c32);
    size_t image_bytes = batch * p->pixels * sizeof(struct c32), squares_bytes = p->pixels * sizeof(float);
    struct nufft *plan;
    must(nufft_create(&plan, dev, params, p->c.samples, p->k), "nufft_create");
    must(nufft_set_weights(plan, p->weights), "nufft_set_weights");
    nufft_describe(plan, &o->info);
    struct c32 *data = device_copy(dev, p->data, data_bytes), *image = device_copy(dev, p->image, image_bytes);
    struct c32 *image_out = device_copy(dev, NULL, image_bytes), *data_out = device_copy(dev, NULL, data_bytes);
    float *squares = device_copy(dev, NULL, squares_bytes);
    o->image = take(image_bytes);
    o->data = take(data_bytes);
    o->squares = take(squares_bytes);
    o->convolved = take(p->c.samples * sizeof(float));
    /* Poison what is to be overwritten. */
    memset(o->image, 0xff, image_bytes);
    memset(o->data, 0xff, data_bytes);
    must(dev_upload(dev, image_out, o->image, image_bytes), "dev_upload");
    must(dev_upload(dev, data_out, o->data, data_bytes), "dev_upload");
    must(dev_zero(dev, squares, squares_bytes), "dev_zero");
    must(nufft_adjoint(plan, p->c.batch, data, image_out), "nufft_adjoint");
    must(nufft_forward(plan, p->c.batch, image, data_out), "nufft_forward");
    must(nufft_adjoint_squares(plan, p->c.batch, data, squares), "nufft_adjoint_squares");
    must(nufft_convolve(plan, p->weights, o->convolved), "nufft_convolve");
    must(dev_download(dev, o->image, image_out, image_bytes), "dev_download");
    must(dev_download(dev, o->data, data_out, data_bytes), "dev_download");
    must(dev_download(dev, o->squares, squares, squares_bytes), "dev_download");
    void *held[] = {data, image, image_out, data_out, squares};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        dev_release(dev, held[i]);
    nufft_free(plan);
}

static void outcome_free(struct outcome *o)
{
    free(o->image);
    free(o->data);
    free(o->squares);
    free(o->convolved);
}

/* ---- tests ---- */

static void test_case_run(struct dev *gpu, struct dev *cpu, const struct test_case *c)
{
    struct problem p;
    struct outcome o, on_cpu;
    struct nufft_params params = params_of(c);
    problem_make(&p, c, true);
    run_problem(gpu, &p, &params, &o);
    verdict_way(c, &o.info);
    size_t last = (size_t)c->batch - 1;
    /* The tolerance is the promise, of a given width what the plan expects. 5e-6: float32 sums of a few thousand terms
     * of random sign. */
    double bound = fmax(c->tolerance, c->width ? o.info.expected_error : 0) + 5e-6;
    verdict_error(distance(o.image, p.true_image, p.pixels), bound, "%s: adjoint, first of the batch", c->name,
                  __LINE__);
    verdict_error(distance(o.image + last * p.pixels, p.true_image + p.pixels, p.pixels), bound,
                  "%s: adjoint, last of the batch", c->name, __LINE__);
    verdict_error(distance(o.data, p.true_data, c->samples), bound, "%s: forward, first of the batch", c->name,
                  __LINE__);
    verdict_error(distance(o.data + last * c->samples, p.true_data + c->samples, c->samples), bound,
                  "%s: forward, last of the batch", c->name, __LINE__);
    /* <A x, y> = <x, A^H y>; both sides are within the tolerance of the truth, times |Ax||y| over the product's own
     * size. */
    double complex left = dot(o.data, p.data, c->samples), right = dot(p.image, o.image, p.pixels);
    double size = sqrt(creal(dot(o.data, o.data, c->samples)) * creal(dot(p.data, p.data, c->samples)));
    verdict_error(cabs(left - right) / size, c->tolerance, "%s: adjointness", c->name, __LINE__);
    double off = 0, all = 0;
    for (size_t i = 0; i < p.pixels; i++) {
        double s = 0;
        for (size_t b = 0; b <= last; b++) {
            struct c32 v = o.image[b * p.pixels + i];
            s += (double)v.re * v.re + (double)v.im * v.im;
        }
        off += (s - o.squares[i]) * (s - o.squares[i]);
        all += s * s;
    }
    verdict_error(sqrt(off / all), 1e-6 * sqrt(c->batch), "%s: squares are those of the images", c->name, __LINE__);
    if (cpu) {
        run_problem(cpu, &p, &params, &on_cpu);
        verdict_error(distance_between(o.image, on_cpu.image, (last + 1) * p.pixels), 2 * bound,
                      "%s: adjoint as on the CPU", c->name, __LINE__);
        verdict_error(distance_between(o.data, on_cpu.data, (last + 1) * c->samples), 2 * bound,
                      "%s: forward as on the CPU", c->name, __LINE__);
        outcome_free(&on_cpu);
        /* The convolution depends on the kernel: compare where both use the same. */
        struct nufft_params fixed = params;
        struct outcome a, b;
        fixed.width = c->width ? c->width : 4;
        fixed.oversampling = 2;
        run_problem(gpu, &p, &fixed, &a);
        run_problem(cpu, &p, &fixed, &b);
        double far = 0, norm = 0;
        for (size_t m = 0; m < c->samples; m++) {
            far += pow((double)a.convolved[m] - b.convolved[m], 2);
            norm += pow(b.convolved[m], 2);
        }
        /* A sample whose distance from a cell is exactly half the width may count or not: the kernel is 1/I0(beta) =
         * 9e-4 there. */
        verdict_error(sqrt(far / norm), 1e-3, "%s: convolution as on the CPU", c->name, __LINE__);
        outcome_free(&a);
        outcome_free(&b);
    }
    outcome_free(&o);
    problem_free(&p);
}

/* Bins of every kind at once: empty, light, heavy (cut into parts), around the edges. */
static void test_same_bits(struct dev *gpu, int runs)
{
    static const struct test_case many[] = {
        {"3-D bricks", 3, {48, 40, 44}, 3, 400000, CENTRE, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
        {"3-D wide bricks, 1e-3", 3, {48, 40, 44}, 1, 400000, CENTRE, 1e-3, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
        {"3-D wide bricks", 3, {48, 40, 44}, 2, 400000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK16},
        {"3-D wide bricks, 1e-4", 3, {33, 40, 36}, 1, 200000, RADIAL, 1e-4, NUFFT_SEPARABLE, 6, NUFFT_METHOD_BRICK16},
        {"3-D dense bricks, 1e-3",
         3,
         {20, 18, 24},
         1,
         400000,
         CENTRE,
         1e-3,
         NUFFT_SEPARABLE,
         6,
         NUFFT_METHOD_BRICK_DENSE},
        {"3-D dense bricks", 3, {20, 18, 24}, 2, 400000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK_DENSE},
        {"3-D tiles", 3, {30, 32, 34}, 1, 200000, CENTRE, 1e-6, NUFFT_SEPARABLE, 0, NUFFT_METHOD_TILES},
        {"2-D planes", 2, {100, 90, 1}, 20, 100000, CENTRE, 1e-3, NUFFT_SEPARABLE, 0, NUFFT_METHOD_BRICK2D},
        {"2-D tiles", 2, {100, 90, 1}, 1, 100000, CENTRE, 1e-3, NUFFT_RADIAL, 0, NUFFT_METHOD_TILES},
    };
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        struct problem p;
        struct outcome first = {0}, next;
        struct nufft_params params = params_of(&many[i]);
        char name[100];
        bool same = true;
        problem_make(&p, &many[i], false);
        run_problem(gpu, &p, &params, &first);
        verdict_way(&many[i], &first.info);
        for (int run = 1; run < runs; run++) {
            run_problem(gpu, &p, &params, &next);
            size_t images = p.pixels * (size_t)many[i].batch, data = many[i].samples * (size_t)many[i].batch;
            same = same && memcmp(first.image, next.image, images * sizeof *first.image) == 0 &&
                   memcmp(first.data, next.data, data * sizeof *first.data) == 0 &&
                   memcmp(first.squares, next.squares, p.pixels * sizeof(float)) == 0 &&
                   memcmp(first.convolved, next.convolved, many[i].samples * sizeof(float)) == 0;
            outcome_free(&next);
        }
        snprintf(name, sizeof name, "%s: the same bits in %d runs (largest bin %zu)", many[i].name, runs,
                 first.info.largest_bin);
        verdict(same, name, "two runs differ");
        outcome_free(&first);
        problem_free(&p);
    }
}

/* 3-D coils that share a launch or a pass have the bits that they have alone, whichever of a group they are;
 * bins of every kind. */
static void test_alone(struct dev *gpu)
{
    static const struct test_case many[] = {
        {"width 4", 3, {48, 40, 44}, 3, 200000, CENTRE, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
        {"width 5", 3, {48, 40, 44}, 5, 200000, CENTRE, 1e-3, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
        {"width 6", 3, {40, 30, 44}, 2, 100000, RADIAL, 1e-3, NUFFT_SEPARABLE, 6, NUFFT_METHOD_BRICK16},
        {"width 7", 3, {33, 40, 36}, 3, 100000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK16},
        {"width 5, in groups", 3, {128, 128, 128}, 7, 100000, RADIAL, 1e-3, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
    };
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        struct problem p;
        struct outcome all, one;
        struct nufft_params params = params_of(&many[i]);
        char name[100];
        bool same = true;
        problem_make(&p, &many[i], false);
        run_problem(gpu, &p, &params, &all);
        verdict_way(&many[i], &all.info);
        struct problem alone = p;
        alone.c.batch = params.batch = 1;
        for (int t = 0; t < p.c.batch; t++) {
            alone.data = p.data + (size_t)t * p.c.samples;
            alone.image = p.image + (size_t)t * p.pixels;
            run_problem(gpu, &alone, &params, &one);
            same = same && memcmp(one.image, all.image + (size_t)t * p.pixels, p.pixels * sizeof *one.image) == 0 &&
                   memcmp(one.data, all.data + (size_t)t * p.c.samples, p.c.samples * sizeof *one.data) == 0;
            outcome_free(&one);
        }
        snprintf(name, sizeof name, "%s: each of %d coils has the bits that it has alone", many[i].name, p.c.batch);
        verdict(same, name, "a coil's image or samples differ");
        outcome_free(&all);
        problem_free(&p);
    }
}

/* Wide bins of some parts, which their block adds up, and of many, which are added up before; the blocks of parts clear
 * the grid. What an earlier transform left there must be gone: the squares are those of the image. */
static void test_parts(struct dev *gpu)
{
    static const struct {
        struct test_case c;
        size_t least, most; /* samples of the largest bin: parts have 1,024 */
    } tests[] = {
        {{"bins of 2 to 4 parts", 3, {16, 16, 16}, 1, 20000, UNIFORM, 1e-2, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
         1025,
         4096},
        {{"a bin of many parts", 3, {30, 30, 30}, 2, 12000, CENTRE, 1e-2, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
         4097,
         12000},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const struct test_case *c = &tests[i].c;
        struct problem p;
        struct outcome o;
        struct nufft_params params = params_of(c);
        char name[200], why[100];
        double off = 0, all = 0;
        params.oversampling = 1.5;
        problem_make(&p, c, true);
        run_problem(gpu, &p, &params, &o);
        verdict_way(c, &o.info);
        snprintf(name, sizeof name, "%s: as many", c->name);
        snprintf(why, sizeof why, "the largest bin has %zu samples", o.info.largest_bin);
        verdict(o.info.largest_bin >= tests[i].least && o.info.largest_bin <= tests[i].most, name, why);
        verdict_error(distance(o.image, p.true_image, p.pixels), o.info.expected_error, "%s: adjoint", c->name,
                      __LINE__);
        for (size_t j = 0; j < p.pixels; j++) {
            double s = 0;
            for (int b = 0; b < c->batch; b++) {
                const struct c32 v = o.image[(size_t)b * p.pixels + j];
                s += (double)v.re * v.re + (double)v.im * v.im;
            }
            off += (s - o.squares[j]) * (s - o.squares[j]);
            all += s * s;
        }
        verdict_error(sqrt(off / all), 1e-6, "%s: squares are those of the images", c->name, __LINE__);
        outcome_free(&o);
        problem_free(&p);
    }
}

/* k is periodic: moving samples by whole turns changes nothing but rounding (of k itself: 3 + 1/3 has two bits less
 * than 1/3). */
static void test_periodic(struct dev *gpu)
{
    struct problem p;
    struct outcome here, there;
    struct nufft_params params = params_of(&cases[7]);
    problem_make(&p, &cases[7], false);
    for (size_t i = 0; i < p.c.samples * 3; i++)
        p.k[i] = floorf(p.k[i] * 4096) / 4096; /* exact after the move */
    run_problem(gpu, &p, &params, &here);
    for (size_t i = 0; i < p.c.samples * 3; i++)
        p.k[i] += (float)((int)(i % 7) - 3);
    run_problem(gpu, &p, &params, &there);
    verdict(memcmp(here.image, there.image, p.pixels * 2 * sizeof(struct c32)) == 0, "k is periodic",
            "the images differ");
    outcome_free(&here);
    outcome_free(&there);
    problem_free(&p);
}

/* Transfers go through pinned buffers chunk by chunk: sizes around a chunk and around many, at odd addresses. */
static void test_transfers(struct dev *gpu)
{
    static const size_t sizes[] = {1, 4095, 1 << 20, (1 << 20) + 1, (2 << 20) - 1, (16 << 20) + 12345, 50000001};
    const size_t room = 50000001 + 64;
    unsigned char *sent = take(room), *back = take(room);
    char *there = device_copy(gpu, NULL, room);
    bool same = true;
    for (size_t i = 0; i < room; i++)
        sent[i] = (unsigned char)(splitmix(i / 8) >> (8 * (i % 8)));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        memset(back, 0x5a, room);
        must(dev_zero(gpu, there, room), "dev_zero");
        must(dev_upload(gpu, there + 5, sent + 3 * i, n), "dev_upload");
        must(dev_download(gpu, back + 1, there + 4, n + 2), "dev_download");
        same = same && back[0] == 0x5a && back[1] == 0 && memcmp(back + 2, sent + 3 * i, n) == 0 && back[n + 2] == 0 &&
               back[n + 3] == 0x5a;
    }
    verdict(same, "transfers of any size keep every byte and touch no other", "bytes differ");
    dev_release(gpu, there);
    free(sent);
    free(back);
}

/* Samples in the centre of k-space 1e5 times larger than those around it, and all of them scaled by powers of two,
 * which must change nothing but exponents: halves have few of them. */
static void test_range(struct dev *gpu)
{
    static const struct test_case dense = {
        "1e-5, data from 1 to 1e5", 3, {24, 20, 22}, 1, 12000, CENTRE, 1e-5, NUFFT_SEPARABLE, 0, NUFFT_METHOD_CPU};
    struct problem p;
    struct outcome plain, scaled;
    struct nufft_params params = params_of(&dense);
    problem_make(&p, &dense, false);
    for (size_t m = 0; m < dense.samples; m++)
        if (m % 3) {
            p.data[m].re *= 1e5f;
            p.data[m].im *= 1e5f;
        }
    oracle(&p);
    run_problem(gpu, &p, &params, &plain);
    verdict_error(distance(plain.image, p.true_image, p.pixels), dense.tolerance + 5e-6, "%s: adjoint", dense.name,
                  __LINE__);
    for (int power = -40; power <= 60; power += 100) {
        char name[100];
        bool same = true;
        for (size_t m = 0; m < dense.samples; m++)
            p.data[m] = (struct c32){ldexpf(p.data[m].re, power), ldexpf(p.data[m].im, power)};
        run_problem(gpu, &p, &params, &scaled);
        for (size_t i = 0; i < p.pixels; i++)
            same = same && scaled.image[i].re == ldexpf(plain.image[i].re, power) &&
                   scaled.image[i].im == ldexpf(plain.image[i].im, power);
        for (size_t m = 0; m < dense.samples; m++)
            p.data[m] = (struct c32){ldexpf(p.data[m].re, -power), ldexpf(p.data[m].im, -power)};
        snprintf(name, sizeof name, "%s: times 2^%d, the image is, too", dense.name, power);
        verdict(same, name, "pixels differ");
        outcome_free(&scaled);
    }
    outcome_free(&plain);
    problem_free(&p);
}

/* Sums as long as they get, of numbers of one sign: what tensor cores truncate adds up. The plan's own promise. */
static void test_one_sign(struct dev *gpu)
{
    static const struct test_case many[] = {
        {"planes", 2, {48, 44, 1}, 1, 200000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK2D},
        {"wide bricks", 3, {24, 20, 22}, 1, 60000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK16},
        {"dense bricks", 3, {16, 16, 17}, 1, 150000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK_DENSE},
    };
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        struct problem p;
        struct outcome o;
        struct nufft_params params = params_of(&many[i]);
        problem_make(&p, &many[i], false);
        for (size_t m = 0; m < p.c.samples; m++)
            p.data[m] = (struct c32){0.6f, 0.37f};
        oracle(&p);
        run_problem(gpu, &p, &params, &o);
        verdict_way(&many[i], &o.info);
        verdict_error(distance(o.image, p.true_image, p.pixels), o.info.expected_error, "%s: long sums of one sign",
                      many[i].name, __LINE__);
        outcome_free(&o);
        problem_free(&p);
    }
}

static void test_memory(struct dev *gpu)
{
    size_t available, total;
    must(dev_memory(gpu, &available, &total), "dev_memory");
    verdict(available > 0 && available <= total, "memory is told", "numbers make no sense");
    char sent[1000], back[1000];
    for (int i = 0; i < 1000; i++)
        sent[i] = (char)(i * 7);
    char *there = device_copy(gpu, sent, sizeof sent);
    must(dev_zero(gpu, there + 100, 50), "dev_zero");
    must(dev_download(gpu, back, there, sizeof back), "dev_download");
    memset(sent + 100, 0, 50);
    verdict(memcmp(sent, back, sizeof sent) == 0, "what goes up comes down", "bytes differ");
    dev_release(gpu, there);
    test_transfers(gpu);

    void *nothing = &tap;
    verdict(dev_alloc(gpu, 0, &nothing) == 0 && nothing == NULL, "no bytes are no memory", "not NULL");
    void *much = NULL;
    int rc = dev_alloc(gpu, total + total / 2, &much);
    verdict_code(rc, ERR_GPU_OOM, "more than the device has is gpu-oom");
    verdict(err_last()->required == (int64_t)(total + total / 2) && err_last()->available > 0,
            "gpu-oom tells required and available", "numbers are missing");

    /* A plan that cannot fit is refused before anything is launched, and the device goes on working. */
    must(dev_memory(gpu, &available, &total), "dev_memory");
    void *ballast = NULL;
    must(dev_alloc(gpu, available - (size_t)260e6, &ballast), "dev_alloc");
    struct test_case big = {"big", 3, {200, 200, 200}, 1, 1000, UNIFORM, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8};
    struct problem p;
    struct nufft *plan = NULL;
    problem_make(&p, &big, false);
    struct nufft_params params = params_of(&big);
    /* A grid of 400^3: 512 MB. */
    rc = nufft_create(&plan, gpu, &params, big.samples, p.k);
    verdict_code(rc, ERR_GPU_OOM, "a plan that does not fit is gpu-oom");
    verdict(plan == NULL && err_last()->required > err_last()->available, "and says how much it lacks",
            "numbers are missing");
    problem_free(&p);

    /* A batch that does not fit is worked off in parts, with the same bits. */
    struct test_case wide = {"wide", 2,    {128, 128, 1},   256, 5000,
                             RADIAL, 1e-3, NUFFT_SEPARABLE, 4,   NUFFT_METHOD_BRICK2D};
    struct outcome tight, roomy;
    problem_make(&p, &wide, false);
    params = params_of(&wide); /* 564 kB a transform */
    run_problem(gpu, &p, &params, &tight);
    dev_release(gpu, ballast);
    run_problem(gpu, &p, &params, &roomy);
    verdict_way(&wide, &roomy.info);
    verdict(tight.info.bytes < roomy.info.bytes, "little memory: the batch is cut", "the plan is as large as ever");
    verdict(memcmp(tight.image, roomy.image, p.pixels * 256 * sizeof(struct c32)) == 0,
            "a cut batch gives the same bits", "they differ");
    outcome_free(&tight);
    outcome_free(&roomy);
    problem_free(&p);
}

/* What bricks keep on the device: their sums are worked off in chunks of rows where they would not fit. */
static void test_chunks(struct dev *gpu)
{
    struct test_case c = {"chunks", 3,    {128, 120, 112}, 2, 400000,
                          UNIFORM,  1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8};
    struct problem p;
    struct outcome tight, roomy;
    struct nufft_params params = params_of(&c);
    size_t available, total;
    void *ballast = NULL;
    problem_make(&p, &c, false);
    run_problem(gpu, &p, &params, &roomy);
    must(dev_memory(gpu, &available, &total), "dev_memory");
    must(dev_alloc(gpu, available - (size_t)500e6, &ballast), "dev_alloc");
    run_problem(gpu, &p, &params, &tight);
    dev_release(gpu, ballast);
    verdict_way(&c, &roomy.info);
    /* All of the 56,000 bins of 4 x 5 x 13 cells hold samples: 230 MB of slots a coil; half of what is free is used. */
    verdict(roomy.info.bytes > (size_t)280e6 && tight.info.bytes < (size_t)280e6,
            "little memory: rows of bins are summed in chunks", "the plan is as large as ever");
    size_t images = p.pixels * (size_t)c.batch;
    verdict(memcmp(tight.image, roomy.image, images * sizeof *roomy.image) == 0 &&
                memcmp(tight.squares, roomy.squares, p.pixels * sizeof(float)) == 0,
            "chunks give the same bits", "they differ");
    /* The convolution sums into a grid. */
    verdict(memcmp(tight.convolved, roomy.convolved, c.samples * sizeof(float)) == 0,
            "chunks convolve to the same bits", "they differ");
    outcome_free(&tight);
    outcome_free(&roomy);
    problem_free(&p);

    /* A large plan of many coils keeps 1.3 times a grid (400^3 cells) and its samples (place, order and value) at most.
     */
    struct test_case coils = {"coils", 3,    {200, 200, 200}, 1, 1000000,
                              UNIFORM, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8};
    problem_make(&p, &coils, false);
    for (int width = 4; width <= 5; width++) {
        struct nufft_info info;
        struct nufft *plan = NULL;
        coils.width = width;
        coils.method = width == 4 ? NUFFT_METHOD_BRICK8 : NUFFT_METHOD_BRICK16;
        params = params_of(&coils);
        params.batch = 16;
        must(nufft_create(&plan, gpu, &params, coils.samples, p.k), "nufft_create");
        nufft_describe(plan, &info);
        verdict_way(&coils, &info);
        double most = 1.3 * (400.0 * 400 * 400 * 8 + 28e6);
        verdict((double)info.bytes <= most, "16 coils keep 1.3 times a grid and the samples", "the plan keeps more");
        nufft_free(plan);
    }
    problem_free(&p);
}

static void test_bad_input(struct dev *gpu)
{
    struct dev *other = NULL;
    struct nufft *plan = NULL;
    verdict_code(dev_create(&other, DEV_GPU, 99, 0), ERR_NO_DEVICE, "a GPU that is not there");
    float k[6] = {0.1f, 0.2f, 0.3f, NAN, INFINITY, 0.f};
    struct nufft_params params = {.dim = 2, .n = {32, 32, 1}, .tolerance = 1e-3, .batch = 1};
    verdict_code(nufft_create(&plan, gpu, &params, 3, k), ERR_TRAJ_NONFINITE, "k that is not a number");
    verdict(strstr(err_last()->text, "Sample 1 ") && strstr(err_last()->text, "dimension 1"), "and which one is said",
            err_last()->text);
    params.n[0] = 0;
    k[3] = 0;
    verdict_code(nufft_create(&plan, gpu, &params, 3, k), ERR_BAD_PARAMETER, "an image without pixels");
    verdict(plan == NULL, "nothing is made by a failing call", "a plan appeared");
}

int main(int argc, char **argv)
{
    struct dev *gpu = tap_gpu(), *cpu = NULL;
    if (dev_create(&cpu, DEV_CPU, 0, 0)) {
        printf("# no CPU device: %s\n", err_last()->text);
        cpu = NULL;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_case_run(gpu, cpu, &cases[i]);
    verdict_ways();
    test_same_bits(gpu, argc > 1 ? atoi(argv[1]) : 20);
    test_alone(gpu);
    test_parts(gpu);
    test_periodic(gpu);
    test_range(gpu);
    test_one_sign(gpu);
    test_memory(gpu);
    test_chunks(gpu);
    test_bad_input(gpu);
    dev_free(cpu);
    dev_free(gpu);
    return tap_end();
}
