/* sums_gpu.cuh: what the GPU's sums between points and grids tell each other. */
#ifndef MRIRECON_SUMS_GPU_CUH
#define MRIRECON_SUMS_GPU_CUH

#include "gridding/range/box.h"

#include <cstddef>
#include <cstdint>

/* Points `from` to `to` (without) of those near a tile, in the order of their bins: to a slot, or (slot < 0) to the
 * grid. */
struct sums_task {
    uint32_t tile;
    int slot;
    unsigned long long from, to;
};

/* Tasks; or (tasks is NULL) the tiles from `first` on that have at most `depth` points near, each a task. */
struct sums_work {
    const struct sums_task *tasks;
    float *slots;
    const unsigned long long *near; /* [tiles] */
    unsigned long long depth;
    uint32_t first;
};

/* A tile's slots, one after the other. */
struct sums_group {
    uint32_t tile, slot, slots;
};

/* The most bytes that a sum to, or from, a grid takes. */
size_t sums_gpu_scatter_bytes(const struct range_box *box);
size_t sums_gpu_gather_bytes(void);

#endif
