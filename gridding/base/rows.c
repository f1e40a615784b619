#include "gridding/base/rows.h"

#include <stdbool.h>

const struct rows_leaf *rows_best(void)
{
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    if (avx512)
        return &rows_leaf_avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &rows_leaf_avx2 : &rows_leaf_sse2;
}
