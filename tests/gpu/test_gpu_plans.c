/* Random NUFFT plans on a GPU, in two and three dimensions, with both kernels: no error exceeds the plan's estimate.
 * And of every method: transforms of one plan with data of very different scales. And which method plans choose. Prints
 * TAP; without a GPU, reports everything as skipped.
 *
 *   test_gpu_plans [PLANS [SEED [all]]]   500 by default, and as many of few pixels; the worst one is printed, or all
 */
#include "tests/gpu/tap.h"
#include "tests/plans.h"
#include "tests/scales.h"

#include <string.h>

/* What a plan with one and three products does with its data's scale, by every method and its variants for numbers of
 * transforms. */
static void test_scales(struct dev *gpu)
{
    static const struct {
        int dim, width, products, batch[4];
        enum nufft_method method;
        double tolerance;
    } rows[] = {
        {2, 5, 1, {1, 2, 4}, NUFFT_METHOD_BRICK2D, 1e-3},  {2, 8, 3, {1, 2, 4}, NUFFT_METHOD_BRICK2D, 1e-5},
        {2, 5, 1, {8, 17}, NUFFT_METHOD_BRICK2D, 1e-3},    {2, 8, 3, {8, 17}, NUFFT_METHOD_BRICK2D, 1e-5},
        {3, 4, 1, {1, 3}, NUFFT_METHOD_BRICK8, 5e-3},      {3, 4, 3, {1, 3}, NUFFT_METHOD_BRICK8, 1e-3},
        {3, 6, 1, {1, 3, 5}, NUFFT_METHOD_BRICK16, 1e-3},  {3, 7, 3, {1, 3, 5}, NUFFT_METHOD_BRICK16, 1e-5},
        {3, 6, 1, {1, 3}, NUFFT_METHOD_BRICK_DENSE, 1e-3}, {3, 7, 3, {1, 3}, NUFFT_METHOD_BRICK_DENSE, 1e-5},
        {2, 9, 0, {1, 3}, NUFFT_METHOD_TILES, 1e-5},       {3, 6, 0, {1, 3}, NUFFT_METHOD_TILES, 1e-5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (const int *batch = rows[i].batch; batch < rows[i].batch + 4 && *batch; batch++) {
            /* The forward transform reads grids of several transforms as TF32 numbers, which end at 2^-136. */
            const bool reads_tf32 = rows[i].method == NUFFT_METHOD_BRICK2D && *batch >= 4;
            const struct scales_case c = {rows[i].dim,    rows[i].width,     *batch,
                                          rows[i].method, rows[i].tolerance, reads_tf32 ? -112 : SCALE_LEAST};
            struct nufft_info info;
            double worst[2];
            char name[160], why[140];
            must(scales_try(gpu, &c, &info, worst), "transforms of different scales");
            snprintf(name, sizeof name, "%s, %d products, %d transforms: the scale of the data changes nothing",
                     nufft_method_name(rows[i].method), rows[i].products, *batch);
            snprintf(why, sizeof why, "they differ by %.3g, the forward ones by %.3g; %s, %d products", worst[0],
                     worst[1], nufft_method_name(info.method), info.products);
            printf("# %s: %.3g, forward %.3g\n", name, worst[0], worst[1]);
            const bool halves = rows[i].products == 1 && rows[i].width > 4 && rows[i].dim == 3;
            verdict(worst[0] <= SCALES_APART && worst[1] <= (halves ? HALVES_APART : SCALES_APART) &&
                        info.method == rows[i].method && (rows[i].products == 0 || info.products == rows[i].products),
                    name, why);
        }
}

/* Sample m of spokes through 0 of `readout` samples, in directions drawn at random. */
static void spoke_sample(size_t m, size_t readout, int dim, float *k)
{
    const double r = (double)(m % readout) / (double)readout - 0.5, z = dim == 3 ? uniform(2 * (m / readout)) : 0,
                 turn = 2 * M_PI * uniform(2 * (m / readout) + 1), across = sqrt(1 - z * z);
    const double at[3] = {r * across * cos(turn), r * across * sin(turn), r * z};
    for (int d = 0; d < dim; d++)
        k[d] = (float)at[d];
}

/* The methods of plans whose times were searched (docs/notebook/gpu-choices.md): small volumes, in which waiting costs
 * more than work, the longer the fuller the centre; cells that hold many samples; many coils; bins of a little more
 * than a part's samples; few coils forth, which a narrow kernel reads faster from a larger grid; and 8 cells on 540,
 * whose bins are shorter than the kernel's reach. */
static void test_choice(struct dev *gpu)
{
    static const struct {
        int dim, n, batch;
        double tolerance;
        size_t samples, readout; /* 0: uniform */
        enum nufft_purpose purpose;
        enum nufft_method method;
        int width; /* 0: any */
        const char *name;
    } rows[] = {
        {3, 32, 1, 1e-2, 50000, 64, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK8, 0, "32^3, spokes"},
        {3, 48, 1, 1e-2, 150000, 96, NUFFT_FOR_BOTH, NUFFT_METHOD_BRICK8, 0, "48^3, spokes, both ways"},
        {3, 64, 1, 1e-2, 400000, 128, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK8, 0, "64^3, spokes"},
        {3, 32, 1, 1e-3, 50000, 64, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK16, 0, "32^3 at 1e-3, spokes"},
        {3, 32, 1, 1e-3, 50000, 0, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK_DENSE, 0, "32^3 at 1e-3"},
        {3, 48, 1, 1e-3, 150000, 0, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK_DENSE, 0, "48^3 at 1e-3"},
        {3, 64, 8, 1e-2, 400000, 0, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK16, 0, "64^3, 8 coils"},
        {3, 64, 8, 1e-2, 400000, 0, NUFFT_FOR_FORWARD, NUFFT_METHOD_BRICK16, 0, "64^3, 8 coils, forth"},
        {3, 112, 16, 1e-2, 1000000, 0, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK16, 0, "112^3, 16 coils"},
        {3, 96, 1, 1e-2, 1000000, 0, NUFFT_FOR_FORWARD, NUFFT_METHOD_BRICK16, 0, "96^3, forth"},
        {3, 72, 4, 1e-2, 600000, 0, NUFFT_FOR_BOTH, NUFFT_METHOD_BRICK16, 6, "72^3, bins of 5 cells cut in two"},
        {3, 32, 1, 1e-3, 50000, 64, NUFFT_FOR_FORWARD, NUFFT_METHOD_TILES, 0, "32^3 at 1e-3, spokes, forth"},
        {3, 24, 1, 1e-2, 600000, 0, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK_DENSE, 0, "24^3 of many samples"},
        {2, 256, 4, 1e-4, 205824, 512, NUFFT_FOR_FORWARD, NUFFT_METHOD_BRICK2D, 5, "256^2, 4 coils, forth"},
        {2, 512, 4, 1e-4, 823296, 1024, NUFFT_FOR_FORWARD, NUFFT_METHOD_BRICK2D, 5, "512^2, 4 coils, forth"},
        {2, 352, 4, 1e-5, 281600, 704, NUFFT_FOR_ADJOINT, NUFFT_METHOD_BRICK2D, 7, "352^2, not short bins on 540"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int dim = rows[i].dim;
        const struct nufft_params params = {.dim = dim,
                                            .n = {rows[i].n, rows[i].n, dim == 3 ? rows[i].n : 1},
                                            .tolerance = rows[i].tolerance,
                                            .batch = rows[i].batch,
                                            .purpose = rows[i].purpose};
        float *k = plan_memory((size_t)dim * rows[i].samples, sizeof *k);
        struct nufft *plan = NULL;
        struct nufft_info info;
        char name[100], why[100];
        for (size_t m = 0; m < rows[i].samples; m++) {
            for (int d = 0; d < dim; d++)
                k[m * (size_t)dim + (size_t)d] = (float)(uniform(m * (size_t)dim + (size_t)d) - 0.5);
            if (rows[i].readout)
                spoke_sample(m, rows[i].readout, dim, k + m * (size_t)dim);
        }
        must(nufft_create(&plan, gpu, &params, rows[i].samples, k), "nufft_create");
        nufft_describe(plan, &info);
        snprintf(name, sizeof name, "the choice of a plan: %s", rows[i].name);
        snprintf(why, sizeof why, "%s, %d cells", nufft_method_name(info.method), info.width);
        verdict(info.method == rows[i].method && (rows[i].width == 0 || info.width == rows[i].width), name, why);
        nufft_free(plan);
        free(k);
    }
}

/* A plan that is asked for a method has a grid that it supports, where another has a faster one that it does not: axes
 * of fewer than 32 cells, too few cells for bins of a wide kernel, a kernel that is too wide. */
static void test_asked(struct dev *gpu)
{
    static const struct {
        int dim, n;
        double tolerance;
        size_t samples;
        enum nufft_method method;
    } rows[] = {
        {2, 16, 1e-3, 17000, NUFFT_METHOD_BRICK2D}, {3, 128, 1e-2, 17000, NUFFT_METHOD_BRICK8},
        {3, 128, 1e-3, 1000, NUFFT_METHOD_BRICK16}, {3, 128, 1e-3, 17000, NUFFT_METHOD_BRICK_DENSE},
        {3, 24, 1e-2, 17000, NUFFT_METHOD_TILES},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int dim = rows[i].dim, n = rows[i].n;
        const struct nufft_params params = {.dim = dim,
                                            .n = {n, n, dim == 3 ? n : 1},
                                            .tolerance = rows[i].tolerance,
                                            .batch = 1,
                                            .method = rows[i].method};
        const size_t values = (size_t)dim * rows[i].samples;
        float *k = plan_memory(values, sizeof *k);
        struct nufft *plan = NULL;
        struct nufft_info info;
        char name[100], why[100];
        for (size_t m = 0; m < values; m++)
            k[m] = (float)(uniform(m) - 0.5);
        must(nufft_create(&plan, gpu, &params, rows[i].samples, k), "nufft_create");
        nufft_describe(plan, &info);
        snprintf(name, sizeof name, "a plan of %d pixels an axis, %d-D, asked for %s, has it", n, dim,
                 nufft_method_name(rows[i].method));
        snprintf(why, sizeof why, "%s, %d cells, on %d", nufft_method_name(info.method), info.width, info.grid[0]);
        verdict(info.method == rows[i].method && info.expected_error <= rows[i].tolerance, name, why);
        nufft_free(plan);
        free(k);
    }
}

static void test_search(struct dev *gpu, const struct plan_search *search)
{
    double worst[WAYS];
    char name[100], why[100];
    const int beyond = plans_try(gpu, search, worst);
    must(beyond < 0, "a plan at random");
    snprintf(name, sizeof name, "the errors of %d random plans%s are within their estimates", search->plans,
             search->tight ? " of few pixels on tight grids" : "");
    snprintf(why, sizeof why, "%d are not: adjoints err by up to %.2f times as much, forward transforms by %.2f",
             beyond, worst[ADJOINT], worst[FORWARD]);
    verdict(beyond == 0, name, why);
}

int main(int argc, char **argv)
{
    struct plan_search search = {
        .plans = argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 500,
        .seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 4711,
        .most_samples = 60000,
        .least_scale = 1e-37,
        .all = argc > 3 && strcmp(argv[3], "all") == 0,
    };
    struct dev *gpu = tap_gpu();
    test_choice(gpu);
    test_asked(gpu);
    test_scales(gpu);
    test_search(gpu, &search);
    search.tight = true;
    test_search(gpu, &search);
    dev_free(gpu);
    return tap_end();
}
