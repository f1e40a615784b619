/* The error of a potential, measured at some points of its lattice by sums in double precision. */
#include "recon/cutcp/cutcp_split.h"

#include "gridding/base/err.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdatomic.h>

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
                p->rounding += r2 > 0 && r2 < 1 ? fabs(charge) * (double)FLT_EPSILON / sqrt(r2) : 0;
            }
}

/* From a node to a charge, along an axis. */
static double away_along(const struct range_box *box, int d, double at, double node)
{
    const double away = at - node, length = box->cells[d] * box->spacing[d];
    return box->periodic[d] ? away - length * rint(away / length) : away;
}

static struct potential potential_at(const struct cutcp_sum *sum, const double *at, const float *values, size_t node)
{
    const struct range_box *box = &sum->lattice;
    const size_t x = (size_t)box->cells[0], y = (size_t)box->cells[1];
    const double place[3] = {(double)(node % x) * box->spacing[0], (double)(node / x % y) * box->spacing[1],
                             (double)(node / x / y) * box->spacing[2]};
    struct potential p = {0, 0};
    for (size_t i = 0; i < sum->count; i++) {
        double away[3];
        int d = 0;
        for (; d < 3; d++) {
            away[d] = away_along(box, d, at[3 * i + (size_t)d], place[d]);
            if (!(fabs(away[d]) < sum->cutoff))
                break;
        }
        if (d == 3 && values[i] != 0)
            images_add(sum, (double)values[i], away, &p);
    }
    return p;
}

int cutcp_measure(const struct cutcp_sum *sum, double unit, const double *at, const float *values, const float *grid,
                  int threads, const struct listener *listener, double *error)
{
    const int *n = sum->lattice.cells;
    const size_t nodes = (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
    double square[CUTCP_SAMPLES], squares = 0;
    atomic_int code = 0;
    int count = 0;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int i = 0; i < CUTCP_SAMPLES; i++) {
        uint64_t state = (uint64_t)i;
        const size_t node = random_next(&state) % nodes;
        if (omp_get_thread_num() == 0 && listener && atomic_load(&code) == 0)
            atomic_store(&code, listener->progress(listener->context, (size_t)i, CUTCP_SAMPLES));
        if (atomic_load(&code) != 0)
            continue;
        const struct potential p = potential_at(sum, at, values, node);
        square[i] = p.rounding > 0.1 * unit * sum->tolerance ? NAN : pow((double)grid[node] - p.value, 2);
    }
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
