/* sums_leaf.h: the functions of a kind of device behind sums.h, which has checked all parameters. Only sums.c and the
 * device leaves include this. */
#ifndef MRIRECON_SUMS_LEAF_H
#define MRIRECON_SUMS_LEAF_H

#include "gridding/range/sums.h"

#ifdef __cplusplus
extern "C" {
#endif

struct range_leaf {
    int (*create)(void **state, struct dev *dev, const struct range_points_params *params,
                  const struct listener *listener);
    void (*destroy)(void *state);
    void (*memory)(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory);
    void (*info)(const void *state, struct range_points_info *info);
    int (*partition)(const void *state, size_t depth, void **kept, void **rest);
    int (*scatter)(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                   const struct listener *listener);
    /* Instead of adding to the grid. */
    int (*scatter_set)(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                       const struct listener *listener);
    int (*gather)(const void *state, const struct range_law *law, int channels, const float *grid, float *values,
                  const struct listener *listener);
    /* If both laws are given, they agree in reach, least, soft and spline. */
    int (*pairs)(const void *to, const void *from, const struct range_pair_sums *sums, int channels,
                 const float *values, const struct listener *listener);
    int (*count)(const void *to, const void *from, int edges, const double *edge, uint64_t *counts,
                 const struct listener *listener);
};

#ifdef __cplusplus
}
#endif
#endif
