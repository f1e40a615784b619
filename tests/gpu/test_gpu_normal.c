/* The normal operator on a GPU: compared with the CPU's and with forward and adjoint; the same bits on every run;
 * memory freed. Prints TAP; without a GPU, reports everything as skipped.
 *
 *   test_gpu_normal [RUNS [IMAGES [PIXELS]]]   5 runs; the most images and pixels of a case (for a sanitizer) */
#include "gridding/nufft/normal.h"
#include "tests/distance.h"
#include "tests/gpu/tap.h"
#include "tests/random.h"

#include <limits.h>
#include <string.h>

static void verdict_within(bool good, const char *what, const char *which, double got, double allowed)
{
    char name[200], why[60];
    snprintf(name, sizeof name, "normal operator, %s: %s", which, what);
    snprintf(why, sizeof why, "%.3g, allowed %.3g", got, allowed);
    verdict(good, name, why);
}

struct test_case {
    const char *name;
    int dim, n[3], batch;
    size_t samples;
    double tolerance;
    int grid[3]; /* expected on a GPU; 0: any */
};

static const struct test_case cases[] = {
    {"2-D, 1e-3", 2, {40, 48, 1}, 3, 4000, 1e-3, {0}},
    {"2-D, 1e-5, odd", 2, {31, 45, 1}, 2, 3000, 1e-5, {0}},
    {"2-D, many", 2, {24, 24, 1}, 150, 700, 1e-3, {0}},
    {"3-D, 1e-3", 3, {20, 22, 18}, 2, 9000, 1e-3, {0}},
    {"3-D, 1e-5, odd", 3, {16, 21, 15}, 1, 5000, 1e-5, {0}},
    {"3-D, flat", 3, {33, 30, 2}, 1, 2000, 1e-3, {0}},
    /* More columns than the passes along y and x process at a time. */
    {"2-D, large", 2, {256, 250, 1}, 270, 9000, 1e-3, {512, 512, 1}},
    {"3-D, many", 3, {128, 120, 100}, 7, 9000, 1e-3, {256, 240, 0}},
    {"2-D, large, not in halves", 2, {300, 280, 1}, 200, 9000, 1e-3, {0}},
    /* Every size whose axes are transformed in halves, filled and not. */
    {"halves of 64", 2, {64, 61, 1}, 3, 3000, 1e-5, {128, 128, 1}},
    {"halves of 80", 2, {79, 80, 1}, 9, 3000, 1e-5, {160, 160, 1}},
    {"halves of 96", 2, {96, 95, 1}, 1, 3000, 1e-5, {192, 192, 1}},
    {"halves of 112", 2, {112, 109, 1}, 5, 3000, 1e-5, {224, 224, 1}},
    {"halves of 120", 2, {118, 120, 1}, 2, 3000, 1e-5, {240, 240, 1}},
    {"halves of 128", 2, {128, 125, 1}, 3, 3000, 1e-5, {256, 256, 1}},
    {"halves of 144", 2, {143, 144, 1}, 1, 3000, 1e-5, {288, 288, 1}},
    {"halves of 160", 2, {160, 157, 1}, 3, 3000, 1e-5, {320, 320, 1}},
    {"halves of 192", 2, {190, 192, 1}, 2, 3000, 1e-5, {384, 384, 1}},
    {"halves of 240", 2, {240, 233, 1}, 1, 3000, 1e-5, {480, 480, 1}},
    {"halves of 256", 2, {251, 256, 1}, 9, 3000, 1e-5, {512, 512, 1}},
    /* Images that fill their halves: every size whose columns are whole blocks. */
    {"squares of 64", 2, {64, 64, 1}, 61, 3000, 1e-5, {128, 128, 1}},
    {"squares of 80", 2, {80, 80, 1}, 8, 3000, 1e-5, {160, 160, 1}},
    {"squares of 96", 2, {96, 96, 1}, 1, 3000, 1e-5, {192, 192, 1}},
    {"squares of 112", 2, {112, 112, 1}, 7, 3000, 1e-5, {224, 224, 1}},
    {"squares of 128", 2, {128, 128, 1}, 45, 3000, 1e-5, {256, 256, 1}},
    {"squares of 144", 2, {144, 144, 1}, 2, 3000, 1e-5, {288, 288, 1}},
    {"squares of 160", 2, {160, 160, 1}, 12, 3000, 1e-5, {320, 320, 1}},
    {"squares of 192", 2, {192, 192, 1}, 31, 3000, 1e-5, {384, 384, 1}},
    {"squares of 240", 2, {240, 240, 1}, 3, 3000, 1e-5, {480, 480, 1}},
    {"squares of 256", 2, {256, 256, 1}, 50, 3000, 1e-5, {512, 512, 1}},
    {"a cube that fills its halves", 3, {64, 64, 64}, 3, 9000, 1e-3, {128, 128, 128}},
    {"a slab that fills its halves", 3, {128, 128, 20}, 5, 9000, 1e-3, {256, 256, 0}},
    {"a slab that fills its halves, many", 3, {112, 112, 9}, 34, 9000, 1e-3, {224, 224, 0}},
    {"halves of a slab", 3, {112, 33, 62}, 3, 9000, 1e-3, {224, 0, 128}},
    {"halves along y", 3, {30, 128, 17}, 2, 9000, 1e-3, {0, 256, 0}},
};

