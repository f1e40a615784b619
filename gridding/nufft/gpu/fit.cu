/* The Kaiser-Bessel kernel as polynomials. */
#include "gridding/range/kernel.h"
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cmath>
#include <cstring>

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

/* Interpolate at Chebyshev nodes; returns the largest error between the nodes. */
static double fit_degree(const struct target &f, int degree, float *c)
{
    const int n = degree + 1;
    long double a[KAISER_DEGREE_MOST + 1][KAISER_DEGREE_MOST + 2];
    for (int i = 0; i < n; i++) {
        long double t = 0.5L - 0.5L * cosl(3.14159265358979323846L * (i + 0.5L) / n), power = 1;
        for (int k = 0; k < n; k++, power *= t)
            a[i][k] = power;
        a[i][n] = f.at((double)t);
    }
    for (int p = 0; p < n; p++) { /* Gauss-Jordan with partial pivoting */
        int best = p;
        for (int r = p + 1; r < n; r++)
            if (fabsl(a[r][p]) > fabsl(a[best][p]))
                best = r;
        for (int k = 0; k <= n; k++)
            std::swap(a[p][k], a[best][k]);
        for (int r = 0; r < n; r++) {
            long double m = r == p ? 0 : a[r][p] / a[p][p];
            for (int k = p; m != 0 && k <= n; k++)
                a[r][k] -= m * a[p][k];
        }
    }
    for (int k = 0; k < n; k++)
        c[k] = (float)(a[k][n] / a[k][k]);
    double worst = 0;
    for (int i = 1; i <= 400; i++) {
        double t = i / 400.0, p = c[degree];
        for (int k = degree - 1; k >= 0; k--)
            p = p * t + c[k];
        worst = fmax(worst, fabs(p - f.at(t)));
    }
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
