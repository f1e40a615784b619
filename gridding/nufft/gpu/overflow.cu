/* Overflowed samples: downloaded in a stream of their own, summed by the CPU's threads while the GPU grids the others,
 * and added to the grid, row by row, each cell once: the same bits on every run.
 *
 * A chunk of transforms is downloaded and summed at a time. While the GPU grids and transforms a chunk, the CPU sums
 * the next one. */
#include "gridding/base/clock.h"
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/base/clock.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

struct nufft_gpu_overflow {
    const struct overflow_ops *ops;
    struct range_overflow *cpu;
    struct range_bins_gpu bins; /* used by the forward transform, which interpolates these samples on the GPU */
    float *bin_weights;         /* in their order, or NULL */
    uint32_t count;
    uint32_t *order; /* in the CPU's order: the caller's index */
    float *weights;  /* in that order, or NULL */
    int chunk;       /* largest number of transforms */
    size_t cells;    /* of a packed grid */
    uint32_t rows;
    struct range_row *row;
    struct c32 *values, *host_values; /* [chunk][count]; host: pinned */
    struct c32 *packed, *host_packed; /* [chunk][cells] */
    cudaStream_t stream;
    cudaEvent_t ready, fetched, uploaded, merged;
    int fetched_first, fetched_count; /* the chunk being downloaded; 0: none */
    int first, transforms;            /* the chunk in `packed` */
};

/* ---- making ---- */

static int make_stream(struct nufft_gpu_overflow *o)
{
    const char *what = "Making a stream";
    int rc = gpu_check(cudaStreamCreateWithFlags(&o->stream, cudaStreamNonBlocking), what);
    cudaEvent_t *events[] = {&o->ready, &o->fetched, &o->uploaded, &o->merged};
    for (cudaEvent_t *event : events)
        if (!rc)
            rc = gpu_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), what);
    return rc;
}

/* A pinned array; 0 items are none. */
static int pin(size_t items, struct c32 **out)
{
    size_t bytes = items * sizeof **out;
    if (bytes == 0)
        return 0;
    if (cudaHostAlloc((void **)out, bytes, cudaHostAllocDefault) == cudaSuccess)
        return 0;
    (void)cudaGetLastError();
    return err_set_bytes(
        ERR_NO_MEMORY, (int64_t)bytes, -1,
        "%.1f MB of memory for the samples that overflow to the CPU cannot be pinned. Ask for a larger "
        "bin_depth, or for overflow=split.",
        (double)bytes / 1e6);
}

static int make_buffers(struct nufft_gpu *plan, struct nufft_gpu_overflow *o)
{
    struct gpu *gpu = plan->gpu;
    const char *what = "Samples that overflow";
    size_t count = o->count;
    int rc = gpu_array(gpu, count, &o->order, what);
    if (!rc)
        rc = gpu_array(gpu, o->rows, &o->row, what);
    if (!rc)
        rc = gpu_array(gpu, count * o->chunk, &o->values, what);
    if (!rc)
        rc = gpu_array(gpu, o->cells * o->chunk, &o->packed, what);
    if (!rc)
        rc = pin(count * o->chunk, &o->host_values);
    if (!rc)
        rc = pin(o->cells * o->chunk, &o->host_packed);
    plan->bytes += count * sizeof *o->order + o->rows * sizeof *o->row + o->bins.bytes +
                   (count + o->cells) * o->chunk * sizeof(struct c32);
    return rc;
}

