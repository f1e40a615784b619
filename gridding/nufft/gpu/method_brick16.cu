/* Method brick16: 3-D samples to the grid on tensor cores, separable kernels 5 to 8 cells wide. A block sums a brick of
 * 16 x 16 x 16 grid cells in its registers (brick16_sums.cuh) and adds it to the grid in the order of the bins
 * (range_gpu.cuh). Parts of heavy bins are summed first.
 */
#include "gridding/base/launch_gpu.cuh"
#include "gridding/nufft/gpu/brick16_sums.cuh"

#include <nv/target>

enum {
    FEW_PARTS = 4,        /* of a heavy bin: its own block adds them up */
    PARTS_TOGETHER = 8,   /* of more parts, the bricks of so many are added up by the last of their blocks */
    CLEARED_MOST = 32768, /* cells that a block of parts clears in addition to its sums */
    FAINT = 127 - 64      /* data whose largest number is below 2^-64: its exponent's bits */
};

/* Add to two adjacent cells, the first at an even index. From compute capability 9.0 on the cache adds; no other block
 * adds to these cells meanwhile, so the order stays fixed. */
static __device__ __forceinline__ void add_two(float2 *to, const float (&v)[4])
{
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                      (asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                                    :
                                    : "l"(to), "f"(v[0]), "f"(v[2]), "f"(v[1]), "f"(v[3])
                                    : "memory");),
                      (float4 old = __ldcg((const float4 *)to);
                       *(float4 *)to = make_float4(old.x + v[0], old.y + v[2], old.z + v[1], old.w + v[3]);))
}

static __device__ __forceinline__ void add_one(float2 *to, float re, float im)
{
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                      (asm volatile("red.global.add.v2.f32 [%0], {%1, %2};"
                                    :
                                    : "l"(to), "f"(re), "f"(im)
                                    : "memory");),
                      (float2 old = __ldcg(to); *to = make_float2(old.x + re, old.y + im);))
}

/* The cache makes 0 of sums and summands below 2^-126, the multiprocessor does not. */
static __device__ __forceinline__ void add_faint(float2 *to, float re, float im)
{
    const float2 old = __ldcg(to);
    *to = make_float2(old.x + re, old.y + im);
}

/* The positions of a thread's cells in the grid: two in a row, in each half of it, in two rows, in the warp's planes.
 */
struct brick16_cells {
    float2 *row[2];
    bool inside[2][2], both[2]; /* [row, half]: whether the bin's samples reach the first cell; and the second */
    int next[2];                /* from the first cell to the second */
    int half;                   /* from those of the first half to those of the second */
    int z, nz;
    size_t plane;
};

static __device__ __forceinline__ struct brick16_cells cells_of(const struct brick16_args &a, float2 *grid,
                                                                const int place[3])
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const struct range_axis *axis = a.geometry.axis;
    const int nx = axis[0].cells, ny = axis[1].cells, reach = a.geometry.width - 1;
    const int columns = axis_size(axis[0], place[0]) + reach, rows = axis_size(axis[1], place[1]) + reach;
    struct brick16_cells c;
    c.nz = axis[2].cells;
    c.z = axis_first(axis[2], place[2]) + (int)(threadIdx.x >> 5);
    c.z -= c.z >= c.nz ? c.nz : 0;
    c.plane = (size_t)nx * ny;
    int x[2];
    for (int h = 0; h < 2; h++) {
        const int column = 8 * h + 2 * t;
        x[h] = axis_first(axis[0], place[0]) + column;
        x[h] -= x[h] >= nx ? nx : 0;
        for (int j = 0; j < 2; j++)
            c.inside[j][h] = 8 * j + g < rows && column < columns;
        c.both[h] = column + 1 < columns;
        c.next[h] = x[h] + 1 >= nx ? 1 - nx : 1;
    }
    c.half = x[1] - x[0];
    for (int j = 0; j < 2; j++) {
        const int y = axis_first(axis[1], place[1]) + 8 * j + g;
        c.row[j] = grid + c.z * c.plane + (size_t)(y >= ny ? y - ny : y) * nx + x[0];
    }
    return c;
}

