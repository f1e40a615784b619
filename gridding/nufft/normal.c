/* normal.c: the device-independent part of normal operators: checks, the point spread function, the size of the
 * convolution, batches. */
#include "gridding/nufft/normal.h"
#include "gridding/base/ask.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "gridding/nufft/nufft_leaf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct normal {
    const struct convolution_leaf *leaf;
    struct dev *dev;
    void *state;
    int dim, n[3];
    size_t pixels;
    int batch;
    struct normal_info info;
};

static int check_params(const struct nufft_params *p)
{
    for (int d = 0; d < 3; d++)
        if (p->n[d] < 1 || p->n[d] > NUFFT_SIZE_MOST / 2)
            return err_set(ERR_BAD_PARAMETER,
                           "A normal operator for images of %d x %d x %d pixels cannot be made: each size is 1 to %d.",
                           p->n[0], p->n[1], p->n[2], NUFFT_SIZE_MOST / 2);
    if (p->batch < 1)
        return err_set(ERR_BAD_PARAMETER, "A batch holds at least one image, not %d.", p->batch);
    return 0;
}

/* Collects a point spread function of [2 n]. Its value for the difference l of two pixels is at index l + n. */
struct spread {
    struct dev *dev;
    int dim, n[3], twice[3];
    struct nufft *plan;
    const float *k;
    size_t samples, pixels, cells;
    struct c32 *values;         /* [cells]: host memory, or the CPU's own */
    struct c32 *wave, *image;   /* [samples], [pixels]: host memory */
    struct c32 *data, *adjoint; /* the same on the device */
    const struct normal_ask *ask;
};

static int ask_on(const struct spread *s)
{
    return s->ask ? s->ask->ask(s->ask->context) : 0;
}

/* exp(2 pi i k_m . shift) of every sample: its adjoint is the point spread function, shifted. */
static void wave_fill(const struct spread *s, const int shift[3])
{
    enum { PIECE = 1 << 12, COST = 40 /* ns of a sample */ };
    const double pi = 3.14159265358979323846;
    struct asker *asker = dev_asker(s->dev);
#pragma omp parallel for schedule(static) num_threads(s->dev->threads)
    for (size_t from = 0; from < s->samples; from += PIECE) {
        const size_t most = s->samples - from < PIECE ? s->samples : from + PIECE;
        const size_t end = asker_stopped(asker, PIECE * COST) ? from : most;
        for (size_t m = from; m < end; m++) {
            double turns = 0;
            for (int d = 0; d < s->dim; d++)
                turns += (double)s->k[m * (size_t)s->dim + (size_t)d] * shift[d];
            turns = 2 * pi * (turns - floor(turns));
            s->wave[m] = (struct c32){(float)cos(turns), (float)sin(turns)};
        }
    }
}

/* Copy the image of the shifted function to its differences, and its conjugate to their negatives. -n is not a
 * difference of two pixels, and its values stay 0. */
static void image_put(const struct spread *s, const int shift[3])
{
    enum { COST = 10 /* ns of a pixel */ };
    const int *n = s->n, *twice = s->twice;
    struct asker *asker = dev_asker(s->dev);
#pragma omp parallel for collapse(2) schedule(static) num_threads(s->dev->threads)
    for (int z = 0; z < n[2]; z++)
        for (int y = 0; y < n[1]; y++) {
            if (asker_stopped(asker, (size_t)n[0] * COST))
                continue;
            for (int x = 0; x < n[0]; x++) {
                const size_t i = ((size_t)z * (size_t)n[1] + (size_t)y) * (size_t)n[0] + (size_t)x;
                const int l[3] = {shift[0] - n[0] / 2 + x, shift[1] - n[1] / 2 + y, shift[2] - n[2] / 2 + z};
                size_t at = 0, opposite = 0;
                bool difference = true;
                for (int d = s->dim - 1; d >= 0; d--) {
                    at = at * (size_t)twice[d] + (size_t)(l[d] + n[d]);
                    opposite = opposite * (size_t)twice[d] + (size_t)(n[d] - l[d]);
                    difference = difference && l[d] > -n[d];
                }
                if (!difference)
                    continue;
                s->values[at] = s->image[i];
                s->values[opposite] = (struct c32){s->image[i].re, -s->image[i].im};
            }
        }
}

