/* sums.h: sums of limited range, for any law (law.h): from points to a grid, from a grid to points, from points to
 * points. The public header of the engine for everything except a NUFFT.
 *
 * Points are put into compact bins: sorted by bin, stably, x fastest; a bin contains exactly its points. A sum reads
 * one contiguous run of points for each row of bins within reach. Bins depend only on positions and serve any number of
 * sums. On a periodic axis every image within reach counts, also if the reach exceeds the box.
 *
 * All sums give the same bits on every run, for any number of threads; those of a CPU and of a GPU agree to float32's
 * rounding, and counts exactly. An object belongs to one thread at a time, and to its device. `values`, `sums` and
 * grids are float32 memory of that device (dev_alloc), positions, `scale` and `counts` the host's. Without such sums on
 * the device (range_available() is false) functions fail with ERR_NO_DEVICE; a CPU device has them.
 *
 * A listener (may be NULL) is called at least every few tens of milliseconds, at any density, and may cancel; a grid or
 * sums are then incomplete.
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

/* The treatment of crowded bins. The CPU ignores this: it always cuts heavy work into parts of a fixed size, which
 * threads share. On a GPU, sums to grids and back use either; sums over pairs and counts always cut. range_partition()
 * makes the second's division explicitly, on any device. */
enum range_excess {
    /* The points near a tile of the grid are cut into parts of at most `depth` (at least 256; auto: 8192), which are
     * summed concurrently and added in a fixed order. */
    RANGE_SPLIT,
    /* The GPU keeps the first `depth` points of each bin, in the order given; the CPU sums the others meanwhile. Auto
     * keeps all, because cutting on the GPU is faster. */
    RANGE_OVERFLOW_CPU
};
enum { RANGE_CELLS_MOST = 1 << 20 };                  /* nodes of an axis, and of a reach */
enum { RANGE_DEPTH_AUTO = 0, RANGE_DEPTH_NONE = -1 }; /* instead of a number of points */

struct range_points_params {
    struct range_box box;
    double reach; /* the largest reach of laws, times scale: determines the size of bins; other reaches are slower, not
                     wrong */
    size_t inputs;
    /* [inputs][dim]: positions, in the unit of box.spacing: one of the two, the other NULL. Doubles keep digits that
     * float32 positions lose in a box of 1e6 reaches; pairs are then slower (docs/notebook/cpu.md). A point outside the
     * box on a periodic axis is wrapped into it, which rounds its coordinate once. */
    const float *at;
    const double *at_double;
    const float
        *scale; /* [inputs], > 0; NULL: all 1. A point of scale s contributes law(r / s), and reaches s times as far */
    int bin_depth; /* > 0, or one of RANGE_DEPTH_ */
    enum range_excess overflow;
};

/* The arrays are read during the call only. Fails with ERR_BAD_PARAMETER (an invalid box or point), ERR_NO_MEMORY,
 * ERR_GPU_OOM, ERR_NO_DEVICE, and as the listener. */
int range_points_create(struct range_points **out, struct dev *dev, const struct range_points_params *params,
                        const struct listener *listener);

/* The most bytes that points and their sums will allocate, before anything is. Depends on the members box, reach and
 * inputs of `params`, and on which arrays are given (not on their contents). The caller's own arrays (positions,
 * values, grids) are not counted. */
struct range_memory {
    size_t create; /* during creation */
    size_t points; /* of the points afterwards */
    /* Additional memory of a sum while it runs; for pairs: between two such sets, with any laws. */
    size_t scatter, gather, pairs, count;
};
int range_memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory);
void range_points_free(struct range_points *points);

struct range_points_info {
    size_t inputs, count; /* points given, and contained: fewer after range_partition() */
    size_t bins, occupied_bins, largest_bin;
    size_t bytes; /* in use */
};
void range_points_info(const struct range_points *points, struct range_points_info *info);

/* Split points into those within the depth of their bins (the first `depth` of each, in the order given) and the rest:
 * the sums of both add up to the sum of all. Values keep the indices of the original points. Fails with ERR_NO_MEMORY,
 * ERR_GPU_OOM. */
int range_partition(const struct range_points *all, size_t depth, struct range_points **kept,
                    struct range_points **rest);

/* grid[channels][z][y][x] += the sum over points of law(node - point) values[channels][inputs]. Whether a node lies
 * within reach is decided in double precision. Fails with ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE, as all below, and as
 * the listener. */
int range_scatter(const struct range_points *points, const struct range_law *law, int channels, const float *values,
                  float *grid, const struct listener *listener);

/* As range_scatter(), but grid = the sum: what the grid held before is not read. A GPU then moves half the bytes. */
int range_scatter_set(const struct range_points *points, const struct range_law *law, int channels, const float *values,
                      float *grid, const struct listener *listener);

/* values[channels][inputs] = the sum over nodes of law(node - point) grid[channels][z][y][x]: the transpose. Values of
 * points that are not contained do not change. */
int range_gather(const struct range_points *points, const struct range_law *law, int channels, const float *grid,
                 float *values, const struct listener *listener);

/* The sums over pairs: both if both laws are given, in one pass if they agree in reach, least, soft and spline. For
 * each point i of `to`, over the points j of `from` except itself (if from == to): scalars[channels][inputs of to]
 * = sum_j law(r_ij) values_j vectors[channels][dim][inputs of to] = sum_j law(r_ij) values_j (position j - position i)
 */
struct range_pair_sums {
    const struct range_law *scalar_law, *vector_law; /* NULL: not computed. Radial, inverse or short */
    float *scalars, *vectors;
};

/* values[channels][inputs of from]. Both sets have the same box. A law is scaled by j's scale. Differences of positions
 * are taken with a relative error of 2^-23; whether a pair lies within reach is decided in float32. */
int range_pairs(const struct range_points *to, const struct range_points *from, const struct range_pair_sums *sums,
                int channels, const float *values, const struct listener *listener);

enum { RANGE_EDGES_MOST = 32768 };

/* counts[edges - 1] += the number of pairs (i of `to`, j of `from`, both orders, no point with itself) whose distance
 * is in [edge[b], edge[b + 1]), decided exactly, in double precision. edge[2 .. RANGE_EDGES_MOST]: ascending, the first
 * >= 0. Counts are unchanged after a failure. */
int range_count(const struct range_points *to, const struct range_points *from, int edges, const double *edge,
                uint64_t *counts, const struct listener *listener);

#ifdef __cplusplus
}
#endif
#endif
