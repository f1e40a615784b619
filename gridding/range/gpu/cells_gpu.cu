/* cells_gpu.cu: cells of points for sums over pairs: creation and release. */
#include "gridding/range/gpu/cells_gpu.cuh"

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

static const char what[] = "Sorting points into cells";

/* A cell of more than HEAVY points is sorted along three axes, others along x alone. */
enum {
    THREADS = 256,
    HEAVY = 4 * CELL_POINTS / CELLS_THIN,
    BITS_LIGHT = 3,
    BITS_HEAVY = 9,
    ALLOCATIONS = 16,
    POOL_ROUNDING = 512
};

/* ---- their number ---- */

/* An edge that differs from `wanted` by at most a factor of FIT, and of which a little more than a whole number fit
 * into the reach, if there is one: rows of cells then end where a cluster's reach does, and few candidates are too far.
 */
static const double FIT = 1.25;

static double fitted_edge(double wanted, double reach)
{
    double edge = wanted, off = FIT;
    for (double parts = floor(reach / wanted), more = parts + 1; parts <= more; parts++) {
        const double fit = parts < 1 ? 0 : reach / (parts - 0.005); /* more than the slack of group_axis() */
        const double ratio = fit > wanted ? fit / wanted : wanted / fit;
        edge = ratio < off ? fit : edge;
        off = ratio < off ? ratio : off;
    }
    return edge;
}

/* Cells of about CELL_POINTS points if these are spread evenly, but no longer than two bins: about the reach; then cut
 * along x. reach: of the first sum; 0: as many cells as for any reach. */
static void choose(struct cells_view *c, const struct range_box &box, const int bins[3], size_t points, double reach)
{
    double volume = 1;
    for (int d = 0; d < box.dim; d++)
        volume *= box.cells[d] * box.spacing[d];
    const double share = volume * CELL_POINTS / (double)std::max<size_t>(points, 1), wanted = pow(share, 1.0 / box.dim);
    const double edge = reach > 0 ? fitted_edge(wanted, reach) : wanted / FIT;
    c->dim = box.dim;
    for (int d = 0; d < 3; d++) {
        const bool there = d < box.dim;
        c->length[d] = there ? box.cells[d] * box.spacing[d] : 1;
        const double own = c->length[d] / edge, whole = edge == wanted ? rint(own) : reach > 0 ? floor(own) : ceil(own);
        const double cells = there ? std::max(whole, bins[d] / 2.0) : 1;
        c->n[d] = (int)std::min(std::max(cells, 1.0), (double)POINT_BINS_AXIS_MOST);
        c->origin[d] = there ? box.origin[d] : 0;
        c->edge[d] = c->length[d] / c->n[d];
        c->per[d] = 1 / c->edge[d];
        c->periodic[d] = there && box.periodic[d];
    }
    if ((double)c->n[0] * c->n[1] * c->n[2] * CELLS_THIN < 2147483648.0) {
        c->n[0] *= CELLS_THIN;
        c->edge[0] = c->length[0] / c->n[0];
        c->per[0] = 1 / c->edge[0];
    }
}

static size_t all_of(const struct cells_view &c)
{
    return (size_t)c.n[0] * c.n[1] * c.n[2];
}

static size_t rows_of(const struct cells_view &c)
{
    return (size_t)c.n[1] * c.n[2];
}

static size_t clusters_most(size_t points, size_t rows)
{
    return points / CLUSTER + rows;
}

static int bits_of(size_t values)
{
    int bits = 0;
    while (bits < 32 && (values - 1) >> bits)
        bits++;
    return bits;
}

/* ---- memory ---- */

static int sort_bytes(size_t count, size_t *bytes)
{
    const uint32_t *none = NULL;
    return gpu_check(
        cub::DeviceRadixSort::SortPairs(NULL, *bytes, none, (uint32_t *)NULL, none, (uint32_t *)NULL, (int)count),
        what);
}

static int prefix_bytes(size_t count, size_t *bytes)
{
    uint32_t *none = NULL;
    return gpu_check(cub::DeviceScan::ExclusiveSum(NULL, *bytes, none, none, (int64_t)count), what);
}

void pair_cells_memory(const struct range_points_params *params, size_t *held, size_t *made)
{
    const struct point_bins bins = point_bins_choose(&params->box, params->reach, params->inputs);
    const size_t n = params->inputs;
    struct cells_view c;
    size_t sort = 0, scan = 0;
    choose(&c, params->box, bins.bins, n, 0);
    if (sort_bytes(n, &sort) || prefix_bytes(rows_of(c) + 1, &scan))
        sort = 2 * n * sizeof(uint32_t);
    *held = sizeof(struct pair_cells) + n * (sizeof(float4) + sizeof(uint32_t)) +
            (params->at_double ? 3 * n * sizeof(double) : 0) + (params->scale ? n * sizeof(float) : 0) +
            (all_of(c) + 1) * sizeof(uint32_t) + clusters_most(n, rows_of(c)) * sizeof(uint2) +
            (size_t)ALLOCATIONS * POOL_ROUNDING;
    *made = *held + 4 * n * sizeof(uint32_t) + 2 * (rows_of(c) + 1) * sizeof(uint32_t) + sort + scan +
            (size_t)ALLOCATIONS * POOL_ROUNDING;
}

