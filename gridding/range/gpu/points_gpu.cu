/* points_gpu.cu: points in compact bins on a GPU: creation, description, partition at a depth. */
#include "gridding/range/gpu/cells_gpu.cuh"
#include "gridding/range/gpu/points_gpu.cuh"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include <cstdlib>
#include <cstring>

static const char what[] = "Putting points into bins";

enum { THREADS = 256 };

/* ---- memory ---- */

/* The granularity of the driver's pool. */
enum { POOL_ROUNDING = 512, ALLOCATIONS = 16 };

static size_t place_bytes(bool fine)
{
    return fine ? sizeof(double) : sizeof(float);
}

/* Bytes of the positions and scales of `count` points. */
static size_t room_bytes(int dim, size_t count, bool fine, bool scaled)
{
    return count * ((size_t)dim * place_bytes(fine) + (scaled ? sizeof(float) : 0));
}

static int key_bits(size_t bins)
{
    int bits = 1;
    while (bits < 32 && (bins - 1) >> bits)
        bits++;
    return bits;
}

static int sort_bytes(size_t count, size_t bins, size_t *bytes)
{
    const uint32_t *none = NULL;
    return gpu_check(cub::DeviceRadixSort::SortPairs(NULL, *bytes, none, (uint32_t *)NULL, none, (uint32_t *)NULL,
                                                     (int)count, 0, key_bits(bins)),
                     what);
}

void points_gpu_memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory)
{
    const struct point_bins bins = point_bins_choose(&params->box, params->reach, params->inputs);
    const bool fine = params->at_double, scaled = params->scale;
    const size_t n = params->inputs, room = room_bytes(params->box.dim, n, fine, scaled);
    size_t sort = 0;
    /* If this fails, creation fails as well, and reports the reason. */
    if (gpu_enter((const struct gpu *)dev->state) || sort_bytes(n, bins.all, &sort))
        sort = 2 * n * sizeof(uint32_t);
    /* A partition copies the bins' starts to the host. */
    memory->points = sizeof(struct points_gpu) + room + n * sizeof(uint32_t) + 2 * (bins.all + 1) * sizeof(uint32_t) +
                     (size_t)ALLOCATIONS * POOL_ROUNDING;
    memory->create = memory->points + room + 3 * n * sizeof(uint32_t) + sort;
}

static int make_arrays(struct points_gpu *p, uint32_t count, bool fine, bool scaled)
{
    struct points_view *v = &p->view;
    const size_t room = room_bytes(v->box.dim, count, fine, scaled);
    v->count = count;
    int rc = gpu_array(p->gpu, (size_t)v->all + 1, &p->first, what);
    if (!rc)
        rc = gpu_array(p->gpu, count, &p->source, what);
    if (!rc)
        rc = gpu_alloc(p->gpu, room, &p->room, what);
    if (rc)
        return rc;
    p->bytes = room + count * sizeof *p->source + ((size_t)v->all + 1) * sizeof *p->first;
    v->first = p->first;
    v->source = p->source;
    for (int d = 0; d < v->box.dim; d++)
        if (fine)
            v->fine[d] = (double *)p->room + (size_t)d * count;
        else
            v->at[d] = (float *)p->room + (size_t)d * count;
    if (scaled)
        v->scale = (float *)((char *)p->room + count * (size_t)v->box.dim * place_bytes(fine));
    return 0;
}

/* ---- creation of points ---- */

/* The input. */
struct raw_points {
    const float *at;
    const double *fine;
    const float *scale;
};

static __device__ double raw_place(const struct range_box &box, const raw_points &raw, size_t i, int d)
{
    const size_t place = i * (size_t)box.dim + (size_t)d;
    return point_place(&box, d, raw.fine ? raw.fine[place] : (double)raw.at[place], raw.fine);
}

static __global__ void find_keys(points_view p, raw_points raw, uint32_t *key, uint32_t *index)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.count)
        return;
    uint32_t bin = 0;
    for (int d = p.box.dim - 1; d >= 0; d--)
        bin = bin * (uint32_t)p.bins[d] +
              (uint32_t)point_bin(p.box.origin[d], p.edge[d], p.bins[d], raw_place(p.box, raw, i, d));
    key[i] = bin;
    index[i] = i;
}

