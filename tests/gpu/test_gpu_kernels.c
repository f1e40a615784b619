/* The kernels of the NUFFT on a GPU at small sizes: every method with every width, with one product and with three, and
 * every number of transforms that has a kernel of its own, with bins that are cut into parts; every size of an FFT pass
 * in three dimensions. Compared with double sums. For sanitizers (tests/gpu/sanitize), under which the other programs
 * take hours. Prints TAP; without a GPU, reports everything as skipped.
 *
 *   test_gpu_kernels [methods|passes|planes|bricks|16|dense|tiles [small]]   some of it; all by default
 *
 * small: of a few hundred samples, whose bins are cut into parts of 16: for racecheck. */
#include "gridding/base/dev_leaf.h"
#include "gridding/nufft/nufft_leaf.h"
#include "tests/gpu/outcome.h"

/* A tolerance for which one product is enough from 3 cells on, and one for which it is not. */
#define ONE_PRODUCT    1e-1
#define THREE_PRODUCTS 1e-6

enum { SMALL_SAMPLES = 250, SMALL_DEPTH = 16 };
static bool small;

/* Adjoint, forward transform and squares of a case; its arithmetic must be `products`. */
static void run_case(struct dev *gpu, const struct test_case *of, int products)
{
    struct problem p;
    struct outcome o;
    struct test_case shorter = *of;
    const struct test_case *const c = &shorter;
    struct nufft_params params = params_of(c);
    const size_t last = (size_t)c->batch - 1;
    double off = 0, all = 0;
    if (small) {
        shorter.samples = of->samples < SMALL_SAMPLES ? of->samples : SMALL_SAMPLES;
        params.bin_depth = SMALL_DEPTH;
    }
    problem_make(&p, c, true);
    run_problem(gpu, &p, &params, &o);
    /* As in test_gpu; three times the estimate for samples in one place, which share their error (tests/plans.h). */
    const double bound = fmax(c->tolerance, o.info.expected_error) + 5e-6;
    for (size_t i = 0; i < p.pixels; i++) {
        double s = 0;
        for (size_t b = 0; b <= last; b++)
            s += pow((double)o.image[b * p.pixels + i].re, 2) + pow((double)o.image[b * p.pixels + i].im, 2);
        off += pow(s - (double)o.squares[i], 2);
        all += s * s;
    }
    const double adjoint = fmax(distance(o.image, p.true_image, p.pixels),
                                distance(o.image + last * p.pixels, p.true_image + p.pixels, p.pixels)),
                 forward = fmax(distance(o.data, p.true_data, c->samples),
                                distance(o.data + last * c->samples, p.true_data + c->samples, c->samples));
    const double squares = sqrt(off / all);
    char name[200], why[300];
    snprintf(name, sizeof name, "%s: %s, width %d, %d products, %d transforms, %d x %d x %d", c->name,
             nufft_method_name(o.info.method), o.info.width, o.info.products, c->batch, c->n[0], c->n[1], c->n[2]);
    snprintf(why, sizeof why, "adjoint %.3g, forward %.3g, allowed %.3g; squares %.3g; %s and %d products wanted",
             adjoint, forward, bound, squares, nufft_method_name(c->method), products);
    verdict(adjoint <= bound && forward <= 3 * bound && squares <= 1e-6 * sqrt(c->batch) &&
                o.info.method == c->method && o.info.products == products,
            name, why);
    outcome_free(&o);
    problem_free(&p);
}

/* A method's widths, numbers of transforms and sizes. */
struct method_case {
    const char *name;
    enum nufft_method method;
    int dim, least, most; /* widths */
    int batch[6];         /* ends with 0 */
    int n[2][3];          /* images */
    size_t samples;       /* of which two thirds lie in one cell: several parts */
    enum nufft_kernel kernel;
};

static const struct method_case methods[] = {
    {"planes", NUFFT_METHOD_BRICK2D, 2, 2, 10, {1, 8, 17}, {{17, 20, 1}, {40, 17, 1}}, 1700, NUFFT_SEPARABLE},
    {"planes", NUFFT_METHOD_BRICK2D, 2, 5, 5, {2, 4}, {{17, 20, 1}, {40, 17, 1}}, 1700, NUFFT_SEPARABLE},
    {"bricks", NUFFT_METHOD_BRICK8, 3, 2, 4, {3}, {{9, 10, 11}, {16, 9, 8}}, 1700, NUFFT_SEPARABLE},
    {"16", NUFFT_METHOD_BRICK16, 3, 5, 8, {3}, {{9, 11, 9}, {16, 9, 8}}, 3400, NUFFT_SEPARABLE},
    {"dense", NUFFT_METHOD_BRICK_DENSE, 3, 5, 8, {1}, {{9, 10, 11}, {16, 9, 8}}, 6800, NUFFT_SEPARABLE},
    {"tiles", NUFFT_METHOD_TILES, 3, 2, 10, {1}, {{9, 10, 11}, {16, 9, 8}}, 850, NUFFT_SEPARABLE},
    {"tiles", NUFFT_METHOD_TILES, 2, 5, 6, {2}, {{17, 20, 1}, {40, 17, 1}}, 850, NUFFT_SEPARABLE},
    {"tiles", NUFFT_METHOD_TILES, 3, 4, 5, {1}, {{9, 10, 11}, {16, 9, 8}}, 850, NUFFT_RADIAL},
    {"tiles", NUFFT_METHOD_TILES, 2, 4, 5, {2}, {{17, 20, 1}, {40, 17, 1}}, 850, NUFFT_RADIAL},
};

