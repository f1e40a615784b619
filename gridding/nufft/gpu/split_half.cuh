/* split_half.cuh: numbers as halves for the tensor cores, and a kernel's weights as such. Only the methods for 3-D
 * kernels of 5 to 8 cells include this.
 *
 * Operands are halves (11 bits). Split, a number is the sum of two halves, high + low (22 bits), and a product of two
 * numbers is high high + high low + low high; the tensor cores sum in float32. Weights and data are scaled by powers of
 * two, so that the remainder after the low half is below 2^-30 of the largest weight or sample.
 */
#ifndef MRIRECON_SPLIT_HALF_CUH
#define MRIRECON_SPLIT_HALF_CUH

#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <cuda_fp16.h>

enum {
    WEIGHT_BITS = 5, /* weights are scaled to 2^5, */
    VALUE_BITS = 10, /* data to below 2^10: their product fits a half (65504) */
    EXPONENT_MOST = 253
};

/* Four samples' numbers: halves of samples 0 and 1, of 2 and 3; then their low halves. */
template <bool SPLIT> struct four_halves;
template <> struct four_halves<true> {
    uint4 bits;
    __device__ __forceinline__ __half2 high(int pair) const
    {
        uint32_t v = pair ? bits.y : bits.x;
        return *(__half2 *)&v;
    }
    __device__ __forceinline__ __half2 low(int pair) const
    {
        uint32_t v = pair ? bits.w : bits.z;
        return *(__half2 *)&v;
    }
};
template <> struct four_halves<false> {
    uint2 bits;
    __device__ __forceinline__ __half2 high(int pair) const
    {
        uint32_t v = pair ? bits.y : bits.x;
        return *(__half2 *)&v;
    }
    __device__ __forceinline__ __half2 low(int) const
    {
        return __half2();
    }
};

/* D += A B, halves in, float32 sums. A: rows g and g + 8; D: rows g and g + 8, columns 2t and 2t + 1; B: column g; for
 * lane 4 g + t. The order of the 16 summands does not matter as long as A's columns and B's rows agree: they are
 * samples 4t, 4t + 1 in a.x, a.y, b[0] and 4t + 2, 4t + 3 in a.z, a.w, b[1]. */
static __device__ __forceinline__ void mma_half(float (&d)[4], const uint4 &a, const __half2 (&b)[2])
{
    const uint32_t *rb = (const uint32_t *)b;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(rb[0]), "r"(rb[1]));
}

/* D = A B, likewise. */
static __device__ __forceinline__ void mma_half_anew(float (&d)[4], const uint4 &a, const __half2 (&b)[2])
{
    const uint32_t *rb = (const uint32_t *)b;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(rb[0]), "r"(rb[1]), "f"(0.f));
}

/* The high half of the product of two numbers, of two samples. */
template <bool SPLIT>
static __device__ __forceinline__ __half2 high_product(const four_halves<SPLIT> &a, const four_halves<SPLIT> &b,
                                                       int pair)
{
    return __hmul2_rn(a.high(pair), b.high(pair));
}

/* The low half, beside that high half. */
template <bool SPLIT>
static __device__ __forceinline__ __half2 low_product(const four_halves<SPLIT> &a, const four_halves<SPLIT> &b,
                                                      int pair, __half2 high)
{
    __half2 l = __hfma2(a.high(pair), b.high(pair), __hneg2(high));
    l = __hfma2(a.high(pair), b.low(pair), l);
    return __hfma2(a.low(pair), b.high(pair), l);
}

/* Both. */
template <bool SPLIT>
static __device__ __forceinline__ void multiply(const four_halves<SPLIT> &a, const four_halves<SPLIT> &b, int pair,
                                                __half2 *high, __half2 *low)
{
    *high = high_product(a, b, pair);
    if (SPLIT)
        *low = low_product(a, b, pair, *high);
}

/* The power of two that scales the largest number of the data to just below 2^VALUE_BITS, as its exponent's bits. Data
 * that are all below 2^-117 are scaled less. */
static __device__ __forceinline__ uint32_t value_exponent(uint32_t largest)
{
    return min((uint32_t)EXPONENT_MOST, 127 + VALUE_BITS - 1 + 127 - min(254u, largest >> 23));
}

/* The inverse of that scale and those of three weights. */
static __device__ __forceinline__ float unscaled(uint32_t exponent)
{
    return __uint_as_float((254 - exponent) << 23) * (1.f / (1 << 3 * WEIGHT_BITS));
}

/* Store two numbers. The two halves of a warp store to groups whose rows lie in the same banks: the upper one stores
 * low halves first, which have banks of their own. */
template <bool SPLIT>
static __device__ __forceinline__ void put_two(__half *to_one, float one, __half *to_two, float two)
{
    const __half2 high = __floats2half2_rn(one, two);
    if (!SPLIT) {
        *to_one = __low2half(high);
        *to_two = __high2half(high);
        return;
    }
    const float2 kept = __half22float2(high);
    const __half2 low = __floats2half2_rn(one - kept.x, two - kept.y);
    const bool upper = threadIdx.x & 16;
    const __half2 first = upper ? low : high, second = upper ? high : low;
    const int at = upper ? 4 : 0;
    to_one[at] = __low2half(first);
    to_two[at] = __high2half(first);
    to_one[4 - at] = __low2half(second);
    to_two[4 - at] = __high2half(second);
}

template <bool SPLIT> static __device__ __forceinline__ void put(__half *to, float v)
{
    const __half high = __float2half_rn(v);
    to[0] = high;
    if (SPLIT)
        to[4] = __float2half_rn(v - __half2float(high));
}

/* The weights of one sample on one axis, row by row from its base on: of two rows at once, and of the middle one. */
template <int W, bool SPLIT, typename TWO, typename ONE>
static __device__ __forceinline__ void each_weight(const struct kernel_pairs &k, float above, TWO two, ONE one)
{
    const int terms = SPLIT ? 4 : 3;
    float s = 2.f * above - (float)(W - 1), q = s * s;
#pragma unroll
    for (int j = 0; j < (W + 1) / 2; j++) {
        float even = k.even[j][terms - 1], odd = k.odd[j][terms - 1];
#pragma unroll
        for (int i = terms - 2; i >= 0; i--) {
            even = fmaf(even, q, k.even[j][i]);
            odd = fmaf(odd, q, k.odd[j][i]);
        }
        float near = fmaf(s, odd, even);
        if (j == 0)
            near = s < 1.f ? near : 0.f; /* the kernel's edge itself is outside, as in interpolation */
        if (j == W - 1 - j)
            one(j, near);
        else
            two(j, near, W - 1 - j, fmaf(-s, odd, even));
    }
}

/* Store them from row `base` on. */
template <int W, bool SPLIT>
static __device__ __forceinline__ void put_weights(const struct kernel_pairs &k, float above, __half *to)
{
    constexpr int row = 4 * sizeof(four_halves<SPLIT>) / sizeof(__half);
    each_weight<W, SPLIT>(
        k, above, [=](int i, float near, int j, float far) { put_two<SPLIT>(to + i * row, near, to + j * row, far); },
        [=](int i, float weight) { put<SPLIT>(to + i * row, weight); });
}

/* The kernel, times 2^WEIGHT_BITS. */
static inline struct kernel_pairs scaled_pairs(struct kernel_pairs kernel)
{
    for (int j = 0; j < KERNEL_PAIRS; j++)
        for (int i = 0; i < KERNEL_TERMS; i++) {
            kernel.even[j][i] *= 1 << WEIGHT_BITS;
            kernel.odd[j][i] *= 1 << WEIGHT_BITS;
        }
    return kernel;
}

#endif
