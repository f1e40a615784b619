/* law.c: polynomials that reproduce a function to a given error: of laws, and of the Kaiser-Bessel kernel cell by cell.
 */
#include "gridding/range/law.h"
#include "gridding/base/err.h"
#include "gridding/range/kernel.h"
#include "gridding/range/points.h"
#include "gridding/range/polynomial.h"

#include <math.h>
#include <stdlib.h>

enum { NODES = RANGE_DEGREE_MOST + 1, PROBES = 64 };
_Static_assert((int)KERNEL_DEGREE_MOST == (int)RANGE_DEGREE_MOST, "one fit serves both");
_Static_assert((int)POLYNOMIAL_DEGREE_MOST == (int)RANGE_DEGREE_MOST, "and has this degree");

/* The function to approximate on s in [-1, 1]: value(of, t) at t = 1 - (2 u / width)^2 for the cell's u, or (cell < 0)
 * at t = (s + 1) / 2. */
struct piece {
    double (*value)(const void *of, double t);
    const void *of;
    int width, cell;
};

static double piece_value(const void *of, double s)
{
    const struct piece *p = of;
    double f = (s + 1) / 2, u = p->cell < 0 ? 0 : 2 * (f + p->cell - p->width / 2.0) / p->width;
    double inside = p->cell < 0 ? f : 1 - u * u;
    return p->value(p->of, inside > 0 ? inside : 0);
}

static double probe(int i)
{
    return -1 + 2.0 * i / PROBES;
}

static double deviation(int degree, const double power[NODES], const double exact[PROBES + 1])
{
    double worst = 0;
    for (int i = 0; i <= PROBES; i++)
        worst = fmax(worst, fabs(polynomial_at(degree, power, probe(i)) - exact[i]));
    return worst;
}

/* Fit polynomials of one degree to all pieces: the lowest degree from `degree` on with an error of at most `error` (at
 * most RANGE_DEGREE_MOST). Returns the degree, and its error in *worst. */
static int fit_pieces(int pieces, const struct piece *piece, int degree, double error, double (*power)[NODES],
                      double *worst)
{
    double exact[KERNEL_MAX_WIDTH][PROBES + 1];
    for (int j = 0; j < pieces; j++)
        for (int i = 0; i <= PROBES; i++)
            exact[j][i] = piece_value(&piece[j], probe(i));
    for (;; degree++) {
        *worst = 0;
        for (int j = 0; j < pieces; j++) {
            polynomial_fit(piece_value, &piece[j], -1, 1, degree, power[j]);
            *worst = fmax(*worst, deviation(degree, power[j], exact[j]));
        }
        if (*worst <= error || degree == RANGE_DEGREE_MOST)
            return degree;
    }
}

/* ---- laws ---- */

static int check_params(const struct range_law_params *p)
{
    if (!(p->reach > 0 && p->reach < INFINITY))
        return err_set(ERR_BAD_PARAMETER, "A law's reach is %g; it must be above 0 and finite.", p->reach);
    if ((p->form == RANGE_INVERSE || p->form == RANGE_SHORT) &&
        !(p->least >= 0 && p->least < p->reach && p->soft >= 0 && p->soft < INFINITY &&
          (p->power == 1 || p->power == 3)))
        return err_set(
            ERR_BAD_PARAMETER,
            "An inverse law of power %d, 0 below %g and softened by %g cannot be summed: the power is 1 or 3, "
            "and the lengths are 0 or more, the first below the reach of %g.",
            p->power, p->least, p->soft, p->reach);
    if (p->fall != 0 &&
        !(p->form == RANGE_SHORT && p->power == 1 && p->fall >= p->reach && p->fall < INFINITY && p->spline == 0))
        return err_set(
            ERR_BAD_PARAMETER,
            "A law that falls to 0 at %g cannot be summed: that is for short-range parts of 1 / r with a reach "
            "(%g) that does not exceed it, without a spline.",
            p->fall, p->reach);
    const bool inverse = p->form == RANGE_INVERSE || p->form == RANGE_SHORT;
    if (!(p->spline >= 0 && p->spline < INFINITY) || (p->spline > 0 && (!inverse || p->soft > 0 || p->least > 0)))
        return err_set(ERR_BAD_PARAMETER,
                       "A law softened by a spline of radius %g cannot be summed: the radius is finite, 0 or more, and "
                       "of an inverse law without another softening.",
                       p->spline);
    return 0;
}

