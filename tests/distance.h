/* distance.h: how far an array is from another. */
#ifndef MRIRECON_TEST_DISTANCE_H
#define MRIRECON_TEST_DISTANCE_H

#include "gridding/base/num.h"

#include <math.h>
#include <stddef.h>

/* The l2 norm of a - b, relative to that of b; [count] each. */
static inline double distance(const struct c32 *a, const struct c32 *b, size_t count)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        off += pow((double)a[i].re - b[i].re, 2) + pow((double)a[i].im - b[i].im, 2);
        all += pow((double)b[i].re, 2) + pow((double)b[i].im, 2);
    }
    return sqrt(off / all);
}

#endif
