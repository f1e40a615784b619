/* slots.h: a grid stored as overlapping slots; the part for both compilers (slots_gpu.cuh: reading it on a GPU).
 *
 * The grid's cells are divided into bins, axis by axis. A sum over a bin's samples stores the cells that these reach in
 * slots of a workspace, each written once. A reader of the grid adds up, for each cell, the slots that contain it, in a
 * fixed order: the same bits on every run, without flags, atomics or clearing.
 *
 * A slot belongs to a bin. Along x it contains only that bin's own cells (sums beyond them are stored in a slot of the
 * next bin along x); along y and z it begins with the bin's first cell and extends `reach` cells beyond its last. A bin
 * has at most two slots, none if nothing was summed there. Every bin is at least `reach` cells long.
 */
#ifndef MRIRECON_SLOTS_H
#define MRIRECON_SLOTS_H

#include "gridding/base/host_device.h"

#include <stdint.h>

/* An axis of the grid divided into bins of (nearly) equal size: bin i contains the base cells from floor(i c / bins)
 * 2^shift on, c = cells / 2^shift, an integer. */
struct range_axis {
    int cells, bins;
    int shift; /* 1: every bin begins at an even cell */
};

static HOST_DEVICE inline int axis_first(struct range_axis axis, int bin)
{
    return (int)((uint32_t)bin * (uint32_t)(axis.cells >> axis.shift) / (uint32_t)axis.bins << axis.shift);
}

static HOST_DEVICE inline int axis_size(struct range_axis axis, int bin)
{
    return axis_first(axis, bin + 1) - axis_first(axis, bin);
}

static HOST_DEVICE inline int axis_largest(struct range_axis axis)
{
    return ((axis.cells >> axis.shift) + axis.bins - 1) / axis.bins << axis.shift;
}

static HOST_DEVICE inline int axis_least(struct range_axis axis)
{
    return (axis.cells >> axis.shift) / axis.bins << axis.shift;
}

static HOST_DEVICE inline int axis_bin(struct range_axis axis, int cell)
{
    return (int)(((((uint32_t)cell >> axis.shift) + 1) * (uint32_t)axis.bins - 1) /
                 (uint32_t)(axis.cells >> axis.shift));
}

/* A bin's bricks (bricks_gpu.cuh, range/dense.h), consecutive. */
struct brick_list {
    uint32_t first, count;
};

/* A cell of an axis: its bin and its position in it, and its position relative to the previous bin, -1 if that one does
 * not reach the cell. */
struct slot_cell {
    int bin, offset, before, before_offset;
};

static inline struct slot_cell slot_cell_of(struct range_axis axis, int reach, int cell)
{
    struct slot_cell c;
    c.bin = axis_bin(axis, cell);
    c.offset = cell - axis_first(axis, c.bin);
    c.before = c.bin > 0 ? c.bin - 1 : axis.bins - 1;
    c.before_offset = c.offset < reach ? c.offset + axis_size(axis, c.before) : -1;
    return c;
}

#endif