struct problem {
    struct test_case c;
    struct nufft_params params;
    size_t values; /* number of values of all images */
    float *k, *w;
    struct c32 *image;
};

static void problem_make(struct problem *p, const struct test_case *c, int most)
{
    uint64_t seed = 5;
    p->c = *c;
    p->c.batch = c->batch > most ? most : c->batch;
    p->params = (struct nufft_params){
        .dim = c->dim, .n = {c->n[0], c->n[1], c->n[2]}, .tolerance = c->tolerance, .batch = p->c.batch};
    p->values = (size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2] * (size_t)p->c.batch;
    p->k = take(c->samples * (size_t)c->dim * sizeof *p->k);
    p->w = take(c->samples * sizeof *p->w);
    p->image = take(p->values * sizeof *p->image);
    for (size_t m = 0; m < c->samples; m++) {
        for (int d = 0; d < c->dim; d++)
            p->k[m * (size_t)c->dim + (size_t)d] = (float)((m % 4 ? 1 : 0.1) * (uniform_next(&seed) - 0.5));
        p->w[m] = (float)(0.1 + uniform_next(&seed));
    }
    for (size_t i = 0; i < p->values; i++)
        p->image[i] = (struct c32){(float)(uniform_next(&seed) - 0.5), (float)(uniform_next(&seed) - 0.3)};
}

static void problem_free(struct problem *p)
{
    free(p->k);
    free(p->w);
    free(p->image);
}

/* The operator on `dev`, applied `runs` times; *same: all runs gave the same bits. Every other run is in place; the
 * others repeat the call, which a GPU has then recorded as a graph. */
static struct c32 *apply(struct dev *dev, const struct problem *p, int runs, bool *same, struct normal_info *info)
{
    struct c32 *first = take(p->values * sizeof *first), *next = take(p->values * sizeof *next);
    *same = true;
    for (int i = 0; i < runs; i++) {
        struct normal *normal;
        void *values, *result;
        must(normal_create(&normal, dev, &p->params, p->c.samples, p->k, p->w), "normal_create");
        normal_describe(normal, info);
        must(dev_alloc(dev, p->values * sizeof *first, &values), "dev_alloc");
        must(dev_alloc(dev, p->values * sizeof *first, &result), "dev_alloc");
        must(dev_upload(dev, values, p->image, p->values * sizeof *first), "dev_upload");
        for (int call = 0; call < (i % 2 ? 1 : 4); call++) {
            void *to = i % 2 ? values : result;
            must(dev_zero(dev, result, p->values * sizeof *first), "dev_zero");
            must(normal_apply(normal, p->c.batch, values, to), "normal_apply");
            must(dev_download(dev, i || call ? next : first, to, p->values * sizeof *first), "dev_download");
            *same = *same && ((i == 0 && call == 0) || memcmp(first, next, p->values * sizeof *first) == 0);
        }
        dev_release(dev, result);
        dev_release(dev, values);
        normal_free(normal);
    }
    free(next);
    return first;
}

