/* Wide bricks: 3-D samples to the grid on tensor cores, separable kernels 5 to 8 cells wide. A block sums a brick of
 * 16 x 16 x 16 grid cells in its registers (brick16_sums.cuh) and adds it to the grid in the order of the bins
 * (range_gpu.cuh). Parts of heavy bins are summed before, and added up by their bin's block.
 */
#include "gridding/nufft/gpu/brick16_sums.cuh"

#include <nv/target>

enum {
    FEW_PARTS = 4,       /* of a heavy bin: its own block adds them up */
    CLEARED_MOST = 32768 /* cells that a block of parts clears beside its sums */
};

/* Two cells that lie side by side, the first at an even place. The cache adds where the machine can (9.0); no other
 * block adds to these cells meanwhile, so the order stays fixed. */
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

/* Add a block's brick to its transform's grid, `touched` planes only. */
static __device__ __forceinline__ void add_brick(const struct brick16_args &a, float2 *grid, const int place[3],
                                                 const float (&sum)[2][WIDE_OWN_PLANES][4], uint32_t touched)
{
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, odd = threadIdx.x >> 6;
    int column = (threadIdx.x >> 5 & 1) * 8 + 2 * t;
    const struct range_axis *axis = a.geometry.axis;
    int nx = axis[0].cells, ny = axis[1].cells, nz = axis[2].cells, reach = a.geometry.width - 1;
    int columns = axis_size(axis[0], place[0]) + reach, rows = axis_size(axis[1], place[1]) + reach;
    int x = axis_first(axis[0], place[0]) + column, z = axis_first(axis[2], place[2]) + odd;
    size_t plane = (size_t)nx * ny;
    float2 *row[2];
    bool inside[2];
    x -= x >= nx ? nx : 0;
    for (int j = 0; j < 2; j++) {
        int y = axis_first(axis[1], place[1]) + 8 * j + g;
        inside[j] = 8 * j + g < rows && column < columns;
        row[j] = grid + (size_t)(y >= ny ? y - ny : y) * nx + x;
    }
    int next = x + 1 >= nx ? 1 - nx : 1;
    touched >>= odd;
#pragma unroll
    for (int p = 0; p < WIDE_OWN_PLANES; p++) {
        size_t above = (z + 2 * p >= nz ? z + 2 * p - nz : z + 2 * p) * plane;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            bool wanted = inside[j] && (touched >> (2 * p) & 1);
            if (a.aligned) {
                if (wanted)
                    add_two(row[j] + above, sum[j][p]);
            } else if (wanted) {
                add_one(row[j] + above, sum[j][p][0], sum[j][p][2]);
                if (column + 1 < columns)
                    add_one(row[j] + above + next, sum[j][p][1], sum[j][p][3]);
            }
        }
    }
}

/* The thread's 16 times two cells of a transform's partial brick, lines of 2 KB for the block. */
static __device__ __forceinline__ float4 *partial_brick(const struct brick16_args &a, uint32_t transform, uint32_t slot)
{
    size_t brick = (size_t)transform * a.slots + slot;
    return (float4 *)(a.partial + brick * (WIDE_EDGE * WIDE_EDGE * WIDE_EDGE)) + threadIdx.x;
}

/* Clear the block's share of the grids; nobody waits for the memory. Grids have an even number of cells. */
static __device__ __forceinline__ void clear_grids(const struct brick16_args &a)
{
    const size_t first = (blockIdx.y * gridDim.x + blockIdx.x) * a.cleared;
    const size_t end = min(first + a.cleared, a.transforms * a.cells);
    for (size_t i = first + 2 * threadIdx.x; i < end; i += 2 * WIDE_THREADS)
        *(float4 *)(a.grid + i) = make_float4(0.f, 0.f, 0.f, 0.f);
}

/* Blocks of 128, (parts of heavy bins, transforms). A part's bricks of SPLIT_SAMPLES_MOST samples are added up in its
 * slot. */
