#define POINTS_LEAF points_leaf_avx512
#include "gridding/range/points_simd.h"
