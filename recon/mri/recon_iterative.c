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
#include "recon/mri/recon_iterative.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "recon/mri/band.h"
#include "recon/mri/maps.h"
#include "recon/mri/sense.h"
#include "recon/solve/prox.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    POWER_ITERATIONS = 15,  /* of one coil, which costs as little as one or two iterations of all coils */
    BATCH_PIXELS = 1 << 22, /* of coils that are worked off together: a cancel waits for no more */
};

/* Of 1 / L: the power method finds L from below, 0.95 of it after its iterations (tests/unit/test_iterative.c). */
static const double STEP = 0.9;

/* Shares of one image's progress: what is done once weights and plan, coil images, and maps are there. */
static const double done_plan = 0.10, done_gridding = 0.15, done_maps = 0.30;

struct iterative {
    struct gridder *g;
    struct recon_job *job;
    int batch; /* coils that the normal operator takes at a time */
    struct c32 *images, *maps, *b, *x, *host;
    const struct frame *planned;   /* the image whose trajectory `normal` and `largest` are of */
    struct normal *normal, *limit; /* `limit`: leaves what the trajectory covers; NULL: all of k-space */
    double largest;                /* eigenvalue L */
    double base, span;             /* progress of this image */
    double share;                  /* of it, and what else was told last */
    int64_t iteration, most;
    double support;     /* of the last image's maps, as a share of its pixels */
    double lambda;      /* of the last image: the parameter's value */
    int64_t iterations; /* of all images */
    double residual;    /* the largest */
    size_t ended[4];    /* images, by enum solve_end */
};

/* ---- methods ---- */

/* A level of b that does not depend on how much of the field of view the object fills: sum |b|^2 / sum |b|. */
static int signal_level(struct iterative *it, double *level)
{
    double all = 0, squares = 0;
    int rc = dev_download(it->job->dev, it->host, it->b, it->g->pixels * sizeof *it->host);
    for (size_t i = 0; i < it->g->pixels && rc == 0; i++) {
        const double square = (double)it->host[i].re * it->host[i].re + (double)it->host[i].im * it->host[i].im;
        squares += square;
        all += sqrt(square);
    }
    *level = all > 0 ? squares / all : 0;
    return rc;
}

static int cg_sense(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                    const struct solve_listener *listener, struct solve_result *result)
{
    return cg_solve(it->job->dev, op, it->lambda * it->largest, it->b, it->x, stop, listener, result);
}

static int l1_wavelet(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                      const struct solve_listener *listener, struct solve_result *result)
{
    struct prox_wavelet p;
    const int n[SPARSE_AXES] = {it->g->n[0], it->g->n[1], it->g->n[2], 1};
    double level = 0;
    int rc = signal_level(it, &level);
    if (rc != 0)
        return rc;
    rc = prox_wavelet_open(&p, it->job->dev, n, it->lambda * level, 1);
    const struct prox prox = prox_wavelet(&p);
    if (rc == 0)
        rc = fista_solve(it->job->dev, op, STEP / it->largest, &prox, it->b, it->x, stop, listener, result);
    prox_wavelet_close(&p);
    return rc;
}

static unsigned tv_axes(int dim)
{
    return (1u << dim) - 1;
}

static int tv(struct iterative *it, const struct op *op, const struct solve_stop *stop,
              const struct solve_listener *listener, struct solve_result *result)
{
    struct prox_tv p;
    const int n[SPARSE_AXES] = {it->g->n[0], it->g->n[1], it->g->n[2], 1};
    double level = 0;
    int rc = signal_level(it, &level);
    if (rc != 0)
        return rc;
    rc = prox_tv_open(&p, it->job->dev, n, tv_axes(it->job->dim), it->lambda * level);
    const struct prox prox = prox_tv(&p);
    if (rc == 0)
        rc = fista_solve(it->job->dev, op, STEP / it->largest, &prox, it->b, it->x, stop, listener, result);
    prox_tv_close(&p);
    return rc;
}

static int cg_vectors(int dim)
{
    (void)dim;
    return CG_VECTORS;
}

