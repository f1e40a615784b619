/* pencils_leaves.h: the instruction sets of gridding/range/pencils.h that this processor has. */
#ifndef MRIRECON_PENCILS_LEAVES_H
#define MRIRECON_PENCILS_LEAVES_H

#include "gridding/range/pencils.h"

/* The shortest vectors first; returns their number. */
static inline int pencils_leaves(const struct pencils_leaf *leaves[3])
{
    int count = 0;
    leaves[count++] = &pencils_leaf_sse2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        leaves[count++] = &pencils_leaf_avx2;
    if (pencils_best() == &pencils_leaf_avx512)
        leaves[count++] = &pencils_leaf_avx512;
    return count;
}

#endif
