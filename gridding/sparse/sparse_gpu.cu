/* sparse_gpu.cu: finite differences and wavelets on a GPU, a thread an element. */
#include "gridding/base/vec_run.cuh"
#include "gridding/sparse/sparse_element.h"
#include "gridding/sparse/sparse_leaf.h"

/* An array's sizes, and the stride of each axis. */
struct shape {
    int n[SPARSE_AXES];
    size_t stride[SPARSE_AXES], elements;
};

static struct shape shape_of(const int *n)
{
    struct shape s = {};
    s.elements = 1;
    for (int d = 0; d < SPARSE_AXES; d++) {
        s.n[d] = n[d];
        s.stride[d] = s.elements;
        s.elements *= (size_t)n[d];
    }
    return s;
}

static __device__ int place(const struct shape *s, size_t i, int d)
{
    return (int)(i / s->stride[d] % s->n[d]);
}

/* ---- finite differences ---- */

struct difference_body {
    struct shape s;
    unsigned axes;
    const struct c32 *x;
    struct c32 *g;
    __device__ void operator()(size_t i) const
    {
        struct c32 *to = g + i;
        for (int d = 0; d < SPARSE_AXES; d++)
            if (axes >> d & 1) {
                const bool last = place(&s, i, d) == s.n[d] - 1;
                *to = element_difference(last, x[i], x[last ? i : i + s.stride[d]]);
                to += s.elements;
            }
    }
};

struct difference_adjoint_body {
    struct shape s;
    unsigned axes;
    const struct c32 *v, *g;
    float a;
    struct c32 *x;
    __device__ void operator()(size_t i) const
    {
        const struct c32 *from = g + i;
        struct c32 sum = v ? v[i] : c32{0, 0};
        for (int d = 0; d < SPARSE_AXES; d++)
            if (axes >> d & 1) {
                const int at = place(&s, i, d);
                const float more = at > 0 ? a : 0, less = at < s.n[d] - 1 ? -a : 0;
                sum = element_difference_adjoint(sum, more, at > 0 ? *(from - s.stride[d]) : *from, less, *from);
                from += s.elements;
            }
        x[i] = sum;
    }
};

struct tv_step_body {
    size_t pixels;
    int count;
    float c, m;
    const struct c32 *g;
    struct c32 *p, *r;
    __device__ void operator()(size_t i) const
    {
        element_tv_step(i, pixels, count, c, g, m, p, r);
    }
};

static int difference(struct dev *dev, const int *n, unsigned axes, const struct c32 *x, struct c32 *g)
{
    const struct shape s = shape_of(n);
    return vec_run(dev, s.elements, "Finite differences", difference_body{s, axes, x, g});
}

static int difference_adjoint(struct dev *dev, const int *n, unsigned axes, const struct c32 *v, float a,
                              const struct c32 *g, struct c32 *x)
{
    const struct shape s = shape_of(n);
    return vec_run(dev, s.elements, "Finite differences", difference_adjoint_body{s, axes, v, g, a, x});
}

static int tv_step(struct dev *dev, size_t pixels, int count, float c, const struct c32 *g, float m, struct c32 *p,
                   struct c32 *r)
{
    return vec_run(dev, pixels, "A step of total variation", tv_step_body{pixels, count, c, m, g, p, r});
}

/* ---- wavelets ---- */

/* The part of an array that a level transforms: m[] elements per axis from the first on. */
struct part {
    struct shape s;
    int m[SPARSE_AXES];
    size_t elements;
};

/* The index of element i of the part in the array, and its index along axis d. */
static __device__ size_t part_place(const struct part *p, size_t i, int d, int *along)
{
    size_t at = 0;
    for (int e = 0; e < SPARSE_AXES; e++) {
        const int here = (int)(i % p->m[e]);
        at += here * p->s.stride[e];
        i /= p->m[e];
        if (e == d)
            *along = here;
    }
    return at;
}

/* One level along axis d: a coefficient from its samples. */
struct wavelet_body {
    struct part p;
    int d;
    const struct c32 *from;
    struct c32 *to;
    __device__ void operator()(size_t i) const
    {
        int along = 0;
        const size_t at = part_place(&p, i, d, &along), stride = p.s.stride[d], line = at - along * stride;
        const int m = p.m[d], high = along >= m / 2, k = high ? along - m / 2 : along;
        struct c32 sum = {0, 0};
        for (int t = 0; t < WAVELET_TAPS; t++) {
            const float f = high ? wavelet_high(t) : wavelet_low(t);
            const struct c32 v = from[line + (2 * k + t) % m * stride];
            sum.re += f * v.re;
            sum.im += f * v.im;
        }
        to[at] = sum;
    }
};

