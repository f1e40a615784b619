/* worker_fetch.h: reads the inputs of jobs in a thread of its own: the next one beside the computation of the current.
 *
 * An input is read ahead on a hint (fetcher_prefetch) or because its job begins (fetcher_take); either way by this
 * thread, which also keeps decoders standing ready. At most one input is read ahead: the last hint counts. Reading
 * ahead changes nothing but time: a job finds its input read, half read, or not at all.
 */
#ifndef MRIRECON_WORKER_FETCH_H
#define MRIRECON_WORKER_FETCH_H

#include "daemon/worker/worker.h"
#include "gridding/base/err.h"

struct fetcher;

/* Starts the thread. There is no end but the process's. Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int fetcher_create(struct fetcher **out, const struct worker_options *options);

/* Begin to read the input of job `id` from `fd`, which is taken; `arriving`: it is still being written, and complete
 * when the job begins. One that was read ahead before and that no job took is forgotten. Any thread; returns at once.
 */
void fetcher_prefetch(struct fetcher *fetcher, const char *id, const struct kind *kind,
                      const struct param_values *values, int fd, bool arriving);

/* Forget the input of job `id` if it was read ahead, or is being read. Any thread; returns at once. */
void fetcher_forget(struct fetcher *fetcher, const char *id);

/* The memory that the input of job `id` is read into while it arrives, once, as decode_limits.live has it: *memory, the
 * caller's; -1: not yet, or not any more. False: no such input is read ahead. Any thread. */
bool fetcher_live(struct fetcher *fetcher, const char *id, int *memory);

/* The input of job `id`: wait for what is read ahead, or have it read from `fd` (stays the caller's). `listener` is
 * asked meanwhile. *out is the caller's, kind_run.input_free(). One thread. Fails as kind_run.read(). */
int fetcher_take(struct fetcher *fetcher, const char *id, const struct kind *kind, const struct param_values *values,
                 int fd, const struct job_listener *listener, void **out);

/* The worker has time: have the thread look after its decoders. Any thread; returns at once. */
void fetcher_tend(struct fetcher *fetcher);

#endif
