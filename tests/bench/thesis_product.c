/* thesis_product.c: the product's own path on an experiment's samples. */
#include "tests/bench/thesis.h"
#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS = 20, PLANS = 5 };

/* The product's input, and its expected image at some pixels. */
struct inputs {
    float *k, *weight;
    struct c32 *data;
    int n; /* the image's size, per axis */
    size_t pixel[PIXELS];
    double exact[PIXELS][2];
};

/* The double sums over all samples, at pixels spread over the image. */
static void make_exact(const struct scene *s, struct inputs *in)
{
    for (int i = 0; i < PIXELS; i++) {
        const int n = in->n, at[3] = {(i * 7919 + 3) % n, (i * 104729 + 5) % n, (i * 1299709 + n / 2) % n};
        double re = 0, im = 0;
#pragma omp parallel for reduction(+ : re, im)
        for (size_t m = 0; m < s->set->samples; m++) {
            double turns = 0, sine, cosine, weight = (double)s->samples[m].density;
            for (int d = 0; d < 3; d++)
                turns += (double)in->k[3 * m + (size_t)d] * (at[d] - n / 2);
            turns -= floor(turns);
            sincos(2 * M_PI * turns, &sine, &cosine);
            re += weight * ((double)s->samples[m].re * cosine - (double)s->samples[m].im * sine);
            im += weight * ((double)s->samples[m].re * sine + (double)s->samples[m].im * cosine);
        }
        in->pixel[i] = ((size_t)at[2] * (size_t)n + (size_t)at[1]) * (size_t)n + (size_t)at[0];
        in->exact[i][0] = re;
        in->exact[i][1] = im;
    }
}

static void make_inputs(const struct scene *s, struct inputs *in)
{
    size_t count = s->set->samples;
    in->n = s->set->grid / 2;
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
    make_exact(s, in);
}

static double image_error(const struct inputs *in, const struct c32 *image)
{
    double off = 0, all = 0;
    for (int i = 0; i < PIXELS; i++) {
        struct c32 got = image[in->pixel[i]];
        off += pow((double)got.re - in->exact[i][0], 2) + pow((double)got.im - in->exact[i][1], 2);
        all += pow(in->exact[i][0], 2) + pow(in->exact[i][1], 2);
    }
    return sqrt(off / all);
}

/* Median times of a plan. */
struct measured {
    struct nufft_info info;
    struct nufft_times times; /* of the last adjoint */
    double create, bins, adjoint, error;
};

struct stage {
    struct scene *s;
    struct dev *dev;
    struct inputs in;
    void *data, *image;
    struct c32 *host;
    size_t image_bytes;
};

static void stage_open(struct stage *g, struct scene *s)
{
    *g = (struct stage){.s = s};
    must(dev_create(&g->dev, DEV_GPU, 0, s->threads), "the product's GPU leaves");
    make_inputs(s, &g->in);
    g->image_bytes = (size_t)g->in.n * (size_t)g->in.n * (size_t)g->in.n * sizeof(struct c32);
    g->host = malloc(g->image_bytes);
    if (g->host == NULL)
        must(err_set(ERR_NO_MEMORY, "no memory for an image"), "product");
    must(dev_alloc(g->dev, s->set->samples * sizeof *g->in.data, &g->data), "dev_alloc");
    must(dev_alloc(g->dev, g->image_bytes, &g->image), "dev_alloc");
    must(dev_upload(g->dev, g->data, g->in.data, s->set->samples * sizeof *g->in.data), "dev_upload");
}

static void stage_close(struct stage *g)
{
    dev_release(g->dev, g->data);
    dev_release(g->dev, g->image);
    dev_free(g->dev);
    free(g->in.k);
    free(g->in.weight);
    free(g->in.data);
    free(g->host);
}

static struct nufft_params params_of(const struct stage *g, enum nufft_kernel kernel)
{
    return (struct nufft_params){.dim = 3,
                                 .n = {g->in.n, g->in.n, g->in.n},
                                 .tolerance = 2e-2,
                                 .kernel = kernel,
                                 .width = RIVAL_WIDTH,
                                 .oversampling = 2,
                                 .batch = 1};
}

