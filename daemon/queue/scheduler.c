#include "daemon/queue/scheduler_inside.h"

#include "daemon/base/child.h"
#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/wire.h"
#include "recon/recon.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TICK_SECONDS 1.0 /* the longest sleep */

enum {
    MESSAGES_MOST = 64, /* of a worker in one turn */
    STORERS = 4         /* threads that store successes */
};

/* ---- workers ---- */

static void start(struct scheduler *scheduler, struct worker_slot *slot)
{
    const struct core *core = &scheduler->core;
    if (worker_start(&slot->worker, core->options)) {
        char how[CHILD_HOW], reason[sizeof slot->running.failure.text];
        snprintf(reason, sizeof reason, "%s", err_last()->text);
        worker_end(&slot->worker, how, sizeof how);
        snprintf(slot->worker.note, sizeof slot->worker.note, "%.*s", (int)sizeof slot->worker.note - 1, reason);
        log_line(core->log, LOG_LEVEL_ERROR, NULL, "worker %d: %s", slot->worker.index, reason);
    } else {
        log_line(core->log, LOG_LEVEL_DEBUG, NULL, "worker %d (%s) is process %d", slot->worker.index,
                 slot->worker.wanted, (int)slot->worker.pid);
    }
    slot_publish(scheduler, slot);
}

static void assign(struct scheduler *scheduler);

/* Receive a message and act on it. false: the worker has ended (*reason NULL), or must be ended for *reason. */
static bool message_take(struct scheduler *scheduler, struct worker_slot *slot, const char **reason)
{
    int files[WIRE_FDS], count = 0;
    json_t *message = NULL;
    *reason = NULL;
    const int rc = wire_receive(slot->worker.socket, &message, files, &count);
    bool stays = !rc;
    if (rc)
        *reason = rc == ERR_WORKER_DIED ? NULL : "sent an invalid message";
    else
        stays = slot_message(scheduler, slot, message, reason);
    for (int i = 0; i < count; i++)
        close(files[i]);
    json_decref(message);
    return stays;
}

/* Handle pending messages, and check whether the process still runs. Not all of them at once: other workers, deadlines
 * and cancellations have their turn after each job, however soon the next one ends. */
static void listen_to(struct scheduler *scheduler, struct worker_slot *slot)
{
    bool ended = false;
    for (int i = 0; i < MESSAGES_MOST && !ended && slot->worker.state != WORKER_DOWN; i++) {
        struct pollfd fds[] = {{.fd = slot->worker.socket, .events = POLLIN},
                               {.fd = slot->worker.pidfd, .events = POLLIN}};
        if (poll(fds, 2, 0) <= 0)
            return;
        if (!fds[0].revents) {
            slot_end(scheduler, slot, NULL);
            return;
        }
        const char *reason;
        if (!message_take(scheduler, slot, &reason))
            slot_end(scheduler, slot, reason);
        /* Hand out the next job and its prefetch first: the worker computes while the disk stores the end of this
         * job. */
        ended = slot_move_on(scheduler, slot);
        if (ended) {
            assign(scheduler);
            prefetch_next(scheduler);
        }
        slot_finish(scheduler, slot);
    }
}

/* ---- handing over ---- */

/* Open the files of the slot's job: the scan, files[0]; a new file for each result name; its checkpoint, if the kind
 * keeps one; and its live file, if a session waits for its images. *shown: bytes of the live file that were reported
 * before; -1: there is none. *count files are open, also after a failure. */
static int files_open(struct scheduler *scheduler, struct worker_slot *slot, const json_t *names, bool checkpoint,
                      int files[WIRE_FDS], int *count, int64_t *shown)
{
    const struct job *job = &slot->running.job;
    *count = 0;
    if (json_array_size(names) == 0)
        return err_set(ERR_UNKNOWN_KIND, "There is no job kind \"%s\".", job->kind);
    int rc = spool_open(scheduler->core.spool, job->id, &files[0]);
    if (rc)
        return rc;
    *count = 1;
    rc = ready_files_take(scheduler, slot, job->id, names, &files[1]);
    if (!rc)
        *count += (int)json_array_size(names);
    if (!rc && checkpoint)
        rc = spool_checkpoint_open(scheduler->core.spool, job->id, &files[*count]);
    *count += !rc && checkpoint;
    const int file = rc ? -1 : live_file(scheduler->core.live, job->id, shown);
    if (file >= 0)
        files[(*count)++] = file;
    else
        *shown = -1;
    return rc;
}

