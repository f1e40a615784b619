/* rival_bin.cu: binning on the GPU, by the methods that are compared. */
#include "tests/bench/rival_gpu.cuh"
#include "gridding/base/err.h"

#include <cub/cub.cuh>
#include <thrust/iterator/transform_iterator.h>

enum { THREADS = 256, NOT_KEPT = -1 };

/* Arguments of the kernels below. */
struct job {
    int grid;
    uint32_t depth;
    enum rival_full full;
    enum rival_layout layout;
    uint32_t count;
    size_t slots;
    const struct rival_sample *samples;
    uint32_t *number, *start, *filled, *rank, *key, *index, *overflowed;
    struct rival_sample *overflow;
    float *slot;
};

/* A position among the samples of a bin, or NOT_KEPT if the bin is full. The counter ends at the number of samples
 * kept. */
static __device__ uint32_t take_place(uint32_t *counter, uint32_t depth, enum rival_full full)
{
    if (full == RIVAL_READ_FIRST && *(volatile uint32_t *)counter >= depth)
        return (uint32_t)NOT_KEPT;
    uint32_t place = atomicAdd(counter, 1u);
    if (place < depth)
        return place;
    atomicSub(counter, 1u);
    return (uint32_t)NOT_KEPT;
}

static __device__ void overflow(const struct job &j, const struct rival_sample &s)
{
    j.overflow[atomicAdd(j.overflowed, 1u)] = s;
}

/* In all kernels here a thread handles one sample (or bin, or slot) at a time, in strides of the launch; blocks of
 * THREADS. */
#define EACH(i, n) \
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (n); i += gridDim.x * (size_t)blockDim.x)

static __global__ void fuse(struct job j)
{
    EACH(i, j.count)
    {
        struct rival_sample s = j.samples[i];
        size_t bin = rival_bin_of(j.grid, &s);
        uint32_t place = take_place(j.number + bin, j.depth, j.full);
        if (place == (uint32_t)NOT_KEPT)
            overflow(j, s);
        else
            rival_put(j.slot, j.slots, j.layout, bin * j.depth + place, &s);
    }
}

/* The histogram. With `rank`, every sample's rank is saved, and samples beyond the depth overflow at once. */
static __global__ void count_samples(struct job j)
{
    EACH(i, j.count)
    {
        struct rival_sample s = j.samples[i];
        uint32_t place = take_place(j.number + rival_bin_of(j.grid, &s), j.depth, j.full);
        if (j.rank == NULL)
            continue;
        j.rank[i] = place;
        if (place == (uint32_t)NOT_KEPT)
            overflow(j, s);
    }
}

static __global__ void place_ranked(struct job j)
{
    EACH(i, j.count)
    {
        struct rival_sample s = j.samples[i];
        uint32_t rank = j.rank[i];
        if (rank != (uint32_t)NOT_KEPT)
            rival_put(j.slot, j.slots, j.layout, j.start[rival_bin_of(j.grid, &s)] + rank, &s);
    }
}

static __global__ void place_again(struct job j)
{
    EACH(i, j.count)
    {
        struct rival_sample s = j.samples[i];
        size_t bin = rival_bin_of(j.grid, &s);
        uint32_t place = take_place(j.filled + bin, j.depth, j.full);
        if (place == (uint32_t)NOT_KEPT)
            overflow(j, s);
        else
            rival_put(j.slot, j.slots, j.layout, j.start[bin] + place, &s);
    }
}

/* Sort keys. With counters, samples that are not kept get the key after all bins. */
static __global__ void make_keys(struct job j, bool counted, uint32_t bins)
{
    EACH(i, j.count)
    {
        struct rival_sample s = j.samples[i];
        uint32_t bin = (uint32_t)rival_bin_of(j.grid, &s);
        j.index[i] = (uint32_t)i;
        if (counted && take_place(j.number + bin, j.depth, j.full) == (uint32_t)NOT_KEPT) {
            overflow(j, s);
            bin = bins;
        }
        j.key[i] = bin;
    }
}

/* Where each bin starts, from the sorted keys. A thread fills in the bins between the previous key and its own; if
 * there are many (empty bins), its warp helps. */