/* The CPU's part: bins for the samples beyond the depth. */
static int make_cpu(struct nufft_gpu *plan, struct nufft_gpu_overflow *o, const struct range_part *past)
{
    const struct nufft_shape *s = &plan->shape;
    struct overflow_shape shape = {};
    size_t values = (size_t)past->samples * s->dim;
    float *k = (float *)malloc(values * sizeof *k);
    uint32_t *index = (uint32_t *)malloc((size_t)past->samples * sizeof *index);
    int rc = k && index ? 0 : err_no_memory("%u samples that overflow", past->samples);
    if (!rc)
        rc = gpu_download(plan->gpu, k, past->k, values * sizeof *k);
    if (!rc)
        rc = gpu_download(plan->gpu, index, past->index, (size_t)past->samples * sizeof *index);
    shape.dim = s->dim;
    memcpy(shape.grid, s->grid, sizeof shape.grid);
    shape.width = s->width;
    shape.beta = s->beta;
    shape.radial = s->kernel == NUFFT_RADIAL;
    shape.error = std::max(0.01 * s->tolerance, 1e-7);
    shape.lanes = std::min(o->chunk, s->batch);
    shape.threads = plan->threads;
    if (!rc)
        rc = o->ops->create(&o->cpu, &shape, past->samples, k);
    if (!rc) {
        const struct range_rows *rows = o->ops->rows(o->cpu);
        o->rows = (uint32_t)rows->count;
        o->cells = rows->cells;
        rc = make_buffers(plan, o);
    }
    if (!rc) {
        const uint32_t *order = o->ops->order(o->cpu);
        uint32_t *mapped = (uint32_t *)k; /* reuses k's memory, which has been read; dim >= 2: it is large enough */
        for (uint32_t i = 0; i < past->samples; i++)
            mapped[i] = index[order[i]];
        rc = gpu_upload(plan->gpu, o->order, mapped, (size_t)past->samples * sizeof *mapped);
    }
    if (!rc)
        rc = gpu_upload(plan->gpu, o->row, o->ops->rows(o->cpu)->row, o->rows * sizeof *o->row);
    free(index);
    free(k);
    return rc;
}

int nufft_gpu_partition(struct nufft_gpu *plan, const struct range_geometry *geometry, const float *k)
{
    struct gpu *gpu = plan->gpu;
    struct range_geometry plain = *geometry;
    struct range_bins_gpu all = {};
    struct range_part kept = {}, past = {};
    plain.by_cell = false;
    plain.light = 0;
    plain.run_samples = 0;
    int rc = range_bins_gpu_make(&all, gpu, &plain, plan->samples, k);
    if (!rc && all.nonfinite != SIZE_MAX)
        rc = nufft_nonfinite(all.nonfinite, plan->shape.dim);
    if (!rc && plan->samples > 0)
        rc = range_gpu_partition(gpu, &all, (uint32_t)plan->shape.bin_depth, k, &kept, &past);
    range_bins_gpu_free(&all, gpu);
    if (!rc)
        rc = range_bins_gpu_make_part(&plan->bins, gpu, geometry, &kept);
    if (!rc && past.samples > 0) {
        struct nufft_gpu_overflow *o = plan->overflow = (struct nufft_gpu_overflow *)calloc(1, sizeof *o);
        if (!o)
            rc = err_no_memory("samples that overflow");
        if (!rc) {
            o->ops = plan->shape.overflow_ops;
            o->count = past.samples;
            o->chunk = std::min(plan->method->overflow_chunk, plan->shape.batch);
            rc = make_stream(o);
        }
        if (!rc)
            rc = range_bins_gpu_make_part(&o->bins, gpu, geometry, &past);
        if (!rc)
            rc = make_cpu(plan, o, &past);
    }
    range_gpu_part_free(&past, gpu);
    range_gpu_part_free(&kept, gpu);
    return rc;
}

void nufft_gpu_overflow_free(struct nufft_gpu *plan)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    if (!o)
        return;
    void *held[] = {o->bin_weights, o->order, o->weights, o->row, o->values, o->packed};
    if (o->stream)
        (void)cudaStreamSynchronize(o->stream);
    for (void *memory : held)
        gpu_release(plan->gpu, memory);
    range_bins_gpu_free(&o->bins, plan->gpu);
    (void)cudaFreeHost(o->host_values);
    (void)cudaFreeHost(o->host_packed);
    cudaEvent_t events[] = {o->ready, o->fetched, o->uploaded, o->merged};
    for (cudaEvent_t event : events)
        if (event)
            (void)cudaEventDestroy(event);
    if (o->stream)
        (void)cudaStreamDestroy(o->stream);
    o->ops->destroy(o->cpu);
    free(o);
    plan->overflow = NULL;
}

uint32_t nufft_gpu_overflowed(const struct nufft_gpu *plan)
{
    return plan->overflow ? plan->overflow->count : 0;
}

