/* Recognises readouts that are spokes or arms with an analytic formula, and finds the part of k-space that each owns.
 */
#include "gridding/traj/dcf_shape.h"

#include <math.h>
#include <stdlib.h>

/* How straight, central and even readouts must be for the analytic weights to hold, as fractions of the largest |k|. */
static const double bend = 0.005;       /* a sample's distance from its spoke */
static const double hole = 0.05;        /* the smallest |k| of a readout */
static const double one_sided = 0.1;    /* a centre-out spoke reaches at most this far to the other side, ... */
static const double two_sided = 0.85;   /* ... a full one at least this far (partial echoes lie between) */
static const double ends_differ = 0.03; /* spokes' ends on one circle differ by at most this share of the largest |k| */
static const double shortest = 1.0 / 3; /* extent of a spoke's longer side */
static const double uneven = 3;         /* largest gap between neighbouring directions, in mean gaps (2-D) */
static const double off_ellipsoid = 0.1; /* spread of the ends' squared distance about a common ellipsoid (3-D) */
static const double arms_differ = 0.02;  /* |k| of one arm against another's at the same sample ... */
static const double arms_turned = 0.05;  /* ... and its place, once turned */
static const double least_turn = 0.5;    /* radians a spiral turns by */
static const double cones_apart = 3;     /* largest gap between neighbouring cones, in mean gaps */

static const double parallel = 0.05; /* sine of the angle between spokes that are one line */

enum { LEAST_SPOKES_3D = 32, LEAST_CONES = 4 };

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

int dcf_place_order(const void *left, const void *right)
{
    const struct dcf_place *a = left, *b = right;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->sample < b->sample ? -1 : a->sample > b->sample;
}

/* ---- 2-D: the angle that each half-spoke or arm owns ---- */

/* Voronoi cells on the circle of directions[count], which are sorted; coinciding directions share their cell. wedge[]
 * is indexed by directions[].sample. Returns the largest gap in mean gaps, counting coinciding directions once. */
static double wedges(size_t count, struct dcf_place *directions, double *wedge)
{
    qsort(directions, count, sizeof *directions, dcf_place_order);
    /* Begin after the largest gap, so that no group of coinciding directions is cut. */
    size_t begin = 0, cells = 0;
    double gap = directions[0].at + 2 * M_PI - directions[count - 1].at;
    for (size_t i = 1; i < count; i++)
        if (directions[i].at - directions[i - 1].at > gap) {
            begin = i;
            gap = directions[i].at - directions[i - 1].at;
        }
    for (size_t i = 0; i < begin; i++)
        directions[i].at += 2 * M_PI;
    qsort(directions, count, sizeof *directions, dcf_place_order);
    double together = 1e-3 * 2 * M_PI / (double)count;
    for (size_t first = 0, last; first < count; first = last, cells++) {
        for (last = first + 1; last < count && directions[last].at - directions[first].at < together; last++)
            ;
        double before = first > 0 ? directions[first - 1].at : directions[count - 1].at - 2 * M_PI;
        double after = last < count ? directions[last].at : directions[0].at + 2 * M_PI;
        double own = (after - before + directions[last - 1].at - directions[first].at) / 2;
        for (size_t i = first; i < last; i++)
            wedge[directions[i].sample] = own / (double)(last - first);
    }
    return gap * (double)cells / (2 * M_PI);
}

static double reach(const struct spoke *spokes, size_t half)
{
    const struct spoke *spoke = &spokes[half / 2];
    return half % 2 == 0 ? spoke->high : has_other_side(spoke) ? -spoke->low : 0;
}

static int sectors_alloc(struct sectors *sectors, size_t readouts)
{
    *sectors = (struct sectors){.memory = calloc(MOST_ZONES * 2 * readouts, sizeof(double))};
    for (size_t z = 0; z < MOST_ZONES && sectors->memory; z++)
        sectors->content[z] = sectors->memory + z * 2 * readouts;
    return sectors->memory ? 0 : -1;
}

/* The radii at which zones end: extents that differ by less than `alike` of the largest count as one. Returns false if
 * there are too many. */
static bool zones_find(size_t readouts, const struct spoke *spokes, double alike, struct dcf_place *sorted,
                       struct sectors *sectors)
{
    size_t count = 0;
    double start = 0;
    for (size_t h = 0; h < 2 * readouts; h++)
        if (reach(spokes, h) > 0)
            sorted[count++] = (struct dcf_place){reach(spokes, h), h};
    qsort(sorted, count, sizeof *sorted, dcf_place_order);
    sectors->zones = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || sorted[i].at - start > alike * sorted[count - 1].at) {
            if (sectors->zones == MOST_ZONES)
                return false;
            start = sorted[i].at;
            sectors->zones++;
        }
        sectors->until[sectors->zones - 1] = sorted[i].at;
    }
    return true;
}

