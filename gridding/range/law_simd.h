/* law_simd.h: a law of limited range (law.h) at a vector of squared distances. Only files *_simd.h include this. */
#ifndef MRIRECON_LAW_SIMD_H
#define MRIRECON_LAW_SIMD_H

#include "gridding/range/law.h"
#include "gridding/range/vec_simd.h"

/* A law for one scale. */
struct scaled {
    const float *c;
    int degree, power;
    bool shorter; /* RANGE_SHORT */
    float slope;  /* s = 1 + slope r^2 */
    float unit2;  /* r^2 unit2: in units of the scale */
    float least2, soft2;
    float spline, spline2; /* its radius, and that squared; 0: none */
    float fall;            /* 1 / fall^2, in units of the scale; 0: none */
};

INLINE struct scaled scaled_law(const struct range_law *law, double scale)
{
    const struct range_law_params *p = &law->params;
    return (struct scaled){law->c,
                           law->degree,
                           p->power,
                           p->form == RANGE_SHORT,
                           (float)(-2 / (p->reach * p->reach * scale * scale)),
                           (float)(1 / (scale * scale)),
                           (float)(p->least * p->least * scale * scale),
                           (float)(p->soft * p->soft),
                           (float)p->spline,
                           (float)(p->spline * p->spline),
                           p->fall > 0 ? (float)(1 / (p->fall * p->fall * scale * scale)) : 0};
}

INLINE vec polynomial(const struct scaled *law, vec s)
{
    vec value = splat(law->c[law->degree]);
    for (int d = law->degree - 1; d >= 0; d--)
        value = value * s + splat(law->c[d]);
    return value;
}

/* 1 / r^power of a mass smoothed by a spline of radius h, for r < h; x = r / h. The integrals of the spline: V.
 * Springel, N. Yoshida, S.D.M. White, New Astron. 6, 79, 2001, doi:10.1016/S1384-1076(01)00042-2, eq. 71 and its
 * potential. */
INLINE vec splined(const struct scaled *law, vec r2, vec root)
{
    const vec_int some = splat(0) < r2, inside = r2 < splat(law->spline2);
    const float unit = 1 / law->spline;
    const vec x = only(r2 * root, some) * splat(unit), x2 = x * x, over = root * splat(law->spline);
    vec inner, outer, far = root;
    if (law->power == 3) {
        inner = splat(32.0f / 3) + x2 * (splat(32) * x - splat(38.4f));
        outer = splat(64.0f / 3) - splat(48) * x + splat(38.4f) * x2 - splat(32.0f / 3) * x2 * x -
                splat(1.0f / 15) * over * over * over;
        inner *= splat(unit * unit * unit);
        outer *= splat(unit * unit * unit);
        far = root * root * root;
    } else {
        inner = splat(2.8f) - x2 * (splat(16.0f / 3) - x2 * (splat(9.6f) - splat(6.4f) * x));
        outer = splat(3.2f) - splat(1.0f / 15) * over -
                x2 * (splat(32.0f / 3) - x * (splat(16) - x * (splat(9.6f) - splat(32.0f / 15) * x)));
        inner *= splat(unit);
        outer *= splat(unit);
    }
    const vec_int half = x < splat(0.5f);
    const vec near = only(inner, half) + only(outer, ~half);
    return only(near, inside) + only(far, ~inside);
}

/* Shared by inverse laws with the same least, soft and spline. */
struct inverse {
    vec softened, root; /* r^2 + soft^2, and 1 / its root */
    vec_int held;       /* lanes that are not 0 */
};

INLINE struct inverse inverse_at(const struct scaled *law, vec r2)
{
    const vec softened = r2 * splat(law->unit2) + splat(law->soft2);
    return (struct inverse){softened, inverse_root(softened), (splat(0) < softened) & (splat(law->least2) <= r2)};
}

INLINE vec inverse_law(const struct scaled *law, vec r2, struct inverse i)
{
    const vec value = polynomial(law, splat(1) + r2 * splat(law->slope));
    if (law->spline > 0 && mask_bits(i.softened < splat(law->spline2))) {
        const vec near = splined(law, i.softened, i.root);
        return law->shorter ? near - value : near * value;
    }
    const vec root = law->power == 3 ? i.root * i.root * i.root : i.root;
    if (law->fall > 0) {
        const vec falls = splat(1) - r2 * splat(law->fall);
        return only((root - value) * falls * falls, i.held);
    }
    return only(law->shorter ? root - value : root * value, i.held);
}

/* The law at squared distances r2. */
INLINE vec law_at(const struct scaled *law, vec r2, const bool inverse)
{
    if (!inverse)
        return polynomial(law, splat(1) + r2 * splat(law->slope));
    return inverse_law(law, r2, inverse_at(law, r2));
}

#endif
