/* law.h: the kernel as the leaves evaluate it. Only gridding/range includes this. */
#ifndef MRIRECON_LAW_H
#define MRIRECON_LAW_H

#include "gridding/range/range.h"

enum { LAW_LANES = 16, LAW_MOST_DEGREE = 17 };

/* Separable: the weight of cell j (0 .. width-1) at fraction f is sum_i c[i][j] s^i, s = 2 f - 1; c[i][j] = 0 for j >=
 * width. Radial: sum_i c[i][0] t^i for t = 1 - (2 r / width)^2 > 0. */
struct range_law {
    int width, degree;
    bool radial;
    float c[LAW_MOST_DEGREE + 1][LAW_LANES];
};

#endif
