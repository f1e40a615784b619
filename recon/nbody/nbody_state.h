/* nbody_state.h: the state of a motion in a checkpoint (recon/checkpoint.h). */
#ifndef MRIRECON_NBODY_STATE_H
#define MRIRECON_NBODY_STATE_H

#include "recon/nbody/nbody_plan.h"

/* Size of the largest state, bytes. */
size_t nbody_state_bytes(const struct nbody_outcome *outcome);

/* Fails as checkpoint_save(). */
int nbody_state_save(const struct checkpoint *checkpoint, const struct nbody_outcome *outcome,
                     const struct nbody_plan *plan, int64_t step);

/* *found: whether an earlier attempt's state was found and loaded into the outcome: the motion continues after `step`,
 * with the same bits as without the interruption. Fails with ERR_NO_MEMORY. */
int nbody_state_load(const struct checkpoint *checkpoint, struct nbody_outcome *outcome, struct nbody_plan *plan,
                     int64_t *step, bool *found);

#endif
