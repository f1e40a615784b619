#include "gridding/traj.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

/* How straight, central and even readouts must be for the analytic weights to hold, as fractions of the largest |k|. */
static const double bend = 0.005;        /* a sample's distance from its spoke */
static const double hole = 0.05;         /* the smallest |k| of a readout */
static const double one_sided = 0.1;     /* a centre-out spoke reaches at most this far to the other side, ... */
static const double two_sided = 0.85;    /* ... a full one at least this far (partial echoes lie between) */
static const double uneven = 3;          /* largest gap between neighbouring directions, in mean gaps (2-D) */
static const double off_ellipsoid = 0.1; /* spread of the ends' squared distance about a common ellipsoid (3-D) */
static const double arms_differ = 0.02;  /* |k| of one arm against another's at the same sample */
static const double least_turn = 0.5;    /* radians a spiral turns by */

enum { LEAST_SPOKES_2D = 8, LEAST_SPOKES_3D = 32 };

/* One readout taken as a line through 0. */
struct spoke {
    double direction[3]; /* unit vector to its farthest sample */
    double low, high;    /* extent along it, low <= 0 < high where there is another side */
    double nearest;      /* smallest |k| */
    double off;          /* largest distance of a sample from the line */
};

/* A place on a spoke, to be sorted. */
struct place {
    double at;
    size_t sample;
};

static double norm(int dim, const float *k)
{
    double sum = 0;
    for (int d = 0; d < dim; d++)
        sum += (double)k[d] * k[d];
    return sqrt(sum);
}

static void spoke_fit(int dim, size_t samples, const float *k, struct spoke *spoke)
{
    size_t farthest = 0;
    double most = 0;
    *spoke = (struct spoke){.nearest = INFINITY};
    for (size_t i = 0; i < samples; i++) {
        double r = norm(dim, k + i * (size_t)dim);
        spoke->nearest = fmin(spoke->nearest, r);
        if (r > most) {
            most = r;
            farthest = i;
        }
    }
    for (int d = 0; d < dim && most > 0; d++)
        spoke->direction[d] = k[farthest * (size_t)dim + (size_t)d] / most;
    for (size_t i = 0; i < samples; i++) {
        double at = 0, off = 0;
        for (int d = 0; d < dim; d++)
            at += k[i * (size_t)dim + (size_t)d] * spoke->direction[d];
        for (int d = 0; d < dim; d++) {
            double rest = k[i * (size_t)dim + (size_t)d] - at * spoke->direction[d];
            off += rest * rest;
        }
        spoke->low = fmin(spoke->low, at);
        spoke->high = fmax(spoke->high, at);
        spoke->off = fmax(spoke->off, sqrt(off));
    }
}

static bool has_other_side(const struct spoke *spoke)
{
    return -spoke->low > one_sided * spoke->high;
}

static int place_order(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->sample < b->sample ? -1 : a->sample > b->sample;
}

/* By place. Samples mostly come in order, forwards or backwards, and are then not sorted. */
static void order_places(size_t count, struct place *places)
{
    if (count > 1 && places[0].at > places[count - 1].at)
        for (size_t i = 0; i < count / 2; i++) {
            struct place swap = places[i];
            places[i] = places[count - 1 - i];
            places[count - 1 - i] = swap;
        }
    for (size_t i = 1; i < count; i++)
        if (places[i].at < places[i - 1].at) {
            qsort(places, count, sizeof *places, place_order);
            return;
        }
}

/* ---- 2-D: the angle each half-spoke owns ---- */

/* angles[2 r] of spoke r's farther side, angles[2 r + 1] of its other side (or none). Directions are Voronoi cells on
 * the circle; those that fall together share theirs. wedge[2 readouts] is 0 where there is no half-spoke. Returns the
 * largest wedge in mean wedges, or -1 without memory. */
