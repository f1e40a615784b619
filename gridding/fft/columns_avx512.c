#define LANES 16
#include "gridding/fft/columns_simd.h"

const struct columns_leaf columns_leaf_avx512 = {run};