/* Blocks of 256; a thread owns one value. */
static __global__ void take_values(uint32_t count, const uint32_t *index, const float *values, float *to)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] = values[index[i]];
}

static int take_weights(struct nufft_gpu *plan, const uint32_t *order, const float *weights, float **to)
{
    uint32_t count = plan->overflow->count;
    if (!weights) {
        gpu_release(plan->gpu, *to);
        *to = NULL;
        return 0;
    }
    int rc = *to ? 0 : gpu_array(plan->gpu, count, to, "The weights");
    if (rc)
        return rc;
    take_values<<<gpu_blocks(count, 256), 256, 0, plan->gpu->stream>>>(count, order, weights, *to);
    return gpu_launched("Sorting the weights");
}

int nufft_gpu_overflow_weights(struct nufft_gpu *plan, const float *weights)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    if (!o)
        return 0;
    int rc = take_weights(plan, o->order, weights, &o->weights);
    return rc ? rc : take_weights(plan, o->bins.order, weights, &o->bin_weights);
}

/* ---- the adjoint ---- */

/* Blocks of 256, a row of blocks for each transform; a thread owns one value. */
static __global__ void take_data(uint32_t count, size_t samples, const uint32_t *order, const float *weights,
                                 const float2 *data, float2 *values)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    float2 v = __ldcs(data + blockIdx.y * samples + order[i]);
    float w = weights ? weights[i] : 1.f;
    values[(size_t)blockIdx.y * count + i] = make_float2(v.x * w, v.y * w);
}

/* Transforms downloaded at a time: whole groups. */
static int chunk_of(const struct nufft_gpu *plan, int left)
{
    return std::min(left, plan->overflow->chunk / plan->group * plan->group);
}

/* Start the download of the values of transforms first .. first + transforms - 1 of data to host_values. */
static int fetch(struct nufft_gpu *plan, int first, int transforms, const struct c32 *data, bool weigh)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    const char *what = "Fetching samples that overflow";
    o->fetched_first = first;
    o->fetched_count = transforms;
    take_data<<<dim3(gpu_blocks(o->count, 256), transforms), 256, 0, o->stream>>>(
        o->count, plan->samples, o->order, weigh ? o->weights : NULL, (const float2 *)(data + first * plan->samples),
        (float2 *)o->values);
    int rc = gpu_launched(what);
    if (!rc)
        rc =
            gpu_check(cudaMemcpyAsync(o->host_values, o->values, (size_t)transforms * o->count * sizeof *o->host_values,
                                      cudaMemcpyDeviceToHost, o->stream),
                      what);
    return rc ? rc : gpu_check(cudaEventRecord(o->fetched, o->stream), what);
}

int nufft_gpu_overflow_begin(struct nufft_gpu *plan, int batch, const struct c32 *data, bool weigh)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    if (!o)
        return 0;
    /* The data are written in the device's stream, so wait for that. */
    int rc = gpu_check(cudaEventRecord(o->ready, plan->gpu->stream), "Ordering streams");
    if (!rc)
        rc = gpu_check(cudaStreamWaitEvent(o->stream, o->ready, 0), "Ordering streams");
    o->first = o->transforms = 0;
    return rc ? rc : fetch(plan, 0, chunk_of(plan, batch), data, weigh);
}

/* Sum the downloaded chunk, start the next download, and upload the sums. */
static int sum_chunk(struct nufft_gpu *plan, int batch, const struct c32 *data, bool weigh)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    const char *what = "Merging samples that overflow";
    /* The stream downloads after the last chunk's upload, so host_packed is free as well. */
    int rc = gpu_check(cudaEventSynchronize(o->fetched), "Fetching samples that overflow");
    if (rc)
        return rc;
    double start = clock_seconds();
    o->ops->scatter(o->cpu, o->fetched_count, o->host_values, o->host_packed);
    if (plan->clock.used > 0)
        plan->clock.turn[plan->clock.used - 1].cpu = clock_seconds() - start;
    o->first = o->fetched_first;
    o->transforms = o->fetched_count;
    int next = o->first + o->transforms;
    /* First the sums for which the GPU waits. */
    rc = gpu_check(cudaStreamWaitEvent(o->stream, o->merged, 0), what);
    if (!rc)
        rc = nufft_gpu_clock(plan, MOMENT_SENDING, o->stream);
    if (!rc)
        rc = gpu_check(cudaMemcpyAsync(o->packed, o->host_packed, o->cells * o->transforms * sizeof *o->packed,
                                       cudaMemcpyHostToDevice, o->stream),
                       what);
    if (!rc)
        rc = nufft_gpu_clock(plan, MOMENT_SENT, o->stream);
    if (!rc)
        rc = gpu_check(cudaEventRecord(o->uploaded, o->stream), what);
    if (!rc && next < batch)
        rc = fetch(plan, next, chunk_of(plan, batch - next), data, weigh);
    return rc ? rc : gpu_check(cudaStreamWaitEvent(plan->gpu->stream, o->uploaded, 0), what);
}

