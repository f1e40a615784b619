/* scatter.cu: sums of points to grids on a GPU (gridding/range/sums.h).
 *
 * Four laws have kernels of their own on 3-D grids of one channel: t^2 / r, 1 / r less the polynomial of degree 2 in
 * r^2 that meets it at the reach (scatter_nodes.cuh), Gaussians cut to spheres (scatter_spheres.cuh), and Gaussians cut
 * to cubes if an error of 5e-4 is allowed (scatter_cubes.cuh). All others are summed as follows.
 *
 * Gaussians of short reach are summed from lists of the points of all boxes of nodes (scatter_lists.cuh), which a
 * kernel makes first, unless the grid is periodic or points are crowded.
 *
 * The grid is divided into tiles, and a block sums one tile from the points near it, in the order of their bins: no
 * other block writes these nodes, and the bits are the same on every run. The block lists the points that reach the
 * tile in shared memory, at most LIST at a time and as often as it takes. Each warp has a part of the tile: it scans
 * the list, selects 32 points that reach its own nodes, and stores for each a record of what the nodes share: squared
 * distances, or weights, along each axis. Then every lane adds the 32 points to its DEEP nodes.
 *
 * A tile with more than `depth` points near is cut into parts: each sums into a slot, and slots are added to the grid
 * in the order of the parts. At most LIST points are summed separately in float32 before they are added, so that the
 * error of dense bins grows slowly. */
#include "gridding/range/gpu/points_gpu.cuh"
#include "gridding/range/gpu/scatter_cubes.cuh"
#include "gridding/range/gpu/scatter_job.cuh"
#include "gridding/range/gpu/scatter_nodes.cuh"
#include "gridding/range/gpu/scatter_spheres.cuh"
#include "gridding/range/gpu/scatter_tiles.cuh"

#include <cstdlib>
#include <cstring>

