#include "recon/kind_job.h"

#include "gridding/base/clock.h"
#include "gridding/base/dev.h"
#include "gridding/base/err.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

int kind_job_begin(struct kind_job *job, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener)
{
    *job = (struct kind_job){.dev = dev, .request = request, .listener = listener};
    job->begun = request->begun > 0 ? request->begun : clock_seconds();
    job->report = json_pack("{s:{}, s:[], s:[], s:s}", "stages", "decisions", "warnings", "device", dev_name(dev));
    return job->report ? 0 : err_no_memory("the job's report");
}

int kind_job_end(struct kind_job *job, struct job_outcome *out, int rc)
{
    dev_free(job->beside);
    if (rc == 0) {
        kind_job_number(job, "seconds", clock_seconds() - job->begun);
        *out = (struct job_outcome){.most_bytes = job->most_bytes, .report = job->report};
    } else {
        json_decref(job->report);
    }
    return rc;
}

int kind_job_use_cpu(struct kind_job *job, const char *what)
{
    if (!dev_is_gpu(job->dev))
        return 0;
    int rc = dev_create(&job->beside, DEV_CPU, 0, 0);
    if (rc != 0)
        return rc;
    job->dev = job->beside;
    json_object_set_new(job->report, "device", json_string(dev_name(job->dev)));
    kind_job_decide(job, "device", "cpu", "The GPU has no %s yet.", what);
    return 0;
}

int kind_job_tell(const struct kind_job *job, int step, double fraction, int64_t done, int64_t most)
{
    const struct kind_step *steps = job->request->kind->steps;
    const struct job_listener *listener = job->listener;
    double before = 0, share = 0;
    for (int i = 0; i <= step; i++) {
        before += share;
        share = job->shares ? job->shares[i] : steps[i].share;
    }
    const struct step_progress now = {step, before + share * fmin(1, fmax(0, fraction)), done, most};
    if (listener && listener->progress && listener->progress(listener->context, &now) != 0)
        return err_set(ERR_CANCELED, "The job was canceled while it was running.");
    return 0;
}

/* ---- the report ---- */

void kind_job_stage(struct kind_job *job, int step, double seconds)
{
    json_object_set_new(json_object_get(job->report, "stages"), job->request->kind->steps[step].name,
                        json_real(seconds));
}

void kind_job_number(struct kind_job *job, const char *name, double value)
{
    const bool whole = value >= -1e15 && value <= 1e15 && value == (double)(int64_t)value;
    json_object_set_new(job->report, name, whole ? json_integer((json_int_t)value) : json_real(value));
}

void kind_job_decide(struct kind_job *job, const char *what, const char *value, const char *reason, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, reason);
    vsnprintf(text, sizeof text, reason, arguments);
    va_end(arguments);
    json_array_append_new(json_object_get(job->report, "decisions"),
                          json_pack("{s:s, s:s, s:s}", "what", what, "value", value, "reason", text));
}

void kind_job_warn(struct kind_job *job, const char *format, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_array_append_new(json_object_get(job->report, "warnings"), json_string(text));
}

/* ---- promises ---- */

static bool files_most(const struct job_room *room, int result, bool (*most)(const void *of, int format, size_t *bytes),
                       const void *of, size_t *sum)
{
    size_t bytes;
    if (!room->count)
        return most(of, 0, &bytes) && size_add(*sum, bytes, sum);
    for (int i = 0; i < room->count; i++)
        if (room->files[i].result == result &&
            (!most(of, room->files[i].format, &bytes) || !size_add(*sum, bytes, sum)))
            return false;
    return true;
}

int kind_job_promise(struct kind_job *job, int result, bool (*most)(const void *of, int format, size_t *bytes),
                     const void *of, const char *what, const char *advice)
{
    const struct job_room *room = &job->request->room;
    size_t bytes = job->most_bytes;
    const bool counted = files_most(room, result, most, of, &bytes) && bytes <= INT64_MAX;
    if (!counted)
        bytes = INT64_MAX;
    const bool for_good = !counted || (room->most && bytes > room->most);
    job->most_bytes = bytes;
    kind_job_number(job, "result_bytes", (double)bytes);
    if (!for_good && (!room->free || bytes <= room->free))
        return 0;
    const uint64_t limit = for_good ? room->most : room->free;
    return err_set_bytes(for_good ? ERR_RESULT_TOO_LARGE : ERR_SPOOL_FULL, (int64_t)bytes, (int64_t)limit,
                         "The result would be %s, of up to %.1f MB; %s %.1f MB (%s). %s", what, 1e-6 * (double)bytes,
                         for_good ? "a job's results may take" : "there is room for", 1e-6 * (double)limit,
                         for_good && room->most_of ? room->most_of : "the disk's free space", advice);
}

int kind_job_memory(struct kind_job *job, size_t bytes, const char *what, const char *advice)
{
    size_t available, total;
    int rc = dev_memory(job->dev, &available, &total);
    if (rc != 0)
        return rc;
    kind_job_number(job, "memory_bytes", (double)bytes);
    if (bytes <= available)
        return 0;
    return err_set_bytes(dev_is_gpu(job->dev) ? ERR_GPU_OOM : ERR_NO_MEMORY, (int64_t)bytes, (int64_t)available,
                         "%s needs %.1f MB of memory, and %.1f MB are free. %s", what, 1e-6 * (double)bytes,
                         1e-6 * (double)available, advice);
}
