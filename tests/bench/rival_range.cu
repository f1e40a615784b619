/* rival_range.cu: the gathers of the thesis' three other applications, on the GPU. */
#include "tests/bench/rival_range_gpu.h"
#include "gridding/base/err.h"
#include "tests/bench/rival_gpu.cuh"

#include <math.h>
#include <stdlib.h>

enum { CHUNK = RIVAL_TILE * RIVAL_TILE * RIVAL_TILE / RIVAL_COARSE, BODY_THREADS = 128 };

static __constant__ struct rival_rows constant_rows;

struct rival_range_gpu {
    struct rival_gpu *gpu; /* owned by the caller: its bins are used */
    struct rival_sum of;
    size_t outputs;
    float *sums, *other; /* [outputs] on the device; `other` is merged into sums */
    float *host;         /* [outputs] */
};

/* Sources in shared memory: position and strength, and 1 / R^2. */
struct chunk {
    float4 source[CHUNK];
    float per_radius2[CHUNK];
};

/* The nodes of one thread, which differ in y. */
struct nodes {
    float x, y, z, step;
    float sum[RIVAL_COARSE];
};

/* Called by all threads of a block with the same range. */
template <enum rival_law LAW, bool CYLINDER>
static __device__ void add_range(const struct rival_bins &b, const struct rival_sum &of, struct chunk *chunk,
                                 struct rival_range range, struct nodes *n)
{
    const int thread = (int)((threadIdx.z * blockDim.y + threadIdx.y) * RIVAL_TILE + threadIdx.x);
    for (size_t done = 0; done < range.count; done += CHUNK) {
        const int here = (int)(range.count - done < CHUNK ? range.count - done : CHUNK);
        if (thread < here) {
            const struct rival_sample s = rival_get(b.slot, b.slots, RIVAL_PACKED, range.first + done + thread);
            chunk->source[thread] = make_float4(s.x, s.y, s.z, s.re);
            chunk->per_radius2[thread] = s.density;
        }
        __syncthreads();
        for (int i = 0; i < here; i++) {
            const float4 s = chunk->source[i];
            const float dx = s.x - n->x, dz = s.z - n->z;
            if (CYLINDER && rival_misses(&of, dx, dz))
                continue;
#pragma unroll
            for (int p = 0; p < RIVAL_COARSE; p++) {
                const float dy = s.y - (n->y + (float)p * n->step), r2 = dx * dx + dy * dy + dz * dz;
                n->sum[p] += r2 > 0 ? rival_term(&of, LAW, r2, s.w, chunk->per_radius2[i]) : 0;
            }
        }
        __syncthreads();
    }
}

/* Blocks: the lattice's tiles of 8 x 8 x 8 nodes. Threads: 8 x 2 x 8, each 4 nodes along y. Shared: 2.5 KiB, a chunk of
 * 128 sources. */
template <enum rival_law LAW, enum rival_access ACCESS, bool REGULAR, bool CYLINDER>
static __global__ void __launch_bounds__(CHUNK)
    gather_lattice(const struct rival_bins b, const struct rival_sum of, float *sums)
{
    __shared__ struct chunk chunk;
    const int side = of.grid * of.nodes, per_tile = RIVAL_TILE / of.nodes;
    const int x = (int)(blockIdx.x * RIVAL_TILE + threadIdx.x), z = (int)(blockIdx.z * RIVAL_TILE + threadIdx.z),
              y = (int)(blockIdx.y * RIVAL_TILE + threadIdx.y * RIVAL_COARSE);
    const float step = 1 / (float)of.nodes;
    struct nodes n = {(float)x * step, (float)y * step, (float)z * step, step, {0}};
    for (int i = 0; i < constant_rows.count; i++) {
        const struct rival_run run = rival_run_of(of.grid, &constant_rows.row[i], (int)blockIdx.x * per_tile,
                                                  (int)blockIdx.y * per_tile, (int)blockIdx.z * per_tile);
        if (ACCESS == RIVAL_ROW) {
            if (run.to >= run.from)
                add_range<LAW, CYLINDER>(b, of, &chunk,
                                         rival_row_range(&b, REGULAR, run.row + run.from, run.row + run.to), &n);
        } else {
            for (int bin = run.from; bin <= run.to; bin++)
                add_range<LAW, CYLINDER>(b, of, &chunk, rival_bin_range(&b, REGULAR, ACCESS, run.row + bin), &n);
        }
    }
    for (int p = 0; p < RIVAL_COARSE; p++)
        if (x < side && y + p < side && z < side)
            sums[((size_t)z * side + y + p) * side + x] = n.sum[p];
}