/* The numbers of transforms take turns with the sizes of images. */
static void test_method(struct dev *gpu, const struct method_case *m)
{
    const bool tensor = m->method != NUFFT_METHOD_TILES;
    for (int width = m->least; width <= m->most; width++)
        for (int i = 0; m->batch[i] > 0; i++)
            for (int split = tensor && width == 2; split < 1 + tensor; split++) {
                struct test_case c = {.name = m->name,
                                      .dim = m->dim,
                                      .batch = m->batch[i],
                                      .samples = m->samples,
                                      .spread = CENTRE,
                                      .tolerance = split ? THREE_PRODUCTS : ONE_PRODUCT,
                                      .kernel = m->kernel,
                                      .width = width,
                                      .method = m->method};
                memcpy(c.n, m->n[(i + width) % 2], sizeof c.n);
                run_case(gpu, &c, !tensor ? 0 : split ? 3 : 1);
            }
}

/* Bins of so many parts that they are added up in several turns; lines along x that no sample reaches; grids of so many
 * transforms that a thread adds up eight of them. */
static void test_others(struct dev *gpu, const char *name)
{
    static const struct {
        struct test_case c;
        int products;
    } others[] = {
        {{"planes", 2, {17, 20, 1}, 2, 30000, CENTRE, 1e-1, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK2D}, 1},
        {{"bricks", 3, {9, 10, 8}, 2, 20000, CENTRE, 1e-1, NUFFT_SEPARABLE, 4, NUFFT_METHOD_BRICK8}, 1},
        {{"16", 3, {9, 10, 8}, 2, 60000, CENTRE, 1e-1, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16}, 1},
        {{"dense", 3, {9, 10, 8}, 1, 60000, CENTRE, 1e-1, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK_DENSE}, 1},
        {{"tiles", 3, {9, 10, 8}, 1, 10000, CENTRE, 1e-1, NUFFT_SEPARABLE, 5, NUFFT_METHOD_TILES}, 0},
        {{"16", 3, {48, 48, 48}, 1, 600, RADIAL, 1e-1, NUFFT_SEPARABLE, 5, NUFFT_METHOD_BRICK16}, 1},
        {{"planes", 2, {256, 256, 1}, 17, 300, UNIFORM, 1e-1, NUFFT_SEPARABLE, 10, NUFFT_METHOD_BRICK2D}, 1},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!name || strcmp(name, others[i].c.name) == 0)
            run_case(gpu, &others[i].c, others[i].products);
}

/* Every size that the passes are compiled for, and some others, along x by slots and from a grid, and along y. */
static void test_passes(struct dev *gpu)
{
    enum { NARROW = 8, SAMPLES = 60 };
    int (*const fast_size)(int) = gpu->leaf->nufft->fast_size;
    static const int others[] = {36, 90, 350, 1350};
    for (int size = fast_size(1), other = 0; size != 0 || other < (int)(sizeof others / sizeof *others);) {
        const int cells = size != 0 ? size : others[other++];
        for (int way = 0; way < 3; way++) {
            struct test_case c = {"passes",
                                  3,
                                  {NARROW, NARROW, NARROW},
                                  1,
                                  SAMPLES,
                                  UNIFORM,
                                  1e-1,
                                  NUFFT_SEPARABLE,
                                  way == 0 ? 4 : 5,
                                  way == 0 ? NUFFT_METHOD_BRICK8 : NUFFT_METHOD_BRICK16};
            c.n[way == 2] = cells / 2;
            run_case(gpu, &c, 1);
        }
        size = size != 0 ? fast_size(size + 1) : 0;
    }
}

int main(int argc, char **argv)
{
    struct dev *gpu = tap_gpu();
    const bool methods_alone = argc > 1 && strcmp(argv[1], "methods") == 0;
    const char *name = argc > 1 && !methods_alone ? argv[1] : NULL;
    small = argc > 2 && strcmp(argv[2], "small") == 0;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!name || strcmp(name, methods[i].name) == 0)
            test_method(gpu, &methods[i]);
    test_others(gpu, name);
    if (!methods_alone && (!name || strcmp(name, "passes") == 0))
        test_passes(gpu);
    dev_free(gpu);
    return tap_end();
}
