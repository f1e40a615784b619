#include "daemon/queue/housekeeper.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/queue/jobs.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    LOOK_SECONDS = 1,
    TOGETHER = 64, /* jobs read from the store at a time */
    FOUND_SECONDS = 3600,
};

struct housekeeper {
    struct core core;
    struct scheduler *scheduler;
    pthread_t thread;
    int stop;      /* eventfd */
    bool troubled; /* the last pass failed, and the log says so */
    double next;   /* clock_seconds() of the next pass over found-TIME folders */
};

/* ---- deadlines ---- */

static int expire(struct housekeeper *housekeeper)
{
    const struct core *core = &housekeeper->core;
    struct job jobs[TOGETHER];
    int count = 0, rc;
    do {
        rc = store_expire(core->store, jobs, TOGETHER, &count);
        for (int i = 0; i < count; i++) {
            const struct log_about about = {jobs[i].id, jobs[i].client, ERR_DEADLINE};
            log_line_about(core->log, LOG_LEVEL_INFO, &about, "failed: its deadline passed before it began");
            if (core->options->keep_scans == KEEP_NONE)
                spool_remove(core->spool, jobs[i].id);
            spool_checkpoint_remove(core->spool, jobs[i].id);
            metrics_failed(core->metrics, jobs[i].kind, ERR_DEADLINE, 0);
            waiters_wake(core->waiters, jobs[i].id);
            job_clear(&jobs[i]);
        }
    } while (!rc && count == TOGETHER);
    return rc;
}

/* ---- ended jobs ---- */

/* No client's results make room for those of a client that keeps more. */
static int make_room(const struct core *core, int64_t most, int *removed)
{
    char id[1][JOB_ID];
    struct kept_first first = {.id = "-"};
    struct kept kept;
    int rc = 0;
    for (store_kept(core->store, &kept); !rc && *first.id && kept.scan_bytes + kept.result_bytes > most;
         store_kept(core->store, &kept)) {
        rc = store_kept_first(core->store, &first);
        if (rc || !*first.id)
            continue;
        memcpy(id[0], first.id, sizeof id[0]);
        const int before = *removed;
        rc = jobs_remove(core, id, 1, removed);
        if (*removed > before)
            log_line_about(core->log, LOG_LEVEL_INFO, &(struct log_about){first.id, first.client, 0},
                           "removed for space (option keep-bytes): client %s keeps most, %.1f MB", first.client,
                           1e-6 * (double)first.kept);
    }
    return rc;
}

/* Bytes of kept scans to remove: they may use half of the space for uploads, and an upload refused for lack of space
 * finds it at the next attempt. */
static int64_t scans_excess(struct spool *spool, int64_t kept)
{
    int64_t lacked = spool_lacked(spool), free = 0;
    if (spool_free_bytes(spool, &free) != 0)
        return 0;
    int64_t all = spool->limit > 0 ? spool->limit : spool->used + (free > 0 ? free : 0);
    int64_t excess = kept > all / 2 ? kept - all / 2 : 0;
    if (-free > lacked)
        lacked = -free;
    return excess > lacked ? excess : lacked;
}

/* The file before the row: a crash in between leaves a row that counts too many bytes, and the next pass corrects
 * it. */
static int scans_yield(const struct core *core, int *dropped)
{
    char id[1][JOB_ID];
    struct kept kept;
    int count = 1, rc = 0;
    store_kept(core->store, &kept);
    int64_t most = kept.scan_bytes - scans_excess(core->spool, kept.scan_bytes);
    for (; !rc && count && kept.scans && kept.scan_bytes > most; store_kept(core->store, &kept)) {
        rc = store_kept_scans(core->store, id, 1, &count);
        if (!rc && count) {
            spool_remove(core->spool, id[0]);
            rc = store_scan_drop(core->store, id[0]);
            *dropped += !rc;
            rc = rc == ERR_NOT_FOUND ? 0 : rc; /* the job was removed meanwhile */
        }
    }
    return rc;
}

static int retain(struct housekeeper *housekeeper)
{
    const struct core *core = &housekeeper->core;
    int64_t age = core->options->keep_jobs, most = jobs_keep_bytes(core->options, core->spool);
    int old = 0, large = 0, scans = 0, rc = 0;
    if (age > 0)
        rc = jobs_purge(core, age, -1, &old);
    if (!rc && most > 0)
        rc = make_room(core, most, &large);
    if (!rc)
        rc = scans_yield(core, &scans);
    metrics_removed(core->metrics, old, large, scans);
    if (old || large)
        log_line(core->log, LOG_LEVEL_INFO, NULL, "removed %d ended jobs for their age, %d for space", old, large);
    if (scans)
        log_line(core->log, LOG_LEVEL_INFO, NULL, "removed the scans of %d ended jobs: uploads need the space", scans);
    return rc;
}