static double wedges(size_t readouts, const struct spoke *spokes, double *wedge)
{
    struct place *halves = malloc(2 * readouts * sizeof *halves);
    if (halves == NULL)
        return -1;
    size_t count = 0;
    for (size_t r = 0; r < readouts; r++) {
        double angle = atan2(spokes[r].direction[1], spokes[r].direction[0]);
        halves[count++] = (struct place){angle, 2 * r};
        wedge[2 * r + 1] = 0;
        if (has_other_side(&spokes[r]))
            halves[count++] = (struct place){angle > 0 ? angle - M_PI : angle + M_PI, 2 * r + 1};
    }
    qsort(halves, count, sizeof *halves, place_order);
    double together = 1e-3 * 2 * M_PI / (double)count, largest = 0;
    for (size_t first = 0, last; first < count; first = last) {
        for (last = first + 1; last < count && halves[last].at - halves[first].at < together; last++)
            ;
        double before = first > 0 ? halves[first - 1].at : halves[count - 1].at - 2 * M_PI;
        double after = last < count ? halves[last].at : halves[0].at + 2 * M_PI;
        double own =
            (after - before - (halves[last - 1].at - halves[first].at)) / 2 + halves[last - 1].at - halves[first].at;
        largest = fmax(largest, own);
        for (size_t i = first; i < last; i++)
            wedge[halves[i].sample] = own / (double)(last - first);
    }
    free(halves);
    return largest * (double)count / (2 * M_PI);
}

/* ---- 3-D: spokes spread evenly over a sphere, or over an ellipsoid where the voxels are not cubes ---- */