static __device__ void pull(const struct rival_bins &b, struct rival_range range, const struct rival_sum &of,
                            const struct rival_sample &body, float sum[3])
{
    for (size_t i = 0; i < range.count; i++) {
        const struct rival_sample s = rival_get(b.slot, b.slots, RIVAL_PACKED, range.first + i);
        const float dx = s.x - body.x, dy = s.y - body.y, dz = s.z - body.z, r2 = dx * dx + dy * dy + dz * dz;
        const float factor = r2 > 0 ? rival_term(&of, RIVAL_FORCE, r2, s.re, 1) : 0;
        sum[0] += factor * dx;
        sum[1] += factor * dy;
        sum[2] += factor * dz;
    }
}

/* One thread per body, in blocks of BODY_THREADS; each thread reads its own sources from global memory. */
template <enum rival_access ACCESS, bool REGULAR>
static __global__ void __launch_bounds__(BODY_THREADS)
    gather_bodies(const struct rival_bins b, const struct rival_sum of, const struct rival_sample *bodies, size_t count,
                  float *sums)
{
    const size_t m = blockIdx.x * (size_t)BODY_THREADS + threadIdx.x;
    if (m >= count)
        return;
    const struct rival_sample body = bodies[m];
    const int from = rival_lowest(&of, body.x), to = rival_highest(&of, body.x), last_y = rival_highest(&of, body.y),
              last_z = rival_highest(&of, body.z);
    float sum[3] = {0, 0, 0};
    for (int z = rival_lowest(&of, body.z); z <= last_z; z++)
        for (int y = rival_lowest(&of, body.y); y <= last_y; y++) {
            const size_t row = ((size_t)z * of.grid + y) * of.grid;
            if (ACCESS == RIVAL_ROW)
                pull(b, rival_row_range(&b, REGULAR, row + from, row + to), of, body, sum);
            for (int x = from; ACCESS != RIVAL_ROW && x <= to; x++)
                pull(b, rival_bin_range(&b, REGULAR, ACCESS, row + x), of, body, sum);
        }
    for (int d = 0; d < 3; d++)
        sums[3 * m + d] = sum[d];
}

/* One thread per output. */
static __global__ void add(float *sums, const float *other, size_t count)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count)
        sums[i] += other[i];
}

template <enum rival_law LAW, enum rival_access ACCESS, bool REGULAR>
static void launch_lattice(struct rival_range_gpu *r, bool cylinder)
{
    const unsigned tiles = (unsigned)((r->of.grid * r->of.nodes + RIVAL_TILE - 1) / RIVAL_TILE);
    const dim3 blocks(tiles, tiles, tiles), threads(RIVAL_TILE, RIVAL_TILE / RIVAL_COARSE, RIVAL_TILE);
    if (cylinder)
        gather_lattice<LAW, ACCESS, REGULAR, true>
            <<<blocks, threads, 0, r->gpu->stream>>>(rival_view(r->gpu), r->of, r->sums);
    else
        gather_lattice<LAW, ACCESS, REGULAR, false>
            <<<blocks, threads, 0, r->gpu->stream>>>(rival_view(r->gpu), r->of, r->sums);
}

template <enum rival_access ACCESS, bool REGULAR> static void launch(struct rival_range_gpu *r, bool cylinder)
{
    const struct rival_gpu *g = r->gpu;
    if (r->of.law == RIVAL_POTENTIAL)
        launch_lattice<RIVAL_POTENTIAL, ACCESS, REGULAR>(r, cylinder);
    else if (r->of.law == RIVAL_BLOB)
        launch_lattice<RIVAL_BLOB, ACCESS, REGULAR>(r, cylinder);
    else
        gather_bodies<ACCESS, REGULAR>
            <<<(unsigned)((g->count + BODY_THREADS - 1) / BODY_THREADS), BODY_THREADS, 0, g->stream>>>(
                rival_view(g), r->of, g->samples, g->count, r->sums);
}

