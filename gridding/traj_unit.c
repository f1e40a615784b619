#include "gridding/traj.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>

/* What decides, as fractions of the encoded k-space along its best covered axis (1: |k| reaches its edge). Wrong units
 * give an image of the wrong size and nobody notices, so whatever two units could explain is refused. */
static const double edge = 1.02;         /* a trajectory may leave the encoded k-space by this */
static const double full = 0.9;          /* from here on it is called fully covered ... */
static const double partial = 0.2;       /* ... below, partly, and under this nobody samples so little */
static const double full_rival = 0.75;   /* beside full coverage in one unit, another is believed from here on ... */
static const double partial_rival = 0.2; /* ... beside partial coverage, from this part of it on */
static const double full_miss =
    1.25; /* a unit whose edge is passed by less than this may be meant, with a faulty scale */
static const double partial_miss = 2;

enum { UNITS = TRAJ_UNIT_PER_METRE + 1 };

static const struct {
    const char *parameter, *words;
} names[UNITS] = {
    [TRAJ_UNIT_AUTO] = {"auto", ""},
    [TRAJ_UNIT_PIXEL] = {"pixel", "cycles per pixel"},
    [TRAJ_UNIT_GRID] = {"grid", "cycles per field of view"},
    [TRAJ_UNIT_RADIANS] = {"radians", "radians per pixel"},
    [TRAJ_UNIT_PER_METRE] = {"per_metre", "cycles per metre"},
};

/* The trajectory as one unit reads it. */
struct reading {
    double scale[3];  /* to cycles per pixel */
    double coverage;  /* of the best covered axis */
    bool known, fits; /* can it be read so at all; does no axis leave k-space */
};

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

static void read_as(enum traj_unit unit, int dim, const int n[3], const double fov_m[3], const double largest[3],
                    struct reading *reading)
{
    *reading = (struct reading){.scale = {1, 1, 1}, .known = true, .fits = true};
    for (int d = 0; d < dim; d++) {
        switch (unit) {
        case TRAJ_UNIT_GRID:
            reading->scale[d] = 1.0 / n[d];
            break;
        case TRAJ_UNIT_RADIANS:
            reading->scale[d] = 0.5 / M_PI;
            break;
        case TRAJ_UNIT_PER_METRE:
            reading->known = reading->known && isfinite(fov_m[d]) && fov_m[d] > 0;
            reading->scale[d] = fov_m[d] / n[d];
            break;
        default:
            break;
        }
        double covered = largest[d] * reading->scale[d] / 0.5;
        reading->fits = reading->fits && covered <= edge;
        /* An axis of one pixel has no k-space to cover. */
        if ((n[d] > 1 || covered > edge) && covered > reading->coverage)
            reading->coverage = covered;
    }
}

/* "0.4998, 0.5 (kx, ky)" */
static const char *extent_text(int dim, const double largest[3], char text[96])
{
    if (dim == 2)
        snprintf(text, 96, "%.4g, %.4g (kx, ky)", largest[0], largest[1]);
    else
        snprintf(text, 96, "%.4g, %.4g, %.4g (kx, ky, kz)", largest[0], largest[1], largest[2]);
    return text;
}

static const char *matrix_text(int dim, const int n[3], char text[48])
{
    if (dim == 2)
        snprintf(text, 48, "%d x %d", n[0], n[1]);
    else
        snprintf(text, 48, "%d x %d x %d", n[0], n[1], n[2]);
    return text;
}

static bool rivals(double best, double other)
{
    if (best >= full)
        return other > edge ? other <= full_miss : other >= full_rival;
    return other > edge ? other <= partial_miss : other >= partial_rival * best;
}

/* The unit with the widest coverage that fits, and the unit that could be meant as well (AUTO: none). */
static enum traj_unit widest(const struct reading readings[UNITS], enum traj_unit *rival)
{
    enum traj_unit best = TRAJ_UNIT_AUTO;
    for (int u = TRAJ_UNIT_PIXEL; u < UNITS; u++)
        if (readings[u].known && readings[u].fits &&
            (best == TRAJ_UNIT_AUTO || readings[u].coverage > readings[best].coverage))
            best = (enum traj_unit)u;
    *rival = TRAJ_UNIT_AUTO;
    for (int u = TRAJ_UNIT_PIXEL; u < UNITS && best != TRAJ_UNIT_AUTO; u++)
        if (u != (int)best && readings[u].known && rivals(readings[best].coverage, readings[u].coverage))
            *rival = (enum traj_unit)u;
    return best;
}

