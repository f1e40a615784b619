/* Runs one job of kind "nbody". */
#include "recon/kind_job.h"
#include "recon/nbody/nbody.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"
#include "gridding/range/sums.h"
#include "recon/nbody/nbody_plan.h"
#include "recon/nbody/nbody_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_SECONDS 30.0 /* between checkpoints, if the parameter checkpoint is auto */

/* ---- read ---- */

static int nbody_read(void **out, const struct job_request *request, const struct job_listener *listener)
{
    const struct particles_wanted wanted = {.order = {PARTICLE_VELOCITY, PARTICLE_MASS}};
    const struct decode_limits limits = job_decode_limits(request);
    struct particles *particles = calloc(1, sizeof *particles);
    if (!particles)
        return err_no_memory("bodies");
    int rc = particles_decode(particles, request->decoder, request->input, nbody_kind.inputs, &wanted, &limits,
                              job_decode_canceled, (void *)(uintptr_t)listener);
    if (rc == 0 && particles->frames > 1)
        rc = err_set(ERR_MALFORMED_FILE, "The file has %zu frames; one is expected, the initial state.",
                     particles->frames);
    if (rc == 0) {
        *out = particles;
        return 0;
    }
    particles_close(particles);
    free(particles);
    return rc;
}

static void nbody_input_free(void *input)
{
    particles_close(input);
    free(input);
}

/* ---- run ---- */

struct running {
    struct kind_job job;
    struct nbody_plan plan;
    double shares[NBODY_STEPS_ALL]; /* of the steps of the job */
    struct nbody_outcome *outcome;
    struct nbody_gravity *gravity;
    double stage_begun;
    double kept; /* clock_seconds() of the last checkpoint */
    bool kept_failed;
    int64_t step; /* completed steps */
    enum nbody_kind_step stage;
};

/* Each step of time takes one evaluation, as the first forces do. The steps of the table before and after stay. */
static void shares_set(struct running *r)
{
    for (int i = 0; i < NBODY_STEPS_ALL; i++)
        r->shares[i] = nbody_kind.steps[i].share;
    const double between = r->shares[NBODY_STEP_FORCES] + r->shares[NBODY_STEP_MOVE];
    r->shares[NBODY_STEP_FORCES] = between / ((double)r->plan.steps + 1);
    r->shares[NBODY_STEP_MOVE] = between - r->shares[NBODY_STEP_FORCES];
    r->job.shares = r->shares;
}

/* Report the progress of a job; complete: the part of the present evaluation, 0..1. */
static int tell(void *context, double complete)
{
    const struct running *r = context;
    const bool moves = r->stage == NBODY_STEP_MOVE;
    return kind_job_tell(&r->job, r->stage, moves ? ((double)r->step + complete) / (double)r->plan.steps : complete,
                         moves ? r->step : 0, moves ? r->plan.steps : 0);
}

static void stage_end(struct running *r)
{
    const double now = clock_seconds();
    kind_job_stage(&r->job, r->stage, now - r->stage_begun);
    r->stage_begun = now;
}

static void record(struct running *r)
{
    struct nbody_outcome *o = r->outcome;
    struct nbody_energy energy;
    nbody_energy_of(&o->bodies, &energy);
    if (o->record_count == o->record_room)
        return;
    struct nbody_record *row = &o->records[o->record_count++];
    *row = (struct nbody_record){.step = (double)r->step,
                                 .time = o->time,
                                 .kinetic = energy.kinetic,
                                 .potential = energy.potential,
                                 .energy = energy.kinetic + energy.potential};
    memcpy(row->momentum, energy.momentum, sizeof row->momentum);
    memcpy(row->angular, energy.angular, sizeof row->angular);
}

/* A checkpoint that cannot be written is a warning; the job continues. */
static void keep(struct running *r)
{
    if (!r->job.request->checkpoint || r->step == r->plan.steps)
        return;
    const bool due =
        r->plan.checkpoint > 0 ? r->step % r->plan.checkpoint == 0 : clock_seconds() - r->kept >= KEPT_SECONDS;
    if (!due)
        return;
    if (nbody_state_save(r->job.request->checkpoint, r->outcome, &r->plan, r->step) != 0 && !r->kept_failed) {
        r->kept_failed = true;
        kind_job_warn(&r->job, "The checkpoint at step %lld could not be saved: %s", (long long)r->step,
                      err_last()->text);
    }
    r->kept = clock_seconds();
}

static int forces_first(struct running *r, const struct nbody_poll *poll)
{
    struct nbody_bodies *b = &r->outcome->bodies;
    int rc = tell(r, 0);
    if (rc == 0)
        rc = nbody_gravity_evaluate(r->gravity, (const double(*)[3])b->at, b->acceleration, b->potential, poll);
    if (rc == 0)
        record(r);
    return rc;
}

