/* The plan with which an image is gridded: the previous one if the trajectory is the same, the last job's, or a new one
 * with its density compensation; and its part of the report. */
#include "recon/mri/recon_gridder.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/range/kernel.h"
#include "recon/mri/plan_cache.h"
#include "recon/mri/recon_seen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gridder_plan_drop(struct gridder *g)
{
    plan_parts_free(&g->own_parts);
    if (!g->kept)
        nufft_free(g->plan);
    g->parts = NULL;
    g->plan = NULL;
    g->kept = false;
    stack_free(g->stack, g->job->dev);
    g->stack = NULL;
}

/* Convert from cycles per pixel of the encoding to those of the image, with gradient delays. */
static void rescale(struct gridder *g, const struct frame *frame)
{
    const size_t samples = frame->samples;
    recon_delay_apply(g->job, frame, g->offsets, g->k);
    struct recon_job *job = g->job;
    size_t dim = (size_t)job->dim;
    for (size_t d = 0; d < dim; d++)
        for (size_t m = 0; m < samples && job->out_k[d] != 1; m++)
            g->k[m * dim + d] = (float)((double)g->k[m * dim + d] * job->out_k[d]);
}

/* Samples outside the image's k-space (its voxels are larger than the encoding's) get weight 0. */
static void leave_out(struct gridder *g, size_t samples)
{
    struct recon_job *job = g->job;
    size_t dim = (size_t)job->dim, out = 0;
    for (size_t m = 0; m < samples; m++) {
        bool outside = false;
        for (size_t d = 0; d < dim; d++)
            outside = outside || (job->out_k[d] > 1 && fabsf(g->k[m * dim + d]) > 0.5f);
        out += outside;
        if (outside)
            g->weights[m] = 0;
    }
    if (out)
        recon_report_decide(job, "resolution", "reconSpace",
                            "The image's voxels are larger than the encoded ones; %zu of %zu samples are outside its "
                            "k-space and are ignored.",
                            out, samples);
}

static void plan_report(struct gridder *g)
{
    struct nufft_info info;
    nufft_describe(g->plan, &info);
    json_object_set_new(g->job->report, "gridding_method", json_string(nufft_method_name(info.method)));
    recon_report_number(g->job, "kernel_width", info.width);
    recon_report_number(g->job, "oversampling", info.oversampling);
    recon_report_number(g->job, "expected_error", info.expected_error);
    recon_report_number(g->job, "bins", (double)info.bins);
    recon_report_number(g->job, "occupied_bins", (double)info.occupied_bins);
    recon_report_number(g->job, "largest_bin", (double)info.largest_bin);
    recon_report_number(g->job, "plan_bytes", (double)info.bytes);
    recon_report_number(g->job, "plans", g->plans);
    json_object_set_new(g->job->report, "grid", json_pack("[i,i,i]", info.grid[0], info.grid[1], info.grid[2]));
    double tolerance = g->job->request->values->value[RECON_TOLERANCE].real;
    double asked = g->job->request->values->value[RECON_OVERSAMPLING].real;
    double least = kernel_least_oversampling(g->job->dim, recon_choice(g->job, RECON_KERNEL) == NUFFT_RADIAL);
    if (asked != 0 && asked < least)
        recon_report_warn(g->job,
                          "The grid has %.3g times the image's size, not %g: in three dimensions a radial kernel "
                          "needs %g at least.",
                          info.oversampling, asked, least);
    if (info.expected_error > tolerance)
        recon_report_warn(g->job,
                          "The kernel (%d cells, oversampling %.3g) has an expected error of %.2g of the image, more "
                          "than the tolerance "
                          "of %g: a wider kernel or more oversampling reduces the error, down to float32 rounding.",
                          info.width, info.oversampling, info.expected_error, tolerance);
}

void gridder_report_overflow(struct gridder *g)
{
    struct recon_job *job = g->job;
    struct nufft_info info = {.depth = 0};
    if (g->plan)
        nufft_describe(g->plan, &info);
    bool gpu = dev_is_gpu(job->dev), cpu = recon_choice(job, RECON_OVERFLOW) == NUFFT_OVERFLOW_CPU;
    json_t *part =
        json_pack("{s:s, s:o, s:I, s:o, s:f, s:f, s:o}", "treatment",
                  !gpu  ? "none"
                  : cpu ? "cpu"
                        : "split",
                  "depth", info.depth ? json_integer((json_int_t)info.depth) : json_null(), "samples",
                  (json_int_t)g->overflowed, "gpu_seconds", g->times.gpu > 0 ? json_real(g->times.gpu) : json_null(),
                  "cpu_seconds", g->times.cpu, "merge_seconds", g->times.merge, "cpu_hidden",
                  g->times.cpu > 0 ? json_real(g->times.hidden / g->times.cpu) : json_null());
    json_object_set_new(job->report, "overflow", part);
    if (gpu && cpu && recon_choice(job, RECON_BIN_DEPTH) == NUFFT_DEPTH_AUTO) {
        char depth[32] = "none";
        if (info.depth)
            snprintf(depth, sizeof depth, "%zu", info.depth);
        recon_report_decide(job, "bin_depth", depth,
                            "Measured on this machine with this trajectory: all samples on the GPU, some on the CPU, "
                            "and nearly all on the CPU. The largest bin keeps %zu samples.",
                            info.largest_bin);
    }
    const struct job_request *request = job->request;
    if (!gpu && (param_changed(request->kind, request->values, RECON_BIN_DEPTH) ||
                 param_changed(request->kind, request->values, RECON_OVERFLOW)))
        recon_report_decide(job, "overflow", "none", "There is no GPU, so no sample overflows: the CPU grids all.");
}

