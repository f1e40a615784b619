/* The error of a potential, measured at some points of its lattice by sums in double precision. */
#include "recon/cutcp/cutcp_split.h"

#include "gridding/base/err.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>

/* splitmix64: the same points on every run. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double law_of(const struct cutcp_sum *sum, double r2)
{
    const double rc = sum->cutoff, t = 1 - r2 / (rc * rc);
    if (!(r2 < rc * rc) || r2 == 0)
        return 0;
    return sum->form == CUTCP_THESIS ? cutcp_thesis(NULL, t) / sqrt(r2) : 1 / sqrt(r2) - cutcp_taylor2(&rc, t);
}

struct potential {
    double value, rounding; /* of float32, at most */
    double nearest2;        /* of a charge, squared */
};

/* The sampled lattice points, and lists of those that charges in a cell may reach: cells are no shorter than the
 * cutoff, so that these are the points in the cell and its neighbours. */
struct samples {
    size_t node[CUTCP_SAMPLES];
    double place[CUTCP_SAMPLES][3];
    double length[3]; /* of the box */
    int images[3];    /* within the cutoff, to either side */
    int cells[3];     /* along the axes */
    uint32_t *first;  /* of a cell in `near`; one more than cells */
    uint8_t near[27 * CUTCP_SAMPLES];
};

enum { CELLS_AXIS_MOST = 64 };

static int cell_along(const struct cutcp_sum *sum, const struct samples *s, int d, double at)
{
    double place = at / s->length[d];
    place -= sum->lattice.periodic[d] ? floor(place) : 0;
    place *= s->cells[d];
    /* Charges may lie outside an open box. */
    return place < s->cells[d] ? place > 0 ? (int)place : 0 : s->cells[d] - 1;
}

static size_t cell_of(const struct cutcp_sum *sum, const struct samples *s, const double *at)
{
    const int x = cell_along(sum, s, 0, at[0]), y = cell_along(sum, s, 1, at[1]), z = cell_along(sum, s, 2, at[2]);
    return ((size_t)z * (size_t)s->cells[1] + (size_t)y) * (size_t)s->cells[0] + (size_t)x;
}

/* The k-th of the 27 cells around a sample. False: beyond an open box, or the same cell as another. */
static bool neighbour(const struct cutcp_sum *sum, const struct samples *s, int sample, int k, size_t *cell)
{
    const int step[3] = {k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1};
    *cell = 0;
    for (int d = 2; d >= 0; d--) {
        int at = cell_along(sum, s, d, s->place[sample][d]) + step[d];
        if (sum->lattice.periodic[d] && s->cells[d] > 1)
            at = (at + s->cells[d]) % s->cells[d];
        if (at < 0 || at >= s->cells[d])
            return false;
        *cell = *cell * (size_t)s->cells[d] + (size_t)at;
    }
    return true;
}

static int samples_create(struct samples *s, const struct cutcp_sum *sum)
{
    const struct range_box *box = &sum->lattice;
    const size_t x = (size_t)box->cells[0], y = (size_t)box->cells[1], z = (size_t)box->cells[2];
    size_t all = 1, cell;
    for (int d = 0; d < 3; d++) {
        s->length[d] = box->cells[d] * box->spacing[d];
        s->images[d] = box->periodic[d] ? (int)ceil(sum->cutoff / s->length[d]) : 0;
        s->cells[d] = (int)fmin(s->length[d] / sum->cutoff, CELLS_AXIS_MOST);
        /* Of fewer than three periodic cells, two neighbours of one would be the same. */
        s->cells[d] = s->cells[d] < 1 || (box->periodic[d] && s->cells[d] < 3) ? 1 : s->cells[d];
        all *= (size_t)s->cells[d];
    }
    s->first = calloc(all + 2, sizeof *s->first);
    if (!s->first)
        return err_no_memory("the error of a potential of %zu charges", sum->count);
    uint32_t *next = s->first + 1;
    for (int i = 0; i < CUTCP_SAMPLES; i++) {
        uint64_t state = (uint64_t)i;
        const size_t node = random_next(&state) % (x * y * z);
        const size_t index[3] = {node % x, node / x % y, node / x / y};
        s->node[i] = node;
        for (int d = 0; d < 3; d++)
            s->place[i][d] = (double)index[d] * box->spacing[d];
        for (int k = 0; k < 27; k++)
            if (neighbour(sum, s, i, k, &cell))
                next[cell + 1]++;
    }
    for (size_t i = 0; i < all; i++)
        next[i + 1] += next[i];
    for (int i = 0; i < CUTCP_SAMPLES; i++)
        for (int k = 0; k < 27; k++)
            if (neighbour(sum, s, i, k, &cell))
                s->near[next[cell]++] = (uint8_t)i;
    return 0;
}

