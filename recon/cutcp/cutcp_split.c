/* The choice of the split's parameters, and its near part. */
#include "recon/cutcp/cutcp_split.h"
#include "recon/cutcp/cutcp_gauss.h"

#include "gridding/range/kernel.h"

#include <float.h>
#include <math.h>

/* Tapers, each with the narrowest window that suits it. error: what near() beyond its radius and the aliases of the
 * smooth part's waves contribute for one charge, in l2, over sqrt(cell); docs/numerics.md has the integrals. */
static const struct level {
    int width; /* of the window, cells */
    double taper, beta, error;
} levels[] = {
    {4, 5, 8.0, 1.6e-2},   {5, 6, 9.5, 5.3e-3},    {6, 7, 10.8, 1.9e-3},   {6, 8, 11.4, 7.6e-4},
    {7, 9, 12.6, 2.6e-4},  {7, 10, 13.3, 1.2e-4},  {8, 11, 14.4, 3.7e-5},  {8, 12, 15.2, 1.7e-5},
    {8, 13, 15.2, 8.5e-6}, {10, 14, 17.0, 1.9e-6}, {10, 15, 18.0, 7.5e-7},
};

enum {
    CELLS_MOST = 256,      /* in the cutoff: places in the table of waves are float32 */
    MESH_AXIS_MOST = 2048, /* the FFT of a row stays in a core's cache */
    CANDIDATES = 20,       /* of the mesh's cell */
};

/* The standard deviation of a measured error over the expected one: 1 / sqrt(2 CUTCP_SAMPLES) = 0.06 for the samples,
 * and as much again for charges that are not at random. */
static const double error_varies = 0.08;

/* Of the expected error, what the fit of near() may be. */
static const double law_share = 0.1;

/* Nanoseconds: of a core with AVX-512, and of an H100 or H200, as tests/bench/bench_cutcp.c found them. */
struct costs {
    double direct[2];     /* of a pair in the direct sum, by form */
    double point;         /* of an atom in the direct sum */
    double near, atom;    /* of a pair and an atom in the near part; an atom's transfer, too */
    double node, spread;  /* of a node and an atom in the window */
    double mesh;          /* of a node of the mesh: its memory, and to write it */
    double wave;          /* of a complex value in one pass of an FFT */
    double slow;          /* the factor of lengths that are not quick */
    double large;         /* the factor of a mesh of MESH_LARGE nodes: every line of a page is in another */
    double sample;        /* of an atom when the error is measured */
    double tables, table; /* of all tables, and of a cell in the cutoff */
    double begin;
    double gain; /* the split must be expected to take this much less time than the direct sum */
};

#define MESH_LARGE 0x1p28

static const struct costs cpu_costs = {.direct = {0.75, 0.75},
                                       .near = 5,
                                       .atom = 420,
                                       .node = 0.5,
                                       .spread = 300,
                                       .wave = 5.6,
                                       .slow = 1,
                                       .large = 4,
                                       .sample = 30,
                                       .tables = 4e5,
                                       .table = 1.3e4,
                                       .gain = 1.25};

static const struct costs gpu_costs = {.direct = {3.9e-4, 4.1e-4},
                                       .point = 9,
                                       .near = 2.6e-3,
                                       .atom = 5.4,
                                       .node = 1e-4,
                                       .spread = 0.45,
                                       .mesh = 0.003,
                                       .wave = 6.5e-3,
                                       .slow = 2.5,
                                       .large = 1,
                                       .sample = 3.3,
                                       .tables = 4e5,
                                       .table = 1.3e4,
                                       .begin = 9e5,
                                       .gain = 1.05};

/* quick: one that a GPU has kernels for, if there is such a one. */
static int size_round(double least, bool quick)
{
    for (int n = (int)least; quick && n <= MESH_AXIS_MOST; n++)
        if (filter_quick(n))
            return n;
    for (int n = least < 4 ? 4 : (int)least;; n++) {
        int rest = n;
        for (int prime = 2; prime <= 7; prime += prime == 2 ? 1 : 2)
            while (rest % prime == 0)
                rest /= prime;
        if (rest == 1)
            return n;
    }
}

