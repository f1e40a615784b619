/* polynomial.h: the polynomial through a function's values at Chebyshev nodes, by which laws and kernels are evaluated
 * in float32. Both compilers see it, so that a CPU and a GPU have the same polynomials. */
#ifndef MRIRECON_POLYNOMIAL_H
#define MRIRECON_POLYNOMIAL_H

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { POLYNOMIAL_DEGREE_MOST = 17 };

/* value(of, x) on [from, to] = sum_i c[i] x^i, i = 0 .. degree: the linear system of the powers at the nodes, solved by
 * elimination with partial pivoting. In long double, because powers on [0, 1] lose about 12 digits at the highest
 * degree. */
static inline void polynomial_fit(double (*value)(const void *of, double x), const void *of, double from, double to,
                                  int degree, double *c)
{
    const int n = degree + 1;
    long double rows[POLYNOMIAL_DEGREE_MOST + 1][POLYNOMIAL_DEGREE_MOST + 2], *a[POLYNOMIAL_DEGREE_MOST + 1];
    for (int i = 0; i < n; i++) {
        const long double angle = 3.14159265358979323846L * (i + 0.5L) / n;
        const long double x = 0.5L * ((long double)from + to) - 0.5L * ((long double)to - from) * cosl(angle);
        long double power = 1;
        a[i] = rows[i];
        for (int k = 0; k < n; k++, power *= x)
            a[i][k] = power;
        a[i][n] = value(of, (double)x);
    }
    for (int p = 0; p < n; p++) {
        int best = p;
        for (int r = p + 1; r < n; r++)
            best = fabsl(a[r][p]) > fabsl(a[best][p]) ? r : best;
        long double *pivot = a[best];
        a[best] = a[p];
        a[p] = pivot;
        for (int r = 0; r < n; r++) {
            const long double m = r == p ? 0 : a[r][p] / pivot[p];
            for (int k = p; m != 0 && k <= n; k++)
                a[r][k] -= m * pivot[k];
        }
    }
    for (int k = 0; k < n; k++)
        c[k] = (double)(a[k][n] / a[k][k]);
}

static inline double polynomial_at(int degree, const double *c, double x)
{
    double value = c[degree];
    for (int i = degree - 1; i >= 0; i--)
        value = value * x + c[i];
    return value;
}

#ifdef __cplusplus
}
#endif
#endif
