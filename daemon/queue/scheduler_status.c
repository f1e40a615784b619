#include "daemon/queue/scheduler_inside.h"

#include <string.h>
#include <sys/eventfd.h>

void slot_publish(struct scheduler *scheduler, const struct slot *slot)
{
    struct worker_status *status = &scheduler->status[slot->worker.index];
    pthread_mutex_lock(&scheduler->lock);
    if (strcmp(status->job, slot->running.job.id) != 0)
        status->progress = (struct job_progress){.step = -1};
    status->state = slot->worker.state;
    status->gpu = slot->worker.gpu;
    status->landlock = slot->worker.landlock;
    memcpy(status->wanted, slot->worker.wanted, sizeof status->wanted);
    memcpy(status->device, slot->worker.device, sizeof status->device);
    status->resting = slot->backoff > 0;
    memcpy(status->note, status->resting ? slot->why : slot->worker.note, sizeof status->note);
    memcpy(status->job, slot->running.job.id, sizeof status->job);
    memcpy(status->ending, slot->ending.job.id, sizeof status->ending);
    pthread_mutex_unlock(&scheduler->lock);
}

int scheduler_status(struct scheduler *scheduler, struct worker_status status[WORKERS_MAX])
{
    pthread_mutex_lock(&scheduler->lock);
    memcpy(status, scheduler->status, (size_t)scheduler->count * sizeof *status);
    pthread_mutex_unlock(&scheduler->lock);
    return scheduler->count;
}

bool scheduler_is_idle(struct scheduler *scheduler)
{
    bool idle = true;
    pthread_mutex_lock(&scheduler->lock);
    for (int i = 0; i < scheduler->count; i++)
        idle = idle && !scheduler->status[i].job[0] && !scheduler->status[i].ending[0];
    pthread_mutex_unlock(&scheduler->lock);
    return idle;
}

bool scheduler_is_held(struct scheduler *scheduler)
{
    return scheduler->held;
}

void scheduler_wake(struct scheduler *scheduler)
{
    eventfd_write(scheduler->wake, 1);
}

double scheduler_turned(struct scheduler *scheduler)
{
    return scheduler->turned;
}
