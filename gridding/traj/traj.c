#include "gridding/traj/traj.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

/* Full sampling of an object that fills the field of view needs neighbours no further apart than 1/N cycles per pixel
 * at the edge of k-space, |k| = 0.5. Along a readout samples are cheap, so there are twice as many. */
static const double edge = 0.5;
static const double readout_oversampling = 2;
static const double golden_angle = 1.9416110387254666; /* pi (sqrt 5 - 1) / 2, 111.246 degrees */
static const double pitch_margin = 1.1;             /* turns of a spiral are closer together than 1/N by this factor */
static const size_t most_samples = (size_t)1 << 31; /* of a trajectory */

enum { MOST_MATRIX = 2048 };

static const char *const names[] = {"radial", "golden", "spiral", "stack-of-stars", "kooshball", "cones"};

const char *traj_kind_name(enum traj_kind kind)
{
    return names[kind];
}

static int at_least(double value)
{
    return (int)fmax(1, ceil(value - 1e-9));
}

/* Position -0.5 .. of sample i of a spoke; i = count / 2 is k = 0 exactly. */
static double along(size_t i, size_t count)
{
    return ((double)i - (double)(count / 2)) / (double)count;
}

/* Golden-angle gaps have only two sizes, instead of three, if the number of spokes is a Fibonacci number; the largest
 * is then 1.17 times the mean. */
static int fibonacci_from(double least)
{
    int a = 1, b = 2;
    while (a < 1.17 * least) {
        int next = a + b;
        a = b;
        b = next;
    }
    return a;
}

/* Length of r = s, angle = a s for s = 0..r. */
static double curve_length(double a, double r)
{
    double x = a * r;
    return a < 1e-9 ? r : (x * sqrt(1 + x * x) + asinh(x)) / (2 * a);
}

/* The radius where that curve has the given length: Newton's method on a convex function, from its right end. */
static double curve_radius(double a, double length)
{
    double r = edge;
    for (int i = 0; i < 60; i++) {
        double step = (curve_length(a, r) - length) / sqrt(1 + a * a * r * r);
        r -= step;
        if (fabs(step) < 1e-15)
            break;
    }
    return fmax(r, 0);
}

/* ---- the number of readouts for full sampling ---- */

/* Turns of one arm of a spiral. */
static double spiral_turns(int n, int arms)
{
    return pitch_margin * n / (2.0 * arms);
}

static double cone_turns(int n)
{
    return n / 16.0;
}

/* The number of interleaves that fills the cone of this half-angle: neighbours are 2 pi r sin / M apart in azimuth,
 * measured across the curve's slope, and at the edge this must not exceed 1/N. */
static double cone_interleaves(int n, double sine)
{
    double turning = 2 * M_PI * cone_turns(n) * sine;
    return pitch_margin * n * M_PI * sine / sqrt(1 + turning * turning);
}

static int cone_count(int n)
{
    return at_least(M_PI * edge * n);
}

static double cones_up_to(int n, int cones, int count)
{
    double sum = 0;
    for (int c = 0; c < cones; c++)
        sum += cone_interleaves(n, sin((c + 0.5) * M_PI / count));
    return sum;
}

static int default_readouts(enum traj_kind kind, int n)
{
    switch (kind) {
    case TRAJ_RADIAL:
        return at_least(M_PI * edge * n);
    case TRAJ_GOLDEN:
    case TRAJ_STACK_OF_STARS:
        return fibonacci_from(M_PI * edge * n);
    case TRAJ_SPIRAL:
        return at_least(n / 8.0);
    case TRAJ_KOOSHBALL:
        return at_least(2 * M_PI * edge * edge * n * n);
    case TRAJ_CONES:
        return at_least(cones_up_to(n, cone_count(n), cone_count(n)));
    }
    return 1;
}

static int default_samples(enum traj_kind kind, int n, int readouts)
{
    switch (kind) {
    case TRAJ_SPIRAL:
        return at_least(readout_oversampling * n * curve_length(4 * M_PI * spiral_turns(n, readouts), edge)) + 1;
    case TRAJ_CONES:
        return at_least(readout_oversampling * n * curve_length(4 * M_PI * cone_turns(n), edge)) + 1;
    default:
        return (int)readout_oversampling * n;
    }
}

/* ---- the curves ---- */

static void spoke_2d(double angle, size_t samples, int dim, double kz, float *k)
{
    for (size_t i = 0; i < samples; i++) {
        double r = along(i, samples);
        k[i * (size_t)dim] = (float)(r * cos(angle));
        k[i * (size_t)dim + 1] = (float)(r * sin(angle));
        if (dim == 3)
            k[i * 3 + 2] = (float)kz;
    }
}

/* From 0 to the edge on the cone of polar angle acos(cosine) (0: the plane), sampled at uniform speed. */
static void curve(double azimuth, double turns, double sine, double cosine, size_t samples, int dim, float *k)
{
    double a = 4 * M_PI * turns; /* angle per radius */
    double length = curve_length(a * sine, edge);
    for (size_t i = 0; i < samples; i++) {
        double r = curve_radius(a * sine, samples > 1 ? length * (double)i / (double)(samples - 1) : 0);
        k[i * (size_t)dim] = (float)(r * sine * cos(azimuth + a * r));
        k[i * (size_t)dim + 1] = (float)(r * sine * sin(azimuth + a * r));
        if (dim == 3)
            k[i * 3 + 2] = (float)(r * cosine);
    }
}