namespace
{

const char what[] = "Summing points to a grid";

using sum_kernel = void (*)(scatter_job, sums_work);

struct kernel {
    sum_kernel run;
    size_t shared;
    unsigned threads;
};

template <int WAY, int CHANNELS, bool SOLID> struct kernel kernel_of()
{
    const struct kernel k = {sum_tiles<WAY, CHANNELS, SOLID>, sizeof(block_memory<WAY, CHANNELS, SOLID>), THREADS};
    return k;
}

struct kernel kernel_for(enum way way, bool solid, bool single)
{
    if (!solid)
        return way == WAY_SEPARABLE ? kernel_of<WAY_SEPARABLE, TOGETHER, false>()
               : way == WAY_RADIAL  ? kernel_of<WAY_RADIAL, TOGETHER, false>()
                                    : kernel_of<WAY_INVERSE, TOGETHER, false>();
    switch (way) {
    case WAY_SEPARABLE:
        return single ? kernel_of<WAY_SEPARABLE, 1, true>() : kernel_of<WAY_SEPARABLE, TOGETHER, true>();
    case WAY_RADIAL:
        return single ? kernel_of<WAY_RADIAL, 1, true>() : kernel_of<WAY_RADIAL, TOGETHER, true>();
    case WAY_GAUSSIAN:
        return {sum_spheres, sizeof(spheres_memory), THREADS};
    case WAY_COULOMB:
        return {sum_nodes<WAY_COULOMB>, sizeof(nodes_memory<WAY_COULOMB>), THREADS};
    case WAY_SHIFTED:
        return {sum_nodes<WAY_SHIFTED>, sizeof(nodes_memory<WAY_SHIFTED>), THREADS};
    case WAY_CUBES:
        return {sum_cubes, sizeof(cubes_memory), CUBE_THREADS};
    default:
        return single ? kernel_of<WAY_INVERSE, 1, true>() : kernel_of<WAY_INVERSE, TOGETHER, true>();
    }
}

/* Parts that are summed at a time, and the points of one. */
const size_t SLOTS = 1024;
const size_t SHARED_ANY = 48 << 10; /* bytes of shared memory that every kernel may have */
const unsigned long long DEPTH_AUTO = 8192, DEPTH_LEAST = 256;
/* Parts that are summed as one if counting the points near each tile can then be left out. */
const unsigned long long LIGHT_PARTS = 4;

/* The kernels of a way that has lists. share: boxes of a tile along each axis. */
struct listed_kernels {
    void (*list)(scatter_job, box_lists);
    void (*sum)(scatter_job, box_lists); /* NULL: it has none */
    int share[3], boxes;
    size_t shared;
    unsigned threads;
};

struct listed_kernels listed_kernels_for(enum way way)
{
    if (way == WAY_CUBES)
        return {list_boxes<MASKS>, sum_listed_cubes, {2, 1, 2}, 4, sizeof(listed_cubes), CUBE_THREADS};
    if (way == WAY_GAUSSIAN)
        return {list_boxes<OCTANTS>, sum_listed_spheres, {2, 2, 2}, 8, sizeof(listed_spheres), THREADS};
    return {NULL, NULL, {1, 1, 1}, 1, 0, 0};
}

/* The state of a sum. */
struct scatter {
    const struct points_gpu *points;
    struct scatter_job job;
    enum way way;
    struct kernel kernel;
    size_t tiles;
    struct near_sums sums;     /* of all tiles */
    unsigned long long *near;  /* host: points near each tile; NULL: not needed */
    unsigned long long depth;  /* of a part */
    unsigned long long pace;   /* points near the tiles that are summed between two calls of the listener */
    struct sums_task *tasks;   /* the host's, [SLOTS] */
    struct sums_group *groups; /* the host's, [SLOTS] */
    void *device_tasks, *device_groups, *device_near; /* device_near: packed points, too */
    const unsigned long long *device_counts;          /* in device_near; NULL: not counted, no tile is cut */
    float *slots;
    struct box_lists lists;
    void *device_lists; /* NULL: tiles search for their points */
    const struct listener *listener;
    size_t done, most;
};

/* Points of a part. */
unsigned long long depth_of(int asked)
{
    if (asked == RANGE_DEPTH_AUTO)
        return DEPTH_AUTO;
    if (asked == RANGE_DEPTH_NONE)
        return UINT64_MAX;
    return (unsigned long long)asked < DEPTH_LEAST ? DEPTH_LEAST : (unsigned long long)asked;
}

int tell(struct scatter *s)
{
    int rc = gpu_finish(s->points->gpu, what);
    if (!rc && s->listener)
        rc = s->listener->progress(s->listener->context, s->done < s->most ? s->done : s->most, s->most);
    return rc;
}

/* Points as packed ways read them. */
int pack(struct scatter *s, int4 *place, float *value, unsigned *largest)
{
    struct gpu *gpu = s->points->gpu;
    const uint32_t count = s->job.points.count;
    s->job.place = place;
    s->job.packed = value;
    if (count == 0)
        return 0;
    const unsigned blocks = gpu_blocks(count, THREADS);
    (s->way == WAY_GAUSSIAN ? pack_points<true>
                            : pack_points<false>)<<<blocks, THREADS, 0, gpu->stream>>>(s->job, place, value, largest);
    return gpu_launched(what);
}

/* Whether tiles need not be cut, nor their points be counted: no tile can have more points near than `depth`, or, where
 * the depth is chosen here, than LIGHT_PARTS times that, if all bins are as full as the fullest. */
bool is_light(const struct scatter *s)
{
    const double few = (double)s->depth * (s->points->depth == RANGE_DEPTH_AUTO ? (double)LIGHT_PARTS : 1);
    const struct points_view *v = &s->points->view;
    double most = (double)s->points->largest;
    for (int d = 0; d < 3; d++)
        most *= ((s->job.tile[d] - 1) * v->box.spacing[d] + 2 * s->job.widest) / v->edge[d] + 3;
    return most <= few;
}

/* Points near each tile, copied to the host if tiles are cut, or if the listener is called between some of them. They
 * are not counted if all tiles are light and packed, and nobody listens; nor does the host wait for the sums then. */
int count_points(struct scatter *s)
{
    struct gpu *gpu = s->points->gpu;
    const bool counted = !is_packed(s->way) || s->listener || !is_light(s);
    const size_t counts = s->tiles * sizeof *s->near, points = is_packed(s->way) ? s->job.points.count : 0;
    int rc = gpu_alloc(gpu, points * (sizeof(int4) + sizeof(float)) + counts + sizeof s->sums, &s->device_near, what);
    if (rc)
        return rc;
    int4 *place = (int4 *)s->device_near;
    unsigned long long *near = (unsigned long long *)(place + points);
    near_sums *sums = (near_sums *)(near + s->tiles);
    rc = gpu_check(cudaMemsetAsync(sums, 0, sizeof *sums, gpu->stream), what);
    if (!rc && is_packed(s->way))
        rc = pack(s, place, (float *)(sums + 1), &sums->largest);
    if (!rc && counted) {
        count_near<<<gpu_blocks(s->tiles * 32, THREADS), THREADS, 0, gpu->stream>>>(s->job, (uint32_t)s->tiles, near,
                                                                                    sums);
        rc = gpu_launched(what);
    }
    s->device_counts = counted ? near : NULL;
    s->job.largest = &sums->largest;
    s->job.told = (unsigned *)gpu->sums;
    s->lists.used = sums;
    if (rc || !counted)
        return rc;
    rc = gpu_download(gpu, &s->sums, sums, sizeof *sums);
    if (rc || (s->sums.most <= s->depth && !s->listener))
        return rc;
    s->near = (unsigned long long *)calloc(s->tiles, sizeof *s->near);
    return s->near ? gpu_download(gpu, s->near, near, counts) : err_no_memory("%zu tiles of a grid", s->tiles);
}

int make_slots(struct scatter *s)
{
    struct gpu *gpu = s->points->gpu;
    s->tasks = (struct sums_task *)calloc(SLOTS, sizeof *s->tasks);
    s->groups = (struct sums_group *)calloc(SLOTS, sizeof *s->groups);
    if (!s->tasks || !s->groups)
        return err_no_memory("%zu parts of tiles", SLOTS);
    int rc = gpu_alloc(gpu, SLOTS * sizeof *s->tasks, &s->device_tasks, what);
    if (!rc)
        rc = gpu_alloc(gpu, SLOTS * s->job.slot * sizeof(float), (void **)&s->slots, what);
    return rc ? rc : gpu_alloc(gpu, SLOTS * sizeof *s->groups, &s->device_groups, what);
}

/* Let a kernel have so much shared memory. */
int allow_shared(const void *kernel, size_t bytes)
{
    if (bytes <= SHARED_ANY)
        return 0;
    return gpu_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), what);
}

