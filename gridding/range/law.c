/* law.c: polynomials that reproduce the Kaiser-Bessel kernel to a given error. */
#include "gridding/range/law.h"
#include "gridding/base/err.h"
#include "gridding/range/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = LAW_MOST_DEGREE + 1, PROBES = 64 };

struct piece {
    double beta, peak; /* peak: I0(beta) */
    int width, cell;   /* cell < 0: the radial polynomial, in t = (s + 1) / 2 */
};

/* The function a piece approximates at s in [-1, 1]. */
static double piece_value(const struct piece *p, double s)
{
    double f = (s + 1) / 2, u = p->cell < 0 ? 0 : 2 * (f + p->cell - p->width / 2.0) / p->width;
    double inside = p->cell < 0 ? f : 1 - u * u;
    return kernel_bessel_i0(p->beta * sqrt(inside > 0 ? inside : 0)) / p->peak;
}

/* Interpolate at the Chebyshev nodes of `degree` and turn into powers of s. */
static void fit(const struct piece *p, int degree, double power[NODES])
{
    int n = degree + 1;
    double at_node[NODES] = {0}, before[NODES] = {1}, now[NODES] = {0, 1};
    for (int i = 0; i < n; i++)
        at_node[i] = piece_value(p, cos(KERNEL_PI * (i + 0.5) / n));
    memset(power, 0, NODES * sizeof *power);
    for (int j = 0; j < n; j++) {
        double coefficient = 0, next[NODES] = {0};
        for (int i = 0; i < n; i++)
            coefficient += at_node[i] * cos(j * KERNEL_PI * (i + 0.5) / n) * (j == 0 ? 1.0 : 2.0) / n;
        const double *chebyshev = j == 0 ? before : now;
        for (int i = 0; i < n; i++)
            power[i] += coefficient * chebyshev[i];
        if (j == 0)
            continue;
        for (int i = 0; i < n; i++)
            next[i] = (i > 0 ? 2 * now[i - 1] : 0) - before[i];
        memcpy(before, now, sizeof now);
        memcpy(now, next, sizeof next);
    }
}

static double probe(int i)
{
    return -1 + 2.0 * i / PROBES;
}

static double deviation(int degree, const double power[NODES], const double exact[PROBES + 1])
{
    double worst = 0;
    for (int i = 0; i <= PROBES; i++) {
        double s = probe(i), value = power[degree];
        for (int j = degree - 1; j >= 0; j--)
            value = value * s + power[j];
        worst = fmax(worst, fabs(value - exact[i]));
    }
    return worst;
}

/* From powers of s = 2 t - 1 to powers of t. */
static void shift_to_unit(int degree, double power[NODES])
{
    double shifted[NODES] = {0};
    for (int j = degree; j >= 0; j--) {
        for (int i = degree; i >= 0; i--)
            shifted[i] = (i > 0 ? 2 * shifted[i - 1] : 0) - shifted[i];
        shifted[0] += power[j];
    }
    memcpy(power, shifted, sizeof shifted);
}

int range_law_create(struct range_law **out, int width, double beta, bool radial, double error)
{
    struct range_law *law = calloc(1, sizeof *law);
    if (!law)
        return err_no_memory("a kernel");
    law->width = width;
    law->radial = radial;
    int pieces = radial ? 1 : width;
    double power[KERNEL_MAX_WIDTH][NODES], exact[KERNEL_MAX_WIDTH][PROBES + 1], peak = kernel_bessel_i0(beta);
    struct piece piece[KERNEL_MAX_WIDTH];
    for (int j = 0; j < pieces; j++) {
        piece[j] = (struct piece){beta, peak, width, radial ? -1 : j};
        for (int i = 0; i <= PROBES; i++)
            exact[j][i] = piece_value(&piece[j], probe(i));
    }
    for (law->degree = 2;; law->degree++) {
        double worst = 0;
        for (int j = 0; j < pieces; j++) {
            fit(&piece[j], law->degree, power[j]);
            worst = fmax(worst, deviation(law->degree, power[j], exact[j]));
        }
        if (worst <= error || law->degree == LAW_MOST_DEGREE)
            break;
    }
    for (int j = 0; j < pieces; j++) {
        if (radial)
            shift_to_unit(law->degree, power[j]);
        for (int i = 0; i <= law->degree; i++)
            law->c[i][j] = (float)power[j][i];
    }
    *out = law;
    return 0;
}

void range_law_free(struct range_law *law)
{
    free(law);
}
