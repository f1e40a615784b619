#include "recon/nbody/nbody_gravity.h"

#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "recon/nbody/nbody_mesh.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* MARGIN: cells between the open mesh's edge and the box, for the window. SMOOTH: beyond this many r_s the mesh's
 * kernel is 1 / r.
 */
enum { MARGIN = NBODY_WINDOW / 2 + 1, SMOOTH = 8, FIELDS = 4 };

/* Spline softening: the radius of the smoothed mass, in eps. */
#define SPLINE 2.8

#define ROOT_PI  1.7724538509055160273
#define DIAGONAL 1.7320508075688772935

/* Sums [FIELDS][count] in device memory, and their copy on the host, which a CPU does not need. */
struct sums {
    float *device, *host;
};

struct nbody_gravity {
    struct dev *dev;
    struct nbody_setup setup;
    size_t count;
    double heaviest, total;  /* total: of masses over the heaviest */
    struct nbody_mesh *mesh; /* NULL: only pairs */
    int mesh_cells;          /* cells of the mesh; in open space more than those of the box */
    float *mass, *at;        /* at[count][3]; in units of the frame, as what follows */
    float *masses;           /* of the device */
    struct sums near, far;   /* sums over pairs; far: fields of the mesh */
};

/* Position and size of the box; computations are in units of its side and of the heaviest mass. */
struct unit_box {
    double origin[3], side;
};

/* ---- laws ---- */

/* Parameters of a split: 1 / (2 r_s), and the reach. */
struct split {
    double a, reach;
};

/* erf(u) / r. */
static double far_potential(const void *of, double t)
{
    const struct split *s = of;
    const double r = s->reach * sqrt(1 - t), u = s->a * r, v = u * u;
    if (u < 0.02)
        return 2 / ROOT_PI * s->a * (1 - v / 3 + v * v / 10);
    return erf(u) / r;
}

/* (1 - w(u)) / r^3. */
static double far_force(const void *of, double t)
{
    const struct split *s = of;
    const double r = s->reach * sqrt(1 - t), u = s->a * r, v = u * u;
    if (u < 0.2)
        return 4 / (3 * ROOT_PI) * s->a * s->a * s->a * (1 - v * (3.0 / 5 - v * (3.0 / 14 - v * (1.0 / 18 - v / 88))));
    return (erf(u) - 2 / ROOT_PI * u * exp(-v)) / (r * r * r);
}

static double one(const void *of, double t)
{
    (void)of;
    (void)t;
    return 1;
}

/* A cut-off, in sides of the frame, slightly less than the given one. At that very distance lie a body's own images if
 * the reach is the box's side, and many pairs of a lattice; which of them are within it would be up to the rounding of
 * their positions, so that images on one side would count and those on the other not. Rounding of float32 moves a
 * coordinate by at most 2^-24 of the farthest, 1 + reach, and so a distance between two by at most 2 sqrt(3) 2^-24 =
 * 2.1e-7 of that; its square and the comparison round three times more, by 2^-24 of the reach each. Without pairs at
 * the cut-off this changes nothing. */
static double cut_reach(double reach)
{
    return reach * (1 - fmin(1e-3, 4e-7 * (1 + 1 / reach)));
}