/* The wedges of the half-spokes that reach into each zone. Returns false if they are too uneven. */
static bool zones_fill(size_t readouts, const struct spoke *spokes, struct dcf_place *directions,
                       struct sectors *sectors)
{
    bool even = true;
    for (int z = 0; z < sectors->zones && even; z++) {
        size_t count = 0;
        for (size_t h = 0; h < 2 * readouts; h++) {
            double angle = atan2(spokes[h / 2].direction[1], spokes[h / 2].direction[0]);
            if (reach(spokes, h) > (z > 0 ? sectors->until[z - 1] : 0))
                directions[count++] = (struct dcf_place){h % 2 == 0  ? angle
                                                         : angle > 0 ? angle - M_PI
                                                                     : angle + M_PI,
                                                         h};
        }
        even = wedges(count, directions, sectors->content[z]) < uneven;
    }
    return even;
}

/* The wedges of 2-D spokes, zone by zone. If the two sides of full spokes differ slightly, the excess of the longer
 * side is a zone only if the spokes go all around. Returns 1; 0 if the spokes are too uneven or end at too many radii;
 * -1 without memory. */
static int sectors_2d(size_t readouts, const struct spoke *spokes, struct sectors *sectors)
{
    struct dcf_place *sorted = malloc(2 * readouts * sizeof *sorted);
    if (!sorted)
        return -1;
    bool even =
        zones_find(readouts, spokes, ends_differ, sorted, sectors) && zones_fill(readouts, spokes, sorted, sectors);
    if (!even)
        even = zones_find(readouts, spokes, 1 - two_sided, sorted, sectors) &&
               zones_fill(readouts, spokes, sorted, sectors);
    free(sorted);
    return even;
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

static int sectors_3d(size_t readouts, const struct spoke *spokes, struct sectors *sectors)
{
    double spread, volume = ellipsoid(readouts, spokes, &spread), *content = sectors->content[0];
    size_t halves = 0;
    sectors->zones = 1;
    for (size_t r = 0; r < readouts; r++)
        halves += has_other_side(&spokes[r]) ? 2 : 1;
    for (size_t r = 0; r < readouts; r++) {
        content[2 * r] = 3 * volume / (double)halves / pow(spokes[r].high, 3);
        content[2 * r + 1] = has_other_side(&spokes[r]) ? content[2 * r] : 0;
    }
    return 1;
}

int dcf_sectors(int dim, size_t readouts, const struct spoke *spokes, struct sectors *sectors)
{
    if (sectors_alloc(sectors, readouts) != 0)
        return -1;
    return dim == 2 ? sectors_2d(readouts, spokes, sectors) : sectors_3d(readouts, spokes, sectors);
}

/* ---- shapes ---- */

static bool is_radial(int dim, size_t readouts, const struct spoke *spokes)
{
    double most = 0, spread, opened = 0;
    size_t full = 0;
    for (size_t r = 0; r < readouts; r++) {
        const double *first = spokes[0].direction, *other = spokes[r].direction;
        most = fmax(most, spokes[r].high);
        full += has_other_side(&spokes[r]);
        opened = fmax(opened, fabs(first[0] * other[1] - first[1] * other[0]));
    }
    if (most == 0 || (dim == 2 && opened < parallel) ||
        (dim == 3 && (readouts < LEAST_SPOKES_3D || (full != 0 && full != readouts))))
        return false;
    for (size_t r = 0; r < readouts; r++)
        if (spokes[r].off > bend * most || spokes[r].nearest > hole * most || spokes[r].high < shortest * most ||
            (dim == 3 && full != 0 && -spokes[r].low < two_sided * spokes[r].high))
            return false;
    if (dim == 3)
        return ellipsoid(readouts, spokes, &spread) > 0 && spread < off_ellipsoid;
    struct sectors sectors;
    bool even = dcf_sectors(2, readouts, spokes, &sectors) > 0;
    free(sectors.memory);
    return even;
}

/* The angle by which arm k is rotated against arm `first`. */
static double arm_turn(size_t samples, const float *first, const float *k)
{
    double along = 0, across = 0;
    for (size_t i = 0; i < samples; i++) {
        along += (double)k[2 * i] * first[2 * i] + (double)k[2 * i + 1] * first[2 * i + 1];
        across += (double)k[2 * i + 1] * first[2 * i] - (double)k[2 * i] * first[2 * i + 1];
    }
    return atan2(across, along);
}

static bool arm_alike(size_t samples, const float *first, const float *k, double turn, double most)
{
    double c = cos(turn), s = sin(turn);
    for (size_t i = 0; i < samples; i++) {
        double x = c * first[2 * i] - s * first[2 * i + 1], y = s * first[2 * i] + c * first[2 * i + 1];
        if (fabs(norm(2, k + 2 * i) - norm(2, first + 2 * i)) >= arms_differ * most ||
            hypot(k[2 * i] - x, k[2 * i + 1] - y) >= arms_turned * most)
            return false;
    }
    return true;
}

int dcf_arm_wedges(size_t readouts, size_t samples, const float *k, double *wedge)
{
    struct dcf_place *turns = malloc(readouts * sizeof *turns);
    if (!turns)
        return -1;
    for (size_t r = 0; r < readouts; r++)
        turns[r] = (struct dcf_place){arm_turn(samples, k, k + 2 * r * samples), r};
    bool even = wedges(readouts, turns, wedge) < uneven;
    free(turns);
    return even;
}

/* Whether arms differ only by a rotation: otherwise Meyer's weight, which uses one arm at a time, does not know the
 * distance to the next. */
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
        if (i > 0)
            turn += atan2((double)k[2 * i + 1] * k[2 * i - 2] - (double)k[2 * i] * k[2 * i - 1],
                          (double)k[2 * i] * k[2 * i - 2] + (double)k[2 * i + 1] * k[2 * i - 1]);
    }
    if (most == 0 || norm(2, k) >= hole * most || !outward || fabs(turn) <= least_turn)
        return false;
    for (size_t r = 1; r < readouts && alike; r++) {
        const float *arm = k + 2 * r * samples;
        alike = arm_alike(samples, k, arm, arm_turn(samples, k, arm), most);
    }
    double *wedge = malloc(readouts * sizeof *wedge);
    alike = alike && wedge && dcf_arm_wedges(readouts, samples, k, wedge) > 0;
    free(wedge);
    return alike;
}

