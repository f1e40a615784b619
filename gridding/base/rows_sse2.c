#define REGISTER 16
#include "gridding/base/rows_simd.h"

const struct rows_leaf rows_leaf_sse2 = {sum_floats, sum_reals, sum_doubles};
