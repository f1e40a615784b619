/* nufft_gpu.cuh: the GPU's NUFFT leaf, internal. Only files of gridding/nufft/gpu/ include this.
 *
 * Five methods sum samples into the grid (enum nufft_method); plan.cu chooses one for a plan from the table in
 * methods.cu. The notebook calls the last four bricks, 16^3 bricks, dense bricks and planes.
 *   tiles        float32, a warp has its tile in shared memory: any kernel and grid
 *   brick8       3-D, separable, width <= 4: tensor cores, a warp holds a brick of 8 x 8 x 16 grid cells in registers;
 *                the adjoint's grid is never stored (slots.cu)
 *   brick16      3-D, separable, width 5 to 8: tensor cores, a block holds a brick of 16 x 16 x 16 grid cells in
 *                registers
 *   brick_dense  the same where a grid cell holds several samples: a warp holds a brick of 8 x 8 x 16 grid cells
 *   brick2d      2-D, separable: tensor cores, a block holds bricks of 16 x 16 grid cells of up to 16 transforms in
 *                registers, weights shared by all
 * All give the same bits on every run: every cell takes its sums in one order (see range_gpu.cuh, slots.h).
 */
#ifndef MRIRECON_NUFFT_GPU_CUH
#define MRIRECON_NUFFT_GPU_CUH

#include "gridding/fft/fft_gpu.cuh"
#include "gridding/nufft/gpu/method.cuh"
#include "gridding/nufft/nufft_leaf.h"
#include "gridding/range/overflow.h"
#include "gridding/range/range_gpu.cuh"

enum { KAISER_DEGREE_MOST = 17, BRICK_Y = 8, BRICK_Z = 16, BRICK16_EDGE = 16, PLANE_EDGE = BRICK_EDGE };
enum { PLANE_TRANSFORMS = 16, BRICK16_TRANSFORMS = 16 }; /* a tile's; on the grid at a time, at most */
enum { KERNEL_PAIRS = 5, KERNEL_TERMS = 4 };
enum { NUFFT_LAUNCH_ROWS = 65535 }; /* of blocks */

/* The Kaiser-Bessel function as a polynomial in t = 1 - (2 d / width)^2, zero for t <= 0; 1 at d = 0. I0(beta sqrt(t))
 * is entire in t with positive coefficients, so Horner's rule has no cancellation. */
struct kaiser {
    float scale; /* 2 / width */
    int degree;
    float c[KAISER_DEGREE_MOST + 1];
};

/* The same function at a sample's `width` cells, two by two: with s = 2 (the sample's height above its base cell) -
 * (width - 1), in (-1, 1], cell j weighs E_j(s^2) + s O_j(s^2) and cell width - 1 - j E_j - s O_j: half the work of two
 * polynomials. O is 0 for the middle cell. */
struct kernel_pairs {
    float even[KERNEL_PAIRS][KERNEL_TERMS], odd[KERNEL_PAIRS][KERNEL_TERMS];
};

/* u = d * scale; squares of several axes may be summed (the radial kernel). */
static __device__ __forceinline__ float kaiser_of_square(const struct kaiser &k, float u2)
{
    float t = 1.f - u2, p = k.c[k.degree];
    for (int i = k.degree - 1; i >= 0; i--)
        p = fmaf(p, t, k.c[i]);
    return t > 0.f ? p : 0.f;
}

template <int DEGREE> static __device__ __forceinline__ float kaiser_at(const struct kaiser &k, float u)
{
    float t = fmaf(-u, u, 1.f), p = k.c[DEGREE];
#pragma unroll
    for (int i = DEGREE - 1; i >= 0; i--)
        p = fmaf(p, t, k.c[i]);
    return t > 0.f ? p : 0.f;
}

/* D += A B on the tensor cores, TF32 operands (their low 13 bits are ignored), float32 sums. A: rows g and g + 8,
 * columns t and t + 4; B: rows t and t + 4, column g; D: rows g and g + 8, columns 2t and 2t + 1, for lane 4 g + t. */
static __device__ __forceinline__ void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t tf32_high(float v)
{
    return __float_as_uint(v) & 0xffffe000u;
}

static __device__ __forceinline__ uint32_t tf32_low(float v, uint32_t high)
{
    return __float_as_uint(v - __uint_as_float(high));
}