struct spoke *dcf_spokes(int dim, size_t readouts, size_t samples, const float *k)
{
    struct spoke *spokes = malloc(readouts * sizeof *spokes);
    if (spokes) {
#pragma omp parallel for schedule(static) if (readouts * samples > DCF_ALONE)
        for (size_t r = 0; r < readouts; r++)
            spoke_fit(dim, samples, k + r * samples * (size_t)dim, &spokes[r]);
    }
    return spokes;
}

int dcf_cone_shares(size_t readouts, const struct spoke *spokes, double *content)
{
    struct dcf_place *polar = malloc(readouts * sizeof *polar), *azimuth = malloc(readouts * sizeof *azimuth);
    double *wedge = malloc(readouts * sizeof *wedge);
    size_t cones = 0;
    bool even = true;
    if (!polar || !azimuth || !wedge) {
        free(wedge);
        free(azimuth);
        free(polar);
        return -1;
    }
    for (size_t r = 0; r < readouts; r++)
        polar[r] = (struct dcf_place){acos(fmax(-1, fmin(1, spokes[r].direction[2]))), r};
    qsort(polar, readouts, sizeof *polar, dcf_place_order);
    double largest = 0, edge_before = 0, together = 1e-3; /* radians */
    for (size_t first = 0, last; first < readouts && even; first = last, cones++) {
        for (last = first + 1; last < readouts && polar[last].at - polar[first].at < together; last++)
            ;
        double edge_after = last < readouts ? (polar[first].at + polar[last].at) / 2 : M_PI;
        for (size_t i = first; i < last; i++) {
            const double *direction = spokes[polar[i].sample].direction;
            azimuth[i - first] = (struct dcf_place){atan2(direction[1], direction[0]), i - first};
        }
        even = wedges(last - first, azimuth, wedge) < uneven;
        for (size_t i = first; i < last; i++)
            content[polar[i].sample] = (cos(edge_before) - cos(edge_after)) * wedge[i - first];
        largest = fmax(largest, edge_after - edge_before);
        edge_before = edge_after;
    }
    even = even && cones >= LEAST_CONES && largest < cones_apart * M_PI / (double)cones;
    free(wedge);
    free(azimuth);
    free(polar);
    return even;
}

/* Each readout starts at 0 and runs along a cone about the z axis, and all end on one sphere; the cones fill the
 * sphere, without a large gap between cones, at the poles, or between the arms of one cone. */
static bool is_cones(size_t readouts, size_t samples, const float *k, const struct spoke *spokes)
{
    double most = 0;
    for (size_t r = 0; r < readouts; r++)
        most = fmax(most, spokes[r].high);
    for (size_t r = 0; r < readouts; r++) {
        const float *arm = k + 3 * r * samples;
        double reached = 0, cosine = spokes[r].direction[2];
        if (norm(3, arm) > hole * most || most - spokes[r].high > ends_differ * most)
            return false;
        for (size_t i = 0; i < samples; i++) {
            double at = norm(3, arm + 3 * i);
            if (at < reached - hole * most || fabs(arm[3 * i + 2] - cosine * at) > bend * most)
                return false;
            reached = fmax(reached, at);
        }
    }
    double *content = malloc(readouts * sizeof *content);
    bool even = content && dcf_cone_shares(readouts, spokes, content) > 0;
    free(content);
    return even;
}

enum traj_shape dcf_shape(int dim, size_t readouts, size_t samples, const float *k)
{
    if (readouts == 0 || samples < 4)
        return TRAJ_SHAPE_UNKNOWN;
    struct spoke *spokes = dcf_spokes(dim, readouts, samples, k);
    bool radial = spokes && is_radial(dim, readouts, spokes);
    bool cones = spokes && !radial && dim == 3 && is_cones(readouts, samples, k, spokes);
    free(spokes);
    if (radial || cones)
        return radial ? TRAJ_SHAPE_RADIAL : TRAJ_SHAPE_CONES;
    return dim == 2 && is_spiral(readouts, samples, k) ? TRAJ_SHAPE_SPIRAL : TRAJ_SHAPE_UNKNOWN;
}