template <int W, bool SPLIT>
static __global__ void __launch_bounds__(WIDE_THREADS, SPLIT ? 4 : 5)
    sum_wide_parts(const __grid_constant__ struct brick16_args a)
{
    __shared__ __align__(16) struct brick16_stage<SPLIT> stage;
    const struct range_task task = a.tasks[blockIdx.x];
    const uint32_t exponent = value_exponent(a.largest[blockIdx.y]);
    const float2 *data = a.data + blockIdx.y * a.samples;
    const float gain = unscaled(exponent);
    float4 *slot = partial_brick(a, blockIdx.y, task.slot);
    float sum[2][WIDE_OWN_PLANES][4];
    clear_grids(a);
    for (uint32_t i = task.first; i < task.last; i += SPLIT_SAMPLES_MOST) {
        sum_samples<W, SPLIT>(a, data, i, min(i + SPLIT_SAMPLES_MOST, task.last), __uint_as_float(exponent << 23),
                              stage, sum);
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int p = 0; p < WIDE_OWN_PLANES; p++) {
                float4 *to = slot + (j * WIDE_OWN_PLANES + p) * WIDE_THREADS, old = make_float4(0.f, 0.f, 0.f, 0.f);
                const float *s = sum[j][p];
                if (i > task.first)
                    old = *to;
                *to = make_float4(fmaf(s[0], gain, old.x), fmaf(s[2], gain, old.y), fmaf(s[1], gain, old.z),
                                  fmaf(s[3], gain, old.w));
            }
    }
}

/* The sum of `parts` partial bricks that follow each other, in their order. */
static __device__ __forceinline__ void add_bricks(const float4 *from, uint32_t parts,
                                                  float (&sum)[2][WIDE_OWN_PLANES][4])
{
    clear_sum(sum);
#pragma unroll 1
    for (; parts > 0; parts--, from += 2 * WIDE_OWN_PLANES * WIDE_THREADS)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int p = 0; p < WIDE_OWN_PLANES; p++) {
                const float4 v = from[(j * WIDE_OWN_PLANES + p) * WIDE_THREADS];
                sum[j][p][0] += v.x;
                sum[j][p][2] += v.y;
                sum[j][p][1] += v.z;
                sum[j][p][3] += v.w;
            }
}

/* What a block holds for a bin and a transform: the sum of its samples, or of its parts. Returns the planes they reach.
 */
template <int W, bool SPLIT>
static __device__ __forceinline__ uint32_t sum_bin(const struct brick16_args &a, uint32_t transform,
                                                   const struct range_task &task, int deep,
                                                   struct brick16_stage<SPLIT> &stage,
                                                   float (&sum)[2][WIDE_OWN_PLANES][4])
{
    if (task.parts > 0) {
        add_bricks(partial_brick(a, transform, task.slot), task.parts > FEW_PARTS ? 1 : task.parts, sum);
        return (1u << (deep + W - 1)) - 1;
    }
    const uint32_t exponent = value_exponent(a.largest[transform]);
    const float gain = unscaled(exponent);
    uint32_t touched = sum_samples<W, SPLIT>(a, a.data + transform * a.samples, task.first, task.last,
                                             __uint_as_float(exponent << 23), stage, sum);
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
        for (int p = 0; p < WIDE_OWN_PLANES; p++)
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum[j][p][k] *= gain;
    return touched;
}

/* Blocks of 128; each takes the next bin in their order, for one transform after the other, and sums it onto the
 * transform's grid. */