/* Below 2^-126 TF32 numbers are multiples of 2^-136, too coarse for data below about 2^-110. Where the largest sum of a
 * task is below TF32_FAINT, but not 0, the task is done again with data times TF32_RAISE. */
#define TF32_FAINT 0x1p-96f
#define TF32_RAISE 0x1p64f

/* Whether the largest of the warp's numbers, each lane's largest magnitude given, is faint. */
static __device__ __forceinline__ bool tf32_is_faint(float most)
{
    const uint32_t of_warp = __reduce_max_sync(~0u, __float_as_uint(most));
    return of_warp > 0 && of_warp < __float_as_uint(TF32_FAINT);
}

/* Tensor cores truncate TF32 operands. Bias correction: a sum is multiplied by this, the inverse of a product's mean
 * loss (2^-11.5 for each of its two operands). */
#define TF32_GAIN 1.000704f
/* Tensor cores truncate their sums, too. A sum of n samples by three products each is biased by 0.16e-8 to 0.83e-8 n in
 * 16^3 bricks, depending on the data's signs (docs/notebook/gpu-choices.md). It is corrected for the middle of that
 * range, and with three products an accumulator of theirs takes at most SPLIT_SAMPLES_MOST samples. */
#define BRICK16_LOSS 5.5e-9f
enum { SPLIT_SAMPLES_MOST = 1024 };

/* The bias correction of a sum of `samples` with a relative loss of `loss` per sample. */
static __device__ __forceinline__ float bias_correction(float loss, uint32_t samples)
{
    return fmaf(loss, (float)samples, 1.f);
}

/* Events of an adjoint's turn (one group of transforms), in the device's stream; SENDING and SENT in that of the
 * overflow. */
enum nufft_moment {
    MOMENT_STARTED,
    MOMENT_GRIDDED, /* what the GPU keeps */
    MOMENT_SENDING, /* the upload of the CPU's sums begins .. */
    MOMENT_SENT,
    MOMENT_WAITED, /* .. the device's stream has waited for it .. */
    MOMENT_MERGED,
    MOMENTS
};

struct nufft_turn {
    cudaEvent_t event[MOMENTS];
    unsigned recorded; /* bit i: event i */
    double cpu;        /* seconds of the CPU's sums in this turn */
};

struct nufft_clock {
    struct nufft_turn *turn;
    int turns, used;
};

struct nufft_gpu_overflow;
struct brick_list; /* gridding/range/dense.h */

/* The workspace of a plan whose adjoint sums into slots (slots.h). Rows of bins along y are processed in chunks, so
 * that a chunk's slots fit into the memory: sums, pass over x, next chunk. A chunk also sums the row below its first
 * one, whose samples reach into it. */
struct nufft_slots {
    int columns, rows, planes; /* cells of a slot: x, y, z */
    int together;              /* the most transforms summed at a time */
    int chunk;                 /* rows of bins */
    uint32_t slots, parts;     /* the most of a chunk */
    struct slot_cell *cells;   /* device: [grid y], then [grid z] */
    struct c32 *pruned;        /* [together][grid z][grid y][n[0]] after the pass over x */
    struct c32 *slot;          /* [together][slots][planes][rows][columns] */
    struct c32 *partial;       /* [together][parts][2]: a part's sums for its own bin's slot and for the right one */
};

/* The task of block (or warp) `i` of `parts + runs`: parts come first, because they take longest. */
struct slot_task {
    bool part;
    uint32_t number; /* in bins.parts or bins.runs */
    uint32_t base;
};

static __host__ __device__ inline uint32_t slot_tasks(const struct slot_rows &rows)
{
    return rows.parts[0] + rows.parts[1] + rows.runs[0] + rows.runs[1];
}

static __device__ __forceinline__ struct slot_task slot_task_of(const struct slot_rows &rows, uint32_t i)
{
    uint32_t parts = rows.parts[0] + rows.parts[1];
    bool part = i < parts;
    if (!part)
        i -= parts;
    bool second = i >= (part ? rows.parts[0] : rows.runs[0]);
    i -= second ? (part ? rows.parts[0] : rows.runs[0]) : 0;
    return slot_task{part, i + (part ? rows.part[second] : rows.run[second]), rows.base[second]};
}

