/* nufft_cases.h: the cases of bench_nufft and bench_plans, with fixed seeds:
 *
 *   a  2,655,910 samples, 3-D golden-means kooshball, full-diameter spokes of 256 samples, image 128^3
 *   b  30,144,488 samples, the same with spokes of 576, image 288^3
 *   c  30,144,488 Gaussian samples (sd 16/128 of k-space per axis, redrawn out of range), random order, image 64^3
 *   d  golden angle 111.25 degrees, 402 spokes x 512 samples, image 256^2, 16 coils x 100 frames on one trajectory (on
 *      the CPU: one frame)
 *   e  10,000,000 uniform random samples, image 256^3
 *   u  30,144,488 uniform random samples, image 64^3: what c's dense centre costs beside it
 *   s  golden angle, 201 spokes x 256 samples, image 128^2
 *   y1, y2, y4, y8, y16, y32, y64  one frame of d, 1 to 64 coils
 *   p4 golden angle, 804 spokes x 1,024 samples, image 512^2, 4 coils
 *   q  golden angle, 1,608 spokes x 2,048 samples, image 1024^2, 8 coils
 *   q2 golden angle, 3,216 spokes x 4,096 samples, image 2048^2, 8 coils
 *   r8 golden angle, 10,000 spokes x 512 samples, image 256^2, 8 coils
 *   w2 5,000,000 samples in one cell of a grid of 512^2, image 256^2, 8 coils
 *   v8 10,000,000 uniform random samples, image 512 x 512 x 8
 *   v  the same, image 512 x 512 x 16
 *   n  1,000,000 uniform random samples, image 112^3, 16 coils (for the normal operator)
 *   k32, k48, k64  kooshballs of 50,000, 150,000 and 400,000 samples, images 32^3, 48^3 and 64^3
 *   u32, u48       50,000 and 150,000 uniform random samples, images 32^3 and 48^3
 *   u64, u96       400,000 and 1,000,000 uniform random samples, images 64^3 (8 coils) and 96^3
 *   x  stack of stars: 400 golden-angle spokes x 512 samples in each of 64 partitions, image 256 x 256 x 64 */
#ifndef MRIRECON_NUFFT_CASES_H
#define MRIRECON_NUFFT_CASES_H

#include "tests/bench/bench.h"

enum spread { KOOSH, GOLDEN, STACK, UNIFORM, GAUSSIAN, ONE_CELL };

struct bench_case {
    const char *id;
    int dim, n[3], batch;
    enum spread spread;
    int readout;
    size_t samples;
};

static const struct bench_case cases[] = {
    {"a", 3, {128, 128, 128}, 1, KOOSH, 256, 2655910},     {"b", 3, {288, 288, 288}, 1, KOOSH, 576, 30144488},
    {"c", 3, {64, 64, 64}, 1, GAUSSIAN, 0, 30144488},      {"d", 2, {256, 256, 1}, 1600, GOLDEN, 512, 205824},
    {"e", 3, {256, 256, 256}, 1, UNIFORM, 0, 10000000},    {"s", 2, {128, 128, 1}, 1, GOLDEN, 256, 51456},
    {"u", 3, {64, 64, 64}, 1, UNIFORM, 0, 30144488},       {"y1", 2, {256, 256, 1}, 1, GOLDEN, 512, 205824},
    {"y2", 2, {256, 256, 1}, 2, GOLDEN, 512, 205824},      {"y4", 2, {256, 256, 1}, 4, GOLDEN, 512, 205824},
    {"y8", 2, {256, 256, 1}, 8, GOLDEN, 512, 205824},      {"y16", 2, {256, 256, 1}, 16, GOLDEN, 512, 205824},
    {"y32", 2, {256, 256, 1}, 32, GOLDEN, 512, 205824},    {"y64", 2, {256, 256, 1}, 64, GOLDEN, 512, 205824},
    {"p4", 2, {512, 512, 1}, 4, GOLDEN, 1024, 823296},     {"q", 2, {1024, 1024, 1}, 8, GOLDEN, 2048, 3293184},
    {"q2", 2, {2048, 2048, 1}, 8, GOLDEN, 4096, 13172736}, {"r8", 2, {256, 256, 1}, 8, GOLDEN, 512, 5120000},
    {"w2", 2, {256, 256, 1}, 8, ONE_CELL, 0, 5000000},     {"v8", 3, {512, 512, 8}, 1, UNIFORM, 0, 10000000},
    {"v", 3, {512, 512, 16}, 1, UNIFORM, 0, 10000000},     {"x", 3, {256, 256, 64}, 1, STACK, 512, 13107200},
    {"n", 3, {112, 112, 112}, 16, UNIFORM, 0, 1000000},    {"k32", 3, {32, 32, 32}, 1, KOOSH, 64, 50000},
    {"k48", 3, {48, 48, 48}, 1, KOOSH, 96, 150000},        {"u32", 3, {32, 32, 32}, 1, UNIFORM, 0, 50000},
    {"u48", 3, {48, 48, 48}, 1, UNIFORM, 0, 150000},       {"k64", 3, {64, 64, 64}, 1, KOOSH, 128, 400000},
    {"u64", 3, {64, 64, 64}, 8, UNIFORM, 0, 400000},       {"u96", 3, {96, 96, 96}, 1, UNIFORM, 0, 1000000},
};

enum { STACK_PARTITIONS = 64, CPU_FRAME = 16 /* coils of one frame */ };

static size_t pixels_of(const struct bench_case *c)
{
    return (size_t)c->n[0] * (size_t)c->n[1] * (size_t)c->n[2];
}

/* A case with so many coils; 0: its own, on a CPU of one frame. */
static struct bench_case with_coils(struct bench_case c, int coils, bool cpu)
{
    if (coils > 0)
        c.batch = coils;
    else if (cpu && c.batch > CPU_FRAME)
        c.batch = CPU_FRAME;
    return c;
}

/* Whether `name` is in the comma-separated list. */
static bool named(const char *list, const char *name)
{
    for (const char *at = list; at; at = next_of(at))
        if (strcspn(at, ",") == strlen(name) && strncmp(at, name, strlen(name)) == 0)
            return true;
    return false;
}

static void fill_k(const struct bench_case *c, float *k)
{
    size_t readout = (size_t)c->readout;
#pragma omp parallel for schedule(static, 4096)
    for (size_t m = 0; m < c->samples; m++) {
        double at[3];
        switch (c->spread) {
        case KOOSH:
            koosh_sample(readout, m, at);
            break;
        case GOLDEN:
            golden_sample(readout, m, at);
            break;
        case STACK:
            golden_sample(readout, m / STACK_PARTITIONS, at);
            at[2] = (double)(m % STACK_PARTITIONS) / STACK_PARTITIONS - 0.5;
            break;
        case UNIFORM:
        case GAUSSIAN:
            for (int d = 0; d < 3; d++)
                at[d] = random_sample(m, d, c->spread == GAUSSIAN ? 16.0 / 128 : 0);
            break;
        case ONE_CELL:
            for (int d = 0; d < c->dim; d++)
                at[d] = uniform(m * 2 + (size_t)d) / (2 * c->n[d]);
            break;
        }
        for (int d = 0; d < c->dim; d++)
            k[m * (size_t)c->dim + (size_t)d] = (float)at[d];
    }
}

static void fill_data(struct c32 *to, size_t count)
{
#pragma omp parallel for schedule(static, 4096)
    for (size_t i = 0; i < count; i++)
        to[i] = random_data(i);
}

#endif
