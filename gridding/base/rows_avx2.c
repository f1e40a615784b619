#define REGISTER 32
#include "gridding/base/rows_simd.h"

const struct rows_leaf rows_leaf_avx2 = {sum_floats, sum_reals, sum_doubles};
