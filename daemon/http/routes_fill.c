/* Load of the service: queue, disk, kept files of ended jobs. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"
#include "daemon/queue/jobs.h"

int service_now(struct service *service, struct metrics_now *now)
{
    const struct options *options = service->core.options;
    struct spool *spool = service->core.spool;
    int64_t counts[JOB_STATES];
    *now = (struct metrics_now){.capacity = options->queue_limit, .spool_used = spool->used, .found = spool->found};
    int rc = store_counts(service->core.store, counts, &now->oldest);
    if (!rc)
        rc = spool_free_bytes(spool, &now->spool_free);
    if (!rc)
        rc = spool_disk(spool, &now->disk_bytes, &now->disk_free);
    if (rc)
        return rc;
    if (spool->limit > 0 && spool->limit - now->spool_used < now->spool_free)
        now->spool_free = spool->limit - now->spool_used;
    store_waiting(service->core.store, now->waiting);
    store_kept(service->core.store, &now->kept);
    for (int i = 0; i < JOB_STATES; i++)
        now->ended[i] = job_state_is_final((enum job_state)i) ? counts[i] : 0;
    now->running = counts[JOB_RUNNING] + counts[JOB_CANCELING];
    now->sessions = sessions_count(service->sessions, clock_seconds());
    now->streams = readers_count(service->event_readers);
    now->held = scheduler_is_held(service->scheduler);
    now->keep_bytes = jobs_keep_bytes(options, spool);
    now->keep_seconds = options->keep_jobs;
    if (service->tls)
        now->certificate_end = tls_end(service->tls);
    return 0;
}

static json_t *limit_pack(int64_t limit)
{
    return limit > 0 ? json_integer(limit) : json_null();
}

json_t *service_fill_pack(struct service *service)
{
    struct metrics_now now;
    char oldest[CLOCK_TEXT];
    if (service_now(service, &now))
        return json_object(); /* /readyz explains why */
    json_t *waiting = json_object(), *ended = json_object();
    int64_t jobs = 0;
    for (int i = 0; i < PRIORITIES; i++)
        json_object_set_new(waiting, job_priority_name((enum job_priority)i), json_integer(now.waiting[i]));
    for (int i = 0; i < JOB_STATES; i++)
        if (job_state_is_final((enum job_state)i)) {
            json_object_set_new(ended, job_state_name((enum job_state)i), json_integer(now.ended[i]));
            jobs += now.ended[i];
        }
    if (now.oldest)
        clock_print(now.oldest, oldest);
    return json_pack("{s:{s:o, s:I, s:I, s:b, s:o}, s:{s:I, s:I, s:I, s:I}, s:{s:I, s:o, s:I, s:I, s:I, s:o, s:o}}",
                     "queue", "waiting", waiting, "running", (json_int_t)now.running, "limit", (json_int_t)now.capacity,
                     "held", now.held, "oldest", now.oldest ? json_string(oldest) : json_null(), "disk", "bytes",
                     (json_int_t)now.disk_bytes, "free_bytes", (json_int_t)now.disk_free, "uploads_bytes",
                     (json_int_t)now.spool_used, "uploads_free_bytes", (json_int_t)now.spool_free, "kept", "jobs",
                     (json_int_t)jobs, "states", ended, "results_bytes", (json_int_t)now.kept.result_bytes, "scans",
                     (json_int_t)now.kept.scans, "scans_bytes", (json_int_t)now.kept.scan_bytes, "limit_bytes",
                     limit_pack(now.keep_bytes), "limit_seconds", limit_pack(now.keep_seconds));
}
