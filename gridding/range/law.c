/* law.c: polynomials that reproduce the Kaiser-Bessel kernel to a given error. */
#include "gridding/range/law.h"
#include "gridding/base/err.h"
#include "gridding/range/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = LAW_MOST_DEGREE + 1, PROBES = 64 };

struct piece {
    double beta;
    int width, cell; /* cell < 0: the radial polynomial, in t = (s + 1) / 2 */
};

/* The function a piece approximates at s in [-1, 1]. */
static double piece_value(const struct piece *p, double s)
{
    double f = (s + 1) / 2;
    if (p->cell < 0)
        return kernel_value(p->beta, 1 - f);
    double u = 2 * (f + p->cell - p->width / 2.0) / p->width, u2 = u * u;
    return kernel_value(p->beta, u2 < 1 ? u2 : 1);
}

/* Interpolate at the Chebyshev nodes of `degree` and turn into powers of s. */
static void fit(const struct piece *p, int degree, double power[NODES])
{
    int n = degree + 1;
    double chebyshev[NODES] = {0}, before[NODES] = {1}, now[NODES] = {0, 1};
    for (int j = 0; j < n; j++) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            double angle = KERNEL_PI * (i + 0.5) / n;
            sum += piece_value(p, cos(angle)) * cos(j * angle);
        }
        chebyshev[j] = sum * (j == 0 ? 1.0 : 2.0) / n;
    }
    memset(power, 0, NODES * sizeof *power);
    power[0] = chebyshev[0];
    for (int j = 1; j < n; j++) {
        double next[NODES] = {0};
        for (int i = 0; i < n; i++) {
            power[i] += chebyshev[j] * now[i];
            next[i] = (i > 0 ? 2 * now[i - 1] : 0) - before[i];
        }
        memcpy(before, now, sizeof now);
        memcpy(now, next, sizeof next);
    }
}

static double deviation(const struct piece *p, int degree, const double power[NODES])
{
    double worst = 0;
    for (int i = 0; i <= PROBES; i++) {
        double s = -1 + 2.0 * i / PROBES, value = power[degree];
        for (int j = degree - 1; j >= 0; j--)
            value = value * s + power[j];
        double off = fabs(value - piece_value(p, s));
        worst = off > worst ? off : worst;
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
    if (law == NULL)
        return err_set(ERR_NO_MEMORY, "no memory for a kernel");
    law->width = width;
    law->radial = radial;
    int pieces = radial ? 1 : width;
    double power[KERNEL_MAX_WIDTH][NODES];
    for (law->degree = 2;; law->degree++) {
        double worst = 0;
        for (int j = 0; j < pieces; j++) {
            struct piece p = {beta, width, radial ? -1 : j};
            fit(&p, law->degree, power[j]);
            double off = deviation(&p, law->degree, power[j]);
            worst = off > worst ? off : worst;
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
