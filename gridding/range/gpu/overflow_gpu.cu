/* overflow_gpu.cu: the CPU's share of a GPU's sums of limited range. */
#include "gridding/range/gpu/overflow_gpu.cuh"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <pthread.h>

namespace
{

const char what[] = "Summing points on the CPU";

enum { TOGETHER = 4, THREADS = 256, SCALE = 1 << 16 };

/* ---- creation of points ---- */

/* The host's copy of the CPU's points. */
struct host_points {
    void *at; /* [count][dim], float or double */
    float *scale;
    void *axis; /* [count] */
};

template <class REAL> void interleave(const void *axis, size_t count, int dim, int d, void *at)
{
    for (size_t i = 0; i < count; i++)
        ((REAL *)at)[i * (size_t)dim + (size_t)d] = ((const REAL *)axis)[i];
}

int host_copy(const struct points_gpu *rest, struct host_points *host)
{
    const struct points_view *v = &rest->view;
    const size_t count = v->count, real = points_fine(*v) ? sizeof(double) : sizeof(float);
    int rc = 0;
    host->at = malloc(count * (size_t)v->box.dim * real + 1);
    host->axis = malloc(count * real + 1);
    host->scale = v->scale ? (float *)malloc(count * sizeof *host->scale + 1) : NULL;
    if (!host->at || !host->axis || (v->scale && !host->scale))
        return err_no_memory("%zu points that the CPU sums", count);
    for (int d = 0; d < v->box.dim && !rc; d++) {
        rc = gpu_download(rest->gpu, host->axis, points_fine(*v) ? (const void *)v->fine[d] : (const void *)v->at[d],
                          count * real);
        if (points_fine(*v))
            interleave<double>(host->axis, count, v->box.dim, d, host->at);
        else
            interleave<float>(host->axis, count, v->box.dim, d, host->at);
    }
    if (!rc && v->scale)
        rc = gpu_download(rest->gpu, host->scale, v->scale, count * sizeof *host->scale);
    return rc;
}

int make_rest(struct points_overflow *overflow, const struct points_gpu *rest, double reach,
              const struct listener *listener)
{
    struct host_points host = {NULL, NULL, NULL};
    int rc = host_copy(rest, &host);
    struct range_points_params params;
    memset(&params, 0, sizeof params);
    params.box = rest->view.box;
    params.reach = reach;
    params.inputs = rest->view.count;
    params.at = points_fine(rest->view) ? NULL : (const float *)host.at;
    params.at_double = points_fine(rest->view) ? (const double *)host.at : NULL;
    params.scale = host.scale;
    if (!rc)
        rc = range_leaf_cpu.create(&overflow->rest, &overflow->cpu, &params, listener);
    free(host.at);
    free(host.axis);
    free(host.scale);
    overflow->count = rest->view.count;
    if (!rc)
        rc = gpu_array(rest->gpu, overflow->count, &overflow->source, what);
    if (!rc)
        rc = gpu_check(cudaMemcpyAsync(overflow->source, rest->source, overflow->count * sizeof *overflow->source,
                                       cudaMemcpyDeviceToDevice, rest->gpu->stream),
                       what);
    return rc;
}

/* ---- the CPU's share of a sum ---- */

struct share {
    const struct points_overflow *overflow;
    const struct range_law *law;
    int channels;
    bool scatter;
    float *values, *grid; /* the host's: [channels][overflow->count], [channels][nodes] */
    std::atomic<int> stop, finished;
    std::atomic<unsigned> done; /* of SCALE */
    int rc;
};

int tell_share(void *context, size_t done, size_t most)
{
    struct share *s = (struct share *)context;
    s->done = (unsigned)((double)done / (double)most * SCALE);
    return s->stop ? ERR_CANCELED : 0;
}

void *sum_share(void *of)
{
    struct share *s = (struct share *)of;
    const struct listener listener = {s, tell_share};
    s->rc = s->scatter ? range_leaf_cpu.scatter(s->overflow->rest, s->law, s->channels, s->values, s->grid, &listener)
                       : range_leaf_cpu.gather(s->overflow->rest, s->law, s->channels, s->grid, s->values, &listener);
    s->finished = 1;
    return NULL;
}

/* Both shares of one pass, of `passes`. The caller's thread drives the GPU and calls the listener. */
struct both {
    struct share *share;
    const struct listener *listener;
    int pass, passes;
    size_t gpu; /* of SCALE */
};

int tell_both(void *context, size_t done, size_t most)
{
    struct both *b = (struct both *)context;
    b->gpu = (size_t)((double)done / (double)most * SCALE);
    const size_t now = (size_t)b->pass * 2 * SCALE + b->gpu + b->share->done;
    return b->listener ? b->listener->progress(b->listener->context, now, (size_t)b->passes * 2 * SCALE) : 0;
}

int wait_for_share(struct both *b)
{
    int rc = 0;
    while (!b->share->finished && !rc) {
        const struct timespec moment = {0, 2000000};
        nanosleep(&moment, NULL);
        rc = tell_both(b, SCALE, SCALE);
    }
    return rc;
}

/* A sum's values and grid. */
struct sum {
    const struct points_gpu *points;
    const struct range_law *law;
    bool scatter;
    size_t nodes;
    float *values, *grid; /* the device's, of this pass */
};

int sum_on_gpu(const struct sum *s, int channels, const struct listener *listener)
{
    const struct points_gpu *kept = s->points->overflow->kept;
    return s->scatter ? sums_gpu_scatter(kept, s->law, channels, s->values, false, s->grid, listener)
                      : sums_gpu_gather(kept, s->law, channels, s->grid, s->values, listener);
}

int sum_both(const struct sum *s, struct both *b)
{
    const struct listener listener = {b, tell_both};
    pthread_t thread;
    /* If no thread can be started, the CPU's sums follow the GPU's. */
    const bool beside = pthread_create(&thread, NULL, sum_share, b->share) == 0;
    int rc = sum_on_gpu(s, b->share->channels, &listener);
    if (!beside && !rc)
        sum_share(b->share);
    if (!rc)
        rc = wait_for_share(b);
    b->share->stop = rc != 0;
    if (beside)
        (void)pthread_join(thread, NULL);
    if (!rc && b->share->rc)
        rc = err_no_memory("the sums of %zu points on the CPU", b->share->overflow->count);
    return rc;
}

/* Copy values between the input's indices and those of the CPU's points. */
__global__ void pack(size_t count, size_t inputs, const uint32_t *source, const float *values, float *packed)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, c = blockIdx.y;
    if (i < count)
        packed[c * count + i] = values[c * inputs + source[i]];
}