enum brick16_adds { ALIGNED, ONE_BY_ONE, OF_FAINT };

/* Add a block's brick to its transform's grid, `touched` planes only. */
template <enum brick16_adds ADDS>
static __device__ __forceinline__ void add_brick(struct brick16_cells c, const float (&sum)[2][WARP_HALVES][4],
                                                 uint32_t touched)
{
    const size_t turn = c.nz * c.plane;
    touched >>= threadIdx.x >> 5;
#pragma unroll
    for (int p = 0; p < WARP_PLANES; p++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int j = i / 2, h = i % 2;
            const float(&v)[4] = sum[j][2 * p + h];
            float2 *const to = c.row[j] + (h > 0 ? c.half : 0);
            if (!c.inside[j][h] || !(touched >> (PLANES_APART * p) & 1))
                continue;
            if (ADDS == ALIGNED) {
                add_two(to, v);
                continue;
            }
            (ADDS == OF_FAINT ? add_faint : add_one)(to, v[0], v[2]);
            if (c.both[h])
                (ADDS == OF_FAINT ? add_faint : add_one)(to + c.next[h], v[1], v[3]);
        }
        c.z += PLANES_APART;
        const bool over = c.z >= c.nz;
        c.z -= over ? c.nz : 0;
        for (int j = 0; j < 2; j++)
            c.row[j] += PLANES_APART * c.plane - (over ? turn : 0);
    }
}

/* The thread's 16 pairs of cells of a transform's partial brick; the block accesses lines of 2 KB. */
static __device__ __forceinline__ float4 *partial_brick(const struct brick16_args &a, uint32_t transform, uint32_t slot)
{
    size_t brick = (size_t)transform * a.slots + slot;
    return (float4 *)(a.partial + brick * (BRICK16_EDGE * BRICK16_EDGE * BRICK16_EDGE)) + threadIdx.x;
}

/* Clear the block's share of the grids, without waiting for the stores. Grids have an even number of cells. */
static __device__ __forceinline__ void clear_grids(const struct brick16_args &a)
{
    const size_t first = (blockIdx.y * gridDim.x + blockIdx.x) * a.cleared;
    const size_t end = min(first + a.cleared, a.transforms * a.cells);
    for (size_t i = first + 2 * threadIdx.x; i < end; i += 2 * BRICK16_THREADS)
        *(float4 *)(a.grid + i) = make_float4(0.f, 0.f, 0.f, 0.f);
}

/* Store the block's sums as a partial brick, or add them to it. */
static __device__ __forceinline__ void store_brick(float4 *to, const float (&sum)[2][WARP_HALVES][4], bool add)
{
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int p = 0; p < WARP_HALVES; p++) {
            float4 *cells = to + (j * WARP_HALVES + p) * BRICK16_THREADS, old = make_float4(0.f, 0.f, 0.f, 0.f);
            const float *s = sum[j][p];
            if (add)
                old = *cells;
            *cells = make_float4(s[0] + old.x, s[2] + old.y, s[1] + old.z, s[3] + old.w);
        }
}

/* The sum of `count` partial bricks, in order, from one to the next `step` slots. */
static __device__ __forceinline__ void add_bricks(const float4 *from, uint32_t count, size_t step,
                                                  float (&sum)[2][WARP_HALVES][4])
{
    clear_sum(sum);
#pragma unroll 1
    for (; count > 0; count--, from += step * (2 * WARP_HALVES * BRICK16_THREADS))
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int p = 0; p < WARP_HALVES; p++) {
                const float4 v = __ldcg(from + (j * WARP_HALVES + p) * BRICK16_THREADS);
                sum[j][p][0] += v.x;
                sum[j][p][2] += v.y;
                sum[j][p][1] += v.z;
                sum[j][p][3] += v.w;
            }
}

