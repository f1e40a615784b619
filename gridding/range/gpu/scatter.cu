/* scatter.cu: sums of points to grids on a GPU (gridding/range/sums.h).
 *
 * Four laws have kernels of their own on 3-D grids of one channel: t^2 / r, 1 / r less the polynomial of degree 2 in
 * r^2 that meets it at the reach (scatter_nodes.cuh), Gaussians cut to spheres (scatter_spheres.cuh), and Gaussians cut
 * to cubes if an error of 5e-4 is allowed (scatter_cubes.cuh). All others are summed as follows.
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

/* t^2 / r and no more. */
bool is_coulomb(const struct range_law *law)
{
    const struct range_law_params *p = &law->params;
    return p->form == RANGE_INVERSE && p->power == 1 && p->least == 0 && p->soft == 0 && p->spline == 0 &&
           law->degree == 2 && law->c[0] > 0 && fabsf(law->c[1] / law->c[0] - 2) < 1e-6f &&
           fabsf(law->c[2] / law->c[0] - 1) < 1e-6f;
}

/* 1 / r less that polynomial: 15/8 - 5/4 u2 + 3/8 u2^2 over the reach, here in powers of 1 - 2 u2. */
bool is_shifted(const struct range_law *law)
{
    static const double powers[] = {1.34375, 0.4375, 0.09375};
    const struct range_law_params *p = &law->params;
    bool same = p->form == RANGE_SHORT && p->power == 1 && p->least == 0 && p->soft == 0 && p->spline == 0 &&
                p->fall == 0 && law->degree == 2;
    for (int i = 0; i <= 2 && same; i++)
        same = fabs(law->c[i] * p->reach / powers[i] - 1) < 1e-6;
    return same;
}

/* From which error on cubes are summed by tensor cores: each of four roundings to halves has 2e-4 (rms). */
const double TENSOR_TOLERANCE = 5e-4;

/* quick: points can be packed; scaled: they have scales. */
enum way way_of(const struct range_law *law, bool quick, bool scaled)
{
    if (law->params.form == RANGE_SEPARABLE)
        return quick && law->exponential && law->params.tolerance >= TENSOR_TOLERANCE ? WAY_CUBES : WAY_SEPARABLE;
    if (law->params.form == RANGE_RADIAL)
        return quick && law->exponential && law->rate < SPHERE_RATE_MOST ? WAY_GAUSSIAN : WAY_RADIAL;
    return !quick || scaled ? WAY_INVERSE : is_coulomb(law) ? WAY_COULOMB : is_shifted(law) ? WAY_SHIFTED : WAY_INVERSE;
}

