#include "recon/mri/recon_memory.h"

#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"
#include "recon/mri/maps.h"
#include "recon/mri/recon_iterative.h"

/* Bytes; SIZE_MAX: more than can be counted. */
struct need {
    size_t host, device, other; /* `other`: on each of the other devices that share the work */
};

static void add(size_t *sum, size_t count, size_t each)
{
    size_t bytes;
    if (!size_mul(count, each, &bytes) || !size_add(*sum, bytes, sum))
        *sum = SIZE_MAX;
}

static bool estimates_maps(const struct recon_job *job)
{
    return (recon_iterates(job) || recon_maps(job)) && !recon_maps_given(job);
}

/* Coil maps: the work space of their estimation, and for a GPU whose maps the host estimates a copy of the images. */
static void maps_add(const struct gridder *g, size_t all_coils, struct need *need)
{
    const struct recon_job *job = g->job;
    const bool walsh = recon_choice(job, RECON_COILS) == RECON_COILS_ADAPTIVE;
    const struct maps_params params = maps_defaults(walsh ? MAPS_WALSH : MAPS_ESPIRIT, g->most_coils, g->n);
    if (!estimates_maps(job))
        return;
    if (maps_on_device(job->dev, &params)) {
        add(&need->device, maps_device_bytes(job->dev, &params), 1);
        return;
    }
    add(&need->host, maps_bytes(&params, dev_threads(job->dev)), 1);
    add(&need->host, dev_is_gpu(job->dev) ? all_coils : 0, sizeof(struct c32));
}

/* What is gridded: results, trajectory, weights and samples on the host; samples of a batch, and the coils' images
 * where maps combine them, on the device. */
static void gridding_add(const struct gridder *g, size_t channels, size_t all_coils, struct need *need)
{
    const struct recon_job *job = g->job;
    const size_t value = recon_complex_out(job) ? sizeof(struct c32) : sizeof(float);
    const size_t maps = recon_wants(job, RECON_RESULT_MAPS) ? (size_t)g->most_coils * sizeof(struct c32) : 0;
    const size_t batch = (size_t)g->batch * g->most_samples;
    size_t result = 0, images = 0;
    add(&result, (size_t)job->out_n[0] * (size_t)job->out_n[1] * (size_t)job->out_n[2], channels * value + maps);
    add(&images, result, job->frames->count);
    add(&need->host, images, 1);
    add(&need->host, g->most_samples, 2 * (size_t)job->dim * sizeof(float) + sizeof(float)); /* k twice, weights */
    add(&need->host, gridder_staging(g), 1);
    if (dev_is_gpu(job->dev))
        add(&need->device, batch, (g->batch < g->most_coils ? 2 : 1) * sizeof(struct c32));
    if (!recon_iterates(job) && recon_maps(job)) {
        add(&need->device, all_coils, 2 * sizeof(struct c32));
        add(&need->host, dev_is_gpu(job->dev) ? 0 : all_coils, sizeof(struct c32));
    }
    if (job->dim == 3) { /* of a stack that is transformed along kz (stack.h): its data once more, a coil of it */
        add(&need->device, batch + g->pixels, sizeof(struct c32));
        add(&need->host, g->most_samples, sizeof(struct c32));
    }
}

static void need_find(const struct gridder *g, size_t channels, struct need *need)
{
    const struct recon_job *job = g->job;
    const size_t grid = (size_t)1 << job->dim;
    size_t all_coils = 0, bytes;
    *need = (struct need){.host = 0};
    add(&all_coils, g->pixels, (size_t)g->most_coils);
    gridding_add(g, channels, all_coils, need);
    maps_add(g, all_coils, need);
    if (recon_iterates(job)) {
        add(&need->device, iterative_bytes(g, &bytes, &need->other) ? bytes : SIZE_MAX, 1);
        add(&need->host, g->pixels, sizeof(struct c32)); /* the image */
        if (g->keeps)
            add(&need->host, g->kernels, g->most_samples * (size_t)job->dim * sizeof(float));
        if (dev_is_gpu(job->dev)) /* a point spread function, made on the host */
            add(&need->host, g->pixels * (grid + 1) + g->most_samples, sizeof(struct c32));
    }
    if (g->field)
        add(&need->device, field_bytes(g->field, g->pixels, g->most_samples, g->batch, &bytes) ? bytes : SIZE_MAX, 1);
}

static int too_large(const struct gridder *g, bool gpu, size_t required, size_t available)
{
    const struct recon_job *job = g->job;
    const char *advice = recon_series(job)
                             ? "Ask for fewer images at a time (window_frames), fewer coils (virtual_coils)"
                         : recon_iterates(job) ? "Ask for a smaller matrix, fewer coils (virtual_coils)"
                                               : "Ask for a smaller matrix or fewer images";
    if (required > SIZE_MAX / 2)
        required = SIZE_MAX / 2;
    return err_set_bytes(gpu ? ERR_GPU_OOM : ERR_NO_MEMORY, (int64_t)required, (int64_t)available,
                         "The images need %.1f MB of %smemory, and %.1f MB are available. %s%s, or run the job when "
                         "less is running.",
                         (double)required / 1e6, gpu ? "the GPU's " : "", (double)available / 1e6, advice,
                         gpu ? " or a worker on the CPU" : "");
}

/* Whether the GPU has room, for fewer coils at a time if need be. */
static int device_check(struct gridder *g, size_t channels, struct need *need)
{
    struct recon_job *job = g->job;
    size_t available, total;
    int rc = dev_memory(job->dev, &available, &total);
    if (rc == 0)
        available += recon_early_bytes(job); /* counted in the need */
    while (rc == 0 && need->device > available && recon_iterates(job) && iterative_halve(g))
        need_find(g, channels, need);
    if (rc == 0 && need->device > available)
        return too_large(g, true, need->device, available);
    for (int p = 1; p < dev_parts(job->dev) && rc == 0; p++) {
        rc = dev_memory(dev_part(job->dev, p), &available, &total);
        g->divided = g->divided && need->other <= available;
    }
    return rc;
}

int recon_memory_check(struct gridder *g, size_t channels)
{
    struct recon_job *job = g->job;
    const bool gpu = dev_is_gpu(job->dev);
    size_t available = job->host_memory ? job->host_memory : host_memory_available();
    struct need need;
    if (recon_iterates(job))
        iterative_whole(g);
    need_find(g, channels, &need);
    int rc = gpu ? device_check(g, channels, &need) : 0;
    size_t host = need.host, all = need.host;
    add(&all, need.device, 1);
    if (!gpu)
        host = all;
    if (host > available && job->host_memory) /* it may have become more since */
        available = host_memory_available();
    if (rc == 0 && host > available)
        rc = too_large(g, false, host, available);
    if (rc == 0) {
        recon_report_number(job, "memory_bytes", (double)all);
        if (gpu)
            recon_report_number(job, "device_memory_bytes", (double)need.device);
    }
    return rc;
}
