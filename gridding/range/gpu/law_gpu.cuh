/* law_gpu.cuh: evaluation of a law (law.h) on a GPU, at u2 = (r / (reach scale))^2, which is below 1 within reach. */
#ifndef MRIRECON_LAW_GPU_CUH
#define MRIRECON_LAW_GPU_CUH

#include "gridding/range/law.h"

#include <cstring>

/* Passed by value. */
struct law_gpu {
    double reach;
    int form, degree, power;
    bool shorter; /* RANGE_SHORT */
    float reach2, soft2, least2;
    float spline, spline2; /* its radius, and that squared; 0: none */
    float fall;            /* 1 / fall^2; 0: none */
    bool exponential;      /* p = peak exp2(-rate u2) */
    float rate, peak;
    float c[RANGE_DEGREE_MOST + 1];
};

static inline struct law_gpu law_gpu_of(const struct range_law *law)
{
    const struct range_law_params *p = &law->params;
    struct law_gpu g;
    memset(&g, 0, sizeof g);
    g.reach = p->reach;
    g.form = p->form;
    g.degree = law->degree;
    g.power = p->power;
    g.shorter = p->form == RANGE_SHORT;
    g.reach2 = (float)(p->reach * p->reach);
    g.soft2 = (float)(p->soft * p->soft);
    g.least2 = (float)(p->least * p->least);
    g.spline = (float)p->spline;
    g.spline2 = (float)(p->spline * p->spline);
    g.fall = p->fall > 0 ? (float)(1 / (p->fall * p->fall)) : 0;
    g.exponential = law->exponential;
    g.rate = (float)(law->rate * 1.4426950408889634);
    g.peak = (float)law->peak;
    memcpy(g.c, law->c, sizeof g.c);
    return g;
}

static __device__ __forceinline__ float law_root(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float law_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* p at `many` values u2, in one pass over the coefficients. */
template <int MANY> static __device__ __forceinline__ void law_poly(const law_gpu &law, const float *u2, float *p)
{
#pragma unroll
    for (int k = 0; k < MANY; k++)
        p[k] = law.c[law.degree];
    for (int d = law.degree - 1; d >= 0; d--) {
        const float c = law.c[d];
#pragma unroll
        for (int k = 0; k < MANY; k++)
            p[k] = fmaf(p[k], fmaf(-2.0f, u2[k], 1.0f), c);
    }
}

/* p of a radial law, or of one axis of a separable one. */
static __device__ __forceinline__ float law_p(const law_gpu &law, float u2)
{
    float p;
    if (law.exponential)
        return law.peak * law_exp2(-law.rate * u2);
    law_poly<1>(law, &u2, &p);
    return p;
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

/* An inverse or short law, p being its polynomial's value. 0 where r = soft = 0, and below `least`. */
static __device__ __forceinline__ float law_inverse(const law_gpu &law, float u2, float p)
{
    const float r2 = u2 * law.reach2, softened = r2 + law.soft2, root = rsqrtf(softened);
    if (law.spline > 0 && softened < law.spline2) {
        const float near = spline_at(law.spline, law.power, softened, root);
        return law.shorter ? near - p : near * p;
    }
    if (!(softened > 0 && r2 >= law.least2))
        return 0;
    const float far = law.power == 3 ? root * root * root : root, falls = fmaf(-law.fall, r2, 1.f);
    return law.shorter ? (far - p) * falls * falls : far * p;
}

#endif
