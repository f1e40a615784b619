#include "gridding/base/err.h"
#include "gridding/sparse/sparse_leaf.h"

bool sparse_available(const struct dev *dev)
{
    return dev->leaf->sparse;
}

static int missing(const struct dev *dev)
{
    return err_set(ERR_NO_DEVICE, "Device %s has no wavelets and differences, which iterative methods need.",
                   dev->name);
}

int sparse_difference(struct dev *dev, const int n[SPARSE_AXES], unsigned axes, const struct c32 *x, struct c32 *g)
{
    return sparse_available(dev) ? dev->leaf->sparse->difference(dev, n, axes, x, g) : missing(dev);
}

int sparse_difference_adjoint(struct dev *dev, const int n[SPARSE_AXES], unsigned axes, const struct c32 *v, float a,
                              const struct c32 *g, struct c32 *x)
{
    return sparse_available(dev) ? dev->leaf->sparse->difference_adjoint(dev, n, axes, v, a, g, x) : missing(dev);
}

int sparse_tv_step(struct dev *dev, size_t pixels, int count, float c, const struct c32 *g, float m, struct c32 *p,
                   struct c32 *r)
{
    return sparse_available(dev) ? dev->leaf->sparse->tv_step(dev, pixels, count, c, g, m, p, r) : missing(dev);
}

int sparse_wavelet(struct dev *dev, const int n[SPARSE_AXES], const int levels[SPARSE_AXES], struct c32 *x)
{
    return sparse_available(dev) ? dev->leaf->sparse->wavelet(dev, n, levels, false, x) : missing(dev);
}

int sparse_wavelet_inverse(struct dev *dev, const int n[SPARSE_AXES], const int levels[SPARSE_AXES], struct c32 *x)
{
    return sparse_available(dev) ? dev->leaf->sparse->wavelet(dev, n, levels, true, x) : missing(dev);
}

int sparse_roll(struct dev *dev, const int n[SPARSE_AXES], const int shift[SPARSE_AXES], const struct c32 *x,
                struct c32 *y)
{
    return sparse_available(dev) ? dev->leaf->sparse->roll(dev, n, shift, x, y) : missing(dev);
}

size_t sparse_blocks(const int n[SPARSE_AXES], const int block[3])
{
    size_t blocks = 1;
    for (int d = 0; d < 3; d++)
        blocks *= (size_t)((n[d] + block[d] - 1) / block[d]);
    return blocks;
}

int sparse_low_rank(struct dev *dev, const int n[SPARSE_AXES], const int block[3], size_t first, size_t count, float t,
                    struct c32 *x)
{
    if (!sparse_available(dev))
        return missing(dev);
    if ((int64_t)block[0] * block[1] * block[2] > SPARSE_BLOCK_MOST)
        return err_set(ERR_BAD_PARAMETER, "Blocks of %d x %d x %d pixels are too large: they hold at most %d pixels.",
                       block[0], block[1], block[2], SPARSE_BLOCK_MOST);
    return t > 0 && count > 0 ? dev->leaf->sparse->low_rank(dev, n, block, first, count, t, x) : 0;
}