struct nufft_gpu {
    struct gpu *gpu;
    struct nufft_shape shape; /* its deapodise pointers are the device's below */
    const struct nufft_gpu_method *method;
    bool split; /* tensor cores: three products of halves instead of one */
    size_t samples, cells, pixels;
    struct range_bins_gpu bins;
    struct kaiser kernel;
    struct kernel_pairs pairs; /* all methods but tiles */
    struct nufft_slots slots;
    int tile[3];    /* cells of a partial tile, x, y, z */
    int group;      /* transforms on the grid at a time */
    int together;   /* transforms of an adjoint without a grid */
    bool gridless;  /* the method's to_image() is used */
    float *weights; /* sorted, or NULL: all 1 */
    float *deapodise[3], *deapodise_full;
    struct c32 *sorted; /* tiles, brick16: [group][samples] */
    struct c32 *grid;   /* [group][z][y][x]; bricks: in the same memory as slots */
    /* tiles, brick16: [group][bins.slots][tile]; brick_dense, brick2d: [group][bins.slots + bins.occupied][brick] */
    struct c32 *partial;
    struct brick_list *bricks; /* brick_dense, brick2d: [bins.count] */
    uint32_t *largest;         /* brick16: [2][group] in turn, the largest |real| or |imaginary| of plan->sorted */
    uint32_t *done;            /* brick16: [group][bins.count], as bins.done; then [group][bins.slots] counters */
    struct fft_plan fft[3];    /* axes of one size share twiddles */
    uint32_t *lines; /* 3-D: the grid's lines z grid[1] + y along x that samples reach; NULL: all (lines.cu) */
    int line_count;
    struct nufft_gpu_overflow *overflow; /* NULL: no sample overflows */
    int threads;                         /* of the CPU */
    struct nufft_clock clock;
    struct nufft_times times; /* of adjoints since they were last reported */
    size_t bytes;
};

/* Whether a plan sums into slots. */
static inline bool nufft_gpu_in_slots(const struct nufft_gpu *plan)
{
    return plan->bins.geometry.run_samples > 0;
}

/* ---- plans (plan.cu): nufft_leaf.h ---- */

struct nufft_cost nufft_gpu_cost(const struct dev *dev, const struct nufft_shape *shape, size_t samples);
int nufft_gpu_create(void **state, struct dev *dev, const struct nufft_shape *shape, size_t samples, const float *k);
void nufft_gpu_destroy(void *state);
void nufft_gpu_describe(const void *state, struct nufft_info *info);
int nufft_gpu_bins(const void *state, struct nufft_bins *out);

/* ---- its workspace (workspace.cu) ---- */

/* Bytes that a 3-D plan may use for its workspace in addition to its other memory, unless one transform needs more. */
size_t nufft_gpu_workspace_most(const struct nufft_gpu *plan);

/* Allocate plan->grid, plan->sorted and plan->partial for the number of transforms of the method's group(), each with
 * `sorted` and `partial` values, and `words` at plan->largest, all 0. Sets plan->group. Fails with ERR_GPU_OOM. */
int nufft_gpu_workspace_make(struct nufft_gpu *plan, size_t sorted, size_t partial, size_t words);

/* ERR_GPU_OOM for a workspace of `wanted` bytes. */
int nufft_gpu_no_room(const struct nufft_gpu *plan, size_t wanted, size_t available);

/* ---- the caller's order to the sorted one (sort.cu) ---- */

int nufft_gpu_set_weights(void *state, const float *weights); /* nufft_leaf.h */

/* data[transforms][samples], times weights (sorted, or NULL), to plan->sorted; brick16: also plan->largest of these. */
int nufft_gpu_sort_data(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);

/* ---- sums ---- */

/* Cells of a slot. */
static inline size_t nufft_gpu_slot_cells(const struct nufft_slots *p)
{
    return (size_t)p->columns * p->rows * p->planes;
}

/* The destination of a transform's slots: after the pass over x or, if the CPU adds its sums, the grid. */
static inline size_t nufft_gpu_pruned_cells(const struct nufft_gpu *plan)
{
    return plan->overflow ? plan->cells : (size_t)plan->shape.n[0] * plan->shape.grid[1] * plan->shape.grid[2];
}

