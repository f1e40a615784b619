/* rival_range_set.c: sources with fixed seeds, the rows of bins that tiles read, and double-precision sums. */
#include "tests/bench/bench.h"
#include "tests/bench/rival_range.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Blobs have van der Waals radii, in bins of 1 Angstrom; a term has fallen to 1e-3 at 1.94 R. */
#define LARGEST_RADIUS 1.7f
#define BLOB_CUT       1.94f

/* The potential's bins are 4 Angstrom long, its lattice spacing is 0.5, its reach is 12. */
#define POTENTIAL                          \
    {                                      \
        RIVAL_POTENTIAL, 52, 8, 3, 0, 0, 0 \
    }
#define BLOB(grid)                                                        \
    {                                                                     \
        RIVAL_BLOB, grid, 1, BLOB_CUT *LARGEST_RADIUS, -2.5f, BLOB_CUT, 0 \
    }
#define FORCE(grid)                          \
    {                                        \
        RIVAL_FORCE, grid, 0, 1, 0, 0, 0.05f \
    }

static const struct rival_range_set sets[] = {
    {"cutcp-tiny", "potential, 400 atoms", {RIVAL_POTENTIAL, 10, 8, 3, 0, 0, 0}, 400, 3, 0, 0},
    {"blob-tiny", "blobs, 500 atoms", BLOB(20), 500, 0, 40, 0},
    {"nbody-tiny", "forces, 2,000 bodies, Gaussian", FORCE(8), 2000, 0, 0, 1.5},
    {"cutcp-small", "potential, 5,943 atoms", {RIVAL_POTENTIAL, 17, 8, 3, 0, 0, 0}, 5943, 3, 0, 0},
    {"cutcp-large", "potential, 570,348 atoms", POTENTIAL, 570348, 3, 0, 0},
    {"blob-small", "blobs, 1,739 atoms, 360 of them in one bin", BLOB(64), 1739, 0, 360, 0},
    {"blob-large", "blobs, 26,318 atoms", BLOB(106), 26318, 0, 0, 0},
    {"blob-random", "blobs, 500,000 atoms", BLOB(288), 500000, 0, 0, 0},
    {"nbody-random", "forces, 131,072 bodies, Gaussian", FORCE(32), 131072, 0, 0, 4.8},
    {NULL, NULL, {RIVAL_POTENTIAL, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0},
};

const struct rival_range_set *rival_range_sets(void)
{
    return sets;
}

/* Coordinate d of source m. */
static float place(const struct rival_range_set *set, size_t m, int d)
{
    const double length = set->sum.grid - 2 * set->margin;
    const double even = uniform(8 * m + (size_t)d);
    double at = set->margin + even * length;
    if (set->deviation > 0)
        at = set->sum.grid * (0.5 + random_sample(m, d, set->deviation / set->sum.grid));
    if (m < set->piled)
        at = set->sum.grid / 2 + even;
    return fminf((float)at, nextafterf((float)(set->sum.grid - set->margin), 0));
}

void rival_range_fill(const struct rival_range_set *set, struct rival_sample *samples)
{
    static const float radii[4] = {1.2f, 1.52f, 1.55f, LARGEST_RADIUS};
#pragma omp parallel for schedule(static, 4096)
    for (size_t m = 0; m < set->samples; m++) {
        const float radius = radii[(size_t)(4 * uniform(8 * m + 3))];
        const float strength = set->sum.law == RIVAL_POTENTIAL ? (float)(2 * uniform(8 * m + 4) - 1)
                               : set->sum.law == RIVAL_FORCE   ? (float)(0.2 + uniform(8 * m + 4))
                                                               : 1;
        samples[m] = (struct rival_sample){place(set, m, 0),
                                           place(set, m, 1),
                                           place(set, m, 2),
                                           strength,
                                           0,
                                           set->sum.law == RIVAL_BLOB ? 1 / (radius * radius) : 1};
    }
}

int rival_statistics_make(struct rival_statistics *out, int grid, const struct rival_sample *samples, size_t count)
{
    const size_t bins = (size_t)grid * (size_t)grid * (size_t)grid;
    uint32_t *number = calloc(bins, sizeof *number);
    if (!number)
        return err_set(ERR_NO_MEMORY, "no memory for the counts of %zu bins", bins);
    for (size_t m = 0; m < count; m++)
        number[rival_bin_of(grid, samples + m)]++;
    *out = (struct rival_statistics){.bins = bins, .least = count, .mean = (double)count / (double)bins};
    for (size_t i = 0; i < bins; i++) {
        out->least = number[i] < out->least ? number[i] : out->least;
        out->most = number[i] > out->most ? number[i] : out->most;
        out->deviation += pow(number[i] - out->mean, 2);
    }
    out->deviation = sqrt(out->deviation / (double)bins);
    free(number);
    return 0;
}

/* The distance in nodes along one axis between the nodes 0 .. `last` of a tile and the bin `bin`. */
static int gap(int bin, int nodes, int last)
{
    if (bin * nodes > last)
        return bin * nodes - last;
    return (bin + 1) * nodes < 0 ? -(bin + 1) * nodes : 0;
}

int rival_rows_make(struct rival_rows *rows, const struct rival_sum *of, enum rival_choice choice)
{
    const int last = RIVAL_TILE - 1, nodes = of->nodes;
    const double reach = (double)of->reach * nodes;
    const int before = -(int)ceil((double)of->reach), after = (int)floor((last + reach) / nodes);
    rows->count = 0;
    for (int z = before; z <= after; z++)
        for (int y = before; y <= after; y++) {
            const double away = pow(gap(z, nodes, last), 2) + pow(gap(y, nodes, last), 2);
            int from = before, to = after;
            while (choice == RIVAL_SPHERE && from <= to && away + pow(gap(from, nodes, last), 2) >= reach * reach)
                from++;
            while (choice == RIVAL_SPHERE && from <= to && away + pow(gap(to, nodes, last), 2) >= reach * reach)
                to--;
            if (from > to)
                continue;
            if (rows->count == RIVAL_ROWS_MOST)
                return err_set(ERR_BAD_PARAMETER, "a tile reads more than %d rows of bins", RIVAL_ROWS_MOST);
            rows->row[rows->count++] = (struct rival_row){(short)y, (short)z, (short)from, (short)to};
        }
    return 0;
}

size_t rival_outputs(const struct rival_sum *of, size_t samples)
{
    const size_t side = (size_t)of->grid * (size_t)of->nodes;
    return of->law == RIVAL_FORCE ? 3 * samples : side * side * side;
}

static int ascending(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* The node nearest to a source. */
static size_t node_near(const struct rival_sum *of, const struct rival_sample *s)
{
    const float at[3] = {s->x, s->y, s->z};
    const int side = of->grid * of->nodes;
    size_t node = 0;
    for (int d = 2; d >= 0; d--) {
        const int i = (int)lroundf(at[d] * (float)of->nodes);
        node = node * (size_t)side + (size_t)(i < side ? i : side - 1);
    }
    return node;
}

static void choose(struct rival_check *c, size_t wanted)
{
    const size_t all = rival_outputs(c->sum, c->count) / (size_t)c->parts;
    for (size_t i = 0; i < wanted; i++) {
        const size_t source = (size_t)(uniform(4711 + 2 * i) * (double)c->count);
        c->output[i] = i % 2 == 0                   ? (size_t)(uniform(4712 + 2 * i) * (double)all)
                       : c->sum->law == RIVAL_FORCE ? source
                                                    : node_near(c->sum, c->samples + source);
    }
    qsort(c->output, wanted, sizeof *c->output, ascending);
    for (size_t i = 0; i < wanted; i++)
        if (i == 0 || c->output[i] != c->output[i - 1])
            c->output[c->outputs++] = c->output[i];
}

/* The position of an output. */
static void output_at(const struct rival_check *c, size_t output, double at[3])
{
    if (c->sum->law == RIVAL_FORCE) {
        const struct rival_sample *s = c->samples + output;
        at[0] = (double)s->x, at[1] = (double)s->y, at[2] = (double)s->z;
        return;
    }
    const size_t side = (size_t)c->sum->grid * (size_t)c->sum->nodes;
    for (int d = 0; d < 3; d++, output /= side)
        at[d] = (double)(output % side) / c->sum->nodes;
}

/* rival_term() in double precision, implemented independently. */
static double exact_term(const struct rival_sum *of, double r2, const struct rival_sample *s)
{
    const double reach2 = (double)of->reach * (double)of->reach, q = (double)s->re;
    if (of->law == RIVAL_POTENTIAL)
        return r2 < reach2 ? q / sqrt(r2) * pow(1 - r2 / reach2, 2) : 0;
    if (of->law == RIVAL_FORCE)
        return r2 < reach2 ? q * pow(r2 + (double)of->soft * (double)of->soft, -1.5) : 0;
    const double u2 = r2 * (double)s->density, cut = (double)of->cut;
    return u2 < cut * cut ? q * exp((double)of->blobbiness * (u2 - 1)) : 0;
}

static void sum_exactly(const struct rival_check *c, const struct rival_sample *samples, size_t count, double *sum)
{
#pragma omp parallel for schedule(dynamic, 16)
    for (size_t i = 0; i < c->outputs; i++) {
        double at[3];
        output_at(c, c->output[i], at);
        for (size_t m = 0; m < count; m++) {
            const struct rival_sample *s = samples + m;
            const double away[3] = {(double)s->x - at[0], (double)s->y - at[1], (double)s->z - at[2]};
            const double r2 = away[0] * away[0] + away[1] * away[1] + away[2] * away[2];
            const double term = r2 > 0 ? exact_term(c->sum, r2, s) : 0;
            for (int d = 0; d < c->parts; d++)
                sum[(size_t)c->parts * i + (size_t)d] += c->parts == 3 ? term * away[d] : term;
        }
    }
}

int rival_check_create(struct rival_check **out, const struct rival_sum *sum, const struct rival_sample *samples,
                       size_t count, size_t wanted)
{
    struct rival_check *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(ERR_NO_MEMORY, "no memory for sums to compare with");
    *c = (struct rival_check){.sum = sum, .samples = samples, .count = count, .parts = sum->law == RIVAL_FORCE ? 3 : 1};
    c->output = calloc(wanted, sizeof *c->output);
    c->exact = calloc((size_t)c->parts * wanted, sizeof *c->exact);
    if (!c->output || !c->exact) {
        rival_check_free(c);
        return err_set(ERR_NO_MEMORY, "no memory for sums to compare with");
    }
    choose(c, wanted);
    sum_exactly(c, samples, count, c->exact);
    *out = c;
    return 0;
}

void rival_check_free(struct rival_check *check)
{
    if (!check)
        return;
    free(check->output);
    free(check->exact);
    free(check);
}

double rival_check_error(const struct rival_check *check, const float *found, const struct rival_sample *rest,
                         size_t rest_count)
{
    const size_t floats = (size_t)check->parts * check->outputs;
    double *sum = calloc(floats + 1, sizeof *sum), off = 0, all = 0;
    if (!sum)
        return NAN;
    sum_exactly(check, rest, rest_count, sum);
    for (size_t i = 0; i < floats; i++) {
        off += pow(sum[i] + (double)found[i] - check->exact[i], 2);
        all += pow(check->exact[i], 2);
    }
    free(sum);
    return sqrt(off / all);
}
