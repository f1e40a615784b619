#include "gridding/traj/traj.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>

/* Thresholds, as fractions of the encoded k-space along its best covered axis (1: |k| reaches its edge). Wrong units
 * give an image of the wrong size without any other sign, so every trajectory that fits two units is refused.
 * tests/unit/test_traj_units.c counts how many scans each threshold refuses, and that none is read wrongly. */
static const double edge = 1.02;     /* a trajectory may leave the encoded k-space by this */
static const double least = 0.45;    /* no trajectory is expected to cover less, ... */
static const double least_two = 0.2; /* ... and on two axes at least this much (kz alone may be in another unit) */
static const double overshoot = 1.1; /* a unit whose edge is passed by less than this may be meant, header at fault */
static const double full = 0.9;      /* below, a warning */
static const double exact[] = {0.98, 1.005}; /* a largest |k| between these confirms cycles per pixel */

/* Two units need no decision if no pixel moves by half a pixel between them; they are the same unit if none moves by
 * the second number. */
static const double half_pixel = 0.5, same_pixel = 0.01;

static const struct {
    const char *parameter, *words;
    bool radians;
    double length; /* metres; 0: not a unit of length */
} units[TRAJ_UNITS] = {
    [TRAJ_UNIT_AUTO] = {"auto", "", false, 0},
    [TRAJ_UNIT_PIXEL] = {"pixel", "cycles per pixel", false, 0},
    [TRAJ_UNIT_GRID] = {"grid", "cycles per field of view", false, 0},
    [TRAJ_UNIT_RADIANS] = {"radians", "radians per pixel", true, 0},
    [TRAJ_UNIT_PER_METRE] = {"per_metre", "cycles per metre", false, 1},
    [TRAJ_UNIT_PER_CM] = {"per_cm", "cycles per centimetre", false, 1e-2},
    [TRAJ_UNIT_PER_MM] = {"per_mm", "cycles per millimetre", false, 1e-3},
    [TRAJ_UNIT_RADIANS_PER_METRE] = {"radians_per_metre", "radians per metre", true, 1},
    [TRAJ_UNIT_RADIANS_PER_CM] = {"radians_per_cm", "radians per centimetre", true, 1e-2},
    [TRAJ_UNIT_RADIANS_PER_MM] = {"radians_per_mm", "radians per millimetre", true, 1e-3},
};

/* The trajectory interpreted in one unit. */
struct reading {
    double scale[3];         /* to cycles per pixel */
    double coverage, second; /* of the best covered axis and of the next one (of one axis: the same) */
    double last;             /* of the least covered one */
    double most;             /* the same as coverage, but of an axis of one pixel, too */
    bool known;              /* whether this unit is possible at all */
};

/* The trajectory interpreted in each unit, and what messages say of it. */
struct readings {
    struct reading unit[TRAJ_UNITS];
    const int *n;
    char seen[96], matrix[48];
};

const char *traj_unit_name(enum traj_unit unit)
{
    return units[unit].parameter;
}

static int extent(int dim, size_t samples, int stride, const float *k, double largest[3])
{
    for (int d = 0; d < dim; d++) {
        float most = 0;
        bool finite = true;
#pragma omp parallel for reduction(max : most) reduction(&& : finite) if (samples > 1 << 16)
        for (size_t m = 0; m < samples; m++) {
            float value = fabsf(k[m * (size_t)stride + (size_t)d]);
            most = value > most ? value : most;
            finite = finite && isfinite(value);
        }
        if (!finite) {
            size_t m = 0;
            while (isfinite(k[m * (size_t)stride + (size_t)d]))
                m++;
            return err_set(ERR_TRAJ_NONFINITE,
                           "Sample %zu of the trajectory has k%c = %g. Every coordinate must be a finite number.", m,
                           "xyz"[d], (double)k[m * (size_t)stride + (size_t)d]);
        }
        largest[d] = most;
    }
    return 0;
}

/* "0.4998, 0.5 (kx, ky)" */
static void extent_text(int dim, const double largest[3], char text[96])
{
    if (dim == 2)
        snprintf(text, 96, "%.4g, %.4g (kx, ky)", largest[0], largest[1]);
    else
        snprintf(text, 96, "%.4g, %.4g, %.4g (kx, ky, kz)", largest[0], largest[1], largest[2]);
}

static void matrix_text(int dim, const int n[3], char text[48])
{
    if (dim == 2)
        snprintf(text, 48, "%d x %d", n[0], n[1]);
    else
        snprintf(text, 48, "%d x %d x %d", n[0], n[1], n[2]);
}

