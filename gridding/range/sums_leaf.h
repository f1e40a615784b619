/* sums_leaf.h: what a kind of device must bring for sums.h, which has checked all parameters. Only sums.c and the
 * device leaves include this. */
#ifndef MRIRECON_SUMS_LEAF_H
#define MRIRECON_SUMS_LEAF_H

#include "gridding/range/sums.h"

#ifdef __cplusplus
extern "C" {
#endif

struct range_leaf {
    int (*create)(void **state, struct dev *dev, const struct range_box *box, double reach, size_t inputs,
                  const float *at, const float *scale);
    void (*destroy)(void *state);
    void (*info)(const void *state, struct range_points_info *info);
    int (*partition)(const void *state, size_t depth, void **kept, void **rest);
    int (*scatter)(const void *state, const struct range_law *law, int channels, const float *values, float *grid);
    int (*gather)(const void *state, const struct range_law *law, int channels, const float *grid, float *values);
    int (*pairs)(const void *to, const void *from, const struct range_law *law, bool vectors, int channels,
                 const float *values, float *sums);
    int (*count)(const void *to, const void *from, int edges, const double *edge, uint64_t *counts);
};

#ifdef __cplusplus
}
#endif
#endif
