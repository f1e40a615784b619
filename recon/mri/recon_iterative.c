/* Iterative methods of step "images". Of one image:
 *
 *   c_j  = A' W y_j                        coil images: the gridding adjoint with density weights W
 *   S    from c                            coil maps (recon/mri/maps.h)
 *   b    = sum_j conj(S_j) c_j             the right side
 *   N x  = sum_j conj(S_j) A' W A S_j x    the normal operator (recon/mri/sense.h)
 *   x    = argmin |A S x - y|^2_W + ...    by the method's solver (recon/solve/solve.h)
 *
 * The image is in the units of the object, whatever the scale of the weights. Images on one trajectory share its normal
 * operator and the largest eigenvalue of that, L. */
#include "recon/mri/recon_iterative_inner.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "recon/mri/maps.h"
#include "recon/solve/prox.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POWER_ITERATIONS = 15 }; /* of one coil: as expensive as one or two iterations of all coils */

/* An image's progress after weights and plan, after the coil images, and after the maps. */
static const double done_plan = 0.10, done_gridding = 0.15, done_maps = ITERATIVE_BEGUN;

/* ---- size ---- */

void iterative_size(const struct recon_job *job, int n[3])
{
    for (int d = 0; d < 3; d++) {
        /* A field of view that is not a whole number of voxels is rounded; 1e-3: as in matrix_choose(). */
        const int encoded = d < job->dim ? (int)ceil(job->n[d] / job->out_k[d] - 0.5) : 1;
        n[d] = encoded > job->out_n[d] ? encoded : job->out_n[d];
        if (recon_choice(job, RECON_METHOD) == RECON_METHOD_L1_WAVELET)
            n[d] = (n[d] + wavelet_multiple(n[d]) - 1) / wavelet_multiple(n[d]) * wavelet_multiple(n[d]);
    }
}

int iterative_create(struct iterative **out, struct gridder *g)
{
    struct recon_job *job = g->job;
    struct iterative *it = calloc(1, sizeof *it);
    if (!it)
        return err_no_memory("an iterative method");
    const size_t image = g->pixels * sizeof(struct c32), coils = (size_t)g->most_coils * image;
    const size_t maps = g->together ? g->longest : 1;
    *it = (struct iterative){
        .g = g, .job = job, .method = method_of(job), .batch = iterative_batch(g), .images_solved = 1};
    it->images_kept = 1;
    it->ask = (struct prox_ask){iterative_ask, it};
    int rc = dev_alloc(job->dev, (g->keeps ? g->longest : 1) * coils, (void **)&it->all_images);
    it->images = it->all_images;
    if (rc == 0)
        rc = dev_alloc(job->dev, maps * coils, (void **)&it->all_maps);
    it->maps = it->all_maps;
    if (rc == 0)
        rc = dev_alloc(job->dev, g->longest * image, (void **)&it->b);
    if (rc == 0)
        rc = dev_alloc(job->dev, g->longest * image, (void **)&it->x);
    if (rc == 0 && !g->together)
        rc = sense_open(&it->sense, job->dev, g->pixels, g->most_coils, it->batch, g->divided);
    it->sense.ask = iterative_ask;
    it->sense.context = it;
    it->host = malloc(image);
    if (rc == 0 && !it->host)
        rc = err_no_memory_bytes(image, "an image of %d x %d x %d pixels", g->n[0], g->n[1], g->n[2]);
    if (rc == 0)
        *out = it;
    else
        iterative_free(it);
    return rc;
}

void iterative_free(struct iterative *it)
{
    if (!it)
        return;
    struct dev *dev = it->job->dev;
    sense_close(&it->sense);
    normal_free(it->normal);
    normal_free(it->limit);
    dev_release(dev, it->kernels);
    dev_release(dev, it->all_images);
    dev_release(dev, it->all_maps);
    dev_release(dev, it->b);
    dev_release(dev, it->x);
    free(it->host);
    free(it);
}

