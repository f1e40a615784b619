/* The normal operator with a field map: a kernel of each time segment. */
#include "recon/mri/field_inner.h"

#include "gridding/base/err.h"
#include "gridding/base/vec.h"

#include <stdlib.h>

/* The kernel of one segment: weights[m] b'_l(t_m). */
static int kernel_of(struct field *field, struct normal **normal, const struct nufft_params *params, struct nufft *plan,
                     const float *k, const float *weights, const struct c32 *b, const struct normal_ask *ask,
                     struct c32 *kernel)
{
    float *turned_weights = malloc(field->samples * sizeof *turned_weights);
    if (!turned_weights)
        return err_no_memory("the weights of a time segment");
    for (size_t m = 0; m < field->samples; m++)
        turned_weights[m] = weights[m] * b[m].re;
    int rc = nufft_set_weights(plan, turned_weights);
    free(turned_weights);
    normal_free(*normal);
    *normal = NULL;
    if (rc == 0)
        rc = normal_create_of(normal, field->job->dev, params, plan, k, ask);
    return rc == 0 ? normal_kernel_keep(*normal, kernel) : rc;
}

int field_kernels(struct field *field, struct normal **normal, const struct nufft_params *params, struct nufft *plan,
                  const struct stack *stack, const float *k, const float *weights, struct c32 **kernels,
                  const struct normal_ask *ask)
{
    const struct recon_job *job = field->job;
    const size_t samples = field->samples, segments = (size_t)field->normal.count;
    size_t *offsets = malloc((field->frame->count + 1) * sizeof *offsets);
    struct c32 *b = malloc(segments * samples * sizeof *b);
    int rc = offsets && b ? 0 : err_no_memory("the time segments of %zu samples", samples);
    if (rc == 0) {
        recon_frame_offsets(job, field->frame, offsets);
        field_interpolate(field, field->frame, offsets, stack, &field->normal, b);
    }
    for (size_t l = 0; l < segments && rc == 0; l++) {
        if (!*normal)
            rc = normal_create_of(normal, job->dev, params, plan, k, ask); /* for its size only */
        const size_t elements = rc == 0 ? normal_kernel_elements(*normal) : 0;
        if (rc == 0 && !*kernels)
            rc = dev_alloc(job->dev, segments * elements * sizeof **kernels, (void **)kernels);
        if (rc == 0)
            rc = kernel_of(field, normal, params, plan, k, weights, b + l * samples, ask, *kernels + l * elements);
    }
    const int restored = nufft_set_weights(plan, weights);
    free(b);
    free(offsets);
    return rc ? rc : restored;
}

int field_normal_open(struct field_normal *out, const struct field *field, struct normal *normal, struct op inner,
                      const struct c32 *kernels)
{
    struct dev *dev = field->job->dev;
    *out = (struct field_normal){.field = field, .normal = normal, .kernels = kernels, .inner = inner};
    int rc = dev_alloc(dev, field->pixels * sizeof *out->turned, (void **)&out->turned);
    return rc == 0 ? dev_alloc(dev, field->pixels * sizeof *out->part, (void **)&out->part) : rc;
}

void field_normal_close(struct field_normal *normal)
{
    struct dev *dev = normal->field->job->dev;
    dev_release(dev, normal->part);
    dev_release(dev, normal->turned);
    normal->turned = normal->part = NULL;
}

static int apply(void *of, const struct c32 *x, struct c32 *r)
{
    const struct field_normal *n = of;
    const struct field *field = n->field;
    struct dev *dev = field->job->dev;
    const size_t pixels = field->pixels, elements = normal_kernel_elements(n->normal);
    int rc = dev_zero(dev, r, pixels * sizeof *r);
    for (size_t l = 0; l < (size_t)field->normal.count && rc == 0; l++) {
        const struct c32 *turn = field->turns + l * pixels;
        rc = normal_kernel_use(n->normal, n->kernels + l * elements);
        if (rc == 0)
            rc = vec_multiply(dev, pixels, 1, turn, x, n->turned); /* E_l x */
        if (rc == 0)
            rc = n->inner.normal(n->inner.of, n->turned, n->part); /* N_l E_l x */
        if (rc == 0)
            rc = vec_multiply_conj_add(dev, pixels, 1, turn, n->part, r); /* r + conj(E_l) N_l E_l x */
    }
    return rc;
}

struct op field_normal_op(struct field_normal *normal)
{
    const size_t pixels = normal->field->pixels;
    return (struct op){.of = normal, .domain = pixels, .range = pixels, .normal = apply};
}
