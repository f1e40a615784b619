#include "gridding/espirit/espirit.h"

#include "gridding/base/err.h"
#include "gridding/espirit/espirit_leaf.h"

bool espirit_available(const struct dev *dev, const struct espirit_params *params)
{
    return dev->leaf->espirit && dev->leaf->espirit->available(dev, params);
}

size_t espirit_bytes(const struct dev *dev, const struct espirit_params *params)
{
    return espirit_available(dev, params) ? dev->leaf->espirit->bytes(dev, params) : 0;
}

int espirit_estimate(struct dev *dev, const struct espirit_params *params, const struct c32 *images, struct c32 *maps,
                     const struct listener *listener, size_t *support)
{
    return espirit_available(dev, params)
               ? dev->leaf->espirit->estimate(dev, params, images, maps, listener, support)
               : err_set(ERR_NO_DEVICE, "Device %s estimates no ESPIRiT maps of %d coils of %d x %d x %d pixels.",
                         dev->name, params->coils, params->n[0], params->n[1], params->n[2]);
}
