/* Sums over pairs of points and counts of distances on a GPU: forces between bodies that are spread evenly, of a
 * Plummer sphere, half and half, and all in one bin. One JSON line each: milliseconds of wall-clock time, with
 * everything on the device, for creating the points, for the first sum (which sorts them into cells) and for one sum
 * (median of RUNS); pairs within the cut-off, and pairs per second; the largest error of some bodies' forces against
 * double precision, relative to the rms of forces; whether two runs gave the same bits.
 *
 *   bench_pairs_gpu [share of the points, 1] [positions.npy: float32 [n][3]; -: none] [a word: only cases whose name
 *                   has it] */
#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "tests/random.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 11, PROBES = 24 };

enum spread { EVEN, PLUMMER, HALF, ONE_BIN };

struct problem {
    const char *name;
    size_t count;
    double neighbours; /* within reach of an evenly spread point */
    double error;      /* of the fitted law */
    enum spread spread;
    bool potential;
    int bins; /* number of intervals for counts; 0: forces */
};

static void must(int rc)
{
    if (rc) {
        fprintf(stderr, "bench_pairs_gpu: %s\n", err_last()->text);
        exit(1);
    }
}

static void *take(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    if (!memory)
        exit(1);
    return memory;
}

/* Position i of Plummer's sphere (1911): radius a (u^(-2/3) - 1)^(-1/2), a = 0.05, around the middle of the box. */
static void sphere_place(size_t i, double to[3])
{
    const double u = uniform(3 * i), z = 2 * uniform(3 * i + 1) - 1, phi = 2 * M_PI * uniform(3 * i + 2);
    const double r = fmin(0.49, 0.05 / sqrt(pow(u, -2.0 / 3) - 1)), flat = sqrt(1 - z * z);
    to[0] = 0.5 + r * flat * cos(phi);
    to[1] = 0.5 + r * flat * sin(phi);
    to[2] = 0.5 + r * z;
}

/* Positions in a periodic box of side 1. */
static float *places(const struct problem *p)
{
    float *at = take(3 * p->count, sizeof *at);
    for (size_t i = 0; i < p->count; i++) {
        double place[3];
        if (p->spread == PLUMMER || (p->spread == HALF && i % 2))
            sphere_place(i, place);
        else
            for (size_t d = 0; d < 3; d++)
                place[d] = (p->spread == ONE_BIN ? 0.5 : 0) + (p->spread == ONE_BIN ? 0.001 : 1) * uniform(3 * i + d);
        for (size_t d = 0; d < 3; d++)
            at[3 * i + d] = fminf((float)place[d], 0.99999994f);
    }
    return at;
}

/* The long-range part, by erf, of the force of 1 / r, with 6 r_s = reach. */
static double far_force(const void *of, double t)
{
    const double root = 1.1283791670955126, reach = *(const double *)of, a = 3 / reach, r = reach * sqrt(1 - t);
    const double u = a * r, v = u * u;
    if (u < 0.2)
        return root * 2 / 3 * a * a * a * (1 - v * (3.0 / 5 - v * (3.0 / 14 - v * (1.0 / 18 - v / 88))));
    return (erf(u) - root * u * exp(-v)) / (r * r * r);
}

static double far_potential(const void *of, double t)
{
    const double reach = *(const double *)of, a = 3 / reach, u = 3 * sqrt(1 - t);
    return u < 1e-4 ? 1.1283791670955126 * a : erf(u) / u * a;
}

struct run {
    struct problem p;
    double reach, soft;
    float *at, *values;
    struct range_points *points;
    struct range_law force, potential;
    float *device_values, *vectors, *scalars;
};

static void sum(struct run *r)
{
    const struct range_pair_sums sums = {r->p.potential ? &r->potential : NULL, &r->force, r->scalars, r->vectors};
    must(range_pairs(r->points, r->points, &sums, 1, r->device_values, NULL));
}