template <int W, bool SPLIT>
static __global__ void __launch_bounds__(WIDE_THREADS, SPLIT ? 4 : 5)
    scatter_wide(const __grid_constant__ struct brick16_args a)
{
    __shared__ __align__(16) struct brick16_stage<SPLIT> stage;
    __shared__ uint32_t ticket;
    if (threadIdx.x == 0)
        ticket = atomicAdd(a.ticket, 1u);
    __syncthreads();
    const struct range_task task = a.tasks[ticket / a.transforms];
    const uint32_t transform = ticket % a.transforms;
    uint32_t *done = a.done + (size_t)transform * a.bins;
    int place[3];
    float sum[2][WIDE_OWN_PLANES][4];
    range_bin_place(&a.geometry, task.bin, place);
    uint32_t touched = sum_bin<W, SPLIT>(a, transform, task, axis_size(a.geometry.axis[2], place[2]), stage, sum);
    if (threadIdx.x < 32)
        range_wait(a.geometry, task, place, done, a.round);
    __syncthreads();
    add_brick(a, a.grid + transform * a.cells, place, sum, touched);
    __syncthreads();
    if (threadIdx.x < 32)
        range_signal(done, task.bin, a.round);
}

template <int W, bool SPLIT>
static int launch(const struct nufft_gpu *plan, struct brick16_args *a, bool parts, const struct range_task *tasks,
                  uint32_t count)
{
    if (count == 0)
        return 0;
    a->tasks = tasks;
    if (parts)
        sum_wide_parts<W, SPLIT><<<dim3(count, a->transforms), WIDE_THREADS, 0, plan->gpu->stream>>>(*a);
    else
        scatter_wide<W, SPLIT><<<count * a->transforms, WIDE_THREADS, 0, plan->gpu->stream>>>(*a);
    return gpu_launched("Gridding");
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

/* Two at least where cells are enough: of one, a brick would meet itself. */
struct range_axis nufft_gpu_brick16_axis(int cells, int width)
{
    struct range_axis axis = range_axis_make(cells / 2, (WIDE_EDGE + 1 - width) / 2);
    if (cells % 2 == 0 && axis.bins > 1 && cells / 2 / axis.bins * 2 >= width)
        return range_axis{cells, axis.bins, 1};
    axis = range_axis_make(cells, WIDE_EDGE + 1 - width);
    return axis.bins == 1 && cells / 2 >= width - 1 ? range_axis{cells, 2, 0} : axis;
}

int nufft_gpu_brick16_make(struct nufft_gpu *plan)
{
    const size_t brick = (size_t)WIDE_EDGE * WIDE_EDGE * WIDE_EDGE;
    plan->tile[0] = plan->tile[1] = plan->tile[2] = WIDE_EDGE;
    int rc = nufft_gpu_workspace_make(plan, plan->samples, plan->bins.slots * brick, 1 + (size_t)plan->bins.count);
    plan->done = plan->largest + plan->group;
    return rc;
}

/* The grids are cleared by the blocks of parts, which leave the memory idle, where these are enough. */
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
    int rc = range_tickets(bins, plan->gpu);
    bins->round++;
    a.geometry = bins->geometry;
    a.transforms = (uint32_t)transforms;
    a.round = bins->round;
    a.done = plan->done;
    a.ticket = bins->ticket;
    a.points = bins->points;
    a.data = (const float2 *)plan->sorted;
    a.largest = plan->largest;
    a.grid = (float2 *)plan->grid;
    a.partial = (float2 *)plan->partial;
    a.samples = plan->samples;
    a.cells = plan->cells;
    a.bins = bins->count;
    a.slots = bins->slots;
    a.kernel = scaled_pairs(plan->pairs);
    a.sorted = bins->geometry.by_cell;
    a.aligned = bins->geometry.axis[0].shift == 1;
    if (!rc)
        rc = clear(plan, &a);
    if (!rc)
        rc = launch_width(plan, &a, true, bins->parts, bins->slots);
    if (!rc)
        rc = nufft_gpu_add_partials(plan, transforms, FEW_PARTS);
    return rc ? rc : launch_width(plan, &a, false, bins->tasks, bins->occupied);
}

int nufft_gpu_brick16_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights)
{
    int rc = nufft_gpu_sort_data(plan, transforms, data, weights);
    return rc ? rc : scatter(plan, transforms);
}
