/* sums_gpu.cuh: shared by the GPU's sums between points and grids. */
#ifndef MRIRECON_SUMS_GPU_CUH
#define MRIRECON_SUMS_GPU_CUH

#include "gridding/range/box.h"

#include <cstddef>
#include <cstdint>

/* Points [from, to) of those near a tile, in the order of their bins: summed to a slot, or (slot < 0) to the grid. */
struct sums_task {
    uint32_t tile;
    int slot;
    unsigned long long from, to;
};

/* Tasks; or (tasks is NULL) the tiles from `first` on with at most `depth` points near, one task each. */
struct sums_work {
    const struct sums_task *tasks;
    float *slots;
    const unsigned long long *near; /* [tiles] */
    unsigned long long depth;
    uint32_t first;
};

/* A tile's slots, consecutive. */
struct sums_group {
    uint32_t tile, slot, slots;
};

/* An upper bound of the bytes of a sum to, or from, a grid. */
size_t sums_gpu_scatter_bytes(const struct range_box *box, size_t inputs);
size_t sums_gpu_gather_bytes(void);

#endif
