#include "daemon/notify.h"

#include "daemon/base/clock.h"

#include <systemd/sd-daemon.h>

#define STATUS_SECONDS 2.0
#define STOP_SECONDS   30 /* for what follows the drain-time */

void notify_init(struct notify *notify, struct service *service)
{
    uint64_t microseconds = 0;
    *notify = (struct notify){.service = service};
    if (sd_watchdog_enabled(0, &microseconds) > 0)
        notify->interval = 1e-6 * (double)microseconds / 4;
}

/* Counts of warm workers, of those that run a job, and of workers that failed to start. */
static int workers_count(struct service *service, int *warm, int *busy, int *failed)
{
    struct worker_status status[WORKERS_MAX];
    int count = scheduler_status(service->scheduler, status);
    *warm = *busy = *failed = 0;
    for (int i = 0; i < count; i++) {
        *warm += worker_is_ready(&status[i]);
        *busy += status[i].state == WORKER_BUSY;
        *failed += status[i].state < WORKER_IDLE && *status[i].note;
    }
    return count;
}

static void tell_status(struct notify *notify, int count, int warm, int busy)
{
    int64_t counts[JOB_STATES], oldest;
    if (store_counts(notify->service->core.store, counts, &oldest) == 0)
        sd_notifyf(0, "STATUS=%d of %d workers ready, %d running, %lld waiting", warm, count, busy,
                   (long long)counts[JOB_QUEUED]);
}

void notify_tick(struct notify *notify)
{
    double now = clock_seconds();
    if (!notify->ready || now >= notify->status_due) {
        int warm, busy, failed, count = workers_count(notify->service, &warm, &busy, &failed);
        /* Ready: the queue is recovered and a worker is warm, or all workers have failed to start. In that case scans
         * are still accepted, and /readyz has the reason; otherwise the manager would time out and restart the service
         * again and again, breaking all uploads. */
        if (!notify->ready && (warm > 0 || failed == count)) {
            notify->ready = true;
            sd_notify(0, "READY=1");
        }
        if (now >= notify->status_due) {
            tell_status(notify, count, warm, busy);
            notify->status_due = now + STATUS_SECONDS;
        }
    }
    if (notify->interval > 0 && now >= notify->asked + notify->interval) {
        if (scheduler_turned(notify->service->scheduler) < notify->asked)
            return; /* it has not completed a turn since */
        sd_notify(0, "WATCHDOG=1");
        notify->asked = now;
        scheduler_wake(notify->service->scheduler);
    }
}

void notify_reloading(const struct notify *notify)
{
    (void)notify;
    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(1e6 * clock_seconds()));
}

void notify_reloaded(const struct notify *notify)
{
    if (notify->ready)
        sd_notify(0, "READY=1");
}

void notify_stopping(const struct notify *notify)
{
    /* A drain-time longer than TimeoutStopSec needs more. */
    sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld",
               (long long)(notify->service->core.options->drain_time + STOP_SECONDS) * 1000000);
}
