/* nbody_plan.h: what a job's parameters and its file come to. */
#ifndef MRIRECON_NBODY_PLAN_H
#define MRIRECON_NBODY_PLAN_H

#include "recon/kind_job.h"
#include "recon/nbody/nbody.h"

struct nbody_plan {
    struct nbody_setup setup;
    int64_t steps, record, checkpoint; /* checkpoint: 0: by the clock */
    double dt, time;                   /* dt: 0: not yet known; time: at the start */
};

/* Decide what is left to the job; decisions and their reasons go to the report. Fails with ERR_BAD_PARAMETER,
 * ERR_MALFORMED_FILE. */
int nbody_plan_make(struct nbody_plan *plan, const struct param_values *values, const struct particles *particles,
                    struct kind_job *job);

/* Rows that the series will have. */
size_t nbody_plan_records(const struct nbody_plan *plan);

/* The bodies of the file, in the outcome. Fails with ERR_MALFORMED_FILE: a mass below 0, or none above. */
int nbody_plan_fill(const struct nbody_plan *plan, const struct particles *particles, const struct param_values *values,
                    struct nbody_outcome *outcome, struct kind_job *job);

/* The time of a step, where it follows from the first accelerations. Fails with ERR_BAD_PARAMETER: it does not. */
int nbody_plan_dt(struct nbody_plan *plan, const struct nbody_bodies *bodies, struct kind_job *job);

#endif