/* sum_m w_m exp(+2 pi i k_m . l) for every difference l of two pixels. The last axis' half from 0 on is computed. */
static int spread_fill(const struct spread *s)
{
    const int last = s->dim - 1;
    int rc = asker_zero(dev_asker(s->dev), s->values, s->cells * sizeof *s->values);
    for (int part = 0; part < 1 << last && !rc; part++) {
        int shift[3] = {0};
        for (int d = 0; d < s->dim; d++)
            shift[d] = d == last || part >> d & 1 ? s->n[d] / 2 : s->n[d] / 2 - s->n[d];
        rc = ask_on(s);
        if (!rc)
            wave_fill(s, shift);
        if (!rc)
            rc = dev_upload(s->dev, s->data, s->wave, s->samples * sizeof *s->wave);
        if (!rc)
            rc = nufft_adjoint(s->plan, 1, s->data, s->adjoint);
        if (!rc)
            rc = ask_on(s);
        if (!rc)
            rc = dev_download(s->dev, s->image, s->adjoint, s->pixels * sizeof *s->image);
        if (!rc)
            image_put(s, shift);
    }
    if (!rc)
        rc = asker_rc(dev_asker(s->dev));
    return rc ? rc : ask_on(s);
}

/* The point spread function in device memory: *out, [cells]. */
static int spread_make(struct spread *s, struct c32 **out)
{
    const size_t bytes = s->cells * sizeof **out;
    int rc = dev_alloc(s->dev, bytes, (void **)out);
    struct c32 *direct = !rc ? dev_direct(s->dev, *out) : NULL;
    if (rc)
        return rc;
    s->wave = malloc((s->samples + 1) * sizeof *s->wave);
    s->image = malloc(s->pixels * sizeof *s->image);
    s->values = direct ? direct : malloc(bytes);
    if (!s->wave || !s->image || !s->values)
        rc = err_no_memory_bytes(bytes, "the point spread function of %zu samples", s->samples);
    if (!rc)
        rc = dev_alloc(s->dev, (s->samples + 1) * sizeof *s->data, (void **)&s->data);
    if (!rc)
        rc = dev_alloc(s->dev, s->pixels * sizeof *s->adjoint, (void **)&s->adjoint);
    if (!rc)
        rc = spread_fill(s);
    if (!rc && !direct)
        rc = dev_upload(s->dev, *out, s->values, bytes);
    dev_release(s->dev, s->adjoint);
    dev_release(s->dev, s->data);
    if (!direct)
        free(s->values);
    free(s->image);
    free(s->wave);
    return rc;
}

/* The sizes of an operator for `params`, in `normal` and *s. */
static int sizes_fill(struct normal *normal, struct spread *s, struct dev *dev, const struct nufft_params *params)
{
    int rc = check_params(params);
    *s = (struct spread){.dev = dev, .dim = params->dim, .pixels = 1, .cells = 1};
    *normal = (struct normal){.leaf = dev->leaf->convolution, .dev = dev, .dim = params->dim, .batch = params->batch};
    for (int d = 0; d < 3 && rc == 0; d++) {
        normal->n[d] = params->n[d];
        s->n[d] = params->n[d];
        s->twice[d] = d < params->dim ? 2 * params->n[d] : 1;
        s->pixels *= (size_t)s->n[d];
        s->cells *= (size_t)s->twice[d];
        normal->info.grid[d] = d < params->dim ? normal->leaf->axis_size(d, nufft_smooth_size(s->twice[d])) : 1;
    }
    normal->pixels = s->pixels;
    return rc;
}

/* The operator of a point spread function [twice] in device memory. */
static int convolution_make(struct normal *normal, const struct spread *s, const struct c32 *spread)
{
    const int *grid = normal->info.grid;
    int rc = normal->leaf->create(&normal->state, s->dev, s->dim, s->n, grid, normal->batch);
    if (rc == 0)
        rc = ask_on(s);
    if (rc == 0)
        rc = normal->leaf->set_kernel(normal->state, s->twice, spread,
                                      1 / ((float)grid[0] * (float)grid[1] * (float)grid[2]));
    if (rc == 0)
        normal->info.bytes = normal->leaf->bytes(normal->state);
    return rc;
}

