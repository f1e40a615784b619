/* split_gpu.cu: sums in two parts on a GPU (split.h). Points are put into bins once, and serve both parts; between
 * their upload and the result everything stays on the device. */
#include "gridding/fft/filter_gpu.cuh"
#include "gridding/split/split_leaf.h"
#include "gridding/split/split_near.cuh"
#include "gridding/split/split_points.cuh"
#include "gridding/split/split_spread.cuh"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace
{

const char what[] = "A sum in two parts";

using near_kernel = void (*)(near_job);

struct split_gpu {
    struct gpu *gpu;
    struct split_params params;
    struct spread_job spread;
    struct near_job near;
    near_kernel add;
    struct binning binning;
    struct filter_gpu *filter;
    float *nodes;
    cudaEvent_t ended[2]; /* of the last two stages */
};

double length_of(const struct split_params *p, int d)
{
    return p->extended[d] * p->lattice.spacing[d];
}

size_t nodes_of(const struct split_params *p)
{
    return (size_t)p->mesh[0] * (size_t)p->mesh[1] * (size_t)p->mesh[2];
}

double reach_near(const struct split_params *p)
{
    return fmax(p->near.params.reach, p->exclusion);
}

/* Differences of positions are those to the nearest image: a tile and the points near it must lie in half the box. */
const char *refused(const struct split_params *p)
{
    for (int d = 0; d < 3; d++) {
        const double mesh = p->window.params.reach / length_of(p, d) * p->mesh[d],
                     near = reach_near(p) / p->lattice.spacing[d];
        if (!filter_gpu_serves(p->mesh[d]) || !filter_gpu_serves(p->extended[d]))
            return "GPUs have no FFT of the lattice's axes";
        const int edge = d == 2 ? (int)SPREAD_DEEP : (int)SPREAD_EDGE;
        if (edge + 2 * mesh + 1 > p->mesh[d] || NEAR_EDGE + 2 * near + 1 > p->extended[d])
            return "the lattice is too small for it on a GPU";
    }
    return NULL;
}

void destroy(void *state)
{
    struct split_gpu *s = (struct split_gpu *)state;
    if (!s)
        return;
    filter_gpu_free(s->filter);
    if (gpu_enter(s->gpu) == 0) {
        binning_free(&s->binning, s->gpu);
        gpu_release(s->gpu, s->nodes);
        for (cudaEvent_t event : s->ended)
            if (event)
                (void)cudaEventDestroy(event);
    }
    free(s);
}

/* Coefficients beyond a law's degree are 0. */
near_kernel near_of(int degree)
{
    return degree <= 6    ? add_near<6>
           : degree <= 8  ? add_near<8>
           : degree <= 10 ? add_near<10>
           : degree <= 12 ? add_near<12>
                          : add_near<RANGE_DEGREE_MOST>;
}

void jobs_fill(struct split_gpu *s)
{
    const struct split_params *p = &s->params;
    const double near = reach_near(p);
    for (int d = 0; d < 3; d++) {
        s->spread.mesh.nodes[d] = s->spread.mesh.cells[d] = p->mesh[d];
        s->spread.mesh.reach[d] = (float)(p->window.params.reach / length_of(p, d) * p->mesh[d]);
        s->near.lattice.nodes[d] = p->extended[d];
        s->near.lattice.cells[d] = p->lattice.cells[d];
        s->near.lattice.reach[d] = (float)(near / p->lattice.spacing[d]);
        s->near.spacing[d] = (float)p->lattice.spacing[d];
    }
    s->spread.window = law_gpu_of(&p->window);
    memcpy(s->near.c, p->near.c, sizeof s->near.c);
    s->near.fall = p->near.params.fall > 0 ? (float)(1 / (p->near.params.fall * p->near.params.fall)) : 0;
    s->near.reach2 = (float)(p->near.params.reach * p->near.params.reach);
    s->near.per_reach2 = 1 / s->near.reach2;
    s->near.exclusion2 = (float)(p->exclusion * p->exclusion);
}

int binning_of(struct binning *binning, const struct split_params *p)
{
    const double length[3] = {length_of(p, 0), length_of(p, 1), length_of(p, 2)};
    return binning_lay(binning, p->count, length);
}

int create(void **state, struct dev *dev, const struct split_params *params)
{
    struct split_gpu *s = (struct split_gpu *)calloc(1, sizeof *s);
    if (!s)
        return err_no_memory("a sum in two parts");
    s->gpu = gpu_of(dev);
    s->params = *params;
    const struct filter_shape shape = split_shape(params);
    s->add = near_of(params->near.degree);
    int rc = gpu_enter(s->gpu);
    if (!rc)
        rc = binning_of(&s->binning, params);
    if (!rc)
        rc = binning_create(&s->binning, s->gpu, what);
    for (int i = 0; i < 2 && !rc; i++)
        rc = gpu_check(cudaEventCreateWithFlags(&s->ended[i], cudaEventDisableTiming), what);
    if (!rc)
        rc = filter_gpu_create(&s->filter, s->gpu, &shape, &params->factors);
    if (!rc)
        rc = gpu_array(s->gpu, nodes_of(params), &s->nodes, what);
    if (!rc)
        rc = gpu_check(cudaFuncSetAttribute((const void *)spread_points, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)sizeof(spread_memory)),
                       what);
    if (!rc)
        rc = gpu_check(cudaFuncSetAttribute((const void *)s->add, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)sizeof(near_memory)),
                       what);
    jobs_fill(s);
    s->spread.points.point = s->binning.point;
    s->spread.points.first = s->binning.first;
    memcpy(s->spread.points.bins, s->binning.bins, sizeof s->binning.bins);
    s->near.points = s->spread.points;
    s->spread.nodes = s->nodes;
    if (rc)
        destroy(s);
    else
        *state = s;
    return rc;
}

