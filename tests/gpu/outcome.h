/* outcome.h: a plan's results for a problem on a device, and TAP lines on errors and codes. */
#ifndef MRIRECON_GPU_OUTCOME_H
#define MRIRECON_GPU_OUTCOME_H

#include "tests/gpu/problem.h"

/* Passes if `error` (a relative l2 distance) is within `bound`. */
static inline void verdict_error(double error, double bound, const char *format, const char *what, int line)
{
    char name[200], why[200];
    snprintf(name, sizeof name, format, what);
    snprintf(why, sizeof why, "error %.3g, allowed %.3g (line %d)", error, bound, line);
    if (error <= bound)
        printf("# %s: %.3g of %.3g\n", name, error, bound);
    verdict(error <= bound, name, why);
}

static inline void verdict_code(int code, int wanted, const char *name)
{
    char why[1000];
    snprintf(why, sizeof why, "got %d %s (%s), wanted %d", code, err_name(code), said_of(code), wanted);
    verdict(code == wanted, name, why);
}

static inline void verdict_way(const struct test_case *c, const struct nufft_info *info)
{
    char name[200], why[100];
    if (c->method == NUFFT_METHOD_CPU)
        return;
    snprintf(name, sizeof name, "%s: by %s", c->name, nufft_method_name(c->method));
    snprintf(why, sizeof why, "the plan took %s", nufft_method_name(info->method));
    verdict(info->method == c->method, name, why);
}

/* ---- running a plan from host arrays ---- */

struct outcome {
    struct c32 *image, *data;
    float *squares, *convolved;
    struct nufft_info info;
};

static inline void *device_copy(struct dev *dev, const void *host, size_t bytes)
{
    void *to;
    must(dev_alloc(dev, bytes, &to), "dev_alloc");
    if (host)
        must(dev_upload(dev, to, host, bytes), "dev_upload");
    return to;
}

static inline struct nufft_params params_of(const struct test_case *c)
{
    struct nufft_params p = {.dim = c->dim, .tolerance = c->tolerance, .kernel = c->kernel, .batch = c->batch};
    memcpy(p.n, c->n, sizeof p.n);
    p.method = c->method;
    p.width = c->width;
    p.oversampling = c->width ? 2 : 0;
    return p;
}

static inline void run_problem(struct dev *dev, const struct problem *p, const struct nufft_params *params,
                               struct outcome *o)
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
    /* Poison the output, so that values not written are found. */
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

static inline void outcome_free(struct outcome *o)
{
    free(o->image);
    free(o->data);
    free(o->squares);
    free(o->convolved);
}

#endif