/* Count and log a job that begins; the slot is busy from now on. */
static void job_begin(struct scheduler *scheduler, struct worker_slot *slot)
{
    const struct core *core = &scheduler->core;
    const struct job *job = &slot->running.job;
    slot->running.device = slot->worker.device;
    slot->running.started = slot->running.progressed = clock_seconds();
    slot->worker.state = WORKER_BUSY;
    slot_publish(scheduler, slot);
    /* `auto` means a GPU if there is one. */
    if (!slot->worker.gpu && strcmp(slot->worker.wanted, "auto") == 0)
        metrics_fell_back(core->metrics);
    metrics_started(core->metrics, 1e-3 * (double)(job->started - job->created));
    log_line_about(core->log, LOG_LEVEL_INFO, &(struct log_about){job->id, job->client, 0},
                   "begins on %s, attempt %lld", slot->worker.device, (long long)job->attempts);
}

/* The worker has ended, or its socket is full, so it never received the job. If it said before that it lost its device,
 * that counts as the job's failure; otherwise the job is not at fault. */
static void job_undelivered(struct scheduler *scheduler, struct worker_slot *slot)
{
    struct pollfd pending = {.fd = slot->worker.socket, .events = POLLIN};
    const char *reason;
    while (slot->running.outcome == OUTCOME_NONE && poll(&pending, 1, 0) > 0)
        if (!message_take(scheduler, slot, &reason))
            break;
    if (slot->running.outcome == OUTCOME_NONE) {
        slot->running.outcome = OUTCOME_REQUEUE;
        reason = "accepts no messages";
    }
    slot_end(scheduler, slot, reason);
}

/* A claimed job that the worker computed ahead ends as it begins: the worker need not be asked. */
static bool job_is_made(struct scheduler *scheduler, struct worker_slot *slot, const json_t *names)
{
    int64_t most;
    json_t *room = results_room(scheduler, &slot->running.job, &most);
    json_decref(room);
    if (strcmp(slot->worker.prefetched, slot->running.job.id) != 0 || !ready_files_end(scheduler, slot, names, most))
        return false;
    worker_forget(&slot->worker);
    prefetch_claimed(scheduler, slot);
    job_begin(scheduler, slot);
    device_clear(scheduler, slot);
    return true;
}

/* Give a claimed job to an idle worker. */
static void job_hand_over(struct scheduler *scheduler, struct worker_slot *slot)
{
    int files[WIRE_FDS], count; /* the input, the results, the checkpoint, and the live file */
    int64_t shown = -1;
    const struct job *job = &slot->running.job;
    const struct kind *kind = kind_find(job->kind);
    const bool checkpoint = kind && kind->checkpoints;
    json_t *names = results_names(job);
    prefetch_retracted(scheduler);
    if (job_is_made(scheduler, slot, names)) {
        json_decref(names);
        slot_finish(scheduler, slot);
        return;
    }
    if (strcmp(slot->worker.prefetched, job->id) != 0)
        memcpy(slot->running.ahead, slot->worker.prefetched, sizeof slot->running.ahead);
    prefetch_claimed(scheduler, slot);
    job_begin(scheduler, slot);
    int rc = files_open(scheduler, slot, names, checkpoint, files, &count, &shown);
    if (rc) {
        slot->running.outcome = disk_is_cause(rc) ? OUTCOME_SHORT : OUTCOME_FAILED;
        slot->running.failure = *err_last();
        slot->running.scan_lost = rc == ERR_SCAN_GONE;
        if (slot->running.scan_lost)
            slot->running.failure.code = ERR_IO; /* the server's fault, as in the check at a start */
    } else if (worker_send(&slot->worker,
                           json_pack("{s:s, s:s, s:s, s:O, s:O, s:o, s:b, s:I}", "type", "job", "id", job->id, "kind",
                                     job->kind, "parameters", job->parameters, "files", names, "room",
                                     results_room(scheduler, job, &slot->running.most), "checkpoint", checkpoint,
                                     "live", (json_int_t)shown),
                           files, count)) {
        job_undelivered(scheduler, slot);
    }
    for (int i = 0; i < count; i++)
        close(files[i]);
    json_decref(names);
    slot_finish(scheduler, slot);
}

