/* rival_range.h: the thesis' three other applications, on the bins of rival.h: the Coulombic potential on a lattice,
 * Blinn's blobs on a lattice, forces between bodies.
 *
 * Lengths are in bins. A source is a struct rival_sample: `re` is its charge, 1, or its mass; `density` is 1 / R^2 for
 * a blob of radius R, otherwise 1. Node (x, y, z) of a lattice of `nodes` nodes per bin lies at (x, y, z) / nodes. A
 * block owns a tile of 8 x 8 x 8 nodes and finds the bins within its reach by a list of rows, relative to its own first
 * bin, in constant memory (lecture): all tiles have the same list. Bodies share no tile: each thread reads the bins
 * around its own body from global memory (section 3.4 of the thesis).
 *
 * This header is compiled by both compilers: rival_range_cpu.c visits the same rows with the same functions as the
 * kernels of rival_range.cu, so that tests/unit/test_rival_range.c tests lists, bins and terms without a GPU. */
#ifndef MRIRECON_RIVAL_RANGE_H
#define MRIRECON_RIVAL_RANGE_H

#include "tests/bench/rival.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RIVAL_TILE = 8,       /* nodes of a tile per axis */
    RIVAL_COARSE = 4,     /* nodes along y per thread (lecture: register coarsening) */
    RIVAL_ROWS_MOST = 512 /* rows of a list */
};

enum rival_law {
    RIVAL_POTENTIAL, /* q / r (1 - r^2 / reach^2)^2 */
    RIVAL_BLOB,      /* exp(blobbiness (r^2 / R^2 - 1)), to r = cut R */
    RIVAL_FORCE      /* m d / (r^2 + soft^2)^(3/2), d the vector to the source */
};

/* One application: the terms that are summed, and the bins. */
struct rival_sum {
    enum rival_law law;
    int grid;  /* bins per axis */
    int nodes; /* nodes of the lattice per bin and axis: a divisor of RIVAL_TILE; 0 for RIVAL_FORCE */
    float reach;
    float blobbiness, cut; /* for RIVAL_BLOB */
    float soft;            /* for RIVAL_FORCE */
};

/* Bins (from .. to, y, z), inclusive, relative to a tile's first bin. */
struct rival_row {
    short y, z, from, to;
};

struct rival_rows {
    int count;
    struct rival_row row[RIVAL_ROWS_MOST];
};

/* How the bins around a tile are chosen. */
enum rival_choice {
    RIVAL_SPHERE, /* those that a node of the tile can reach */
    RIVAL_BOX     /* all bins of the box around them */
};

/* The contribution of a source of strength q at a squared distance r2 > 0: a value, or for RIVAL_FORCE the factor of
 * the vector to it. */
RIVAL_BOTH float rival_term(const struct rival_sum *of, enum rival_law law, float r2, float q, float per_radius2)
{
    const float reach2 = of->reach * of->reach;
    if (law == RIVAL_POTENTIAL) {
        const float t = 1 - r2 / reach2;
        return t > 0 ? q * (1 / sqrtf(r2)) * t * t : 0;
    }
    if (law == RIVAL_BLOB) {
        const float u2 = r2 * per_radius2;
        return u2 < of->cut * of->cut ? q * expf(of->blobbiness * (u2 - 1)) : 0;
    }
    const float soft2 = r2 + of->soft * of->soft;
    return r2 < reach2 ? q / (soft2 * sqrtf(soft2)) : 0;
}

/* The cylinder test of the lecture: whether a source misses all nodes of a thread, which differ only in y. */
RIVAL_BOTH bool rival_misses(const struct rival_sum *of, float dx, float dz)
{
    return dx * dx + dz * dz >= of->reach * of->reach;
}

/* The part of a row that lies inside the grid, for the tile whose first bin is (x, y, z); to < from if there is
 * none. */
struct rival_run {
    size_t row; /* number of the row's bin at x = 0 */
    int from, to;
};

RIVAL_BOTH struct rival_run rival_run_of(int grid, const struct rival_row *row, int x, int y, int z)
{
    const int at_y = y + row->y, at_z = z + row->z;
    struct rival_run run = {0, 0, -1};
    if (at_y < 0 || at_y >= grid || at_z < 0 || at_z >= grid)
        return run;
    run.row = ((size_t)at_z * (size_t)grid + (size_t)at_y) * (size_t)grid;
    run.from = x + row->from > 0 ? x + row->from : 0;
    run.to = x + row->to < grid - 1 ? x + row->to : grid - 1;
    return run;
}