/* The bricks of a heavy bin that its own block adds up: `count` of them, from one to the next `step` slots. */
struct bricks_left {
    uint32_t count, step;
};

static __device__ __forceinline__ struct bricks_left bricks_left_of(uint32_t parts)
{
    struct bricks_left left = {parts, 1};
    while (left.count > FEW_PARTS) {
        left.count = (left.count + PARTS_TOGETHER - 1) / PARTS_TOGETHER;
        left.step *= PARTS_TOGETHER;
    }
    return left;
}

/* Whether the block is the last of `blocks` to arrive at a counter, which is then 0 again. What the others stored
 * before can be read past the multiprocessor's cache. */
static __device__ __forceinline__ bool arrive_last(uint32_t *counter, uint32_t blocks)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1u) + 1 == blocks;
        if (last)
            *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* Of a bin with more than FEW_PARTS, the last block of every PARTS_TOGETHER adds up their bricks into the first, and so
 * on with these sums until few are left. Who is last does not matter: the order of the sum is that of the parts. */
static __device__ __forceinline__ void add_parts(const struct brick16_args &a, uint32_t transform,
                                                 const struct range_task &task, float (&sum)[2][WARP_HALVES][4])
{
    const uint32_t slot = task.slot - task.part, held = a.first[task.bin + 1] - a.first[task.bin];
    uint32_t *counter = a.arrived + (size_t)transform * a.slots + slot;
    uint32_t count = (held + a.geometry.depth - 1) / a.geometry.depth, index = task.part, step = 1;
    while (count > FEW_PARTS) {
        const uint32_t group = index / PARTS_TOGETHER, first = group * PARTS_TOGETHER,
                       blocks = min((uint32_t)PARTS_TOGETHER, count - first);
        if (!arrive_last(counter + group, blocks))
            return;
        float4 *to = partial_brick(a, transform, slot + first * step);
        add_bricks(to, blocks, step, sum);
        store_brick(to, sum, false);
        count = (count + PARTS_TOGETHER - 1) / PARTS_TOGETHER;
        counter += count; /* the groups of the next turn have counters of their own: all together fewer than parts */
        index = group;
        step *= PARTS_TOGETHER;
    }
}

/* Blocks of 128, (parts of heavy bins, transforms). With three products, a part's bricks of SPLIT_SAMPLES_MOST samples
 * are added up in its slot. */
template <int W, bool SPLIT>
static __global__ void __launch_bounds__(BRICK16_THREADS, BRICK16_BLOCKS)
    sum_brick16_parts(const __grid_constant__ struct brick16_args a)
{
    __shared__ __align__(16) struct brick16_group<SPLIT> stage[BRICK16_GROUPS];
    const struct range_task task = a.tasks[blockIdx.x];
    float sum[2][WARP_HALVES][4];
    clear_grids(a);
    gpu_wait_for_previous();
    gpu_let_next_start();
    constexpr uint32_t most = SPLIT ? SPLIT_SAMPLES_MOST : RANGE_UNLIMITED;
    for (uint32_t i = task.first, last; i < task.last; i = last) {
        last = i + min(most, task.last - i);
        sum_samples<W, SPLIT>(a, blockIdx.y, i, last, stage, sum);
        store_brick(partial_brick(a, blockIdx.y, task.slot), sum, i > task.first);
    }
    add_parts(a, blockIdx.y, task, sum);
}

/* The planes of its brick that a bin's samples reach. */
static __device__ __forceinline__ uint32_t planes_reached(const struct brick16_args &a, const struct range_task &task,
                                                          int deep)
{
    const uint32_t all = (1u << (deep + a.geometry.width - 1)) - 1;
    if (!a.sorted || task.parts > 0)
        return all;
    const uint32_t from = a.points[task.first].base >> 16, last = a.points[task.last - 1].base >> 16;
    return all >> (deep - 1 - (last - from)) << from;
}