/* Returns the result of nufft_create(); a wrong image or any later failure ends the program. */
static int measure(struct stage *g, const struct nufft_params *params, int plans, struct measured *m)
{
    struct scene *s = g->s;
    struct nufft *plan = NULL;
    double create[PLANS], bins[PLANS], adjoint[THESIS_RUNS_MOST], start;
    for (int run = -1; run < plans; run++) {
        nufft_free(plan);
        plan = NULL;
        start = clock_seconds();
        int status = nufft_create(&plan, g->dev, params, s->set->samples, g->in.k);
        if (status != 0)
            return status;
        nufft_describe(plan, &m->info);
        if (run >= 0) {
            create[run] = 1e3 * (clock_seconds() - start);
            bins[run] = 1e3 * m->info.binning;
        }
    }
    must(nufft_set_weights(plan, g->in.weight), "nufft_set_weights");
    /* The image of an earlier plan must not pass for this plan's. */
    must(dev_zero(g->dev, g->image, g->image_bytes), "dev_zero");
    for (int run = -1; run < s->runs; run++) {
        start = clock_seconds();
        must(nufft_adjoint(plan, 1, g->data, g->image), "nufft_adjoint");
        if (run >= 0)
            adjoint[run] = 1e3 * (clock_seconds() - start);
    }
    nufft_times(plan, &m->times);
    must(dev_download(g->dev, g->host, g->image, g->image_bytes), "dev_download");
    nufft_free(plan);
    m->create = median(create, plans);
    m->bins = median(bins, plans);
    m->adjoint = median(adjoint, s->runs);
    m->error = image_error(&g->in, g->host);
    if (!(m->error <= params->tolerance))
        must(err_set(ERR_INTERNAL, "the product's image is wrong: relative error %g", m->error), s->set->name);
    return 0;
}

void product(struct scene *s, const char *experiment)
{
    static const char *const names[] = {
        [NUFFT_SEPARABLE] = "product, separable kernel", [NUFFT_RADIAL] = "product, radial kernel"};
    struct stage g;
    stage_open(&g, s);
    for (int kernel = NUFFT_RADIAL; kernel >= NUFFT_SEPARABLE; kernel--) {
        struct nufft_params params = params_of(&g, (enum nufft_kernel)kernel);
        struct measured m;
        must(measure(&g, &params, PLANS, &m), "nufft_create");
        line(s, experiment, names[kernel],
             "\"product\":true,\"create_ms\":%.3f,\"binning_ms\":%.3f,\"adjoint_ms\":%.3f,\"bytes\":%zu,"
             "\"image_error\":%.2e",
             m.create, m.bins, m.adjoint, m.info.bytes, m.error);
    }
    stage_close(&g);
}

/* ---- the product's own depth ---- */

static struct depth_text asked(int depth)
{
    struct depth_text t;
    if (depth > 0)
        snprintf(t.text, sizeof t.text, "%d", depth);
    else
        snprintf(t.text, sizeof t.text, "\"%s\"", depth == NUFFT_DEPTH_AUTO ? "auto" : "none");
    return t;
}

/* One kind of overflow at all depths; the last line compares the automatic choice with the best. */
static void sweep(struct stage *g, enum nufft_overflow overflow, const char *name)
{
    static const int depths[] = {NUFFT_DEPTH_AUTO, 64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536, NUFFT_DEPTH_NONE};
    double best = INFINITY, automatic = NAN;
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        struct nufft_params params = params_of(g, NUFFT_SEPARABLE);
        struct measured m;
        params.bin_depth = depths[i];
        params.overflow = overflow;
        int status = measure(g, &params, 1, &m);
        if (status == ERR_BAD_PARAMETER) {
            line(g->s, "partition", name, "\"bin_depth\":%s,\"refused\":\"%s\"", asked(depths[i]).text,
                 err_last()->text);
            return;
        }
        must(status, "nufft_create");
        line(g->s, "partition", name,
             "\"bin_depth\":%s,\"depth\":%zu,\"overflow\":%zu,\"create_ms\":%.3f,\"adjoint_ms\":%.3f,\"gpu_ms\":%.3f,"
             "\"cpu_ms\":%.3f,\"merge_ms\":%.3f,\"hidden_ms\":%.3f,\"image_error\":%.2e",
             asked(depths[i]).text, m.info.depth, m.info.overflowed, m.create, m.adjoint, 1e3 * m.times.gpu,
             1e3 * m.times.cpu, 1e3 * m.times.merge, 1e3 * m.times.hidden, m.error);
        if (depths[i] == NUFFT_DEPTH_AUTO)
            automatic = m.adjoint;
        best = fmin(best, m.adjoint);
    }
    line(g->s, "partition", name, "\"best_ms\":%.3f,\"auto_ms\":%.3f,\"auto_over_best\":%.3f", best, automatic,
         automatic / best);
}

void thesis_partition(struct scene *s)
{
    struct stage g;
    stage_open(&g, s);
    sweep(&g, NUFFT_OVERFLOW_CPU, "product, overflow=cpu");
    sweep(&g, NUFFT_SPLIT, "product, overflow=split");
    stage_close(&g);
}
