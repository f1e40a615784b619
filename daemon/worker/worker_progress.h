/* worker_progress.h: sends a job's progress to the daemon, at a limited rate.
 *
 * A report is sent at once if the last message was long enough ago. Otherwise a thread sends the newest report when the
 * interval is over, so that a job that reports "plan" and then nothing for a minute is shown in that step. The same
 * thread asks how far the writing of results is, which reports nothing itself.
 */
#ifndef MRIRECON_DAEMON_WORKER_PROGRESS_H
#define MRIRECON_DAEMON_WORKER_PROGRESS_H

#include "recon/kind_run.h"

struct reporter;

/* Messages go to `socket` (daemon/wire.h), which stays the caller's. Lives as long as the process. Fails with
 * ERR_NO_MEMORY, ERR_INTERNAL. */
int reporter_create(struct reporter **out, int socket);

/* A job begins. `kind` and `id` must stay valid until it ends. */
void reporter_begin(struct reporter *reporter, const struct kind *kind, const char *id);

/* Report progress; a report equal to the last one is not sent. Non-zero: the daemon has closed the socket. */
int reporter_tell(struct reporter *reporter, const struct step_progress *now);

/* From now on, until the job ends, ask part(of) at each interval how much of the step of the last report is done (0 to
 * 1; the step is the job's last one), and report the fraction that results. Called in the reporter's thread. */
void reporter_watch(struct reporter *reporter, double (*part)(const void *of), const void *of);

/* The job has ended: nothing more is sent about it after this returns. */
void reporter_end(struct reporter *reporter);

#endif
