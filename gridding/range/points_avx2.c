#define POINTS_LEAF points_leaf_avx2
#include "gridding/range/points_simd.h"
