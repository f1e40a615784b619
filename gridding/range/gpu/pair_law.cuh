/* pair_law.cuh: laws (gridding/range/law.h) as sums over pairs evaluate them on a GPU. Only the GPU's leaf of sums.h
 * includes this. */
#ifndef MRIRECON_PAIR_LAW_CUH
#define MRIRECON_PAIR_LAW_CUH

#include "gridding/range/gpu/law_gpu.cuh"

/* A law's polynomial in s = 1 + slope r^2. */
struct pair_poly {
    float c[RANGE_DEGREE_MOST + 1]; /* 0 above the degree; of hot laws (pair_sums.cuh) with the other sign */
    int form, power;
};

/* Two laws of one reach, least, soft and spline. */
struct pair_laws_gpu {
    struct pair_poly vectors, scalars;
    int degree;         /* the larger one */
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

/* 1 / r^power of a mass smoothed by the cubic spline of radius h, r < h; root: 1 / r. V. Springel, N. Yoshida, S.D.M.
 * White, New Astron. 6, 79, 2001, doi:10.1016/S1384-1076(01)00042-2, eq. 71 and its potential. */
static __device__ __forceinline__ float spline_at(float h, int power, float r2, float root)
{
    const float unit = 1 / h, x = r2 > 0 ? r2 * root * unit : 0.f, x2 = x * x, over = root * h;
    if (power == 3) {
        const float cube = unit * unit * unit;
        if (x < 0.5f)
            return cube * fmaf(x2, fmaf(32.f, x, -38.4f), 32.f / 3);
        return cube * (64.f / 3 - 48.f * x + 38.4f * x2 - 32.f / 3 * x2 * x - 1.f / 15 * over * over * over);
    }
    if (x < 0.5f)
        return unit * (2.8f - x2 * (16.f / 3 - x2 * (9.6f - 6.4f * x)));
    return unit * (3.2f - 1.f / 15 * over - x2 * (32.f / 3 - x * (16.f - x * (9.6f - 32.f / 15 * x))));
}

/* What stands for 1 / r^power; root: 1 / sqrt(softened). */
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