static __global__ void find_firsts(uint32_t count, uint32_t bins, const uint32_t *key, uint32_t *first)
{
    const uint32_t b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b > bins)
        return;
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (key[middle] < b)
            low = middle + 1;
        else
            high = middle;
    }
    first[b] = low;
}

/* place, fine, scale: the arrays to fill. */
struct placed {
    float *at[3], *scale;
    double *fine[3];
};

static struct placed placed_of(const struct points_gpu *p)
{
    struct placed to = {{NULL, NULL, NULL}, (float *)(uintptr_t)p->view.scale, {NULL, NULL, NULL}};
    for (int d = 0; d < 3; d++) {
        to.at[d] = (float *)(uintptr_t)p->view.at[d];
        to.fine[d] = (double *)(uintptr_t)p->view.fine[d];
    }
    return to;
}

static __global__ void place_points(points_view p, raw_points raw, placed to)
{
    const uint32_t place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= p.count)
        return;
    const uint32_t i = p.source[place];
    for (int d = 0; d < p.box.dim; d++)
        if (to.fine[d])
            to.fine[d][place] = raw_place(p.box, raw, i, d);
        else
            to.at[d][place] = (float)raw_place(p.box, raw, i, d);
    if (to.scale)
        to.scale[place] = raw.scale[i];
}

/* How bins are filled. */
struct filled {
    uint32_t occupied, largest;
};

static __global__ void count_held(uint32_t bins, const uint32_t *first, filled *all)
{
    const uint32_t b = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t held = b < bins ? first[b + 1] - first[b] : 0;
    const uint32_t occupied = (uint32_t)__popc(__ballot_sync(~0u, held > 0)), largest = __reduce_max_sync(~0u, held);
    if ((threadIdx.x & 31) == 0 && occupied > 0) {
        atomicAdd(&all->occupied, occupied);
        atomicMax(&all->largest, largest);
    }
}

/* Count the points of the bins, on the device. */
static int count_bins(struct points_gpu *p)
{
    filled *all = NULL, counted = {0, 0};
    int rc = gpu_array(p->gpu, 1, &all, what);
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(all, 0, sizeof *all, p->gpu->stream), what);
    if (!rc) {
        count_held<<<gpu_blocks(p->view.all, THREADS), THREADS, 0, p->gpu->stream>>>(p->view.all, p->first, all);
        rc = gpu_launched(what);
    }
    if (!rc)
        rc = gpu_download(p->gpu, &counted, all, sizeof counted);
    gpu_release(p->gpu, all);
    p->occupied = counted.occupied;
    p->largest = counted.largest;
    return rc;
}

/* Temporary memory of the creation, released at its end. */
struct making {
    void *raw, *sort;
    uint32_t *key[2], *index;
};

static int sort_points(struct points_gpu *p, const raw_points &raw, struct making *m)
{
    const uint32_t n = p->view.count;
    size_t bytes = 0;
    int rc = sort_bytes(n, p->view.all, &bytes);
    for (int i = 0; i < 2 && !rc; i++)
        rc = gpu_array(p->gpu, n, &m->key[i], what);
    if (!rc)
        rc = gpu_array(p->gpu, n, &m->index, what);
    if (!rc)
        rc = gpu_alloc(p->gpu, bytes, &m->sort, what);
    if (rc)
        return rc;
    cudaStream_t stream = p->gpu->stream;
    find_keys<<<gpu_blocks(n, THREADS), THREADS, 0, stream>>>(p->view, raw, m->key[0], m->index);
    rc = gpu_launched(what);
    if (!rc)
        rc = gpu_check(cub::DeviceRadixSort::SortPairs(m->sort, bytes, m->key[0], m->key[1], m->index, p->source,
                                                       (int)n, 0, key_bits(p->view.all), stream),
                       what);
    if (rc)
        return rc;
    find_firsts<<<gpu_blocks((size_t)p->view.all + 1, THREADS), THREADS, 0, stream>>>(n, p->view.all, m->key[1],
                                                                                      p->first);
    rc = gpu_launched(what);
    if (rc)
        return rc;
    place_points<<<gpu_blocks(n, THREADS), THREADS, 0, stream>>>(p->view, raw, placed_of(p));
    return gpu_launched(what);
}