static double determinant(const double m[3][3])
{
    return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
           m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

static double cofactor(const double m[3][3], int i, int j)
{
    int a = (i + 1) % 3, b = (i + 2) % 3, c = (j + 1) % 3, d = (j + 2) % 3;
    return m[a][c] * m[b][d] - m[a][d] * m[b][c];
}

/* The volume of the ellipsoid on which the ends e of evenly spread spokes lie: their mean of e e^T is A A^T / 3 where A
 * maps the unit sphere to it. `spread` receives the relative spread of the ends about it. */
static double ellipsoid(size_t readouts, const struct spoke *spokes, double *spread)
{
    double moment[3][3] = {{0}};
    for (size_t r = 0; r < readouts; r++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                moment[i][j] += 3 * spokes[r].high * spokes[r].high * spokes[r].direction[i] * spokes[r].direction[j] /
                                (double)readouts;
    double det = determinant(moment), squares = 0;
    *spread = INFINITY;
    if (!(det > 0))
        return 0;
    for (size_t r = 0; r < readouts; r++) {
        double q = 0;
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                q += spokes[r].high * spokes[r].high * spokes[r].direction[i] * spokes[r].direction[j] *
                     cofactor(moment, i, j) / det;
        squares += (q - 1) * (q - 1);
    }
    *spread = sqrt(squares / (double)readouts);
    return 4.0 / 3.0 * M_PI * sqrt(det);
}

/* ---- shapes ---- */

static bool is_radial(int dim, size_t readouts, const struct spoke *spokes)
{
    double most = 0, spread;
    size_t full = 0;
    for (size_t r = 0; r < readouts; r++) {
        most = fmax(most, spokes[r].high);
        full += has_other_side(&spokes[r]);
    }
    if (readouts < (size_t)(dim == 2 ? LEAST_SPOKES_2D : LEAST_SPOKES_3D) || most == 0 ||
        (full != 0 && full != readouts))
        return false;
    for (size_t r = 0; r < readouts; r++)
        if (spokes[r].off > bend * most || spokes[r].nearest > hole * most || spokes[r].high < most / 3 ||
            (full != 0 && -spokes[r].low < two_sided * spokes[r].high))
            return false;
    if (dim == 3)
        return ellipsoid(readouts, spokes, &spread) > 0 && spread < off_ellipsoid;
    double *wedge = malloc(2 * readouts * sizeof *wedge);
    double largest = wedge != NULL ? wedges(readouts, spokes, wedge) : -1;
    free(wedge);
    return largest > 0 && largest < uneven;
}

/* Arms alike but for their angle: only then does Meyer's weight, which sees one arm at a time, know the distance to the
 * next. */
static bool is_spiral(size_t readouts, size_t samples, const float *k)
{
    double most = 0;
    for (size_t i = 0; i < samples; i++)
        most = fmax(most, norm(2, k + 2 * i));
    bool outward = true, alike = true;
    double turn = 0, reached = 0;
    for (size_t i = 0; i < samples; i++) {
        double r = norm(2, k + 2 * i);
        outward = outward && r > reached - hole * most;
        reached = fmax(reached, r);
        for (size_t a = 1; a < readouts && alike; a++)
            alike = fabs(norm(2, k + 2 * (a * samples + i)) - r) < arms_differ * most;
        if (i > 0)
            turn += atan2((double)k[2 * i + 1] * k[2 * i - 2] - (double)k[2 * i] * k[2 * i - 1],
                          (double)k[2 * i] * k[2 * i - 2] + (double)k[2 * i + 1] * k[2 * i - 1]);
    }
    return most > 0 && norm(2, k) < hole * most && outward && alike && fabs(turn) > least_turn;
}

static struct spoke *spokes_create(int dim, size_t readouts, size_t samples, const float *k)
{
    struct spoke *spokes = malloc(readouts * sizeof *spokes);
    if (spokes != NULL) {
#pragma omp parallel for schedule(static)
        for (size_t r = 0; r < readouts; r++)
            spoke_fit(dim, samples, k + r * samples * (size_t)dim, &spokes[r]);
    }
    return spokes;
}

enum traj_shape traj_shape_find(int dim, size_t readouts, size_t samples, const float *k)
{
    if (readouts == 0 || samples < 4)
        return TRAJ_SHAPE_UNKNOWN;
    struct spoke *spokes = spokes_create(dim, readouts, samples, k);
    bool radial = spokes != NULL && is_radial(dim, readouts, spokes);
    free(spokes);
    if (radial)
        return TRAJ_SHAPE_RADIAL;
    return dim == 2 && is_spiral(readouts, samples, k) ? TRAJ_SHAPE_SPIRAL : TRAJ_SHAPE_UNKNOWN;
}

/* ---- weights ---- */

/* The integral of F over k-space along one half-spoke is the integral of c t^(dim - 1) F(t) dt, c being its wedge (2-D)
 * or solid angle (3-D). F is smooth, so the plain sum over samples spaced h with weights c t^(dim - 1) h is exact but
 * for the integrand's kink at t = 0, where Euler and Maclaurin ask for c h^dim B_dim(first t / h) / dim more, B being
 * Bernoulli's polynomials. A sample at k = 0 of full 2-D spokes so gets 2/3 of its disc, pi h^2 / 6 over all spokes.
 * (Areas of cells instead leave 3 % of the image's scale in error.) */
static double kink(int dim, double first, double h)
{
    double at = fmin(first / h, 1);
    return dim == 2 ? h * h * (at * at - at + 1.0 / 6) / 2 : h * h * h * (at * at * at - 1.5 * at * at + 0.5 * at) / 3;
}

/* Samples nearer than this to each other share one place. */
static size_t same_place(size_t samples, const struct place *places, double together, size_t first)
{
    size_t last = first + 1;
    while (last < samples && places[last].at - places[first].at < together)
        last++;
    return last;
}

/* Weights of one spoke from its samples' places along it; `content` is c of its farther and its other side. */
static void spoke_weights(int dim, const struct spoke *spoke, const double content[2], size_t samples,
                          struct place *places, float *weights)
{
    order_places(samples, places);
    double together = 1e-4 * (spoke->high - spoke->low) / (double)samples;
    for (size_t first = 0, before = 0, last; first < samples; before = first, first = last) {
        last = same_place(samples, places, together, first);
        size_t after = last < samples ? last : first;
        double at = places[first].at;
        /* At an end as far out as in. */
        double in = first > 0 ? at - places[before].at : places[after].at - at;
        double out = after > first ? places[after].at - at : in;
        double weight = content[at < 0] * (dim == 2 ? fabs(at) : at * at) * (in + out) / 2;
        bool lowest = first == 0 || places[before].at < -together,
             highest = last == samples || places[after].at > together;
        if (at > -together && lowest && out > 0)
            weight += content[0] * kink(dim, fabs(at), out);
        if (at < together && highest && in > 0)
            weight += content[1] * kink(dim, fabs(at), in);
        for (size_t i = first; i < last; i++)
            weights[places[i].sample] = (float)(weight / (double)(last - first));
    }
}

/* content[2 r], content[2 r + 1]: c of the two sides of spoke r. */
static int spoke_contents(int dim, size_t readouts, const struct spoke *spokes, double *content)
{
    if (dim == 2)
        return wedges(readouts, spokes, content) < 0 ? -1 : 0;
    double spread, volume = ellipsoid(readouts, spokes, &spread);
    size_t halves = 0;
    for (size_t r = 0; r < readouts; r++)
        halves += has_other_side(&spokes[r]) ? 2 : 1;
    for (size_t r = 0; r < readouts; r++) {
        content[2 * r] = 3 * volume / (double)halves / pow(spokes[r].high, 3);
        content[2 * r + 1] = has_other_side(&spokes[r]) ? content[2 * r] : 0;
    }
    return 0;
}

static int radial_weights(int dim, size_t readouts, size_t samples, const float *k, float *weights)
{
    struct spoke *spokes = spokes_create(dim, readouts, samples, k);
    double *content = malloc(2 * readouts * sizeof *content);
    int failed = spokes == NULL || content == NULL || spoke_contents(dim, readouts, spokes, content) != 0;
    if (failed)
        goto out;
#pragma omp parallel reduction(| : failed)
    {
        struct place *places = malloc(samples * sizeof *places);
        failed |= places == NULL;
#pragma omp for schedule(static)
        for (size_t r = 0; r < readouts; r++) {
            if (places == NULL)
                continue;
            for (size_t i = 0; i < samples; i++) {
                const float *at = k + (r * samples + i) * (size_t)dim;
                double along = 0;
                for (int d = 0; d < dim; d++)
                    along += at[d] * spokes[r].direction[d];
                places[i] = (struct place){along, i};
            }
            spoke_weights(dim, &spokes[r], content + 2 * r, samples, places, weights + r * samples);
        }
        free(places);
    }
out:
    free(content);
    free(spokes);
    return failed ? err_set(ERR_NO_MEMORY, "No memory for the density weights of %zu readouts.", readouts) : 0;
}

/* Arms alike but for their angle cross each circle once each, so a sample owns 2 pi / arms of an annulus, as on a spoke
 * of that wedge. For Archimedean arms |k| d|k| is Meyer's |g| |sin(angle g - angle k)| times the pitch; taken from |k|
 * it also holds where the pitch changes (Hoge 1997, doi:10.1002/mrm.1910380117), and near the centre, where samples are
 * too far apart for differences of g. */
static int spiral_weights(size_t readouts, size_t samples, const float *k, float *weights)
{
    struct place *places = malloc(samples * sizeof *places);
    if (places == NULL)
        return err_set(ERR_NO_MEMORY, "No memory for the density weights of %zu samples.", samples);
    double wedge[2] = {2 * M_PI / (double)readouts, 0};
    for (size_t r = 0; r < readouts; r++) {
        struct spoke arm = {.low = 0};
        for (size_t i = 0; i < samples; i++) {
            places[i] = (struct place){norm(2, k + 2 * (r * samples + i)), i};
            arm.high = fmax(arm.high, places[i].at);
        }
        spoke_weights(2, &arm, wedge, samples, places, weights + r * samples);
    }
    free(places);
    return 0;
}

int dcf_analytic(enum traj_shape shape, int dim, size_t readouts, size_t samples, const float *k, float *weights)
{
    if (readouts == 0 || samples < 2)
        return err_set(ERR_DCF_INVALID, "Density weights need readouts of at least 2 samples, not %zu of %zu.",
                       readouts, samples);
    int code;
    if (shape == TRAJ_SHAPE_RADIAL && (dim == 2 || dim == 3))
        code = radial_weights(dim, readouts, samples, k, weights);
    else if (shape == TRAJ_SHAPE_SPIRAL && dim == 2)
        code = spiral_weights(readouts, samples, k, weights);
    else
        code = err_set(
            ERR_DCF_INVALID,
            "There is no formula for the density weights of this %d-D trajectory, which is neither radial nor a 2-D "
            "spiral from the centre. Pass dcf=pipe.",
            dim);
    if (code != 0)
        return code;
    double sum = 0;
    for (size_t m = 0; m < readouts * samples; m++)
        sum += weights[m];
    if (!(sum > 0) || !isfinite(sum))
        return err_set(ERR_DCF_INVALID,
                       "The density weights of this trajectory sum to %g: its samples do not spread over k-space.",
                       sum);
    return 0;
}