void gridder_key(const struct gridder *g, const struct frame *frame, struct plan_key *key)
{
    const struct recon_job *job = g->job;
    memset(key, 0, sizeof *key);
    key->dim = key->params.dim = job->dim;
    key->params.tolerance = job->request->values->value[RECON_TOLERANCE].real;
    key->params.kernel = (enum nufft_kernel)recon_choice(job, RECON_KERNEL);
    key->params.width = (int)recon_choice(job, RECON_WIDTH);
    key->params.oversampling = job->request->values->value[RECON_OVERSAMPLING].real;
    key->params.batch = g->batch;
    key->params.bin_depth = (int)recon_choice(job, RECON_BIN_DEPTH);
    key->params.overflow = (enum nufft_overflow)recon_choice(job, RECON_OVERFLOW);
    for (int d = 0; d < 3; d++) {
        key->params.n[d] = g->n[d];
        key->n[d] = job->n[d];
        key->out_k[d] = job->out_k[d];
    }
    memcpy(key->delay, job->delay, sizeof key->delay);
    key->dcf = recon_choice(job, RECON_DCF);
    key->iterations = recon_choice(job, RECON_DCF_ITERATIONS);
    key->has_weights = job->has_weights;
    key->limited = recon_iterates(job);
    key->columns = job->columns;
    key->averages = frame->averages;
    key->samples = frame->samples;
    key->count = frame->count;
}

/* The key of the plan for a stack's plane. */
static void key_flatten(struct plan_key *key)
{
    key->params.dim = 2;
    key->params.n[2] = 1;
}

/* The plan of g->k and g->weights, or of the plane of g->stack. */
static int plan_create(struct gridder *g, const struct frame *frame, const struct nufft_params *params)
{
    const size_t samples = g->stack ? g->stack->samples : frame->samples;
    float *plane = g->stack ? malloc(3 * samples * sizeof *plane) : NULL;
    const float *k = plane ? plane : g->k, *weights = plane ? plane + 2 * samples : g->weights;
    if (g->stack && !plane)
        return err_no_memory("a partition of %zu samples", samples);
    if (plane) {
        stack_plane(g->stack, g->offsets, g->k, 3, 2, plane);
        stack_plane(g->stack, g->offsets, g->weights, 1, 1, plane + 2 * samples);
    }
    int rc = nufft_create(&g->plan, g->job->dev, params, samples, k);
    if (rc == 0)
        rc = nufft_set_weights(g->plan, weights);
    free(plane);
    return rc;
}

static void stack_report(const struct gridder *g)
{
    if (g->stack)
        recon_report_decide(
            g->job, "kz transform", "fft",
            "The %d partitions of the stack share one trajectory of %zu samples and its weights: an FFT "
            "along kz, and one 2-D plan for all slices.",
            g->stack->partitions, g->stack->samples);
}

/* Create weights and plan for the trajectory in g->k. *key may become three-dimensional. */
static int plan_make(struct gridder *g, const struct frame *frame, struct plan_key *key, const struct plan_key *space,
                     const struct plan_arrays *arrays, double base, double span)
{
    struct recon_job *job = g->job;
    double start = clock_seconds();
    double density = recon_steps[RECON_STEP_DENSITY].share, plan = recon_steps[RECON_STEP_PLAN].share;
    double until = span * density / (density + plan); /* of `span`: the density's */
    int rc = recon_tell(job, RECON_STEP_DENSITY, base, 0, 0);
    if (rc == 0)
        rc = recon_frame_density(job, frame, g->offsets, g->k, g->weights, base, until);
    recon_report_stage(job, recon_steps[RECON_STEP_DENSITY].name, clock_seconds() - start);
    if (rc == 0)
        rc = recon_tell(job, RECON_STEP_PLAN, base + until, 0, 0);
    if (rc != 0)
        return rc;
    start = clock_seconds();
    if (g->stack && !stack_weights_shared(g->stack, g->offsets, g->weights)) {
        stack_free(g->stack, job->dev);
        g->stack = NULL;
        *key = *space;
        plan_cache_begin(job->cache, key, arrays);
        recon_report_decide(job, "kz transform", "gridding",
                            "The scan is a stack, and kz is gridded as kx and ky: density weights differ between "
                            "partitions.");
    }
    stack_report(g);
    rescale(g, frame);
    leave_out(g, frame->samples);
    if (recon_iterates(job))
        gridder_limit(g, frame);
    rc = plan_create(g, frame, &key->params);
    recon_report_stage(job, recon_steps[RECON_STEP_PLAN].name, clock_seconds() - start);
    return rc;
}

