#define POINTS_LEAF points_leaf_sse2
#include "gridding/range/points_simd.h"