int normal_create_of(struct normal **out, struct dev *dev, const struct nufft_params *params, struct nufft *plan,
                     const float *k, const struct normal_ask *ask)
{
    struct nufft_info plan_info;
    struct spread s;
    struct c32 *spread = NULL;
    struct normal *normal = calloc(1, sizeof *normal);
    if (!normal)
        return err_no_memory("a normal operator");
    nufft_describe(plan, &plan_info);
    int rc = sizes_fill(normal, &s, dev, params);
    normal->info.expected_error = plan_info.expected_error;
    s.plan = plan;
    s.ask = ask;
    s.k = k;
    s.samples = plan_info.samples;
    if (rc == 0)
        rc = spread_make(&s, &spread);
    if (rc == 0)
        rc = convolution_make(normal, &s, spread);
    dev_release(dev, spread);
    if (rc == 0)
        *out = normal;
    else
        normal_free(normal);
    return rc;
}

/* Set value[l] for l_d = 0 .. n_d - 1, and the same for their negatives. */
static int even_put(const struct spread *s, double (*value)(const void *of, const double l[3]), const void *of,
                    struct c32 *to)
{
    int rc = asker_zero(dev_asker(s->dev), to, s->cells * sizeof *to);
    for (int z = 0; z < s->n[2] && !rc; z++) {
        rc = ask_on(s);
#pragma omp parallel for schedule(static) num_threads(s->dev->threads) if (s->pixels >= 1 << 15)
        for (int y = 0; y < s->n[1]; y++)
            for (int x = 0; x < s->n[0]; x++) {
                const int l[3] = {x, y, z};
                const float v = (float)value(of, (const double[3]){x, y, z});
                for (int signs = 0; signs < 1 << s->dim; signs++) {
                    size_t at = 0;
                    for (int d = s->dim - 1; d >= 0; d--)
                        at = at * (size_t)s->twice[d] + (size_t)(s->n[d] + (signs >> d & 1 ? -l[d] : l[d]));
                    to[at] = (struct c32){v, 0};
                }
            }
    }
    return rc;
}

int normal_create_even(struct normal **out, struct dev *dev, const struct nufft_params *params,
                       double (*value)(const void *of, const double l[3]), const void *of, const struct normal_ask *ask)
{
    struct spread s;
    struct c32 *host = NULL, *spread = NULL;
    struct normal *normal = calloc(1, sizeof *normal);
    if (!normal)
        return err_no_memory("a convolution");
    int rc = sizes_fill(normal, &s, dev, params);
    const size_t bytes = s.cells * sizeof *host;
    host = malloc(bytes);
    if (rc == 0 && !host)
        rc = err_no_memory_bytes(bytes, "a convolution's kernel");
    s.ask = ask;
    if (rc == 0)
        rc = even_put(&s, value, of, host);
    if (rc == 0)
        rc = dev_alloc(dev, bytes, (void **)&spread);
    if (rc == 0)
        rc = dev_upload(dev, spread, host, bytes);
    free(host);
    if (rc == 0)
        rc = convolution_make(normal, &s, spread);
    dev_release(dev, spread);
    if (rc == 0)
        *out = normal;
    else
        normal_free(normal);
    return rc;
}

int normal_create(struct normal **out, struct dev *dev, const struct nufft_params *params, size_t samples,
                  const float *k, const float *weights)
{
    struct nufft_params one = *params;
    struct nufft *plan = NULL;
    int rc = check_params(params);
    one.batch = 1;
    one.purpose = NUFFT_FOR_ADJOINT;
    if (!rc)
        rc = nufft_create(&plan, dev, &one, samples, k);
    if (!rc)
        rc = nufft_set_weights(plan, weights);
    if (!rc)
        rc = normal_create_of(out, dev, params, plan, k, NULL);
    nufft_free(plan);
    return rc;
}

void normal_free(struct normal *normal)
{
    if (!normal)
        return;
    if (normal->state)
        normal->leaf->destroy(normal->state);
    free(normal);
}

void normal_describe(const struct normal *normal, struct normal_info *info)
{
    *info = normal->info;
}