static __global__ void find_starts(struct job j, uint32_t bins)
{
    const uint32_t lane = threadIdx.x % 32;
    const size_t step = gridDim.x * (size_t)blockDim.x;
    for (size_t base = blockIdx.x * (size_t)blockDim.x + threadIdx.x - lane; base <= j.count; base += step) {
        const size_t i = base + lane;
        uint32_t from = i == 0 || i > j.count ? 0 : j.key[i - 1] + 1;
        uint32_t end = i > j.count ? 0 : (i == j.count ? bins : j.key[i]) + 1;
        for (uint32_t many = __ballot_sync(~0u, end > from + 32); many != 0; many &= many - 1) {
            const int who = __ffs((int)many) - 1;
            const uint32_t first = __shfl_sync(~0u, from, who), last = __shfl_sync(~0u, end, who);
            for (uint32_t bin = first + lane; bin < last; bin += 32)
                j.start[bin] = (uint32_t)base + (uint32_t)who;
        }
        for (; from < end && end <= from + 32; from++)
            j.start[from] = (uint32_t)i;
    }
}

static __global__ void reorder(struct job j, uint32_t bins)
{
    EACH(i, j.count)
    if (j.key[i] < bins) {
        struct rival_sample s = j.samples[j.index[i]];
        rival_put(j.slot, j.slots, j.layout, i, &s);
    }
}

/* Marks slots up to `slots`, or up to the last bin's end if that is given. */
static __global__ void mark_empty(struct job j, const uint32_t *end)
{
    const struct rival_sample none = {RIVAL_NONE, 0, 0, 0, 0, 0};
    EACH(i, end != NULL ? (size_t)*end : j.slots)
    rival_put(j.slot, j.slots, j.layout, i, &none);
}

struct round_up {
    uint32_t to;
    __host__ __device__ uint32_t operator()(uint32_t n) const
    {
        return (n + to - 1) / to * to;
    }
};

int rival_check(cudaError_t status, const char *what)
{
    if (status == cudaSuccess)
        return 0;
    return err_set(status == cudaErrorMemoryAllocation ? ERR_GPU_OOM : ERR_DEVICE, "%s: %s", what,
                   cudaGetErrorString(status));
}

static int key_bits(const struct rival_gpu *g)
{
    int bits = 1;
    while (g->bins >> bits != 0)
        bits++;
    return bits;
}

/* cub's two calls: the first returns the size of the workspace, the second does the work. */
static cudaError_t scan(struct rival_gpu *g, void *work, size_t *bytes)
{
    auto lengths = thrust::make_transform_iterator(g->number, round_up{g->recipe.shape.round});
    return cub::DeviceScan::ExclusiveSum(work, *bytes, lengths, g->start, (int64_t)(g->bins + 1), g->stream);
}

static cudaError_t sort_keys(struct rival_gpu *g, void *work, size_t *bytes)
{
    return cub::DeviceRadixSort::SortPairs(work, *bytes, g->key[0], g->key[1], g->index[0], g->index[1],
                                           (int64_t)g->count, 0, key_bits(g), g->stream);
}

static cudaError_t largest(struct rival_gpu *g, void *work, size_t *bytes)
{
    return cub::DeviceReduce::Max(work, *bytes, g->number, g->start, (int64_t)g->bins, g->stream);
}

static size_t slots_of(const struct rival_gpu *g, const struct rival_shape *shape)
{
    if (shape->regular)
        return g->bins * shape->depth;
    /* Every occupied bin may need padding; there are at most as many occupied bins as samples. */
    size_t occupied = g->bins < g->count ? g->bins : g->count;
    return (g->count + occupied * (shape->round - 1) + 3) / 4 * 4;
}

static bool sorts(const struct rival_recipe *r)
{
    return r->method == RIVAL_RADIX || r->method == RIVAL_SORT_REDUCE;
}

