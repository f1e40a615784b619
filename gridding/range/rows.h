/* rows.h: the rows of a grid that sums over bins reach: a small part of a large grid if there are few samples. */
#ifndef MRIRECON_ROWS_H
#define MRIRECON_ROWS_H

#include "gridding/base/num.h"

struct range_row {
    uint32_t line;         /* z * grid[1] + y */
    uint32_t first, cells; /* its cells along x, periodic, from `first` on */
    size_t at;             /* index of its first cell in the packed grid */
};

/* A packed grid is the rows' cells, row after row: [cells][lanes]. */
struct range_rows {
    size_t count, cells;   /* cells: of all rows */
    struct range_row *row; /* in the order of lines */
    uint32_t *of_line;     /* [grid[2] * grid[1]]: the line's row + 1; 0: no sum reaches it */
};

#endif
