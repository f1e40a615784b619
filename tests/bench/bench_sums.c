/* Sums of limited range on the CPU compared with straightforward loops over cell lists, compiled with -O3 like the
 * engine: CutCP, blobs, forces, pair counts; for evenly spread points, points of a Plummer sphere, and points all in
 * one bin. One JSON line each: processor seconds of all threads (the minimum of three runs), wall-clock seconds of the
 * engine's sum, and the difference of the results.
 *
 *   bench_sums [threads [NAME]]   NAME: only sums whose names contain it */
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "tests/random.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 3 }; /* the fastest counts */

/* ---- the straightforward loops: cells as long as the reach, with the points sorted into them ---- */

struct cells {
    int n[3];
    float edge[3];
    int *first;
    float *at; /* [4][..]: x, y, z, value, sorted by cell */
};

struct problem {
    struct range_box box;
    size_t count, nodes;
    float *at, *value, *scale;
    float reach;
};

static size_t cell_of(const struct cells *c, const float *at)
{
    size_t cell = 0;
    for (int d = 2; d >= 0; d--) {
        int i = (int)(at[d] / c->edge[d]);
        cell = cell * (size_t)c->n[d] + (size_t)(i < c->n[d] ? i : c->n[d] - 1);
    }
    return cell;
}

static struct cells cells_make(const struct problem *p)
{
    struct cells c;
    size_t all = 1;
    for (int d = 0; d < 3; d++) {
        float length = (float)(p->box.cells[d] * p->box.spacing[d]);
        c.n[d] = (int)(length / p->reach);
        c.n[d] = c.n[d] > 0 ? c.n[d] : 1;
        c.edge[d] = length / (float)c.n[d];
        all *= (size_t)c.n[d];
    }
    c.first = calloc(all + 2, sizeof *c.first);
    c.at = malloc(5 * p->count * sizeof *c.at);
    for (size_t i = 0; i < p->count; i++)
        c.first[cell_of(&c, p->at + 3 * i) + 2]++;
    for (size_t i = 0; i < all; i++)
        c.first[i + 2] += c.first[i + 1];
    for (size_t i = 0; i < p->count; i++) {
        size_t to = (size_t)c.first[cell_of(&c, p->at + 3 * i) + 1]++;
        memcpy(c.at + 5 * to, p->at + 3 * i, 3 * sizeof *c.at);
        c.at[5 * to + 3] = p->value[i];
        c.at[5 * to + 4] = p->scale ? p->scale[i] : 1;
    }
    return c;
}

/* Executes CELL for each cell `run` around a position. */
#define AROUND(C, P, ...)                                                                                      \
    for (int dz = -1; dz <= 1; dz++)                                                                           \
        for (int dy = -1; dy <= 1; dy++)                                                                       \
            for (int dx = -1; dx <= 1; dx++) {                                                                 \
                int cx = (int)((P)[0] / (C)->edge[0]) + dx, cy = (int)((P)[1] / (C)->edge[1]) + dy,            \
                    cz = (int)((P)[2] / (C)->edge[2]) + dz;                                                    \
                if (cx < 0 || cy < 0 || cz < 0 || cx >= (C)->n[0] || cy >= (C)->n[1] || cz >= (C)->n[2])       \
                    continue;                                                                                  \
                size_t run = ((size_t)cz * (size_t)(C)->n[1] + (size_t)cy) * (size_t)(C)->n[0] + (size_t)cx;   \
                for (int j = (C)->first[run]; j < (C)->first[run + 1]; j++) {                                  \
                    const float *q = (C)->at + 5 * (size_t)j;                                                  \
                    float x = q[0] - (P)[0], y = q[1] - (P)[1], z = q[2] - (P)[2], r2 = x * x + y * y + z * z; \
                    __VA_ARGS__                                                                                \
                }                                                                                              \
            }

/* The position of a lattice node. */
static void node_at(const struct problem *p, size_t node, float at[3])
{
    const size_t nx = (size_t)p->box.cells[0], ny = (size_t)p->box.cells[1];
    const float h = (float)p->box.spacing[0];
    at[0] = (float)(node % nx) * h;
    at[1] = (float)(node / nx % ny) * h;
    at[2] = (float)(node / nx / ny) * h;
}

static void plain_potential(const struct problem *p, const struct cells *c, float *out)
{
    float rc2 = p->reach * p->reach;
#pragma omp parallel for schedule(dynamic, 64)
    for (size_t node = 0; node < p->nodes; node++) {
        float at[3], sum = 0;
        node_at(p, node, at);
        AROUND(
            c, at, if (r2 < rc2) {
                float t = 1 - r2 / rc2;
                sum += q[3] / sqrtf(r2) * t * t;
            })
        out[node] = sum;
    }
}