int rival_range_gpu_gather(struct rival_range_gpu *r, enum rival_access access, enum rival_choice choice, bool cylinder)
{
    struct rival_gpu *g = r->gpu;
    struct rival_rows rows = {0, {}};
    if (access == RIVAL_BIN_SENTINEL || g->recipe.shape.layout != RIVAL_PACKED)
        return err_set(ERR_BAD_PARAMETER, "these gathers read counts, and samples of 24 bytes");
    int rc = r->of.law == RIVAL_FORCE ? 0 : rival_rows_make(&rows, &r->of, choice);
    if (rc)
        return rc;
    RIVAL_TRY(cudaMemcpyToSymbol(constant_rows, &rows, sizeof rows));
    RIVAL_TRY(cudaEventRecord(g->event[0], g->stream));
    if (g->recipe.shape.regular && access == RIVAL_ROW)
        launch<RIVAL_ROW, true>(r, cylinder);
    else if (g->recipe.shape.regular)
        launch<RIVAL_BIN_COUNT, true>(r, cylinder);
    else if (access == RIVAL_ROW)
        launch<RIVAL_ROW, false>(r, cylinder);
    else
        launch<RIVAL_BIN_COUNT, false>(r, cylinder);
    RIVAL_TRY(cudaGetLastError());
    RIVAL_TRY(cudaEventRecord(g->event[1], g->stream));
    return 0;
}

float *rival_range_gpu_host(struct rival_range_gpu *r)
{
    return r->host;
}

int rival_range_gpu_merge(struct rival_range_gpu *r, double *ms)
{
    struct rival_gpu *g = r->gpu;
    float elapsed;
    RIVAL_TRY(cudaEventRecord(g->event[0], g->stream));
    RIVAL_TRY(cudaMemcpyAsync(r->other, r->host, r->outputs * sizeof *r->other, cudaMemcpyHostToDevice, g->stream));
    add<<<(unsigned)((r->outputs + 255) / 256), 256, 0, g->stream>>>(r->sums, r->other, r->outputs);
    RIVAL_TRY(cudaGetLastError());
    RIVAL_TRY(cudaEventRecord(g->event[1], g->stream));
    RIVAL_TRY(cudaStreamSynchronize(g->stream));
    RIVAL_TRY(cudaEventElapsedTime(&elapsed, g->event[0], g->event[1]));
    *ms = (double)elapsed;
    return 0;
}

int rival_range_gpu_fetch(struct rival_range_gpu *r, float *sums)
{
    RIVAL_TRY(cudaMemcpy(sums, r->sums, r->outputs * sizeof *sums, cudaMemcpyDeviceToHost));
    /* The sums of an earlier gather must not pass for those of the next. */
    RIVAL_TRY(cudaMemset(r->sums, 0xff, r->outputs * sizeof *r->sums));
    return 0;
}

static int make(struct rival_range_gpu *r)
{
    RIVAL_TRY(cudaMalloc(&r->sums, r->outputs * sizeof *r->sums));
    RIVAL_TRY(cudaMalloc(&r->other, r->outputs * sizeof *r->other));
    RIVAL_TRY(cudaMallocHost(&r->host, r->outputs * sizeof *r->host));
    RIVAL_TRY(cudaMemset(r->sums, 0xff, r->outputs * sizeof *r->sums));
    return 0;
}

int rival_range_gpu_create(struct rival_range_gpu **out, struct rival_gpu *gpu, const struct rival_sum *of)
{
    struct rival_range_gpu *r = (struct rival_range_gpu *)calloc(1, sizeof *r);
    if (!r)
        return err_set(ERR_NO_MEMORY, "no memory for sums of limited range");
    r->gpu = gpu;
    r->of = *of;
    r->outputs = rival_outputs(of, gpu->count);
    int rc = make(r);
    if (rc)
        rival_range_gpu_free(r);
    else
        *out = r;
    return rc;
}

void rival_range_gpu_free(struct rival_range_gpu *r)
{
    if (!r)
        return;
    cudaFree(r->sums);
    cudaFree(r->other);
    cudaFreeHost(r->host);
    free(r);
}
