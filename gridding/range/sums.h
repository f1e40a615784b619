/* sums.h: sums of limited range, for any law (law.h): from points to a grid, from a grid to points, from points to
 * points. The door of the engine for what is not a NUFFT.
 *
 * Points are put into compact bins: sorted by bin, stably, x fastest; a bin holds exactly its points. Who sums reads
 * for each row of bins within reach one contiguous run of points. Bins depend on positions alone and serve any number
 * of sums. On a periodic axis every image within reach counts, also where the reach exceeds the box.
 *
 * All sums give the same bits on every run, for any number of threads; those of a CPU and of a GPU agree to float32's
 * rounding, and counts exactly. An object belongs to one thread at a time, and to its device. `values`, `sums` and
 * grids are float32 memory of that device (dev_alloc), positions, `scale` and `counts` the host's. A device without
 * such sums (range_available() is false) refuses with ERR_NO_DEVICE; a CPU device beside it has them.
 *
 * A listener (NULL: none) hears of progress at least every few tens of milliseconds, at any density, and may end the
 * work; a grid or sums are then half written.
 */
#ifndef MRIRECON_SUMS_H
#define MRIRECON_SUMS_H

#include "gridding/base/dev.h"
#include "gridding/base/listener.h"
#include "gridding/range/box.h"
#include "gridding/range/law.h"

#ifdef __cplusplus
extern "C" {
#endif

bool range_available(const struct dev *dev);

struct range_points;

/* What becomes of what is heavy. On the CPU no bin has a depth and neither choice changes anything: its leaf cuts
 * whatever is heavy into parts of a fixed size, which threads share. On a GPU, sums to grids and back take either;
 * sums over pairs and counts cut what is heavy by themselves. range_partition() is the second's cut by hand, on any
 * device. */
enum range_excess {
    /* The points near a tile of the grid are cut into parts of at most `depth` (at least 256; auto: 8192), which are
     * summed side by side and added in one order. */
    RANGE_SPLIT,
    /* Of each bin the GPU keeps the first `depth` points, in the order given; the CPU sums the others meanwhile. Auto
     * keeps all: a GPU cuts them sooner than a CPU sums them. */
    RANGE_OVERFLOW_CPU
};
enum { RANGE_DEPTH_AUTO = 0, RANGE_DEPTH_NONE = -1 }; /* instead of a number of points */

struct range_points_params {
    struct range_box box;
    double reach; /* the largest that laws will have, times scale: it sizes the bins; others are slower, not wrong */
    size_t inputs;
    /* [inputs][dim]: positions, in the unit of box.spacing: one of the two, the other NULL. As doubles they keep every
     * digit: what float32 positions lose in a box of 1e6 reaches. Pairs are slower then (docs/notebook/cpu.md). A point
     * outside the box on a periodic axis is brought into it, which rounds its coordinate once. */
    const float *at;
    const double *at_double;
    const float *scale; /* [inputs], > 0; NULL: all 1. A point of scale s gives law(r / s): it reaches s times as far */
    int bin_depth;      /* > 0, or one of RANGE_DEPTH_ */
    enum range_excess overflow;
};

/* The arrays are read during the call only. Fails with ERR_BAD_PARAMETER (a box or a point that is no such thing),
 * ERR_NO_MEMORY, ERR_GPU_OOM, ERR_NO_DEVICE, and as the listener. */
int range_points_create(struct range_points **out, struct dev *dev, const struct range_points_params *params,
                        const struct listener *listener);

/* The most bytes that points and their sums will allocate, told before anything is: of `params`, box, reach, inputs and
 * which arrays there are (not what they hold). What the caller brings (positions, values, grids) is not counted. */
struct range_memory {
    size_t create; /* while points are made */
    size_t points; /* that they hold afterwards */
    /* That a sum takes beside, for as long as it lasts; of pairs: between two such sets, by any laws. */
    size_t scatter, gather, pairs, count;
};
int range_memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory);
void range_points_free(struct range_points *points);

struct range_points_info {
    size_t inputs, count; /* points given, and of these held: fewer after range_partition() */
    size_t bins, occupied_bins, largest_bin;
    size_t bytes; /* held */
};
void range_points_info(const struct range_points *points, struct range_points_info *info);

/* What bins of a depth hold (the first `depth` points of each, in the order given) and the rest, as points of their
 * own: two sums of parts are the sum of all. Values keep the places of the original points. Fails with ERR_NO_MEMORY,
 * ERR_GPU_OOM. */
int range_partition(const struct range_points *all, size_t depth, struct range_points **kept,
                    struct range_points **rest);

/* grid[channels][z][y][x] += the sum over points of law(node - point) values[channels][inputs]. Whether a node lies
 * within reach is decided in double precision. Fails with ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE, as all below, and as
 * the listener. */
int range_scatter(const struct range_points *points, const struct range_law *law, int channels, const float *values,
                  float *grid, const struct listener *listener);

/* values[channels][inputs] = the sum over nodes of law(node - point) grid[channels][z][y][x]: the transpose. Places of
 * points that are not held stay as they are. */
int range_gather(const struct range_points *points, const struct range_law *law, int channels, const float *grid,
                 float *values, const struct listener *listener);

/* What is summed over pairs: both, if both laws are given, and then in one pass if they agree in reach, least, soft and
 * spline. For each point i of `to`, over the points j of `from` but itself (where from == to): scalars[channels][inputs
 * of to]      = sum_j law(r_ij) values_j vectors[channels][dim][inputs of to] = sum_j law(r_ij) values_j (position j -
 * position i) */
struct range_pair_sums {
    const struct range_law *scalar_law, *vector_law; /* NULL: not wanted. Radial, inverse or short */
    float *scalars, *vectors;
};

/* values[channels][inputs of from]. Both sets have one box. A law is scaled by j's scale. Differences of positions are
 * taken with a relative error of 2^-23; whether a pair lies within reach is decided in float32. */
int range_pairs(const struct range_points *to, const struct range_points *from, const struct range_pair_sums *sums,
                int channels, const float *values, const struct listener *listener);

enum { RANGE_EDGES_MOST = 32768 };

/* counts[edges - 1] += the pairs (i of `to`, j of `from`, each order counting, but no point with itself) whose distance
 * lies in [edge[b], edge[b + 1]), decided in double precision: exact. edge[2 .. RANGE_EDGES_MOST]: rising, the first >=
 * 0. Adds nothing if it fails. */
int range_count(const struct range_points *to, const struct range_points *from, int edges, const double *edge,
                uint64_t *counts, const struct listener *listener);

#ifdef __cplusplus
}
#endif
#endif