/* ---- progress ---- */

int iterative_tell(struct iterative *it, double share, int64_t iteration, int64_t iterations)
{
    it->share = share;
    it->iteration = iteration;
    it->most = iterations;
    return recon_tell(it->job, RECON_STEP_SOLVE, it->base + it->span * share, iteration, iterations);
}

static int tell_maps(void *context, double done)
{
    struct iterative *it = context;
    return iterative_tell(it, it->maps_from + (it->maps_until - it->maps_from) * done, 0, 0);
}

int iterative_told(void *context, int done, int most)
{
    struct iterative *it = context;
    return iterative_tell(it, it->maps_until + (1 - it->maps_until) * done / most, done, most);
}

int iterative_ask(void *context)
{
    struct iterative *it = context;
    return iterative_tell(it, it->share, it->iteration, it->most);
}

static int ask_power(void *context, int done, int most)
{
    (void)done;
    (void)most;
    return iterative_ask(context);
}

/* ---- one image ---- */

static int coils_grid(struct gridder *g, const struct frame *frame, int first, int count, struct c32 *images)
{
    if (g->stack)
        return stack_grid(g, frame, first, count, NULL, images);
    int rc = gridder_upload(g, frame, first, count, g->data[0]);
    if (rc == 0)
        rc = dev_upload_order(g->job->dev);
    if (rc == 0)
        rc = gridder_ask(g);
    return rc == 0 ? gridder_images(g, frame, count, g->data[0], images) : rc;
}

int iterative_grid(struct iterative *it, const struct frame *frame, double from, double until)
{
    struct gridder *g = it->g;
    const double start = clock_seconds();
    int rc = 0;
    for (int first = 0; first < frame->coils && rc == 0; first += g->batch) {
        const int count = gridder_coils(g, frame, first);
        rc = gridder_tell(g, it->base + it->span * (from + (until - from) * first / frame->coils), first);
        if (rc == 0)
            rc = coils_grid(g, frame, first, count, it->images + (size_t)first * g->pixels);
    }
    recon_report_stage(it->job, recon_steps[RECON_STEP_GRIDDING].name, clock_seconds() - start);
    return rc;
}

int iterative_maps(struct iterative *it, int coils, const struct c32 *images, double from, double until)
{
    const double start = clock_seconds();
    const bool walsh = recon_choice(it->job, RECON_COILS) == RECON_COILS_ADAPTIVE;
    struct maps_params params = maps_defaults(walsh ? MAPS_WALSH : MAPS_ESPIRIT, coils, it->g->n);
    double support = 0;
    it->maps_from = from;
    it->maps_until = until;
    params.progress = tell_maps;
    params.context = it;
    int rc = recon_maps_given(it->job) ? recon_given_maps(it->job, coils, it->g->n, it->maps, &support)
                                       : maps_estimate(it->job->dev, &params, images, it->maps, &support);
    it->g->tally.support = support;
    recon_report_stage(it->job, "maps", clock_seconds() - start);
    return rc;
}

size_t iterative_kernel_elements(const struct iterative *it)
{
    const size_t segments = it->g->field ? (size_t)field_segments(it->g->field) : 1;
    return segments * normal_kernel_elements(it->normal);
}

int iterative_op_open(struct iterative_op *out, struct iterative *it, struct op inner, const struct c32 *kernels)
{
    *out = (struct iterative_op){.field = it->g->field != NULL, .op = inner};
    int rc = out->field ? field_normal_open(&out->with, it->g->field, it->normal, inner, kernels) : 0;
    if (rc == 0 && out->field)
        out->op = field_normal_op(&out->with);
    return rc;
}

void iterative_op_close(struct iterative_op *op)
{
    if (op->field)
        field_normal_close(&op->with);
}

static int normal_one(void *of, const struct c32 *x, struct c32 *r)
{
    const struct iterative *it = of;
    return normal_apply(it->normal, it->planes, x, r);
}