static void read_as(enum traj_unit unit, int dim, const int n[3], const double fov_m[3], const double largest[3],
                    struct reading *reading)
{
    int axes = 0;
    *reading = (struct reading){.scale = {1, 1, 1}, .last = INFINITY, .known = true};
    for (int d = 0; d < dim; d++) {
        double length = units[unit].length;
        reading->scale[d] = units[unit].radians ? 0.5 / M_PI : 1;
        if (unit == TRAJ_UNIT_GRID)
            reading->scale[d] /= n[d];
        if (length > 0) {
            reading->known = reading->known && isfinite(fov_m[d]) && fov_m[d] > 0;
            reading->scale[d] *= fov_m[d] / n[d] / length;
        }
        double covered = largest[d] * reading->scale[d] / 0.5;
        reading->most = fmax(reading->most, covered);
        if (n[d] == 1) /* one pixel: no k-space along this axis */
            continue;
        axes++;
        reading->second = fmax(reading->second, fmin(covered, reading->coverage));
        reading->coverage = fmax(reading->coverage, covered);
        reading->last = fmin(reading->last, covered);
    }
    if (axes < 2)
        reading->second = reading->coverage;
}

static bool fits(const struct reading *reading)
{
    return reading->known && reading->most <= edge;
}

static bool possible(const struct reading *reading)
{
    return reading->known && reading->most <= overshoot && reading->coverage >= least && reading->second >= least_two;
}

/* Whether k ends at the edge of the encoded k-space, with every axis close to it. */
static bool fills(const struct reading *reading)
{
    return reading->coverage >= exact[0] && reading->coverage <= exact[1] && reading->last >= full;
}

/* How far one unit moves a pixel of the other's image, at most: images reach to N / 2 from their centre. */
static double shift(const struct readings *all, enum traj_unit a, enum traj_unit b)
{
    double most = 0;
    for (int d = 0; d < 3; d++)
        most = fmax(most, fabs(all->unit[a].scale[d] / all->unit[b].scale[d] - 1) * all->n[d] / 2);
    return most;
}

/* The first possible unit that fits, and as its rival the first whose image differs by half a pixel or more, or else
 * visibly in numbers (AUTO: none). */
static enum traj_unit best_find(const struct readings *all, enum traj_unit *rival)
{
    enum traj_unit best = TRAJ_UNIT_AUTO;
    for (enum traj_unit u = TRAJ_UNITS - 1; u > TRAJ_UNIT_AUTO; u--)
        if (possible(&all->unit[u]) && fits(&all->unit[u]))
            best = u;
    *rival = TRAJ_UNIT_AUTO;
    for (int seen = 0; seen < 2 && best != TRAJ_UNIT_AUTO; seen++)
        for (enum traj_unit u = TRAJ_UNIT_PIXEL; u < TRAJ_UNITS && *rival == TRAJ_UNIT_AUTO; u++)
            if (possible(&all->unit[u]) && shift(all, u, best) >= (seen ? same_pixel : half_pixel))
                *rival = u;
    return best;
}

/* The unit that fits with the widest coverage, excluding `but`; AUTO: none fits. */
static enum traj_unit widest_find(const struct readings *all, enum traj_unit but)
{
    enum traj_unit widest = TRAJ_UNIT_AUTO;
    for (enum traj_unit u = TRAJ_UNIT_PIXEL; u < TRAJ_UNITS; u++)
        if (u != but && fits(&all->unit[u]) &&
            (widest == TRAJ_UNIT_AUTO || all->unit[u].coverage > all->unit[widest].coverage))
            widest = u;
    return widest;
}

/* "100 % in cycles per pixel, 94 % in cycles per millimetre" and "pixel or per_mm" of all that are possible. */
static void possible_text(const struct readings *all, char *list, size_t list_size, char *names, size_t names_size)
{
    size_t used = 0, named = 0;
    for (enum traj_unit u = TRAJ_UNIT_PIXEL; u < TRAJ_UNITS; u++) {
        if (!possible(&all->unit[u]) || used >= list_size || named >= names_size)
            continue;
        used += (size_t)snprintf(list + used, list_size - used, "%s%.3g %% in %s", used ? ", " : "",
                                 100 * all->unit[u].most, units[u].words);
        named += (size_t)snprintf(names + named, names_size - named, "%s%s", named ? " or " : "", units[u].parameter);
    }
}

static int none_possible(const struct readings *all)
{
    enum traj_unit widest = widest_find(all, TRAJ_UNIT_AUTO);
    if (widest == TRAJ_UNIT_AUTO)
        return err_set(
            ERR_TRAJ_RANGE,
            "The largest |k| is %s: more than the encoded k-space of a %s matrix holds in any unit (cycles or radians, "
            "per pixel, field of view, metre, centimetre or millimetre). Check the matrix and field of view in the "
            "header.",
            all->seen, all->matrix);
    return err_set(ERR_TRAJ_AMBIGUOUS,
                   "The largest |k| is %s: that is %.3g %% of the k-space of a %s matrix in %s, and no unit explains "
                   "it better, so the unit is ambiguous. Pass traj_units=%s if it is that, or the right unit.",
                   all->seen, 100 * all->unit[widest].coverage, all->matrix, units[widest].words,
                   units[widest].parameter);
}

