/* scheduler.h: gives queued jobs to workers, and stores how they end.
 *
 * One thread of its own owns the worker processes, and sleeps in poll() on their sockets and on an eventfd by which
 * other threads wake it. Everything else it knows it takes from the store at each turn, so a wake-up carries no message
 * and none can be lost: after a submit it finds a queued job, after a cancel a job that is canceling.
 *
 * PREFETCH. A worker reads the scan of the job that is likely to be its next, beside the job that it runs. That is a
 * hint and binds nobody: the job stays queued until a worker is free for it, can be canceled, overtaken or taken by
 * another worker, and is neither run nor dead if the worker dies meanwhile.
 *
 * FAULTS. A job whose worker died of it is run once more, after another one where another waits. When a worker dies of
 * a second job and has done none to its end since it died of the first, the fault is taken to be its device's: the
 * second goes back into the queue as if it had not been tried, and the worker rests. After that it is tried with one
 * job at a time, and rests longer each time, until it has done one: then it is trusted again.
 *
 * SHORTAGES. What the server is short of (room or inodes on its disk, descriptors, memory; a disk that fails) is no
 * fault of a job. One whose files could not be opened or whose results could not be written goes back into the queue as
 * if it had not been begun, and the disk is looked at: no job is begun before it takes what is written again. That job
 * itself is begun again after a pause, which grows each time from 1 s to a minute, and after others of its priority:
 * what is too large for the room there is holds up no other.
 *
 * Other threads see the workers through scheduler_status(), a copy under a lock that is never held across a disk or a
 * wait. Who is to run where is decided in one place (scheduler.c:assign): priorities and fair shares are a matter of
 * store_claim's order.
 */
#ifndef MRIRECON_DAEMON_SCHEDULER_H
#define MRIRECON_DAEMON_SCHEDULER_H

#include "daemon/queue/core.h"
#include "daemon/queue/scheduler_status.h"

/* Starts the thread, which starts the workers. Fails with ERR_BAD_PARAMETER (option devices), ERR_NO_MEMORY,
 * ERR_INTERNAL. */
int scheduler_create(struct scheduler **out, const struct core *core);

/* The scan of a job has arrived, and its row is about to be committed: a worker may begin to read it meanwhile, from
 * `scan` (open for reading alone; taken). A hint, kept until the thread looks; a second replaces the first. retract:
 * the row will not come. */
void scheduler_announce(struct scheduler *scheduler, const struct job *job, int scan);
void scheduler_retract(struct scheduler *scheduler, const char *id);

/* Begin no more jobs; returns at once. scheduler_is_idle() tells when the running ones have ended. */
void scheduler_drain(struct scheduler *scheduler);

/* Requeue what still runs, stop the workers and the thread. */
void scheduler_free(struct scheduler *scheduler);

#endif