static int choose(const struct reading readings[UNITS], const char *seen, const char *matrix, enum traj_unit *found)
{
    static const char advice[] = "Pass traj_units=pixel, grid, radians or per_metre.";
    enum traj_unit rival, best = widest(readings, &rival);
    if (best == TRAJ_UNIT_AUTO)
        return err_set(
            ERR_TRAJ_RANGE,
            "The largest |k| is %s: more than the encoded k-space of a %s matrix holds in any unit (cycles per "
            "pixel, per field of view or per metre, radians). Check the matrix and field of view in the header.",
            seen, matrix);
    double coverage = readings[best].coverage;
    if (coverage < partial)
        return err_set(
            ERR_TRAJ_AMBIGUOUS,
            "The largest |k| is %s: of the k-space of a %s matrix that is %.2g %% in %s, and no unit explains it "
            "better, so the unit cannot be told. %s",
            seen, matrix, 100 * coverage, names[best].words, advice);
    if (rival != TRAJ_UNIT_AUTO)
        return err_set(
            ERR_TRAJ_AMBIGUOUS,
            "The largest |k| is %s: of the k-space of a %s matrix that is %.3g %% in %s, but %.3g %% in %s, so the "
            "unit cannot be told. %s",
            seen, matrix, 100 * coverage, names[best].words, 100 * readings[rival].coverage, names[rival].words,
            advice);
    *found = best;
    return 0;
}

int traj_unit_find(enum traj_unit asked, int dim, const int n[3], const double fov_m[3], size_t samples, int stride,
                   const float *k, enum traj_unit *found, double scale[3], char *reason, size_t reason_size)
{
    if (dim < 2 || dim > 3 || stride < dim)
        return err_set(ERR_TRAJ_DIMENSIONS,
                       "A trajectory of %d columns cannot hold %d dimensions; 2 or 3 dimensions are supported.", stride,
                       dim);
    if (samples == 0)
        return err_set(ERR_TRAJ_MISSING, "The trajectory has no samples.");
    double largest[3] = {0};
    int code = extent(dim, samples, stride, k, largest);
    if (code != 0)
        return code;
    if (largest[0] == 0 && largest[1] == 0 && largest[2] == 0)
        return err_set(ERR_TRAJ_MISSING,
                       "All %zu samples of the trajectory are at k = 0: it was probably never filled in.", samples);

    char seen[96], matrix[48];
    extent_text(dim, largest, seen);
    matrix_text(dim, n, matrix);
    struct reading readings[UNITS];
    for (int u = TRAJ_UNIT_PIXEL; u < UNITS; u++)
        read_as((enum traj_unit)u, dim, n, fov_m, largest, &readings[u]);

    enum traj_unit unit = asked;
    if (asked == TRAJ_UNIT_AUTO) {
        code = choose(readings, seen, matrix, &unit);
        if (code != 0)
            return code;
    } else if (!readings[asked].known) {
        return err_set(ERR_BAD_PARAMETER,
                       "traj_units=per_metre needs the encoded field of view, which the header does not give.");
    } else if (!readings[asked].fits) {
        return err_set(
            ERR_TRAJ_RANGE,
            "The largest |k| is %s: in %s, as traj_units=%s says, that is %.3g %% of the k-space of a %s matrix, and "
            "more than %.0f %% is refused. Check traj_units and the header's matrix and field of view.",
            seen, names[asked].words, names[asked].parameter, 100 * readings[asked].coverage, matrix, 100 * edge);
    }
    *found = unit;
    for (int d = 0; d < 3; d++)
        scale[d] = readings[unit].scale[d];
    if (reason != NULL && reason_size > 0)
        snprintf(reason, reason_size, "The largest |k| is %s: %.3g %% of the k-space of a %s matrix in %s%s.", seen,
                 100 * readings[unit].coverage, matrix, names[unit].words,
                 asked == TRAJ_UNIT_AUTO ? "" : ", as asked for");
    return 0;
}
