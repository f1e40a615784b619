/* Sums of limited range on a GPU at the sizes of docs/notebook/gpu.md: CutCP's potential and blobs cut to spheres and
 * to cubes, for evenly spread points, points of a Plummer sphere, and points all in one bin. One JSON line each:
 * wall-clock milliseconds, with everything on the device, for creating the points and for one sum (medians of 11); the
 * largest error of some nodes and its rms, relative to the rms of the exact sums; whether two runs gave the same bits.
 *
 *   bench_sums_gpu [share of the points, 1] [a word: only cases whose name has it] */
#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "recon/cutcp/cutcp_law.h"
#include "tests/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 11, PROBES = 60 };

enum spread { EVEN, PLUMMER, ONE_BIN };

struct problem {
    const char *name;
    enum spread spread;
    size_t count;
    int cells;
    double spacing;
    bool scaled;
    struct range_law law;
    double (*exact)(const struct range_law *law, const double away[3]);
};

static double potential(const struct range_law *law, const double away[3])
{
    const double r2 = away[0] * away[0] + away[1] * away[1] + away[2] * away[2], reach = law->params.reach;
    const double t = 1 - r2 / (reach * reach);
    return t > 0 ? t * t / sqrt(r2) : 0;
}

static double softened(const struct range_law *law, const double away[3])
{
    const double r2 = away[0] * away[0] + away[1] * away[1] + away[2] * away[2], reach = law->params.reach;
    const double t = 1 - r2 / (reach * reach);
    return t > 0 ? 1 / sqrt(r2) - cutcp_taylor2(&reach, t) : 0;
}

static double blob(const struct range_law *law, const double away[3])
{
    const double r2 = away[0] * away[0] + away[1] * away[1] + away[2] * away[2], reach = law->params.reach;
    return r2 < reach * reach ? exp(-law->rate * r2 / (reach * reach)) : 0;
}

static double cube(const struct range_law *law, const double away[3])
{
    const double r2 = away[0] * away[0] + away[1] * away[1] + away[2] * away[2], reach = law->params.reach;
    double most = 0;
    for (int d = 0; d < 3; d++)
        most = fmax(most, fabs(away[d]));
    return most < reach ? exp(-law->rate * r2 / (reach * reach)) : 0;
}

/* exp(-r^2 / (2 sigma^2)) cut off at 3 sigma, as a function of t. */
static double bell(const void *of, double t)
{
    (void)of;
    return exp(-4.5 * (1 - t));
}

static void *take(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory)
        exit(1);
    return memory;
}

static void must(int rc)
{
    if (rc) {
        fprintf(stderr, "%s\n", err_last()->text);
        exit(1);
    }
}

/* Van der Waals radii of half hydrogen, 30 % carbon, 12 % oxygen and 8 % nitrogen. u: uniform in [0, 1). */
static float radius_of(double u)
{
    return u < 0.5 ? 1.2f : u < 0.8 ? 1.7f : u < 0.92 ? 1.52f : 1.55f;
}

static void lay(const struct problem *p, double *at, float *scale, float *value)
{
    const double side = p->cells * p->spacing;
    for (size_t i = 0; i < p->count; i++) {
        const double u = uniform(8 * i), z = 2 * uniform(8 * i + 1) - 1, phi = 6.283185307179586 * uniform(8 * i + 2);
        const double r = fmin(0.48 * side, 0.05 * side / sqrt(pow(u, -2.0 / 3) - 1)), flat = sqrt(1 - z * z);
        const double sphere[3] = {side / 2 + r * flat * cos(phi), side / 2 + r * flat * sin(phi), side / 2 + r * z};
        for (size_t d = 0; d < 3; d++) {
            const double even = uniform(8 * i + 3 + d);
            at[3 * i + d] = p->spread == EVEN      ? even * side
                            : p->spread == PLUMMER ? sphere[d]
                                                   : side / 2 + 0.4 * p->law.params.reach * even;
        }
        scale[i] = radius_of(uniform(8 * i + 6));
        value[i] = (float)(p->law.params.form == RANGE_INVERSE ? 2 * uniform(8 * i + 7) - 1 : 1);
    }
}

static void error_of(const struct problem *p, const double *at, const float *scale, const float *value,
                     const float *grid, double error[2])
{
    double worst = 0, all = 0, errors = 0;
    const size_t n = (size_t)p->cells;
    for (int k = 0; k < PROBES; k++) {
        size_t node[3];
        double sum = 0;
        for (size_t d = 0; d < 3; d++)
            node[d] = p->spread == EVEN ? (size_t)(uniform((size_t)(3 * k) + d) * (double)n)
                                        : n / 2 + (size_t)(uniform((size_t)(3 * k) + d) * 10);
        for (size_t i = 0; i < p->count; i++) {
            double away[3];
            for (size_t d = 0; d < 3; d++)
                away[d] = ((double)node[d] * p->spacing - at[3 * i + d]) / (p->scaled ? (double)scale[i] : 1);
            sum += (double)value[i] * p->exact(&p->law, away);
        }
        const double off = sum - (double)grid[(node[2] * n + node[1]) * n + node[0]];
        worst = fmax(worst, fabs(off));
        errors += off * off;
        all += sum * sum;
    }
    error[0] = worst / sqrt(all / PROBES);
    error[1] = sqrt(errors / all);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *of)
{
    qsort(of, RUNS, sizeof *of, by_size);
    return of[RUNS / 2];
}