static int wavelet_vectors(int dim)
{
    (void)dim;
    return FISTA_VECTORS + WAVELET_VECTORS;
}

static int tv_all_vectors(int dim)
{
    return FISTA_VECTORS + tv_vectors(tv_axes(dim));
}

/* By the parameter's choices; what "auto" stands for: docs/numerics.md has the measurements. */
static const struct {
    int (*solve)(struct iterative *it, const struct op *op, const struct solve_stop *stop,
                 const struct solve_listener *listener, struct solve_result *result);
    int (*vectors)(int dim);
    int iterations;
    double lambda, tolerance;
    const char *lambda_of;
} methods[] = {
    [RECON_METHOD_CG_SENSE] = {cg_sense, cg_vectors, 20, 3e-3, 5e-3, "the normal operator's largest eigenvalue"},
    [RECON_METHOD_L1_WAVELET] = {l1_wavelet, wavelet_vectors, 40, 1.4e-2, 3e-3, "the image's signal level"},
    [RECON_METHOD_TV] = {tv, tv_all_vectors, 30, 8e-3, 3e-3, "the image's signal level"},
};

/* ---- device, size, memory ---- */

int iterative_device(struct recon_job *job, struct dev **own)
{
    *own = NULL;
    if (vec_available(job->dev))
        return 0;
    int rc = dev_create(own, DEV_CPU, 0, dev_threads(job->dev));
    if (rc != 0)
        return rc;
    recon_report_decide(job, "device", "cpu",
                        "method=%s ran on the CPU (%s): iterative methods have no GPU implementation.",
                        job->request->values->value[RECON_METHOD].text, dev_name(*own));
    job->dev = *own;
    job->cache = NULL; /* what it holds is the GPU's */
    return 0;
}

void iterative_size(const struct recon_job *job, int n[3])
{
    for (int d = 0; d < 3; d++) {
        /* A field of view that is no whole number of voxels is rounded; 1e-3: as in matrix_choose(). */
        const int encoded = d < job->dim ? (int)ceil(job->n[d] / job->out_k[d] - 0.5) : 1;
        n[d] = encoded > job->out_n[d] ? encoded : job->out_n[d];
        if (recon_choice(job, RECON_METHOD) == RECON_METHOD_L1_WAVELET)
            n[d] = (n[d] + wavelet_multiple(n[d]) - 1) / wavelet_multiple(n[d]) * wavelet_multiple(n[d]);
    }
}

static int batch_of(const struct gridder *g)
{
    const size_t most = BATCH_PIXELS / g->pixels;
    return most < 1 ? 1 : most < (size_t)g->batch ? (int)most : g->batch;
}

bool iterative_bytes(const struct gridder *g, size_t *bytes)
{
    /* Images and maps of all coils; b, x, the image on the host and the solver's vectors; the coils that are worked off
     * together, each with a grid of twice the size; two spectra and a point spread function of that size. */
    const size_t batch = (size_t)batch_of(g), grid = (size_t)1 << g->job->dim;
    const size_t solver = (size_t)methods[recon_choice(g->job, RECON_METHOD)].vectors(g->job->dim);
    size_t vectors = 2 * (size_t)g->most_coils + 3 + solver + batch * (1 + grid) + 3 * grid;
    return size_mul(vectors, g->pixels, &vectors) && size_mul(vectors, sizeof(struct c32), bytes);
}

int iterative_create(struct iterative **out, struct gridder *g)
{
    struct recon_job *job = g->job;
    struct iterative *it = calloc(1, sizeof *it);
    if (!it)
        return err_no_memory("an iterative method");
    const size_t image = g->pixels * sizeof(struct c32), coils = (size_t)g->most_coils * image;
    *it = (struct iterative){.g = g, .job = job, .batch = batch_of(g)};
    int rc = dev_alloc(job->dev, coils, (void **)&it->images);
    if (rc == 0)
        rc = dev_alloc(job->dev, coils, (void **)&it->maps);
    if (rc == 0)
        rc = dev_alloc(job->dev, image, (void **)&it->b);
    if (rc == 0)
        rc = dev_alloc(job->dev, image, (void **)&it->x);
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
    normal_free(it->normal);
    normal_free(it->limit);
    dev_release(dev, it->images);
    dev_release(dev, it->maps);
    dev_release(dev, it->b);
    dev_release(dev, it->x);
    free(it->host);
    free(it);
}

