/* range.h: THE ENGINE: compact bins, and limited-range sums over them.
 *
 * Points lie in a periodic box of grid cells and touch only the W^dim cells around them. They are put into bins (tiles
 * of cells) by a stable counting sort: a histogram, its prefix sum, and the placement of every point, data physically
 * permuted, x fastest. A compact bin holds exactly its points; offset[] has its start. Bins depend only on the points,
 * so one set serves all coils, frames and iterations.
 *
 * The order inside a bin is the order of the input, and every sum over bins has a fixed order: the same bits for any
 * number of threads.
 */
#ifndef MRIRECON_RANGE_H
#define MRIRECON_RANGE_H

#include "gridding/base/ask.h"
#include "gridding/range/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One binned point: its first cell (x - W/2 rounded up, relative to its bin's first cell) and the distance of that cell
 * from x - W/2, in [0, 1], per axis. The cell is determined only here: computing it again from rounded coordinates
 * would move points on an edge. */
struct range_point {
    float fraction[3];
    uint16_t cell[3];
    uint16_t reserved;
    uint32_t source; /* index in the input */
};

struct range_bins {
    int dim, grid[3], width;
    int tiles[3];      /* bins per axis, even or 1; bin t of an axis starts at cell floor(t * grid / tiles) */
    int most_cells[3]; /* the longest bin of each axis, in cells */
    size_t bins, count;
    size_t occupied, largest;
    size_t *offset;            /* [bins + 1] */
    struct range_point *point; /* [count], bin after bin */
};

/* Bin k[count][dim] (turns: periodic with period 1; finite) in a box of grid[d] cells for a kernel of `width` cells, in
 * bins of about `tile` cells per axis (never smaller than width). Fails with ERR_NO_MEMORY, and as the asker (which
 * may be NULL) was told. */
int range_bins_create(struct range_bins **out, int dim, const int grid[3], int width, const int tile[3], size_t count,
                      const float *k, int threads, struct asker *asker);
void range_bins_free(struct range_bins *bins);

/* The first cell of bin t of an axis. */
static inline int range_tile_start(int t, int tiles, int grid)
{
    return (int)((int64_t)t * grid / tiles);
}

/* The Kaiser-Bessel kernel as polynomials that a leaf evaluates. Wider laws and other functions: law.h, sums.h. */
struct range_kernel;

/* separable: one polynomial in the fraction per cell of the width; radial: one polynomial in 1 - (2 r / W)^2.
 * `error` is the largest absolute deviation allowed (the kernel is 1 at its centre). Fails with ERR_NO_MEMORY. */
int range_kernel_create(struct range_kernel **out, int width, double beta, bool radial, double error);
void range_kernel_free(struct range_kernel *law);

/* Sums over bins on the CPU. */
struct range_cpu;

enum { RANGE_LANES_MOST = 16 };

enum { RANGE_TOGETHER = 1024 }; /* `together` if a relative error of 6e-6 is acceptable */

/* Working memory for sums over `bins` by `law` (both stay the caller's and must outlive it), for at most `lanes`
 * transforms at a time. Scatter sums at most `together` points before the sum is added to others: the error of float32
 * sums whose roundings all have the same sign is in proportion to this. Sums fail as the asker (which may be NULL, and
 * else outlives them) was told. Fails with ERR_NO_MEMORY. */
int range_cpu_create(struct range_cpu **out, const struct range_bins *bins, const struct range_kernel *law, int lanes,
                     size_t together, int threads, struct asker *asker);
void range_cpu_free(struct range_cpu *sums);
size_t range_cpu_bytes(const struct range_cpu *sums);

/* The number of transforms that are summed together if `wanted` are left: 1, 4, 8 or 16, at most `wanted`. */
int range_cpu_lanes(int wanted);

/* grid[z][y][x][lanes] = sum over points of kernel * weight * value; values[lane * stride + source]; weight[] in the
 * order of bins->point, or NULL. The grid is overwritten. `lanes` is 1, 4, 8 or 16. */
int range_cpu_scatter(struct range_cpu *sums, int lanes, const struct c32 *values, size_t stride, const float *weight,
                      struct c32 *grid);

/* The same, added to what the grid has. */
int range_cpu_scatter_add(struct range_cpu *sums, int lanes, const struct c32 *values, size_t stride,
                          const float *weight, struct c32 *grid);

/* The rows that the kernels of binned points reach. Fails with ERR_NO_MEMORY. */
int range_rows_create(struct range_rows **out, const struct range_bins *bins);
void range_rows_free(struct range_rows *rows);

/* The columns along the last axis that the kernels of binned points reach, mark[grid[1]][grid[0]], in 2-D
 * mark[grid[0]]: those below 0 become `number`. Fails with ERR_NO_MEMORY. */
int range_columns_mark(const struct range_bins *bins, int number, int *mark);
/* The same of the rows of a 2-D grid, mark[grid[1]]. */
int range_rows_mark(const struct range_bins *bins, int number, int *mark);

/* As range_cpu_scatter(), into packed[rows->cells][lanes]: the sums of the cells of rows->row, row after row. */
int range_cpu_scatter_rows(struct range_cpu *sums, const struct range_rows *rows, int lanes, const struct c32 *values,
                           size_t stride, const float *weight, struct c32 *packed);

/* values[lane * stride + source] = weight * sum over cells of kernel * grid[z][y][x][lanes]: the transpose. */
int range_cpu_gather(struct range_cpu *sums, int lanes, const struct c32 *grid, const float *weight, struct c32 *values,
                     size_t stride);

#ifdef __cplusplus
}
#endif
#endif
