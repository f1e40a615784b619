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

/* Add a charge and its images. away: from the node to one of them, the nearest along each periodic axis. */
static void images_add(const struct cutcp_sum *sum, double charge, const double away[3], struct potential *p)
{
    double length[3];
    int images[3]; /* to either side */
    for (int d = 0; d < 3; d++) {
        length[d] = sum->lattice.cells[d] * sum->lattice.spacing[d];
        images[d] = sum->lattice.periodic[d] ? (int)ceil(sum->cutoff / length[d]) : 0;
    }
    for (int z = -images[2]; z <= images[2]; z++)
        for (int y = -images[1]; y <= images[1]; y++)
            for (int x = -images[0]; x <= images[0]; x++) {
                const int image[3] = {x, y, z};
                double r2 = 0;
                for (int d = 0; d < 3; d++)
                    r2 += pow(away[d] + image[d] * length[d], 2);
                p->value += charge * law_of(sum, r2);
                p->nearest2 = fmin(p->nearest2, r2);
                p->rounding += r2 > 0 && r2 < 1 ? fabs(charge) * (double)FLT_EPSILON / sqrt(r2) : 0;
            }
}

/* From a node to a charge, along an axis. */
static double away_along(const struct range_box *box, int d, double at, double node)
{
    const double away = at - node, length = box->cells[d] * box->spacing[d];
    return box->periodic[d] ? away - length * rint(away / length) : away;
}

/* The charges by cells no shorter than the cutoff: those within it are in a cell and its neighbours. */
struct cells {
    int count[3];
    size_t *first;   /* of a cell in `order`; one more than cells */
    uint32_t *order; /* indices of charges */
};

enum { CELLS_AXIS_MOST = 64 };

static int cell_along(const struct cutcp_sum *sum, const struct cells *c, int d, double at)
{
    const struct range_box *box = &sum->lattice;
    double place = at / (box->cells[d] * box->spacing[d]);
    place -= box->periodic[d] ? floor(place) : 0;
    return (int)fmin(fmax(floor(place * c->count[d]), 0), c->count[d] - 1);
}

static size_t cell_of(const struct cutcp_sum *sum, const struct cells *c, const double *at)
{
    const int x = cell_along(sum, c, 0, at[0]), y = cell_along(sum, c, 1, at[1]), z = cell_along(sum, c, 2, at[2]);
    return ((size_t)z * (size_t)c->count[1] + (size_t)y) * (size_t)c->count[0] + (size_t)x;
}

static void cells_free(struct cells *c)
{
    free(c->first);
    free(c->order);
}

static int cells_create(struct cells *c, const struct cutcp_sum *sum, const double *at)
{
    const struct range_box *box = &sum->lattice;
    size_t all = 1;
    for (int d = 0; d < 3; d++) {
        c->count[d] = (int)fmin(box->cells[d] * box->spacing[d] / sum->cutoff, CELLS_AXIS_MOST);
        /* Of fewer than three periodic cells, two neighbours of one would be the same. */
        c->count[d] = c->count[d] < 1 || (box->periodic[d] && c->count[d] < 3) ? 1 : c->count[d];
        all *= (size_t)c->count[d];
    }
    c->first = calloc(all + 2, sizeof *c->first);
    c->order = malloc((sum->count + 1) * sizeof *c->order);
    if (!c->first || !c->order) {
        cells_free(c);
        return err_no_memory("the error of a potential of %zu charges", sum->count);
    }
    size_t *next = c->first + 1;
    for (size_t i = 0; i < sum->count; i++)
        next[cell_of(sum, c, at + 3 * i) + 1]++;
    for (size_t i = 0; i < all; i++)
        next[i + 1] += next[i];
    for (size_t i = 0; i < sum->count; i++)
        c->order[next[cell_of(sum, c, at + 3 * i)]++] = (uint32_t)i;
    return 0;
}

static void cell_add(const struct cutcp_sum *sum, const struct cells *c, size_t cell, const double *at,
                     const float *values, const double place[3], struct potential *p)
{
    for (size_t k = c->first[cell]; k < c->first[cell + 1]; k++) {
        const size_t i = c->order[k];
        double away[3];
        int d = 0;
        for (; d < 3; d++) {
            away[d] = away_along(&sum->lattice, d, at[3 * i + (size_t)d], place[d]);
            if (!(fabs(away[d]) < sum->cutoff))
                break;
        }
        if (d == 3 && values[i] != 0)
            images_add(sum, (double)values[i], away, p);
    }
}

static struct potential potential_at(const struct cutcp_sum *sum, const struct cells *c, const double *at,
                                     const float *values, size_t node)
{
    const struct range_box *box = &sum->lattice;
    const size_t x = (size_t)box->cells[0], y = (size_t)box->cells[1];
    const double place[3] = {(double)(node % x) * box->spacing[0], (double)(node / x % y) * box->spacing[1],
                             (double)(node / x / y) * box->spacing[2]};
    struct potential p = {0, 0, INFINITY};
    for (int k = 0; k < 27; k++) {
        const int step[3] = {k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1};
        size_t cell = 0;
        bool there = true;
        for (int d = 2; d >= 0; d--) {
            int at_axis = cell_along(sum, c, d, place[d]) + step[d];
            if (box->periodic[d] && c->count[d] > 1)
                at_axis = (at_axis + c->count[d]) % c->count[d];
            there = there && at_axis >= 0 && at_axis < c->count[d];
            cell = cell * (size_t)c->count[d] + (size_t)(there ? at_axis : 0);
        }
        if (there)
            cell_add(sum, c, cell, at, values, place, &p);
    }
    return p;
}

int cutcp_measure(const struct cutcp_sum *sum, double unit, double exclusion, const double *at, const float *values,
                  const float *grid, int threads, const struct listener *listener, double *error)
{
    const int *n = sum->lattice.cells;
    const size_t nodes = (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
    double square[CUTCP_SAMPLES], squares = 0;
    atomic_int code = 0;
    int count = 0;
    struct cells cells;
    const int rc = cells_create(&cells, sum, at);
    if (rc != 0)
        return rc;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int i = 0; i < CUTCP_SAMPLES; i++) {
        uint64_t state = (uint64_t)i;
        const size_t node = random_next(&state) % nodes;
        if (omp_get_thread_num() == 0 && listener && atomic_load(&code) == 0)
            atomic_store(&code, listener->progress(listener->context, (size_t)i, CUTCP_SAMPLES));
        if (atomic_load(&code) != 0)
            continue;
        const struct potential p = potential_at(sum, &cells, at, values, node);
        square[i] = p.rounding > 0.1 * unit * sum->tolerance || p.nearest2 < exclusion * exclusion
                        ? NAN
                        : pow((double)grid[node] - p.value, 2);
    }
    cells_free(&cells);
    if (atomic_load(&code) != 0)
        return atomic_load(&code);
    for (int i = 0; i < CUTCP_SAMPLES; i++)
        if (!isnan(square[i])) {
            squares += square[i];
            count++;
        }
    *error = count ? sqrt(squares / count) / unit : 0;
    return 0;
}
