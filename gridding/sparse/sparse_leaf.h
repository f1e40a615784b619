/* sparse_leaf.h: the functions behind sparse.h, for each kind of device. Only gridding/sparse/ includes this. */
#ifndef MRIRECON_SPARSE_LEAF_H
#define MRIRECON_SPARSE_LEAF_H

#include "gridding/base/dev_leaf.h"
#include "gridding/sparse/sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sparse_leaf {
    int (*difference)(struct dev *dev, const int *n, unsigned axes, const struct c32 *x, struct c32 *g);
    int (*difference_adjoint)(struct dev *dev, const int *n, unsigned axes, const struct c32 *v, float a,
                              const struct c32 *g, struct c32 *x);
    int (*tv_step)(struct dev *dev, size_t pixels, int count, float c, const struct c32 *g, float m, struct c32 *p,
                   struct c32 *r);
    int (*wavelet)(struct dev *dev, const int *n, const int *levels, bool inverse, struct c32 *x);
    int (*roll)(struct dev *dev, const int *n, const int *shift, const struct c32 *x, struct c32 *y);
    int (*low_rank)(struct dev *dev, const int *n, const int *block, size_t first, size_t count, float t,
                    struct c32 *x);
};

int sparse_low_rank_cpu(struct dev *dev, const int *n, const int *block, size_t first, size_t count, float t,
                        struct c32 *x);
int sparse_low_rank_gpu(struct dev *dev, const int *n, const int *block, size_t first, size_t count, float t,
                        struct c32 *x);

#ifdef __cplusplus
}
#endif
#endif