/* ---- progress ---- */

/* `share` of this image is done. */
static int tell(struct iterative *it, double share, int64_t iteration, int64_t iterations)
{
    it->share = share;
    it->iteration = iteration;
    it->most = iterations;
    return recon_tell(it->job, RECON_STEP_SOLVE, it->base + it->span * share, iteration, iterations);
}

static int tell_maps(void *context, double done)
{
    return tell(context, done_gridding + (done_maps - done_gridding) * done, 0, 0);
}

static int tell_iteration(void *context, int done, int most)
{
    return tell(context, done_maps + (1 - done_maps) * done / most, done, most);
}

/* Between batches of coils and steps of the power method: whether to go on. */
static int ask(void *context)
{
    struct iterative *it = context;
    return tell(it, it->share, it->iteration, it->most);
}

static int ask_power(void *context, int done, int most)
{
    (void)done;
    (void)most;
    return ask(context);
}

/* ---- one image ---- */

/* All coils' images of the frame. */
static int grid_coils(struct iterative *it, const struct frame *frame)
{
    struct gridder *g = it->g;
    const double start = clock_seconds();
    int rc = 0;
    for (int first = 0; first < frame->coils && rc == 0; first += g->batch) {
        const int count = gridder_coils(g, frame, first);
        rc = recon_tell(it->job, RECON_STEP_GRIDDING,
                        it->base + it->span * (done_plan + (done_gridding - done_plan) * first / frame->coils),
                        g->coils_done + first, g->coils);
        if (rc == 0)
            rc = gridder_upload(g, frame, first, count, g->data[0]);
        if (rc == 0)
            rc = nufft_adjoint(g->plan, count, g->data[0], it->images + (size_t)first * g->pixels);
    }
    recon_report_stage(it->job, recon_steps[RECON_STEP_GRIDDING].name, clock_seconds() - start);
    return rc;
}

static int estimate_maps(struct iterative *it, const struct frame *frame)
{
    const double start = clock_seconds();
    const bool walsh = recon_choice(it->job, RECON_COILS) == RECON_COILS_ADAPTIVE;
    struct maps_params params = maps_defaults(walsh ? MAPS_WALSH : MAPS_ESPIRIT, frame->coils, it->g->n);
    double support = 0;
    params.progress = tell_maps;
    params.context = it;
    int rc = maps_estimate(it->job->dev, &params, it->images, it->maps, &support);
    it->support = support;
    recon_report_stage(it->job, "maps", clock_seconds() - start);
    return rc;
}

static int normal_one(void *of, const struct c32 *x, struct c32 *r)
{
    return normal_apply(of, 1, x, r);
}

/* Outside the part of k-space that the trajectory covers nothing was measured. What a method puts there, as the edges
 * that total variation makes, is its own invention: the image is limited to what was measured. */
static int make_limit(struct iterative *it, const struct nufft_params *params)
{
    struct recon_job *job = it->job;
    const struct band band = band_find(job->dim, it->g->planned->samples, gridder_k(it->g));
    bool all = band.shape == BAND_BOX;
    for (int d = 0; d < job->dim; d++)
        all = all && band.edge[d] > 0.49;
    normal_free(it->limit);
    it->limit = NULL;
    if (all)
        return 0;
    recon_report_decide(job, "k-space", band_name(&band),
                        "The trajectory covers |k| up to %.3g, %.3g, %.3g cycles per pixel (kx, ky, kz); the image is "
                        "limited to that, as nothing was measured outside.",
                        band.edge[0], band.edge[1], band.edge[2]);
    return normal_create_even(&it->limit, job->dev, params, band_kernel, &band);
}

