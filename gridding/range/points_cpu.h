/* points_cpu.h: the CPU's points in bins, and its functions behind sums.h. Only the CPU's leaf includes this. */
#ifndef MRIRECON_POINTS_CPU_H
#define MRIRECON_POINTS_CPU_H

#include "gridding/range/point_bins.h"
#include "gridding/range/sums_leaf.h"
#include "gridding/range/watch.h"

enum { POINTS_PADDING = 16 }; /* floats after an array, for reads of whole vectors */

struct points_cpu {
    struct range_box box;
    int threads;
    size_t inputs, count;
    int bins[3];    /* along each axis; 1 from dim on */
    double edge[3]; /* of a bin; the outermost bins of an open axis include all points outside */
    size_t all, occupied, largest;
    uint32_t *first;  /* [all + 1] */
    void *room;       /* one allocation for the arrays below, in the order of bins: [count + padding] each */
    float *at[3];     /* NULL from dim on, and if positions were given as doubles .. */
    double *fine[3];  /* .. which are then here */
    float *scale;     /* NULL: all 1 */
    uint32_t *source; /* [count]: index in the input */
    float widest;     /* the largest scale */
};

int points_cpu_create(void **state, struct dev *dev, const struct range_points_params *params,
                      const struct listener *listener);
void points_cpu_destroy(void *state);
void points_cpu_info(const void *state, struct range_points_info *info);
int points_cpu_partition(const void *state, size_t depth, void **kept, void **rest);

/* Upper bounds of the bytes of points, and of their creation; allocations are rounded up. */
enum { POINTS_ROUNDING = 8192 };
void points_cpu_memory(const struct range_points_params *params, struct range_memory *memory);

static inline double points_cpu_at(const struct points_cpu *p, int d, size_t i)
{
    return p->fine[d] ? p->fine[d][i] : (double)p->at[d][i];
}

/* The bins of axis d that [low, high] (positions) touches (point_bins.h). */
struct bin_span points_cpu_span(const struct points_cpu *points, int d, double low, double high);

/* The points of bins [from, to] (of one image, wrapped) of the row (y, z): the run [*first, *last) */
static inline void points_cpu_run(const struct points_cpu *p, long from, long to, long y, long z, size_t *first,
                                  size_t *last)
{
    size_t row = ((size_t)z * (size_t)p->bins[1] + (size_t)y) * (size_t)p->bins[0];
    *first = p->first[row + (size_t)from];
    *last = p->first[row + (size_t)to + 1];
}

int scatter_cpu_sum(const void *state, const struct range_law *law, int channels, const float *values, float *grid,
                    const struct listener *listener);
int gather_cpu_sum(const void *state, const struct range_law *law, int channels, const float *grid, float *values,
                   const struct listener *listener);
/* Bytes used by sums to a grid; by sums over pairs of points, and counts. */
size_t scatter_cpu_memory(int threads, const struct range_points_params *params);
void pairs_cpu_memory(int threads, size_t inputs, struct range_memory *memory);
int pairs_cpu_sum(const void *to, const void *from, const struct range_pair_sums *sums, int channels,
                  const float *values, const struct listener *listener);
int pairs_cpu_count(const void *to, const void *from, int edges, const double *edge, uint64_t *counts,
                    const struct listener *listener);

#endif
