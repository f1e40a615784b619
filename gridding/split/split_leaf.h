/* split_leaf.h: the functions of a kind of device behind split.h. Only split.c and the device leaves include this. */
#ifndef MRIRECON_SPLIT_LEAF_H
#define MRIRECON_SPLIT_LEAF_H

#include "gridding/base/dev_leaf.h"
#include "gridding/split/split.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct split_leaf {
    const char *(*refused)(const struct split_params *params);
    int (*create)(void **state, struct dev *dev, const struct split_params *params);
    void (*destroy)(void *state);
    int (*memory)(struct dev *dev, const struct split_params *params, size_t *bytes);
    int (*sum)(void *state, const double *at, const float *values, float *grid, const struct listener *listener);
};

/* The filter's shape. */
static inline struct filter_shape split_shape(const struct split_params *params)
{
    struct filter_shape shape;
    memcpy(shape.from, params->mesh, sizeof shape.from);
    memcpy(shape.to, params->extended, sizeof shape.to);
    memcpy(shape.kept, params->lattice.cells, sizeof shape.kept);
    return shape;
}

#ifdef __cplusplus
}
#endif
#endif
