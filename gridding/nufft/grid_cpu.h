/* grid_cpu.h: images to an oversampled grid and back on the CPU: padding, FFT, crop, deapodisation. Only the CPU's
 * leaves include this.
 *
 * The grid holds a group of 1, 4, 8 or 16 transforms, [z][y][x][lanes], and serves group after group. A pass along z or
 * y copies a panel of adjacent columns into the cache, transforms it, and writes back only the image's rows (to the
 * image), or reads only those (from it), so the following passes process no cropped rows.
 */
#ifndef MRIRECON_GRID_CPU_H
#define MRIRECON_GRID_CPU_H

#include "gridding/base/ask.h"
#include "gridding/nufft/nufft_leaf.h"

struct grid_cpu;

/* A grid of shape->grid for images of shape->n, which are multiplied by the shape's deapodisation in both directions;
 * `lanes_most` is 1, 4, 8 or 16. `same_parts`: in each pass a thread has the same columns and rows, which may still be
 * in its cache, as for a grid that is transformed back and forth; if not, threads of a large grid's to_image() take
 * what is left, and one that is slower does less. The shape must outlive the grid, and the asker (which may be NULL);
 * transforms fail as that was told. Fails with ERR_NO_MEMORY, ERR_NO_DEVICE (built without FFTW). */
int grid_cpu_create(struct grid_cpu **out, const struct nufft_shape *shape, int lanes_most, int threads,
                    bool same_parts, struct asker *asker);
void grid_cpu_free(struct grid_cpu *grid);
size_t grid_cpu_bytes(const struct grid_cpu *grid);

/* [z][y][x][lanes], in FFT order; the input of to_image() and output of from_image(). */
struct c32 *grid_cpu_values(struct grid_cpu *grid);

/* Where one to_image() follows another, it clears each value while that is in the cache. Whether all of `lanes` are 0;
 * the caller then adds to them, and calls to_image(), or lose(), as whoever else writes into the grid does. */
bool grid_cpu_take_zeros(struct grid_cpu *grid, int lanes);
void grid_cpu_lose(struct grid_cpu *grid);

/* Have the grid work on `values`, which are aligned as those that it has and as many: returns these, until they are put
 * back. */
struct c32 *grid_cpu_exchange(struct grid_cpu *grid, struct c32 *values);

/* Exponent +: to image[lane][z][y][x], or (image NULL) the squares of all lanes added to squares[z][y][x]. The grid's
 * values are lost. */
int grid_cpu_to_image(struct grid_cpu *grid, int lanes, struct c32 *image, float *squares);

/* The same in two steps, of a grid that is summed in parts: as soon as a column along the last axis is complete, its
 * first pass can be done. grid_cpu_columns(): that of columns whose mark is `number`, mark[grid[1]][grid[0]] of the
 * shape's grid (2-D: mark[grid[0]]); columns of a panel are transformed together, with the largest of their marks.
 * grid_cpu_rest(): the others, once every column that is not 0 was transformed so. The bits are those of
 * grid_cpu_to_image(), except for the sign of zeros. */
int grid_cpu_columns(struct grid_cpu *grid, int lanes, const int *mark, int number);
int grid_cpu_rest(struct grid_cpu *grid, int lanes, struct c32 *image, float *squares);

/* The same of a 2-D grid along the other axis first: the x pass of rows whose mark is `number`, mark[grid[1]], then the
 * y pass. Between them the image's columns lie in `panels`, aligned to 64 bytes: values of grid_cpu_panels(), 0 where
 * no row was transformed. In the grid those of a column are a multiple of 4096 bytes apart, and reading them took
 * longer than transforming them. The bits differ from those of grid_cpu_to_image() by rounding. */
size_t grid_cpu_panels(const struct grid_cpu *grid, int lanes);
int grid_cpu_rows(struct grid_cpu *grid, int lanes, const int *mark, int number, struct c32 *panels);
int grid_cpu_rest_columns(struct grid_cpu *grid, int lanes, const struct c32 *panels, struct c32 *image,
                          float *squares);

/* Exponent -: its transpose. */
int grid_cpu_from_image(struct grid_cpu *grid, int lanes, const struct c32 *image);

#endif
