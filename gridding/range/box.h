/* box.h: the space of points and the grid of sums. */
#ifndef MRIRECON_BOX_H
#define MRIRECON_BOX_H

#include <stdbool.h>

/* A grid of cells[0] x cells[1] x cells[2] nodes, x fastest; 1 from `dim` on. Node c of axis d is at origin[d] + c
 * spacing[d]. A periodic axis repeats after cells[d] spacing[d]; along an open one, points may be anywhere, also
 * outside the grid. */
struct range_box {
    int dim, cells[3];
    double origin[3], spacing[3]; /* spacing > 0 */
    bool periodic[3];
};

#endif
