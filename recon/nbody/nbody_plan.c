#include "recon/nbody/nbody_plan.h"

#include "gridding/base/err.h"
#include "gridding/range/sums.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIRECT_MOST = 16384, MESH_LEAST = 16, MESH_AUTO_MOST = 256, OPEN_MESH_MOST = 96, RECORDS = 100 };

#define GADGET_G 43007.1 /* kpc (km/s)^2 / 1e10 solar masses */

static void decide_number(struct kind_job *job, const char *what, double value, const char *reason)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    kind_job_decide(job, what, text, "%s", reason);
}

static bool is_gadget(const struct particles *particles)
{
    return particles->header->attribute[PARTICLES_GADGET] > 0;
}

/* ---- the box ---- */

static int box_choose(struct nbody_plan *plan, const struct param_values *values, const struct particles *particles,
                      struct kind_job *job)
{
    const double *file = particles->header->box_length;
    const int64_t boundary = values->value[NBODY_BOUNDARY].integer;
    const double asked = nbody_given(values, NBODY_BOX) ? values->value[NBODY_BOX].real : 0;
    const double side = asked > 0 ? asked : file[0];
    struct nbody_setup *setup = &plan->setup;
    const bool direct = values->value[NBODY_FORCES].integer == NBODY_FORCES_DIRECT;
    setup->periodic = boundary == NBODY_BOUNDARY_PERIODIC || (boundary == NBODY_BOUNDARY_AUTO && side > 0 && !direct);
    if (setup->periodic && !(side > 0))
        return err_set(ERR_BAD_PARAMETER, "Parameter boundary=periodic needs the box's side, which the file does not "
                                          "give. Pass box.");
    if (setup->periodic && asked <= 0 && (file[1] != file[0] || file[2] != file[0]))
        return err_set(ERR_MALFORMED_FILE, "The file's box is %g x %g x %g; a cube is expected.", file[0], file[1],
                       file[2]);
    setup->box = setup->periodic ? side : 0;
    if (boundary == NBODY_BOUNDARY_AUTO)
        kind_job_decide(job, "boundary", setup->periodic ? "periodic" : "open",
                        setup->periodic ? "The side of the box is known: %g."
                                        : "Neither the file nor the parameter box gives the side of a box.",
                        side);
    return 0;
}

/* ---- the forces ---- */

/* The mean distance between bodies; in open space, within their bounding cube. */
static double spacing_of(const struct nbody_setup *setup, const struct particles *p)
{
    double side = setup->box;
    for (int d = 0; d < 3 && !setup->periodic; d++) {
        double low = p->position[d], high = low;
        for (size_t i = 0; i < p->count; i++) {
            low = fmin(low, p->position[3 * i + (size_t)d]);
            high = fmax(high, p->position[3 * i + (size_t)d]);
        }
        side = fmax(side, high - low);
    }
    return side / cbrt((double)p->count);
}

static void method_choose(struct nbody_setup *setup, const struct param_values *values, size_t count,
                          struct kind_job *job)
{
    static const enum nbody_method methods[] = {
        [NBODY_FORCES_P3M] = NBODY_P3M, [NBODY_FORCES_DIRECT] = NBODY_DIRECT, [NBODY_FORCES_SHORT] = NBODY_SHORT};
    const int64_t asked = values->value[NBODY_FORCES].integer;
    const bool direct = !setup->periodic && count <= DIRECT_MOST;
    if (asked != NBODY_FORCES_AUTO) {
        setup->method = methods[asked];
        return;
    }
    setup->method = direct ? NBODY_DIRECT : NBODY_P3M;
    kind_job_decide(job, "forces", direct ? "direct" : "p3m",
                    setup->periodic ? "The box repeats."
                    : direct        ? "For %zu bodies in open space, all pairs take less time than a mesh."
                                    : "%zu bodies have too many pairs for direct summation.",
                    count);
}