int memory_of(struct dev *dev, const struct split_params *params, size_t *bytes)
{
    const struct filter_shape shape = split_shape(params);
    struct binning binning;
    int rc = gpu_enter(gpu_of(dev));
    if (!rc)
        rc = binning_of(&binning, params);
    if (!rc)
        *bytes =
            nodes_of(params) * sizeof(float) + filter_gpu_bytes(&shape, params->factors.count) + binning_bytes(binning);
    return rc;
}

int launch(struct split_gpu *s, int stage, const float *values, float *grid)
{
    if (stage == SPLIT_BINS)
        return binning_run(s->binning, s->gpu, values, what);
    if (stage >= SPLIT_FILTER && stage < SPLIT_NEAR)
        return filter_gpu_pass(s->filter, stage - SPLIT_FILTER, s->nodes, grid);
    if (stage == SPLIT_SPREAD) {
        spread_points<<<tiles_of<SPREAD_EDGE, SPREAD_EDGE, SPREAD_DEEP>(s->spread.mesh), 32 * WARPS,
                        sizeof(spread_memory), s->gpu->stream>>>(s->spread);
    } else {
        s->near.grid = grid;
        s->add<<<tiles_of<NEAR_EDGE, NEAR_EDGE, NEAR_EDGE>(s->near.lattice), 32 * WARPS, sizeof(near_memory),
                 s->gpu->stream>>>(s->near);
    }
    return gpu_launched(what);
}

int tell(const struct listener *listener, int stage)
{
    return listener ? listener->progress(listener->context, (size_t)stage, SPLIT_STAGES) : 0;
}

/* The device has a stage ahead while the listener is told that those before have ended. */
int run(struct split_gpu *s, const float *values, float *grid, const struct listener *listener)
{
    int rc = 0;
    for (int stage = SPLIT_BINS; stage <= SPLIT_STAGES && !rc; stage++) {
        if (stage < SPLIT_STAGES)
            rc = launch(s, stage, values, grid);
        if (!rc && listener && stage < SPLIT_STAGES)
            rc = gpu_check(cudaEventRecord(s->ended[stage & 1], s->gpu->stream), what);
        if (!rc && listener && stage > SPLIT_BINS)
            rc = gpu_check(cudaEventSynchronize(s->ended[(stage - 1) & 1]), what);
        if (!rc)
            rc = tell(listener, stage);
    }
    return rc;
}

int sum(void *state, const double *at, const float *values, float *grid, const struct listener *listener)
{
    struct split_gpu *s = (struct split_gpu *)state;
    int rc = gpu_enter(s->gpu);
    if (!rc)
        rc = tell(listener, SPLIT_POINTS);
    if (!rc)
        rc = gpu_upload(s->gpu, s->binning.at, at, 3 * s->params.count * sizeof *at);
    if (!rc)
        rc = run(s, values, grid, listener);
    if (rc) /* the caller may free what a launched stage writes */
        (void)cudaStreamSynchronize(s->gpu->stream);
    return rc;
}

} // namespace

extern "C" const struct split_leaf split_leaf_gpu = {refused, create, destroy, memory_of, sum};