static void kooshball_spoke(size_t spoke, size_t samples, float *k)
{
    /* The golden means of two dimensions, doi:10.1002/mrm.21166. */
    double z = fmod((double)spoke * 0.4655712318767680, 1),
           azimuth = 2 * M_PI * fmod((double)spoke * 0.6823278038280193, 1);
    double across = sqrt(1 - z * z);
    for (size_t i = 0; i < samples; i++) {
        double r = along(i, samples);
        k[3 * i] = (float)(r * across * cos(azimuth));
        k[3 * i + 1] = (float)(r * across * sin(azimuth));
        k[3 * i + 2] = (float)(r * z);
    }
}

/* Readouts are distributed over the cones in proportion to the need of each; the sum is exact. */
static void cones(int n, size_t readouts, size_t samples, float *k)
{
    int count = cone_count(n);
    double all = cones_up_to(n, count, count), sum = 0;
    size_t first = 0;
    for (int c = 0; c < count; c++) {
        double polar = (c + 0.5) * M_PI / count;
        sum += cone_interleaves(n, sin(polar));
        size_t last = c == count - 1 ? readouts : (size_t)llround((double)readouts * sum / all);
        for (size_t r = first; r < last; r++)
            curve(c * golden_angle + 2 * M_PI * (double)(r - first) / (double)(last - first), cone_turns(n), sin(polar),
                  cos(polar), samples, 3, k + 3 * r * samples);
        first = last;
    }
}

static void fill(const struct traj *traj, const struct traj_params *params, int n)
{
    size_t samples = traj->samples, stride = samples * (size_t)traj->dim;
    int arms = (int)traj->readouts;
    if (params->kind == TRAJ_CONES) {
        cones(n, traj->readouts, samples, traj->k);
        return;
    }
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < traj->readouts; r++) {
        float *k = traj->k + r * stride;
        switch (params->kind) {
        case TRAJ_RADIAL:
            spoke_2d(M_PI * (double)r / (double)traj->readouts, samples, 2, 0, k);
            break;
        case TRAJ_GOLDEN:
            spoke_2d(fmod((double)r * golden_angle, 2 * M_PI), samples, 2, 0, k);
            break;
        case TRAJ_STACK_OF_STARS: {
            size_t spokes = traj->readouts / (size_t)params->n[2];
            spoke_2d(fmod((double)(r % spokes) * golden_angle, 2 * M_PI), samples, 3,
                     along(r / spokes, (size_t)params->n[2]), k);
            break;
        }
        case TRAJ_SPIRAL:
            curve(2 * M_PI * (double)r / arms, spiral_turns(n, arms), 1, 0, samples, 2, k);
            break;
        default:
            kooshball_spoke(r, samples, k);
            break;
        }
    }
}

int traj_create(struct traj **out, const struct traj_params *params)
{
    enum traj_kind kind = params->kind;
    int dim = kind == TRAJ_RADIAL || kind == TRAJ_GOLDEN || kind == TRAJ_SPIRAL ? 2 : 3;
    int n = 0;
    for (int d = 0; d < dim; d++) {
        if (params->n[d] < 1 || params->n[d] > MOST_MATRIX)
            return err_set(ERR_BAD_PARAMETER, "A %s trajectory needs a matrix of 1 to %d pixels along %c, not %d.",
                           names[kind], MOST_MATRIX, "xyz"[d], params -> n[d]);
        /* In a stack, the spokes do not sample z. */
        if ((kind != TRAJ_STACK_OF_STARS || d < 2) && params->n[d] > n)
            n = params->n[d];
    }
    if (params->readouts < 0 || params->samples < 0)
        return err_set(ERR_BAD_PARAMETER, "A trajectory cannot have %d readouts of %d samples.", params->readouts,
                       params->samples);
    int readouts = params->readouts > 0 ? params->readouts : default_readouts(kind, n);
    int samples = params->samples > 0 ? params->samples : default_samples(kind, n, readouts);
    size_t all = (size_t)readouts, count, bytes;
    if (!(kind != TRAJ_STACK_OF_STARS || size_mul(all, (size_t)params->n[2], &all)) ||
        !size_mul(all, (size_t)samples, &count) || count > most_samples)
        return err_set(ERR_BAD_PARAMETER,
                       "A trajectory of %zu readouts of %d samples is too large; the limit is %zu samples.", all,
                       samples, most_samples);

    struct traj *traj = malloc(sizeof *traj);
    bytes = count * (size_t)dim * sizeof(float);
    if (traj)
        *traj = (struct traj){.dim = dim, .readouts = all, .samples = (size_t)samples, .k = malloc(bytes)};
    if (!traj || !traj->k) {
        traj_free(traj);
        return err_no_memory_bytes(bytes, "a trajectory of %zu samples", count);
    }
    fill(traj, params, n);
    *out = traj;
    return 0;
}

void traj_free(struct traj *traj)
{
    if (!traj)
        return;
    free(traj->k);
    free(traj);
}
