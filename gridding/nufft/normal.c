/* normal.c: what every device's normal operator shares: checks, the point spread function, the size of the convolution,
 * batches. */
#include "gridding/nufft/normal.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/nufft/nufft_leaf.h"

#include <stdlib.h>

struct normal {
    const struct convolution_leaf *leaf;
    void *state;
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

/* Upload `samples` ones. */
static int make_ones(struct dev *dev, size_t samples, struct c32 **out)
{
    struct c32 *ones = malloc((samples + 1) * sizeof *ones);
    if (ones == NULL)
        return err_set_bytes(ERR_NO_MEMORY, (int64_t)(samples * sizeof *ones), -1,
                             "Not enough memory for the point spread function of %zu samples.", samples);
    for (size_t m = 0; m < samples; m++)
        ones[m] = (struct c32){1, 0};
    int status = dev_alloc(dev, samples * sizeof *ones, (void **)out);
    if (status == 0)
        status = dev_upload(dev, *out, ones, samples * sizeof *ones);
    free(ones);
    return status;
}

/* sum_m w_m exp(+2 pi i k_m . l) for every difference l of two pixels: [n] values of device memory. */
static int make_spread(struct dev *dev, const struct nufft_params *params, size_t samples, const float *k,
                       const float *weights, struct c32 **spread, double *expected_error)
{
    struct nufft *plan = NULL;
    struct nufft_info info;
    struct c32 *ones = NULL;
    int status = nufft_create(&plan, dev, params, samples, k);
    if (status != 0)
        return status;
    nufft_describe(plan, &info);
    *expected_error = info.expected_error;
    status = nufft_set_weights(plan, weights);
    if (status == 0)
        status = make_ones(dev, samples, &ones);
    if (status == 0)
        status = dev_alloc(dev, (size_t)params->n[0] * (size_t)params->n[1] * (size_t)params->n[2] * sizeof **spread,
                           (void **)spread);
    if (status == 0)
        status = nufft_adjoint(plan, 1, ones, *spread);
    dev_release(dev, ones);
    nufft_free(plan);
    return status;
}

int normal_create(struct normal **out, struct dev *dev, const struct nufft_params *params, size_t samples,
                  const float *k, const float *weights)
{
    int status = check_params(params);
    if (status != 0)
        return status;
    struct normal *normal = calloc(1, sizeof *normal);
    if (normal == NULL)
        return err_set(ERR_NO_MEMORY, "Not enough memory for a normal operator.");
    normal->leaf = dev->leaf->convolution;
    normal->batch = params->batch;
    normal->pixels = (size_t)params->n[0] * (size_t)params->n[1] * (size_t)params->n[2];
    struct nufft_params twice = *params;
    float scale = 1;
    twice.batch = 1;
    for (int d = 0; d < 3; d++) {
        twice.n[d] = d < params->dim ? 2 * params->n[d] : params->n[d];
        normal->info.grid[d] = d < params->dim ? nufft_smooth_size(twice.n[d]) : 1;
        scale /= (float)normal->info.grid[d];
    }
    struct c32 *spread = NULL;
    status = make_spread(dev, &twice, samples, k, weights, &spread, &normal->info.expected_error);
    if (status == 0)
        status = normal->leaf->create(&normal->state, dev, params->dim, params->n, normal->info.grid, params->batch);
    if (status == 0)
        status = normal->leaf->set_kernel(normal->state, twice.n, spread, scale);
    dev_release(dev, spread);
    if (status != 0) {
        normal_free(normal);
        return status;
    }
    normal->info.bytes = normal->leaf->bytes(normal->state);
    *out = normal;
    return 0;
}

void normal_free(struct normal *normal)
{
    if (normal == NULL)
        return;
    normal->leaf->destroy(normal->state);
    free(normal);
}

void normal_describe(const struct normal *normal, struct normal_info *info)
{
    *info = normal->info;
}

int normal_apply(struct normal *normal, int batch, const struct c32 *image, struct c32 *result)
{
    for (int first = 0; first < batch; first += normal->batch) {
        int now = batch - first < normal->batch ? batch - first : normal->batch;
        int status = normal->leaf->apply(normal->state, now, image + (size_t)first * normal->pixels,
                                         result + (size_t)first * normal->pixels);
        if (status != 0)
            return status;
    }
    return 0;
}
