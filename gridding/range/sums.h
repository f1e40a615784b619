/* sums.h: sums of limited range, for any law (law.h): from points to a grid, from a grid to points, from points to
 * points. The door of the engine for what is not a NUFFT.
 *
 * Points are put into compact bins: sorted by bin, stably, x fastest; a bin holds exactly its points. Who sums reads
 * for each row of bins within reach one contiguous run of points. Bins depend on positions alone and serve any number
 * of sums. On a periodic axis every image within reach counts, also where the reach exceeds the box.
 *
 * All sums give the same bits for any number of threads. An object belongs to one thread at a time, and to its device.
 * `values` and grids are float32 memory of that device (dev_alloc), `at`, `scale` and `counts` the host's. A device
 * without such sums (range_available() is false) refuses with ERR_NO_DEVICE.
 */
#ifndef MRIRECON_SUMS_H
#define MRIRECON_SUMS_H

#include "gridding/base/dev.h"
#include "gridding/range/box.h"
#include "gridding/range/law.h"

#ifdef __cplusplus
extern "C" {
#endif

bool range_available(const struct dev *dev);

struct range_points;

/* at[inputs][dim]: positions, in the unit of box->spacing. A point on a periodic axis outside the box is brought into
 * it, which rounds its coordinate once. scale[inputs] (> 0; NULL: all 1): a point of scale s gives law(r / s), so that
 * it reaches s times the law's reach. `reach`: the largest that laws will have, times scale: it sizes the bins, and
 * other reaches are slower, not wrong. Both arrays are copied.
 * Fails with ERR_BAD_PARAMETER (a box or a point that is no such thing), ERR_NO_MEMORY, ERR_GPU_OOM, ERR_NO_DEVICE. */
int range_points_create(struct range_points **out, struct dev *dev, const struct range_box *box, double reach,
                        size_t inputs, const float *at, const float *scale);
void range_points_free(struct range_points *points);

struct range_points_info {
    size_t inputs, count; /* points given, and of these held: fewer after range_partition() */
    size_t bins, occupied_bins, largest_bin;
    size_t bytes;
};
void range_points_info(const struct range_points *points, struct range_points_info *info);

/* What bins of a depth hold (the first `depth` points of each, in the order given) and the rest, as points of their
 * own: two sums of parts are the sum of all. Values keep the places of the original points. Fails with ERR_NO_MEMORY,
 * ERR_GPU_OOM. */
int range_partition(const struct range_points *all, size_t depth, struct range_points **kept,
                    struct range_points **rest);

/* grid[channels][z][y][x] += the sum over points of law(node - point) values[channels][inputs]. Whether a node lies
 * within reach is decided in double precision. Fails with ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE, as all below. */
int range_scatter(const struct range_points *points, const struct range_law *law, int channels, const float *values,
                  float *grid);

/* values[channels][inputs] = the sum over nodes of law(node - point) grid[channels][z][y][x]: the transpose. Places of
 * points that are not held stay as they are. */
int range_gather(const struct range_points *points, const struct range_law *law, int channels, const float *grid,
                 float *values);

/* For each point i of `to`, over the points j of `from` but itself (where from == to): sums[channels][inputs of to] =
 * sum_j law(r_ij) values[channels][inputs of from]; or, with vectors, sums[channels][dim][inputs of to] = sum_j
 * law(r_ij) values_j (position j - position i). The law is scaled by j's scale. Both sets have one box. Whether a pair
 * lies within reach is decided in float32. */
int range_pairs(const struct range_points *to, const struct range_points *from, const struct range_law *law,
                bool vectors, int channels, const float *values, float *sums);

/* counts[edges - 1] += the pairs (i of `to`, j of `from`, each order counting, but no point with itself) whose distance
 * lies in [edge[b], edge[b + 1]), decided in double precision: exact. edge[edges]: rising, the first >= 0. */
int range_count(const struct range_points *to, const struct range_points *from, int edges, const double *edge,
                uint64_t *counts);

#ifdef __cplusplus
}
#endif
#endif