/* FAULTS: whether a job is not for this worker: its first worker died on the same device, and another device works. */
static bool is_for_another(const struct scheduler *scheduler, const struct worker_slot *slot, const char *id)
{
    const char *device = json_string_value(json_object_get(scheduler->died_on, id));
    bool another = false;
    if (!device || strcmp(slot->worker.device, device) != 0)
        return false;
    for (int i = 0; i < scheduler->count; i++) {
        const struct worker_slot *other = &scheduler->slot[i];
        bool works = other->worker.state >= WORKER_IDLE && other->backoff <= 0;
        another = another || (works && strcmp(other->worker.device, device) != 0);
    }
    return another;
}

/* The idle worker for a job: one that has prefetched its scan, else a GPU's, else one without a prefetched scan. `id`
 * "": for any job. */
static struct worker_slot *idle_find(struct scheduler *scheduler, const char *id)
{
    struct worker_slot *found = NULL;
    for (int i = 0; i < scheduler->count; i++) {
        struct worker_slot *slot = &scheduler->slot[i];
        if (slot->worker.state != WORKER_IDLE || *slot->running.job.id || is_for_another(scheduler, slot, id))
            continue;
        if (*id && strcmp(slot->worker.prefetched, id) == 0)
            return slot;
        bool same = found && slot->worker.gpu == found->worker.gpu;
        if (slot_better(slot, found) || (same && *found->worker.prefetched && !*slot->worker.prefetched))
            found = slot;
    }
    return found;
}

/* Whether the disk is too full for results or fails. Running jobs may still end, which can free space. */
static bool is_held(struct scheduler *scheduler)
{
    const struct core *core = &scheduler->core;
    bool held = spool_work_check(core->spool, core->options->work_reserve) != 0;
    if (held && !scheduler->held)
        log_line(core->log, LOG_LEVEL_WARNING, NULL, "no job starts until the disk has space and accepts writes: %s",
                 err_last()->text);
    if (!held && scheduler->held)
        log_line(core->log, LOG_LEVEL_INFO, NULL,
                 "the disk of the spool has space and accepts writes again: jobs start");
    if (held) {
        pthread_mutex_lock(&scheduler->lock);
        scheduler->held_by = *err_last();
        pthread_mutex_unlock(&scheduler->lock);
    }
    scheduler->held = held;
    return held;
}

/* Jobs that no idle worker may claim now: those in back-off (SHORTAGES), and those that wait for another device
 * (FAULTS). Jobs that have ended are removed from died_on. */
static json_t *never_ids(struct scheduler *scheduler)
{
    json_t *ids = put_back_ids(scheduler, false), *device;
    const char *id;
    void *next;
    json_object_foreach_safe (scheduler->died_on, next, id, device) {
        struct job job = {.state = JOB_QUEUED};
        int rc = store_get(scheduler->core.store, id, &job);
        if (!idle_find(scheduler, id))
            json_array_append_new(ids, json_string(id));
        if (rc == ERR_NOT_FOUND || (!rc && job_state_is_final(job.state)))
            json_object_del(scheduler->died_on, id);
        job_clear(&job);
    }
    return ids;
}

