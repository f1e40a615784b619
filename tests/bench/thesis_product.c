/* thesis_product.c: the product's own path on an experiment's samples. */
#include "tests/bench/thesis.h"
#include "gridding/base/err.h"
#include "gridding/nufft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS = 20, PLANS = 5 };

/* Relative l2, at pixels spread over the image, against a double sum over all samples. */
static double image_error(const struct scene *s, const float *k, const struct c32 *image, int n)
{
    double off = 0, all = 0;
    for (int i = 0; i < PIXELS; i++) {
        const int at[3] = {(i * 7919 + 3) % n, (i * 104729 + 5) % n, (i * 1299709 + n / 2) % n};
        double re = 0, im = 0;
#pragma omp parallel for reduction(+ : re, im)
        for (size_t m = 0; m < s->set->samples; m++) {
            double turns = 0, sine, cosine, weight = (double)s->samples[m].density;
            for (int d = 0; d < 3; d++)
                turns += (double)k[3 * m + (size_t)d] * (at[d] - n / 2);
            turns -= floor(turns);
            sincos(2 * M_PI * turns, &sine, &cosine);
            re += weight * ((double)s->samples[m].re * cosine - (double)s->samples[m].im * sine);
            im += weight * ((double)s->samples[m].re * sine + (double)s->samples[m].im * cosine);
        }
        struct c32 got = image[((size_t)at[2] * (size_t)n + (size_t)at[1]) * (size_t)n + (size_t)at[0]];
        off += pow((double)got.re - re, 2) + pow((double)got.im - im, 2);
        all += re * re + im * im;
    }
    return sqrt(off / all);
}

struct inputs {
    float *k, *weight;
    struct c32 *data;
};

static void make_inputs(const struct scene *s, struct inputs *in)
{
    size_t count = s->set->samples;
    in->k = malloc(3 * count * sizeof *in->k);
    in->weight = malloc(count * sizeof *in->weight);
    in->data = malloc(count * sizeof *in->data);
    if (in->k == NULL || in->weight == NULL || in->data == NULL)
        must(err_set(ERR_NO_MEMORY, "no memory for %zu samples", count), "product");
    for (size_t m = 0; m < count; m++) {
        const struct rival_sample *p = s->samples + m;
        const float at[3] = {p->x, p->y, p->z};
        for (size_t d = 0; d < 3; d++)
            in->k[3 * m + d] = at[d] / (float)s->set->grid - 0.5f;
        in->weight[m] = p->density;
        in->data[m] = (struct c32){p->re, p->im};
    }
}

static void measure(struct scene *s, struct dev *dev, const char *experiment, enum nufft_kernel kernel,
                    const struct inputs *in, const struct c32 *data)
{
    const int n = s->set->grid / 2;
    const size_t bytes = (size_t)n * (size_t)n * (size_t)n * sizeof(struct c32);
    const struct nufft_params params = {.dim = 3,
                                        .n = {n, n, n},
                                        .tolerance = 2e-2,
                                        .kernel = kernel,
                                        .width = RIVAL_WIDTH,
                                        .oversampling = 2,
                                        .batch = 1};
    struct nufft *plan = NULL;
    struct nufft_info info;
    double create[PLANS], bins[PLANS], adjoint[THESIS_RUNS_MOST], start;
    void *image;
    struct c32 *host = malloc(bytes);
    if (host == NULL)
        must(err_set(ERR_NO_MEMORY, "no memory for an image"), "product");
    must(dev_alloc(dev, bytes, &image), "dev_alloc");
    for (int run = -1; run < PLANS; run++) {
        nufft_free(plan);
        start = seconds();
        must(nufft_create(&plan, dev, &params, s->set->samples, in->k), "nufft_create");
        nufft_describe(plan, &info);
        if (run >= 0) {
            create[run] = seconds() - start;
            bins[run] = info.binning;
        }
    }
    must(nufft_set_weights(plan, in->weight), "nufft_set_weights");
    for (int run = -1; run < s->runs; run++) {
        start = seconds();
        must(nufft_adjoint(plan, 1, data, image), "nufft_adjoint");
        if (run >= 0)
            adjoint[run] = seconds() - start;
    }
    must(dev_download(dev, host, image, bytes), "dev_download");
    double error = image_error(s, in->k, host, n);
    if (!(error <= params.tolerance))
        must(err_set(ERR_INTERNAL, "the product's image is wrong: relative error %g", error), s->set->name);
    line(s, experiment, kernel == NUFFT_RADIAL ? "product, radial kernel" : "product, separable kernel",
         "\"product\":true,\"create_ms\":%.3f,\"binning_ms\":%.3f,\"adjoint_ms\":%.3f,\"bytes\":%zu,\"image_error\":%."
         "2e",
         1e3 * median(create, PLANS), 1e3 * median(bins, PLANS), 1e3 * median(adjoint, s->runs), info.bytes, error);
    nufft_free(plan);
    dev_release(dev, image);
    free(host);
}

void product(struct scene *s, const char *experiment)
{
    struct dev *dev = NULL;
    struct inputs in;
    void *data;
    must(dev_create(&dev, DEV_GPU, 0, 0), "the product's GPU leaves");
    make_inputs(s, &in);
    must(dev_alloc(dev, s->set->samples * sizeof *in.data, &data), "dev_alloc");
    must(dev_upload(dev, data, in.data, s->set->samples * sizeof *in.data), "dev_upload");
    measure(s, dev, experiment, NUFFT_RADIAL, &in, data);
    measure(s, dev, experiment, NUFFT_SEPARABLE, &in, data);
    dev_release(dev, data);
    dev_free(dev);
    free(in.k);
    free(in.weight);
    free(in.data);
}