/* Allocate the workspace, for slots of this many cells (x even; y and z: the longest bin and its reach), up to
 * `together` transforms summed at a time. Fails with ERR_GPU_OOM. */
int nufft_gpu_slots_make(struct nufft_gpu *plan, const int cells[3], int together);

/* data [transforms][samples] in the caller's order: to images, or (image NULL) to squares; or one transform to a grid,
 * with these weights (sorted, or NULL). */
int nufft_gpu_slots_to_image(struct nufft_gpu *plan, int transforms, const struct c32 *data, struct c32 *image,
                             float *squares);
int nufft_gpu_slots_to_grid(struct nufft_gpu *plan, const struct c32 *data, const float *weights, struct c32 *grid);
int nufft_gpu_slots_to_plan_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);

/* A method's sums of a chunk into plan->slots: of a run, each bin's own cells into the bin's own slot, the cells beyond
 * the last bin into the slot to its right (range_gpu.cuh; slot s lies at slots.slot + (s - base) slots, the next
 * transform's slots.slots slots on); of part i of the chunk's, both into slots.partial + 2 i slots (the next
 * transform's 2 slots.parts slots on). Every cell of these slots is written, also those that no sample reaches. data
 * [transforms][samples] in the caller's order; weights sorted, or NULL. */
int nufft_gpu_brick8_make(struct nufft_gpu *plan);
int nufft_gpu_scatter_brick8(struct nufft_gpu *plan, const struct slot_rows *rows, int transforms,
                             const struct c32 *data, const float *weights);

/* Functions in the table of methods (method.cuh). */
int nufft_gpu_tiles_make(struct nufft_gpu *plan);
int nufft_gpu_tiles_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);
int nufft_gpu_brick16_make(struct nufft_gpu *plan);
int nufft_gpu_brick16_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);
int nufft_gpu_brick_dense_make(struct nufft_gpu *plan);
int nufft_gpu_brick_dense_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);
int nufft_gpu_brick2d_make(struct nufft_gpu *plan);
int nufft_gpu_brick2d_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);

/* Planes' sums to bricks (plan->partial). */
int nufft_gpu_sum_brick2d(struct nufft_gpu *plan, int transforms, const struct c32 *data, const float *weights);

/* Divide an axis into bins whose samples' kernels fit a brick; the number of cells of a transform's bricks. */
struct range_axis nufft_gpu_brick2d_axis(const struct nufft_shape *shape, bool split, int d);
size_t nufft_gpu_brick2d_cells(const struct nufft_gpu *plan);
/* Whether no bin is shorter than the kernel's reach: then at most two bins reach a cell. */
static inline bool nufft_gpu_brick2d_few_reach(const struct range_axis *axis, int width)
{
    return axis_least(*axis) >= width - 1;
}

/* The FFT adds up the bricks, so that no grid is stored: to images, or (image NULL) to squares. */
int nufft_gpu_brick2d_to_image(struct nufft_gpu *plan, int transforms, const struct c32 *data, struct c32 *image,
                               float *squares);

/* The kernel of `shape` by polynomials of `degree`, or if that is 0, of the lowest degree whose error is below a
 * hundredth of what the tolerance allows in addition to aliasing; by pairs with `terms` coefficients each: 3 stay below
 * 4e-5 of the kernel's peak, 4 below 5e-7 (of 3 cells: 1.1e-4 and 1.4e-6). */
void nufft_gpu_fit_kaiser(struct kaiser *kernel, const struct nufft_shape *shape, int degree);
void nufft_gpu_fit_pairs(struct kernel_pairs *pairs, const struct nufft_shape *shape, int terms);

/* Divide an axis into bins whose samples' kernels fit a 16^3 brick. */
struct range_axis nufft_gpu_brick16_axis(int cells, int width);

/* ---- lines (lines.cu) ---- */

/* Set plan->lines, from plan->bins. The FFT's pass along x leaves out the other lines: back they are zero, and forth no
 * sample reads them. */
int nufft_gpu_lines_make(struct nufft_gpu *plan);

/* ---- grid and image (image.cu) ---- */

