/* Density compensation of one image: the file's weights, or weights computed from its trajectory. */
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"

#include <math.h>

struct pipe_progress {
    const struct recon_job *job;
    double base, span;
    int iterations;
};

static int pipe_progress(void *context, int done)
{
    const struct pipe_progress *p = context;
    return recon_tell(p->job, RECON_STEP_DENSITY, p->base + p->span * done / p->iterations, done, p->iterations);
}

/* The shape of the frame's curves, for the analytic formula; *why: the shape, or why there is none. */
static enum traj_shape shape_find(const struct recon_job *job, const struct frame *frame, const size_t *offsets,
                                  const float *k, size_t *curves, size_t *samples, const char **why)
{
    *why = "The scan contains no weights, and its readouts differ in length, so no formula applies;";
    if (!recon_frame_curves(job, frame, offsets, k, curves, samples))
        return TRAJ_SHAPE_UNKNOWN;
    enum traj_shape shape = traj_shape_find(job->dim, *curves, *samples, k);
    static const char *const plane[] = {
        [TRAJ_SHAPE_RADIAL] = "radial. Weights are |k| d|k| times the angle between a spoke's neighbours",
        [TRAJ_SHAPE_SPIRAL] =
            "a spiral of rotated arms. Weights are |k| d|k| times the angle between an arm's neighbours",
    };
    static const char *const space[] = {
        [TRAJ_SHAPE_RADIAL] = "radial with even directions. Weights are |k|^2 d|k| times a spoke's share of the sphere",
        [TRAJ_SHAPE_STACK_RADIAL] =
            "a stack of radial partitions. Weights are |k| d|k| times the angle between a spoke's "
            "neighbours, in the plane, times the distance between partitions",
        [TRAJ_SHAPE_STACK_SPIRAL] = "a stack of spirals. Weights are |k| d|k| times the angle between an arm's "
                                    "neighbours, in the plane, times the distance between partitions",
        [TRAJ_SHAPE_CONES] = "of cones about the z axis. Weights are |k|^2 d|k| times an arm's share of the sphere",
    };
    if (shape != TRAJ_SHAPE_UNKNOWN)
        *why = job->dim == 2 ? plane[shape] : space[shape];
    else
        *why = "The scan contains no weights, and its trajectory is neither radial, a spiral of rotated arms, a stack "
               "of either, nor cones, or has too wide gaps between angles;";
    return shape;
}

static int analytic(struct recon_job *job, enum traj_shape shape, const char *why, size_t curves, size_t samples,
                    const float *k, float *weights)
{
    int rc = dcf_analytic(shape, job->dim, curves, samples, k, weights);
    if (rc == 0)
        recon_report_decide(job, "dcf", "analytic",
                            "The trajectory is %s; %zu readouts of %zu samples; repeated ones share their weight.", why,
                            curves, samples);
    return rc;
}

enum { PIPE_ITERATIONS = 30, PIPE_AFTER_FORMULA = 10 };

/* `started`: weights[] contains those of a formula. */
static int pipe_menon(struct recon_job *job, const char *reason, bool started, size_t samples, const float *k,
                      float *weights, double base, double span)
{
    const int asked = (int)recon_choice(job, RECON_DCF_ITERATIONS);
    const int iterations = asked > 0 ? asked : started ? PIPE_AFTER_FORMULA : PIPE_ITERATIONS;
    struct pipe_progress progress = {job, base, span, iterations};
    int rc = recon_tell(job, RECON_STEP_DENSITY, base, 0, iterations);
    if (rc != 0)
        return rc;
    rc = dcf_pipe(job->dev, job->dim, job->n, samples, k, started ? weights : NULL, iterations, weights, pipe_progress,
                  &progress);
    if (rc == 0)
        recon_report_decide(job, "dcf", "pipe", "%s %d iterations%s.", reason, iterations,
                            started ? ", from the weights of the formula for its trajectory on" : "");
    return rc;
}

/* Starting weights, from the formula for the frame's trajectory. False: there is none. */
static bool formula_start(const struct recon_job *job, const struct frame *frame, const size_t *offsets, const float *k,
                          float *weights)
{
    size_t curves, samples;
    const char *why;
    const enum traj_shape shape = shape_find(job, frame, offsets, k, &curves, &samples, &why);
    bool started = shape != TRAJ_SHAPE_UNKNOWN && dcf_analytic(shape, job->dim, curves, samples, k, weights) == 0;
    for (size_t m = 0; m < frame->samples && started; m++)
        started = weights[m] > 0 && isfinite(weights[m]);
    return started;
}

static int voronoi_ask(void *context)
{
    const struct pipe_progress *p = context;
    return recon_tell(p->job, RECON_STEP_DENSITY, p->base, 0, 0);
}

static int voronoi(struct recon_job *job, size_t samples, const float *k, float *weights, double base)
{
    struct pipe_progress progress = {.job = job, .base = base};
    if (job->dim != 2)
        return err_set(ERR_DCF_INVALID,
                       "Voronoi weights are for 2-D trajectories, and this one is 3-D. Pass dcf=auto.");
    int rc = dcf_voronoi(samples, k, weights, voronoi_ask, &progress);
    if (rc == 0)
        recon_report_decide(job, "dcf", "voronoi", "As requested; samples of one place share its cell.");
    return rc;
}

int recon_frame_density(struct recon_job *job, const struct frame *frame, const size_t *offsets, const float *k,
                        float *weights, double base, double span)
{
    enum dcf_method asked = (enum dcf_method)recon_choice(job, RECON_DCF);
    if (job->has_weights) {
        recon_report_decide(job, "dcf", "given", "The scan contains weights in column %d of its trajectory.",
                            job->columns);
        /* Averages repeat the weights; the image is their mean, not their sum. */
        for (size_t m = 0; m < frame->samples && frame->averages > 1; m++)
            weights[m] /= (float)frame->averages;
        return 0;
    }
    if (asked == DCF_NONE) {
        for (size_t m = 0; m < frame->samples; m++)
            weights[m] = 1;
        recon_report_decide(job, "dcf", "none", "As requested.");
        return 0;
    }
    if (asked == DCF_PIPE)
        return pipe_menon(job, "As requested;", formula_start(job, frame, offsets, k, weights), frame->samples, k,
                          weights, base, span);
    if (asked == DCF_VORONOI)
        return voronoi(job, frame->samples, k, weights, base);
    size_t curves = frame->count, samples = 0;
    const char *why;
    enum traj_shape shape = shape_find(job, frame, offsets, k, &curves, &samples, &why);
    if (asked == DCF_AUTO && shape == TRAJ_SHAPE_UNKNOWN)
        return pipe_menon(job, why, false, frame->samples, k, weights, base, span);
    int rc = analytic(job, shape, why, curves, samples, k, weights);
    if (rc == ERR_DCF_INVALID && asked == DCF_AUTO)
        return pipe_menon(job,
                          "The scan contains no weights, and those of the formula for its trajectory are not usable;",
                          false, frame->samples, k, weights, base, span);
    return rc;
}
