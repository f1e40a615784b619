/* range_gpu.cuh: compact bins of k-space samples on the GPU.
 *
 * A sample's base cell is the lowest of the `width` grid cells its kernel reaches, on every axis: base = ceil(g -
 * width/2), g its position in cells, wrapped into the grid; a position closer to a whole turn than 2^-40 is moved
 * there, on the CPU as well. Samples are put in bins by base cell with a stable radix sort, so that the order within a
 * bin is the caller's and every sum over a bin is the same on every run.
 *
 * The tile of a bin is the cells that its samples can reach: (bin + width - 1) cells on every axis, wrapped. Bins have
 * a fixed order. A task sums its bin's samples into a tile of its own and adds the tile to the grid after those of the
 * bin's 26 neighbours that precede it: every cell receives its tiles in that order, on every run, and no two warps add
 * to a cell at the same time. Tasks are also started in that order, from a counter, so a task only waits for tasks that
 * have started: there is no deadlock. The order goes slab by slab along y, so that a slab's cells stay in the cache,
 * and within a slab colour by colour (even and odd bins of each axis), so that the tasks it waits for began long
 * before.
 *
 * A bin of more than `light` samples is heavy: it is cut into parts of `depth` samples, each part is summed first, into
 * a partial tile of its own, and these are added up in their order.
 *
 * Alternatively (run_samples > 0) sums go to slots instead of the grid, and no task waits: see slots.h. Each occupied
 * bin has a slot for its own cells along x; sums beyond them are carried into the next bin of its run, and after a
 * run's last bin (or a heavy one) they are stored in an additional slot of the bin to the right. The last of a bin's
 * slots, slot[bin + 1] - 1, is its own; one from its left neighbour precedes it.
 */
#ifndef MRIRECON_RANGE_GPU_CUH
#define MRIRECON_RANGE_GPU_CUH

#include "gridding/range/slots_gpu.cuh"
#include "gridding/range/layout.h"

/* Samples [first, last) of one bin. */
struct range_task {
    uint32_t bin, first, last;
    uint32_t parts;      /* of a heavy bin: number of parts, whose partial tiles begin at `slot`; otherwise 0 */
    uint32_t slot;       /* of a part: its own partial tile */
    uint32_t part;       /* of a part: its index in the bin */
    uint32_t neighbours; /* bit (z * 3 + y) * 3 + x: the neighbour x - 1, y - 1, z - 1 precedes */
    uint32_t pad;
};

/* A sample in its bin: position above the base cell, (width/2 - 1, width/2] per axis, and the base cell: in 3-D
 * relative to the bin's first cell, x | y << 8 | z << 16; in 2-D of the grid, x | y << 16. */
struct range_point_gpu {
    float x, y, z;
    uint32_t base;
};

struct range_bins_gpu {
    struct range_geometry geometry;
    uint32_t samples, count, occupied, largest;
    uint32_t *order;                /* [samples] sorted index -> the caller's */
    struct range_point_gpu *points; /* [samples] sorted */
    uint32_t *first;                /* [count + 1] */
    struct range_task *tasks;       /* [occupied], in order */
    struct range_task *parts;       /* [slots]: part i sums into partial tile i */
    struct range_task *heavy;       /* [heavies]: the heavy ones of `tasks` */
    uint32_t slots, heavies;
    struct range_bin_run *runs; /* in order of their bins */
    uint32_t *slot;             /* [count + 1]: the slots of bin b are slot[b] .. slot[b + 1] - 1 */
    struct range_prefix *rows;  /* host, [axis[1].bins + 1]: counts of the bins before each row along y */
    uint32_t *done;             /* [count]: the round in which the bin's tile was last added to the grid */
    uint32_t *ticket;           /* one counter: number of started tasks of a list */
    uint32_t round;             /* counted up for every sum */
    size_t nonfinite; /* index of the first value of k that is not finite, or SIZE_MAX; that sample is placed at 0 */
    size_t bytes;
    double seconds; /* time of binning, by the device's clock */
};

/* Bin k[samples][dim] (device memory, cycles per pixel). `bins` must be zeroed; on failure it can be freed as
 * well. */
int range_bins_gpu_make(struct range_bins_gpu *bins, struct gpu *gpu, const struct range_geometry *geometry,
                        size_t samples, const float *k);
void range_bins_gpu_free(struct range_bins_gpu *bins, struct gpu *gpu);

/* Some of the samples, in the caller's order: indices and k. */
struct range_part {
    uint32_t samples;
    uint32_t *index; /* [samples] of all */
    float *k;        /* [samples][dim] */
};

/* Split the samples k[bins->samples][dim] (device memory) into those that bins of a depth keep and those beyond. `bins`
 * must not be sorted by cell: then a bin's first `depth` samples in the caller's order are kept. Parts must be zeroed;
 * on failure they can be freed as well. */
int range_gpu_partition(struct gpu *gpu, const struct range_bins_gpu *bins, uint32_t depth, const float *k,
                        struct range_part *kept, struct range_part *past);
void range_gpu_part_free(struct range_part *part, struct gpu *gpu);

/* range_bins_gpu_make() of a part; `order` leads to indices of all samples. */
int range_bins_gpu_make_part(struct range_bins_gpu *bins, struct gpu *gpu, const struct range_geometry *geometry,
                             const struct range_part *part);

/* The lists of tasks, parts and runs of bins whose samples are sorted (range_gpu_tasks.cu). */
int range_tasks_make(struct range_bins_gpu *bins, struct gpu *gpu);

/* Reset the counter of tasks, to start a list. */
int range_tickets(struct range_bins_gpu *bins, struct gpu *gpu);

/* ---- inside a kernel, for a warp ---- */

/* The number of the next task; the same in all lanes. */
static __device__ __forceinline__ uint32_t range_ticket(uint32_t *ticket)
{
    uint32_t number = 0;
    if ((threadIdx.x & 31) == 0)
        number = atomicAdd(ticket, 1u);
    return __shfl_sync(~0u, number, 0);
}

/* Wait until the tiles of the preceding neighbours are in the grid. */
static __device__ __forceinline__ void range_wait(const struct range_geometry &g, const struct range_task &task,
                                                  const int place[3], const uint32_t *done, uint32_t round)
{
    int lane = threadIdx.x & 31;
    if (task.neighbours >> lane & 1) {
        int step[3] = {lane % 3 - 1, lane / 3 % 3 - 1, lane / 9 - 1}, at[3];
        for (int d = 0; d < 3; d++) {
            at[d] = place[d] + step[d];
            at[d] += at[d] < 0 ? g.axis[d].bins : 0;
            at[d] -= at[d] >= g.axis[d].bins ? g.axis[d].bins : 0;
        }
        const uint32_t *flag = done + range_bin_number(&g, at);
        uint32_t seen;
        while (true) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
            if (seen == round)
                break;
            __nanosleep(40);
        }
    }
    __syncwarp();
}

/* Signal that this warp's stores of the bin's tile are complete: they precede the release, those of the other lanes by
 * __syncwarp. */
static __device__ __forceinline__ void range_signal(uint32_t *done, uint32_t bin, uint32_t round)
{
    __syncwarp();
    if ((threadIdx.x & 31) == 0)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(done + bin), "r"(round) : "memory");
}

#endif
