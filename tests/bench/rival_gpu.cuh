/* rival_gpu.cuh: shared by the rivals' .cu files. */
#ifndef MRIRECON_RIVAL_GPU_CUH
#define MRIRECON_RIVAL_GPU_CUH

#include "tests/bench/rival_gpu.h"

#include <cuda_runtime.h>

static_assert(sizeof(struct rival_4) == 16 && sizeof(struct rival_2) == 8, "slots have no gaps");

struct rival_gpu {
    int grid;
    size_t bins, count, blocks_most;
    cudaStream_t stream;
    cudaEvent_t event[RIVAL_STEPS + 1];
    struct rival_recipe recipe;
    size_t slots; /* that memory was allocated for */

    struct rival_sample *samples;  /* [count] */
    struct rival_sample *overflow; /* [count] */
    struct rival_sample *host_overflow;
    uint32_t *overflowed; /* [1] */
    uint32_t *number;     /* [bins + 1] samples per bin; the last is 0 */
    uint32_t *start;      /* [bins + 1] */
    uint32_t *filled;     /* [bins]: RIVAL_AGAIN */
    uint32_t *rank;       /* [count]: RIVAL_RANKS */
    uint32_t *key[2];     /* [count]: sorts */
    uint32_t *index[2];   /* [count]: sorts */
    void *work;           /* of cub */
    size_t work_bytes;
    float *slot;
    struct c32 *values, *other; /* [bins] the grid; what is merged into it */
    struct c32 *host_grid;
};

/* 0, or ERR_DEVICE or ERR_GPU_OOM. */
int rival_check(cudaError_t status, const char *what);

#define RIVAL_TRY(call)                              \
    do {                                             \
        int rival_status = rival_check(call, #call); \
        if (rival_status != 0)                       \
            return rival_status;                     \
    } while (0)

static inline struct rival_bins rival_view(const struct rival_gpu *g)
{
    struct rival_bins bins = {g->recipe.shape, g->slots, g->number, g->start, g->slot};
    return bins;
}

#endif
