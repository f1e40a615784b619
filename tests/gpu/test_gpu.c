/* The GPU's leaves: compared with double sums and with the CPU; adjointness, the same bits on every run, bad input.
 * Prints TAP; without a GPU, reports everything as skipped. */
#include "gridding/nufft/nufft_parts.h"
#include "tests/gpu/outcome.h"

/* ---- the methods that plans used ---- */

static bool seen[NUFFT_METHOD_BRICK_DENSE + 1][4]; /* [method][products] */

static void verdict_ways(void)
{
    char missing[200] = "";
    for (enum nufft_method method = NUFFT_METHOD_TILES; method <= NUFFT_METHOD_BRICK_DENSE; method++)
        for (int products = 0; products <= 3; products++)
            if (!seen[method][products] && (method == NUFFT_METHOD_TILES ? products == 0 : products % 2 == 1))
                snprintf(missing + strlen(missing), sizeof missing - strlen(missing), " %s, %d products;",
                         nufft_method_name(method), products);
    verdict(missing[0] == 0, "the cases use every method, on tensor cores with one product and with three", missing);
}

/* ---- tests ---- */

static void test_case_run(struct dev *gpu, struct dev *cpu, const struct test_case *c)
{
    struct problem p;
    struct outcome o, on_cpu;
    struct nufft_params params = params_of(c);
    problem_make(&p, c, true);
    run_problem(gpu, &p, &params, &o);
    seen[o.info.method][o.info.products] = true;
    verdict_way(c, &o.info);
    size_t last = (size_t)c->batch - 1;
    /* The error must be within the tolerance, or for a given width within the plan's estimate. 5e-6: float32 sums of a
     * few thousand terms of random sign. */
    double bound = fmax(c->tolerance, c->width ? o.info.expected_error : 0) + 5e-6;
    verdict_error(distance(o.image, p.true_image, p.pixels), bound, "%s: adjoint, first of the batch", c->name,
                  __LINE__);
    verdict_error(distance(o.image + last * p.pixels, p.true_image + p.pixels, p.pixels), bound,
                  "%s: adjoint, last of the batch", c->name, __LINE__);
    verdict_error(distance(o.data, p.true_data, c->samples), bound, "%s: forward, first of the batch", c->name,
                  __LINE__);
    verdict_error(distance(o.data + last * c->samples, p.true_data + c->samples, c->samples), bound,
                  "%s: forward, last of the batch", c->name, __LINE__);
    /* <A x, y> = <x, A^H y>: both sides are within the tolerance of the exact value, relative to |Ax||y|. */
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
        /* The convolution depends on the kernel, so it is compared only if both use the same. */
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
        /* A sample exactly half the width away from a cell may count or not: the kernel is 1/I0(beta) = 9e-4 there. */
        verdict_error(sqrt(far / norm), 1e-3, "%s: convolution as on the CPU", c->name, __LINE__);
        outcome_free(&a);
        outcome_free(&b);
    }
    outcome_free(&o);
    problem_free(&p);
}