/* The square of what the waves beyond the mesh's contribute for one charge. smooth() has a kink at rc, a jump of its
 * second (thesis) or third derivative, whose waves fall with k^-4 or k^-5; those outside the cube of the mesh's waves
 * are missing. */
static double kink_squared(const struct cutcp_sum *sum, double cell)
{
    const bool thesis = sum->form == CUTCP_THESIS;
    const double rc = sum->cutoff, jump = thesis ? 8 / pow(rc, 3) : 15 / pow(rc, 4);
    const double outside_cube = thesis ? 0.46 : 0.36; /* over the waves outside the inscribed sphere */
    const double amplitude = 4 * KERNEL_PI * rc * jump, falls = thesis ? 5 : 7;
    return outside_cube * amplitude * amplitude / (4 * KERNEL_PI * KERNEL_PI) / (falls * pow(KERNEL_PI / cell, falls));
}

/* Lattice points within `reach` of a charge. */
static double points_within(const struct range_box *box, double reach)
{
    return 4 * KERNEL_PI / 3 * pow(reach, 3) / (box->spacing[0] * box->spacing[1] * box->spacing[2]);
}

/* Nanoseconds. Along each axis, the FFT back needs only the waves that the mesh has and leaves only the lattice. */
static double cost(const struct cutcp_sum *sum, const struct cutcp_split *s, const struct costs *c)
{
    const int *n = sum->lattice.cells, *mesh = s->mesh, *extended = s->extended;
    const double rows = mesh[0] / 2.0 * mesh[1];
    const double values =
        rows * (3.0 * mesh[2] + extended[2]) + mesh[0] / 2.0 * extended[1] * n[2] + extended[0] / 2.0 * n[1] * n[2];
    double nodes = 1, slow = 1;
    for (int d = 0; d < 3; d++) {
        nodes *= 2 * s->reach * mesh[d] / s->length[d];
        slow = filter_quick(mesh[d]) && filter_quick(extended[d]) ? slow : c->slow;
    }
    const double near = points_within(&sum->lattice, s->radius) * c->near + c->atom;
    const double all = (double)mesh[0] * mesh[1] * mesh[2];
    return values * slow * (all >= MESH_LARGE ? c->large : 1) * c->wave + all * c->mesh + c->begin + c->tables +
           c->table * s->cutoff / s->cell + (double)sum->count * (nodes * c->node + c->spread + near + c->sample);
}

/* The box of the mesh. False: the lattice is a periodic box of a length that the FFTs do not have. */
static bool box_choose(struct cutcp_split *s, const struct cutcp_sum *sum, bool gpu)
{
    const struct range_box *box = &sum->lattice;
    for (int d = 0; d < 3; d++) {
        const double least = box->periodic[d] ? box->cells[d] : box->cells[d] + ceil(sum->cutoff / box->spacing[d]);
        if (!(least <= MESH_AXIS_MOST))
            return false;
        s->extended[d] = size_round(least, gpu && !box->periodic[d]);
        s->length[d] = s->extended[d] * box->spacing[d];
        if (box->periodic[d] && s->extended[d] != box->cells[d])
            return false;
    }
    return true;
}

/* Set the mesh for cells of at most `cell`. */
static bool mesh_choose(struct cutcp_split *s, double cell, bool gpu)
{
    s->cell = 0;
    for (int d = 0; d < 3; d++) {
        const double least = ceil(s->length[d] / cell - 1e-6);
        if (!(least <= MESH_AXIS_MOST))
            return false;
        s->mesh[d] = size_round(least, gpu);
        s->cell = fmax(s->cell, s->length[d] / s->mesh[d]);
    }
    return s->cutoff <= CELLS_MOST * s->cell;
}

