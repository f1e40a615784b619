/* pair_law.cuh: evaluation of laws (gridding/range/law.h) in sums over pairs on a GPU. Only the GPU's leaf of sums.h
 * includes this. */
#ifndef MRIRECON_PAIR_LAW_CUH
#define MRIRECON_PAIR_LAW_CUH

#include "gridding/range/gpu/law_gpu.cuh"

/* A law's polynomial in s = 1 + slope r^2. */
struct pair_poly {
    float c[RANGE_DEGREE_MOST + 1]; /* 0 above the degree; of hot laws (pair_sums.cuh) with the other sign */
    int form, power;
};

/* Two laws with the same reach, least, soft and spline. */
struct pair_laws_gpu {
    struct pair_poly vectors, scalars;
    int degree;         /* the larger one */
    bool direct;        /* polynomials are in r^2 + soft^2 itself */
    float slope, start; /* s = start + slope (r^2 + soft^2) */
    float reach2, least2, soft2, spline, spline2;
};

template <int DEGREE> static __device__ __forceinline__ float poly_at(const float *c, float s)
{
    float value = c[DEGREE];
#pragma unroll
    for (int d = DEGREE - 1; d >= 0; d--)
        value = fmaf(value, s, c[d]);
    return value;
}

/* The softened 1 / r^power; root: 1 / sqrt(softened). */
static __device__ __forceinline__ float inverse_at(const struct pair_laws_gpu &l, int power, float softened, float root)
{
    if (softened < l.spline2)
        return spline_at(l.spline, power, softened, root);
    return power == 3 ? root * root * root : root;
}

/* Either law at a squared distance r2 below the reach's. */
static __device__ __forceinline__ float law_at(const struct pair_laws_gpu &l, const struct pair_poly &law, float r2)
{
    const float s = fmaf(r2, l.slope, 1.f);
    const float value = l.degree <= 9 ? poly_at<9>(law.c, s) : poly_at<RANGE_DEGREE_MOST>(law.c, s);
    if (law.form == RANGE_RADIAL)
        return value;
    const float softened = r2 + l.soft2, root = law_root(softened);
    if (!(softened < l.spline2) && !(softened > 0 && r2 >= l.least2))
        return 0;
    const float inverse = inverse_at(l, law.power, softened, root);
    return law.form == RANGE_SHORT ? inverse - value : inverse * value;
}

#endif
