/* rival_gather.cu: the gather over bins on the GPU, and the processing of its grid. */
#include "tests/bench/rival_gpu.cuh"
#include "gridding/base/err.h"

#include <stdio.h>
#include <string.h>

enum { POINTS = 4 }; /* cells along z per thread */

/* A chunk of samples in shared memory: position, and value times density. */
struct chunk {
    float4 place[RIVAL_CHUNK];
    float2 value[RIVAL_CHUNK];
};

/* One thread's cells and sums. */
struct column {
    float x, y, z;
    float re[POINTS], im[POINTS];
};

template <enum rival_layout LAYOUT>
static __device__ void load_chunk(const struct rival_bins &b, struct chunk *chunk, size_t first, int n, int thread)
{
    if (thread >= n)
        return;
    struct rival_sample s = rival_get(b.slot, b.slots, LAYOUT, first + thread);
    chunk->place[thread] = make_float4(s.x, s.y, s.z, 0);
    chunk->value[thread] = make_float2(s.re * s.density, s.im * s.density);
}

/* Called by all threads of a block with the same range. */
template <enum rival_layout LAYOUT, bool SENTINEL>
static __device__ void add_range(const struct rival_bins &b, const struct rival_kernel &kernel, struct chunk *chunk,
                                 struct rival_range range, struct column *c)
{
    const int thread = (int)((threadIdx.z * RIVAL_TILE_Y + threadIdx.y) * RIVAL_TILE_X + threadIdx.x);
    for (size_t done = 0; done < range.count; done += RIVAL_CHUNK) {
        const int n = (int)(range.count - done < RIVAL_CHUNK ? range.count - done : RIVAL_CHUNK);
        bool ended = false;
        load_chunk<LAYOUT>(b, chunk, range.first + done, n, thread);
        __syncthreads();
        for (int i = 0; i < n; i++) {
            const float4 place = chunk->place[i];
            if (SENTINEL && place.x == RIVAL_NONE) {
                ended = true;
                break;
            }
            const float flat = rival_flat(place.x - c->x, place.y - c->y);
            if (flat <= 0)
                continue;
            const float2 value = chunk->value[i];
#pragma unroll
            for (int p = 0; p < POINTS; p++) {
                const float w = rival_weight(&kernel, flat, place.z - (c->z + (float)p));
                c->re[p] += w * value.x;
                c->im[p] += w * value.y;
            }
        }
        __syncthreads();
        if (ended)
            break;
    }
}

/* Blocks: the grid's tiles of 8 x 4 x 8 cells. Threads: 8 x 4 x 2, each 4 cells along z. Shared: 1.5 KiB, a chunk of 64
 * samples. Every block reads all samples of the bins around its tile, as in figures 22 and 24 of the thesis. */
template <enum rival_layout LAYOUT, enum rival_access ACCESS, bool REGULAR>
static __global__ void __launch_bounds__(RIVAL_CHUNK)
    gather(const struct rival_bins b, const struct rival_kernel kernel, struct c32 *values)
{
    __shared__ struct chunk chunk;
    const int grid = b.shape.grid, first_x = (int)blockIdx.x * RIVAL_TILE_X, first_y = (int)blockIdx.y * RIVAL_TILE_Y,
              first_z = (int)blockIdx.z * RIVAL_TILE_Z;
    const int x = first_x + (int)threadIdx.x, y = first_y + (int)threadIdx.y, z = first_z + (int)threadIdx.z * POINTS;
    struct column c = {(float)x, (float)y, (float)z, {0}, {0}};
    const int from = rival_first_bin(first_x), to = rival_last_bin(first_x, RIVAL_TILE_X, grid);
    const int last_z = rival_last_bin(first_z, RIVAL_TILE_Z, grid),
              last_y = rival_last_bin(first_y, RIVAL_TILE_Y, grid);
    for (int bin_z = rival_first_bin(first_z); bin_z <= last_z; bin_z++)
        for (int bin_y = rival_first_bin(first_y); bin_y <= last_y; bin_y++) {
            const size_t row = ((size_t)bin_z * grid + bin_y) * grid;
            if (ACCESS == RIVAL_ROW)
                add_range<LAYOUT, false>(b, kernel, &chunk, rival_row_range(&b, REGULAR, row + from, row + to), &c);
            else
                for (int bin_x = from; bin_x <= to; bin_x++)
                    add_range<LAYOUT, ACCESS == RIVAL_BIN_SENTINEL>(
                        b, kernel, &chunk, rival_bin_range(&b, REGULAR, ACCESS, row + bin_x), &c);
        }
    for (int p = 0; p < POINTS; p++)
        if (x < grid && y < grid && z + p < grid)
            values[((size_t)(z + p) * grid + y) * grid + x] = c32{c.re[p], c.im[p]};
}

/* One thread per cell. */
static __global__ void add(struct c32 *values, const struct c32 *other, size_t count)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count) {
        values[i].re += other[i].re;
        values[i].im += other[i].im;
    }
}

/* One thread per probed cell. */
static __global__ void pick(const struct c32 *values, const size_t *cell, size_t count, struct c32 *picked)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < count)
        picked[i] = values[cell[i]];
}

template <enum rival_layout LAYOUT, enum rival_access ACCESS, bool REGULAR>
static void launch(struct rival_gpu *g, const struct rival_kernel *kernel)
{
    auto tiles = [g](int cells) { return (unsigned)((g->grid + cells - 1) / cells); };
    const dim3 blocks(tiles(RIVAL_TILE_X), tiles(RIVAL_TILE_Y), tiles(RIVAL_TILE_Z)),
        threads(RIVAL_TILE_X, RIVAL_TILE_Y, RIVAL_TILE_Z / POINTS);
    gather<LAYOUT, ACCESS, REGULAR><<<blocks, threads, 0, g->stream>>>(rival_view(g), *kernel, g->values);
}

