#include "gridding/base/vec_cg.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

static int missing(const struct dev *dev)
{
    return err_set(ERR_NO_DEVICE, "Device %s has no vector arithmetic, which iterative methods need.", dev->name);
}

int vec_cg_begin(struct dev *dev, const struct vec_cg *cg, const struct c32 *b)
{
    return dev->leaf->vec ? dev->leaf->vec->cg_begin(dev, cg, b) : missing(dev);
}

int vec_cg_step(struct dev *dev, const struct vec_cg *cg)
{
    return dev->leaf->vec ? dev->leaf->vec->cg_step(dev, cg) : missing(dev);
}
