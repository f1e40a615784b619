/* The kind "nbody": from the file's bodies to forces, a motion, and results. */
#include "recon/nbody/nbody.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"
#include "gridding/range/sums.h"
#include "recon/nbody/nbody_plan.h"
#include "recon/nbody/nbody_state.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_SECONDS 30.0 /* between checkpoints that are not asked for by their number */

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
        rc = err_set(ERR_MALFORMED_FILE, "The file has %zu frames; a motion begins with one.", particles->frames);
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
    const struct job_request *request;
    const struct job_listener *listener;
    struct nbody_plan plan;
    struct nbody_outcome *outcome;
    struct nbody_gravity *gravity;
    json_t *report;
    double begun, moved_from; /* fraction of the job where the steps begin */
    double kept;              /* clock_seconds() of the last checkpoint */
    bool kept_failed;
    int64_t step; /* that are done */
    struct step_progress now;
};

static int stop(void *context)
{
    const struct running *r = context;
    return r->listener && r->listener->progress && r->listener->progress(r->listener->context, &r->now) != 0;
}

static void tell(struct running *r, enum nbody_kind_step step, double fraction, int64_t iteration, int64_t iterations)
{
    r->now = (struct step_progress){(int)step, fraction, iteration, iterations};
}

static void stage_end(struct running *r, const char *name)
{
    const double now = clock_seconds();
    json_object_set_new(json_object_get(r->report, "stages"), name, json_real(now - r->begun));
    r->begun = now;
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

/* A checkpoint that cannot be written costs the job its insurance, not its end. */
static void keep(struct running *r)
{
    if (!r->request->checkpoint || r->step == r->plan.steps)
        return;
    const bool due =
        r->plan.checkpoint > 0 ? r->step % r->plan.checkpoint == 0 : clock_seconds() - r->kept >= KEPT_SECONDS;
    if (!due)
        return;
    if (nbody_state_save(r->request->checkpoint, r->outcome, &r->plan, r->step) != 0 && !r->kept_failed) {
        r->kept_failed = true;
        char text[sizeof err_last()->text + 64];
        snprintf(text, sizeof text, "No checkpoint could be kept at step %lld: %s", (long long)r->step,
                 err_last()->text);
        json_array_append_new(json_object_get(r->report, "warnings"), json_string(text));
    }
    r->kept = clock_seconds();
}

static int forces_first(struct running *r, const struct nbody_poll *poll)
{
    struct nbody_bodies *b = &r->outcome->bodies;
    tell(r, NBODY_STEP_FORCES, 0.05, 0, 0);
    int rc = nbody_gravity_evaluate(r->gravity, (const double(*)[3])b->at, b->acceleration, b->potential, poll);
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
        const double done = (double)r->step / (double)plan->steps;
        tell(r, NBODY_STEP_MOVE, r->moved_from + (0.95 - r->moved_from) * done, r->step, plan->steps);
        const bool recorded = (r->step + 1) % plan->record == 0 || r->step + 1 == plan->steps;
        if (stop(r))
            rc = err_set(ERR_CANCELED, "The job was canceled while it was running.");
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

static void conserve(struct running *r)
{
    const struct nbody_outcome *o = r->outcome;
    const struct nbody_record *first = &o->records[0], *last = &o->records[o->record_count - 1];
    double weight = 0;
    for (size_t i = 0; i < o->bodies.count; i++) {
        const double *v = o->bodies.velocity[i];
        weight += o->bodies.mass[i] * sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    }
    double drift[3], momentum;
    for (int d = 0; d < 3; d++)
        drift[d] = last->momentum[d] - first->momentum[d];
    momentum = sqrt(drift[0] * drift[0] + drift[1] * drift[1] + drift[2] * drift[2]);
    json_object_set_new(r->report, "energy", json_real(last->energy));
    if (o->record_count < 2)
        return;
    json_object_set_new(r->report, "time", json_real(o->time));
    json_object_set_new(r->report, "energy_drift",
                        json_real(first->energy != 0 ? (last->energy - first->energy) / fabs(first->energy) : 0));
    json_object_set_new(r->report, "momentum_drift", json_real(weight > 0 ? momentum / weight : 0));
}

/* What the files will take at most, which has to be less than there is room for; and the checkpoint, too. */
static int promise(const struct running *r, uint64_t *bytes)
{
    const struct job_room *room = &r->request->room;
    const uint64_t kept =
        r->request->checkpoint && r->plan.steps > 0 ? checkpoint_bytes(nbody_state_bytes(r->outcome)) : 0;
    const unsigned wanted = kind_results_wanted(&nbody_kind, r->request->values->value[NBODY_RESULTS_WANTED].text);
    *bytes = 0;
    for (int i = 0; i < room->count; i++)
        *bytes += nbody_file_most(r->outcome, room->files[i]);
    for (int i = 0; i < NBODY_RESULTS && !room->count; i++)
        *bytes += wanted >> i & 1 ? nbody_file_most(r->outcome, (struct result_file){i, 0}) : 0;
    if (room->most && *bytes > room->most)
        return err_set_bytes(ERR_RESULT_TOO_LARGE, (int64_t)*bytes, (int64_t)room->most,
                             "The results of %zu bodies would take %llu bytes; they may take %llu (%s).",
                             r->outcome->bodies.count, (unsigned long long)*bytes, (unsigned long long)room->most,
                             room->most_of ? room->most_of : "a limit");
    if (room->free && *bytes + kept > room->free)
        return err_set_bytes(ERR_SPOOL_FULL, (int64_t)(*bytes + kept), (int64_t)room->free,
                             "The results and the checkpoint of %zu bodies take %llu bytes, and the disk has %llu now.",
                             r->outcome->bodies.count, (unsigned long long)(*bytes + kept),
                             (unsigned long long)room->free);
    return 0;
}

/* What gravity will take, before it takes it. */
static int memory_check(const struct running *r)
{
    const int64_t needed = nbody_gravity_bytes(&r->plan.setup, r->outcome->bodies.count);
    const int64_t available = (int64_t)host_memory_available();
    json_object_set_new(r->report, "memory_bytes", json_integer(needed));
    if (needed >= 0 && needed <= available)
        return 0;
    return err_set_bytes(ERR_NO_MEMORY, needed, available,
                         "%zu bodies and a mesh of %d cells an axis need %lld MB of memory, and %lld MB are free. Pass "
                         "a smaller mesh, or fewer bodies.",
                         r->outcome->bodies.count, r->plan.setup.mesh, (long long)(needed >> 20),
                         (long long)(available >> 20));
}

static int compute(struct running *r, struct dev *dev)
{
    const struct nbody_poll poll = {stop, r};
    struct nbody_bodies *b = &r->outcome->bodies;
    int rc = nbody_gravity_create(&r->gravity, dev, &r->plan.setup, b->count, b->mass);
    bool resumed = false;
    if (rc == 0 && r->request->checkpoint && r->plan.steps > 0)
        rc = nbody_state_load(r->request->checkpoint, r->outcome, &r->plan, &r->step, &resumed);
    if (rc == 0 && resumed) {
        char value[32];
        snprintf(value, sizeof value, "step %lld", (long long)r->step);
        nbody_decide(r->report, "begin", value, "An earlier attempt had kept a checkpoint there.");
    }
    if (rc == 0 && !resumed)
        rc = forces_first(r, &poll);
    if (rc == 0)
        stage_end(r, "forces");
    if (rc == 0 && !resumed)
        rc = nbody_plan_dt(&r->plan, b, r->report);
    r->moved_from = resumed ? 0.05 : 0.2;
    r->kept = clock_seconds();
    if (rc == 0 && r->plan.steps > 0) {
        rc = move(r, &poll);
        stage_end(r, "move");
    }
    nbody_gravity_free(r->gravity);
    return rc;
}

static void give(struct job_outcome *out, struct running *r, uint64_t bytes)
{
    static const struct job_result made[] = {
        [NBODY_PARTICLES] = {"particles", NULL, nbody_particles_write, nbody_outcome_free},
        [NBODY_SERIES] = {"series", NULL, nbody_series_write, nbody_outcome_free},
        [NBODY_PICTURE] = {"picture", NULL, nbody_picture_write, nbody_outcome_free},
    };
    const unsigned wanted = kind_results_wanted(&nbody_kind, r->request->values->value[NBODY_RESULTS_WANTED].text);
    *out = (struct job_outcome){.most_bytes = bytes, .report = r->report};
    for (int i = 0; i < NBODY_RESULTS; i++)
        if (wanted >> i & 1) {
            out->result[out->results] = made[i];
            out->result[out->results++].of = r->outcome;
            r->outcome->users++;
        }
    nbody_outcome_free(r->outcome);
}

/* Sums of limited range are the CPU's. */
static int device_choose(struct dev *dev, json_t *report, struct dev **own, struct dev **use)
{
    *own = NULL;
    *use = dev;
    if (range_available(dev))
        return 0;
    nbody_decide(report, "device", "cpu", "Sums over pairs are not yet computed on a GPU.");
    int rc = dev_create(own, DEV_CPU, 0, dev_threads(dev));
    *use = *own;
    return rc;
}

static int nbody_run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                     const struct job_listener *listener, const void *input)
{
    const struct particles *particles = input;
    struct running r = {.request = request, .listener = listener, .begun = request->begun};
    struct dev *own = NULL, *use = NULL;
    uint64_t bytes = 0;
    r.report = json_pack("{s:{}, s:[], s:[]}", "stages", "decisions", "warnings");
    int rc = r.report ? 0 : err_no_memory("the job's report");
    if (request->begun <= 0)
        r.begun = clock_seconds();
    if (rc == 0)
        stage_end(&r, "read");
    if (rc == 0)
        rc = nbody_plan_make(&r.plan, request->values, particles, r.report);
    if (rc == 0)
        rc = nbody_outcome_create(&r.outcome, particles->count, nbody_plan_records(&r.plan));
    if (rc == 0)
        rc = nbody_plan_fill(&r.plan, particles, request->values, r.outcome, r.report);
    if (rc == 0)
        rc = promise(&r, &bytes);
    if (rc == 0)
        rc = memory_check(&r);
    if (rc == 0)
        rc = device_choose(dev, r.report, &own, &use);
    if (rc == 0)
        json_object_set_new(r.report, "device", json_string(dev_name(use)));
    if (rc == 0)
        rc = compute(&r, use);
    dev_free(own);
    if (rc == 0) {
        conserve(&r);
        give(out, &r, bytes);
        return 0;
    }
    nbody_outcome_free(r.outcome);
    json_decref(r.report);
    return rc;
}

const struct kind_run nbody_kind_run = {
    .kind = &nbody_kind, .read = nbody_read, .input_free = nbody_input_free, .run = nbody_run};