static void plain_blob(const struct problem *p, const struct cells *c, float *out)
{
#pragma omp parallel for schedule(dynamic, 64)
    for (size_t node = 0; node < p->nodes; node++) {
        float at[3], sum = 0;
        node_at(p, node, at);
        AROUND(c, at, {
            float u2 = r2 / (q[4] * q[4]);
            if (u2 < 2.17f * 2.17f)
                sum += expf(-2.5f * (u2 - 1));
        })
        out[node] = sum;
    }
}

/* Cut off at the cube around the sphere, which is kind blob's default. */
static void plain_cube(const struct problem *p, const struct cells *c, float *out)
{
#pragma omp parallel for schedule(dynamic, 64)
    for (size_t node = 0; node < p->nodes; node++) {
        float at[3], sum = 0;
        node_at(p, node, at);
        AROUND(c, at, {
            const float reach = 2.17f * q[4];
            if (fabsf(x) < reach && fabsf(y) < reach && fabsf(z) < reach)
                sum += expf(-2.5f * (r2 / (q[4] * q[4]) - 1));
        })
        out[node] = sum;
    }
}

static void plain_force(const struct problem *p, const struct cells *c, float *out)
{
    float rc2 = p->reach * p->reach, a = 3 / p->reach;
    /* In the order of cells, so that neighbours find their partners in the cache. */
#pragma omp parallel for schedule(dynamic, 64)
    for (size_t i = 0; i < p->count; i++) {
        const float *at = c->at + 5 * i;
        float sum[3] = {0};
        AROUND(
            c, at, if (r2 < rc2 && r2 > 0) {
                float r = sqrtf(r2), u = a * r;
                float f = q[3] * (erfcf(u) + 1.12837917f * u * expf(-u * u)) / (r2 * r);
                sum[0] += f * x;
                sum[1] += f * y;
                sum[2] += f * z;
            })
        memcpy(out + 3 * i, sum, sizeof sum);
    }
}

static void plain_count(const struct problem *p, const struct cells *c, int bins, uint64_t *counts)
{
    float rc2 = p->reach * p->reach, step = (float)bins / p->reach;
#pragma omp parallel
    {
        uint64_t own[256] = {0};
#pragma omp for schedule(dynamic, 64)
        for (size_t i = 0; i < p->count; i++) {
            const float *at = c->at + 5 * i;
            AROUND(c, at, if (r2 < rc2 && j != (int)i) own[(int)(sqrtf(r2) * step)]++;)
        }
#pragma omp critical
        for (int b = 0; b < bins; b++)
            counts[b] += own[b];
    }
}

/* ---- the engine's laws ---- */

static double potential_value(const void *of, double t)
{
    (void)of;
    return t * t;
}

static double blob_value(const void *of, double t)
{
    (void)of;
    return exp(-2.5 * (2.17 * 2.17 * (1 - t) - 1));
}

/* The factor along one axis; the points' values contain the remaining factor exp(2.5). */
static double cube_value(const void *of, double t)
{
    (void)of;
    return exp(-2.5 * 2.17 * 2.17 * (1 - t));
}

static double force_value(const void *of, double t)
{
    const double root = 1.1283791670955126, reach = *(const double *)of, a = 3 / reach;
    double r = reach * sqrt(1 - t), u = a * r, v = u * u;
    if (u < 0.2)
        return root * 2 / 3 * a * a * a * (1 - v * (3.0 / 5 - v * (3.0 / 14 - v * (1.0 / 18 - v / 88))));
    return (erf(u) - root * u * exp(-v)) / (r * r * r);
}