/* Upload the arrays of `params`, and sort them into bins. */
static int fill(struct points_gpu *p, const struct range_points_params *params, struct making *m)
{
    const size_t n = params->inputs, dim = (size_t)params->box.dim;
    const size_t places = n * dim * place_bytes(params->at_double), scales = params->scale ? n * sizeof(float) : 0;
    int rc = gpu_alloc(p->gpu, places + scales, &m->raw, what);
    if (!rc)
        rc = gpu_upload(p->gpu, m->raw, params->at_double ? (const void *)params->at_double : (const void *)params->at,
                        places);
    if (!rc && scales)
        rc = gpu_upload(p->gpu, (char *)m->raw + places, params->scale, scales);
    const struct raw_points raw = {params->at_double ? NULL : (const float *)m->raw,
                                   params->at_double ? (const double *)m->raw : NULL,
                                   scales ? (const float *)((const char *)m->raw + places) : NULL};
    return rc ? rc : sort_points(p, raw, m);
}

static int listen(const struct listener *listener, size_t done, size_t most)
{
    return listener ? listener->progress(listener->context, done, most) : 0;
}

static struct points_gpu *begin(struct dev *dev, const struct range_points_params *params)
{
    struct points_gpu *p = (struct points_gpu *)calloc(1, sizeof *p);
    if (!p)
        return NULL;
    const struct point_bins bins = point_bins_choose(&params->box, params->reach, params->inputs);
    p->gpu = gpu_of(dev);
    p->dev = dev;
    p->depth = params->bin_depth;
    p->widest = 1;
    for (size_t i = 0; params->scale && i < params->inputs; i++)
        p->widest = i == 0 || params->scale[i] > p->widest ? params->scale[i] : p->widest;
    p->view.box = params->box;
    memcpy(p->view.bins, bins.bins, sizeof p->view.bins);
    memcpy(p->view.edge, bins.edge, sizeof p->view.edge);
    p->view.all = (uint32_t)bins.all;
    p->view.inputs = params->inputs;
    return p;
}

static int make(struct points_gpu *p, const struct range_points_params *params, const struct listener *listener)
{
    struct making m;
    memset(&m, 0, sizeof m);
    int rc = gpu_enter(p->gpu);
    if (!rc)
        rc = listen(listener, 0, 1);
    if (!rc)
        rc = make_arrays(p, (uint32_t)params->inputs, params->at_double, params->scale);
    if (!rc && params->inputs > 0)
        rc = fill(p, params, &m);
    else if (!rc)
        rc =
            gpu_check(cudaMemsetAsync(p->first, 0, ((size_t)p->view.all + 1) * sizeof *p->first, p->gpu->stream), what);
    if (!rc)
        rc = count_bins(p);
    gpu_release(p->gpu, m.raw);
    gpu_release(p->gpu, m.sort);
    gpu_release(p->gpu, m.index);
    for (int i = 0; i < 2; i++)
        gpu_release(p->gpu, m.key[i]);
    return rc ? rc : listen(listener, 1, 1);
}

int points_gpu_create(void **state, struct dev *dev, const struct range_points_params *params,
                      const struct listener *listener)
{
    struct points_gpu *p = begin(dev, params);
    if (!p)
        return err_no_memory("points in bins");
    const int rc = make(p, params, listener);
    if (rc)
        points_gpu_destroy(p);
    else
        *state = p;
    return rc;
}

void points_gpu_destroy(void *state)
{
    struct points_gpu *p = (struct points_gpu *)state;
    if (!p)
        return;
    if (gpu_enter(p->gpu) == 0) {
        pair_cells_free(p->cells);
        gpu_release(p->gpu, p->first);
        gpu_release(p->gpu, p->source);
        gpu_release(p->gpu, p->room);
    }
    free(p);
}

void points_gpu_info(const void *state, struct range_points_info *info)
{
    const struct points_gpu *p = (const struct points_gpu *)state;
    info->inputs = p->view.inputs;
    info->count = p->view.count;
    info->bins = p->view.all;
    info->occupied_bins = p->occupied;
    info->largest_bin = p->largest;
    info->bytes = p->bytes;
}

