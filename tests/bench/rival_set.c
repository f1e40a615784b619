/* rival_set.c: data sets with fixed seeds, the kernel's polynomial, and double-precision sums to compare with. */
#include "tests/bench/bench.h"
#include "tests/bench/rival.h"
#include "gridding/range/kernel.h"
#include "gridding/range/points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of the kooshballs: Table 1 of the thesis; of the Gaussian sets: the lab manual's. */
static const struct rival_set sets[] = {
    {"tiny", "kooshball, spokes of 32 samples", 40, 20000, 0, 32},
    {"koosh-small", "kooshball, spokes of 256 samples", 256, 2655910, 0, 256},
    {"uniform-small", "uniform random", 256, 2655910, 0, 0},
    {"koosh-large", "kooshball, spokes of 576 samples", 576, 30144488, 0, 576},
    {"uniform-large", "uniform random", 576, 30144488, 0, 0},
    {"gauss-16", "Gaussian, 16 cells an axis", 128, 30144488, 16, 0},
    {"gauss-32", "Gaussian, 32 cells an axis", 128, 30144488, 32, 0},
    {"gauss-48", "Gaussian, 48 cells an axis", 128, 30144488, 48, 0},
    {"gauss-64", "Gaussian, 64 cells an axis", 128, 30144488, 64, 0},
    {"gauss-80", "Gaussian, 80 cells an axis", 128, 30144488, 80, 0},
    {NULL, NULL, 0, 0, 0, 0},
};

const struct rival_set *rival_sets(void)
{
    return sets;
}

/* A position far enough from the grid's edges that nothing wraps around. */
static float inside(double x, int grid)
{
    float most = nextafterf((float)(grid - RIVAL_WIDTH / 2), 0);
    return (float)x < RIVAL_WIDTH / 2 ? RIVAL_WIDTH / 2 : (float)x > most ? most : (float)x;
}

void rival_fill(const struct rival_set *set, struct rival_sample *samples)
{
    const double room = set->grid - RIVAL_WIDTH;
#pragma omp parallel for schedule(static, 4096)
    for (size_t m = 0; m < set->samples; m++) {
        double k[3];
        if (set->readout > 0)
            koosh_sample((size_t)set->readout, m, k);
        else
            for (int d = 0; d < 3; d++)
                k[d] = random_sample(m, d, set->deviation / room);
        struct c32 value = random_data(m);
        samples[m] = (struct rival_sample){inside(set->grid / 2 + k[0] * room, set->grid),
                                           inside(set->grid / 2 + k[1] * room, set->grid),
                                           inside(set->grid / 2 + k[2] * room, set->grid),
                                           value.re,
                                           value.im,
                                           (float)(0.2 + uniform(m + 987654321))};
    }
}

double rival_beta(void)
{
    return kernel_beta(RIVAL_WIDTH, 2);
}

int rival_kernel_make(struct rival_kernel *kernel)
{
    struct range_kernel *law = NULL;
    int status = range_kernel_create(&law, RIVAL_WIDTH, rival_beta(), true, RIVAL_KERNEL_ERROR);
    if (status == 0 && law->degree > RIVAL_DEGREE)
        status =
            err_set(ERR_INTERNAL, "the kernel needs a polynomial of degree %d, above %d", law->degree, RIVAL_DEGREE);
    for (int i = 0; status == 0 && i <= RIVAL_DEGREE; i++)
        kernel->c[i] = i <= law->degree ? law->c[i][0] : 0;
    range_kernel_free(law);
    return status;
}

static int ascending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void choose(struct rival_probe *p, size_t wanted, const struct rival_sample *samples, size_t count)
{
    size_t bins = (size_t)p->grid * (size_t)p->grid * (size_t)p->grid;
    for (size_t i = 0; i < wanted; i++) {
        size_t any = (size_t)(uniform(31337 + 2 * i) * (double)bins);
        size_t near = rival_bin_of(p->grid, samples + (size_t)(uniform(31338 + 2 * i) * (double)count));
        p->cell[i] = i % 2 == 0 ? near : any;
    }
    qsort(p->cell, wanted, sizeof *p->cell, ascending);
    for (size_t i = 0; i < wanted; i++)
        if (i == 0 || p->cell[i] != p->cell[i - 1])
            p->cell[p->cells++] = p->cell[i];
    for (size_t i = 0; i < p->cells; i++)
        p->bit[p->cell[i] / 64] |= UINT64_C(1) << p->cell[i] % 64;
}

