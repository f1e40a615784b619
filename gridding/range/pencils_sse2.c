#include "gridding/range/pencils_simd.h"

const struct pencils_leaf pencils_leaf_sse2 = {scatter, gather, pairs, near, count};