/* The bins that reach a position along one axis. */
RIVAL_BOTH int rival_lowest(const struct rival_sum *of, float at)
{
    const int bin = (int)floorf(at - of->reach);
    return bin > 0 ? bin : 0;
}

RIVAL_BOTH int rival_highest(const struct rival_sum *of, float at)
{
    const int bin = (int)floorf(at + of->reach);
    return bin < of->grid - 1 ? bin : of->grid - 1;
}

/* data sets and their expected results: rival_range_set.c */

struct rival_range_set {
    const char *name, *what;
    struct rival_sum sum;
    size_t samples;
    int margin;       /* empty bins around the sources */
    size_t piled;     /* sources in a single bin */
    double deviation; /* standard deviation of Gaussian sets, in bins per axis; 0: uniform */
};

/* The sets by name; the last has no name. The numbers of sources and bins are those of the thesis' tables 2 to 4. */
const struct rival_range_set *rival_range_sets(void);

/* Fill [samples], from fixed seeds. */
void rival_range_fill(const struct rival_range_set *set, struct rival_sample *samples);

/* The columns of tables 2 to 4. Fails with ERR_NO_MEMORY. */
struct rival_statistics {
    size_t bins, least, most;
    double mean, deviation;
};
int rival_statistics_make(struct rival_statistics *out, int grid, const struct rival_sample *samples, size_t count);

/* The rows of a lattice's tiles. Fails with ERR_BAD_PARAMETER (more than RIVAL_ROWS_MOST). */
int rival_rows_make(struct rival_rows *rows, const struct rival_sum *of, enum rival_choice choice);

/* Number of sums: for lattices one float per node, x fastest; for forces [samples][3]. */
size_t rival_outputs(const struct rival_sum *of, size_t samples);

/* Outputs at which results are compared with double precision: indices of nodes or bodies, ascending. */
struct rival_check {
    const struct rival_sum *sum;
    const struct rival_sample *samples; /* owned by the caller, which keeps it */
    size_t count, outputs;
    int parts;      /* floats per output: 1 or 3 */
    size_t *output; /* [outputs] */
    double *exact;  /* [outputs][parts] */
};

/* Fails with ERR_NO_MEMORY. */
int rival_check_create(struct rival_check **out, const struct rival_sum *sum, const struct rival_sample *samples,
                       size_t count, size_t wanted);
void rival_check_free(struct rival_check *check);

/* The relative l2 error of found[outputs][parts] plus the double sums over `rest[rest_count]`, the sources that were
 * not gathered. NAN: no memory. */
double rival_check_error(const struct rival_check *check, const float *found, const struct rival_sample *rest,
                         size_t rest_count);

/* ---- the CPU: rival_range_cpu.c ---- */

/* sums: the same computation as the GPU's gather, tile by tile or body by body (of `samples[count]`). `access` is
 * RIVAL_BIN_COUNT or RIVAL_ROW; `rows` is used for lattices. */
void rival_range_gather(const struct rival_bins *bins, enum rival_access access, const struct rival_sum *of,
                        const struct rival_rows *rows, const struct rival_sample *samples, size_t count, float *sums);

/* ---- the project's own engine: rival_range_engine.c ---- */

struct dev;
struct rival_engine;

/* Bins of `sources`, and memory for the sums, on `dev`. Forces act on `bodies[count]`. Fails with ERR_NO_MEMORY,
 * ERR_GPU_OOM, ERR_DEVICE, as the next two. */
int rival_engine_create(struct rival_engine **out, struct dev *dev, const struct rival_sum *of,
                        const struct rival_sample *sources, size_t source_count, const struct rival_sample *bodies,
                        size_t count);
void rival_engine_free(struct rival_engine *engine);

/* Compute the sums, then copy them to sums[outputs] in a gather's layout. */
int rival_engine_sum(struct rival_engine *engine);
int rival_engine_fetch(struct rival_engine *engine, float *sums);

#ifdef __cplusplus
}
#endif
#endif
