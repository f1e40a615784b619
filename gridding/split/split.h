/* split.h: sums of points to a lattice by a law in two parts: near(r), of short range, and smooth(r), whose waves a
 * mesh has.
 *
 * As in particle-mesh methods (Hockney and Eastwood, doi:10.1201/9780367806934): values are spread on the mesh by a
 * window; the mesh's FFT is multiplied by factors, the transform of smooth() over that of the window; the FFT back, of
 * as many nodes as the lattice has in the mesh's box, gives the smooth part. The near part is added directly.
 *
 * All sums give the same bits on every run, for any number of threads; those of a CPU and of a GPU agree to float32's
 * rounding. An object belongs to one thread at a time, and to its device. Lengths are in the unit of the lattice's
 * spacing. */
#ifndef MRIRECON_SPLIT_H
#define MRIRECON_SPLIT_H

#include "gridding/base/dev.h"
#include "gridding/base/listener.h"
#include "gridding/fft/filter.h"
#include "gridding/range/box.h"
#include "gridding/range/law.h"

#ifdef __cplusplus
extern "C" {
#endif

struct split;

struct split_params {
    struct range_box lattice; /* three-dimensional, its origin 0 */
    /* Nodes of the mesh, and of the lattice, in the periodic box of both: along an open axis the lattice's nodes are
     * continued, so that no point reaches around it. Products of 2, 3, 5 and 7 (split_serves()). */
    int mesh[3], extended[3];
    struct range_law window; /* RANGE_SEPARABLE */
    struct range_law near;   /* of any other form */
    struct filter_factors factors;
    double exclusion; /* nodes nearer than this to a point whose value is not 0 are 0; 0: none */
    size_t count;     /* of points */
};

/* Whether the device has sums of this shape. A phrase for the report, or NULL if it has. */
const char *split_refused(const struct dev *dev, const struct split_params *params);

/* The tables of the factors are copied. Fails with ERR_NO_DEVICE, ERR_BAD_PARAMETER, ERR_NO_MEMORY, ERR_GPU_OOM. */
int split_create(struct split **out, struct dev *dev, const struct split_params *params);
void split_free(struct split *split);

/* The most bytes of the device that a split and its sums take; neither tables of `factors` nor laws are read, apart
 * from their reach. */
int split_memory(struct dev *dev, const struct split_params *params, size_t *bytes);

/* The stages of a sum on a GPU, of which the listener is told as progress: `done` of SPLIT_STAGES. A CPU tells it of
 * 100 parts. */
enum { SPLIT_POINTS, SPLIT_BINS, SPLIT_SPREAD, SPLIT_FILTER, SPLIT_NEAR = SPLIT_FILTER + 5, SPLIT_STAGES };

/* grid[z][y][x] of the lattice = the sum over the points at at[count][3] (host memory) with values[count]; values and
 * grid are the device's. The listener may cancel, and is called at least between stages. Fails as it, and with
 * ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE. */
int split_sum(struct split *split, const double *at, const float *values, float *grid, const struct listener *listener);

#ifdef __cplusplus
}
#endif
#endif