static void mesh_choose(struct nbody_setup *setup, const struct param_values *values, size_t count,
                        struct kind_job *job)
{
    const int most = setup->periodic ? MESH_AUTO_MOST : OPEN_MESH_MOST;
    const double wanted = 1.6 * cbrt((double)count);
    const bool given = nbody_given(values, NBODY_MESH) && values->value[NBODY_MESH].integer > 0;
    setup->mesh = nbody_mesh_round(given                 ? (int)values->value[NBODY_MESH].integer
                                   : wanted < MESH_LEAST ? MESH_LEAST
                                   : wanted > most       ? most
                                                         : (int)ceil(wanted));
    if (setup->method == NBODY_DIRECT || setup->law == NBODY_CUT)
        return;
    if (!given)
        decide_number(job, "mesh", setup->mesh, "About 1.6 cells per body along an axis.");
    else if (setup->mesh != (int)values->value[NBODY_MESH].integer)
        decide_number(job, "mesh", setup->mesh, "Rounded up to an even number with no prime factor above 5.");
}

static void gravity_choose(struct nbody_setup *setup, const struct param_values *values, const struct particles *p,
                           struct kind_job *job)
{
    setup->law = (enum nbody_law)values->value[NBODY_LAW].integer;
    setup->softening = (enum nbody_softening)values->value[NBODY_SOFTENING_FORM].integer;
    setup->split = values->value[NBODY_SPLIT].real;
    setup->cutoff = setup->law == NBODY_CUT ? values->value[NBODY_REACH].real : values->value[NBODY_CUTOFF].real;
    setup->g = values->value[NBODY_G].real;
    setup->eps = values->value[NBODY_SOFTENING].real;
    if (setup->g <= 0) {
        setup->g = is_gadget(p) ? GADGET_G : 1;
        decide_number(job, "g", setup->g,
                      is_gadget(p) ? "GADGET's usual units are kpc, km/s and 1e10 solar masses."
                                   : "The file does not state its units.");
    }
    if (setup->eps < 0) {
        setup->eps = spacing_of(setup, p) / 30;
        decide_number(job, "softening", setup->eps, "A thirtieth of the mean distance between bodies.");
    }
}

static int reach_check(const struct nbody_setup *setup)
{
    const double most = (double)RANGE_CELLS_MOST / setup->mesh * setup->box;
    if (!setup->periodic || setup->law != NBODY_CUT || setup->cutoff <= most)
        return 0;
    return err_set(ERR_BAD_PARAMETER, "Parameter reach is %g; in a periodic box of %g it can be %g.", setup->cutoff,
                   setup->box, most);
}

int nbody_plan_make(struct nbody_plan *plan, const struct param_values *values, const struct particles *particles,
                    struct kind_job *job)
{
    *plan = (struct nbody_plan){.steps = values->value[NBODY_STEPS].integer};
    int rc = box_choose(plan, values, particles, job);
    if (rc != 0)
        return rc;
    gravity_choose(&plan->setup, values, particles, job);
    method_choose(&plan->setup, values, particles->count, job);
    mesh_choose(&plan->setup, values, particles->count, job);
    rc = reach_check(&plan->setup);
    if (rc != 0)
        return rc;
    plan->time = is_gadget(particles) ? particles->header->attribute[PARTICLES_GADGET_TIME] : 0;
    plan->dt = nbody_given(values, NBODY_DT) && values->value[NBODY_DT].real > 0 ? values->value[NBODY_DT].real : 0;
    plan->record = values->value[NBODY_RECORD].integer;
    plan->checkpoint = values->value[NBODY_CHECKPOINT].integer;
    if (plan->record <= 0)
        plan->record = (plan->steps + RECORDS - 1) / RECORDS;
    if (plan->record <= 0)
        plan->record = 1;
    if (plan->checkpoint < 0)
        plan->checkpoint = 0;
    if (is_gadget(particles) && particles->header->attribute[PARTICLES_GADGET_REDSHIFT] > 0)
        kind_job_warn(job, "The snapshot is of an expanding universe (its redshift is above 0): positions and "
                           "velocities are used as they are, without expansion.");
    return 0;
}