/* Bins of every kind at once: empty, light, heavy (divided into parts), at the edges. */
static void test_same_bits(struct dev *gpu, int runs)
{
    static const struct test_case many[] = {
        {"3-D bricks", 3, {48, 40, 44}, 3, 400000, CENTRE, 1e-3, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8},
        {"3-D 16^3 bricks, 1e-3", 3, {48, 40, 44}, 1, 400000, CENTRE, 1e-3, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
        {"3-D 16^3 bricks", 3, {48, 40, 44}, 2, 400000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK16},
        {"3-D 16^3 bricks, 1e-4", 3, {33, 40, 36}, 1, 200000, RADIAL, 1e-4, NUFFT_SEPARABLE, 6, NUFFT_METHOD_BRICK16},
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

/* 3-D coils that share a launch or a pass have the same bits as each alone, at any position in the group; bins of every
 * kind. */
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

/* Wide bins with few parts, which their own block adds up, and with many, which are added up before. The blocks of
 * parts clear the grid, so nothing of an earlier transform may remain: the squares must be those of the image. */
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
        /* Of 129 to 256 parts, the sums of eight and of 64 are added up by blocks of parts, and three or four are left.
         */
        {{"a bin of 200 parts", 3, {12, 12, 12}, 2, 300000, CENTRE, 1e-2, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16},
         128 * 1024 + 1,
         256 * 1024},
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

/* k is periodic: shifting samples by whole turns changes only rounding (of k itself: 3 + 1/3 has two bits fewer than
 * 1/3). */
static void test_periodic(struct dev *gpu)
{
    struct problem p;
    struct outcome here, there;
    struct nufft_params params = params_of(&cases[7]);
    problem_make(&p, &cases[7], false);
    for (size_t i = 0; i < p.c.samples * 3; i++)
        p.k[i] = floorf(p.k[i] * 4096) / 4096; /* exact also after the shift */
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

/* Samples in the centre of k-space 1e5 times larger than those around it, all scaled by powers of two. Scaling must
 * change nothing but exponents, of which half-precision numbers have few. */
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
        snprintf(name, sizeof name, "%s: data times 2^%d give the image times 2^%d", dense.name, power, power);
        verdict(same, name, "pixels differ");
        outcome_free(&scaled);
    }
    outcome_free(&plain);
    problem_free(&p);
}

/* The longest sums, of numbers of one sign: the truncation errors of tensor cores add up. Errors must be within the
 * plan's estimate. */
static void test_one_sign(struct dev *gpu)
{
    static const struct test_case many[] = {
        {"planes", 2, {48, 44, 1}, 1, 200000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK2D},
        {"16^3 bricks", 3, {24, 20, 22}, 1, 60000, CENTRE, 1e-5, NUFFT_SEPARABLE, 7, NUFFT_METHOD_BRICK16},
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

/* An adjoint in parts has the bits of the whole, for any division. */
static void test_in_parts(struct dev *gpu, const struct test_case *c)
{
    struct problem p;
    const struct nufft_params params = params_of(c);
    const size_t first[] = {0, c->samples / 2, c->samples / 2 + 1, c->samples};
    const size_t batch = (size_t)c->batch, bytes = batch * sizeof(struct c32);
    struct nufft *plan;
    struct nufft_parts *parts;
    problem_make(&p, c, false);
    must(nufft_create(&plan, gpu, &params, c->samples, p.k), "nufft_create");
    must(nufft_set_weights(plan, p.weights), "nufft_set_weights");
    must(nufft_parts_create(&parts, plan, c->batch, 3, first, p.k, p.weights), "nufft_parts_create");
    struct c32 *data = device_copy(gpu, p.data, bytes * c->samples), *image = device_copy(gpu, NULL, bytes * p.pixels);
    struct c32 *whole = malloc(bytes * p.pixels), *divided = malloc(bytes * p.pixels);
    for (int again = 0; again < 2; again++) {
        must(nufft_parts_begin(parts), "nufft_parts_begin");
        for (int part = 0; part < 3; part++) {
            for (size_t b = 0; b < batch; b++)
                must(dev_upload_begin(gpu, nufft_parts_data(parts, (int)b), p.data + b * c->samples + first[part],
                                      (first[part + 1] - first[part]) * sizeof(struct c32)),
                     "dev_upload_begin");
            must(nufft_parts_add(parts), "nufft_parts_add");
        }
        must(nufft_parts_image(parts, image), "nufft_parts_image");
        must(dev_download(gpu, divided, image, bytes * p.pixels), "dev_download");
    }
    must(nufft_adjoint(plan, c->batch, data, image), "nufft_adjoint");
    must(dev_download(gpu, whole, image, bytes * p.pixels), "dev_download");
    char name[200];
    snprintf(name, sizeof name, "%s: in parts", c->name);
    verdict(memcmp(whole, divided, bytes * p.pixels) == 0, name, "other bits than the whole's");
    free(whole);
    free(divided);
    dev_release(gpu, data);
    dev_release(gpu, image);
    nufft_parts_free(parts);
    nufft_free(plan);
    problem_free(&p);
}

/* A call's bits do not depend on the calls before it, of data that are a million times as large and of more transforms:
 * what a call finds in its workspace is not the last one's. */
static void test_after_larger(struct dev *gpu, const struct test_case *c)
{
    struct problem p;
    const struct nufft_params params = params_of(c);
    const size_t batch = (size_t)c->batch, values = batch * c->samples, bytes = sizeof(struct c32);
    struct nufft *plan;
    bool same = true;
    problem_make(&p, c, false);
    must(nufft_create(&plan, gpu, &params, c->samples, p.k), "nufft_create");
    struct c32 *data = device_copy(gpu, p.data, bytes * values),
               *image = device_copy(gpu, NULL, bytes * batch * p.pixels);
    struct c32 *first = take(bytes * p.pixels), *later = take(bytes * p.pixels);
    for (size_t i = 0; i < values; i++)
        p.data[i] = (struct c32){0x1p20f * p.data[i].re, 0x1p20f * p.data[i].im};
    struct c32 *larger = device_copy(gpu, p.data, bytes * values);
    must(nufft_adjoint(plan, 1, data, image), "nufft_adjoint");
    must(dev_download(gpu, first, image, bytes * p.pixels), "dev_download");
    for (int before = 1; before <= 3; before++) {
        for (int i = 0; i < before; i++)
            must(nufft_adjoint(plan, c->batch, larger, image), "nufft_adjoint");
        must(nufft_adjoint(plan, 1, data, image), "nufft_adjoint");
        must(dev_download(gpu, later, image, bytes * p.pixels), "dev_download");
        same = same && memcmp(first, later, bytes * p.pixels) == 0;
    }
    char name[200];
    snprintf(name, sizeof name, "%s: after calls of larger data", c->name);
    verdict(same, name, "other bits than before");
    free(first);
    free(later);
    dev_release(gpu, data);
    dev_release(gpu, larger);
    dev_release(gpu, image);
    nufft_free(plan);
    problem_free(&p);
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i += 5)
        test_in_parts(gpu, &cases[i]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_after_larger(gpu, &cases[i]);
    verdict_ways();
    test_same_bits(gpu, argc > 1 ? atoi(argv[1]) : 20);
    test_alone(gpu);
    test_parts(gpu);
    test_periodic(gpu);
    test_range(gpu);
    test_one_sign(gpu);
    test_bad_input(gpu);
    dev_free(cpu);
    dev_free(gpu);
    return tap_end();
}