/* Compute a block's brick for a bin and a transform: the sum of its samples, or of its parts. Only the latter waits for
 * the sums of parts. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void sum_bin(const struct brick16_args &a, uint32_t transform,
                                               const struct range_task &task, struct brick16_group<SPLIT> *stage,
                                               float (&sum)[2][WARP_HALVES][4])
{
    const struct bricks_left left = bricks_left_of(task.parts);
    if (task.parts == 0)
        sum_samples<W, SPLIT>(a, transform, task.first, task.last, stage, sum);
    gpu_wait_for_previous();
    if (task.parts > 0)
        add_bricks(partial_brick(a, transform, task.slot), left.count, left.step, sum);
}

/* Blocks of 128; each processes the next bin in order, of one transform after the other, and adds it to the transform's
 * grid: so the cache holds the cells of one transform, not of all. */
template <int W, bool SPLIT>
static __global__ void __launch_bounds__(BRICK16_THREADS, BRICK16_BLOCKS)
    scatter_brick16(const __grid_constant__ struct brick16_args a)
{
    __shared__ __align__(16) struct brick16_group<SPLIT> stage[BRICK16_GROUPS];
    __shared__ uint32_t ticket;
    if (!SPLIT) /* with three products, blocks of the FFT that wait beside the last bins cost more than their launch */
        gpu_let_next_start();
    if (threadIdx.x == 0) {
        ticket = atomicAdd(a.ticket, 1u);
        if (ticket + 1 == gridDim.x)
            *a.ticket = 0; /* for the next launch: no other block takes one any more */
    }
    __syncthreads();
    const uint32_t tasks = gridDim.x / a.transforms, transform = ticket / tasks;
    const struct range_task task = a.tasks[ticket - transform * tasks];
    uint32_t *done = a.done + (size_t)transform * a.bins;
    int place[3];
    float sum[2][WARP_HALVES][4];
    range_bin_place(&a.geometry, task.bin, place);
    const uint32_t touched = planes_reached(a, task, axis_size(a.geometry.axis[2], place[2]));
    sum_bin<W, SPLIT>(a, transform, task, stage, sum);
    const struct brick16_cells cells = cells_of(a, a.grid + transform * a.cells, place);
    if (threadIdx.x < 32)
        range_wait(a.geometry, task, place, done, a.round);
    __syncthreads();
    if (a.largest[transform] >> 23 < FAINT)
        add_brick<OF_FAINT>(cells, sum, touched);
    else if (a.aligned)
        add_brick<ALIGNED>(cells, sum, touched);
    else
        add_brick<ONE_BY_ONE>(cells, sum, touched);
    __syncthreads();
    if (threadIdx.x < 32)
        range_signal(done, task.bin, a.round);
}

/* Bins are launched behind parts: those without parts fill the multiprocessors that the last parts leave idle. */
template <int W, bool SPLIT>
static int launch(const struct nufft_gpu *plan, struct brick16_args *a, bool parts, const struct range_task *tasks,
                  uint32_t count)
{
    const void *kernel = parts ? (const void *)sum_brick16_parts<W, SPLIT> : (const void *)scatter_brick16<W, SPLIT>;
    const dim3 blocks = parts ? dim3(count, a->transforms) : dim3(count * a->transforms);
    a->tasks = tasks;
    return count == 0 ? 0 : gpu_launch_behind(plan->gpu, kernel, blocks, BRICK16_THREADS, 0, a, "Gridding");
}

static int launch_width(const struct nufft_gpu *plan, struct brick16_args *a, bool parts,
                        const struct range_task *tasks, uint32_t count)
{
    switch (plan->shape.width) {
    case 5:
        return (plan->split ? launch<5, true> : launch<5, false>)(plan, a, parts, tasks, count);
    case 6:
        return (plan->split ? launch<6, true> : launch<6, false>)(plan, a, parts, tasks, count);
    case 7:
        return (plan->split ? launch<7, true> : launch<7, false>)(plan, a, parts, tasks, count);
    default:
        return (plan->split ? launch<8, true> : launch<8, false>)(plan, a, parts, tasks, count);
    }
}

