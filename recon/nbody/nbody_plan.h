/* nbody_plan.h: resolves the parameters of a job for its file. */
#ifndef MRIRECON_NBODY_PLAN_H
#define MRIRECON_NBODY_PLAN_H

#include "recon/kind_job.h"
#include "recon/nbody/nbody.h"

struct nbody_plan {
    struct nbody_setup setup;
    int64_t steps, record, checkpoint; /* checkpoint: 0: based on time */
    double dt, time;                   /* dt: 0: not yet known; time: at the start */
};

/* Resolve all parameters that are auto; decisions and their reasons go to the report. Fails with ERR_BAD_PARAMETER,
 * ERR_MALFORMED_FILE. */
int nbody_plan_make(struct nbody_plan *plan, const struct param_values *values, const struct particles *particles,
                    struct kind_job *job);

/* Number of rows of the series. */
size_t nbody_plan_records(const struct nbody_plan *plan);

/* Copy the bodies of the file to the outcome. Fails with ERR_MALFORMED_FILE (a negative mass, or no positive one). */
int nbody_plan_fill(const struct nbody_plan *plan, const struct particles *particles, const struct param_values *values,
                    struct nbody_outcome *outcome, struct kind_job *job);

/* Derive the time step from the first accelerations, if dt is auto. Fails with ERR_BAD_PARAMETER (it cannot be
 * derived). */
int nbody_plan_dt(struct nbody_plan *plan, const struct nbody_bodies *bodies, struct kind_job *job);

#endif
