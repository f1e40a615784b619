#include "gridding/base/vec.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

bool vec_available(const struct dev *dev)
{
    return dev->leaf->vec;
}

static int missing(const struct dev *dev)
{
    return err_set(ERR_NO_DEVICE, "Device %s has no vector arithmetic, which iterative methods need.", dev->name);
}

int vec_zero(struct dev *dev, size_t n, struct c32 *x)
{
    return vec_available(dev) ? dev->leaf->vec->zero(dev, n, x) : missing(dev);
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

int vec_size_sum(struct dev *dev, size_t n, const struct c32 *x, double *sum)
{
    return vec_available(dev) ? dev->leaf->vec->size_sum(dev, n, x, sum) : missing(dev);
}

int vec_multiply(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    return vec_available(dev) ? dev->leaf->vec->multiply(dev, n, count, m, x, y) : missing(dev);
}

int vec_multiply_conj_add(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y, struct c32 *x)
{
    return vec_available(dev) ? dev->leaf->vec->multiply_conj_add(dev, n, count, m, y, x) : missing(dev);
}

int vec_multiply_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *x, struct c32 *y)
{
    return vec_available(dev) ? dev->leaf->vec->multiply_each(dev, n, count, m, x, y) : missing(dev);
}

int vec_multiply_conj_add_each(struct dev *dev, size_t n, int count, const struct c32 *m, const struct c32 *y,
                               struct c32 *x)
{
    return vec_available(dev) ? dev->leaf->vec->multiply_conj_add_each(dev, n, count, m, y, x) : missing(dev);
}

int vec_wave(struct dev *dev, size_t n, double a, const float *f, struct c32 *y)
{
    return vec_available(dev) ? dev->leaf->vec->wave(dev, n, a, f, y) : missing(dev);
}

int vec_squares_add(struct dev *dev, size_t n, int count, const struct c32 *x, float *squares)
{
    return vec_available(dev) ? dev->leaf->vec->squares_add(dev, n, count, x, squares) : missing(dev);
}

int vec_soft(struct dev *dev, size_t n, float t, struct c32 *x)
{
    return vec_available(dev) ? dev->leaf->vec->soft(dev, n, t, x) : missing(dev);
}
