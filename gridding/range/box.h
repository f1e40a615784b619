/* box.h: where points lie and what grid they are summed on. */
#ifndef MRIRECON_BOX_H
#define MRIRECON_BOX_H

#include <stdbool.h>

/* A grid of cells[0] x cells[1] x cells[2] nodes, x fastest; 1 beyond `dim`. Node c of axis d lies at origin[d] + c
 * spacing[d]. A periodic axis repeats after cells[d] spacing[d]; of an open one, points may lie anywhere, beside the
 * grid as well. */
struct range_box {
    int dim, cells[3];
    double origin[3], spacing[3]; /* spacing > 0 */
    bool periodic[3];
};

#endif