/* ---- leftovers ---- */

static void expire_found(struct housekeeper *housekeeper)
{
    if (clock_seconds() < housekeeper->next)
        return;
    housekeeper->next = clock_seconds() + FOUND_SECONDS;
    int removed = spool_found_expire(housekeeper->core.spool);
    if (removed)
        log_line(housekeeper->core.log, LOG_LEVEL_WARNING, NULL,
                 "removed %d scans and results without a job, %d days after they were set aside", removed,
                 SPOOL_FOUND_DAYS);
}

/* ---- those who went away ---- */

static void cancel_left(struct housekeeper *housekeeper)
{
    char id[WAITER_KEY];
    enum job_state state;
    bool cancel;
    while (waiters_gone(housekeeper->core.waiters, id, &cancel)) {
        if (!cancel)
            continue;
        log_line(housekeeper->core.log, LOG_LEVEL_INFO, id,
                 "the waiting client disconnected; canceled as it had asked");
        int rc = job_cancel(&housekeeper->core, housekeeper->scheduler, id, &state);
        if (rc && rc != ERR_CONFLICT && rc != ERR_NOT_FOUND) /* it has ended or was deleted */
            log_line(housekeeper->core.log, LOG_LEVEL_ERROR, id, "it cannot be canceled: %s", err_last()->text);
    }
}

/* ---- the thread ---- */

static void state_look_after(struct housekeeper *housekeeper)
{
    int64_t set = store_clock_set(housekeeper->core.store);
    if (set)
        log_line(housekeeper->core.log, LOG_LEVEL_WARNING, NULL,
                 "the machine's clock was set by %.1f s; the jobs' times are shifted accordingly", 1e-3 * (double)set);
    spool_prove(housekeeper->core.spool);
    expire_found(housekeeper);
    int rc = expire(housekeeper);
    if (!rc)
        rc = retain(housekeeper);
    if (rc && !housekeeper->troubled)
        log_line(housekeeper->core.log, LOG_LEVEL_ERROR, NULL,
                 "deadlines and retention are suspended, because the store fails: %s", err_last()->text);
    housekeeper->troubled = rc != 0;
}

static void *housekeeper_run(void *context)
{
    struct housekeeper *housekeeper = context;
    double next = 0;
    for (;;) {
        double now = clock_seconds();
        if (now >= next) {
            state_look_after(housekeeper);
            next = clock_seconds() + LOOK_SECONDS;
        }
        struct pollfd fds[] = {{.fd = housekeeper->stop, .events = POLLIN},
                               {.fd = waiters_watch(housekeeper->core.waiters), .events = POLLIN}};
        double left = next - clock_seconds();
        if (poll(fds, 2, left > 0 ? (int)(left * 1000) + 1 : 0) > 0 && fds[0].revents)
            return NULL;
        cancel_left(housekeeper);
    }
}

int housekeeper_create(struct housekeeper **out, const struct core *core, struct scheduler *scheduler)
{
    struct housekeeper *housekeeper = calloc(1, sizeof *housekeeper);
    if (!housekeeper)
        return err_no_memory("the housekeeper");
    housekeeper->core = *core;
    housekeeper->scheduler = scheduler;
    housekeeper->stop = eventfd(0, EFD_CLOEXEC);
    int rc = housekeeper->stop < 0
                 ? err_set(ERR_INTERNAL, "No eventfd for the housekeeper: %s.", strerror(errno))
                 : thread_start(&housekeeper->thread, housekeeper_run, housekeeper, "keeps deadlines and retention");
    if (rc) {
        if (housekeeper->stop >= 0)
            close(housekeeper->stop);
        free(housekeeper);
        return rc;
    }
    *out = housekeeper;
    return 0;
}

void housekeeper_free(struct housekeeper *housekeeper)
{
    if (!housekeeper)
        return;
    eventfd_write(housekeeper->stop, 1);
    pthread_join(housekeeper->thread, NULL);
    close(housekeeper->stop);
    free(housekeeper);
}
