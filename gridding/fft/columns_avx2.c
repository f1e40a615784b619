#define LANES 8
#include "gridding/fft/columns_simd.h"

const struct columns_leaf columns_leaf_avx2 = {run};
