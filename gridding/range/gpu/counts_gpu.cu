/* counts_gpu.cu: counts of distances between points on a GPU. */
#include "gridding/range/gpu/pair_counts.cuh"
#include "gridding/range/gpu/pair_plan.cuh"
#include "gridding/range/gpu/slices_gpu.cuh"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

static const char what[] = "Counting pairs of points";

/* Bytes of counts in shared memory: a target, with several copies of each count so that lanes rarely collide; and a
 * maximum, so that with a kernel's other data they fit into the 99 KB of a small GPU. Blocks: enough that a block's
 * count of a slice stays below 2^32. */
enum { COPIES_BYTES = 32768, SHARED_BYTES = 40960, BLOCKS_LEAST = 64 };

struct count_job {
    struct gpu *gpu;
    struct pair_counts_args args;
    bool doubles;
    unsigned blocks;
    size_t shared;
};

/* Tables computed by the host, and their device copies. */
struct count_tables {
    uint16_t *table;
    double *edge2;
    unsigned long long *counts;
};

size_t counts_gpu_bytes(void)
{
    return INTERVAL_EQUAL_MOST * sizeof(uint16_t) + RANGE_EDGES_MOST * (sizeof(double) + sizeof(unsigned long long)) +
           (size_t)65536;
}

static int copies_of(int intervals)
{
    const size_t bytes = (size_t)intervals * sizeof(unsigned);
    int copies = 1;
    if (bytes > SHARED_BYTES)
        return 0;
    while (copies < 32 && 2 * copies * bytes <= COPIES_BYTES)
        copies *= 2;
    return copies;
}

static int tables_make(struct count_job *job, int edges, const double *edge, const struct interval_error *error,
                       struct count_tables *d)
{
    const int places = interval_equal_places(edges);
    const struct interval_equal equal = {places / (edge[edges - 1] * (1 + 2 * error->relative) + 2 * error->absolute)};
    double *edge2 = (double *)malloc((size_t)edges * sizeof *edge2);
    uint16_t *table = (uint16_t *)malloc((size_t)places * sizeof *table);
    int rc = edge2 && table ? 0 : err_no_memory("counts of %d distances", edges);
    for (int e = 0; e < edges && !rc; e++)
        edge2[e] = edge[e] * edge[e];
    if (!rc)
        interval_table(edges, edge2, error, places, interval_equal_end, &equal, table);
    if (!rc)
        rc = gpu_array(job->gpu, (size_t)places, &d->table, what);
    if (!rc)
        rc = gpu_array(job->gpu, (size_t)edges, &d->edge2, what);
    if (!rc)
        rc = gpu_array(job->gpu, (size_t)edges, &d->counts, what);
    if (!rc)
        rc = gpu_upload(job->gpu, d->table, table, (size_t)places * sizeof *table);
    if (!rc)
        rc = gpu_upload(job->gpu, d->edge2, edge2, (size_t)edges * sizeof *edge2);
    if (!rc)
        rc = gpu_check(cudaMemsetAsync(d->counts, 0, (size_t)edges * sizeof *d->counts, job->gpu->stream), what);
    free(edge2);
    free(table);
    job->args.step = (float)equal.step;
    job->args.places = places;
    job->args.edges = edges;
    job->args.table = d->table;
    job->args.edge2 = d->edge2;
    job->args.counts = d->counts;
    return rc;
}

template <bool DOUBLES> static int find_blocks(struct count_job *job)
{
    int most = 1;
    int rc = gpu_check(
        cudaFuncSetAttribute(count_pairs<DOUBLES>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)job->shared),
        what);
    if (!rc)
        rc = gpu_check(
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, count_pairs<DOUBLES>, 32 * COUNT_WARPS, job->shared),
            what);
    job->blocks = (unsigned)std::max(most * job->gpu->multiprocessors, (int)BLOCKS_LEAST);
    return rc;
}

static int launch_counts(void *of, uint64_t begin, uint32_t tasks)
{
    struct count_job *job = (struct count_job *)of;
    const unsigned blocks = std::min(job->blocks, std::max(gpu_blocks(tasks, COUNT_WARPS), 1u));
    job->args.pair.begin = begin;
    job->args.pair.tasks = tasks;
    if (job->doubles)
        count_pairs<true><<<blocks, 32 * COUNT_WARPS, job->shared, job->gpu->stream>>>(job->args);
    else
        count_pairs<false><<<blocks, 32 * COUNT_WARPS, job->shared, job->gpu->stream>>>(job->args);
    return gpu_launched(what);
}

static int count_all(struct count_job *job, const struct pair_work *work, int edges, const double *edge,
                     const struct listener *listener, unsigned long long *found)
{
    const double reach = edge[edges - 1];
    struct slices slices = {job->gpu,    listener, work->plan.tasks,
                            SLICE_PARTS, 0,        std::max<uint64_t>(work->plan.tasks, 1)};
    struct count_tables tables = {NULL, NULL, NULL};
    /* Distances of float32 err by less than a millionth; doubles keep 48 bits of coordinates far from the origin, and
     * of the box's length in those shifted by a periodic image. */
    const double *length = work->from->view.length, longest = fmax(length[0], fmax(length[1], length[2]));
    const struct interval_error error = {1e-6, 2 * ldexp(work->to->view.extent + work->from->view.extent, -45) +
                                                   ldexp(longest + reach, -44)};
    int rc = tables_make(job, edges, edge, &error, &tables);
    job->args.pair = pair_work_args(work, reach);
    job->args.copies = copies_of(edges - 1);
    job->shared =
        (size_t)(edges - 1) * (size_t)job->args.copies * sizeof(unsigned) + (size_t)job->args.places * sizeof(uint16_t);
    if (!rc)
        rc = job->doubles ? find_blocks<true>(job) : find_blocks<false>(job);
    if (!rc && slices.tasks == 0)
        slices.done = slices.most;
    if (!rc)
        rc = slices_run(&slices, launch_counts, job, what);
    if (!rc)
        rc = gpu_download(job->gpu, found, tables.counts, (size_t)(edges - 1) * sizeof *found);
    if (!rc)
        rc = slices_tell(&slices);
    gpu_release(job->gpu, tables.table);
    gpu_release(job->gpu, tables.edge2);
    gpu_release(job->gpu, tables.counts);
    return rc;
}

int pairs_gpu_count(const void *to_state, const void *from_state, int edges, const double *edge, uint64_t *counts,
                    const struct listener *listener)
{
    const struct points_gpu *to = (const struct points_gpu *)to_state, *from = (const struct points_gpu *)from_state;
    struct count_job job;
    struct pair_work work;
    memset(&work, 0, sizeof work);
    memset(&job, 0, sizeof job);
    job.gpu = to->gpu;
    job.doubles = points_fine(to->view) || points_fine(from->view);
    unsigned long long *found = (unsigned long long *)calloc((size_t)edges, sizeof *found);
    int rc = found ? gpu_enter(to->gpu) : err_no_memory("counts of %d distances", edges);
    if (!rc)
        rc = pair_work_begin(&work, to, from, edge[edges - 1]);
    if (!rc)
        rc = count_all(&job, &work, edges, edge, listener, found);
    const uint64_t orders = work.to == work.from ? 2 : 1; /* each pair of one set was found once */
    for (int e = 0; e < edges - 1 && !rc; e++)
        counts[e] += orders * found[e];
    pair_work_end(&work);
    free(found);
    return rc;
}