static int move(struct running *r, const struct nbody_poll *poll)
{
    struct nbody_outcome *o = r->outcome;
    const struct nbody_plan *plan = &r->plan;
    int rc = 0;
    while (r->step < plan->steps && rc == 0) {
        const bool recorded = (r->step + 1) % plan->record == 0 || r->step + 1 == plan->steps;
        rc = tell(r, 0);
        if (rc == 0)
            rc = nbody_step(r->gravity, &plan->setup, &o->bodies, plan->dt, recorded, poll);
        if (rc != 0)
            break;
        r->step++;
        o->time = plan->time + plan->dt * (double)r->step;
        if (recorded)
            record(r);
        keep(r);
    }
    return rc;
}

/* The length of a vector whose square may overflow or underflow. */
static double length(const double v[3])
{
    const double square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
    return square > 1e-200 && square < 1e200 ? sqrt(square) : hypot(hypot(v[0], v[1]), v[2]);
}

/* A change of a conserved quantity; a report has no numbers that are not finite. */
static void drift_tell(struct running *r, const char *name, double drift)
{
    kind_job_number(&r->job, name, drift);
    if (!isfinite(drift))
        kind_job_warn(&r->job,
                      "The report has no `%s`, which overflows double precision: masses, velocities or `g` "
                      "are too large, or what it is relative to is too small.",
                      name);
}

static void conserve(struct running *r)
{
    const struct nbody_outcome *o = r->outcome;
    const struct nbody_record *first = &o->records[0], *last = &o->records[o->record_count - 1];
    double weight = 0, half[3]; /* halves: the difference of two finite numbers may overflow */
    for (size_t i = 0; i < o->bodies.count; i++)
        weight += o->bodies.mass[i] * length(o->bodies.velocity[i]);
    for (int d = 0; d < 3; d++)
        half[d] = 0.5 * last->momentum[d] - 0.5 * first->momentum[d];
    kind_job_number(&r->job, "energy", last->energy);
    if (!isfinite(last->energy))
        kind_job_warn(&r->job, "The energy is not a finite number in double precision, so the report has none: masses, "
                               "velocities or `g` are too large.");
    if (o->record_count < 2)
        return;
    kind_job_number(&r->job, "time", o->time);
    drift_tell(r, "energy_drift",
               first->energy != 0 ? (0.5 * last->energy - 0.5 * first->energy) / (0.5 * fabs(first->energy)) : 0);
    drift_tell(r, "momentum_drift", weight > 0 ? length(half) / (0.5 * weight) : 0);
}

/* A result and its files, for kind_job_promise(). */
struct promised {
    const struct nbody_outcome *outcome;
    int result;
};

static bool file_most(const void *of, int format, size_t *bytes)
{
    const struct promised *p = of;
    *bytes = nbody_file_most(p->outcome, (struct result_file){p->result, format});
    return true;
}

static unsigned wanted(const struct running *r)
{
    return kind_results_wanted(&nbody_kind, r->job.request->values->value[NBODY_RESULTS_WANTED].text);
}

/* Check that the largest possible size of the files and of the checkpoint fits the available space. */
static int promise(struct running *r)
{
    const struct job_room *room = &r->job.request->room;
    const uint64_t kept =
        r->job.request->checkpoint && r->plan.steps > 0 ? checkpoint_bytes(nbody_state_bytes(r->outcome)) : 0;
    char what[64];
    int rc = 0;
    snprintf(what, sizeof what, "%zu bodies", r->outcome->bodies.count);
    for (int i = 0; i < NBODY_RESULTS && rc == 0; i++)
        if (wanted(r) >> i & 1)
            rc = kind_job_promise(&r->job, i, file_most, &(struct promised){r->outcome, i}, what,
                                  "Request fewer results, or more steps between records.");
    const uint64_t all = r->job.most_bytes + kept;
    if (rc == 0 && room->free && all > room->free)
        rc = err_set_bytes(ERR_SPOOL_FULL, (int64_t)all, (int64_t)room->free,
                           "The results and the checkpoint of %s take %.1f MB, and the disk has %.1f MB now.", what,
                           1e-6 * (double)all, 1e-6 * (double)room->free);
    return rc;
}

static int memory_of(const struct running *r, uint64_t *device, uint64_t *host)
{
    const struct nbody_bodies *b = &r->outcome->bodies;
    return nbody_gravity_memory(r->job.dev, &r->plan.setup, b->count, (const double(*)[3])b->at, device, host);
}

/* Choose where the mesh is transformed beside a GPU. */
static int transforms_choose(struct running *r)
{
    struct nbody_setup *setup = &r->plan.setup;
    uint64_t device, host;
    size_t available, total;
    if (!dev_is_gpu(r->job.dev) || setup->method != NBODY_P3M)
        return 0;
    int rc = memory_of(r, &device, &host);
    if (rc == 0)
        rc = dev_memory(r->job.dev, &available, &total);
    const bool serves = nbody_gravity_on_gpu(r->job.dev, setup);
    if (rc != 0 || (serves && device <= available))
        return rc;
    setup->host_transforms = true;
    kind_job_decide(&r->job, "transforms", "cpu",
                    serves ? "The GPU has not enough memory for those of the mesh, beside its fields."
                           : "The GPU has none for meshes of this size.");
    return 0;
}

