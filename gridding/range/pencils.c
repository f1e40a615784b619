/* pencils.c: selects the loops for this processor. */
#include "gridding/range/pencils.h"

const struct pencils_leaf *pencils_best(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return &pencils_leaf_avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &pencils_leaf_avx2 : &pencils_leaf_sse2;
}
