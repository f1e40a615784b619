#include "gridding/fft/fields.h"

#include "gridding/base/err.h"
#include "gridding/fft/fft_leaf.h"

#include <stdlib.h>

struct fields {
    struct dev *dev;
    void *state;
};

static const struct fields_leaf *leaf_of(const struct dev *dev)
{
    return dev->leaf->fft ? dev->leaf->fft->fields : NULL;
}

bool fields_available(const struct dev *dev, int n)
{
    return leaf_of(dev) && n % 2 == 0 && leaf_of(dev)->serves(n);
}

size_t fields_bytes(const struct dev *dev, int n)
{
    return leaf_of(dev)->bytes(n);
}

int fields_create(struct fields **out, struct dev *dev, int n, const float *factor)
{
    if (!fields_available(dev, n))
        return err_set(ERR_NO_DEVICE, "Device %s has no fields on %d nodes an axis.", dev->name, n);
    struct fields *fields = calloc(1, sizeof *fields);
    if (!fields)
        return err_no_memory("fields on a mesh");
    fields->dev = dev;
    int rc = leaf_of(dev)->create(&fields->state, dev, n, factor);
    if (rc == 0)
        *out = fields;
    else
        free(fields);
    return rc;
}

void fields_free(struct fields *fields)
{
    if (!fields)
        return;
    leaf_of(fields->dev)->destroy(fields->state);
    free(fields);
}

int fields_run(struct fields *fields, float *grid)
{
    return leaf_of(fields->dev)->run(fields->state, grid);
}
