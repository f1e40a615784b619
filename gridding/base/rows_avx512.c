#define REGISTER 64
#include "gridding/base/rows_simd.h"

const struct rows_leaf rows_leaf_avx512 = {sum_floats, sum_reals, sum_doubles};
