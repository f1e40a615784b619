/* Messages from workers: hello, progress, done, failed, ... (daemon/wire.h). */
#include "daemon/queue/scheduler_inside.h"

#include "daemon/base/clock.h"
#include "daemon/wire.h"

#include <stdio.h>
#include <string.h>

static const char bad_report[] = "sent a report that is no object, or too large or deep a one";

static void worker_add(struct scheduler *scheduler, const char *wanted)
{
    for (int i = 0; i < scheduler->count; i++)
        if (strcmp(scheduler->slot[i].worker.wanted, wanted) == 0)
            return;
    if (scheduler->count == WORKERS_MAX)
        return;
    pthread_mutex_lock(&scheduler->lock);
    int index = scheduler->count++;
    worker_init(&scheduler->slot[index].worker, index, wanted);
    memcpy(scheduler->status[index].wanted, scheduler->slot[index].worker.wanted, WORKER_TEXT);
    pthread_mutex_unlock(&scheduler->lock);
}

/* `auto` means every GPU. The first worker takes the first GPU and reports the others. */
static void add_other_gpus(struct scheduler *scheduler, const struct worker *first)
{
    for (uint64_t others = first->gpus & (first->gpus - 1); others; others &= others - 1) {
        char wanted[WORKER_TEXT];
        snprintf(wanted, sizeof wanted, "gpu:%d", __builtin_ctzll(others));
        worker_add(scheduler, wanted);
    }
}

/* A worker has started. false: it is of another version. */
static bool on_hello(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message)
{
    if (worker_hello(&slot->worker, message))
        return false;
    log_line(scheduler->core.log, LOG_LEVEL_INFO, NULL, "worker %d is ready: %s%s%s", slot->worker.index,
             slot->worker.device, *slot->worker.note ? "; " : "", slot->worker.note);
    if (!slot->worker.landlock && !scheduler->landlock_missed)
        log_line(scheduler->core.log, LOG_LEVEL_WARNING, NULL,
                 "the kernel has no landlock, or a filter around the service refuses it: seccomp alone confines "
                 "the workers, which can open the files of this account");
    scheduler->landlock_missed |= !slot->worker.landlock;
    if (strcmp(slot->worker.wanted, "auto") == 0)
        add_other_gpus(scheduler, &slot->worker);
    slot_publish(scheduler, slot);
    return true;
}

/* The running job failed, or (id "") none had begun. false: its worker lost the device. */
static bool on_failed(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message)
{
    const bool fatal = json_is_true(json_object_get(message, "fatal"));
    const bool put_back = json_is_true(json_object_get(message, "put_back"));
    struct err *failure = &slot->running.failure;
    wire_error_unpack(json_object_get(message, "error"), failure);
    slot->running.outcome = fatal ? OUTCOME_DIED : put_back ? OUTCOME_SHORT : OUTCOME_FAILED;
    if (slot->worker.gpu && (failure->code == ERR_DEVICE || failure->code == ERR_GPU_OOM))
        metrics_gpu_failed(scheduler->core.metrics, slot->worker.device, failure->code);
    return !fatal;
}

/* The running job is done. false: the report is not acceptable. */
static bool on_done(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message)
{
    json_t *report = json_object_get(message, "report");
    if (!wire_report_is_sound(report))
        return false;
    device_clear(scheduler, slot);
    slot->running.outcome = OUTCOME_DONE;
    slot->running.report = json_incref(report);
    return true;
}

/* The device was lost before a job began, or while a prepared one was computed. A job sent meanwhile failed by it. */
static const char *on_lost(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message)
{
    const bool started = slot->worker.state != WORKER_STARTING;
    struct err failure;
    wire_error_unpack(json_object_get(message, "error"), &failure);
    snprintf(slot->why, sizeof slot->why, "%s: %.*s", started ? "lost its device" : "failed to start",
             (int)sizeof slot->why - 20, failure.text);
    slot->running.finish_at = 0;
    if (slot->worker.state == WORKER_BUSY && slot->running.outcome == OUTCOME_NONE)
        on_failed(scheduler, slot, message);
    return slot->why;
}

/* Images of a live file. The worker may have sent this before it learnt that another worker has the job, or that it was
 * removed. */
static bool on_shown(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message, const char *id)
{
    if ((strcmp(id, slot->running.job.id) == 0 || strcmp(id, slot->worker.prefetched) == 0) &&
        live_show(scheduler->core.live, id, json_integer_value(json_object_get(message, "bytes"))))
        waiters_wake(scheduler->core.waiters, id);
    return true;
}

/* A prefetched job is computed; or it has begun meanwhile, another worker has it, or it is gone. false: the report is
 * not acceptable. */
static bool on_made(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message, const char *id)
{
    json_t *report = json_object_get(message, "report");
    if (!wire_report_is_sound(report))
        return false;
    if (strcmp(id, slot->worker.prefetched) == 0 && strcmp(id, slot->ready.id) == 0)
        ready_files_made(scheduler, slot, report);
    return true;
}

bool slot_message(struct scheduler *scheduler, struct worker_slot *slot, const json_t *message, const char **reason)
{
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *id = json_string_value(json_object_get(message, "id"));
    slot->worker.heard = clock_seconds();
    slot->worker.pinged = 0;
    if (strcmp(type, "status") == 0) {
        slot_memory(scheduler, slot, message);
        return true;
    }
    if (strcmp(type, "hello") == 0 && slot->worker.state == WORKER_STARTING) {
        *reason = "has another version";
        return on_hello(scheduler, slot, message);
    }
    if (strcmp(type, "failed") == 0 && (slot->worker.state == WORKER_STARTING || (id && !*id))) {
        *reason = on_lost(scheduler, slot, message);
        return false;
    }
    if (strcmp(type, "shown") == 0 && id)
        return on_shown(scheduler, slot, message, id);
    if (strcmp(type, "made") == 0 && id) {
        *reason = bad_report;
        return on_made(scheduler, slot, message, id);
    }
    *reason = "sent an unexpected message";
    if (slot->worker.state != WORKER_BUSY || slot->running.outcome != OUTCOME_NONE || !id ||
        strcmp(id, slot->running.job.id) != 0)
        return false;
    slot->running.finish_at = 0;
    if (strcmp(type, "failed") == 0) {
        *reason = "lost its device";
        return on_failed(scheduler, slot, message);
    }
    if (strcmp(type, "progress") == 0) {
        slot->running.begun = true;
        slot_progress(scheduler, slot, message);
        return true;
    }
    if (strcmp(type, "done") != 0)
        return false;
    *reason = bad_report;
    return on_done(scheduler, slot, message);
}