/* Lists of the points of all boxes, if that is quicker, and if all tiles are summed at once and by one block each. */
int make_lists(struct scatter *s)
{
    struct gpu *gpu = s->points->gpu;
    const struct listed_kernels k = listed_kernels_for(s->way);
    if (!k.sum || !lists_chosen(s->job, s->points->occupied, k.share, &s->lists))
        return 0;
    const size_t boxes = s->tiles * (size_t)k.boxes,
                 shared = (size_t)(LISTERS * k.boxes * s->lists.room) * sizeof(uint32_t);
    int rc = gpu_alloc(gpu, lists_bytes(boxes, s->lists.most), &s->device_lists, what);
    if (!rc)
        rc = allow_shared((const void *)k.list, shared);
    if (!rc)
        rc = allow_shared((const void *)k.sum, k.shared);
    if (rc)
        return rc;
    s->lists.list = (struct box_list *)s->device_lists;
    s->lists.points = (uint32_t *)(s->lists.list + boxes);
    s->lists.tiles = (uint32_t)s->tiles;
    k.list<<<gpu_blocks(s->tiles, LISTERS), LISTER_THREADS, shared, gpu->stream>>>(s->job, s->lists);
    return gpu_launched(what);
}

int make(struct scatter *s, bool listed)
{
    int rc = count_points(s);
    if (!rc && listed && s->sums.most <= s->depth && (!s->listener || s->sums.all <= s->pace))
        rc = make_lists(s);
    if (!rc && !s->device_lists)
        rc = allow_shared((const void *)s->kernel.run, s->kernel.shared);
    return rc || s->sums.most <= s->depth ? rc : make_slots(s);
}

void end(struct scatter *s)
{
    struct gpu *gpu = s->points->gpu;
    gpu_release(gpu, s->device_tasks);
    gpu_release(gpu, s->device_groups);
    gpu_release(gpu, s->device_near);
    gpu_release(gpu, s->device_lists);
    gpu_release(gpu, s->slots);
    free(s->near);
    free(s->tasks);
    free(s->groups);
}