/* The law of pairs, of forces (power 3) or potentials (1), in units of the frame. */
static int pair_law(const struct nbody_gravity *gravity, const struct unit_box *frame, int power, struct range_law *law)
{
    const struct nbody_setup *setup = &gravity->setup;
    const double eps = setup->eps / frame->side, cell = 1.0 / setup->mesh;
    struct range_law_params params = {.form = RANGE_INVERSE,
                                      .power = power,
                                      .soft = setup->softening == NBODY_PLUMMER ? eps : 0,
                                      .spline = setup->softening == NBODY_SPLINE ? SPLINE * eps : 0,
                                      .error = 1e-6};
    if (setup->method == NBODY_DIRECT || setup->law == NBODY_CUT) {
        /* In open space nothing is farther than the frame's diagonal. */
        params.reach = setup->method == NBODY_DIRECT ? 1.01 * DIAGONAL : cut_reach(setup->cutoff / frame->side);
        params.reach = setup->periodic ? params.reach : fmin(params.reach, 1.01 * DIAGONAL);
        return range_law_make(law, &params, one, NULL);
    }
    params.form = RANGE_SHORT;
    params.reach = setup->cutoff * setup->split * cell;
    params.error = setup->law == NBODY_ERFC ? 1e-6 : 1.5e-3;
    const struct split split = {0.5 / (setup->split * cell), params.reach};
    return range_law_make(law, &params, power == 3 ? far_force : far_potential, &split);
}

/* ---- the object ---- */

/* Cells of the mesh for open space: large enough that no periodic image of the truncated kernel reaches the box. */
static double open_reach(const struct nbody_setup *setup)
{
    return DIAGONAL * setup->mesh + SMOOTH * setup->split;
}

static int mesh_cells(const struct nbody_setup *setup)
{
    return setup->periodic
               ? setup->mesh
               : nbody_mesh_round((int)ceil(setup->mesh + 2 * MARGIN + open_reach(setup) + SMOOTH * setup->split));
}

static int sums_create(struct dev *dev, size_t count, struct sums *sums)
{
    void *memory = NULL;
    int rc = dev_alloc(dev, (count + 1) * FIELDS * sizeof *sums->device, &memory);
    sums->device = memory;
    if (rc != 0 || dev_direct(dev, memory))
        return rc;
    sums->host = malloc((count + 1) * FIELDS * sizeof *sums->host);
    return sums->host ? 0 : err_no_memory("%zu bodies", count);
}

static void sums_free(struct dev *dev, struct sums *sums)
{
    dev_release(dev, sums->device);
    free(sums->host);
}

/* Copy the sums to the host, if they are on a GPU. */
static int sums_fetch(struct dev *dev, size_t count, const struct sums *sums, const float **found)
{
    *found = sums->host ? sums->host : sums->device;
    return sums->host ? dev_download(dev, sums->host, sums->device, count * FIELDS * sizeof *sums->host) : 0;
}

static int masses_create(struct nbody_gravity *gravity)
{
    void *memory = NULL;
    int rc = dev_alloc(gravity->dev, (gravity->count + 1) * sizeof *gravity->masses, &memory);
    gravity->masses = memory;
    return rc == 0 ? dev_upload(gravity->dev, memory, gravity->mass, gravity->count * sizeof *gravity->mass) : rc;
}

int nbody_gravity_create(struct nbody_gravity **out, struct dev *dev, const struct nbody_setup *setup, size_t count,
                         const double *mass)
{
    struct nbody_gravity *gravity = calloc(1, sizeof *gravity);
    if (!gravity)
        return err_no_memory("bodies");
    *gravity = (struct nbody_gravity){.dev = dev, .setup = *setup, .count = count};
    for (size_t i = 0; i < count; i++)
        gravity->heaviest = fmax(gravity->heaviest, mass[i]);
    gravity->mass = malloc((count + 1) * sizeof *gravity->mass);
    gravity->at = malloc((count + 1) * 3 * sizeof *gravity->at);
    int rc = gravity->mass && gravity->at ? 0 : err_no_memory("%zu bodies", count);
    if (rc == 0)
        rc = sums_create(dev, count, &gravity->near);
    if (rc == 0 && setup->method == NBODY_P3M)
        rc = sums_create(dev, count, &gravity->far);
    for (size_t i = 0; i < count && rc == 0; i++) {
        gravity->mass[i] = gravity->heaviest > 0 ? (float)(mass[i] / gravity->heaviest) : 0;
        gravity->total += (double)gravity->mass[i];
    }
    gravity->mesh_cells = mesh_cells(setup);
    if (rc == 0)
        rc = masses_create(gravity);
    if (rc == 0 && setup->method == NBODY_P3M)
        rc = nbody_mesh_create(&gravity->mesh, dev, gravity->mesh_cells, setup->split,
                               setup->periodic ? 0 : open_reach(setup), setup->host_transforms);
    if (rc == 0)
        *out = gravity;
    else
        nbody_gravity_free(gravity);
    return rc;
}

