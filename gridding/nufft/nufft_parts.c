#include "gridding/nufft/nufft_parts.h"
#include "gridding/base/err.h"
#include "gridding/nufft/nufft_leaf.h"

#include <stdlib.h>
#include <string.h>

struct nufft_parts {
    struct nufft *plan;
    struct nufft_inside inside;
    void *state; /* the leaf's; NULL: samples are kept for the plan's adjoint */
    int batch, count, added;
    size_t *first;    /* [count + 1] */
    struct c32 *data; /* device: of the next part [batch][largest part], or of all [batch][samples] */
    size_t bytes;
};

static int division_check(const struct nufft_parts *parts)
{
    bool sound = parts->batch >= 1 && parts->count >= 1 && parts->first[0] == 0 &&
                 parts->first[parts->count] == parts->inside.samples;
    for (int p = 0; p < parts->count && sound; p++)
        sound = parts->first[p + 1] > parts->first[p];
    return sound ? 0
                 : err_set(ERR_BAD_PARAMETER,
                           "%d transforms of %zu samples cannot be divided into these %d parts: each holds a sample or "
                           "more, and they follow one another from the first sample to the last.",
                           parts->batch, parts->inside.samples, parts->count);
}

static size_t samples_of(const struct nufft_parts *parts, int part)
{
    return parts->first[part + 1] - parts->first[part];
}

static int parts_make(struct nufft_parts *parts, const float *k, const float *weights)
{
    const struct nufft_inside *in = &parts->inside;
    size_t most = in->samples;
    int rc = division_check(parts);
    if (rc == 0 && in->leaf->parts) {
        most = 0;
        for (int p = 0; p < parts->count; p++)
            most = samples_of(parts, p) > most ? samples_of(parts, p) : most;
        rc = in->leaf->parts->create(&parts->state, in->state, parts->batch, parts->count, parts->first, k, weights);
    }
    if (rc == 0 && !size_mul(most * sizeof(struct c32), (size_t)parts->batch, &parts->bytes))
        rc = err_no_memory("%zu samples of %d transforms", most, parts->batch);
    if (rc == 0)
        rc = dev_alloc(in->dev, parts->bytes, (void **)&parts->data);
    if (rc == 0 && parts->state)
        parts->bytes += in->leaf->parts->bytes(parts->state);
    return rc;
}

int nufft_parts_create(struct nufft_parts **out, struct nufft *plan, int batch, int count, const size_t *first,
                       const float *k, const float *weights)
{
    struct nufft_parts *parts = calloc(1, sizeof *parts);
    if (count < 1) {
        free(parts);
        return err_set(ERR_BAD_PARAMETER, "An adjoint has one part or more, not %d.", count);
    }
    if (parts)
        parts->first = malloc(((size_t)count + 1) * sizeof *parts->first);
    if (!parts || !parts->first) {
        free(parts);
        return err_no_memory("an adjoint of %d parts", count);
    }
    parts->plan = plan;
    parts->batch = batch;
    parts->count = count;
    memcpy(parts->first, first, ((size_t)count + 1) * sizeof *first);
    nufft_inside(plan, &parts->inside);
    int rc = parts_make(parts, k, weights);
    if (rc == 0)
        *out = parts;
    else
        nufft_parts_free(parts);
    return rc;
}

void nufft_parts_free(struct nufft_parts *parts)
{
    if (!parts)
        return;
    if (parts->state)
        parts->inside.leaf->parts->destroy(parts->state);
    dev_release(parts->inside.dev, parts->data);
    free(parts->first);
    free(parts);
}

size_t nufft_parts_bytes(const struct nufft_parts *parts)
{
    return parts->bytes;
}

int nufft_parts_begin(struct nufft_parts *parts)
{
    parts->added = 0;
    return parts->state ? parts->inside.leaf->parts->begin(parts->state) : 0;
}

struct c32 *nufft_parts_data(struct nufft_parts *parts, int transform)
{
    const size_t t = (size_t)transform;
    return parts->data + (parts->state ? t * samples_of(parts, parts->added)
                                       : t * parts->inside.samples + parts->first[parts->added]);
}

int nufft_parts_add(struct nufft_parts *parts)
{
    int rc = parts->state ? parts->inside.leaf->parts->add(parts->state, parts->added, parts->data) : 0;
    parts->added += rc == 0;
    return rc;
}

int nufft_parts_added(const struct nufft_parts *parts)
{
    return parts->added;
}

static int finish(struct nufft_parts *parts, struct c32 *image, float *squares)
{
    int rc = dev_upload_order(parts->inside.dev);
    if (parts->added != parts->count)
        rc = err_set(ERR_INTERNAL, "An adjoint of %d parts has %d. This is a bug.", parts->count, parts->added);
    parts->added = 0;
    if (rc)
        return rc;
    if (parts->state)
        return parts->inside.leaf->parts->finish(parts->state, image, squares);
    return image ? nufft_adjoint(parts->plan, parts->batch, parts->data, image)
                 : nufft_adjoint_squares(parts->plan, parts->batch, parts->data, squares);
}

int nufft_parts_image(struct nufft_parts *parts, struct c32 *image)
{
    return finish(parts, image, NULL);
}

int nufft_parts_squares(struct nufft_parts *parts, float *squares)
{
    return finish(parts, NULL, squares);
}
