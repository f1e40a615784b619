/* Runs one job of kind "blob". */
#include "recon/blob/blob_job.h"

#include "gridding/base/clock.h"
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "recon/kind_bins.h"

#include <stdlib.h>

/* ---- read ---- */

static int input_read(void **out, const struct job_request *request, const struct job_listener *listener)
{
    const struct decode_limits limits = job_decode_limits(request);
    const struct particles_wanted wanted = {.needed = 0, .order = {PARTICLE_CHARGE, PARTICLE_RADIUS}};
    struct blob_input *input = calloc(1, sizeof *input);
    if (!input)
        return err_no_memory("points");
    const double start = clock_seconds();
    const int rc = particles_decode(&input->particles, request->decoder, request->input, particles_inputs, &wanted,
                                    &limits, job_decode_canceled, (void *)(uintptr_t)listener);
    input->seconds = clock_seconds() - start;
    if (rc == 0)
        *out = input;
    else
        free(input);
    return rc;
}

static void input_free(void *of)
{
    struct blob_input *input = of;
    if (!input)
        return;
    particles_close(&input->particles);
    free(input);
}

/* ---- run ---- */

/* The step "density". */
static int density(struct blob_job *job)
{
    const double start = clock_seconds();
    int rc = range_available(job->job.dev) ? 0 : kind_job_use_cpu(&job->job, "sums of limited range");
    if (rc == 0)
        rc = blob_law_make(&job->law);
    if (rc == 0)
        rc = blob_points_choose(job);
    kind_job_number(&job->job, "points", (double)job->points);
    kind_job_number(&job->job, "frames", (double)job->frames);
    kind_bins_report(&job->job, BLOB_BIN_DEPTH, BLOB_OVERFLOW);
    if (rc == 0)
        rc = blob_density(job);
    kind_job_stage(&job->job, BLOB_STEP_DENSITY, clock_seconds() - start);
    return rc;
}

/* Without a surface, the density takes its share of the job, too. */
static void shares_set(struct blob_job *job)
{
    for (int i = 0; i < BLOB_STEPS; i++)
        job->shares[i] = blob_kind.steps[i].share;
    if (!blob_wants(job, BLOB_MESH)) {
        job->shares[BLOB_STEP_DENSITY] += job->shares[BLOB_STEP_SURFACE];
        job->shares[BLOB_STEP_SURFACE] = 0;
    }
    job->job.shares = job->shares;
}

static int steps_run(struct blob_job *job, double read_seconds)
{
    kind_job_stage(&job->job, BLOB_STEP_READ, read_seconds);
    if (job->particles->header->ignored)
        kind_job_number(&job->job, "not_read", (double)job->particles->header->ignored);
    shares_set(job);
    int rc = kind_job_tell(&job->job, BLOB_STEP_READ, 1, 0, 0);
    if (rc == 0)
        rc = density(job);
    if (rc != 0 || !blob_wants(job, BLOB_MESH))
        return rc;
    const double start = clock_seconds();
    rc = blob_surface(job);
    kind_job_stage(&job->job, BLOB_STEP_SURFACE, clock_seconds() - start);
    return rc;
}

/* Move the requested results to the outcome. */
static void results_give(struct blob_job *job, struct job_outcome *out)
{
    if (blob_wants(job, BLOB_VOLUME)) {
        out->result[out->results++] = (struct job_result){blob_kind.results[BLOB_VOLUME].name, job->volume,
                                                          volume_result_write, volume_result_free};
        job->volume = NULL;
    }
    if (job->mesh) {
        out->result[out->results++] =
            (struct job_result){blob_kind.results[BLOB_MESH].name, job->mesh, mesh_result_write, mesh_result_free};
        job->mesh = NULL;
    }
}

static int run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
               const struct job_listener *listener, const void *of)
{
    const struct blob_input *input = of;
    const struct param_values *values = request->values;
    struct blob_job job = {
        .particles = &input->particles,
        .law = {.blobbiness = values->value[BLOB_BLOBBINESS].real,
                .eps = values->value[BLOB_EPS].real,
                .truncation = (enum blob_truncation)values->value[BLOB_TRUNCATION].integer,
                .tolerance = values->value[BLOB_TOLERANCE].real},
    };
    int rc = kind_job_begin(&job.job, dev, request, listener);
    if (rc != 0)
        return rc;
    rc = kind_job_end(&job.job, out, steps_run(&job, input->seconds));
    if (rc == 0)
        results_give(&job, out);
    mesh_free(job.mesh);
    volume_free(job.volume);
    free(job.at);
    free(job.radius);
    return rc;
}

const struct kind_run blob_kind_run = {.kind = &blob_kind, .read = input_read, .input_free = input_free, .run = run};