size_t pair_clusters_most(const struct range_points_params *params)
{
    const struct point_bins bins = point_bins_choose(&params->box, params->reach, params->inputs);
    struct cells_view c;
    choose(&c, params->box, bins.bins, params->inputs, 0);
    return clusters_most(params->inputs, rows_of(c));
}

/* Memory of the cells; and temporary memory of their creation. */
template <class T> static int hold(struct pair_cells *c, size_t count, T **out)
{
    const int rc = gpu_array(c->gpu, count, out, what);
    if (!rc)
        c->memory[c->held++] = *out;
    return rc;
}

void pair_cells_free(struct pair_cells *cells)
{
    if (!cells)
        return;
    for (int i = 0; i < cells->held; i++)
        gpu_release(cells->gpu, cells->memory[i]);
    gpu_release(cells->gpu, cells->plan.offset);
    gpu_release(cells->gpu, cells->plan.longest);
    free(cells);
}

/* ---- keys ---- */

static __device__ uint32_t cell_of(const cells_view &c, const double at[3])
{
    uint32_t cell = 0;
    for (int d = c.dim - 1; d >= 0; d--)
        cell = cell * (uint32_t)c.n[d] + (uint32_t)point_bin(c.origin[d], c.edge[d], c.n[d], at[d]);
    return cell;
}

/* The part, of `parts`, of its cell that contains a point, along axis d. */
static __device__ uint32_t part_of_cell(const cells_view &c, const double at[3], int d, int parts)
{
    const double cells = (at[d] - c.origin[d]) * c.per[d], part = (cells - floor(cells)) * parts;
    return (uint32_t)fmin(part, parts - 1.0);
}

static __device__ void place_of(const points_view &p, uint32_t i, double at[3])
{
    for (int d = 0; d < 3; d++)
        at[d] = d < p.box.dim ? points_at(p, d, i) : 0.0;
}

/* By cell, and along x within it. */
static __global__ void light_keys(points_view p, cells_view c, int bits, uint32_t *key, uint32_t *order)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.count)
        return;
    double at[3];
    place_of(p, i, at);
    key[i] = cell_of(c, at) << bits | part_of_cell(c, at, 0, 1 << bits);
    order[i] = i;
}

/* By cell, and within it along x, or in heavy cells in Morton order of its parts. */
static __global__ void heavy_keys(points_view p, cells_view c, int bits, const uint32_t *order, uint32_t *key)
{
    const uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= p.count)
        return;
    double at[3];
    place_of(p, order[k], at);
    const uint32_t cell = cell_of(c, at);
    const int each = bits / 3;
    uint32_t part = 0;
    if (c.first[cell + 1] - c.first[cell] <= HEAVY) {
        part = part_of_cell(c, at, 0, 1 << bits);
    } else {
        for (int d = 0; d < c.dim; d++) {
            /* Cells are CELLS_THIN times as wide as they are long. */
            const uint32_t along = part_of_cell(c, at, d, d == 0 ? max(1, (1 << each) / CELLS_THIN) : 1 << each);
            for (int bit = 0; bit < each; bit++)
                part |= (along >> bit & 1) << (3 * bit + d);
        }
    }
    key[k] = cell << bits | part;
}

static __global__ void find_firsts(uint32_t count, uint32_t cells, int bits, const uint32_t *key, uint32_t *first)
{
    const uint32_t cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell > cells)
        return;
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (key[middle] >> bits < cell)
            low = middle + 1;
        else
            high = middle;
    }
    first[cell] = low;
}

static __global__ void find_largest(uint32_t cells, const uint32_t *first, uint32_t *largest)
{
    const uint32_t cell = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t held = cell < cells ? first[cell + 1] - first[cell] : 0;
    for (int o = 16; o > 0; o >>= 1)
        held = max(held, __shfl_xor_sync(0xffffffffu, held, o));
    if ((threadIdx.x & 31) == 0 && held > 0)
        atomicMax(largest, held);
}

/* ---- clusters ---- */

static __global__ void count_clusters(uint32_t rows, int n, const uint32_t *first, uint32_t *clusters)
{
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row > rows)
        return;
    const size_t cell = (size_t)row * n;
    clusters[row] = row < rows ? (first[cell + n] - first[cell] + CLUSTER - 1) / CLUSTER : 0;
}

