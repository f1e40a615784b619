/* recon_job.h: indexes into the table of kind "recon" (recon/mri/recon_kind.c). Only recon/mri/ includes this. */
#ifndef MRIRECON_RECON_JOB_H
#define MRIRECON_RECON_JOB_H

#include "recon/recon.h"

/* The parameters' indexes in the table (recon/mri/recon_kind.c) and in struct param_values. */
enum recon_param {
    RECON_RESULTS_WANTED,
    RECON_METHOD,
    RECON_ITERATIONS,
    RECON_LAMBDA,
    RECON_STOP_TOLERANCE,
    RECON_STOP_SECONDS,
    RECON_DCF,
    RECON_DCF_ITERATIONS,
    RECON_TRAJ_UNITS,
    RECON_KERNEL,
    RECON_TOLERANCE,
    RECON_WIDTH,
    RECON_OVERSAMPLING,
    RECON_COILS,
    RECON_VIRTUAL_COILS,
    RECON_OUTPUT,
    RECON_MATRIX,
    RECON_AVERAGES,
    RECON_FRAMES,
    RECON_FRAME_READOUTS,
    RECON_FRAME_BY,
    RECON_FRAME_WINDOW,
    RECON_WINDOW_FRAMES,
    RECON_PREWHITEN,
    RECON_GRADIENT_DELAY,
    RECON_OFF_RESONANCE,
    RECON_ENCODING,
    RECON_GROUP,
    RECON_SIZE,
    RECON_FOV_MM,
    RECON_BIN_DEPTH,
    RECON_OVERFLOW,
    RECON_PARAMS
};

/* The steps, in the table's order. */
enum recon_step {
    RECON_STEP_DECODE,
    RECON_STEP_SORT,
    RECON_STEP_TRAJECTORY,
    RECON_STEP_NOISE,
    RECON_STEP_DENSITY,
    RECON_STEP_PLAN,
    RECON_STEP_GRIDDING,
    RECON_STEP_SOLVE,
    RECON_STEP_WRITE,
    RECON_STEPS
};

extern const struct kind_step recon_steps[];

/* The results, likewise. */
enum recon_result { RECON_RESULT_IMAGE, RECON_RESULT_MAPS, RECON_RESULTS };

/* Values of choices, in the order of recon_kind.c; those of dcf, traj_units, kernel and overflow are the enums of
 * gridding/.
 */
enum {
    RECON_METHOD_ADJOINT,
    RECON_METHOD_CG_SENSE,
    RECON_METHOD_L1_WAVELET,
    RECON_METHOD_TV,
    RECON_METHOD_TEMPORAL_TV,
    RECON_METHOD_LLR
};
enum { RECON_COILS_RSS, RECON_COILS_ADAPTIVE, RECON_COILS_SENSE, RECON_COILS_NONE };
enum { RECON_VIRTUAL_COILS_AUTO = 0, RECON_VIRTUAL_COILS_NONE = -1 };
enum { RECON_OUTPUT_MAGNITUDE, RECON_OUTPUT_COMPLEX, RECON_OUTPUT_PHASE };
enum { RECON_MATRIX_RECON, RECON_MATRIX_ENCODED };
enum { RECON_AVERAGES_COMBINE, RECON_AVERAGES_SEPARATE };
enum { RECON_FRAME_BY_COUNT, RECON_FRAME_BY_TIME };
enum { RECON_PREWHITEN_AUTO, RECON_PREWHITEN_OFF };
enum { RECON_OFF_RESONANCE_AUTO, RECON_OFF_RESONANCE_OFF };

/* The lengths that RECON_SIZE or RECON_FOV_MM gives ("256,256" or "64,64,32"): their number, 0 if empty. Fails with
 * ERR_BAD_PARAMETER. */
int recon_lengths(const struct param_values *values, enum recon_param param, double lengths[3]);

/* The delays x, y and xy of "0.3,-0.1,0.2", in samples. Fails with ERR_BAD_PARAMETER. */
int recon_delay_parse(const char *text, double delay[3]);

#endif