void nbody_gravity_free(struct nbody_gravity *gravity)
{
    if (!gravity)
        return;
    nbody_mesh_free(gravity->mesh);
    free(gravity->mass);
    free(gravity->at);
    dev_release(gravity->dev, gravity->masses);
    sums_free(gravity->dev, &gravity->near);
    sums_free(gravity->dev, &gravity->far);
    free(gravity);
}

int nbody_gravity_threads(const struct nbody_gravity *gravity)
{
    return dev_threads(gravity->dev);
}

bool nbody_gravity_on_gpu(const struct dev *dev, const struct nbody_setup *setup)
{
    return nbody_mesh_serves(dev, mesh_cells(setup));
}

/* ---- an evaluation ---- */

/* The cube around the bodies in open space. Its side and position change in steps, so that r_s stays the same while the
 * bodies move a little. */
static struct unit_box frame_around(size_t count, const double (*at)[3], int threads)
{
    struct unit_box frame = {.side = 1};
    double low[3], high[3], longest = 0;
    for (int d = 0; d < 3; d++)
        low[d] = high[d] = count ? at[0][d] : 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : low) reduction(max : high)
    for (size_t i = 0; i < count; i++)
        for (int d = 0; d < 3; d++) {
            low[d] = at[i][d] < low[d] ? at[i][d] : low[d];
            high[d] = at[i][d] > high[d] ? at[i][d] : high[d];
        }
    for (int d = 0; d < 3; d++)
        longest = fmax(longest, high[d] - low[d]);
    if (longest > 0)
        frame.side = exp2(ceil(4 * log2(1.02 * longest)) / 4);
    for (int d = 0; d < 3; d++)
        frame.origin[d] = rint((low[d] + high[d]) / 2 / frame.side * 64) / 64 * frame.side - frame.side / 2;
    return frame;
}

static struct unit_box frame_of(const struct nbody_setup *setup, size_t count, const double (*at)[3], int threads)
{
    return setup->periodic ? (struct unit_box){.side = setup->box} : frame_around(count, at, threads);
}

static void place(struct nbody_gravity *gravity, const struct unit_box *frame, const double (*at)[3])
{
#pragma omp parallel for num_threads(dev_threads(gravity->dev)) schedule(static)
    for (size_t i = 0; i < gravity->count; i++)
        for (int d = 0; d < 3; d++) {
            double x = (at[i][d] - frame->origin[d]) / frame->side;
            gravity->at[3 * i + (size_t)d] = (float)(gravity->setup.periodic ? x - floor(x) : x);
        }
}