static double wall(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double processor(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(int rc)
{
    if (!rc)
        return;
    fprintf(stderr, "bench_sums: %s\n", err_last()->text);
    exit(1);
}

enum spread { EVEN, PLUMMER, ONE_BIN };

/* Coordinate of point i, in units of the box's side. Plummer (1911): radius a (u^(-2/3) - 1)^(-1/2), with a a twentieth
 * of the box. */
static double place_of(enum spread spread, size_t i, int d)
{
    if (spread == EVEN)
        return uniform(3 * i + (size_t)d);
    if (spread == ONE_BIN)
        return 0.5 + 0.01 * uniform(3 * i + (size_t)d);
    const double u = uniform(3 * i), z = 2 * uniform(3 * i + 1) - 1, phi = 2 * M_PI * uniform(3 * i + 2);
    const double r = fmin(0.49, 0.05 / sqrt(pow(u, -2.0 / 3) - 1)), flat = sqrt(1 - z * z);
    return 0.5 + r * (d == 0 ? flat * cos(phi) : d == 1 ? flat * sin(phi) : z);
}

static struct problem problem_make(int cells, double spacing, size_t count, double reach, bool scaled,
                                   enum spread spread)
{
    struct problem p = {.count = count, .nodes = (size_t)cells * (size_t)cells * (size_t)cells, .reach = (float)reach};
    p.box = (struct range_box){.dim = 3};
    for (int d = 0; d < 3; d++) {
        p.box.cells[d] = cells;
        p.box.spacing[d] = spacing;
    }
    p.at = malloc(3 * count * sizeof *p.at);
    p.value = malloc(count * sizeof *p.value);
    p.scale = scaled ? malloc(count * sizeof *p.scale) : NULL;
    for (size_t i = 0; i < 3 * count; i++)
        p.at[i] = (float)(place_of(spread, i / 3, (int)(i % 3)) * cells * spacing);
    for (size_t i = 0; i < count; i++) {
        p.value[i] = (float)(uniform(3 * count + i) - 0.5);
        if (scaled)
            p.scale[i] = (float)(1.1 + 0.8 * uniform(4 * count + i));
    }
    return p;
}

struct task {
    const char *name;
    struct problem p;
    struct range_law law;
    struct range_points *points;
    const char *kind;
    int bins;
};

/* Two floats per point or node, or counts. */
static void engine(const struct task *t, float *out, uint64_t *counts)
{
    if (t->bins > 0) {
        double edge[257];
        for (int b = 0; b <= t->bins; b++)
            edge[b] = (double)t->p.reach * b / t->bins;
        check(range_count(t->points, t->points, t->bins + 1, edge, counts, NULL));
    } else if (strcmp(t->kind, "pairs") == 0) {
        const struct range_pair_sums sums = {.vector_law = &t->law, .vectors = out};
        check(range_pairs(t->points, t->points, &sums, 1, t->p.value, NULL));
    } else {
        memset(out, 0, t->p.nodes * sizeof *out);
        check(range_scatter(t->points, &t->law, 1, t->p.value, out, NULL));
    }
}

static void task_free(struct task *t)
{
    range_points_free(t->points);
    free(t->p.at);
    free(t->p.value);
    free(t->p.scale);
}

static const char *wanted; /* NULL: all sums */

static void run(struct task *t, struct dev *dev, void (*plain)(const struct problem *, const struct cells *, float *))
{
    struct problem *p = &t->p;
    if (wanted && !strstr(t->name, wanted)) {
        task_free(t);
        return;
    }
    size_t floats = strcmp(t->kind, "grid") == 0 ? p->nodes : 3 * p->count;
    float *ours = calloc(floats, sizeof *ours), *theirs = calloc(floats, sizeof *theirs);
    uint64_t counts[256] = {0}, others[256] = {0};
    double bins = INFINITY, sums = INFINITY, walls = INFINITY, loop = INFINITY, apart = 0, size = 0;
    for (int i = 0; i < RUNS; i++) {
        double start = processor();
        range_points_free(t->points);
        const struct range_points_params params = {
            .box = p->box, .reach = (double)p->reach, .inputs = p->count, .at = p->at, .scale = p->scale};
        check(range_points_create(&t->points, dev, &params, NULL));
        bins = fmin(bins, processor() - start);
        start = processor();
        memset(counts, 0, sizeof counts);
        const double start_wall = wall();
        engine(t, ours, counts);
        sums = fmin(sums, processor() - start);
        walls = fmin(walls, wall() - start_wall);
    }
    struct cells c = cells_make(p);
    for (int i = 0; i < RUNS; i++) {
        double start = processor();
        memset(others, 0, sizeof others);
        if (t->bins > 0)
            plain_count(p, &c, t->bins, others);
        else
            plain(p, &c, theirs);
        loop = fmin(loop, processor() - start);
    }
    for (int b = 0; b < t->bins; b++) {
        apart += fabs((double)counts[b] - (double)others[b]);
        size += (double)others[b];
    }
    for (size_t i = 0; t->bins == 0 && strcmp(t->kind, "grid") == 0 && i < p->nodes; i++) {
        apart += pow((double)ours[i] - (double)theirs[i], 2);
        size += pow((double)theirs[i], 2);
    }
    /* The loop's points are in the order of its cells, so sums of squares are compared. */
    if (t->bins == 0 && strcmp(t->kind, "pairs") == 0) {
        double first = 0, second = 0;
        for (size_t i = 0; i < 3 * p->count; i++) {
            first += pow((double)ours[i], 2);
            second += pow((double)theirs[i], 2);
        }
        apart = pow(first - second, 2);
        size = pow(second, 2);
    }
    printf("{\"sum\":\"%s\",\"points\":%zu,\"nodes\":%zu,\"reach\":%g,\"threads\":%d,\"bins_s\":%.4f,\"sum_s\":%.4f,"
           "\"sum_wall_s\":%.4f,\"loop_s\":%.4f,\"times\":%.2f,\"apart\":%.3g}\n",
           t->name, p->count, strcmp(t->kind, "grid") == 0 ? p->nodes : 0, (double)p->reach, dev_threads(dev), bins,
           sums, walls, loop, loop / (bins + sums), t->bins > 0 ? apart / size : sqrt(apart / size));
    fflush(stdout);
    free(ours);
    free(theirs);
    free(c.first);
    free(c.at);
    task_free(t);
}

static const char *name_of(const char *sum, const char *spread, char text[64])
{
    snprintf(text, 64, "%s%s", sum, spread);
    return text;
}

/* All sums of one distribution of points; crowded points have many partners, so there are fewer of them. */
static void run_all(struct dev *dev, enum spread spread, const char *named)
{
    static const double force_reach = 1.0;
    const size_t few[] = {120000, 20000, 8000};
    char name[64];
    struct task potential = {
        .name = name_of("cutcp", named, name), .kind = "grid", .p = problem_make(96, 0.5, 11000, 12, false, spread)};
    check(range_law_make(&potential.law, &(struct range_law_params){RANGE_INVERSE, 12, 0, 0, 1, 1e-6, 0, 0, 0},
                         potential_value, NULL));
    run(&potential, dev, plain_potential);
    struct task blob = {.name = name_of("blob", named, name),
                        .kind = "grid",
                        .p = problem_make(128, 0.5, 26000, 2.17 * 1.9, true, spread)};
    check(range_law_make(&blob.law, &(struct range_law_params){RANGE_RADIAL, 2.17, 0, 0, 0, 1e-5, 0, 0, 0}, blob_value,
                         NULL));
    char cube_name[64];
    struct task cube = {.name = name_of("blob, cube", named, cube_name),
                        .kind = "grid",
                        .p = problem_make(128, 0.5, 26000, 2.17 * 1.9, true, spread)};
    check(range_law_make(&cube.law, &(struct range_law_params){RANGE_SEPARABLE, 2.17, 0, 0, 0, 1e-6, 0, 0, 0},
                         cube_value, NULL));
    /* Blobs are not weighted, so all values are equal. */
    for (size_t i = 0; i < blob.p.count; i++) {
        blob.p.value[i] = 1;
        cube.p.value[i] = expf(2.5f);
    }
    run(&blob, dev, plain_blob);
    run(&cube, dev, plain_cube);
    struct task force = {.name = name_of("nbody", named, name),
                         .kind = "pairs",
                         .p = problem_make(12, 1, few[spread], force_reach, false, spread)};
    check(range_law_make(&force.law, &(struct range_law_params){RANGE_SHORT, force_reach, 0, 0, 3, 1e-5, 0, 0, 0},
                         force_value, &force_reach));
    run(&force, dev, plain_force);
    for (int bins = 20; bins <= 200; bins *= 10) {
        struct task count = {.name = name_of(bins == 20 ? "pairs, 20 bins" : "pairs, 200 bins", named, name),
                             .kind = "pairs",
                             .p = problem_make(12, 1, few[spread], 1, false, spread),
                             .bins = bins};
        run(&count, dev, NULL);
    }
}

/* Half of the bodies in a sphere with Plummer's density, the others evenly spread. */
static void run_clustered(struct dev *dev)
{
    static const double reach = 1.0;
    struct task crowd = {
        .name = "nbody, half of it Plummer", .kind = "pairs", .p = problem_make(12, 1, 30000, reach, false, EVEN)};
    check(range_law_make(&crowd.law, &(struct range_law_params){RANGE_SHORT, reach, 0, 0, 3, 1e-5, 0, 0, 0},
                         force_value, &reach));
    for (size_t i = 0; i < crowd.p.count / 2; i++) {
        const double radius = fmin(0.3 / sqrt(pow(uniform(3 * i), -2.0 / 3) - 1), 5), z = 2 * uniform(3 * i + 1) - 1;
        const double turn = 2 * M_PI * uniform(3 * i + 2), flat = sqrt(1 - z * z);
        crowd.p.at[3 * i] = (float)(6 + radius * flat * cos(turn));
        crowd.p.at[3 * i + 1] = (float)(6 + radius * flat * sin(turn));
        crowd.p.at[3 * i + 2] = (float)(6 + radius * z);
    }
    run(&crowd, dev, plain_force);
}

int main(int argc, char **argv)
{
    struct dev *dev;
    check(dev_create(&dev, DEV_CPU, 0, argc > 1 ? atoi(argv[1]) : 0));
    omp_set_num_threads(dev_threads(dev));
    wanted = argc > 2 ? argv[2] : NULL;
    run_all(dev, EVEN, "");
    run_clustered(dev);
    run_all(dev, PLUMMER, ", Plummer");
    run_all(dev, ONE_BIN, ", one bin");
    dev_free(dev);
    return 0;
}