size_t rival_gpu_bytes(const struct rival_gpu *g, const struct rival_recipe *r)
{
    size_t bytes = slots_of(g, &r->shape) * rival_floats(r->shape.layout) * sizeof(float);
    bytes += r->method == RIVAL_AGAIN ? g->bins * sizeof(uint32_t) : 0;
    bytes += r->method == RIVAL_RANKS ? g->count * sizeof(uint32_t) : 0;
    return bytes + (sorts(r) ? 5 * g->count * sizeof(uint32_t) : 0) + (g->bins + g->count) / 8;
}

static void release(struct rival_gpu *g)
{
    cudaFree(g->slot);
    cudaFree(g->filled);
    cudaFree(g->rank);
    cudaFree(g->work);
    g->slot = NULL;
    g->filled = g->rank = NULL;
    g->work = NULL;
    for (int i = 0; i < 2; i++) {
        cudaFree(g->key[i]);
        cudaFree(g->index[i]);
        g->key[i] = g->index[i] = NULL;
    }
}

int rival_gpu_prepare(struct rival_gpu *g, const struct rival_recipe *r)
{
    release(g);
    g->recipe = *r;
    g->slots = slots_of(g, &r->shape);
    RIVAL_TRY(cudaMalloc(&g->slot, g->slots * rival_floats(r->shape.layout) * sizeof(float) + 64));
    if (r->method == RIVAL_AGAIN)
        RIVAL_TRY(cudaMalloc(&g->filled, g->bins * sizeof *g->filled));
    if (r->method == RIVAL_RANKS)
        RIVAL_TRY(cudaMalloc(&g->rank, g->count * sizeof *g->rank));
    for (int i = 0; sorts(r) && i < 2; i++) {
        RIVAL_TRY(cudaMalloc(&g->key[i], g->count * sizeof **g->key));
        RIVAL_TRY(cudaMalloc(&g->index[i], g->count * sizeof **g->index));
    }
    size_t bytes[3] = {0, 0, 0};
    RIVAL_TRY(scan(g, NULL, &bytes[0]));
    RIVAL_TRY(largest(g, NULL, &bytes[1]));
    if (sorts(r))
        RIVAL_TRY(sort_keys(g, NULL, &bytes[2]));
    g->work_bytes = 0;
    for (size_t needed : bytes)
        g->work_bytes = needed > g->work_bytes ? needed : g->work_bytes;
    RIVAL_TRY(cudaMalloc(&g->work, g->work_bytes + 1));
    return 0;
}

/* Runs steps one after the other, and records an event after each. */
struct stopwatch {
    struct rival_gpu *g;
    struct rival_times *times;
};

static int step_done(struct stopwatch *w, const char *name)
{
    RIVAL_TRY(cudaGetLastError());
    w->times->name[w->times->steps++] = name;
    RIVAL_TRY(cudaEventRecord(w->g->event[w->times->steps], w->g->stream));
    return 0;
}

/* Enough blocks to fill the device, and no more. */
static unsigned blocks_for(const struct rival_gpu *g, size_t items)
{
    size_t blocks = (items + THREADS - 1) / THREADS;
    return (unsigned)(blocks < g->blocks_most ? blocks : g->blocks_most);
}

/* The depth stays that of the recipe, because the one that is found may need more than the device's memory. */
static int find_depth(struct rival_gpu *g, struct job j, struct stopwatch *w)
{
    size_t bytes = g->work_bytes;
    j.depth = UINT32_MAX;
    j.full = RIVAL_SUBTRACT;
    count_samples<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j);
    int status = step_done(w, "histogram");
    if (status != 0)
        return status;
    RIVAL_TRY(largest(g, g->work, &bytes));
    RIVAL_TRY(cudaMemsetAsync(g->number, 0, (g->bins + 1) * sizeof *g->number, g->stream));
    return step_done(w, "largest");
}

static int bin_regular(struct rival_gpu *g, struct job j, struct stopwatch *w)
{
    if (g->recipe.method == RIVAL_LARGEST) {
        int status = find_depth(g, j, w);
        if (status != 0)
            return status;
    }
    if (g->recipe.mark) {
        mark_empty<<<blocks_for(g, g->slots), THREADS, 0, g->stream>>>(j, NULL);
        int status = step_done(w, "mark");
        if (status != 0)
            return status;
    }
    fuse<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j);
    return step_done(w, "place");
}

