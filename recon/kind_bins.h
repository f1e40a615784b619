/* kind_bins.h: the parameters of kinds that sum points to a lattice: what a GPU does with crowded bins
 * (gridding/range/sums.h). Rows of a kind's table, and what they set; a kind has both parameters or neither. */
#ifndef MRIRECON_KIND_BINS_H
#define MRIRECON_KIND_BINS_H

#include "gridding/range/sums.h"
#include "recon/kind_job.h"

/* Words of bin_depth stand for RANGE_DEPTH_AUTO and RANGE_DEPTH_NONE, choices of overflow for enum range_excess. */
#define KIND_BIN_DEPTH                                                                                              \
    {                                                                                                               \
        "bin_depth", PARAM_INT,                                                                                     \
            .fallback = "auto", .min = 1, .max = INT32_MAX, PARAM_WORDS("auto", "none"),                            \
            .help = "Maximum number of points per bin on a GPU, see `overflow`; none = no limit; auto = the value " \
                    "expected to be fastest. Has no effect on the CPU."                                             \
    }
#define KIND_OVERFLOW                                                                                              \
    {                                                                                                              \
        "overflow", PARAM_CHOICE, PARAM_WORDS("split", "cpu"),                                                     \
            .fallback = "split",                                                                                   \
            .help = "Handling of points beyond `bin_depth`: split = they are cut into parts that the GPU sums in " \
                    "parallel; cpu = the CPU sums them while the GPU sums the others."                             \
    }

/* Set both members of `params` from a job's values; `depth` and `overflow` are indices into its kind's table. */
static inline void kind_bins_set(struct range_points_params *params, const struct kind_job *job, int depth,
                                 int overflow)
{
    params->bin_depth = (int)job->request->values->value[depth].integer;
    params->overflow = (enum range_excess)job->request->values->value[overflow].integer;
}

/* Report that a CPU, which always cuts heavy work, ignores the parameters, if they were changed. */
static inline void kind_bins_report(struct kind_job *job, int depth, int overflow)
{
    const struct kind *kind = job->request->kind;
    const struct param_values *values = job->request->values;
    if (!dev_is_gpu(job->dev) && (param_changed(kind, values, depth) || param_changed(kind, values, overflow)))
        kind_job_decide(job, "overflow", "none", "There is no GPU, so no point overflows: the CPU sums all.");
}

#endif
