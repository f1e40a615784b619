/* espirit_leaf.h: the functions behind espirit.h, for each kind of device. Only gridding/espirit/ includes this. */
#ifndef MRIRECON_ESPIRIT_LEAF_H
#define MRIRECON_ESPIRIT_LEAF_H

#include "gridding/base/dev_leaf.h"
#include "gridding/espirit/espirit.h"

#ifdef __cplusplus
extern "C" {
#endif

struct espirit_leaf {
    bool (*available)(const struct dev *dev, const struct espirit_params *params);
    size_t (*bytes)(const struct dev *dev, const struct espirit_params *params);
    int (*estimate)(struct dev *dev, const struct espirit_params *params, const struct c32 *images, struct c32 *maps,
                    const struct listener *listener, size_t *support);
};

#ifdef __cplusplus
}
#endif
#endif