/* The normal operator of the plan's trajectory, and its largest eigenvalue: of one coil, which that of all coils does
 * not exceed, as |S| <= 1. */
static int make_normal(struct iterative *it)
{
    struct gridder *g = it->g;
    const double start = clock_seconds();
    struct nufft_params params = {.dim = it->job->dim, .n = {g->n[0], g->n[1], g->n[2]}, .batch = it->batch};
    const struct solve_listener listener = {it, ask_power};
    if (it->normal && it->planned == g->planned)
        return 0;
    normal_free(it->normal);
    it->normal = NULL;
    it->planned = g->planned;
    int rc = normal_create_of(&it->normal, it->job->dev, &params, g->plan, gridder_k(g));
    const struct op op = {.of = it->normal, .domain = g->pixels, .range = g->pixels, .normal = normal_one};
    if (rc == 0)
        rc = power_largest(it->job->dev, &op, POWER_ITERATIONS, &listener, &it->largest);
    params.batch = 1;
    if (rc == 0)
        rc = make_limit(it, &params);
    recon_report_stage(it->job, "normal", clock_seconds() - start);
    return rc;
}

static int solve(struct iterative *it, const struct frame *frame)
{
    const struct param_values *values = it->job->request->values;
    const int method = (int)recon_choice(it->job, RECON_METHOD);
    const int64_t iterations = recon_choice(it->job, RECON_ITERATIONS);
    const double tolerance = values->value[RECON_STOP_TOLERANCE].real;
    const struct solve_stop stop = {
        .iterations = iterations > 0 ? (int)iterations : methods[method].iterations,
        .tolerance = tolerance >= 0 ? tolerance : methods[method].tolerance,
        .seconds = fmax(0, values->value[RECON_STOP_SECONDS].real),
    };
    const struct solve_listener listener = {it, tell_iteration};
    struct solve_result result = {0};
    struct sense sense;
    const double start = clock_seconds(), lambda = values->value[RECON_LAMBDA].real;
    it->lambda = lambda >= 0 ? lambda : methods[method].lambda;
    int rc = sense_open(&sense, it->job->dev, it->normal, it->g->pixels, frame->coils, it->batch, it->maps);
    sense.ask = ask;
    sense.context = it;
    const struct op op = sense_op(&sense);
    if (rc == 0)
        rc = dev_zero(it->job->dev, it->b, it->g->pixels * sizeof *it->b);
    if (rc == 0)
        rc = sense_combine(&sense, 0, frame->coils, it->images, it->b);
    if (rc == 0)
        rc = methods[method].solve(it, &op, &stop, &listener, &result);
    sense_close(&sense);
    if (rc == 0 && it->limit)
        rc = normal_apply(it->limit, 1, it->x, it->x);
    it->iterations += result.iterations;
    it->residual = fmax(it->residual, result.residual);
    it->ended[result.end]++;
    recon_report_stage(it->job, recon_steps[RECON_STEP_SOLVE].name, clock_seconds() - start);
    return rc;
}

/* A row of the images of the job in the image on the host, which may be larger. */
static const struct c32 *row_of(const struct iterative *it, int row)
{
    const int *n = it->g->n, *out = it->job->out_n;
    const size_t y = (size_t)(row % out[1] + n[1] / 2 - out[1] / 2);
    const size_t z = (size_t)(row / out[1] + n[2] / 2 - out[2] / 2);
    return it->host + (z * (size_t)n[1] + y) * (size_t)n[0] + (size_t)(n[0] / 2 - out[0] / 2);
}

/* The image's own field of view into the series. */
static int store(struct iterative *it, size_t f)
{
    const struct recon_job *job = it->job;
    const struct image_series *series = job->images;
    const size_t wide = (size_t)job->out_n[0];
    const int rows = job->out_n[1] * job->out_n[2];
    float *to = series->data + f * (size_t)rows * wide * (series->complex_valued ? 2 : 1);
    int rc = dev_download(job->dev, it->host, it->x, it->g->pixels * sizeof *it->host);
    for (int row = 0; row < rows && rc == 0; row++) {
        const struct c32 *from = row_of(it, row);
        if (series->complex_valued)
            memcpy(to, from, wide * sizeof *from);
        for (size_t x = 0; x < wide && !series->complex_valued; x++)
            to[x] = series->phases ? atan2f(from[x].im, from[x].re) : hypotf(from[x].re, from[x].im);
        to += wide * (series->complex_valued ? 2 : 1);
    }
    return rc;
}