/* Whether a law is an exponential of t to full precision. */
static void find_exponential(struct range_law *law, double (*value)(const void *of, double t), const void *of)
{
    law->peak = value(of, 1);
    law->rate = log(law->peak / value(of, 0));
    law->exponential = law->peak > 0 && law->rate > 0 && law->rate < INFINITY;
    for (int i = 0; i <= PROBES && law->exponential; i++) {
        const double t = (probe(i) + 1) / 2, exact = law->peak * exp(-law->rate * (1 - t));
        law->exponential = fabs(value(of, t) - exact) <= 1e-12 * exact;
    }
}

int range_law_make(struct range_law *law, const struct range_law_params *params,
                   double (*value)(const void *of, double t), const void *of)
{
    int rc = check_params(params);
    if (rc)
        return rc;
    double largest = 0, power[1][NODES], worst;
    for (int i = 0; i <= PROBES; i++) {
        double v = fabs(value(of, (probe(i) + 1) / 2));
        if (!isfinite(v))
            return err_set(ERR_BAD_PARAMETER, "The law is not finite at %g of its reach.",
                           sqrt(1 - (probe(i) + 1) / 2));
        largest = fmax(largest, v);
    }
    const struct piece piece = {value, of, 0, -1};
    *law = (struct range_law){.params = *params};
    law->degree = fit_pieces(1, &piece, 0, params->error * largest, power, &worst);
    law->error = largest > 0 ? worst / largest : 0;
    if (!(law->error <= params->error))
        return err_set(
            ERR_BAD_PARAMETER,
            "A law cannot be evaluated to %g of its largest value: a polynomial of degree %d has an error of %g.",
            params->error, RANGE_DEGREE_MOST, law->error);
    for (int i = 0; i <= law->degree; i++)
        law->c[i] = (float)power[0][i];
    find_exponential(law, value, of);
    return 0;
}

/* ---- the Kaiser-Bessel kernel ---- */

struct kaiser_bessel {
    double beta, peak; /* peak: I0(beta) */
};

static double kaiser_bessel_value(const void *of, double t)
{
    const struct kaiser_bessel *k = of;
    return kernel_bessel_i0(k->beta * sqrt(t)) / k->peak;
}

int range_kernel_create(struct range_kernel **out, int width, double beta, bool radial, double error)
{
    struct range_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return err_no_memory("a kernel");
    const struct kaiser_bessel function = {beta, kernel_bessel_i0(beta)};
    int pieces = radial ? 1 : width;
    double power[KERNEL_MAX_WIDTH][NODES], worst;
    struct piece piece[KERNEL_MAX_WIDTH] = {{0}};
    for (int j = 0; j < pieces; j++)
        piece[j] = (struct piece){kaiser_bessel_value, &function, width, radial ? -1 : j};
    kernel->width = width;
    kernel->radial = radial;
    kernel->degree = fit_pieces(pieces, piece, 2, error, power, &worst);
    for (int j = 0; j < pieces; j++) {
        if (radial)
            polynomial_fit(kaiser_bessel_value, &function, 0, 1, kernel->degree, power[j]);
        for (int i = 0; i <= kernel->degree; i++)
            kernel->c[i][j] = (float)power[j][i];
    }
    *out = kernel;
    return 0;
}

void range_kernel_free(struct range_kernel *kernel)
{
    free(kernel);
}