/* Of whole images, or of the planes that a stack's image falls into. */
static struct nufft_params normal_params(const struct iterative *it, int batch, int planes)
{
    const int *n = it->g->n;
    if (planes > 1)
        return (struct nufft_params){.dim = 2, .n = {n[0], n[1], 1}, .batch = batch * planes};
    return (struct nufft_params){.dim = it->job->dim, .n = {n[0], n[1], n[2]}, .batch = batch};
}

int iterative_limit(struct iterative *it, const struct band *band)
{
    struct recon_job *job = it->job;
    const struct nufft_params params = normal_params(it, 1, 1);
    bool all = band->shape == BAND_BOX;
    for (int d = 0; d < job->dim; d++)
        all = all && band->edge[d] > 0.49;
    normal_free(it->limit);
    it->limit = NULL;
    if (all)
        return 0;
    recon_report_decide(job, "k-space", band_name(band),
                        "The trajectory covers |k| up to %.3g, %.3g, %.3g cycles per pixel (kx, ky, kz); the image is "
                        "limited to that, as nothing was measured outside.",
                        band->edge[0], band->edge[1], band->edge[2]);
    return normal_create_even(&it->limit, job->dev, &params, band_kernel, band,
                              &(struct normal_ask){iterative_ask, it});
}

/* it->normal of the plan and its samples k with weights, and with a field map it->kernels. */
static int normal_make(struct iterative *it, const float *k, const float *weights)
{
    struct gridder *g = it->g;
    const struct nufft_params params = normal_params(it, it->batch, it->planes);
    if (!g->field)
        return normal_create_of(&it->normal, it->job->dev, &params, g->plan, k,
                                &(struct normal_ask){iterative_ask, it});
    int rc = field_frame(g->field, g->planned, g->offsets, gridder_k(g), g->stack);
    return rc == 0 ? field_kernels(g->field, &it->normal, &params, g->plan, g->stack, k, weights, &it->kernels,
                                   &(struct normal_ask){iterative_ask, it})
                   : rc;
}

/* The same of a stack: the normal operator of its plane, times the number of partitions. */
static int normal_of_stack(struct iterative *it)
{
    struct gridder *g = it->g;
    const size_t samples = g->stack->samples;
    const float partitions = (float)g->stack->partitions;
    float *plane = malloc(3 * samples * sizeof *plane);
    if (!plane)
        return err_no_memory("a partition of %zu samples", samples);
    it->planes = g->n[2];
    stack_plane(g->stack, g->offsets, gridder_k(g), 3, 2, plane);
    stack_plane(g->stack, g->offsets, g->weights, 1, 1, plane + 2 * samples);
    int rc = normal_make(it, plane, plane + 2 * samples);
    free(plane);
    if (rc == 0 && g->field)
        return vec_scale(it->job->dev, iterative_kernel_elements(it), partitions, it->kernels);
    return rc == 0 ? normal_scale(it->normal, partitions) : rc;
}

/* The normal operator of the present plan. */
static int normal_renew(struct iterative *it)
{
    struct gridder *g = it->g;
    normal_free(it->normal);
    it->normal = NULL;
    dev_release(it->job->dev, it->kernels);
    it->kernels = NULL;
    it->planned = g->planned;
    it->planes = 1;
    return g->stack ? normal_of_stack(it) : normal_make(it, gridder_k(g), g->weights);
}

