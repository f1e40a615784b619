/* pencils.c: selects the loops for this processor. */
#include "gridding/range/pencils.h"

#include "gridding/base/cpu_set.h"

const struct pencils_leaf *pencils_best(void)
{
    static const struct pencils_leaf *const leaf[] = {&pencils_leaf_sse2, &pencils_leaf_avx2, &pencils_leaf_avx512};
    return leaf[cpu_set_best()];
}