static int bin_counted(struct rival_gpu *g, struct job j, struct stopwatch *w)
{
    size_t bytes = g->work_bytes;
    int status;
    count_samples<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j);
    if ((status = step_done(w, "histogram")) != 0)
        return status;
    RIVAL_TRY(scan(g, g->work, &bytes));
    if ((status = step_done(w, "scan")) != 0)
        return status;
    if (g->recipe.mark) {
        mark_empty<<<blocks_for(g, g->slots), THREADS, 0, g->stream>>>(j, g->start + g->bins);
        if ((status = step_done(w, "mark")) != 0)
            return status;
    }
    if (g->recipe.method == RIVAL_RANKS) {
        place_ranked<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j);
    } else {
        RIVAL_TRY(cudaMemsetAsync(g->filled, 0, g->bins * sizeof *g->filled, g->stream));
        place_again<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j);
    }
    return step_done(w, "place");
}

static int bin_sorted(struct rival_gpu *g, struct job j, struct stopwatch *w)
{
    const bool counted = g->recipe.method == RIVAL_SORT_REDUCE;
    size_t bytes = g->work_bytes;
    int status;
    make_keys<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j, counted, (uint32_t)g->bins);
    if ((status = step_done(w, "keys")) != 0)
        return status;
    RIVAL_TRY(sort_keys(g, g->work, &bytes));
    if ((status = step_done(w, "sort")) != 0)
        return status;
    j.key = g->key[1];
    j.index = g->index[1];
    reorder<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j, (uint32_t)g->bins);
    if ((status = step_done(w, "place")) != 0)
        return status;
    bytes = g->work_bytes;
    if (counted)
        RIVAL_TRY(scan(g, g->work, &bytes));
    else
        find_starts<<<blocks_for(g, g->count), THREADS, 0, g->stream>>>(j, (uint32_t)g->bins);
    return step_done(w, "starts");
}

int rival_gpu_bin(struct rival_gpu *g, struct rival_times *times)
{
    const struct rival_recipe *r = &g->recipe;
    struct job j = {
        g->grid,  r->shape.depth, r->full, r->shape.layout, (uint32_t)g->count, g->slots,      g->samples,  g->number,
        g->start, g->filled,      g->rank, g->key[0],       g->index[0],        g->overflowed, g->overflow, g->slot};
    struct stopwatch watch = {g, times};
    times->steps = 0;
    RIVAL_TRY(cudaEventRecord(g->event[0], g->stream));
    RIVAL_TRY(cudaMemsetAsync(g->overflowed, 0, sizeof *g->overflowed, g->stream));
    if (r->method != RIVAL_RADIX)
        RIVAL_TRY(cudaMemsetAsync(g->number, 0, (g->bins + 1) * sizeof *g->number, g->stream));
    int status = r->shape.regular ? bin_regular(g, j, &watch)
                 : sorts(r)       ? bin_sorted(g, j, &watch)
                                  : bin_counted(g, j, &watch);
    if (status != 0)
        return status;
    RIVAL_TRY(cudaStreamSynchronize(g->stream));
    float ms;
    for (int i = 0; i < times->steps; i++) {
        RIVAL_TRY(cudaEventElapsedTime(&ms, g->event[i], g->event[i + 1]));
        times->ms[i] = (double)ms;
    }
    RIVAL_TRY(cudaEventElapsedTime(&ms, g->event[0], g->event[times->steps]));
    times->total = (double)ms;
    return 0;
}

int rival_gpu_overflow(struct rival_gpu *g, const struct rival_sample **samples, size_t *count, double *ms)
{
    uint32_t n;
    float elapsed;
    RIVAL_TRY(cudaEventRecord(g->event[0], g->stream));
    RIVAL_TRY(cudaMemcpyAsync(&n, g->overflowed, sizeof n, cudaMemcpyDeviceToHost, g->stream));
    RIVAL_TRY(cudaStreamSynchronize(g->stream));
    RIVAL_TRY(cudaMemcpyAsync(g->host_overflow, g->overflow, n * sizeof **samples, cudaMemcpyDeviceToHost, g->stream));
    RIVAL_TRY(cudaEventRecord(g->event[1], g->stream));
    RIVAL_TRY(cudaStreamSynchronize(g->stream));
    RIVAL_TRY(cudaEventElapsedTime(&elapsed, g->event[0], g->event[1]));
    *samples = g->host_overflow;
    *count = n;
    *ms = (double)elapsed;
    return 0;
}

