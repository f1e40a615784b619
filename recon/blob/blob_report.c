/* What a job says and promises. */
#include "recon/blob/blob_job.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

bool blob_wants(const struct blob_job *job, enum blob_result result)
{
    return kind_results_wanted(&blob_kind, job->request->values->value[BLOB_RESULTS_WANTED].text) >> result & 1;
}

int blob_tell(const struct blob_job *job, enum blob_step step, double done, int64_t frame, int64_t frames)
{
    const struct job_listener *listener = job->listener;
    struct step_progress now = {.step = (int)step, .iteration = frame, .iterations = frames};
    for (int before = 0; before < (int)step; before++)
        now.fraction += blob_kind.steps[before].share;
    now.fraction += blob_kind.steps[step].share * fmin(1, fmax(0, done));
    if (listener && listener->progress && listener->progress(listener->context, &now) != 0)
        return err_set(ERR_CANCELED, "The job was canceled while it was running.");
    return 0;
}

void blob_decide(struct blob_job *job, const char *what, const char *value, const char *reason, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, reason);
    vsnprintf(text, sizeof text, reason, arguments);
    va_end(arguments);
    json_array_append_new(json_object_get(job->report, "decisions"),
                          json_pack("{s:s, s:s, s:s}", "what", what, "value", value, "reason", text));
}

void blob_warn(struct blob_job *job, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_array_append_new(json_object_get(job->report, "warnings"), json_string(text));
}

int blob_promise(struct blob_job *job, uint64_t bytes, const char *what)
{
    const struct job_room *room = &job->request->room;
    job->most_bytes = bytes > INT64_MAX - job->most_bytes ? INT64_MAX : job->most_bytes + bytes;
    json_object_set_new(job->report, "result_bytes", json_integer((json_int_t)job->most_bytes));
    const bool for_good = room->most && job->most_bytes > room->most;
    if (!for_good && (!room->free || job->most_bytes <= room->free))
        return 0;
    const uint64_t most = for_good ? room->most : room->free;
    return err_set_bytes(for_good ? ERR_RESULT_TOO_LARGE : ERR_SPOOL_FULL, (int64_t)job->most_bytes, (int64_t)most,
                         "The result would be %s, which takes up to %.1f MB with its other files; %s %.1f MB (%s). Ask "
                         "for a larger spacing, or for fewer results.",
                         what, 1e-6 * (double)job->most_bytes,
                         for_good ? "a job's results may take" : "there is room for", 1e-6 * (double)most,
                         for_good && room->most_of ? room->most_of : "the disk's free space");
}