/* The probability that the measured error is above the tolerance: the direct sum is then calculated as well. */
static double risk_of(double expected, double tolerance)
{
    return expected < tolerance ? 0.5 * erfc((tolerance / expected - 1) / (error_varies * sqrt(2.0))) : 1;
}

static void level_choose(struct cutcp_split *s, const struct level *level)
{
    s->taper = level->taper;
    s->radius = level->taper * s->cell / KERNEL_PI;
    s->beta = level->beta;
    s->reach = level->width / 2.0 * s->cell;
}

const char *cutcp_split_choose(struct cutcp_split *split, const struct cutcp_sum *sum, bool gpu)
{
    const struct range_box *box = &sum->lattice;
    const struct costs *costs = gpu ? &gpu_costs : &cpu_costs;
    const double direct =
        (double)sum->count * (points_within(box, sum->cutoff) * costs->direct[sum->form] + costs->point);
    struct cutcp_split s = {.form = sum->form, .cutoff = sum->cutoff};
    double volume = 1, longest = 0, least = INFINITY;
    if (!box_choose(&s, sum, gpu))
        return "the lattice's axes have no FFT: at most 2048 points, in periodic boxes a product of 2, 3, 5 and 7";
    for (int d = 0; d < 3; d++) {
        volume *= box->cells[d] * box->spacing[d];
        longest = fmax(longest, box->spacing[d]);
    }
    for (int i = 0; i < CANDIDATES; i++) {
        if (!mesh_choose(&s, 4 * longest * pow(0.85, i), gpu))
            continue;
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            level_choose(&s, &levels[l]);
            s.error =
                sqrt(sum->squares / volume * (kink_squared(sum, s.cell) + s.cell * levels[l].error * levels[l].error));
            s.gain = direct / (cost(sum, &s, costs) + direct * risk_of(s.error, sum->tolerance));
            if (s.error >= sum->tolerance || s.radius > 0.7 * sum->cutoff || direct / s.gain >= least)
                continue;
            least = direct / s.gain;
            s.law_error =
                law_share * s.error / sqrt(sum->squares / volume * 4 * KERNEL_PI / 3 * pow(s.radius, 3) + DBL_MIN);
            *split = s;
        }
    }
    return least * costs->gain <= direct ? NULL : "the direct sum is expected to take less time";
}

/* ---- the near part ---- */

/* sinh(z) / z, of z^2. */
static double sinh_over(double z2)
{
    const double z = sqrt(fabs(z2));
    return z < 1e-4 ? 1 + z2 / 6 : z2 > 0 ? sinh(z) / z : sin(z) / z;
}

double cutcp_split_rise(const struct cutcp_split *split, double r)
{
    const double phase = KERNEL_PI / split->cell * r;
    const int panels = 1 + (int)(phase / CUTCP_GAUSS_PANEL);
    double sum = 0;
    for (int i = 0; i < panels * CUTCP_GAUSS_POINTS; i++) {
        const struct cutcp_gauss *g = &cutcp_gauss[i % CUTCP_GAUSS_POINTS];
        const double x = (i / CUTCP_GAUSS_POINTS + g->at) / panels * phase;
        sum += g->weight * sinh_over(split->taper * split->taper - x * x);
    }
    return 2 / split->cell * sum / panels / kernel_bessel_i0(split->taper);
}

/* Laws as functions of t = 1 - (r / a)^2. */
static double rise_at(const struct cutcp_split *s, double t)
{
    return cutcp_split_rise(s, s->radius * sqrt(fmax(0, 1 - t)));
}

static double near_smooth(const void *of, double t)
{
    return rise_at(of, t);
}

int cutcp_split_near(const struct cutcp_split *split, struct range_law *law)
{
    const struct range_law_params params = {.form = RANGE_SHORT,
                                            .reach = split->radius,
                                            .power = 1,
                                            .error = fmax(1e-7, split->law_error), /* float32 rounds by as much */
                                            .fall = split->form == CUTCP_THESIS ? split->cutoff : 0};
    return range_law_make(law, &params, near_smooth, split);
}