static int choose(const struct readings *all, enum traj_unit *chosen, enum traj_unit *rival)
{
    enum traj_unit best = best_find(all, rival);
    char list[384] = "", parameters[128] = "";
    if (best == TRAJ_UNIT_AUTO)
        return none_possible(all);
    if (*rival != TRAJ_UNIT_AUTO && shift(all, *rival, best) >= half_pixel &&
        !(best == TRAJ_UNIT_PIXEL && fills(&all->unit[best]))) {
        possible_text(all, list, sizeof list, parameters, sizeof parameters);
        return err_set(ERR_TRAJ_AMBIGUOUS,
                       "The largest |k| is %s: of the k-space of a %s matrix that is %s, so the unit cannot be told. "
                       "Pass traj_units=%s.",
                       all->seen, all->matrix, list, parameters);
    }
    *chosen = best;
    return 0;
}

static int check_asked(const struct readings *all, enum traj_unit asked)
{
    const struct reading *reading = &all->unit[asked];
    if (!reading->known)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter traj_units=%s needs the encoded field of view, which the header does not give.",
                       units[asked].parameter);
    if (!fits(reading))
        return err_set(
            ERR_TRAJ_RANGE,
            "The largest |k| is %s: in %s, as traj_units=%s says, that is %.3g %% of the k-space of a %s matrix, and "
            "more than %.0f %% is refused. Check traj_units and the header's matrix and field of view.",
            all->seen, units[asked].words, units[asked].parameter, 100 * reading->most, all->matrix, 100 * edge);
    return 0;
}

static void reason_write(const struct readings *all, enum traj_unit asked, struct traj_unit_found *found)
{
    enum traj_unit next = widest_find(all, found->unit);
    size_t used = (size_t)snprintf(found->reason, sizeof found->reason,
                                   "The largest |k| is %s: %.3g %% of the k-space of a %s matrix in %s", all->seen,
                                   100 * found->coverage, all->matrix, units[found->unit].words);
    if (asked != TRAJ_UNIT_AUTO)
        snprintf(found->reason + used, sizeof found->reason - used, ", as asked for.");
    else if (next == TRAJ_UNIT_AUTO)
        snprintf(found->reason + used, sizeof found->reason - used, "; in all other units it would be too much.");
    else
        snprintf(found->reason + used, sizeof found->reason - used, "; the next best unit, %s, would give %.3g %%%s.",
                 units[next].words, 100 * all->unit[next].coverage,
                 shift(all, next, found->unit) < same_pixel ? ", the same image" : "");
}

static void warning_write(const struct readings *all, enum traj_unit rival, struct traj_unit_found *found)
{
    const char *words = units[found->unit].words, *parameter = units[found->unit].parameter;
    if (rival != TRAJ_UNIT_AUTO)
        snprintf(
            found->warning, sizeof found->warning,
            "The trajectory was taken to be in %s%s, of which it covers %.3g %% of the encoded k-space. In %s it "
            "would cover %.3g %%, and everything would appear %.3g times as large. Pass traj_units=%s or %s to say "
            "which.",
            words, found->unit == TRAJ_UNIT_PIXEL ? ", which are usual in ISMRMRD" : "", 100 * found->coverage,
            units[rival].words, 100 * all->unit[rival].coverage, found->scale[0] / all->unit[rival].scale[0], parameter,
            units[rival].parameter);
    else if (found->coverage < full)
        snprintf(found->warning, sizeof found->warning,
                 "The trajectory, in %s, covers %.3g %% of the encoded k-space: the image shows less detail than its "
                 "matrix holds. If that is not meant, traj_units (%s) or the header's matrix and field of view are not "
                 "the trajectory's, and everything appears in the wrong size.",
                 words, 100 * found->coverage, parameter);
}

int traj_unit_find(enum traj_unit asked, int dim, const int n[3], const double fov_m[3], size_t samples, int stride,
                   const float *k, struct traj_unit_found *found)
{
    if (dim < 2 || dim > 3 || stride < dim)
        return err_set(ERR_TRAJ_DIMENSIONS,
                       "A trajectory of %d columns cannot hold %d dimensions; 2 or 3 dimensions are supported.", stride,
                       dim);
    if (samples == 0)
        return err_set(ERR_TRAJ_MISSING, "The trajectory has no samples.");
    double largest[3] = {0};
    int rc = extent(dim, samples, stride, k, largest);
    if (rc)
        return rc;
    if (largest[0] == 0 && largest[1] == 0 && largest[2] == 0)
        return err_set(ERR_TRAJ_MISSING,
                       "All %zu samples of the trajectory are at k = 0: it was probably never filled in.", samples);

    struct readings all = {.n = n};
    extent_text(dim, largest, all.seen);
    matrix_text(dim, n, all.matrix);
    for (enum traj_unit u = TRAJ_UNIT_PIXEL; u < TRAJ_UNITS; u++)
        read_as(u, dim, n, fov_m, largest, &all.unit[u]);

    enum traj_unit unit = asked, rival = TRAJ_UNIT_AUTO;
    rc = asked == TRAJ_UNIT_AUTO ? choose(&all, &unit, &rival) : check_asked(&all, asked);
    if (rc)
        return rc;
    *found = (struct traj_unit_found){.unit = unit, .coverage = all.unit[unit].coverage};
    for (int d = 0; d < 3; d++)
        found->scale[d] = all.unit[unit].scale[d];
    reason_write(&all, asked, found);
    warning_write(&all, rival, found);
    return 0;
}