__global__ void unpack(size_t count, size_t inputs, const uint32_t *source, const float *packed, float *values)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, c = blockIdx.y;
    if (i < count)
        values[c * inputs + source[i]] = packed[c * count + i];
}

__global__ void add(size_t count, const float *from, float *to)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count)
        to[i] += from[i];
}

/* The CPU's input: values, or the grid. */
int fetch(const struct sum *s, struct share *share, float *room)
{
    struct gpu *gpu = s->points->gpu;
    const size_t channels = (size_t)share->channels, count = share->overflow->count, all = channels * s->nodes;
    if (!s->scatter)
        return gpu_download(gpu, share->grid, s->grid, all * sizeof *share->grid);
    memset(share->grid, 0, all * sizeof *share->grid);
    pack<<<dim3(gpu_blocks(count, THREADS), (unsigned)channels), THREADS, 0, gpu->stream>>>(
        count, s->points->view.inputs, share->overflow->source, s->values, room);
    int rc = gpu_launched(what);
    return rc ? rc : gpu_download(gpu, share->values, room, channels * count * sizeof *share->values);
}

/* Add or copy the CPU's sums to the GPU's. */
int give(const struct sum *s, const struct share *share, float *room)
{
    struct gpu *gpu = s->points->gpu;
    const size_t channels = (size_t)share->channels, count = share->overflow->count, all = channels * s->nodes;
    int rc = s->scatter ? gpu_upload(gpu, room, share->grid, all * sizeof *room)
                        : gpu_upload(gpu, room, share->values, channels * count * sizeof *room);
    if (rc)
        return rc;
    if (s->scatter)
        add<<<gpu_blocks(all, THREADS), THREADS, 0, gpu->stream>>>(all, room, s->grid);
    else
        unpack<<<dim3(gpu_blocks(count, THREADS), (unsigned)channels), THREADS, 0, gpu->stream>>>(
            count, s->points->view.inputs, share->overflow->source, room, s->values);
    rc = gpu_launched(what);
    return rc ? rc : gpu_finish(gpu, what);
}

int sum_passes(struct sum *s, struct share *share, float *room, int channels, const struct listener *listener)
{
    struct both b = {share, listener, 0, (channels + TOGETHER - 1) / TOGETHER, 0};
    float *const values = s->values, *const grid = s->grid;
    int rc = 0;
    for (; b.pass < b.passes && !rc; b.pass++) {
        const int first = b.pass * TOGETHER;
        share->channels = channels - first < TOGETHER ? channels - first : TOGETHER;
        share->finished = 0;
        share->done = 0;
        b.gpu = 0;
        s->values = values + (size_t)first * s->points->view.inputs;
        s->grid = grid + (size_t)first * s->nodes;
        rc = fetch(s, share, room);
        if (!rc)
            rc = sum_both(s, &b);
        if (!rc)
            rc = give(s, share, room);
    }
    return rc;
}