/* Give the job that the store puts next to an idle worker. */
static void assign(struct scheduler *scheduler)
{
    const struct core *core = &scheduler->core;
    /* Set before `stopping` is read: who sets `stopping` and then finds this false knows that no job is claimed. */
    scheduler->claiming = true;
    while (scheduler->stopping == RUNNING && clock_seconds() >= scheduler->take_at && idle_find(scheduler, "") &&
           !is_held(scheduler)) {
        struct job job;
        bool found = false;
        json_t *avoid = later_ids(scheduler), *never = never_ids(scheduler);
        int rc = store_claim(core->store, avoid, never, &job, &found);
        json_decref(avoid);
        json_decref(never);
        if (rc) {
            log_line(core->log, LOG_LEVEL_ERROR, NULL, "no job can be claimed, retrying: %s", err_last()->text);
            scheduler->take_at = clock_seconds() + STORE_RETRY_SECONDS;
            break;
        }
        if (!found)
            break;
        struct worker_slot *idle = idle_find(scheduler, job.id);
        idle->running.job = job;
        waiters_wake(core->waiters, job.id); /* event streams */
        job_hand_over(scheduler, idle);
        scheduler->prefetch_pending = true;
    }
    scheduler->claiming = false;
}

/* Cancel jobs on request or past their time limit; kill workers that do not comply. */
static void enforce(struct scheduler *scheduler, struct worker_slot *slot, double now)
{
    const struct options *options = scheduler->core.options;
    if (slot->worker.state != WORKER_BUSY || slot->running.outcome != OUTCOME_NONE)
        return;
    if (slot->running.cancel_at > 0) {
        if (now - slot->running.cancel_at > (double)options->cancel_grace)
            slot_end(scheduler, slot, "did not stop its job in time and was killed");
        return;
    }
    if (options->progress_timeout > 0 && now - slot->running.progressed > (double)options->progress_timeout) {
        char reason[96];
        snprintf(reason, sizeof reason, "made no progress for %lld s and was killed",
                 (long long)options->progress_timeout);
        slot_end(scheduler, slot, reason);
        return;
    }
    struct job job = {.state = JOB_RUNNING};
    slot->running.timed_out =
        options->job_time_limit > 0 && now - slot->running.started > (double)options->job_time_limit;
    if (!slot->running.timed_out &&
        (store_get(scheduler->core.store, slot->running.job.id, &job) || job.state != JOB_CANCELING)) {
        job_clear(&job);
        return;
    }
    job_clear(&job);
    slot->running.cancel_at = now;
    if (worker_send(&slot->worker, json_pack("{s:s, s:s}", "type", "cancel", "id", slot->running.job.id), NULL, 0))
        slot_end(scheduler, slot, "accepts no messages");
}

/* ---- the thread ---- */

/* Seconds until the next deadline. */
static double next_due(const struct scheduler *scheduler, double now, double waiters)
{
    double due = now + TICK_SECONDS;
    for (int i = 0; i < scheduler->count; i++) {
        const struct worker_slot *slot = &scheduler->slot[i];
        if (slot->worker.state == WORKER_DOWN && slot->worker.restart_at < due)
            due = slot->worker.restart_at;
        if (slot->running.cancel_at > 0 &&
            slot->running.cancel_at + (double)scheduler->core.options->cancel_grace < due)
            due = slot->running.cancel_at + (double)scheduler->core.options->cancel_grace;
    }
    if (waiters > 0 && waiters < due)
        due = waiters;
    return due > now ? due - now : 0;
}

static void sleep_until_woken(struct scheduler *scheduler)
{
    struct pollfd fds[1 + 2 * WORKERS_MAX] = {{.fd = scheduler->wake, .events = POLLIN}};
    double now = clock_seconds(), due = next_due(scheduler, now, waiters_expire(scheduler->core.waiters, now));
    int count = 1;
    for (int i = 0; i < scheduler->count; i++) {
        /* poll() ignores descriptors below 0. */
        fds[count++] = (struct pollfd){.fd = scheduler->slot[i].worker.socket, .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = scheduler->slot[i].worker.pidfd, .events = POLLIN};
    }
    eventfd_t woken;
    if (poll(fds, (nfds_t)count, (int)(due * 1000) + 1) > 0 && fds[0].revents) {
        eventfd_read(scheduler->wake, &woken);
        scheduler->prefetch_pending = true;
    }
}