/* Transform grids in plan->grid to images, or (image NULL) to squares; and images to grids. */
int nufft_gpu_grid_to_image(struct nufft_gpu *plan, int transforms, struct c32 *image, float *squares);
int nufft_gpu_bricks_to_image(struct nufft_gpu *plan, int transforms, const struct bricks *bricks, struct c32 *image,
                              float *squares); /* the same from bricks; plan->grid is workspace */
int nufft_gpu_image_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *image);

/* Passes over y and z of the result of the pass over x, [grid z][grid y][n[0]], to an image or (NULL) to squares. */
int nufft_gpu_last_passes(struct nufft_gpu *plan, struct c32 *from, struct c32 *image, float *squares);

/* ---- the grid to the samples ---- */

/* Arguments of every kernel that reads a grid. */
struct nufft_gather {
    struct range_geometry geometry;
    uint32_t samples;
    const struct range_point_gpu *points;
    const uint32_t *order;
    const float *weights; /* sorted, or NULL */
    const float2 *grid;
    float2 *data;
    struct kaiser kernel;
    int transforms;
    size_t cells;
};

/* data[t][m] = w_m (sum of grid[t] around sample m), m in the caller's order; weigh: with the plan's weights. */
int nufft_gpu_gather(struct nufft_gpu *plan, int transforms, bool weigh, struct c32 *data);
/* The same on tensor cores, for brick2d and widths 2 to 8; the work is that of at least 8 transforms, in plans of more
 * than 8 that of 16. */
int nufft_gpu_gather_brick2d(struct nufft_gpu *plan, const struct nufft_gather *gather);

/* The same for brick16 and brick_dense. */
bool nufft_gpu_gathers_brick16(const struct nufft_shape *shape);
int nufft_gpu_gather_brick16(struct nufft_gpu *plan, const struct nufft_gather *gather);

/* Whether brick2d plans use it: depends on the plan's batch, not the call's, so that a transform's bits do not depend
 * on the number of transforms in a call. */
bool nufft_gpu_gathers_brick2d(const struct nufft_shape *shape);

/* ---- overflow to the CPU (overflow.cu); all do nothing if no sample overflows ---- */

enum { NUFFT_OVERFLOW_GROUP = 64 }; /* the most transforms that brick2d then grids together */

/* Set plan->bins for the samples of k[samples][dim] (device memory) within shape.bin_depth, plan->overflow for the
 * others.
 */
int nufft_gpu_partition(struct nufft_gpu *plan, const struct range_geometry *geometry, const float *k);
void nufft_gpu_overflow_free(struct nufft_gpu *plan);
uint32_t nufft_gpu_overflowed(const struct nufft_gpu *plan);

/* weights[samples]: device memory, the caller's order; NULL: all 1. */
int nufft_gpu_overflow_weights(struct nufft_gpu *plan, const float *weights);

/* Start the download of data[batch][samples]. Then, for each turn, when plan->grid contains the GPU's sums: add the
 * overflowed samples of transforms first .. first + transforms - 1. A turn is a part of a chunk, or all of it. The sums
 * are added to a complete grid: a method whose adjoint has none must create one if samples overflow. */
int nufft_gpu_overflow_begin(struct nufft_gpu *plan, int batch, const struct c32 *data, bool weigh);
int nufft_gpu_overflow_add(struct nufft_gpu *plan, int first, int transforms, int batch, const struct c32 *data,
                           bool weigh);

/* nufft_gpu_gather() of all samples. */
int nufft_gpu_overflow_gather(struct nufft_gpu *plan, int transforms, bool weigh, struct c32 *data);

/* The depth with the least time for `shape` and k[samples][dim] (host), by a model fitted to measurements; in the form
 * of shape.bin_depth. */
int nufft_gpu_choose_depth(struct dev *dev, const struct nufft_shape *shape, size_t samples, const float *k,
                           int *depth);

/* ---- time (times.cu) ---- */

int nufft_gpu_clock_make(struct nufft_gpu *plan, int turns);
void nufft_gpu_clock_free(struct nufft_gpu *plan);
int nufft_gpu_clock_turn(struct nufft_gpu *plan); /* begin a turn */
int nufft_gpu_clock(struct nufft_gpu *plan, enum nufft_moment moment, cudaStream_t stream);
int nufft_gpu_clock_read(struct nufft_gpu *plan); /* wait for the stream, and add all turns to plan->times */

#endif
