#include "gridding/base/vec.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

bool vec_available(const struct dev *dev)
{
    return dev->leaf->vec;
}

static int missing(const struct dev *dev)
{
    return err_set(ERR_NO_DEVICE, "Device %s has no vector arithmetic: iterative methods run on the CPU.", dev->name);
}

int vec_copy(struct dev *dev, size_t n, const struct c32 *x, struct c32 *y)
{
    return vec_available(dev) ? dev->leaf->vec->copy(dev, n, x, y) : missing(dev);
}

int vec_axpy(struct dev *dev, size_t n, float a, const struct c32 *x, struct c32 *y)
{
    return vec_available(dev) ? dev->leaf->vec->axpy(dev, n, a, x, y) : missing(dev);
}

int vec_xpay(struct dev *dev, size_t n, const struct c32 *x, float a, struct c32 *y)
{
    return vec_available(dev) ? dev->leaf->vec->xpay(dev, n, x, a, y) : missing(dev);
}

int vec_scale(struct dev *dev, size_t n, float a, struct c32 *x)
{
    return vec_available(dev) ? dev->leaf->vec->scale(dev, n, a, x) : missing(dev);
}

int vec_dot(struct dev *dev, size_t n, const struct c32 *x, const struct c32 *y, double *dot)
{
    return vec_available(dev) ? dev->leaf->vec->dot(dev, n, x, y, dot) : missing(dev);
}

int vec_multiply(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    return vec_available(dev) ? dev->leaf->vec->multiply(dev, n, count, m, x, y) : missing(dev);
}

int vec_multiply_conj_add(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y, struct c32 *x)
{
    return vec_available(dev) ? dev->leaf->vec->multiply_conj_add(dev, n, count, m, y, x) : missing(dev);
}

int vec_soft(struct dev *dev, size_t n, float t, struct c32 *x)
{
    return vec_available(dev) ? dev->leaf->vec->soft(dev, n, t, x) : missing(dev);
}