int iterative_normal(struct iterative *it, bool *made)
{
    struct gridder *g = it->g;
    const float *field = g->field ? field_map(g->field) : NULL;
    const double start = clock_seconds();
    const struct solve_listener listener = {it, ask_power};
    *made = !it->normal || it->planned != g->planned;
    if (!*made && it->field == field)
        return 0;
    it->field = field;
    int rc = *made ? normal_renew(it) : 0;
    const struct op one = {.of = it, .domain = g->pixels, .range = g->pixels, .normal = normal_one};
    struct iterative_op op = {.field = false};
    if (rc == 0)
        rc = iterative_op_open(&op, it, one, it->kernels);
    if (rc == 0)
        rc = power_largest(it->job->dev, &op.op, POWER_ITERATIONS, &listener, &it->largest);
    iterative_op_close(&op);
    recon_report_stage(it->job, "normal", clock_seconds() - start);
    return rc;
}

struct solve_stop iterative_stop(struct iterative *it)
{
    const struct param_values *values = it->job->request->values;
    const int64_t iterations = recon_choice(it->job, RECON_ITERATIONS);
    const double tolerance = values->value[RECON_STOP_TOLERANCE].real, lambda = values->value[RECON_LAMBDA].real;
    it->g->tally.lambda = lambda >= 0 ? lambda : it->method->lambda;
    /* No tolerance is certain to do: the more iterations, the smaller the eigenvalues that they reach. */
    snprintf(
        it->accuracy, sizeof it->accuracy,
        " Gridding errs by up to tolerance=%g, and lambda=%g does not make up for that: decrease tolerance, increase "
        "lambda, or ask for fewer iterations.",
        values->value[RECON_TOLERANCE].real, it->g->tally.lambda);
    return (struct solve_stop){
        .iterations = iterations > 0 ? (int)iterations : it->method->iterations,
        .tolerance = tolerance >= 0 ? tolerance : it->method->tolerance,
        .seconds = fmax(0, values->value[RECON_STOP_SECONDS].real),
        .accuracy = it->accuracy,
    };
}

void iterative_tally(struct iterative *it, const struct solve_result *result, size_t images)
{
    struct solve_tally *tally = &it->g->tally;
    tally->iterations += result->iterations;
    tally->residual = fmax(tally->residual, result->residual);
    tally->ended[result->end] += images;
}

int iterative_solve(struct iterative *it, const struct op *op)
{
    const struct solve_stop stop = iterative_stop(it);
    const struct solve_listener listener = {it, iterative_told};
    struct solve_result result = {0};
    it->g->tally.largest = it->largest;
    int rc = it->method->solve(it, op, &stop, &listener, &result);
    for (size_t i = 0; i < it->images_solved && rc == 0 && it->limit; i++)
        rc = normal_apply(it->limit, 1, it->x + i * it->g->pixels, it->x + i * it->g->pixels);
    iterative_tally(it, &result, it->images_kept);
    return rc;
}

static int solve(struct iterative *it, const struct frame *frame)
{
    const double start = clock_seconds();
    struct iterative_op op = {.field = false};
    it->g->tally.parts = it->sense.parts;
    int rc = iterative_op_open(&op, it, sense_op(&it->sense), it->kernels);
    if (rc == 0)
        rc = dev_zero(it->job->dev, it->b, it->g->pixels * sizeof *it->b);
    if (rc == 0)
        rc = sense_combine(&it->sense, 0, frame->coils, it->images, it->b);
    if (rc == 0)
        rc = iterative_solve(it, &op.op);
    iterative_op_close(&op);
    recon_report_stage(it->job, recon_steps[RECON_STEP_SOLVE].name, clock_seconds() - start);
    return rc;
}

int iterative_begin(struct iterative *it, size_t f, bool *made, struct normal **old)
{
    struct gridder *g = it->g;
    const struct frame *frame = &it->job->frames->frame[f];
    int rc = gridder_plan(g, f, it->base, it->span * done_plan);
    if (rc == 0)
        rc = iterative_grid(it, frame, done_plan, done_gridding);
    if (rc == 0)
        rc = iterative_maps(it, frame->coils, it->images, done_gridding, done_maps);
    if (rc == 0)
        rc = iterative_store_maps(it, f, frame->coils);
    if (rc == 0 && !g->together)
        rc = sense_maps(&it->sense, frame->coils, it->maps); /* copies are made beside the operator */
    if (rc == 0)
        rc = iterative_normal(it, made);
    if (rc == 0 && !g->together && (*made || !it->sense.part[0].normal))
        rc = sense_normal(&it->sense, it->normal, it->planes);
    if (rc != 0 || !*made)
        return rc;
    if (old) {
        *old = it->limit;
        it->limit = NULL;
    }
    const struct band band = band_find(it->job->dim, g->planned->samples, gridder_k(g));
    return iterative_limit(it, &band);
}