int rival_gpu_fetch(struct rival_gpu *g, uint32_t *count, uint32_t *start, float *slot, size_t slots)
{
    if (count != NULL)
        RIVAL_TRY(cudaMemcpy(count, g->number, g->bins * sizeof *count, cudaMemcpyDeviceToHost));
    if (start != NULL)
        RIVAL_TRY(cudaMemcpy(start, g->start, (g->bins + 1) * sizeof *start, cudaMemcpyDeviceToHost));
    if (slot != NULL)
        RIVAL_TRY(cudaMemcpy(slot, g->slot, slots * rival_floats(g->recipe.shape.layout) * sizeof *slot,
                             cudaMemcpyDeviceToHost));
    return 0;
}

static int make(struct rival_gpu *g, const struct rival_sample *samples)
{
    int multiprocessors, threads;
    RIVAL_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    RIVAL_TRY(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, 0));
    g->blocks_most = (size_t)multiprocessors * (size_t)threads / THREADS;
    RIVAL_TRY(cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking));
    for (int i = 0; i <= RIVAL_STEPS; i++)
        RIVAL_TRY(cudaEventCreate(&g->event[i]));
    RIVAL_TRY(cudaMalloc(&g->samples, g->count * sizeof *g->samples));
    RIVAL_TRY(cudaMalloc(&g->overflow, g->count * sizeof *g->overflow));
    RIVAL_TRY(cudaMallocHost(&g->host_overflow, g->count * sizeof *g->host_overflow));
    RIVAL_TRY(cudaMalloc(&g->overflowed, sizeof *g->overflowed));
    RIVAL_TRY(cudaMalloc(&g->number, (g->bins + 1) * sizeof *g->number));
    RIVAL_TRY(cudaMalloc(&g->start, (g->bins + 1) * sizeof *g->start));
    RIVAL_TRY(cudaMalloc(&g->values, g->bins * sizeof *g->values));
    RIVAL_TRY(cudaMalloc(&g->other, g->bins * sizeof *g->other));
    RIVAL_TRY(cudaMallocHost(&g->host_grid, g->bins * sizeof *g->host_grid));
    RIVAL_TRY(cudaMemcpy(g->samples, samples, g->count * sizeof *samples, cudaMemcpyHostToDevice));
    return 0;
}

int rival_gpu_create(struct rival_gpu **out, int grid, const struct rival_sample *samples, size_t count)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return err_set(ERR_NO_DEVICE, "there is no usable GPU: the thesis' experiments need one");
    struct rival_gpu *g = (struct rival_gpu *)calloc(1, sizeof *g);
    if (g == NULL)
        return err_set(ERR_NO_MEMORY, "no memory for a GPU's state");
    g->grid = grid;
    g->bins = (size_t)grid * (size_t)grid * (size_t)grid;
    g->count = count;
    int status = make(g, samples);
    if (status == 0)
        *out = g;
    else
        rival_gpu_free(g);
    return status;
}

void rival_gpu_free(struct rival_gpu *g)
{
    if (g == NULL)
        return;
    release(g);
    cudaFree(g->samples);
    cudaFree(g->overflow);
    cudaFreeHost(g->host_overflow);
    cudaFree(g->overflowed);
    cudaFree(g->number);
    cudaFree(g->start);
    cudaFree(g->values);
    cudaFree(g->other);
    cudaFreeHost(g->host_grid);
    for (int i = 0; i <= RIVAL_STEPS; i++)
        if (g->event[i] != NULL)
            cudaEventDestroy(g->event[i]);
    if (g->stream != NULL)
        cudaStreamDestroy(g->stream);
    free(g);
}