/* Its floats in pairs, because a kernel has an even number. */
size_t normal_kernel_elements(const struct normal *normal)
{
    const int *grid = normal->info.grid;
    return ((size_t)grid[0] * (size_t)grid[1] * (size_t)grid[2] + 1) / 2;
}

static int no_kernel(const struct normal *normal)
{
    return err_set(ERR_NO_DEVICE, "Device %s has no kernel to lend, which series of normal operators need.",
                   normal->dev->name);
}

int normal_kernel_keep(struct normal *normal, struct c32 *kernel)
{
    if (!normal->leaf->kernel)
        return no_kernel(normal);
    return vec_copy(normal->dev, normal_kernel_elements(normal), normal->leaf->kernel(normal->state), kernel);
}

int normal_kernel_use(struct normal *normal, const struct c32 *kernel)
{
    if (!normal->leaf->kernel)
        return no_kernel(normal);
    return vec_copy(normal->dev, normal_kernel_elements(normal), kernel, normal->leaf->kernel(normal->state));
}

static bool same_sizes(const struct normal *a, const struct normal *b)
{
    return a->dim == b->dim && a->batch == b->batch && memcmp(a->n, b->n, sizeof a->n) == 0 &&
           memcmp(a->info.grid, b->info.grid, sizeof a->info.grid) == 0;
}

/* An operator of the sizes of `of` without a kernel. */
static int normal_like(struct normal **out, struct dev *dev, const struct normal *of)
{
    struct normal *normal = calloc(1, sizeof *normal);
    if (!normal)
        return err_no_memory("a normal operator");
    *normal = *of;
    normal->dev = dev;
    normal->leaf = dev->leaf->convolution;
    normal->state = NULL;
    int rc = of->leaf->kernel && normal->leaf->kernel ? 0 : no_kernel(of);
    if (rc == 0)
        rc = normal->leaf->create(&normal->state, dev, of->dim, of->n, of->info.grid, of->batch);
    if (rc == 0)
        *out = normal;
    else
        normal_free(normal);
    return rc;
}

int normal_copy(struct normal **copy, struct dev *dev, struct normal *of)
{
    int rc = 0;
    if (*copy && !same_sizes(*copy, of)) {
        normal_free(*copy);
        *copy = NULL;
    }
    if (!*copy)
        rc = normal_like(copy, dev, of);
    if (rc != 0)
        return rc;
    (*copy)->info = of->info;
    return dev_copy(dev, (*copy)->leaf->kernel((*copy)->state), of->dev, of->leaf->kernel(of->state),
                    normal_kernel_elements(of) * sizeof(struct c32));
}

int normal_scale(struct normal *normal, float by)
{
    if (!normal->leaf->kernel)
        return no_kernel(normal);
    return vec_scale(normal->dev, normal_kernel_elements(normal), by, normal->leaf->kernel(normal->state));
}

int normal_apply(struct normal *normal, int batch, const struct c32 *image, struct c32 *result)
{
    for (int first = 0; first < batch; first += normal->batch) {
        int now = batch - first < normal->batch ? batch - first : normal->batch;
        int rc = normal->leaf->apply(normal->state, now, image + (size_t)first * normal->pixels,
                                     result + (size_t)first * normal->pixels);
        if (rc)
            return rc;
    }
    return 0;
}

static bool takes_coils(const struct normal *normal)
{
    return normal->leaf->takes_coils && normal->leaf->takes_coils(normal->dim, normal->info.grid);
}

bool normal_takes_coils(struct dev *dev, const struct nufft_params *params)
{
    struct normal normal;
    struct spread s;
    return sizes_fill(&normal, &s, dev, params) == 0 && takes_coils(&normal);
}

int normal_apply_coils(struct normal *normal, const struct normal_coils *coils, const struct c32 *image,
                       struct c32 *result)
{
    if (!takes_coils(normal))
        return err_set(ERR_INTERNAL, "A normal operator of %d x %d x %d pixels does not take coils.", normal->n[0],
                       normal->n[1], normal->n[2]);
    return normal->leaf->apply_coils(normal->state, coils, normal_kernel_elements(normal), image, result);
}