int iterative_frame(struct iterative *it, size_t f)
{
    struct gridder *g = it->g;
    const struct frame *frame = &it->job->frames->frame[f];
    bool made;
    it->base = (double)g->coils_done / (double)g->coils;
    it->span = frame->coils / (double)g->coils;
    int rc = iterative_begin(it, f, &made, NULL);
    if (rc == 0)
        rc = solve(it, frame);
    if (rc == 0)
        rc = iterative_store(it, f, it->x);
    g->coils_done += frame->coils;
    return rc;
}

void iterative_report(struct iterative *it)
{
    struct recon_job *job = it->job;
    const size_t images = job->frames->count;
    char text[64];
    recon_report_number(job, "iterations", (double)it->g->tally.iterations);
    recon_report_number(job, "iterations_residual", it->g->tally.residual);
    recon_report_number(job, "largest_eigenvalue", it->g->tally.largest);
    snprintf(text, sizeof text, "%" PRId64, it->g->tally.iterations);
    recon_report_decide(job, "iterations", text,
                        "Of %zu image%s: %zu reached stop_tolerance, %zu the maximum of iterations, %zu stop_seconds; "
                        "%zu were all zeros.",
                        images, images == 1 ? "" : "s", it->g->tally.ended[SOLVE_TOLERANCE],
                        it->g->tally.ended[SOLVE_ITERATIONS], it->g->tally.ended[SOLVE_SECONDS],
                        it->g->tally.ended[SOLVE_ZERO]);
    if (dev_parts(job->dev) > 1) {
        snprintf(text, sizeof text, "%d", it->g->tally.parts);
        recon_report_decide(
            job, "devices", text,
            it->g->tally.parts > 1
                ? "The devices share the coils of the normal operator."
                : "One device computed the normal operator: the other ones take part where an "
                  "image of many coils is large, alone, and without a field map, and where they have memory "
                  "for it.");
    }
    snprintf(text, sizeof text, "%g", it->g->tally.lambda);
    recon_report_decide(job, "lambda", text, "Relative to %s; %s.", it->method->lambda_of,
                        job->request->values->value[RECON_LAMBDA].real >= 0 ? "as given" : it->method->lambda_suits);
    if (recon_maps_given(job)) {
        recon_report_decide(job, "coils", "given",
                            "method=%s combines the coils by the scan's own maps (sensitivities); they cover "
                            "%.0f %% of the image, and it is 0 elsewhere.",
                            job->request->values->value[RECON_METHOD].text, 100 * it->g->tally.support);
        return;
    }
    const bool walsh = recon_choice(job, RECON_COILS) == RECON_COILS_ADAPTIVE;
    recon_report_decide(
        job, "coils", walsh ? "adaptive" : "sense",
        "method=%s combines the coils by maps, estimated by %s from the centre of k-space of the coils' "
        "own images%s; they cover %.0f %% of the image, and it is 0 elsewhere.",
        job->request->values->value[RECON_METHOD].text, walsh ? "Walsh's method" : "ESPIRiT",
        it->method->series ? ", the mean of the series" : "", 100 * it->g->tally.support);
    if (it->g->tally.support == 0 && it->g->tally.ended[SOLVE_ZERO] < images)
        recon_report_warn(job, "No coil maps could be estimated, and an image is 0. method=adjoint needs none.");
}
