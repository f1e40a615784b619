/* Runs one job of kind "blob". */
#include "recon/blob/blob_job.h"

#include "gridding/base/clock.h"
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"

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

static void stage_report(struct blob_job *job, enum blob_step step, double seconds)
{
    json_object_set_new(json_object_get(job->report, "stages"), blob_kind.steps[step].name, json_real(seconds));
}

static int steps_run(struct blob_job *job)
{
    const struct param_values *values = job->request->values;
    job->law = (struct blob_law){.blobbiness = values->value[BLOB_BLOBBINESS].real,
                                 .eps = values->value[BLOB_EPS].real,
                                 .truncation = (enum blob_truncation)values->value[BLOB_TRUNCATION].integer};
    int rc = blob_tell(job, BLOB_STEP_READ, 1, 0, 0);
    if (rc == 0)
        rc = blob_law_make(&job->law);
    double start = clock_seconds();
    if (rc == 0)
        rc = blob_points_choose(job);
    json_object_set_new(job->report, "points", json_integer((json_int_t)job->points));
    json_object_set_new(job->report, "frames", json_integer((json_int_t)job->frames));
    if (rc == 0)
        rc = blob_density(job);
    stage_report(job, BLOB_STEP_DENSITY, clock_seconds() - start);
    start = clock_seconds();
    if (rc == 0)
        rc = blob_surface(job);
    stage_report(job, BLOB_STEP_SURFACE, clock_seconds() - start);
    return rc;
}

/* Hand on what was asked for, and free the rest. */
static void job_end(struct blob_job *job, struct job_outcome *out, int rc)
{
    if (rc == 0) {
        *out = (struct job_outcome){.most_bytes = job->most_bytes, .report = job->report};
        if (blob_wants(job, BLOB_VOLUME)) {
            out->result[out->results++] = (struct job_result){blob_kind.results[BLOB_VOLUME].name, job->volume,
                                                              volume_result_write, volume_result_free};
            job->volume = NULL;
        }
        if (job->mesh)
            out->result[out->results++] =
                (struct job_result){blob_kind.results[BLOB_MESH].name, job->mesh, mesh_result_write, mesh_result_free};
    } else {
        mesh_free(job->mesh);
        json_decref(job->report);
    }
    volume_free(job->volume);
    free(job->at);
    free(job->radius);
}

/* The device that sums: the job's own, or a CPU beside a GPU, which has no such sums. */
static int device_choose(struct blob_job *job, struct dev *dev, struct dev **beside)
{
    job->dev = dev;
    if (!dev_is_gpu(dev))
        return 0;
    const int rc = dev_create(beside, DEV_CPU, 0, 0);
    if (rc == 0) {
        job->dev = *beside;
        blob_decide(job, "device", "cpu", "Densities are summed on the CPU; the GPU has no such sums yet.");
    }
    return rc;
}

static int run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
               const struct job_listener *listener, const void *of)
{
    const struct blob_input *input = of;
    const double begun = request->begun > 0 ? request->begun : clock_seconds();
    struct blob_job job = {.request = request, .listener = listener, .particles = &input->particles};
    struct dev *beside = NULL;
    job.report = json_pack("{s:{}, s:[], s:[]}", "stages", "decisions", "warnings");
    if (!job.report)
        return err_no_memory("the job's report");
    stage_report(&job, BLOB_STEP_READ, input->seconds);
    int rc = device_choose(&job, dev, &beside);
    if (rc == 0) {
        json_object_set_new(job.report, "device", json_string(dev_name(job.dev)));
        rc = steps_run(&job);
    }
    dev_free(beside);
    json_object_set_new(job.report, "seconds", json_real(clock_seconds() - begun));
    job_end(&job, out, rc);
    return rc;
}

const struct kind_run blob_kind_run = {.kind = &blob_kind, .read = input_read, .input_free = input_free, .run = run};
