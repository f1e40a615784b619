/* The choice of the split's parameters, and its near part. */
#include "recon/cutcp/cutcp_split.h"

#include "gridding/range/kernel.h"

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
    CELLS_MOST = 256,      /* in the cutoff: the table of waves grows with the square */
    MESH_AXIS_MOST = 2048, /* the FFT of a row stays in a core's cache */
    CANDIDATES = 20,       /* of the mesh's cell */
};

/* Of the tolerance, what the expected error may be, since it is that of charges at random. */
static const double margin = 0.7;

/* The split must be expected to take this much less time than the direct sum. */
static const double gain_least = 1.25;

/* Nanoseconds of a core, in proportion as tests/bench/bench_cutcp.c found them with AVX-512. */
static const double ns_direct = 0.75;                /* of a pair in the direct sum */
static const double ns_near = 5, ns_atom = 420;      /* of a pair and an atom in a law of the near part */
static const double ns_node = 0.5, ns_spread = 300;  /* of a node and an atom in the window */
static const double ns_wave = 5.6;                   /* of a complex value in one pass of an FFT */
static const double ns_sample = 5;                   /* of an atom at a point where the error is measured */
static const double ns_tables = 1e7, ns_table = 2e4; /* of all tables, and of a square of cells in the cutoff */

static int size_round(double least)
{
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
static double cost(const struct cutcp_sum *sum, const struct cutcp_split *s)
{
    const int *n = sum->lattice.cells, *mesh = s->mesh, *extended = s->extended;
    const double rows = mesh[0] / 2.0 * mesh[1];
    const double values =
        rows * (3.0 * mesh[2] + extended[2]) + mesh[0] / 2.0 * extended[1] * n[2] + extended[0] / 2.0 * n[1] * n[2];
    double nodes = 1;
    for (int d = 0; d < 3; d++)
        nodes *= 2 * s->reach * mesh[d] / s->length[d];
    const double laws = s->form == CUTCP_THESIS ? 2 : 1;
    const double near = laws * (points_within(&sum->lattice, s->radius) * ns_near + ns_atom);
    return values * ns_wave + ns_tables + ns_table * pow(s->cutoff / s->cell, 2) +
           (double)sum->count * (nodes * ns_node + ns_spread + near + CUTCP_SAMPLES * ns_sample);
}

/* The box of the mesh. False: the lattice is a periodic box of a length that the FFTs do not have. */
static bool box_choose(struct cutcp_split *s, const struct cutcp_sum *sum)
{
    const struct range_box *box = &sum->lattice;
    for (int d = 0; d < 3; d++) {
        const double least = box->periodic[d] ? box->cells[d] : box->cells[d] + ceil(sum->cutoff / box->spacing[d]);
        if (!(least <= MESH_AXIS_MOST))
            return false;
        s->extended[d] = size_round(least);
        s->length[d] = s->extended[d] * box->spacing[d];
        if (box->periodic[d] && s->extended[d] != box->cells[d])
            return false;
    }
    return true;
}

/* Set the mesh for cells of at most `cell`. */
static bool mesh_choose(struct cutcp_split *s, double cell)
{
    s->cell = 0;
    for (int d = 0; d < 3; d++) {
        const double least = ceil(s->length[d] / cell - 1e-6);
        if (!(least <= MESH_AXIS_MOST))
            return false;
        s->mesh[d] = size_round(least);
        s->cell = fmax(s->cell, s->length[d] / s->mesh[d]);
    }
    return s->cutoff <= CELLS_MOST * s->cell;
}

static void level_choose(struct cutcp_split *s, const struct level *level)
{
    s->taper = level->taper;
    s->radius = level->taper * s->cell / KERNEL_PI;
    s->beta = level->beta;
    s->reach = level->width / 2.0 * s->cell;
}

const char *cutcp_split_choose(struct cutcp_split *split, const struct cutcp_sum *sum)
{
    const struct range_box *box = &sum->lattice;
    const double direct = (double)sum->count * points_within(box, sum->cutoff) * ns_direct;
    struct cutcp_split s = {.form = sum->form, .cutoff = sum->cutoff};
    double volume = 1, longest = 0, least = INFINITY;
    if (!box_choose(&s, sum))
        return "the lattice's axes have no FFT: at most 2048 points, in periodic boxes a product of 2, 3, 5 and 7";
    for (int d = 0; d < 3; d++) {
        volume *= box->cells[d] * box->spacing[d];
        longest = fmax(longest, box->spacing[d]);
    }
    for (int i = 0; i < CANDIDATES; i++) {
        if (!mesh_choose(&s, 4 * longest * pow(0.85, i)))
            continue;
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            level_choose(&s, &levels[l]);
            s.error =
                sqrt(sum->squares / volume * (kink_squared(sum, s.cell) + s.cell * levels[l].error * levels[l].error));
            s.gain = direct / cost(sum, &s);
            if (s.error > margin * sum->tolerance || s.radius > 0.7 * sum->cutoff || direct / s.gain >= least)
                continue;
            least = direct / s.gain;
            *split = s;
        }
    }
    return least * gain_least <= direct ? NULL : "the direct sum is expected to take less time";
}

/* ---- the near part ---- */

double cutcp_split_rise(const struct cutcp_split *split, double r)
{
    const double most = KERNEL_PI / split->cell, top = kernel_bessel_i0(split->taper);
    const int steps = 2 * (int)ceil(100 + 4 * most * r); /* Simpson's rule, a fourth of a radian per step at most */
    double sum = 0;
    for (int i = 0; i <= steps; i++) {
        const double x = (double)i / steps, phase = x * most * r;
        const double taper = kernel_bessel_i0(split->taper * sqrt(fmax(0, 1 - x * x))) / top;
        sum += (i == 0 || i == steps ? 1 : i % 2 ? 4 : 2) * taper * (phase > 1e-6 ? sin(phase) / phase : 1);
    }
    return 2 / KERNEL_PI * most * sum / (3 * steps);
}

/* Laws as functions of t = 1 - (r / a)^2. */
static double rise_at(const struct cutcp_split *s, double t)
{
    return cutcp_split_rise(s, s->radius * sqrt(fmax(0, 1 - t)));
}

static double shifted(const struct cutcp_split *s, double t)
{
    const double u = s->radius / s->cutoff, v = 1 - u * u * (1 - t);
    return v * v;
}

static double near_taylor2(const void *of, double t)
{
    return rise_at(of, t);
}

static double near_thesis(const void *of, double t)
{
    return shifted(of, t);
}

static double near_thesis_smooth(const void *of, double t)
{
    return -shifted(of, t) * rise_at(of, t);
}

int cutcp_split_near(const struct cutcp_split *split, struct range_law law[CUTCP_NEAR_LAWS], int *laws)
{
    /* Float32 rounds by as much. */
    const struct range_law_params params = {.form = RANGE_INVERSE, .reach = split->radius, .power = 1, .error = 1e-7};
    struct range_law_params other = params;
    if (split->form == CUTCP_TAYLOR2) {
        *laws = 1;
        other.form = RANGE_SHORT;
        return range_law_make(&law[0], &other, near_taylor2, split);
    }
    *laws = 2;
    other.form = RANGE_RADIAL;
    int rc = range_law_make(&law[0], &params, near_thesis, split);
    return rc == 0 ? range_law_make(&law[1], &other, near_thesis_smooth, split) : rc;
}