/* ---- partition ---- */

/* One warp per bin: points `skipped` to `most` of each bin of `from`. */
static __global__ void take_part(points_view from, points_view to, placed arrays, uint32_t *source, uint32_t skipped,
                                 uint32_t most)
{
    const uint32_t bin = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    if (bin >= from.all)
        return;
    const uint32_t first = from.first[bin], held = from.first[bin + 1] - first, end = held < most ? held : most;
    const uint32_t base = to.first[bin];
    for (uint32_t i = skipped + lane; i < end; i += 32) {
        const uint32_t place = base + (i - skipped), at = first + i;
        for (int d = 0; d < from.box.dim; d++)
            if (arrays.fine[d])
                arrays.fine[d][place] = from.fine[d][at];
            else
                arrays.at[d][place] = from.at[d][at];
        if (arrays.scale)
            arrays.scale[place] = from.scale[at];
        source[place] = from.source[at];
    }
}

static int part_fill(struct points_gpu *p, const struct points_gpu *all, uint32_t *first, uint32_t skipped,
                     uint32_t most)
{
    int rc = make_arrays(p, first[p->view.all], points_fine(all->view), all->view.scale);
    if (rc)
        return rc;
    rc = gpu_upload(p->gpu, p->first, first, ((size_t)p->view.all + 1) * sizeof *first);
    if (rc || p->view.count == 0)
        return rc;
    take_part<<<gpu_blocks((size_t)p->view.all * 32, THREADS), THREADS, 0, p->gpu->stream>>>(
        all->view, p->view, placed_of(p), p->source, skipped, most);
    return gpu_launched("Partitioning points");
}

/* Points `skipped` to `most` of each bin of `all`, which begin at all_first (the host's). */
static int part_create(struct points_gpu **out, const struct points_gpu *all, const uint32_t *all_first, size_t skipped,
                       size_t most)
{
    struct points_gpu *p = (struct points_gpu *)calloc(1, sizeof *p);
    uint32_t *first = (uint32_t *)calloc((size_t)all->view.all + 1, sizeof *first);
    if (!p || !first) {
        free(p);
        free(first);
        return err_no_memory("points in bins");
    }
    p->gpu = all->gpu;
    p->dev = all->dev;
    p->depth = all->depth;
    p->widest = all->widest;
    p->view = all->view;
    p->view.scale = NULL;
    memset(p->view.at, 0, sizeof p->view.at);
    memset(p->view.fine, 0, sizeof p->view.fine);
    for (uint32_t b = 0; b < all->view.all; b++) {
        const size_t held = all_first[b + 1] - all_first[b], end = held < most ? held : most,
                     here = end > skipped ? end - skipped : 0;
        first[b + 1] = first[b] + (uint32_t)here;
        p->occupied += here > 0;
        p->largest = here > p->largest ? here : p->largest;
    }
    const int rc = part_fill(p, all, first, (uint32_t)(skipped < UINT32_MAX ? skipped : UINT32_MAX),
                             (uint32_t)(most < UINT32_MAX ? most : UINT32_MAX));
    free(first);
    if (rc)
        points_gpu_destroy(p);
    else
        *out = p;
    return rc;
}

int points_gpu_partition(const void *state, size_t depth, void **kept, void **rest)
{
    const struct points_gpu *all = (const struct points_gpu *)state;
    const size_t bytes = ((size_t)all->view.all + 1) * sizeof *all->first;
    struct points_gpu *first = NULL, *second = NULL;
    uint32_t *starts = (uint32_t *)malloc(bytes);
    int rc = starts ? gpu_enter(all->gpu) : err_no_memory("%zu bins of points", (size_t)all->view.all);
    if (!rc)
        rc = gpu_download(all->gpu, starts, all->first, bytes);
    if (!rc)
        rc = part_create(&first, all, starts, 0, depth);
    if (!rc)
        rc = part_create(&second, all, starts, depth, SIZE_MAX);
    free(starts);
    if (rc) {
        points_gpu_destroy(first);
        return rc;
    }
    *kept = first;
    *rest = second;
    return 0;
}