int run(struct scatter *s, const void *tasks, size_t first, size_t count)
{
    cudaStream_t stream = s->points->gpu->stream;
    const struct sums_work work = {(const struct sums_task *)tasks, s->slots, s->device_counts, s->depth,
                                   (uint32_t)first};
    if (s->device_lists) {
        const struct listed_kernels k = listed_kernels_for(s->way);
        k.sum<<<gpu_blocks(count, TILES_EACH), k.threads, k.shared, stream>>>(s->job, s->lists);
    } else {
        s->kernel.run<<<(unsigned)count, s->kernel.threads, s->kernel.shared, stream>>>(s->job, work);
    }
    return gpu_launched(what);
}

/* Tiles that are not cut. */
int sum_light(struct scatter *s)
{
    int rc = 0;
    for (size_t first = 0, to; first < s->tiles && !rc; first = to) {
        unsigned long long points = 0;
        for (to = s->listener ? first : s->tiles; to < s->tiles && points < s->pace; to++)
            points += s->near[to] <= s->depth ? s->near[to] : 0;
        rc = run(s, NULL, first, to - first);
        s->done += points;
        if (!rc && to < s->tiles)
            rc = tell(s);
    }
    return rc;
}

/* The next parts of heavy tiles: from point *from of tile *tile on. Returns their number. */
size_t fill_slots(struct scatter *s, size_t *tile, unsigned long long *from, size_t *groups, unsigned long long *points)
{
    size_t count = 0;
    *points = 0;
    for (*groups = 0; count < SLOTS && *tile < s->tiles && *points < s->pace;) {
        const unsigned long long near = s->near[*tile];
        if (near <= s->depth || *from >= near) {
            (*tile)++;
            *from = 0;
            continue;
        }
        const unsigned long long to = near - *from < s->depth ? near : *from + s->depth;
        const struct sums_task task = {(uint32_t)*tile, (int)count, *from, to};
        if (*groups == 0 || s->groups[*groups - 1].tile != task.tile) {
            const struct sums_group group = {task.tile, (uint32_t)count, 0};
            s->groups[(*groups)++] = group;
        }
        s->groups[*groups - 1].slots++;
        s->tasks[count++] = task;
        *points += to - *from;
        *from = to;
    }
    return count;
}

/* Tiles that are cut, as many parts at a time as there are slots. */
int sum_heavy(struct scatter *s)
{
    size_t tile = 0, groups, count;
    unsigned long long from = 0, points;
    struct gpu *gpu = s->points->gpu;
    int rc = 0;
    if (s->sums.most <= s->depth)
        return 0;
    while (!rc && (count = fill_slots(s, &tile, &from, &groups, &points)) > 0) {
        rc = gpu_upload(gpu, s->device_tasks, s->tasks, count * sizeof *s->tasks);
        if (!rc)
            rc = gpu_upload(gpu, s->device_groups, s->groups, groups * sizeof *s->groups);
        if (!rc)
            rc = run(s, s->device_tasks, 0, count);
        if (rc)
            break;
        add_slots<<<dim3((unsigned)groups, (unsigned)s->job.channels), THREADS, 0, gpu->stream>>>(
            s->job, (const sums_group *)s->device_groups, s->slots);
        rc = gpu_launched(what);
        s->done += points;
        if (!rc)
            rc = tell(s);
    }
    return rc;
}

/* All channels, as many at a time as fit. */
int sum_all(struct scatter *s, int channels, int together, const float *values, float *grid)
{
    int rc = 0;
    s->most = s->sums.all * (size_t)((channels + together - 1) / together) + 1;
    for (int first = 0; first < channels && !rc; first += together) {
        s->job.channels = channels - first < together ? channels - first : together;
        s->job.values = values + (size_t)first * s->job.points.inputs;
        s->job.grid = grid + (size_t)first * s->job.nodes;
        rc = sum_light(s);
        if (!rc)
            rc = sum_heavy(s);
    }
    s->done = s->most;
    return rc ? rc : tell(s);
}

