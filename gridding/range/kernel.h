/* kernel.h: the Kaiser-Bessel gridding kernel: its shape, its transform, its accuracy. Both compilers see these
 * formulas.
 *
 * Lengths are in cells of the oversampled grid: W the full width, u the distance from the sample, G the grid size. The
 * kernel is 1 at u = 0, so that products of several axes stay in float32's range at any width.
 */
#ifndef MRIRECON_KERNEL_H
#define MRIRECON_KERNEL_H

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL_PI 3.14159265358979323846

enum { KERNEL_MIN_WIDTH = 2, KERNEL_MAX_WIDTH = 10, KERNEL_MAX_OVERSAMPLING = 2 };

/* Modified Bessel function of the first kind, order 0, for x >= 0: its power series, all of whose terms are positive,
 * to the last bit. */
static inline double kernel_bessel_i0(double x)
{
    double quarter = x * x / 4, term = 1, sum = 1;
    for (int k = 1; term > sum * 1e-17; k++) {
        term *= quarter / ((double)k * k);
        sum += term;
    }
    return sum;
}

/* Order 1, likewise. */
static inline double kernel_bessel_i1(double x)
{
    double quarter = x * x / 4, term = x / 2, sum = x / 2;
    for (int k = 1; term > sum * 1e-17; k++) {
        term *= quarter / ((double)k * (k + 1));
        sum += term;
    }
    return sum;
}

/* The shape parameter with the smallest aliasing error (Beatty, Nishimura, Pauly 2005, doi:10.1109/TMI.2005.848376, eq.
 * 5). */
static inline double kernel_beta(int width, double oversampling)
{
    double a = width / oversampling * (oversampling - 0.5);
    return KERNEL_PI * sqrt(a * a - 0.8);
}

/* The kernel at squared distance u2, given as (2 u / W)^2; 0 outside. 1-D, and with u a radius also the radial kernel.
 */
static inline double kernel_value(double beta, double u2)
{
    return u2 > 1 ? 0 : kernel_bessel_i0(beta * sqrt(1 - u2)) / kernel_bessel_i0(beta);
}

/* Transform of the 1-D kernel at frequency f (cycles per cell): integral of kernel(u) exp(2 pi i f u) du. */
static inline double kernel_transform(int width, double beta, double f)
{
    double a = KERNEL_PI * width * f, z2 = beta * beta - a * a, z = sqrt(fabs(z2));
    double value = z < 1e-4 ? 1 + z2 / 6 : z2 > 0 ? sinh(z) / z : sin(z) / z;
    return width * value / kernel_bessel_i0(beta);
}

/* Transform of the radial kernel of radius R = W / 2 at |frequency| f, in 2 or 3 dimensions (spherical Bessel
 * integrals, DLMF 10.22 and 10.49; z^2 = beta^2 - (2 pi R f)^2). */
static inline double kernel_transform_radial(int dim, int width, double beta, double f)
{
    double r = width / 2.0, a = 2 * KERNEL_PI * r * f, z2 = beta * beta - a * a, z = sqrt(fabs(z2));
    double scale = KERNEL_PI * r * r / kernel_bessel_i0(beta);
    if (dim == 2)
        return scale * (z < 1e-4 ? 1 + z2 / 8 : z2 > 0 ? 2 * kernel_bessel_i1(z) / z : 2 * j1(z) / z);
    return scale * 4 * r *
           (z < 1e-2 ? (1 + z2 / 10) / 3
            : z2 > 0 ? (cosh(z) - sinh(z) / z) / z2
                     : (sin(z) / z - cos(z)) / -z2);
}

/* The smallest useful oversampling of a kernel. The radial kernel's transform falls towards 0 in the image's corners,
 * so it needs more, especially in three dimensions. */
static inline double kernel_least_oversampling(int dim, int radial)
{
    return !radial ? 1.125 : dim == 2 ? 1.5 : 1.75;
}

/* The relative l2 error of an image to expect from aliasing: the bound exp(-pi W sqrt(1 - 1/oversampling)) (Barnett
 * 2021, doi:10.1016/j.acha.2020.10.002) times a factor above the errors measured against direct sums
 * (tests/unit/test_nufft). */
static inline double kernel_aliasing(int dim, int width, double oversampling, int radial)
{
    double bound = exp(-KERNEL_PI * width * sqrt(1 - 1 / oversampling)) * sqrt(dim / 2.0);
    return (2.5 + 4.35 * (oversampling - 1.25)) * bound * (radial ? 2 : 1);
}

/* The smallest aliasing error, in two dimensions, of the kernels with this width (0: any) and oversampling (0: any). 0
 * if both are set: they are then used whatever their error. A tolerance below the result is refused for any number of
 * dimensions, because parameters are checked before the scan is known. */
