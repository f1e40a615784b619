/* dense.h: which bricks contain a grid cell (method_brick_dense.cu); the part for both compilers.
 *
 * A brick begins with its bin's first cell on every axis and is large enough for the longest bin and its reach. A bin
 * has one brick, or one for each part of its samples, consecutively, or none.
 */
#ifndef MRIRECON_DENSE_H
#define MRIRECON_DENSE_H

#include "gridding/range/layout.h"

/* Cells of a brick: DENSE_SIDE along x and y, DENSE_PLANES along z; [z][y][x]. */
enum { DENSE_SIDE = 8, DENSE_PLANES = 16, DENSE_LINES_MOST = 8 * 3 };

/* The size of bins along x and y, and along z. */
static inline struct range_axis dense_axis(int cells, int width, bool deep)
{
    return range_axis_make(cells, (deep ? DENSE_PLANES : DENSE_SIDE) + 1 - width);
}

/* A bin that reaches a cell, and the cell's position in its brick: first the cell's own bin, then the ones before. */
struct dense_reach {
    int bin, offset;
};

static HOST_DEVICE inline struct dense_reach dense_first(struct range_axis axis, int cell)
{
    struct dense_reach r;
    r.bin = axis_bin(axis, cell);
    r.offset = cell - axis_first(axis, r.bin);
    return r;
}

/* The next bin that reaches the cell; false: none. */
static HOST_DEVICE inline bool dense_next(struct range_axis axis, int reach, struct dense_reach *r)
{
    if (r->offset >= reach)
        return false;
    r->bin = (r->bin > 0 ? r->bin : axis.bins) - 1;
    r->offset += axis_size(axis, r->bin);
    return true;
}

/* The part of a line of cells in the bricks of a row of bins along x: the row's first bin, and the line's first cell in
 * a brick. */
struct dense_line {
    uint32_t bin;
    int cell;
};

/* The rows of bins that reach line (y, z), in a fixed order; returns their number. */
static HOST_DEVICE inline int dense_lines(const struct range_geometry *g, int y, int z, struct dense_line *lines)
{
    const int reach = g->width - 1;
    int count = 0;
    struct dense_reach of_z = dense_first(g->axis[2], z);
    do {
        struct dense_reach of_y = dense_first(g->axis[1], y);
        do {
            const int place[3] = {0, of_y.bin, of_z.bin};
            lines[count].bin = range_bin_number(g, place);
            lines[count].cell = (of_z.offset * DENSE_SIDE + of_y.offset) * DENSE_SIDE;
            count++;
        } while (dense_next(g->axis[1], reach, &of_y));
    } while (dense_next(g->axis[2], reach, &of_z));
    return count;
}

#endif
