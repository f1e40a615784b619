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

/* How bins are made. */
enum rival_method {
    RIVAL_FUSED,      /* regular bins in one pass: an atomic gives the slot, the sample goes there (lecture) */
    RIVAL_LARGEST,    /* the same after a histogram and the search for its largest bin, which sets the depth (thesis) */
    RIVAL_RANKS,      /* histogram that saves every sample's rank, scan, placement by rank (lecture) */
    RIVAL_AGAIN,      /* histogram, scan, placement with atomics again (thesis, lab) */
    RIVAL_RADIX,      /* stable radix sort of (bin, index), starts from the sorted bins, permutation; no depth */
    RIVAL_SORT_REDUCE /* histogram, unstable order by radix sort of (bin, index), reordering, scan (lab manual) */
};

/* What is done at a bin that is full. */
enum rival_full {
    RIVAL_SUBTRACT,  /* add, and subtract again (thesis) */
    RIVAL_READ_FIRST /* read the counter, add only where there is room (lecture) */
};

struct rival_recipe {
    struct rival_shape shape;
    enum rival_method method;
    enum rival_full full;
    bool mark; /* slots without a sample get RIVAL_NONE: what sentinels and padded x-ranges need */
};

enum { RIVAL_STEPS = 5 };

/* Milliseconds of the steps that a method has, in the order of their work. */
struct rival_times {
    int steps;
    const char *name[RIVAL_STEPS];
    double ms[RIVAL_STEPS], total;
};

/* Put samples on the device. Fails also with ERR_NO_DEVICE. */
int rival_gpu_create(struct rival_gpu **out, int grid, const struct rival_sample *samples, size_t count);
void rival_gpu_free(struct rival_gpu *gpu);

/* In words: "NVIDIA H200, driver 580.159.04, CUDA 13.0". */
void rival_gpu_describe(char *text, size_t size);

/* Bytes that a recipe needs on the device beside the samples, and those free. */
size_t rival_gpu_bytes(const struct rival_gpu *gpu, const struct rival_recipe *recipe);
size_t rival_gpu_free_bytes(void);

/* Get memory for a recipe (outside of what is timed), then make bins, as often as wanted. */
int rival_gpu_prepare(struct rival_gpu *gpu, const struct rival_recipe *recipe);
int rival_gpu_bin(struct rival_gpu *gpu, struct rival_times *times);

/* Samples that overflowed, brought to the host; the memory is the gpu's and valid until the next call. */
int rival_gpu_overflow(struct rival_gpu *gpu, const struct rival_sample **overflow, size_t *count, double *ms);

/* Bins as they are on the device: count[grid^3], start[grid^3 + 1] (compact only), slot[slots] floats as the layout
 * says, for at most the slots of the recipe. NULL: not wanted. */
int rival_gpu_fetch(struct rival_gpu *gpu, uint32_t *count, uint32_t *start, float *slot, size_t slots);

/* Start a gather over the bins; wait for it, and learn how long it took. */
int rival_gpu_gather(struct rival_gpu *gpu, enum rival_access access, const struct rival_kernel *kernel);
int rival_gpu_finish(struct rival_gpu *gpu, double *ms);

/* The gathered grid += host[grid^3], memory of rival_gpu_host_grid(). */
int rival_gpu_merge(struct rival_gpu *gpu, double *ms);
struct c32 *rival_gpu_host_grid(struct rival_gpu *gpu);

/* values[i] = the grid's cell[i]. */
int rival_gpu_probe(struct rival_gpu *gpu, const size_t *cell, size_t count, struct c32 *values);

#ifdef __cplusplus
}
#endif
#endif