/* sum[cells][2] += the samples' exact contributions. Each sample visits the cells within its reach. */
static void sum_samples(const struct rival_probe *p, const struct rival_sample *samples, size_t count, double *sum)
{
    const double beta = rival_beta();
#pragma omp parallel for schedule(dynamic, 16384)
    for (size_t m = 0; m < count; m++) {
        const struct rival_sample *s = samples + m;
        const double at[3] = {(double)s->x, (double)s->y, (double)s->z};
        const int first[3] = {(int)ceil(at[0] - RIVAL_WIDTH / 2), (int)ceil(at[1] - RIVAL_WIDTH / 2),
                              (int)ceil(at[2] - RIVAL_WIDTH / 2)};
        for (int i = 0; i < RIVAL_WIDTH * RIVAL_WIDTH * RIVAL_WIDTH; i++) {
            const int cell[3] = {first[0] + i % RIVAL_WIDTH, first[1] + i / RIVAL_WIDTH % RIVAL_WIDTH,
                                 first[2] + i / (RIVAL_WIDTH * RIVAL_WIDTH)};
            size_t number = ((size_t)cell[2] * (size_t)p->grid + (size_t)cell[1]) * (size_t)p->grid + (size_t)cell[0];
            if ((p->bit[number / 64] >> number % 64 & 1) == 0)
                continue;
            double squares = 0;
            for (int d = 0; d < 3; d++)
                squares += (cell[d] - at[d]) * (cell[d] - at[d]) * 4 / (RIVAL_WIDTH * RIVAL_WIDTH);
            if (squares >= 1)
                continue;
            double weight = kernel_value(beta, squares) * (double)s->density;
            const size_t *found = bsearch(&number, p->cell, p->cells, sizeof *p->cell, ascending);
            double *to = sum + 2 * (found - p->cell);
#pragma omp atomic
            to[0] += weight * (double)s->re;
#pragma omp atomic
            to[1] += weight * (double)s->im;
        }
    }
}

int rival_probe_create(struct rival_probe **out, int grid, size_t wanted, const struct rival_sample *samples,
                       size_t count)
{
    struct rival_probe *p = calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(ERR_NO_MEMORY, "no memory for probed cells");
    p->grid = grid;
    p->cell = calloc(wanted, sizeof *p->cell);
    p->sum = calloc(2 * wanted, sizeof *p->sum);
    p->bit = calloc((size_t)grid * (size_t)grid * (size_t)grid / 64 + 1, sizeof *p->bit);
    if (p->cell == NULL || p->sum == NULL || p->bit == NULL) {
        rival_probe_free(p);
        return err_set(ERR_NO_MEMORY, "no memory for probed cells");
    }
    choose(p, wanted, samples, count);
    sum_samples(p, samples, count, p->sum);
    *out = p;
    return 0;
}

void rival_probe_free(struct rival_probe *probe)
{
    if (probe == NULL)
        return;
    free(probe->cell);
    free(probe->sum);
    free(probe->bit);
    free(probe);
}

double rival_probe_error(const struct rival_probe *probe, const struct c32 *values, const struct rival_sample *rest,
                         size_t rest_count)
{
    double *sum = calloc(2 * probe->cells, sizeof *sum), off = 0, all = 0;
    if (sum == NULL)
        return NAN;
    sum_samples(probe, rest, rest_count, sum);
    for (size_t i = 0; i < probe->cells; i++) {
        double re = sum[2 * i] + (double)values[i].re, im = sum[2 * i + 1] + (double)values[i].im;
        off += pow(re - probe->sum[2 * i], 2) + pow(im - probe->sum[2 * i + 1], 2);
        all += pow(probe->sum[2 * i], 2) + pow(probe->sum[2 * i + 1], 2);
    }
    free(sum);
    return sqrt(off / all);
}