/* adjoint(w forward(image)) computed with plans. */
static struct c32 *by_transforms(struct dev *dev, const struct problem *p)
{
    struct nufft *forward, *adjoint;
    struct c32 *result = take(p->values * sizeof *result);
    void *image, *data;
    must(nufft_create(&forward, dev, &p->params, p->c.samples, p->k), "nufft_create");
    must(nufft_create(&adjoint, dev, &p->params, p->c.samples, p->k), "nufft_create");
    must(nufft_set_weights(adjoint, p->w), "nufft_set_weights");
    must(dev_alloc(dev, p->values * sizeof *result, &image), "dev_alloc");
    must(dev_alloc(dev, p->c.samples * (size_t)p->c.batch * sizeof *result, &data), "dev_alloc");
    must(dev_upload(dev, image, p->image, p->values * sizeof *result), "dev_upload");
    must(nufft_forward(forward, p->c.batch, image, data), "nufft_forward");
    must(nufft_adjoint(adjoint, p->c.batch, data, image), "nufft_adjoint");
    must(dev_download(dev, result, image, p->values * sizeof *result), "dev_download");
    dev_release(dev, image);
    dev_release(dev, data);
    nufft_free(forward);
    nufft_free(adjoint);
    return result;
}

int main(int argc, char **argv)
{
    const int runs = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 5,
              most = argc > 2 && atoi(argv[2]) > 0 ? atoi(argv[2]) : INT_MAX,
              pixels = argc > 3 && atoi(argv[3]) > 0 ? atoi(argv[3]) : INT_MAX;
    struct dev *gpu = tap_gpu(), *cpu = NULL;
    must(dev_create(&cpu, DEV_CPU, 0, 0), "dev_create");
    size_t before, after, total;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].n[0] * cases[i].n[1] * cases[i].n[2] > pixels)
            continue;
        struct problem p;
        bool same, ignored, grid = true;
        struct normal_info info, of_cpu;
        problem_make(&p, &cases[i], most);
        struct c32 *here = apply(gpu, &p, runs, &same, &info), *there = apply(cpu, &p, 1, &ignored, &of_cpu);
        struct c32 *transforms = by_transforms(gpu, &p);
        double tolerance = cases[i].tolerance;
        /* Two results that are within the tolerance of the exact value are within twice the tolerance of each other. */
        verdict_within(distance(here, there, p.values) <= 2 * tolerance, "as on the CPU", cases[i].name,
                       distance(here, there, p.values), 2 * tolerance);
        verdict_within(distance(here, transforms, p.values) <= 3 * tolerance, "as forward and adjoint", cases[i].name,
                       distance(here, transforms, p.values), 3 * tolerance);
        verdict_within(same, "the same bits on every run", cases[i].name, !same, 0);
        for (int d = 0; d < 3; d++)
            grid = grid && (cases[i].grid[d] == 0 || cases[i].grid[d] == info.grid[d]);
        verdict_within(grid, "the grid", cases[i].name, info.grid[0], cases[i].grid[0]);
        free(here);
        free(there);
        free(transforms);
        problem_free(&p);
    }
    /* The driver allocates memory when a kernel first runs, so the same kernels ran before. */
    must(dev_memory(gpu, &before, &total), "dev_memory");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].n[0] * cases[i].n[1] * cases[i].n[2] > pixels)
            continue;
        struct problem p;
        bool ignored;
        struct normal_info info;
        problem_make(&p, &cases[i], most);
        free(apply(gpu, &p, 1, &ignored, &info));
        problem_free(&p);
    }
    must(dev_memory(gpu, &after, &total), "dev_memory");
    verdict_within(after >= before, "device memory is given back", "all cases", (double)before - (double)after, 0);
    dev_free(cpu);
    dev_free(gpu);
    return tap_end();
}