/* The first and the last of an odd number of bins are neighbours of one colour, which therefore wait for each other:
 * where there are few, one more costs less, if bins stay `least` cells long. */
static int even_bins(int cells, int bins, int least)
{
    const int few = 9;
    return bins % 2 && bins <= few && cells / (bins + 1) >= least ? bins + 1 : bins;
}

/* At least two if there are enough cells: with one, a brick would overlap itself. */
struct range_axis nufft_gpu_brick16_axis(int cells, int width)
{
    struct range_axis axis = range_axis_make(cells / 2, (BRICK16_EDGE + 1 - width) / 2);
    if (cells % 2 == 0 && axis.bins > 1 && cells / 2 / axis.bins * 2 >= width)
        return range_axis{cells, even_bins(cells / 2, axis.bins, (width + 1) / 2), 1};
    axis = range_axis_make(cells, BRICK16_EDGE + 1 - width);
    return range_axis{cells, even_bins(cells, axis.bins, width - 1), 0};
}

int nufft_gpu_brick16_make(struct nufft_gpu *plan)
{
    const size_t brick = (size_t)BRICK16_EDGE * BRICK16_EDGE * BRICK16_EDGE;
    plan->tile[0] = plan->tile[1] = plan->tile[2] = BRICK16_EDGE;
    const size_t words = 2 + (size_t)plan->bins.count + plan->bins.slots;
    int rc = nufft_gpu_workspace_make(plan, plan->samples, plan->bins.slots * brick, words);
    plan->done = plan->largest + 2 * plan->group;
    return rc ? rc : range_tickets(&plan->bins, plan->gpu);
}

/* The blocks of parts, which leave memory bandwidth unused, clear the grids if there are enough of them. */
static int clear(const struct nufft_gpu *plan, struct brick16_args *a)
{
    const size_t all = a->transforms * a->cells, blocks = (size_t)a->slots * a->transforms;
    if (blocks > 0)
        a->cleared = (all + 2 * blocks - 1) / (2 * blocks) * 2;
    if (blocks > 0 && a->cleared <= CLEARED_MOST)
        return 0;
    a->cleared = 0;
    return gpu_check(cudaMemsetAsync(a->grid, 0, all * sizeof *a->grid, plan->gpu->stream), "Clearing the grid");
}

static int scatter(struct nufft_gpu *plan, int transforms)
{
    struct range_bins_gpu *bins = &plan->bins;
    struct brick16_args a = {};
    a.largest = plan->largest + (bins->round & 1) * plan->group;
    bins->round++;
    a.geometry = bins->geometry;
    a.transforms = (uint32_t)transforms;
    a.round = bins->round;
    a.done = plan->done;
    a.arrived = plan->done + (size_t)plan->group * bins->count;
    a.first = bins->first;
    a.ticket = bins->ticket;
    a.points = bins->points;
    a.data = (const float2 *)plan->sorted;
    a.grid = (float2 *)plan->grid;
    a.partial = (float2 *)plan->partial;
    a.samples = plan->samples;
    a.cells = plan->cells;
    a.bins = bins->count;
    a.slots = bins->slots;
    a.kernel = scaled_pairs(plan->pairs);
    a.sorted = bins->geometry.by_cell;
    a.aligned = bins->geometry.axis[0].shift == 1;
    int rc = clear(plan, &a);
    if (!rc)
        rc = launch_width(plan, &a, true, bins->parts, bins->slots);
    return rc ? rc : launch_width(plan, &a, false, bins->tasks, bins->occupied);
}

int nufft_gpu_brick16_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights)
{
    const int rc = nufft_gpu_sort_data(plan, transforms, data, weights);
    return rc ? rc : scatter(plan, transforms);
}