int sum_all(struct sum *s, int channels, const struct listener *listener)
{
    const struct points_overflow *overflow = s->points->overflow;
    const size_t together = channels < TOGETHER ? (size_t)channels : (size_t)TOGETHER;
    const size_t larger = s->nodes > overflow->count ? s->nodes : overflow->count;
    float *room = NULL;
    struct share *share = new (std::nothrow) struct share();
    int rc = share ? 0 : err_no_memory("sums on the CPU");
    if (rc)
        return rc;
    share->overflow = overflow;
    share->law = s->law;
    share->scatter = s->scatter;
    share->values = (float *)malloc(together * overflow->count * sizeof(float) + 1);
    share->grid = (float *)malloc(together * s->nodes * sizeof(float) + 1);
    if (!share->values || !share->grid)
        rc = err_no_memory("sums of %zu nodes on the CPU", s->nodes);
    if (!rc)
        rc = gpu_enter(s->points->gpu);
    if (!rc)
        rc = gpu_array(s->points->gpu, together * larger, &room, what);
    if (!rc)
        rc = sum_passes(s, share, room, channels, listener);
    gpu_release(s->points->gpu, room);
    free(share->values);
    free(share->grid);
    delete share;
    return rc;
}

struct sum sum_of(const struct points_gpu *p, const struct range_law *law, bool scatter)
{
    struct sum s = {p, law, scatter, 1, NULL, NULL};
    for (int d = 0; d < 3; d++)
        s.nodes *= (size_t)p->view.box.cells[d];
    return s;
}

} // namespace

int points_overflow_create(struct points_overflow **out, const struct points_gpu *all, size_t depth, double reach,
                           const struct listener *listener)
{
    struct points_overflow *overflow = (struct points_overflow *)calloc(1, sizeof *overflow);
    void *kept = NULL, *rest = NULL;
    if (!overflow)
        return err_no_memory("points that the CPU sums");
    overflow->cpu.threads = all->dev->threads;
    int rc = points_gpu_partition(all, depth, &kept, &rest);
    overflow->kept = (struct points_gpu *)kept;
    if (!rc)
        rc = make_rest(overflow, (const struct points_gpu *)rest, reach, listener);
    points_gpu_destroy(rest);
    if (rc)
        points_overflow_free(overflow);
    else
        *out = overflow;
    return rc;
}

void points_overflow_free(struct points_overflow *overflow)
{
    if (!overflow)
        return;
    if (overflow->source)
        gpu_release(overflow->kept->gpu, overflow->source);
    points_gpu_destroy(overflow->kept);
    range_leaf_cpu.destroy(overflow->rest);
    free(overflow);
}

int points_overflow_scatter(const struct points_gpu *p, const struct range_law *law, int channels, const float *values,
                            float *grid, const struct listener *listener)
{
    struct sum s = sum_of(p, law, true);
    s.values = (float *)(uintptr_t)values; /* only read */
    s.grid = grid;
    return sum_all(&s, channels, listener);
}

int points_overflow_gather(const struct points_gpu *p, const struct range_law *law, int channels, const float *grid,
                           float *values, const struct listener *listener)
{
    struct sum s = sum_of(p, law, false);
    s.values = values;
    s.grid = (float *)(uintptr_t)grid; /* only read */
    return sum_all(&s, channels, listener);
}

static size_t nodes_of(const struct range_box *box)
{
    return (size_t)box->cells[0] * (size_t)box->cells[1] * (size_t)box->cells[2];
}

size_t points_overflow_bytes(const struct range_points_params *params)
{
    struct range_memory cpu;
    struct dev dev;
    memset(&dev, 0, sizeof dev);
    dev.threads = 1;
    range_leaf_cpu.memory(&dev, params, &cpu);
    return sizeof(struct points_overflow) + cpu.create + params->inputs * sizeof(uint32_t);
}

size_t points_overflow_sum_bytes(const struct dev *dev, const struct range_points_params *params)
{
    const size_t nodes = nodes_of(&params->box), larger = nodes > params->inputs ? nodes : params->inputs;
    struct range_memory cpu;
    range_leaf_cpu.memory(dev, params, &cpu);
    return TOGETHER * (nodes + params->inputs + larger) * sizeof(float) + sizeof(struct share) +
           (cpu.scatter > cpu.gather ? cpu.scatter : cpu.gather);
}