size_t nbody_plan_records(const struct nbody_plan *plan)
{
    return 2 + (size_t)(plan->steps / plan->record);
}

/* ---- the bodies ---- */

static int masses_fill(const struct particles *p, const struct param_values *values, double *mass, struct kind_job *job)
{
    const double given = values->value[NBODY_MASS].real;
    double total = 0;
    for (size_t i = 0; i < p->count; i++) {
        mass[i] = p->mass ? p->mass[i] : given > 0 ? given : 1.0 / (double)p->count;
        total += mass[i];
        if (mass[i] < 0)
            return err_set(ERR_MALFORMED_FILE, "The mass of body %zu is %g; it must be 0 or more.", i + 1, mass[i]);
    }
    if (!(total > 0))
        return err_set(ERR_MALFORMED_FILE, "The total mass of all bodies is 0, so there is no gravity.");
    if (!(total < INFINITY))
        return err_set(ERR_MALFORMED_FILE, "The total mass of all bodies overflows. Use another unit of mass.");
    if (!p->mass && given <= 0)
        decide_number(job, "mass", 1.0 / (double)p->count, "The file contains no masses: the total mass is set to 1.");
    else if (p->mass && nbody_given(values, NBODY_MASS))
        kind_job_warn(job, "Parameter mass is not used: the file contains masses.");
    return 0;
}

int nbody_plan_fill(const struct nbody_plan *plan, const struct particles *p, const struct param_values *values,
                    struct nbody_outcome *o, struct kind_job *job)
{
    struct nbody_bodies *b = &o->bodies;
    const double *told = p->header->attribute + PARTICLES_GADGET_COUNTS;
    size_t typed = 0;
    for (int t = 0; t < NBODY_TYPES && is_gadget(p); t++) {
        o->types[t] = told[t] >= 0 && told[t] <= (double)p->count ? (size_t)told[t] : 0;
        typed += o->types[t];
    }
    if (typed != p->count) {
        memset(o->types, 0, sizeof o->types);
        o->types[NBODY_TYPE_OTHER] = p->count;
    }
    o->periodic = plan->setup.periodic;
    o->box = plan->setup.box;
    o->time = plan->time;
    o->picture = (int)values->value[NBODY_PICTURE_SIZE].integer;
    for (size_t i = 0; i < p->count; i++)
        for (size_t d = 0; d < 3; d++) {
            const double x = p->position[3 * i + d], box = plan->setup.box;
            const double within = o->periodic ? x - floor(x / box) * box : x;
            b->at[i][d] = o->periodic && within >= box ? 0 : within;
            b->velocity[i][d] = p->velocity ? p->velocity[3 * i + d] : 0;
        }
    for (size_t i = 0; i < p->count; i++)
        o->id[i] = p->id ? p->id[i] : i;
    return masses_fill(p, values, b->mass, job);
}

int nbody_plan_dt(struct nbody_plan *plan, const struct nbody_bodies *bodies, struct kind_job *job)
{
    double largest = 0;
    for (size_t i = 0; i < bodies->count; i++) {
        const double *a = bodies->acceleration[i];
        largest = fmax(largest, sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]));
    }
    if (plan->steps == 0 || plan->dt > 0)
        return 0;
    if (!(largest > 0) || !(plan->setup.eps > 0))
        return err_set(ERR_BAD_PARAMETER, "Parameter dt=auto follows from softening and acceleration, of which one is "
                                          "0. Give dt a number.");
    plan->dt = sqrt(0.05 * plan->setup.eps / largest);
    decide_number(job, "dt", plan->dt, "sqrt(0.05 softening / a), where a is the largest initial acceleration.");
    return 0;
}