/* Use the plan that is kept. */
static void plan_take(struct gridder *g, struct nufft *plan, const json_t *decisions, double start)
{
    g->plan = plan;
    g->kept = true;
    recon_report_repeat(g->job, decisions);
    recon_report_stage(g->job, recon_steps[RECON_STEP_PLAN].name, clock_seconds() - start);
}

/* Whether samples of an image are gridded by the plan that is kept without their positions: its parts have them. */
static bool needs_no_k(const struct gridder *g, const struct frame *frame)
{
    const struct plan_parts *parts = plan_cache_parts(g->job->cache);
    return recon_squares(g->job) && !g->field && parts && parts->of && parts->coils == frame->coils;
}

/* Use the plan that is kept if the frame's first readouts were compared with it as they arrived, and the others prove
 * to be the same, too: *known. Else the frame must be compared as a whole. */
static int plan_known(struct gridder *g, const struct frame *frame, bool *known)
{
    struct recon_job *job = g->job;
    const size_t first = needs_no_k(g, frame) ? recon_feed_compared(job, frame) : 0;
    const double start = clock_seconds();
    struct frame rest;
    struct plan_key key;
    size_t *own;
    json_t *decisions = NULL;
    *known = false;
    if (first == 0)
        return 0;
    int rc = recon_frame_cut(frame, g->offsets, first, frame->count, &rest, &own);
    if (rc != 0)
        return rc;
    recon_frame_gather(job, &rest, own, g->k, job->has_weights ? g->weights : NULL);
    free(own);
    gridder_key(g, frame, &key);
    job->seen->compared += rest.count;
    const struct plan_arrays arrays = {g->k, job->has_weights ? g->weights : NULL, g->offsets, first};
    struct nufft *plan = plan_cache_find(job->cache, &key, &arrays, &decisions);
    *known = plan != NULL;
    if (!plan)
        return 0;
    gridder_plan_drop(g);
    plan_take(g, plan, decisions, start);
    plan_report(g);
    return 0;
}

/* The plan for the trajectory in g->k (in encoding units, converted to the image's here) and the file's weights in
 * g->weights: the last job's, or a new one. */
static int plan_get(struct gridder *g, const struct frame *frame, double base, double span)
{
    struct recon_job *job = g->job;
    struct recon_cache *cache = job->cache;
    const struct plan_arrays arrays = {g->k, job->has_weights ? g->weights : NULL, g->offsets, 0};
    struct plan_key key, space;
    json_t *decisions = NULL;
    double start = clock_seconds();
    gridder_key(g, frame, &key);
    space = key;
    gridder_plan_drop(g);
    int rc = stack_find(&g->stack, g, frame, g->k);
    if (g->stack)
        key_flatten(&key);
    struct nufft *plan = rc == 0 ? plan_cache_find(cache, &key, &arrays, &decisions) : NULL;
    if (!plan && g->stack && (plan = plan_cache_find(cache, &space, &arrays, &decisions))) {
        stack_free(g->stack, job->dev); /* its weights differ between partitions */
        g->stack = NULL;
    }
    if (rc != 0)
        return rc;
    if (plan) {
        rescale(g, frame);
        plan_take(g, plan, decisions, start);
    } else {
        plan_cache_begin(cache, &key, &arrays);
        json_t *before = recon_report_aside(job);
        rc = plan_make(g, frame, &key, &space, &arrays, base, span);
        decisions = recon_report_back(job, before);
        if (rc == 0)
            g->kept = plan_cache_keep(cache, job->dev, g->plan, g->weights, decisions);
        else
            plan_cache_clear(cache);
        json_decref(decisions);
        g->plans += rc == 0;
    }
    if (rc == 0)
        plan_report(g);
    return rc;
}

int gridder_plan(struct gridder *g, size_t f, double base, double span)
{
    struct recon_job *job = g->job;
    const struct frame *frame = &job->frames->frame[f];
    bool alike = g->planned && job->hash && job->hash[f] == g->planned_hash && frame->samples == g->planned->samples;
    double start = clock_seconds();
    bool known = false;
    recon_frame_offsets(job, frame, g->offsets);
    int rc = alike ? 0 : plan_known(g, frame, &known);
    if (known)
        g->planned = NULL;
    if (rc != 0 || known)
        return rc;
    recon_frame_gather(job, frame, g->offsets, g->k, job->has_weights && !alike ? g->weights : NULL);
    recon_report_stage(job, "gather", clock_seconds() - start);
    if (alike) {
        rescale(g, frame);
        if (memcmp(g->k, g->planned_k, frame->samples * (size_t)job->dim * sizeof(float)) == 0)
            return 0;
        recon_frame_gather(job, frame, g->offsets, g->k, job->has_weights ? g->weights : NULL);
    }
    if (job->seen)
        job->seen->compared += frame->count;
    g->planned = NULL;
    rc = plan_get(g, frame, base, span);
    if (rc == 0) {
        if (job->hash) {
            float *swap = g->k;
            g->k = g->planned_k;
            g->planned_k = swap;
        }
        g->planned = frame;
        g->planned_hash = job->hash ? job->hash[f] : 0;
    }
    return rc;
}
