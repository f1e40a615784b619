/* The Kaiser-Bessel kernel as polynomials. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"
#include "gridding/range/kernel.h"
#include "gridding/range/polynomial.h"

#include <algorithm>
#include <cmath>
#include <cstring>

static_assert((int)KAISER_DEGREE_MOST <= (int)POLYNOMIAL_DEGREE_MOST, "");

/* The function to fit, of t in [0, 1]. */
struct target {
    double beta;
    double width, cell; /* pairs: of the cell whose centre is `cell` below or above the kernel's */
    enum { WHOLE, EVEN, ODD } part;

    double at(double t) const
    {
        if (part == WHOLE)
            return kernel_value(beta, 1 - t);
        double s = sqrt(t), above = 2 * (cell + s / 2) / width, below = 2 * (cell - s / 2) / width;
        double high = kernel_value(beta, fmin(1, above * above)), low = kernel_value(beta, below * below);
        return part == EVEN ? (high + low) / 2 : (high - low) / (2 * s);
    }
};

static double target_at(const void *of, double t)
{
    return ((const struct target *)of)->at(t);
}

/* Returns the largest error of the rounded coefficients. */
static double fit_degree(const struct target &f, int degree, float *c)
{
    double power[KAISER_DEGREE_MOST + 1], worst = 0;
    polynomial_fit(target_at, &f, 0, 1, degree, power);
    for (int k = 0; k <= degree; k++)
        power[k] = c[k] = (float)power[k];
    for (int i = 1; i <= 400; i++)
        worst = fmax(worst, fabs(polynomial_at(degree, power, i / 400.0) - f.at(i / 400.0)));
    return worst;
}

void nufft_gpu_fit_kaiser(struct kaiser *kernel, const struct nufft_shape *shape, int degree)
{
    const struct target whole = {shape->beta, (double)shape->width, 0, target::WHOLE};
    const double wanted = fmax(std::min(shape->tolerance, shape->aliasing) / 100, 1e-7);
    memset(kernel, 0, sizeof *kernel);
    kernel->scale = 2.f / (float)shape->width;
    kernel->degree = degree;
    if (degree) {
        fit_degree(whole, degree, kernel->c);
        return;
    }
    for (kernel->degree = 4; kernel->degree < KAISER_DEGREE_MOST; kernel->degree++)
        if (fit_degree(whole, kernel->degree, kernel->c) <= wanted)
            return;
    fit_degree(whole, KAISER_DEGREE_MOST, kernel->c);
}

void nufft_gpu_fit_pairs(struct kernel_pairs *pairs, const struct nufft_shape *shape, int terms)
{
    memset(pairs, 0, sizeof *pairs);
    for (int j = 0; j < (shape->width + 1) / 2; j++) {
        /* Cell j is (width - 1) / 2 - j + s / 2 below the sample. */
        struct target f = {shape->beta, (double)shape->width, (shape->width - 1) / 2.0 - j, target::EVEN};
        fit_degree(f, terms - 1, pairs->even[j]);
        f.part = target::ODD;
        if (f.cell > 0)
            fit_degree(f, terms - 1, pairs->odd[j]);
    }
}