/* Check the memory for gravity before it is allocated. */
static int memory_promise(struct running *r)
{
    static const char advice[] = "Use a smaller mesh, or fewer bodies.";
    uint64_t device, host;
    char what[96];
    int rc = memory_of(r, &device, &host);
    if (rc != 0)
        return rc;
    snprintf(what, sizeof what, "Gravity of %zu bodies with a mesh of %d cells an axis", r->outcome->bodies.count,
             r->plan.setup.mesh);
    if (!dev_is_gpu(r->job.dev))
        return kind_job_memory(&r->job, device + host, what, advice);
    const uint64_t available = host_memory_available();
    if (host > available)
        return err_set_bytes(ERR_NO_MEMORY, (int64_t)host, (int64_t)available,
                             "%s needs %.1f MB of the host's memory, and %.1f MB are free. %s", what,
                             1e-6 * (double)host, 1e-6 * (double)available, advice);
    return kind_job_memory(&r->job, device, what, advice);
}

static int compute(struct running *r)
{
    const struct nbody_poll poll = {tell, r};
    struct nbody_bodies *b = &r->outcome->bodies;
    int rc = nbody_gravity_create(&r->gravity, r->job.dev, &r->plan.setup, b->count, b->mass);
    bool resumed = false;
    if (rc == 0 && r->job.request->checkpoint && r->plan.steps > 0)
        rc = nbody_state_load(r->job.request->checkpoint, r->outcome, &r->plan, &r->step, &resumed);
    if (rc == 0 && resumed) {
        char value[32];
        snprintf(value, sizeof value, "step %lld", (long long)r->step);
        kind_job_decide(&r->job, "begin", value, "An earlier attempt saved a checkpoint at this step.");
    }
    if (rc == 0 && !resumed)
        rc = forces_first(r, &poll);
    if (rc == 0)
        stage_end(r);
    if (rc == 0 && !resumed)
        rc = nbody_plan_dt(&r->plan, b, &r->job);
    r->kept = clock_seconds();
    if (rc == 0 && r->plan.steps > 0) {
        r->stage = NBODY_STEP_MOVE;
        rc = move(r, &poll);
        stage_end(r);
    }
    nbody_gravity_free(r->gravity);
    return rc;
}

static void give(struct job_outcome *out, struct running *r, unsigned results)
{
    static const struct job_result made[] = {
        [NBODY_PARTICLES] = {"particles", NULL, nbody_particles_write, nbody_outcome_free},
        [NBODY_SERIES] = {"series", NULL, nbody_series_write, nbody_outcome_free},
        [NBODY_PICTURE] = {"picture", NULL, nbody_picture_write, nbody_outcome_free},
    };
    for (int i = 0; i < NBODY_RESULTS; i++)
        if (results >> i & 1) {
            out->result[out->results] = made[i];
            out->result[out->results++].of = r->outcome;
            r->outcome->users++;
        }
}

static int steps_run(struct running *r, const struct particles *particles)
{
    const struct param_values *values = r->job.request->values;
    stage_end(r);
    int rc = range_available(r->job.dev) ? 0 : kind_job_use_cpu(&r->job, "sums of limited range");
    if (rc == 0)
        rc = nbody_plan_make(&r->plan, values, particles, &r->job);
    if (rc == 0)
        rc = nbody_outcome_create(&r->outcome, particles->count, nbody_plan_records(&r->plan));
    if (rc == 0) {
        shares_set(r);
        rc = nbody_plan_fill(&r->plan, particles, values, r->outcome, &r->job);
    }
    if (rc == 0)
        rc = promise(r);
    if (rc == 0)
        rc = transforms_choose(r);
    if (rc == 0)
        rc = memory_promise(r);
    r->stage = NBODY_STEP_FORCES;
    if (rc == 0)
        rc = compute(r);
    if (rc == 0)
        conserve(r);
    return rc;
}

static int nbody_run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                     const struct job_listener *listener, const void *input)
{
    struct running r = {.stage = NBODY_STEP_READ};
    int rc = kind_job_begin(&r.job, dev, request, listener);
    if (rc != 0)
        return rc;
    r.stage_begun = r.job.begun;
    rc = kind_job_end(&r.job, out, steps_run(&r, input));
    if (rc == 0)
        give(out, &r, wanted(&r));
    nbody_outcome_free(r.outcome);
    return rc;
}

const struct kind_run nbody_kind_run = {
    .kind = &nbody_kind, .read = nbody_read, .input_free = nbody_input_free, .run = nbody_run};
