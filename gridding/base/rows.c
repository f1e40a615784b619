#include "gridding/base/rows.h"

#include "gridding/base/cpu_set.h"

const struct rows_leaf *rows_best(void)
{
    static const struct rows_leaf *const leaf[] = {&rows_leaf_sse2, &rows_leaf_avx2, &rows_leaf_avx512};
    return leaf[cpu_set_best()];
}
