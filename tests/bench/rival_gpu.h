/* rival_gpu.h: the rivals on the GPU: bins made by the methods of the thesis, the lecture and the lab manual, and the
 * gather over them. One set of samples and one set of bins at a time; not thread-safe. Functions return 0 or an error
 * of gridding/base/err.h (ERR_GPU_OOM, ERR_NO_MEMORY, ERR_DEVICE). */
#ifndef MRIRECON_RIVAL_GPU_H
#define MRIRECON_RIVAL_GPU_H

#include "tests/bench/rival.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rival_gpu;

/* Methods of binning. */
enum rival_method {
    RIVAL_FUSED,      /* regular bins in one pass: an atomic counter gives the slot, and the sample is stored there
                       * (lecture) */
    RIVAL_LARGEST,    /* the same after a histogram and a search for its largest bin, which sets the depth (thesis) */
    RIVAL_RANKS,      /* histogram that saves every sample's rank, scan, placement by rank (lecture) */
    RIVAL_AGAIN,      /* histogram, scan, placement with atomics again (thesis, lab) */
    RIVAL_RADIX,      /* stable radix sort of (bin, index), starts from the sorted bins, permutation; no depth */
    RIVAL_SORT_REDUCE /* histogram, unstable order by radix sort of (bin, index), reordering, scan (lab manual) */
};

/* What happens if a bin is full. */
enum rival_full {
    RIVAL_SUBTRACT,  /* increment the counter, then decrement it again (thesis) */
    RIVAL_READ_FIRST /* read the counter, and increment only if there is room (lecture) */
};

struct rival_recipe {
    struct rival_shape shape;
    enum rival_method method;
    enum rival_full full;
    bool mark; /* slots without a sample get RIVAL_NONE, which sentinels and padded x-ranges need */
};

enum { RIVAL_STEPS = 5 };

/* Milliseconds of a method's steps, in order of execution. */
struct rival_times {
    int steps;
    const char *name[RIVAL_STEPS];
    double ms[RIVAL_STEPS], total;
};

/* Upload the samples to the device. Fails also with ERR_NO_DEVICE. */
int rival_gpu_create(struct rival_gpu **out, int grid, const struct rival_sample *samples, size_t count);
void rival_gpu_free(struct rival_gpu *gpu);

/* For example "NVIDIA H200, driver 580.159.04, CUDA 13.0". */
void rival_gpu_describe(char *text, size_t size);

/* Bytes that a recipe needs on the device besides the samples, and the bytes that are free. */
size_t rival_gpu_bytes(const struct rival_gpu *gpu, const struct rival_recipe *recipe);
size_t rival_gpu_free_bytes(void);

/* Allocate memory for a recipe (not part of the timing), then make bins, any number of times. */
int rival_gpu_prepare(struct rival_gpu *gpu, const struct rival_recipe *recipe);
int rival_gpu_bin(struct rival_gpu *gpu, struct rival_times *times);

/* Samples that overflowed, copied to the host. The memory belongs to the gpu and is valid until the next call. */
int rival_gpu_overflow(struct rival_gpu *gpu, const struct rival_sample **overflow, size_t *count, double *ms);

/* Bins as they are on the device: count[grid^3], start[grid^3 + 1] (compact only), slot[slots] floats in the recipe's
 * layout, for at most the recipe's slots. Each may be NULL. */
int rival_gpu_fetch(struct rival_gpu *gpu, uint32_t *count, uint32_t *start, float *slot, size_t slots);

/* Start a gather over the bins; wait for it, and return its duration. */
int rival_gpu_gather(struct rival_gpu *gpu, enum rival_access access, const struct rival_kernel *kernel);
int rival_gpu_finish(struct rival_gpu *gpu, double *ms);

/* The gathered grid += host[grid^3], in memory from rival_gpu_host_grid(). */
int rival_gpu_merge(struct rival_gpu *gpu, double *ms);
struct c32 *rival_gpu_host_grid(struct rival_gpu *gpu);

/* values[i] = the grid's cell[i]. */
int rival_gpu_probe(struct rival_gpu *gpu, const size_t *cell, size_t count, struct c32 *values);

#ifdef __cplusplus
}
#endif
#endif
