/* rival_range_gpu.h: the thesis' three other applications on the GPU, over bins made by rival_gpu.h. Not thread-safe.
 * Functions return 0 or an error of gridding/base/err.h (ERR_GPU_OOM, ERR_NO_MEMORY, ERR_DEVICE). */
#ifndef MRIRECON_RIVAL_RANGE_GPU_H
#define MRIRECON_RIVAL_RANGE_GPU_H

#include "tests/bench/rival_gpu.h"
#include "tests/bench/rival_range.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rival_range_gpu;

/* Allocates the sums; `gpu` must outlive the result. */
int rival_range_gpu_create(struct rival_range_gpu **out, struct rival_gpu *gpu, const struct rival_sum *of);
void rival_range_gpu_free(struct rival_range_gpu *range);

/* Start a gather over the bins of `gpu`; rival_gpu_finish() waits for it and returns its duration. Fails also with
 * ERR_BAD_PARAMETER (sentinels, layouts other than RIVAL_PACKED). `choice` and `cylinder` are for lattices. */
int rival_range_gpu_gather(struct rival_range_gpu *range, enum rival_access access, enum rival_choice choice,
                           bool cylinder);

/* The sums += host[outputs], in memory from rival_range_gpu_host(). */
int rival_range_gpu_merge(struct rival_range_gpu *range, double *ms);
float *rival_range_gpu_host(struct rival_range_gpu *range);

/* Copies to sums[outputs]; the sums on the device are overwritten. */
int rival_range_gpu_fetch(struct rival_range_gpu *range, float *sums);

#ifdef __cplusplus
}
#endif
#endif
