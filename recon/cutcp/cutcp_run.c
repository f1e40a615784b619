/* Runs one job of kind "cutcp". */
#include "recon/cutcp/cutcp_job.h"

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "recon/kind_bins.h"

#include <stdlib.h>

struct cutcp_input {
    struct particles particles;
    double seconds;
};

static int cutcp_read(void **out, const struct job_request *request, const struct job_listener *listener)
{
    const struct particles_wanted wanted = {
        .needed = 1U << PARTICLE_POSITION | 1U << PARTICLE_CHARGE,
        .charges = (uint32_t)request->values->value[CUTCP_CHARGES].integer,
        .order = {PARTICLE_CHARGE, PARTICLE_RADIUS},
    };
    const struct decode_limits limits = job_decode_limits(request);
    struct cutcp_input *input = calloc(1, sizeof *input);
    if (!input)
        return err_no_memory("reading particles");
    const double start = clock_seconds();
    int rc = particles_decode(&input->particles, request->decoder, request->input, particles_inputs, &wanted, &limits,
                              job_decode_canceled, (void *)(uintptr_t)listener);
    input->seconds = clock_seconds() - start;
    if (rc == 0)
        *out = input;
    else
        free(input);
    return rc;
}

static void cutcp_input_free(void *of)
{
    struct cutcp_input *input = of;
    if (!input)
        return;
    particles_close(&input->particles);
    free(input);
}

static int steps_run(struct cutcp_job *job, const struct cutcp_input *input)
{
    kind_job_stage(&job->job, CUTCP_STEP_READ, input->seconds);
    if (job->particles->header->ignored)
        kind_job_number(&job->job, "not_read", (double)job->particles->header->ignored);
    const double start = clock_seconds();
    int rc = range_available(job->job.dev) ? 0 : kind_job_use_cpu(&job->job, "sums of limited range");
    if (rc == 0)
        rc = cutcp_lattice(job);
    kind_bins_report(&job->job, CUTCP_BIN_DEPTH, CUTCP_OVERFLOW);
    if (rc == 0)
        rc = cutcp_potential(job);
    kind_job_stage(&job->job, CUTCP_STEP_POTENTIAL, clock_seconds() - start);
    return rc;
}

static int cutcp_run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                     const struct job_listener *listener, const void *of)
{
    const struct cutcp_input *input = of;
    struct cutcp_job job = {.particles = &input->particles};
    int rc = kind_job_begin(&job.job, dev, request, listener);
    if (rc != 0)
        return rc;
    rc = kind_job_end(&job.job, out, steps_run(&job, input));
    if (rc == 0)
        out->result[out->results++] =
            (struct job_result){cutcp_kind.results[0].name, job.volume, volume_result_write, volume_result_free};
    else
        volume_free(job.volume);
    return rc;
}

const struct kind_run cutcp_kind_run = {
    .kind = &cutcp_kind,
    .read = cutcp_read,
    .input_free = cutcp_input_free,
    .run = cutcp_run,
};