/* The same of the maps, where they are a result. */
static int store_maps(struct iterative *it, size_t f, int coils)
{
    const struct recon_job *job = it->job;
    const size_t wide = (size_t)job->out_n[0];
    const int rows = job->out_n[1] * job->out_n[2];
    int rc = 0;
    for (int c = 0; c < coils && job->maps && rc == 0; c++) {
        struct c32 *to = (struct c32 *)job->maps->data + (f * job->maps->channels + (size_t)c) * (size_t)rows * wide;
        rc = dev_download(job->dev, it->host, it->maps + (size_t)c * it->g->pixels, it->g->pixels * sizeof *it->host);
        for (int row = 0; row < rows && rc == 0; row++)
            memcpy(to + (size_t)row * wide, row_of(it, row), wide * sizeof *to);
    }
    return rc;
}

int iterative_frame(struct iterative *it, size_t f)
{
    struct gridder *g = it->g;
    const struct frame *frame = &it->job->frames->frame[f];
    it->base = (double)g->coils_done / (double)g->coils;
    it->span = frame->coils / (double)g->coils;
    int rc = gridder_plan(g, f, it->base, it->span * done_plan);
    if (rc == 0)
        rc = grid_coils(it, frame);
    if (rc == 0)
        rc = estimate_maps(it, frame);
    if (rc == 0)
        rc = store_maps(it, f, frame->coils);
    if (rc == 0)
        rc = make_normal(it);
    if (rc == 0)
        rc = solve(it, frame);
    if (rc == 0)
        rc = store(it, f);
    g->coils_done += frame->coils;
    return rc;
}

/* The iterations and how they ended; the parameters that were "auto". */
void iterative_report(struct iterative *it)
{
    struct recon_job *job = it->job;
    const int method = (int)recon_choice(job, RECON_METHOD);
    const size_t images = job->frames->count;
    char text[64];
    recon_report_number(job, "iterations", (double)it->iterations);
    recon_report_number(job, "iterations_residual", it->residual);
    recon_report_number(job, "largest_eigenvalue", it->largest);
    snprintf(text, sizeof text, "%" PRId64, it->iterations);
    recon_report_decide(job, "iterations", text,
                        "Of %zu image%s: %zu reached stop_tolerance, %zu the maximum of iterations, %zu stop_seconds; "
                        "%zu held nothing but zeros.",
                        images, images == 1 ? "" : "s", it->ended[SOLVE_TOLERANCE], it->ended[SOLVE_ITERATIONS],
                        it->ended[SOLVE_SECONDS], it->ended[SOLVE_ZERO]);
    snprintf(text, sizeof text, "%g", it->lambda);
    recon_report_decide(job, "lambda", text, "Relative to %s; %s.", methods[method].lambda_of,
                        job->request->values->value[RECON_LAMBDA].real >= 0
                            ? "as given"
                            : "the method's default, which suits phantoms and scans of 4 to 16 times fewer spokes than "
                              "full sampling asks for");
    const bool walsh = recon_choice(job, RECON_COILS) == RECON_COILS_ADAPTIVE;
    recon_report_decide(
        job, "coils", walsh ? "adaptive" : "sense",
        "method=%s combines the coils by maps, estimated by %s from the centre of k-space of the coils' "
        "own images; they cover %.0f %% of the image, and it is 0 elsewhere.",
        job->request->values->value[RECON_METHOD].text, walsh ? "Walsh's method" : "ESPIRiT", 100 * it->support);
    if (it->support == 0 && it->ended[SOLVE_ZERO] < images)
        recon_report_warn(job, "No coil maps could be estimated, and an image is 0. method=adjoint needs none.");
}