static void turn(struct scheduler *scheduler, struct worker_slot *slot)
{
    char reason[96];
    double now = clock_seconds();
    listen_to(scheduler, slot);
    if (slot->worker.state == WORKER_DOWN && now >= slot->worker.restart_at)
        start(scheduler, slot);
    if (!worker_watch(&slot->worker, scheduler->core.options, now, reason, sizeof reason))
        slot_end(scheduler, slot, reason);
    enforce(scheduler, slot, now);
    slot_finish(scheduler, slot);
}

static void *scheduler_run(void *context)
{
    struct scheduler *scheduler = context;
    while (scheduler->stopping != STOPPING) {
        scheduler->turned = clock_seconds();
        for (int i = 0; i < scheduler->count; i++)
            turn(scheduler, &scheduler->slot[i]);
        prefetch_announced(scheduler, WORKER_IDLE);
        assign(scheduler);
        prefetch_next(scheduler);
        prefetch_announced(scheduler, WORKER_BUSY);
        ready_files_tidy(scheduler);
        sleep_until_woken(scheduler);
    }
    pool_close(scheduler->storers);
    for (int i = 0; i < scheduler->count; i++) {
        struct worker_slot *slot = &scheduler->slot[i];
        char how[CHILD_HOW];
        listen_to(scheduler, slot);
        if (slot->worker.state != WORKER_DOWN)
            worker_end(&slot->worker, how, sizeof how);
        slot->ending.finish_at = 0;
        slot_finish(scheduler, slot);
        if (*slot->running.job.id && slot->running.outcome == OUTCOME_NONE)
            slot->running.outcome = OUTCOME_REQUEUE;
        slot_finish(scheduler, slot);
        json_decref(slot->died_of);
        slot->died_of = NULL;
        for (struct assignment *assignment = &slot->running; assignment;
             assignment = assignment == &slot->running ? &slot->ending : NULL) {
            job_clear(&assignment->job);
            json_decref(assignment->results);
            json_decref(assignment->report);
        }
    }
    ready_files_tidy(scheduler);
    return NULL;
}

int scheduler_create(struct scheduler **out, const struct core *core)
{
    struct scheduler *scheduler = calloc(1, sizeof *scheduler);
    struct worker plan[WORKERS_MAX];
    if (!scheduler)
        return err_no_memory("the scheduler");
    scheduler->core = *core;
    scheduler->put_back = json_object();
    scheduler->died_on = json_object();
    int rc = workers_plan(plan, &scheduler->count, core->options->devices);
    for (int i = 0; !rc && i < scheduler->count; i++) {
        scheduler->slot[i].worker = plan[i];
        memcpy(scheduler->status[i].wanted, plan[i].wanted, sizeof plan[i].wanted);
    }
    scheduler->wake = rc ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!rc && scheduler->wake < 0)
        rc = err_set(ERR_INTERNAL, "No eventfd for the scheduler: %s.", strerror(errno));
    pthread_mutex_init(&scheduler->lock, NULL);
    if (!rc)
        rc = pool_create(&scheduler->storers, &(struct pool_limits){.threads = STORERS, .client = STORERS});
    if (!rc)
        rc = thread_start(&scheduler->thread, scheduler_run, scheduler, "schedules jobs");
    if (rc) {
        if (scheduler->wake >= 0)
            close(scheduler->wake);
        pool_free(scheduler->storers);
        json_decref(scheduler->died_on);
        json_decref(scheduler->put_back);
        free(scheduler);
        return rc;
    }
    *out = scheduler;
    return 0;
}

void scheduler_drain(struct scheduler *scheduler)
{
    scheduler->stopping = DRAINING;
    scheduler_wake(scheduler);
}

void scheduler_free(struct scheduler *scheduler)
{
    if (!scheduler)
        return;
    scheduler->stopping = STOPPING;
    scheduler_wake(scheduler);
    pthread_join(scheduler->thread, NULL);
    close(scheduler->wake);
    pool_free(scheduler->storers);
    announcement_clear(&scheduler->announced);
    json_decref(scheduler->retracted);
    json_decref(scheduler->died_on);
    json_decref(scheduler->put_back);
    pthread_mutex_destroy(&scheduler->lock);
    free(scheduler);
}
