#define LANES 4
#include "gridding/fft/columns_simd.h"

const struct columns_leaf columns_leaf_sse2 = {run};