static inline double kernel_least_aliasing(int width, double oversampling, int radial)
{
    if (width != 0 && oversampling != 0)
        return 0;
    return kernel_aliasing(2, width != 0 ? width : KERNEL_MAX_WIDTH,
                           oversampling != 0 ? oversampling : (double)KERNEL_MAX_OVERSAMPLING, radial);
}

/* The relative error that aliasing leaves on one axis in a pixel at frequency f (cycles per cell): the kernel's
 * transform at all aliases of the pixel, relative to that at the pixel. The squares of the aliases are summed; for
 * kernels of 2 and 3 cells, whose transforms decay slowly, the amplitudes, because all samples may have the same
 * position between cells, as those of few spokes do. */
static inline double kernel_aliasing_at(int width, double beta, double f)
{
    enum { REPEATS = 4 };
    double within = kernel_transform(width, beta, f), sum = 0, squares = 0;
    for (int i = -REPEATS; i <= REPEATS; i++) {
        double repeat = i == 0 ? 0 : kernel_transform(width, beta, f + i) / within;
        sum += fabs(repeat);
        squares += repeat * repeat;
    }
    return width <= 3 ? sum : sqrt(squares);
}

/* The same for samples that all have the same position between cells, the worst one. */
static inline double kernel_aliasing_alike(int width, double beta, double f)
{
    enum { REPEATS = 3, STEPS = 16 };
    /* cos(2 pi s / STEPS); the sine is a quarter turn later. */
    static const double turn[STEPS] = {1,  0.92387953251128674,  0.70710678118654752,  0.38268343236508977,
                                       0,  -0.38268343236508977, -0.70710678118654752, -0.92387953251128674,
                                       -1, -0.92387953251128674, -0.70710678118654752, -0.38268343236508977,
                                       0,  0.38268343236508977,  0.70710678118654752,  0.92387953251128674};
    double repeat[2 * REPEATS + 1], most = 0;
    for (int i = -REPEATS; i <= REPEATS; i++)
        repeat[i + REPEATS] = i == 0 ? 0 : kernel_transform(width, beta, f + i);
    for (int s = 0; s <= STEPS / 2; s++) {
        double re = 0, im = 0;
        for (int i = 0; i <= 2 * REPEATS; i++) {
            re += repeat[i] * turn[i * s % STEPS];
            im += repeat[i] * turn[(i * s + 3 * STEPS / 4) % STEPS];
        }
        most = fmax(most, re * re + im * im);
    }
    return sqrt(most) / kernel_transform(width, beta, f);
}

/* The same of the radial kernel in the image's corner, at frequency f[d] along each axis. */
static inline double kernel_aliasing_radial_at(int dim, int width, double beta, const double f[3])
{
    enum { REPEATS = 2, SIDE = 2 * REPEATS + 1 };
    double within = 0, sum = 0, squares = 0;
    for (int i = 0; i < SIDE * SIDE * (dim == 3 ? SIDE : 1); i++) {
        const int at[3] = {i % SIDE - REPEATS, i / SIDE % SIDE - REPEATS, dim == 3 ? i / SIDE / SIDE - REPEATS : 0};
        double f2 = 0;
        for (int d = 0; d < dim; d++)
            f2 += (f[d] + at[d]) * (f[d] + at[d]);
        const double value = kernel_transform_radial(dim, width, beta, sqrt(f2));
        if (at[0] == 0 && at[1] == 0 && at[2] == 0)
            within = value;
        else {
            sum += fabs(value);
            squares += value * value;
        }
    }
    return (width <= 3 ? sum : sqrt(squares)) / fabs(within);
}

/* The expected error of float32: sums and FFT have an error of about 1e-6 of the grid's energy, uniformly;
 * deapodisation multiplies it by 1 / the kernel's transform, which is largest at the image's edge and for wide kernels
 * on tight grids, and matters if the image is dark there. 1.3e-6 is the largest of six plans of a 3-D centre-out scan,
 * in which the root mean square of that factor was 2.5 to 74. */
static inline double kernel_rounding(int dim, int width, double oversampling)
{
    enum { STEPS = 16 };
    double beta = kernel_beta(width, oversampling), centre = kernel_transform(width, beta, 0), squares = 0;
    for (int i = 0; i < STEPS; i++) {
        double ratio = centre / kernel_transform(width, beta, (i + 0.5) / STEPS / (2 * oversampling));
        squares += ratio * ratio / STEPS;
    }
    return 1.3e-6 * pow(squares, dim / 2.0);
}

#ifdef __cplusplus
}
#endif
#endif