template <enum rival_layout LAYOUT>
static void launch_compact(struct rival_gpu *g, enum rival_access access, const struct rival_kernel *kernel)
{
    if (access == RIVAL_ROW)
        launch<LAYOUT, RIVAL_ROW, false>(g, kernel);
    else
        launch<LAYOUT, RIVAL_BIN_COUNT, false>(g, kernel);
}

int rival_gpu_gather(struct rival_gpu *g, enum rival_access access, const struct rival_kernel *kernel)
{
    const struct rival_shape *s = &g->recipe.shape;
    if (s->regular ? s->layout != RIVAL_PACKED : access == RIVAL_BIN_SENTINEL)
        return err_set(ERR_BAD_PARAMETER, "sentinels are for regular bins, other layouts for compact ones");
    RIVAL_TRY(cudaEventRecord(g->event[0], g->stream));
    if (s->regular && access == RIVAL_BIN_COUNT)
        launch<RIVAL_PACKED, RIVAL_BIN_COUNT, true>(g, kernel);
    else if (s->regular && access == RIVAL_BIN_SENTINEL)
        launch<RIVAL_PACKED, RIVAL_BIN_SENTINEL, true>(g, kernel);
    else if (s->regular)
        launch<RIVAL_PACKED, RIVAL_ROW, true>(g, kernel);
    else if (s->layout == RIVAL_PACKED)
        launch_compact<RIVAL_PACKED>(g, access, kernel);
    else if (s->layout == RIVAL_PADDED)
        launch_compact<RIVAL_PADDED>(g, access, kernel);
    else
        launch_compact<RIVAL_VECTORS>(g, access, kernel);
    RIVAL_TRY(cudaGetLastError());
    RIVAL_TRY(cudaEventRecord(g->event[1], g->stream));
    return 0;
}

int rival_gpu_finish(struct rival_gpu *g, double *ms)
{
    float elapsed;
    RIVAL_TRY(cudaStreamSynchronize(g->stream));
    RIVAL_TRY(cudaEventElapsedTime(&elapsed, g->event[0], g->event[1]));
    *ms = (double)elapsed;
    return 0;
}

struct c32 *rival_gpu_host_grid(struct rival_gpu *g)
{
    return g->host_grid;
}

int rival_gpu_merge(struct rival_gpu *g, double *ms)
{
    float elapsed;
    RIVAL_TRY(cudaEventRecord(g->event[0], g->stream));
    RIVAL_TRY(cudaMemcpyAsync(g->other, g->host_grid, g->bins * sizeof *g->other, cudaMemcpyHostToDevice, g->stream));
    add<<<(unsigned)((g->bins + 255) / 256), 256, 0, g->stream>>>(g->values, g->other, g->bins);
    RIVAL_TRY(cudaGetLastError());
    RIVAL_TRY(cudaEventRecord(g->event[1], g->stream));
    RIVAL_TRY(cudaStreamSynchronize(g->stream));
    RIVAL_TRY(cudaEventElapsedTime(&elapsed, g->event[0], g->event[1]));
    *ms = (double)elapsed;
    return 0;
}

int rival_gpu_probe(struct rival_gpu *g, const size_t *cell, size_t count, struct c32 *values)
{
    size_t *cells = NULL;
    struct c32 *picked = NULL;
    RIVAL_TRY(cudaMalloc(&cells, count * sizeof *cells));
    RIVAL_TRY(cudaMalloc(&picked, count * sizeof *picked));
    RIVAL_TRY(cudaMemcpy(cells, cell, count * sizeof *cells, cudaMemcpyHostToDevice));
    pick<<<(unsigned)((count + 255) / 256), 256, 0, g->stream>>>(g->values, cells, count, picked);
    RIVAL_TRY(cudaGetLastError());
    RIVAL_TRY(cudaStreamSynchronize(g->stream));
    RIVAL_TRY(cudaMemcpy(values, picked, count * sizeof *values, cudaMemcpyDeviceToHost));
    /* The result of an earlier gather must not pass for that of the next. */
    RIVAL_TRY(cudaMemset(g->values, 0xff, g->bins * sizeof *g->values));
    RIVAL_TRY(cudaFree(cells));
    RIVAL_TRY(cudaFree(picked));
    return 0;
}

size_t rival_gpu_free_bytes(void)
{
    size_t available = 0, total = 0;
    return cudaMemGetInfo(&available, &total) == cudaSuccess ? available : 0;
}

/* The driver's version, as its kernel module reports it. */
static void driver_version(char *text, size_t size)
{
    FILE *file = fopen("/sys/module/nvidia/version", "re");
    if (file == NULL || fgets(text, (int)size, file) == NULL)
        snprintf(text, size, "unknown");
    text[strcspn(text, "\n")] = '\0';
    if (file != NULL)
        fclose(file);
}

void rival_gpu_describe(char *text, size_t size)
{
    cudaDeviceProp properties;
    char driver[64];
    int runtime = 0;
    driver_version(driver, sizeof driver);
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        snprintf(text, size, "no GPU");
    else
        snprintf(text, size, "%s, driver %s, CUDA %d.%d", properties.name, driver, runtime / 1000, runtime % 1000 / 10);
}