bool is_packed(enum way way)
{
    return way == WAY_GAUSSIAN || way == WAY_COULOMB || way == WAY_SHIFTED || way == WAY_CUBES;
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

/* The nodes of a tile, and its warps, along each axis. */
void lay_tiles(const struct range_box *box, enum way way, struct scatter_job *job)
{
    static const int warps[3][3] = {{8, 1, 1}, {2, 4, 1}, {2, 2, 2}};
    static const int edges[3][3] = {{32, 8, 1}, {32, 8, 1}, {8, 4, 8}};
    static const int wide[3] = {CUBE_WIDE, CUBE_SIDE, CUBE_SIDE};
    for (int d = 0; d < 3; d++) {
        job->warp[d] = warps[box->dim - 1][d];
        job->tile[d] = way == WAY_CUBES      ? wide[d]
                       : way == WAY_GAUSSIAN ? (int)SPHERE_TILE
                                             : job->warp[d] * edges[box->dim - 1][d];
        job->tiles[d] = (box->cells[d] + job->tile[d] - 1) / job->tile[d];
        job->middle[d] = 0.5f * (float)(job->tile[d] - 1);
        job->half[d] = half_side(job->tile[d]);
    }
    job->slot =
        (size_t)(is_packed(way) ? 1 : TOGETHER) * (size_t)job->tile[0] * (size_t)job->tile[1] * (size_t)job->tile[2];
}

enum { PACKED_BITS_LEAST = 19, PACKED_BITS_MOST = 24, ROWS_MOST = 1 << 30 };

/* The binary digits of a node's part that a packed place has; 0: points cannot be packed so that float32 would lose no
 * more, or they have more rows of bins near a tile than 32 bits can number. */
int packed_bits(const struct points_gpu *p, double widest)
{
    const struct points_view *v = &p->view;
    double rows = 1;
    int bits = PACKED_BITS_MOST;
    for (int d = 0; d < 3; d++) {
        const double cells = v->box.cells[d], reach = widest / v->box.spacing[d];
        const double range = (v->box.periodic[d] ? 2 : 1) * cells + 2 * reach + 68;
        while (bits > 0 && ldexp(range, bits) > 2147483647.0)
            bits--;
        rows *= ((double)CUBE_WIDE + 2 * reach) * v->box.spacing[d] / v->edge[d] + 3;
    }
    return bits < PACKED_BITS_LEAST || rows > ROWS_MOST ? 0 : bits;
}

struct scatter_job job_of(const struct points_gpu *p, const struct range_law *law)
{
    struct scatter_job job;
    memset(&job, 0, sizeof job);
    job.points = p->view;
    job.law = law_gpu_of(law);
    job.widest = law->params.reach * (double)p->widest;
    job.nodes = 1;
    for (int d = 0; d < 3; d++) {
        job.bins_of[d] = 1 / p->view.edge[d];
        job.bin_nodes[d] = (float)(p->view.edge[d] / p->view.box.spacing[d]);
        job.node_bins[d] = (float)(p->view.box.spacing[d] / p->view.edge[d]);
        job.widest_bins[d] = (float)(job.widest / p->view.edge[d]);
        job.spacing[d] = d < p->view.box.dim ? p->view.box.spacing[d] : 0;
        job.spacing2[d] = (float)(job.spacing[d] * job.spacing[d]);
        job.width[d] = (float)job.spacing[d];
        job.nodes_of[d] = 1 / p->view.box.spacing[d];
        job.margin[d] = job.widest * job.nodes_of[d] + 2;
        job.nodes *= (size_t)p->view.box.cells[d];
    }
    job.reach = (float)law->params.reach;
    job.per_reach = (float)(1 / law->params.reach);
    job.root_rate = (float)(sqrt((double)job.law.rate) / law->params.reach);
    if (law->exponential && law->rate < SPHERE_RATE_MOST)
        scale_products(job);
    job.bits = packed_bits(p, job.widest);
    job.step = (float)ldexp(1, -job.bits);
    for (int d = 0; d < 3; d++) {
        job.reach_steps[d] = (float)ldexp(law->params.reach / p->view.box.spacing[d], job.bits);
        job.per_box[d] = ldexp(1.0 / p->view.box.cells[d], -job.bits);
    }
    return job;
}

/* Parts that are summed at a time, and the points of one. */
const size_t SLOTS = 1024;
const size_t SHARED_ANY = 48 << 10; /* bytes of shared memory that every kernel may have */
const unsigned long long DEPTH_AUTO = 8192, DEPTH_LEAST = 256;
/* Parts that are summed as one if counting the points near each tile can then be left out. */
const unsigned long long LIGHT_PARTS = 4;

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

size_t tiles_of(const struct scatter_job *job)
{
    return (size_t)job->tiles[0] * (size_t)job->tiles[1] * (size_t)job->tiles[2];
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
    s->job.told = counted ? NULL : (unsigned *)gpu->sums;
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

int make(struct scatter *s)
{
    int rc = count_points(s);
    if (!rc && s->kernel.shared > SHARED_ANY)
        rc = gpu_check(cudaFuncSetAttribute((const void *)s->kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            (int)s->kernel.shared),
                       what);
    return rc || s->sums.most <= s->depth ? rc : make_slots(s);
}

void end(struct scatter *s)
{
    struct gpu *gpu = s->points->gpu;
    gpu_release(gpu, s->device_tasks);
    gpu_release(gpu, s->device_groups);
    gpu_release(gpu, s->device_near);
    gpu_release(gpu, s->slots);
    free(s->near);
    free(s->tasks);
    free(s->groups);
}

int run(struct scatter *s, const void *tasks, size_t first, size_t count)
{
    const struct sums_work work = {(const struct sums_task *)tasks, s->slots, s->device_counts, s->depth,
                                   (uint32_t)first};
    s->kernel.run<<<(unsigned)count, s->kernel.threads, s->kernel.shared, s->points->gpu->stream>>>(s->job, work);
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

/* Whether values relative to their largest could be summed. The host knows it if points were counted, otherwise after
 * the sum. */
bool is_done(struct scatter *s)
{
    if (s->way != WAY_CUBES && s->way != WAY_GAUSSIAN)
        return true;
    if (!s->device_counts)
        s->sums.largest = *s->job.told;
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

int sums_gpu_scatter(const void *state, const struct range_law *law, int channels, const float *values, bool set,
                     float *grid, const struct listener *listener)
{
    struct scatter s;
    int rc = 0;
    for (bool quick = true, done = false; !done && !rc; quick = false) {
        begin(&s, (const struct points_gpu *)state, law, quick, channels);
        s.listener = listener;
        s.job.values = values;
        rc = gpu_enter(s.points->gpu);
        if (!rc)
            rc = make(&s);
        s.job.set = set && is_packed(s.way) && s.sums.most <= s.depth; /* no tile is cut: each node has one block */
        done = rc || !s.device_counts || is_done(&s);
        if (!rc && done && set && !s.job.set)
            rc = sums_gpu_clear(s.points, channels, grid);
        if (!rc && done)
            rc = sum_all(&s, channels, s.points->view.box.dim == 3 && channels == 1 ? 1 : TOGETHER, values, grid);
        if (!rc && !s.device_counts)
            done = is_done(&s);
        end(&s);
    }
    return rc;
}

size_t sums_gpu_scatter_bytes(const struct range_box *box, size_t inputs)
{
    struct scatter_job job;
    const bool solid = box->dim == 3;
    lay_tiles(box, WAY_INVERSE, &job); /* which has the most tiles; no slot is larger */
    const size_t tiles = tiles_of(&job);
    /* The host has lists as well. */
    return SLOTS * job.slot * sizeof(float) + (solid ? inputs * (sizeof(int4) + sizeof(float)) : 0) + 4096 +
           2 * ((tiles + 4) * sizeof(unsigned long long) +
                SLOTS * (sizeof(struct sums_task) + sizeof(struct sums_group)));
}