/* The inverse: a sample from the coefficients k with 2 k + t = sample, modulo m. */
struct inverse_body {
    struct part p;
    int d;
    const struct c32 *from;
    struct c32 *to;
    __device__ void operator()(size_t i) const
    {
        int along = 0;
        const size_t at = part_place(&p, i, d, &along), stride = p.s.stride[d], line = at - along * stride;
        const int m = p.m[d];
        struct c32 sum = {0, 0};
        for (int t = along & 1; t < WAVELET_TAPS; t += 2) {
            /* An axis may be shorter than the taps. */
            const int k = (along - t + WAVELET_TAPS * m) % m / 2;
            const struct c32 low = from[line + k * stride], high = from[line + (k + m / 2) * stride];
            sum.re += wavelet_low(t) * low.re + wavelet_high(t) * high.re;
            sum.im += wavelet_low(t) * low.im + wavelet_high(t) * high.im;
        }
        to[at] = sum;
    }
};

struct part_copy_body {
    struct part p;
    const struct c32 *from;
    struct c32 *to;
    __device__ void operator()(size_t i) const
    {
        int along;
        const size_t at = part_place(&p, i, 0, &along);
        to[at] = from[at];
    }
};

/* All axes of one level, alternating between x and `other`; the result is in x. */
static int level_run(struct dev *dev, const struct part *p, const int *levels, int level, bool inverse, struct c32 *x,
                     struct c32 *other)
{
    static const char what[] = "A wavelet transform";
    struct c32 *from = x, *to = other;
    int rc = 0;
    for (int e = 0; e < SPARSE_AXES && !rc; e++) {
        const int d = inverse ? SPARSE_AXES - 1 - e : e;
        if (level >= levels[d])
            continue;
        rc = inverse ? vec_run(dev, p->elements, what, inverse_body{*p, d, from, to})
                     : vec_run(dev, p->elements, what, wavelet_body{*p, d, from, to});
        struct c32 *swap = from;
        from = to;
        to = swap;
    }
    return !rc && from != x ? vec_run(dev, p->elements, what, part_copy_body{*p, from, x}) : rc;
}

static int wavelet(struct dev *dev, const int *n, const int *levels, bool inverse, struct c32 *x)
{
    struct part p = {shape_of(n), {0}, 0};
    struct c32 *other = NULL;
    int most = 0, rc = gpu_enter(gpu_of(dev));
    for (int d = 0; d < SPARSE_AXES; d++)
        most = levels[d] > most ? levels[d] : most;
    if (!rc)
        rc = gpu_array(gpu_of(dev), p.s.elements, &other, "A wavelet transform");
    for (int i = 0; i < most && !rc; i++) {
        const int level = inverse ? most - 1 - i : i;
        p.elements = 1;
        for (int d = 0; d < SPARSE_AXES; d++) {
            p.m[d] = n[d] >> (level < levels[d] ? level : levels[d]);
            p.elements *= (size_t)p.m[d];
        }
        rc = level_run(dev, &p, levels, level, inverse, x, other);
    }
    gpu_release(gpu_of(dev), other);
    return rc;
}

struct roll_body {
    struct shape s;
    int by[SPARSE_AXES];
    const struct c32 *x;
    struct c32 *y;
    __device__ void operator()(size_t i) const
    {
        size_t to = 0;
        for (int d = 0; d < SPARSE_AXES; d++)
            to += (size_t)((place(&s, i, d) + by[d]) % s.n[d]) * s.stride[d];
        y[to] = x[i];
    }
};

static int roll(struct dev *dev, const int *n, const int *shift, const struct c32 *x, struct c32 *y)
{
    struct roll_body body = {shape_of(n), {0}, x, y};
    for (int d = 0; d < SPARSE_AXES; d++)
        body.by[d] = (shift[d] % n[d] + n[d]) % n[d];
    return vec_run(dev, body.s.elements, "Shifting an image", body);
}

extern "C" const struct sparse_leaf sparse_leaf_gpu;
const struct sparse_leaf sparse_leaf_gpu = {difference, difference_adjoint, tv_step, wavelet,
                                            roll,       sparse_low_rank_gpu};