/* Add a charge and its images. away: from the sample to one of them, the nearest along each periodic axis. */
static void images_add(const struct cutcp_sum *sum, const struct samples *s, double charge, const double away[3],
                       struct potential *p)
{
    for (int z = -s->images[2]; z <= s->images[2]; z++)
        for (int y = -s->images[1]; y <= s->images[1]; y++)
            for (int x = -s->images[0]; x <= s->images[0]; x++) {
                const double dx = away[0] + x * s->length[0], dy = away[1] + y * s->length[1],
                             dz = away[2] + z * s->length[2], r2 = dx * dx + dy * dy + dz * dz;
                p->value += charge * law_of(sum, r2);
                p->nearest2 = r2 < p->nearest2 ? r2 : p->nearest2;
                p->rounding += r2 > 0 && r2 < 1 ? fabs(charge) * (double)FLT_EPSILON / sqrt(r2) : 0;
            }
}

/* Add a charge to the potentials that it reaches. */
static void charge_add(const struct cutcp_sum *sum, const struct samples *s, const double at[3], double charge,
                       struct potential potential[CUTCP_SAMPLES])
{
    const size_t cell = cell_of(sum, s, at);
    for (uint32_t k = s->first[cell]; k < s->first[cell + 1]; k++) {
        const int i = s->near[k];
        double away[3];
        int d = 0;
        for (; d < 3; d++) {
            away[d] = at[d] - s->place[i][d];
            if (sum->lattice.periodic[d])
                away[d] -= s->length[d] * rint(away[d] / s->length[d]);
            if (!(fabs(away[d]) < sum->cutoff))
                break;
        }
        if (d == 3)
            images_add(sum, s, charge, away, &potential[i]);
    }
}

/* Charges in parts, which threads share, and whose sums are added in order: the same bits for any number of threads. */
enum { PARTS = 64 };

struct part {
    struct potential potential[CUTCP_SAMPLES];
};

static void part_add(const struct cutcp_sum *sum, const struct samples *s, const double *at, const float *values,
                     size_t number, struct part *part)
{
    for (int i = 0; i < CUTCP_SAMPLES; i++)
        part->potential[i] = (struct potential){0, 0, INFINITY};
    for (size_t i = sum->count * number / PARTS; i < sum->count * (number + 1) / PARTS; i++)
        if (values[i] != 0)
            charge_add(sum, s, at + 3 * i, (double)values[i], part->potential);
}

/* Sum up `parts`, and compare with the grid. */
static double difference(const struct samples *s, const struct part *parts, const float *grid, double rounding_most,
                         double exclusion)
{
    double squares = 0;
    int count = 0;
    for (int i = 0; i < CUTCP_SAMPLES; i++) {
        struct potential p = {0, 0, INFINITY};
        for (int part = 0; part < PARTS; part++) {
            p.value += parts[part].potential[i].value;
            p.rounding += parts[part].potential[i].rounding;
            p.nearest2 = fmin(p.nearest2, parts[part].potential[i].nearest2);
        }
        if (p.rounding > rounding_most || p.nearest2 < exclusion * exclusion)
            continue;
        squares += pow((double)grid[s->node[i]] - p.value, 2);
        count++;
    }
    return count ? sqrt(squares / count) : 0;
}

int cutcp_measure(const struct cutcp_sum *sum, double unit, double exclusion, const double *at, const float *values,
                  const float *grid, int threads, const struct listener *listener, double *error)
{
    atomic_int code = 0;
    struct samples samples;
    int rc = samples_create(&samples, sum);
    if (rc != 0)
        return rc;
    struct part *parts = malloc(PARTS * sizeof *parts);
    if (!parts)
        rc = err_no_memory("the error of a potential of %zu charges", sum->count);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (rc == 0)
    for (int part = 0; part < (rc == 0 ? PARTS : 0); part++) {
        if (omp_get_thread_num() == 0 && listener && atomic_load(&code) == 0)
            atomic_store(&code, listener->progress(listener->context, (size_t)part, PARTS));
        if (atomic_load(&code) == 0)
            part_add(sum, &samples, at, values, (size_t)part, &parts[part]);
    }
    if (rc == 0)
        rc = atomic_load(&code);
    if (rc == 0)
        *error = difference(&samples, parts, grid, 0.1 * unit * sum->tolerance, exclusion) / unit;
    free(samples.first);
    free(parts);
    return rc;
}
