/* recon_weights.h: the meaning of the column after a trajectory's coordinates, from statistics that step "trajectory"
 * (recon_traj.c) collects in one pass over all trajectories. */
#ifndef MRIRECON_RECON_WEIGHTS_H
#define MRIRECON_RECON_WEIGHTS_H

#include "recon/mri/recon_steps.h"

#include <math.h>
#include <string.h>

/* Statistics of all trajectories of the job's readouts. Floats are stored as their bits without the sign, which order
 * as magnitudes do; NaN and infinity lie above all. */
struct extremes {
    uint32_t most[4];      /* per column */
    size_t most_at[4];     /* index into frames->readouts */
    float least, greatest; /* of the last column */
    size_t least_at;
    bool level;  /* the last column does not change along any readout ... */
    bool longer; /* ... and one has two samples at least */
};

enum { INFINITE_BITS = 0x7f800000 };

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline const struct scan_readout *readout_at(const struct recon_job *job, size_t i)
{
    return &job->scan.readouts[job->frames->readouts[i]];
}

static inline const float *kept_traj(const struct recon_job *job, const struct scan_readout *readout)
{
    return job->scan.traj + readout->traj + (size_t)readout->discard_pre * readout->traj_dims;
}

/* Whether `count` values differ by float32's rounding at most. */
static inline bool recon_level(float least, float greatest)
{
    return greatest - least <= 1e-5f * fmaxf(fabsf(least), fabsf(greatest));
}

/* What the column after the coordinates is; sets job->has_weights. Fails with ERR_DCF_MISSING, ERR_DCF_INVALID,
 * ERR_DCF_AMBIGUOUS. */
int recon_weights_decide(struct recon_job *job, const struct extremes *found);

/* Warn if the weights, which were chosen automatically, leave k-space uneven. */
void recon_weights_doubt(struct recon_job *job, const struct extremes *found);

#endif