void begin(struct scatter *s, const struct points_gpu *points, const struct range_law *law, bool quick, int channels)
{
    memset(s, 0, sizeof *s);
    s->points = points;
    s->job = job_of(points, law);
    const bool solid = points->view.box.dim == 3, single = channels == 1 && solid;
    s->way = way_of(law, quick && single && s->job.bits > 0, points->view.scale != NULL);
    s->job.lean = s->way == WAY_COULOMB || s->way == WAY_SHIFTED;
    lay_tiles(&points->view.box, s->way, &s->job);
    s->tiles = tiles_of(&s->job);
    const double peak = law->peak;
    s->job.strength = s->way == WAY_COULOMB    ? (float)(4 * (double)law->c[0] / law->params.reach)
                      : s->way == WAY_SHIFTED  ? (float)(1 / law->params.reach)
                      : s->way == WAY_GAUSSIAN ? (float)peak
                      : s->way == WAY_CUBES    ? (float)(peak * peak * peak)
                                               : 1;
    s->kernel = kernel_for(s->way, solid, single);
    s->depth = depth_of(points->depth);
    s->pace = (s->way == WAY_RADIAL || s->way == WAY_INVERSE ? 100000ULL : 600000ULL) *
              (unsigned long long)points->gpu->multiprocessors;
}

/* Whether values relative to their largest can be summed, which the host knows before the sum if points were counted.
 */
bool values_fit(struct scatter *s)
{
    if (s->way != WAY_CUBES && s->way != WAY_GAUSSIAN)
        return true;
    if (!s->device_counts)
        s->sums.largest = s->job.told[0];
    return relative_of(s->sums.largest) > 0;
}

} // namespace

int sums_gpu_clear(const struct points_gpu *points, int channels, float *grid)
{
    const struct range_box *box = &points->view.box;
    size_t nodes = (size_t)channels;
    for (int d = 0; d < box->dim; d++)
        nodes *= (size_t)box->cells[d];
    const int rc = gpu_enter(points->gpu);
    return rc ? rc : gpu_check(cudaMemsetAsync(grid, 0, nodes * sizeof *grid, points->gpu->stream), what);
}

/* Points are listed for all boxes, if that can be quicker; if lists did not fit, tiles search for them; if values did
 * not, they are summed as by any law. An attempt that fails leaves the grid as it was. */
int sums_gpu_scatter(const void *state, const struct range_law *law, int channels, const float *values, bool set,
                     float *grid, const struct listener *listener)
{
    struct scatter s;
    bool quick = true, listed = true, done = false;
    int rc = 0;
    while (!done && !rc) {
        begin(&s, (const struct points_gpu *)state, law, quick, channels);
        s.listener = listener;
        s.job.values = values;
        rc = gpu_enter(s.points->gpu);
        if (!rc)
            rc = make(&s, listed);
        s.job.set = set && is_packed(s.way) && s.sums.most <= s.depth; /* no tile is cut: each node has one block */
        quick = rc || !s.device_counts || values_fit(&s);
        if (!rc && quick && set && !s.job.set)
            rc = sums_gpu_clear(s.points, channels, grid);
        if (!rc && quick)
            rc = sum_all(&s, channels, s.points->view.box.dim == 3 && channels == 1 ? 1 : TOGETHER, values, grid);
        if (!rc && quick) {
            quick = values_fit(&s);
            listed = !s.device_lists || s.job.told[1] == 0;
            done = quick && listed;
        }
        end(&s);
    }
    return rc;
}

size_t sums_gpu_scatter_bytes(const struct range_box *box, size_t inputs)
{
    struct scatter_job job, listed;
    const bool solid = box->dim == 3;
    lay_tiles(box, WAY_INVERSE, &job);     /* which has the most tiles; no slot is larger */
    lay_tiles(box, WAY_GAUSSIAN, &listed); /* which has the most boxes */
    const size_t tiles = tiles_of(&job), boxes = tiles_of(&listed) * (size_t)listed_kernels_for(WAY_GAUSSIAN).boxes;
    const size_t slots = SLOTS * job.slot * sizeof(float), lists = solid ? lists_bytes(boxes, lists_most(inputs)) : 0;
    /* A sum has either slots or lists. The host has lists as well. */
    return (slots > lists ? slots : lists) + (solid ? inputs * (sizeof(int4) + sizeof(float)) : 0) + 4096 +
           2 * ((tiles + 4) * sizeof(unsigned long long) +
                SLOTS * (sizeof(struct sums_task) + sizeof(struct sums_group)));
}
