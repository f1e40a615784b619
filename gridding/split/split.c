#include "gridding/split/split.h"

#include "gridding/base/err.h"
#include "gridding/split/split_leaf.h"

#include <math.h>
#include <stdlib.h>

struct split {
    const struct split_leaf *leaf;
    size_t count;
    void *state;
};

const char *split_refused(const struct dev *dev, const struct split_params *params)
{
    return dev->leaf->split ? dev->leaf->split->refused(params) : "the device has no such sums";
}

int split_create(struct split **out, struct dev *dev, const struct split_params *params)
{
    const char *why = split_refused(dev, params);
    if (why)
        return err_set(ERR_NO_DEVICE, "Device %s cannot sum in two parts: %s.", dev->name, why);
    struct split *split = calloc(1, sizeof *split);
    if (!split)
        return err_no_memory("a sum in two parts");
    split->leaf = dev->leaf->split;
    split->count = params->count;
    int rc = split->leaf->create(&split->state, dev, params);
    if (rc == 0)
        *out = split;
    else
        free(split);
    return rc;
}

void split_free(struct split *split)
{
    if (!split)
        return;
    split->leaf->destroy(split->state);
    free(split);
}

int split_memory(struct dev *dev, const struct split_params *params, size_t *bytes)
{
    return dev->leaf->split->memory(dev, params, bytes);
}

int split_sum(struct split *split, const double *at, const float *values, float *grid, const struct listener *listener)
{
    bool finite = true; /* in one quick pass */
    for (size_t i = 0; i < 3 * split->count; i++)
        finite &= fabs(at[i]) < INFINITY;
    for (size_t i = 0; i < 3 * split->count && !finite; i++)
        if (!isfinite(at[i]))
            return err_set(ERR_BAD_PARAMETER, "Point %zu is at %g along axis %zu: positions must be finite.", i / 3,
                           at[i], i % 3);
    return split->leaf->sum(split->state, at, values, grid, listener);
}
