/* slices_gpu.cuh: divides long work of a GPU into launches of bounded size, with one queued ahead, for a listener's
 * progress and cancellation. Only the GPU's leaf of sums.h includes this. */
#ifndef MRIRECON_SLICES_GPU_CUH
#define MRIRECON_SLICES_GPU_CUH

#include "gridding/base/clock.h"
#include "gridding/base/dev_gpu.cuh"
#include "gridding/base/listener.h"

/* Launch tasks `begin` to begin + count in the device's stream. */
using slice_launch = int (*)(void *of, uint64_t begin, uint32_t count);

struct slices {
    struct gpu *gpu;
    const struct listener *listener; /* may be NULL */
    uint64_t tasks;                  /* of one run */
    uint32_t each;                   /* largest number of a slice */
    uint64_t done, most;             /* tasks of all runs */
};

static inline int slices_tell(const struct slices *s)
{
    return s->listener ? s->listener->progress(s->listener->context, (size_t)s->done, (size_t)s->most) : 0;
}

/* Wait for an event, and call the listener meanwhile. */
static inline int slices_wait(const struct slices *s, cudaEvent_t event, const char *what)
{
    const struct timespec nap = {0, 50000};
    double told = clock_seconds();
    const double begun = told;
    if (!s->listener)
        return gpu_check(cudaEventSynchronize(event), what);
    for (;;) {
        const cudaError_t status = cudaEventQuery(event);
        if (status != cudaErrorNotReady)
            return gpu_check(status, what);
        const double now = clock_seconds();
        if (now - told > 0.01) {
            const int rc = slices_tell(s);
            if (rc)
                return rc;
            told = now;
        }
        if (now - begun > 0.0005)
            (void)nanosleep(&nap, NULL);
    }
}

/* All tasks of one run. On return the device has finished them, also after a failure. */
static inline int slices_run(struct slices *s, slice_launch launch, void *of, const char *what)
{
    cudaEvent_t event[2] = {NULL, NULL};
    uint64_t count[2] = {0, 0}, begin = 0;
    int rc = slices_tell(s), turn = 0;
    if (!rc && s->tasks <= s->each && !s->listener) { /* nothing to wait for in between */
        rc = s->tasks > 0 ? launch(of, 0, (uint32_t)s->tasks) : 0;
        s->done += rc ? 0 : s->tasks;
        const int ended = gpu_finish(s->gpu, what); /* the caller may free its memory after a failure, too */
        return rc ? rc : ended;
    }
    for (int i = 0; i < 2 && !rc; i++)
        rc = gpu_check(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming), "Making an event");
    while (!rc && (begin < s->tasks || count[0] || count[1])) {
        if (count[turn]) { /* the last but one slice */
            rc = slices_wait(s, event[turn], what);
            s->done += rc ? 0 : count[turn];
            count[turn] = 0;
            if (!rc)
                rc = slices_tell(s);
        }
        if (!rc && begin < s->tasks) {
            count[turn] = s->tasks - begin < s->each ? s->tasks - begin : s->each;
            rc = launch(of, begin, (uint32_t)count[turn]);
            if (!rc)
                rc = gpu_check(cudaEventRecord(event[turn], s->gpu->stream), what);
            begin += count[turn];
        }
        turn ^= 1;
    }
    if (rc) /* wait for launches in progress: the caller may then free its memory */
        (void)cudaStreamSynchronize(s->gpu->stream);
    for (cudaEvent_t e : event)
        if (e)
            (void)cudaEventDestroy(e);
    return rc;
}

#endif
