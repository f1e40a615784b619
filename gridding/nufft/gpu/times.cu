/* The parts of an adjoint's time, by the device's clock. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cstdlib>
#include <cstring>

enum { TURNS_MOST = 64 }; /* more are read before the next begins */

int nufft_gpu_clock_make(struct nufft_gpu *plan, int turns)
{
    struct nufft_clock *c = &plan->clock;
    turns = std::min(turns, (int)TURNS_MOST);
    c->turn = (struct nufft_turn *)calloc((size_t)turns, sizeof *c->turn);
    if (!c->turn)
        return err_no_memory("a plan");
    c->turns = turns;
    for (int i = 0; i < turns; i++)
        for (cudaEvent_t &event : c->turn[i].event) {
            int rc = gpu_check(cudaEventCreate(&event), "Making an event");
            if (rc)
                return rc;
        }
    return 0;
}

void nufft_gpu_clock_free(struct nufft_gpu *plan)
{
    struct nufft_clock *c = &plan->clock;
    for (int i = 0; i < c->turns; i++)
        for (cudaEvent_t event : c->turn[i].event)
            if (event)
                (void)cudaEventDestroy(event);
    free(c->turn);
    memset(c, 0, sizeof *c);
}

/* Seconds between two completed events; 0 if one was not recorded. */
static double between(const struct nufft_turn *turn, enum nufft_moment from, enum nufft_moment to)
{
    float milliseconds = 0;
    if (!(turn->recorded >> from & turn->recorded >> to & 1))
        return 0;
    return cudaEventElapsedTime(&milliseconds, turn->event[from], turn->event[to]) == cudaSuccess ? milliseconds * 1e-3
                                                                                                  : 0;
}

int nufft_gpu_clock_read(struct nufft_gpu *plan)
{
    struct nufft_clock *c = &plan->clock;
    int rc = gpu_finish(plan->gpu, "The adjoint transform");
    for (int i = 0; !rc && i < c->used; i++) {
        const struct nufft_turn *turn = &c->turn[i];
        double sending = between(turn, MOMENT_SENDING, MOMENT_SENT);
        plan->times.gpu += between(turn, MOMENT_STARTED, MOMENT_GRIDDED);
        plan->times.merge += sending + between(turn, MOMENT_WAITED, MOMENT_MERGED);
        plan->times.cpu += turn->cpu;
        /* The device's wait between its own sums and the CPU's, without the upload, is the part that was not hidden. */
        double waited = std::max(0.0, between(turn, MOMENT_GRIDDED, MOMENT_WAITED) - sending);
        plan->times.hidden += std::max(0.0, turn->cpu - waited);
    }
    c->used = 0;
    return rc;
}

/* Events keep a call's kernels from beginning while the last one ends, which costs a small transform a fifth of its
 * time. So only plans have them that were asked for a depth or for an overflow to the CPU. */
static bool is_timed(const struct nufft_gpu *plan)
{
    return plan->shape.overflow == NUFFT_OVERFLOW_CPU || plan->shape.bin_depth != NUFFT_DEPTH_AUTO;
}

int nufft_gpu_clock_turn(struct nufft_gpu *plan)
{
    struct nufft_clock *c = &plan->clock;
    if (!is_timed(plan))
        return 0;
    int rc = c->used == c->turns ? nufft_gpu_clock_read(plan) : 0;
    if (rc)
        return rc;
    struct nufft_turn *turn = &c->turn[c->used++];
    turn->recorded = 0;
    turn->cpu = 0;
    return nufft_gpu_clock(plan, MOMENT_STARTED, plan->gpu->stream);
}

int nufft_gpu_clock(struct nufft_gpu *plan, enum nufft_moment moment, cudaStream_t stream)
{
    struct nufft_clock *c = &plan->clock;
    if (c->used == 0)
        return 0; /* no adjoint is in progress */
    struct nufft_turn *turn = &c->turn[c->used - 1];
    turn->recorded |= 1u << moment;
    return gpu_check(cudaEventRecord(turn->event[moment], stream), "Taking the time");
}