static struct range_box box_of(const struct nbody_gravity *gravity, bool mesh)
{
    const struct nbody_setup *setup = &gravity->setup;
    const int cells = mesh ? gravity->mesh_cells : setup->mesh;
    struct range_box box = {.dim = 3};
    for (int d = 0; d < 3; d++) {
        box.cells[d] = cells;
        box.spacing[d] = 1.0 / setup->mesh;
        box.origin[d] = mesh && !setup->periodic ? -(double)MARGIN / setup->mesh : 0;
        box.periodic[d] = setup->periodic;
    }
    return box;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The pairs' part of an evaluation's progress, beside a mesh. Points that crowd take more, on a GPU the mesh does. */
#define PAIRS_SHARE 0.6

/* A part of an evaluation: from one fraction of it to another. */
struct part {
    const struct nbody_poll *poll;
    double begin, end;
};

/* A listener of a part: calls the poll function of the evaluation. */
static int hear(void *context, size_t done, size_t most)
{
    const struct part *part = context;
    const double within = most > 0 ? (double)done / (double)most : 0;
    return part->poll && part->poll->stop(part->poll->context, part->begin + (part->end - part->begin) * within)
               ? err_set(ERR_CANCELED, "The job was canceled while it was running.")
               : 0;
}

static int sum_pairs(struct nbody_gravity *gravity, const struct unit_box *frame, const struct range_points *points,
                     bool potential, const struct listener *listener)
{
    struct range_law force, potential_law;
    const struct range_pair_sums sums = {.vector_law = &force,
                                         .vectors = gravity->near.device,
                                         .scalar_law = potential ? &potential_law : NULL,
                                         .scalars = gravity->near.device + 3 * gravity->count};
    int rc = pair_law(gravity, frame, 3, &force);
    if (rc == 0 && potential)
        rc = pair_law(gravity, frame, 1, &potential_law);
    return rc == 0 ? range_pairs(points, points, &sums, 1, gravity->masses, listener) : rc;
}

static int sum_mesh(struct nbody_gravity *gravity, const struct range_points *near, const struct listener *listener)
{
    const double cell = 1.0 / gravity->setup.mesh;
    struct range_points *own = NULL;
    int rc = 0;
    if (!gravity->setup.periodic) {
        const struct range_box box = box_of(gravity, true);
        const struct range_points_params params = {
            .box = box, .reach = NBODY_WINDOW * cell, .inputs = gravity->count, .at = gravity->at};
        rc = range_points_create(&own, gravity->dev, &params, NULL);
    }
    if (rc == 0)
        rc = nbody_mesh_fields(gravity->mesh, own ? own : near, cell, gravity->masses, gravity->far.device, listener);
    range_points_free(own);
    return rc;
}

/* Correct the mesh's potential: subtract each body's own contribution, and add that of the background that makes the
 * mean 0. */
static double mesh_correction(const struct nbody_gravity *gravity, double mass)
{
    const double split = gravity->setup.split / gravity->setup.mesh;
    return mass / (ROOT_PI * split) + (gravity->setup.periodic ? 4 * M_PI * gravity->total * split * split : 0);
}

/* What the sums for a body add up to. */
struct collecting {
    const struct nbody_gravity *gravity;
    const float *nears, *fars; /* fars: NULL without a mesh */
    double unit, side;         /* of potentials, and of the frame */
};

/* Writes the acceleration of body i, and its potential unless that is NULL; false: they are not finite. */
static bool collect_body(const struct collecting *c, size_t i, double acceleration[3], double *potential)
{
    const struct nbody_gravity *gravity = c->gravity;
    const double mesh = gravity->setup.mesh;
    double sum = 0;
    for (size_t d = 0; d < 3; d++) {
        const size_t at = d * gravity->count + i;
        const double far = c->fars ? (double)c->fars[at] * mesh * mesh : 0;
        acceleration[d] = c->unit / c->side * ((double)c->nears[at] + far);
        sum += acceleration[d];
    }
    if (potential) {
        const size_t at = 3 * gravity->count + i;
        *potential = -(double)c->nears[at];
        if (c->fars)
            *potential += (double)c->fars[at] * mesh + mesh_correction(gravity, (double)gravity->mass[i]);
        *potential *= c->unit;
        sum += *potential;
    }
    return isfinite(sum);
}

static int collect(const struct nbody_gravity *gravity, const struct unit_box *frame, double (*acceleration)[3],
                   double *potential)
{
    struct collecting c = {
        .gravity = gravity, .unit = gravity->setup.g * gravity->heaviest / frame->side, .side = frame->side};
    size_t bad = SIZE_MAX; /* the first body whose sums are not finite */
    int rc = sums_fetch(gravity->dev, gravity->count, &gravity->near, &c.nears);
    if (rc == 0 && gravity->mesh)
        rc = sums_fetch(gravity->dev, gravity->count, &gravity->far, &c.fars);
    if (rc != 0)
        return rc;
#pragma omp parallel for num_threads(dev_threads(gravity->dev)) schedule(static) reduction(min : bad)
    for (size_t i = 0; i < gravity->count; i++)
        if (!collect_body(&c, i, acceleration[i], potential ? &potential[i] : NULL) && i < bad)
            bad = i;
    return bad == SIZE_MAX ? 0
                           : err_set(ERR_BAD_PARAMETER,
                                     "The force on body %zu overflows: another body is too close, or masses and g are "
                                     "too large. Use a larger softening, or other units.",
                                     bad + 1);
}

int nbody_gravity_evaluate(struct nbody_gravity *gravity, const double (*at)[3], double (*acceleration)[3],
                           double *potential, const struct nbody_poll *poll)
{
    const struct unit_box frame = frame_of(&gravity->setup, gravity->count, at, dev_threads(gravity->dev));
    const struct range_box box = box_of(gravity, false);
    struct range_law law;
    struct range_points *points = NULL;
    const double share = gravity->mesh ? PAIRS_SHARE : 1;
    struct part pairs = {poll, 0, share}, mesh = {poll, share, 1};
    const struct listener of_pairs = {&pairs, hear}, of_mesh = {&mesh, hear};
    place(gravity, &frame, at);
    int rc = pair_law(gravity, &frame, 3, &law);
    const struct range_points_params params = {
        .box = box, .reach = rc == 0 ? law.params.reach : 0, .inputs = gravity->count, .at = gravity->at};
    if (rc == 0)
        rc = range_points_create(&points, gravity->dev, &params, NULL);
    if (rc == 0)
        rc = hear(&pairs, 0, 1);
    if (rc == 0)
        rc = sum_pairs(gravity, &frame, points, potential, &of_pairs);
    if (rc == 0 && gravity->mesh)
        rc = sum_mesh(gravity, points, &of_mesh);
    range_points_free(points);
    return rc == 0 ? collect(gravity, &frame, acceleration, potential) : rc;
}

/* ---- memory ---- */

int nbody_gravity_memory(struct dev *dev, const struct nbody_setup *setup, size_t count, const double (*at)[3],
                         uint64_t *device, uint64_t *host)
{
    const struct nbody_gravity told = {.dev = dev, .setup = *setup, .count = count, .mesh_cells = mesh_cells(setup)};
    const bool p3m = setup->method == NBODY_P3M, gpu = dev_is_gpu(dev);
    const struct unit_box frame = frame_of(setup, count, at, dev_threads(dev));
    const uint64_t fields = (uint64_t)(count + 1) * FIELDS * sizeof(float) * (p3m ? 2 : 1);
    struct range_law law;
    struct range_memory near, far = {0};
    int rc = pair_law(&told, &frame, 3, &law);
    const float *some = NULL;
    if (rc == 0)
        rc = range_memory(dev,
                          &(struct range_points_params){
                              .box = box_of(&told, false), .reach = law.params.reach, .inputs = count, .at = some},
                          &near);
    if (rc == 0 && p3m && !setup->periodic)
        rc = range_memory(
            dev,
            &(struct range_points_params){
                .box = box_of(&told, true), .reach = NBODY_WINDOW / (double)setup->mesh, .inputs = count, .at = some},
            &far);
    if (rc != 0)
        return rc;
    const struct range_memory *spread = setup->periodic ? &near : &far;
    uint64_t most = near.pairs, own, work;
    if (p3m)
        most = larger(most,
                      (setup->periodic ? 0 : larger(far.create, far.points)) + larger(spread->scatter, spread->gather));
    *device = (count + 1) * sizeof(float) + fields + larger(near.create, near.points + most);
    *host = sizeof told + (count + 1) * 4 * sizeof(float) + (gpu ? fields : 0);
    if (p3m) {
        nbody_mesh_memory(dev, told.mesh_cells, setup->host_transforms, &own, &work);
        *device += own;
        *host += work;
    }
    return 0;
}
