/* rival.h: MRI gridding as in the thesis, as a rival to compare the product with: regular and compact bins of one grid
 * cell each, and a gather in which a block owns 8 x 4 x 8 cells of the grid and reads every sample of the bins around
 * them.
 *
 * A position is in cells of the grid, [RIVAL_WIDTH / 2, grid - RIVAL_WIDTH / 2) per axis: nothing wraps around. Bin (x,
 * y, z) holds the samples whose position rounds down to it; bins are numbered x fastest. The kernel is the radial
 * Kaiser-Bessel function of gridding/range/kernel.h, of full width RIVAL_WIDTH, as a polynomial.
 *
 * This header is compiled by both compilers: the CPU's reference (rival_cpu.c) visits the same bins with the same
 * functions as the GPU's kernels (rival_bin.cu, rival_gather.cu), so that `make check` tests the data structures.
 */
#ifndef MRIRECON_RIVAL_H
#define MRIRECON_RIVAL_H

#include "gridding/base/num.h"

#ifdef __CUDACC__
#define RIVAL_BOTH         static __host__ __device__ __forceinline__
#define RIVAL_ALIGN(bytes) __align__(bytes)
#else
#define RIVAL_BOTH static inline
#define RIVAL_ALIGN(bytes)
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RIVAL_WIDTH = 4,
    RIVAL_TILE_X = 8, /* the cells of a block */
    RIVAL_TILE_Y = 4,
    RIVAL_TILE_Z = 8,
    RIVAL_CHUNK = 64, /* samples that a block holds in shared memory at a time */
    RIVAL_DEGREE = 8, /* degree of the kernel's polynomial */
};

/* The polynomial's largest error, where the kernel is 1 at its centre. */
#define RIVAL_KERNEL_ERROR 2e-7

/* x of a slot without a sample: so far from every cell that its weight is 0. */
#define RIVAL_NONE (-1e15f)

struct rival_sample {
    float x, y, z;
    float re, im;
    float density; /* weight of the value */
};

/* The kernel at 1 - (2 r / RIVAL_WIDTH)^2 = t > 0 is sum c[i] t^i. */
struct rival_kernel {
    float c[RIVAL_DEGREE + 1];
};

/* Memory layout of the samples in the slots of bins. */
enum rival_layout {
    RIVAL_PACKED, /* [slots] of 6 floats, 24 bytes */
    RIVAL_PADDED, /* [slots] of 8 floats: every sample starts at a multiple of 32 bytes */
    RIVAL_VECTORS /* [slots] of float4 (x, y, z, density), then [slots] of float2 (re, im) */
};

/* How a block finds the slots to read. */
enum rival_access {
    RIVAL_BIN_COUNT,    /* bin by bin, as many slots as the bin's count */
    RIVAL_BIN_SENTINEL, /* bin by bin, all slots up to the first empty one (regular bins only) */
    RIVAL_ROW           /* all bins along x at once: one contiguous run of slots, including empty ones */
};

/* Shape of a set of bins. */
struct rival_shape {
    int grid;       /* cells = bins per axis */
    uint32_t depth; /* the most samples that a bin holds; the others overflow */
    bool regular;   /* regular: `depth` slots per bin; otherwise compact, each bin with as many slots as it needs */
    uint32_t round; /* compact bins are padded to a multiple of this many slots; 1: no padding */
    enum rival_layout layout;
};

struct rival_bins {
    struct rival_shape shape;
    size_t slots;
    const uint32_t *count; /* [grid^3] samples in each bin */
    const uint32_t *start; /* compact bins: [grid^3 + 1] first slot of each bin */
    const float *slot;     /* layout: enum rival_layout */
};

RIVAL_BOTH size_t rival_bin_of(int grid, const struct rival_sample *s)
{
    return ((size_t)(int)s->z * (size_t)grid + (size_t)(int)s->y) * (size_t)grid + (size_t)(int)s->x;
}

RIVAL_BOTH size_t rival_floats(enum rival_layout layout)
{
    return layout == RIVAL_PADDED ? 8 : 6;
}

/* Four and two floats that are loaded at once. */
struct RIVAL_ALIGN(16) rival_4 {
    float x, y, z, w;
};
struct RIVAL_ALIGN(8) rival_2 {
    float x, y;
};

RIVAL_BOTH void rival_put(float *slot, size_t slots, enum rival_layout layout, size_t i, const struct rival_sample *s)
{
    struct rival_4 place = {s->x, s->y, s->z, s->density};
    struct rival_2 value = {s->re, s->im};
    if (layout == RIVAL_VECTORS) {
        ((struct rival_4 *)slot)[i] = place;
        ((struct rival_2 *)(slot + 4 * slots))[i] = value;
    } else if (layout == RIVAL_PADDED) {
        ((struct rival_4 *)slot)[2 * i] = place;
        ((struct rival_2 *)slot)[4 * i + 2] = value;
    } else {
        struct rival_2 *to = (struct rival_2 *)slot + 3 * i;
        to[0].x = s->x, to[0].y = s->y;
        to[1].x = s->z, to[1].y = s->density;
        to[2] = value;
    }
}

RIVAL_BOTH struct rival_sample rival_get(const float *slot, size_t slots, enum rival_layout layout, size_t i)
{
    struct rival_4 place;
    struct rival_2 value;
    if (layout == RIVAL_VECTORS) {
        place = ((const struct rival_4 *)slot)[i];
        value = ((const struct rival_2 *)(slot + 4 * slots))[i];
    } else if (layout == RIVAL_PADDED) {
        place = ((const struct rival_4 *)slot)[2 * i];
        value = ((const struct rival_2 *)slot)[4 * i + 2];
    } else {
        const struct rival_2 *from = (const struct rival_2 *)slot + 3 * i, a = from[0], b = from[1];
        place.x = a.x, place.y = a.y, place.z = b.x, place.w = b.y;
        value = from[2];
    }
    struct rival_sample s = {place.x, place.y, place.z, value.x, value.y, place.w};
    return s;
}