/* One warp per row. */
static __global__ void fill_clusters(uint32_t rows, int n, const uint32_t *first, const uint32_t *before,
                                     uint2 *cluster)
{
    const uint32_t row = (uint32_t)(((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32);
    if (row >= rows)
        return;
    const size_t cell = (size_t)row * n;
    const uint32_t begin = first[cell], end = first[cell + n];
    for (uint32_t k = threadIdx.x & 31; k < (end - begin + CLUSTER - 1) / CLUSTER; k += 32)
        cluster[before[row] + k] = make_uint2(begin + k * CLUSTER, min(begin + (k + 1) * CLUSTER, end));
}

/* ---- points ---- */

struct cells_arrays {
    float4 *point;
    double *fine[3];
    float *unit2;
    uint32_t *source;
    unsigned long long *extent; /* bits of a double above 0 */
};

static __global__ void fill_points(points_view p, cells_view c, const uint32_t *order, cells_arrays to)
{
    const uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    double extent = 0;
    if (k < p.count) {
        const uint32_t i = order[k];
        double at[3];
        place_of(p, i, at);
        to.point[k] = make_float4((float)at[0], (float)at[1], (float)at[2], 0);
        to.source[k] = p.source[i];
        if (to.unit2)
            to.unit2[k] = 1 / (p.scale[i] * p.scale[i]);
        for (int d = 0; d < c.dim && to.fine[0]; d++) {
            to.fine[d][k] = at[d];
            extent = fmax(extent, fabs(at[d] - c.origin[d]));
        }
    }
    if (!to.fine[0])
        return;
    for (int o = 16; o > 0; o >>= 1)
        extent = fmax(extent, __shfl_xor_sync(0xffffffffu, extent, o));
    if ((threadIdx.x & 31) == 0)
        atomicMax(to.extent, (unsigned long long)__double_as_longlong(extent));
}

/* ---- creation ---- */

/* Temporary memory of the creation, released at its end. */
struct making {
    uint32_t *key[2], *order[2], *clusters, *before;
    void *room;
    size_t room_bytes;
    unsigned long long *told; /* the largest cell; the extent */
};

static int making_memory(struct pair_cells *c, size_t rows, struct making *m)
{
    const size_t n = c->view.count;
    size_t sort = 0, scan = 0;
    int rc = sort_bytes(n, &sort);
    if (!rc)
        rc = prefix_bytes(rows + 1, &scan);
    m->room_bytes = std::max(sort, scan);
    for (int i = 0; i < 2 && !rc; i++) {
        rc = gpu_array(c->gpu, n, &m->key[i], what);
        if (!rc)
            rc = gpu_array(c->gpu, n, &m->order[i], what);
    }
    if (!rc)
        rc = gpu_array(c->gpu, rows + 1, &m->clusters, what);
    if (!rc)
        rc = gpu_array(c->gpu, rows + 1, &m->before, what);
    if (!rc)
        rc = gpu_alloc(c->gpu, m->room_bytes, &m->room, what);
    if (!rc)
        rc = gpu_array(c->gpu, 2, &m->told, what);
    return rc ? rc : gpu_check(cudaMemsetAsync(m->told, 0, 2 * sizeof *m->told, c->gpu->stream), what);
}

static int sort(struct pair_cells *c, struct making *m, int bits)
{
    size_t bytes = m->room_bytes;
    return gpu_check(cub::DeviceRadixSort::SortPairs(m->room, bytes, m->key[0], m->key[1], m->order[0], m->order[1],
                                                     (int)c->view.count, 0, bits, c->gpu->stream),
                     what);
}

/* By cell: first[], clusters, and the largest cell, which is copied to the host. */
static int sort_by_cell(struct pair_cells *c, const struct points_gpu *p, struct making *m, uint32_t *first,
                        uint32_t told[2])
{
    cudaStream_t stream = c->gpu->stream;
    const uint32_t n = c->view.count, cells = (uint32_t)all_of(c->view), rows = (uint32_t)rows_of(c->view);
    const int own = bits_of(cells), bits = std::min((int)BITS_LIGHT, 32 - own);
    light_keys<<<gpu_blocks(n, THREADS), THREADS, 0, stream>>>(p->view, c->view, bits, m->key[0], m->order[0]);
    int rc = gpu_launched(what);
    if (!rc)
        rc = sort(c, m, own + bits);
    if (rc)
        return rc;
    find_firsts<<<gpu_blocks((size_t)cells + 1, THREADS), THREADS, 0, stream>>>(n, cells, bits, m->key[1], first);
    find_largest<<<gpu_blocks(cells, THREADS), THREADS, 0, stream>>>(cells, first, (uint32_t *)m->told);
    count_clusters<<<gpu_blocks((size_t)rows + 1, THREADS), THREADS, 0, stream>>>(rows, c->view.n[0], first,
                                                                                  m->clusters);
    rc = gpu_launched(what);
    size_t bytes = m->room_bytes;
    if (!rc)
        rc = gpu_check(cub::DeviceScan::ExclusiveSum(m->room, bytes, m->clusters, m->before, (int64_t)rows + 1, stream),
                       what);
    if (!rc)
        rc = gpu_download(c->gpu, &told[0], m->told, sizeof told[0]);
    if (!rc)
        rc = gpu_download(c->gpu, &told[1], m->before + rows, sizeof told[1]);
    return rc;
}

/* Heavy cells once more, finer. */
static int sort_heavy(struct pair_cells *c, const struct points_gpu *p, struct making *m)
{
    const int own = bits_of(all_of(c->view)), bits = std::min((int)BITS_HEAVY, (32 - own) / 3 * 3);
    std::swap(m->order[0], m->order[1]);
    heavy_keys<<<gpu_blocks(c->view.count, THREADS), THREADS, 0, c->gpu->stream>>>(p->view, c->view, bits, m->order[0],
                                                                                   m->key[0]);
    const int rc = gpu_launched(what);
    return rc ? rc : sort(c, m, own + bits);
}

static int fill(struct pair_cells *c, const struct points_gpu *p, struct making *m, uint32_t *first)
{
    cudaStream_t stream = c->gpu->stream;
    struct cells_view *v = &c->view;
    const size_t n = v->count;
    const uint32_t rows = (uint32_t)rows_of(*v);
    struct cells_arrays to;
    uint2 *cluster = NULL;
    memset(&to, 0, sizeof to);
    int rc = hold(c, n, &to.point);
    if (!rc)
        rc = hold(c, n, &to.source);
    for (int d = 0; d < v->dim && points_fine(p->view) && !rc; d++)
        rc = hold(c, n, &to.fine[d]);
    if (!rc && p->view.scale)
        rc = hold(c, n, &to.unit2);
    if (!rc)
        rc = hold(c, v->clusters, &cluster);
    if (rc)
        return rc;
    to.extent = m->told + 1;
    v->first = first;
    v->point = to.point;
    v->source = to.source;
    v->unit2 = to.unit2;
    v->cluster = cluster;
    fill_points<<<gpu_blocks(n, THREADS), THREADS, 0, stream>>>(p->view, *v, m->order[1], to);
    fill_clusters<<<gpu_blocks((size_t)rows * 32, THREADS), THREADS, 0, stream>>>(rows, v->n[0], first, m->before,
                                                                                  cluster);
    rc = gpu_launched(what);
    for (int d = 0; d < v->dim; d++)
        v->fine[d] = to.fine[d];
    if (!rc && to.fine[0])
        rc = gpu_download(c->gpu, &v->extent, m->told + 1, sizeof v->extent);
    return rc;
}

static int make(struct pair_cells *c, const struct points_gpu *p, struct making *m)
{
    uint32_t *first = NULL, told[2] = {0, 0};
    int rc = hold(c, all_of(c->view) + 1, &first);
    if (!rc)
        rc = making_memory(c, rows_of(c->view), m);
    if (!rc)
        rc = sort_by_cell(c, p, m, first, told);
    c->view.first = first;
    c->view.clusters = told[1];
    if (!rc && told[0] > HEAVY)
        rc = sort_heavy(c, p, m);
    return rc ? rc : fill(c, p, m, first);
}

/* No points: empty cells. */
static int make_empty(struct pair_cells *c)
{
    uint32_t *first = NULL;
    const size_t cells = all_of(c->view) + 1;
    const int rc = hold(c, cells, &first);
    c->view.first = first;
    return rc ? rc : gpu_check(cudaMemsetAsync(first, 0, cells * sizeof *first, c->gpu->stream), what);
}

int pair_cells_create(struct pair_cells **out, const struct points_gpu *points, double reach)
{
    struct pair_cells *c = (struct pair_cells *)calloc(1, sizeof *c);
    struct making m;
    if (!c)
        return err_no_memory("cells of points");
    memset(&m, 0, sizeof m);
    c->gpu = points->gpu;
    c->view.count = points->view.count;
    choose(&c->view, points->view.box, points->view.bins, points->view.count, reach);
    int rc = hold(c, 1, &c->next);
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(c->next, 0, sizeof *c->next, c->gpu->stream), what);
    if (!rc)
        rc = points->view.count > 0 ? make(c, points, &m) : make_empty(c);
    for (int i = 0; i < 2; i++) {
        gpu_release(c->gpu, m.key[i]);
        gpu_release(c->gpu, m.order[i]);
    }
    gpu_release(c->gpu, m.clusters);
    gpu_release(c->gpu, m.before);
    gpu_release(c->gpu, m.room);
    gpu_release(c->gpu, m.told);
    if (rc)
        pair_cells_free(c);
    else
        *out = c;
    return rc;
}
