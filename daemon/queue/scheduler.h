/* scheduler.h: gives queued jobs to workers, and stores how they end.
 *
 * The scheduler's thread owns the worker processes. It sleeps in poll() on their sockets and on an eventfd through
 * which other threads wake it. It reads all other state from the store in each turn, so a wake-up carries no message
 * and none can be lost: after a submit the thread finds a queued job, after a cancel a job that is canceling.
 *
 * PREFETCH. A worker reads and decodes the scan of its probable next job before that job is claimed:
 *   1. When an upload is complete but its row is not yet committed, the HTTP side announces the job
 *      (scheduler_announce). An idle worker prefetches it at once, so that decoding overlaps the fsync. If there is no
 *      idle worker, a busy one may, once the queue has nothing for it. If the commit fails, the announcement is
 *      retracted (scheduler_retract) and the worker forgets the scan.
 *   2. Each busy worker without a prefetched scan gets the job that would be claimed next (store_peek).
 *   3. In both cases the scheduler sends "prepare" (wire.h), and a thread of the worker reads the scan
 *      (daemon/worker/worker_fetch.h). A worker holds one prefetched scan: a later "prepare" replaces it, and "forget"
 *      drops it when the job was canceled, deleted or claimed for another worker. As long as the worker has no job, it
 *      computes this one (daemon/worker/worker_ahead.h). The files that the job will write are made meanwhile, and
 *      given to the worker. If it has written all and closed them before the job is claimed, it says so: then the
 *      claimed job ends as it begins, and is not sent to the worker. Else it keeps the results to itself until it is
 *      sent the job. The files are removed if the scan is forgotten, or the job given to another worker.
 *   4. A free worker claims its job from the store in the usual order (store_claim). Jobs that a busy worker has
 *      prefetched come after the others of their priority, and of several idle workers the one that has prefetched the
 *      scan gets the job.
 *   5. An MRD stream, over TCP or as a body, is announced when its first acquisition has arrived: the worker reads it
 *      while the rest arrives, until a job for that worker needs the reader. As long as it has no job, it also computes
 *      images of what is complete, and shows them to a TCP session (daemon/queue/live.h).
 *   6. A small HDF5 file, the body of a submission, is announced when it begins to arrive, too: an idle worker reads it
 *      meanwhile. One that is complete takes its place.
 * A prefetch is a hint: the job stays queued, can be canceled, overtaken or run by another worker, and is not charged
 * with a death if the worker dies meanwhile.
 *
 * FAULTS. A job whose worker died is run once more, after another waiting job if there is one. If the worker had
 * prefetched another job, and died before it reported anything of the one that it was given, that one is queued again
 * and not charged, once: the worker may have died of what it computed ahead. It is run on another
 * device, even if that is busy now, unless no other device has a worker that is up and not in back-off. If the worker
 * dies of a second job without having completed one in between, its device is held at fault: the second job is queued
 * again as if it had not been tried, and the worker backs off. Each further death doubles the back-off, up to a limit;
 * the first completed job ends it.
 *
 * SHORTAGES. A shortage of the server's own (disk space or inodes, descriptors, memory; a failing disk) is no fault of
 * a job. If a job's files cannot be opened, or its results not be written, the job is queued again as if it had not
 * been started, and no job starts until the disk accepts writes. That job is retried after a back-off, which grows from
 * 1 s to 1 min, and after the others of its priority, so that a job too large for the free space delays no other.
 *
 * EARLY. A client that waits for its image in the request that submitted the job gets it when the job's row is
 * committed and the results are complete and in their place, before another thread has synced them and committed the
 * end; if they were computed ahead, before the job is claimed. Until then the row says that the job waits or runs, so
 * that after a crash, or if the disk fails, it is run again and gives the same image. Nobody else is told earlier that
 * a job has ended: documents, lists, events, deliveries. Since its client knows, a request that would show the end of
 * that job waits until the attempt to store it is over.
 *
 * Other threads see the workers through scheduler_status(), a copy under a lock that is never held across disk access
 * or a wait. One function decides which job runs where (scheduler.c:assign); priorities and fair shares are in the
 * order of store_claim.
 */
#ifndef MRIRECON_DAEMON_SCHEDULER_H
#define MRIRECON_DAEMON_SCHEDULER_H

#include "daemon/queue/core.h"
#include "daemon/queue/scheduler_status.h"
#include "daemon/wire.h"

/* Starts the thread, which starts the workers. Fails with ERR_BAD_PARAMETER (option devices), ERR_NO_MEMORY,
 * ERR_INTERNAL. */
int scheduler_create(struct scheduler **out, const struct core *core);

/* PREFETCH, step 1: a worker may read `scan` (open for reading only; taken) before the job's row is committed. One
 * announcement is kept until the thread's next turn; a second replaces it. `arriving`: the scan is still being written,
 * and contains its own end or length; it is announced again when it is complete, or retracted. */
void scheduler_announce(struct scheduler *scheduler, const struct job *job, int scan, enum wire_arriving arriving);
/* The row of the announced job will not be committed, or the job was canceled before it began. */
void scheduler_retract(struct scheduler *scheduler, const char *id);

/* Start no more jobs. Returns at once; scheduler_is_idle() says whether the running ones have ended. */
void scheduler_drain(struct scheduler *scheduler);

/* Requeue what still runs, stop the workers and the thread. */
void scheduler_free(struct scheduler *scheduler);

#endif