/* Slots [first, first + count). */
struct rival_range {
    size_t first, count;
};

RIVAL_BOTH struct rival_range rival_bin_range(const struct rival_bins *b, bool regular, enum rival_access access,
                                              size_t bin)
{
    struct rival_range range = {regular ? bin * b->shape.depth : b->start[bin], 0};
    if (access == RIVAL_BIN_SENTINEL)
        range.count = b->shape.depth;
    else if (regular || b->shape.round > 1)
        range.count = b->count[bin];
    else
        range.count = b->start[bin + 1] - b->start[bin];
    return range;
}

/* The slots of bins `from` to `to` (inclusive) of one row along x. */
RIVAL_BOTH struct rival_range rival_row_range(const struct rival_bins *b, bool regular, size_t from, size_t to)
{
    struct rival_range range;
    if (regular) {
        range.first = from * b->shape.depth;
        range.count = (to + 1 - from) * b->shape.depth;
    } else {
        range.first = b->start[from];
        range.count = b->start[to + 1] - b->start[from];
    }
    return range;
}

/* The bins whose samples reach the cells [first, first + cells): for a cell c these are c - W/2 .. c + W/2 - 1. */
RIVAL_BOTH int rival_first_bin(int first)
{
    return first > RIVAL_WIDTH / 2 ? first - RIVAL_WIDTH / 2 : 0;
}

RIVAL_BOTH int rival_last_bin(int first, int cells, int grid)
{
    int last = first + cells - 1 + RIVAL_WIDTH / 2 - 1;
    return last < grid - 1 ? last : grid - 1;
}

/* The kernel, where `flat` is the value of t after subtracting the x and y terms and dz the distance along z; 0
 * outside. */
RIVAL_BOTH float rival_weight(const struct rival_kernel *kernel, float flat, float dz)
{
    const float scale = 4.0f / (RIVAL_WIDTH * RIVAL_WIDTH);
    float t = flat - dz * dz * scale, value = kernel->c[RIVAL_DEGREE];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = RIVAL_DEGREE - 1; i >= 0; i--)
        value = value * t + kernel->c[i];
    return t > 0 ? value : 0;
}

/* 1 - (2 r / W)^2 in the x-y plane: if it is not above 0, the sample misses the whole column (the cylinder test). */
RIVAL_BOTH float rival_flat(float dx, float dy)
{
    const float scale = 4.0f / (RIVAL_WIDTH * RIVAL_WIDTH);
    return 1 - (dx * dx + dy * dy) * scale;
}

/* data sets and their expected results: rival_set.c */

struct rival_set {
    const char *name, *what;
    int grid;
    size_t samples;
    double deviation; /* standard deviation of Gaussian sets, in cells per axis; 0 for others */
    int readout;      /* samples per spoke of kooshballs; 0 for others */
};

/* The sets by name ("tiny", "koosh-small", ...); NULL at the end. */
const struct rival_set *rival_sets(void);

/* Fill [samples], from fixed seeds. */
void rival_fill(const struct rival_set *set, struct rival_sample *samples);

/* The shape parameter, and the polynomial. Fails with ERR_NO_MEMORY, or with ERR_INTERNAL if the degree is too low. */
double rival_beta(void);
int rival_kernel_make(struct rival_kernel *kernel);

/* Cells at which results are compared with double-precision sums: half of them near random samples, the others
 * anywhere. Ascending, without repetition. */
struct rival_probe {
    int grid;
    size_t cells;
    size_t *cell;  /* [cells] */
    uint64_t *bit; /* [grid^3 / 64 + 1] bit set of the probed cells */
    double *sum;   /* [cells][2] */
};

/* Choose cells and sum all samples there. Fails with ERR_NO_MEMORY. */
int rival_probe_create(struct rival_probe **out, int grid, size_t wanted, const struct rival_sample *samples,
                       size_t count);
void rival_probe_free(struct rival_probe *probe);

/* The relative l2 error, over the probed cells, of values[cells] (complex) plus the double sum of `rest[rest_count]`,
 * the samples that were not gridded. */
double rival_probe_error(const struct rival_probe *probe, const struct c32 *values, const struct rival_sample *rest,
                         size_t rest_count);

/* ---- the CPU: rival_cpu.c ---- */

/* Bins filled one sample after the other; owns their memory. */
struct rival_cpu_bins {
    struct rival_bins bins;
    uint32_t *count, *start;
    float *slot;
    struct rival_sample *overflow;
    size_t overflowed;
};

/* Fails with ERR_NO_MEMORY. */
int rival_cpu_bin(struct rival_cpu_bins **out, const struct rival_shape *shape, const struct rival_sample *samples,
                  size_t count);
void rival_cpu_bins_free(struct rival_cpu_bins *bins);

/* values[grid^3]: the same computation as the GPU's gather, block by block. */
void rival_cpu_gather(const struct rival_bins *bins, enum rival_access access, const struct rival_kernel *kernel,
                      struct c32 *values);

/* values[grid^3] = the sum over samples, computed by the project's engine on the CPU (bins, then scatter, all threads),
 * which sums the samples that overflow. Fails with ERR_NO_MEMORY. */
int rival_cpu_scatter(int grid, const struct rival_sample *samples, size_t count, int threads, struct c32 *values);

#ifdef __cplusplus
}
#endif
#endif