static void measure(const struct problem *p, struct dev *dev)
{
    const size_t nodes = (size_t)p->cells * (size_t)p->cells * (size_t)p->cells;
    double *at = take(3 * p->count, sizeof *at), made[RUNS], summed[RUNS];
    float *scale = take(p->count, sizeof *scale), *value = take(p->count, sizeof *value);
    float *grid[2] = {take(nodes, sizeof(float)), take(nodes, sizeof(float))};
    void *values = NULL, *sums = NULL;
    lay(p, at, scale, value);
    const struct range_points_params params = {.box = {3,
                                                       {p->cells, p->cells, p->cells},
                                                       {0, 0, 0},
                                                       {p->spacing, p->spacing, p->spacing},
                                                       {false, false, false}},
                                               .reach = p->law.params.reach * (p->scaled ? 1.7 : 1),
                                               .inputs = p->count,
                                               .at_double = at,
                                               .scale = p->scaled ? scale : NULL};
    must(dev_alloc(dev, p->count * sizeof *value, &values));
    must(dev_alloc(dev, nodes * sizeof(float), &sums));
    must(dev_upload(dev, values, value, p->count * sizeof *value));
    for (int run = 0; run < RUNS; run++) {
        struct range_points *points;
        const double start = clock_seconds();
        must(range_points_create(&points, dev, &params, NULL));
        const double middle = clock_seconds();
        must(range_scatter_set(points, &p->law, 1, values, sums, NULL));
        made[run] = middle - start;
        summed[run] = clock_seconds() - middle;
        range_points_free(points);
        if (run < 2)
            must(dev_download(dev, grid[run], sums, nodes * sizeof(float)));
    }
    double error[2];
    error_of(p, at, scale, value, grid[0], error);
    printf("{\"case\": \"%s\", \"points\": %zu, \"nodes\": %zu, \"points_ms\": %.3f, \"sum_ms\": %.3f, "
           "\"error\": %.2g, \"rms_error\": %.2g, \"same_bits\": %s}\n",
           p->name, p->count, nodes, 1e3 * median(made), 1e3 * median(summed), error[0], error[1],
           memcmp(grid[0], grid[1], nodes * sizeof(float)) ? "false" : "true");
    fflush(stdout);
    dev_release(dev, values);
    dev_release(dev, sums);
    free(at);
    free(scale);
    free(value);
    free(grid[0]);
    free(grid[1]);
}

static struct range_law gaussian_law(enum range_form form, double sigma, double tolerance)
{
    const struct range_law_params params = {.form = form, .reach = 3 * sigma, .error = 1e-6, .tolerance = tolerance};
    struct range_law law;
    must(range_law_make(&law, &params, bell, NULL));
    return law;
}

int main(int argc, char **argv)
{
    const double share = argc > 1 ? atof(argv[1]) : 1, blinn = 1 / sqrt(5);
    const size_t atoms = (size_t)(570000 * share), blobs = (size_t)(1677722 * share);
    struct dev *dev;
    struct range_law thesis, taylor2;
    must(dev_create(&dev, DEV_GPU, 0, 0));
    must(cutcp_law_make(&thesis, CUTCP_THESIS, 12));
    must(cutcp_law_make(&taylor2, CUTCP_TAYLOR2, 12));
    const struct problem problems[] = {
        {"cutcp", EVEN, atoms, 368, 0.5, false, thesis, potential},
        {"cutcp, taylor2", EVEN, atoms, 368, 0.5, false, taylor2, softened},
        {"cutcp, Plummer sphere", PLUMMER, atoms / 10, 368, 0.5, false, thesis, potential},
        {"cutcp, one bin", ONE_BIN, 400000, 200, 0.5, false, thesis, potential},
        {"blobs, spheres, sigma R", EVEN, blobs, 512, 0.5, true, gaussian_law(RANGE_RADIAL, 1, 0), blob},
        {"blobs, spheres, sigma R / sqrt 5", EVEN, blobs, 512, 0.5, true, gaussian_law(RANGE_RADIAL, blinn, 0), blob},
        {"blobs, cubes, sigma R", EVEN, blobs, 512, 0.5, true, gaussian_law(RANGE_SEPARABLE, 1, 0), cube},
        {"blobs, cubes, sigma R / sqrt 5", EVEN, blobs, 512, 0.5, true, gaussian_law(RANGE_SEPARABLE, blinn, 0), cube},
        {"blobs, cubes to 5e-4, sigma R", EVEN, blobs, 512, 0.5, true, gaussian_law(RANGE_SEPARABLE, 1, 5e-4), cube},
        {"blobs, cubes to 5e-4, sigma R / sqrt 5", EVEN, blobs, 512, 0.5, true,
         gaussian_law(RANGE_SEPARABLE, blinn, 5e-4), cube},
        {"blobs, cubes to 5e-4, Plummer sphere", PLUMMER, blobs / 10, 512, 0.5, true,
         gaussian_law(RANGE_SEPARABLE, 1, 5e-4), cube},
        {"blobs, spheres, Plummer sphere", PLUMMER, blobs / 10, 512, 0.5, true, gaussian_law(RANGE_RADIAL, 1, 0), blob},
    };
    printf("{\"device\": \"%s\"}\n", dev_name(dev));
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        if (argc < 3 || strstr(problems[i].name, argv[2]))
            measure(&problems[i], dev);
    dev_free(dev);
    return 0;
}