static uint64_t count(struct run *r, int bins)
{
    double edge[1025];
    uint64_t counts[1024] = {0}, all = 0;
    for (int e = 0; e <= bins; e++)
        edge[e] = r->reach * e / bins;
    must(range_count(r->points, r->points, bins + 1, edge, counts, NULL));
    for (int e = 0; e < bins; e++)
        all += counts[e];
    return all;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double error_of(const struct run *r, const float *vectors)
{
    double worst = 0, square = 0;
    const size_t n = r->p.count;
    for (size_t i = 0; i < 3 * n; i++)
        square += (double)vectors[i] * (double)vectors[i];
    for (size_t probe = 0; probe < PROBES; probe++) {
        const size_t i = probe * (n / PROBES) + probe;
        double exact[3] = {0};
        for (size_t j = 0; j < n; j++) {
            double away[3], r2 = 0;
            for (size_t d = 0; d < 3; d++) {
                away[d] = (double)r->at[3 * j + d] - (double)r->at[3 * i + d];
                away[d] -= rint(away[d]);
                r2 += away[d] * away[d];
            }
            if (r2 >= r->reach * r->reach || i == j)
                continue;
            const double law = pow(r2 + r->soft * r->soft, -1.5) - far_force(&r->reach, 1 - r2 / (r->reach * r->reach));
            for (size_t d = 0; d < 3; d++)
                exact[d] += (double)r->values[j] * law * away[d];
        }
        for (size_t d = 0; d < 3; d++)
            worst = fmax(worst, fabs((double)vectors[d * n + i] - exact[d]));
    }
    return worst / sqrt(square / (double)n);
}

static struct range_law law_of(const struct run *r, int power, double (*value)(const void *of, double t))
{
    struct range_law law;
    must(range_law_make(
        &law,
        &(struct range_law_params){
            .form = RANGE_SHORT, .reach = r->reach, .soft = r->soft, .power = power, .error = r->p.error},
        value, &r->reach));
    return law;
}

static void measure(struct dev *dev, const struct problem *problem, float *at)
{
    struct run r = {.p = *problem, .at = at};
    const size_t n = r.p.count;
    void *memory[3];
    double times[RUNS], begun;
    float *results[2] = {take(3 * n, sizeof(float)), take(3 * n, sizeof(float))};
    r.reach = cbrt(r.p.neighbours / ((double)n * 4 * M_PI / 3));
    r.soft = 0.01 * r.reach;
    r.force = law_of(&r, 3, far_force);
    r.potential = law_of(&r, 1, far_potential);
    r.values = take(n, sizeof *r.values);
    for (size_t i = 0; i < n; i++)
        r.values[i] = (float)(0.5 + uniform(4 * n + i));
    for (int m = 0; m < 3; m++)
        must(dev_alloc(dev, (m == 1 ? 3 : 1) * n * sizeof(float), &memory[m]));
    r.device_values = memory[0];
    r.vectors = memory[1];
    r.scalars = memory[2];
    must(dev_upload(dev, r.device_values, r.values, n * sizeof *r.values));
    struct range_points_params params = {.box = {3, {64, 64, 64}, {0, 0, 0}, {1 / 64.0, 1 / 64.0, 1 / 64.0}, {1, 1, 1}},
                                         .reach = r.reach,
                                         .inputs = n,
                                         .at = at};
    must(range_points_create(&r.points, dev, &params, NULL));
    range_points_free(r.points); /* the first sum fills the device's memory pool */
    begun = clock_seconds();
    must(range_points_create(&r.points, dev, &params, NULL));
    const double made = clock_seconds() - begun;
    begun = clock_seconds();
    if (r.p.bins)
        (void)count(&r, r.p.bins);
    else
        sum(&r);
    const double first = clock_seconds() - begun;
    must(dev_download(dev, results[0], r.vectors, 3 * n * sizeof(float)));
    for (int i = 0; i < RUNS; i++) {
        begun = clock_seconds();
        if (r.p.bins)
            (void)count(&r, r.p.bins);
        else
            sum(&r);
        times[i] = clock_seconds() - begun;
    }
    must(dev_download(dev, results[1], r.vectors, 3 * n * sizeof(float)));
    const bool same = r.p.bins || memcmp(results[0], results[1], 3 * n * sizeof(float)) == 0;
    qsort(times, RUNS, sizeof *times, by_size);
    const double all = (double)count(&r, 1);
    printf("{\"sum\":\"%s\",\"points\":%zu,\"degree\":%d,\"pairs\":%.4g,\"points_ms\":%.2f,\"first_ms\":%.2f,"
           "\"sum_ms\":%.3f,\"pairs_per_s\":%.3g,\"error\":%.2g,\"same_bits\":%s}\n",
           r.p.name, n, r.force.degree, all, 1e3 * made, 1e3 * first, 1e3 * times[RUNS / 2], all / times[RUNS / 2],
           r.p.bins ? 0 : error_of(&r, results[1]), same ? "true" : "false");
    fflush(stdout);
    range_points_free(r.points);
    for (int m = 0; m < 3; m++)
        dev_release(dev, memory[m]);
    free(r.values);
    free(results[0]);
    free(results[1]);
}

/* Positions from a file, scaled into the box. */
static float *file_places(const char *path, size_t *count)
{
    unsigned char head[10] = {0};
    FILE *file = fopen(path, "rb");
    if (!file || fread(head, 1, sizeof head, file) != sizeof head || memcmp(head, "\x93NUMPY\x01", 7) != 0)
        exit(2);
    const long begin = 10 + head[8] + 256 * head[9];
    (void)fseek(file, 0, SEEK_END);
    *count = (size_t)(ftell(file) - begin) / (3 * sizeof(float));
    (void)fseek(file, begin, SEEK_SET);
    float *at = take(3 * *count, sizeof *at), low = INFINITY, high = -INFINITY;
    if (fread(at, 3 * sizeof *at, *count, file) != *count)
        exit(2);
    fclose(file);
    for (size_t i = 0; i < 3 * *count; i++) {
        low = fminf(low, at[i]);
        high = fmaxf(high, at[i]);
    }
    for (size_t i = 0; i < 3 * *count; i++)
        at[i] = fminf((at[i] - low) / (1.01f * (high - low)), 0.99999994f);
    return at;
}

int main(int argc, char **argv)
{
    static const struct problem problems[] = {
        {"forces, 300 neighbours", 16777216, 300, 3e-3, EVEN, false, 0},
        {"forces and potentials, 300 neighbours", 16777216, 300, 3e-3, EVEN, true, 0},
        {"forces of degree 5, 300 neighbours", 16777216, 300, 5e-3, EVEN, false, 0},
        {"forces of degree 5, 300 neighbours", 131072, 300, 5e-3, EVEN, false, 0},
        {"forces, 100 neighbours", 16777216, 100, 3e-3, EVEN, false, 0},
        {"forces, 300 neighbours", 131072, 300, 3e-3, EVEN, false, 0},
        {"forces, 3,000 neighbours", 4194304, 3000, 1e-4, EVEN, false, 0},
        {"forces, 1e-6", 4194304, 300, 1e-6, EVEN, false, 0},
        {"forces, Plummer sphere", 1048576, 8, 3e-3, PLUMMER, false, 0},
        {"forces, half of it Plummer", 1048576, 16, 3e-3, HALF, false, 0},
        {"forces, one bin", 400000, 300, 3e-3, ONE_BIN, false, 0},
        {"counts, 20 intervals", 10000000, 1131, 3e-3, EVEN, false, 20},
        {"counts, 200 intervals", 10000000, 1131, 3e-3, EVEN, false, 200},
        {"counts, 20 intervals, Plummer sphere", 1048576, 8, 3e-3, PLUMMER, false, 20},
    };
    struct dev *dev;
    const double share = argc > 1 ? atof(argv[1]) : 1;
    must(dev_create(&dev, DEV_GPU, 0, 0));
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        struct problem p = problems[i];
        if (argc > 3 && !strstr(p.name, argv[3]))
            continue;
        p.count = (size_t)((double)p.count * share);
        float *at = places(&p);
        measure(dev, &p, at);
        free(at);
    }
    if (argc > 2 && strcmp(argv[2], "-") != 0) {
        struct problem p = {"forces, positions of a file", 0, 8, 3e-3, EVEN, false, 0};
        float *at = file_places(argv[2], &p.count);
        measure(dev, &p, at);
        free(at);
    }
    dev_free(dev);
    return 0;
}
