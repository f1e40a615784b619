/* slots_gpu.cuh: reading a grid in slots (slots.h) on a GPU. */
#ifndef MRIRECON_SLOTS_GPU_CUH
#define MRIRECON_SLOTS_GPU_CUH

#include "gridding/base/dev_gpu.cuh"
#include "gridding/range/slots.h"

/* The arrays that a reader needs. Slots may exist for some rows of bins along y only: `base` is the number of the first
 * slot in `slots`, `base_below` the same for the row of bins below (periodic) the row `first_row`. */
struct slots {
    struct range_axis x;
    int bins_z;
    const struct slot_cell *y, *z; /* device, [cells] of these axes */
    int columns, rows, planes;     /* cells of a slot along x (a multiple of 4), y, z */
    const uint32_t *slot; /* device, [bins + 1]: slots of bin (y * bins z + z) * bins x + x, up to the next one's */
    const float2 *slots;  /* device, [slot - base][planes][rows][columns] */
    int first_row;
    uint32_t base, base_below;
};

/* ---- inside a kernel ---- */

/* The slots of one line of cells along x: the bins (up to 4: 2 along y times 2 along z), and the line's offsets in
 * their slots. */
struct slots_line {
    uint32_t bin[4], base[4];
    int offset[4]; /* in float2; < 0: no such bin */
};

static __device__ __forceinline__ struct slots_line slots_line_of(const struct slots &p, int y, int z)
{
    const int4 cell_y = __ldg((const int4 *)p.y + y), cell_z = __ldg((const int4 *)p.z + z);
    struct slots_line line;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int bin_y = i & 1 ? cell_y.z : cell_y.x, bin_z = i >> 1 ? cell_z.z : cell_z.x;
        int offset_y = i & 1 ? cell_y.w : cell_y.y, offset_z = i >> 1 ? cell_z.w : cell_z.y;
        line.bin[i] = ((uint32_t)bin_y * p.bins_z + bin_z) * p.x.bins;
        line.base[i] = (i & 1) && cell_y.x == p.first_row ? p.base_below : p.base;
        line.offset[i] = offset_y < 0 || offset_z < 0 ? -1 : (offset_z * p.rows + offset_y) * p.columns;
    }
    return line;
}

/* Whether no slot contains the line. */
static __device__ __forceinline__ bool slots_line_empty(const struct slots &p, const struct slots_line &line)
{
    bool empty = true;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (line.offset[i] >= 0)
            empty = empty && __ldg(p.slot + line.bin[i]) == __ldg(p.slot + line.bin[i] + p.x.bins);
    return empty;
}

static __device__ __forceinline__ void add_to(float4 &sum, float4 v)
{
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
}

/* Cells 4 quad to 4 quad + 3 of the bins x, x + step, ... of a line, two per vector (re, im, re, im). The loads of all
 * bins overlap. */
template <int BINS>
static __device__ __forceinline__ void slots_sum(const struct slots &p, const struct slots_line &line, int x, int step,
                                                 int quad, float4 (&sum)[BINS][2])
{
    const uint32_t slot_bytes = (uint32_t)(p.columns * p.rows * p.planes) * (uint32_t)sizeof(float2);
    const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int b = 0; b < BINS; b++)
        sum[b][0] = sum[b][1] = zero;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (line.offset[i] < 0)
            continue;
        const uint32_t *slot = p.slot + line.bin[i] + x;
        const char *from = (const char *)(p.slots + line.offset[i] + 4 * quad);
        uint32_t first[BINS], held[BINS];
#pragma unroll
        for (int b = 0; b < BINS; b++) {
            bool there = x + b * step < p.x.bins;
            first[b] = there ? __ldg(slot + b * step) : 0;
            held[b] = there ? __ldg(slot + b * step + 1) - first[b] : 0;
            first[b] -= line.base[i];
        }
#pragma unroll
        for (int s = 0; s < 2; s++) {
            float4 v[BINS][2];
#pragma unroll
            for (int b = 0; b < BINS; b++) {
                const float4 *at = (const float4 *)(from + (uint64_t)(first[b] + s) * slot_bytes);
                v[b][0] = held[b] > s ? __ldg(at) : zero;
                v[b][1] = held[b] > s ? __ldg(at + 1) : zero;
            }
#pragma unroll
            for (int b = 0; b < BINS; b++) {
                add_to(sum[b][0], v[b][0]);
                add_to(sum[b][1], v[b][1]);
            }
        }
    }
}

#endif