/* Blocks of 128, one per row; a thread takes cells 128 apart of `count` transforms: transform t of the grid is lane
 * `lane` + t of the packed one. */
static __global__ void add_rows(const struct range_row *rows, int nx, size_t grid_cells, const float2 *packed,
                                int lanes, int lane, int count, float2 *grid)
{
    const struct range_row row = rows[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < row.cells * (uint32_t)count; i += blockDim.x) {
        uint32_t t = i % count, x = i / count, at = row.first + x;
        at -= at >= (uint32_t)nx ? nx : 0;
        float2 v = packed[(row.at + x) * lanes + lane + t];
        float2 *to = grid + t * grid_cells + (size_t)row.line * nx + at;
        *to = make_float2(to->x + v.x, to->y + v.y);
    }
}

/* Add the sums of transforms first .. first + transforms - 1 of the chunk to as many grids. */
static int add_transforms(struct nufft_gpu *plan, int first, int transforms)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    for (int pass = 0, lanes; pass < first + transforms && pass < o->transforms; pass += lanes) {
        lanes = overflow_lanes(o->transforms - pass, std::min(o->chunk, plan->shape.batch));
        int from = std::max(first, pass), to = std::min(first + transforms, pass + lanes);
        if (from >= to)
            continue;
        add_rows<<<o->rows, 128, 0, plan->gpu->stream>>>(
            o->row, plan->shape.grid[0], plan->cells, (const float2 *)(o->packed + (size_t)pass * o->cells), lanes,
            from - pass, to - from, (float2 *)(plan->grid + (size_t)(from - first) * plan->cells));
    }
    return gpu_launched("Merging samples that overflow");
}

int nufft_gpu_overflow_add(struct nufft_gpu *plan, int first, int transforms, int batch, const struct c32 *data,
                           bool weigh)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    int rc = 0;
    if (!o)
        return 0;
    if (first >= o->first + o->transforms)
        rc = sum_chunk(plan, batch, data, weigh);
    if (!rc)
        rc = nufft_gpu_clock(plan, MOMENT_WAITED, plan->gpu->stream);
    if (!rc)
        rc = add_transforms(plan, first - o->first, transforms);
    if (!rc)
        rc = nufft_gpu_clock(plan, MOMENT_MERGED, plan->gpu->stream);
    return rc ? rc : gpu_check(cudaEventRecord(o->merged, plan->gpu->stream), "Ordering streams");
}

/* ---- the forward transform ---- */

int nufft_gpu_overflow_gather(struct nufft_gpu *plan, int transforms, bool weigh, struct c32 *data)
{
    struct nufft_gpu_overflow *o = plan->overflow;
    if (!o)
        return nufft_gpu_gather(plan, transforms, weigh, data);
    struct c32 *grid = plan->grid;
    int rc = 0;
    for (int t = 0; !rc && t < transforms; t++) { /* a gather's transforms lie as far apart as its bins have samples */
        plan->grid = grid + (size_t)t * plan->cells;
        rc = nufft_gpu_gather(plan, 1, weigh, data + (size_t)t * plan->samples);
        std::swap(plan->bins, o->bins);
        std::swap(plan->weights, o->bin_weights);
        if (!rc)
            rc = nufft_gpu_gather(plan, 1, weigh, data + (size_t)t * plan->samples);
        std::swap(plan->bins, o->bins);
        std::swap(plan->weights, o->bin_weights);
    }
    plan->grid = grid;
    return rc;
}
