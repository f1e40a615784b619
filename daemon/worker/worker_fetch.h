/* worker_fetch.h: reads the inputs of jobs in a thread of its own, the next one while the present job is computed.
 *
 * An input is read because of a hint (fetcher_prefetch) or because its job begins (fetcher_take), always by this
 * thread, which also keeps decoders ready. At most one input is prefetched: the last hint counts. Prefetching changes
 * only the time: a job finds its input read, partly read, or not read.
 */
#ifndef MRIRECON_WORKER_FETCH_H
#define MRIRECON_WORKER_FETCH_H

#include "daemon/worker/worker.h"
#include "gridding/base/err.h"

struct fetcher;

/* Starts the thread, which ends with the process only. Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int fetcher_create(struct fetcher **out, const struct worker_options *options);

/* Start to read the input of job `id` from `fd` (taken). `arriving`: it is still being written, and complete when the
 * job begins. An earlier prefetched input that no job has taken is dropped. Any thread; returns at once.
 */
void fetcher_prefetch(struct fetcher *fetcher, const char *id, const struct kind *kind,
                      const struct param_values *values, int fd, bool arriving);

/* Drop the input of job `id` if it was or is being prefetched. Any thread; returns at once. */
void fetcher_forget(struct fetcher *fetcher, const char *id);

/* *memory: the memory into which the arriving input of job `id` is read (decode_limits.live); returned once, then the
 * caller's; -1: not yet, or already returned. False: no such input is being prefetched. Any thread. */
bool fetcher_live(struct fetcher *fetcher, const char *id, int *memory);

/* Job `id` begins, so all of its input is there, and the decoder's time is limited from now on. True: the decoder has
 * ended, or there is none. Any thread. */
bool fetcher_complete(struct fetcher *fetcher, const char *id);

/* The input of job `id`: wait for its prefetch, or have it read from `fd` (stays the caller's). `listener` can cancel
 * the wait. *out is the caller's: kind_run.input_free(). One thread. Fails as kind_run.read(). */
int fetcher_take(struct fetcher *fetcher, const char *id, const struct kind *kind, const struct param_values *values,
                 int fd, const struct job_listener *listener, void **out);

/* The same before the job begins, where the input is read ahead: wait for that as long as `listener` allows. False: it
 * is not, or could not be read, or the listener had it stop; fetcher_take() then finds what there is. One thread. */
bool fetcher_take_ahead(struct fetcher *fetcher, const char *id, const struct job_listener *listener, void **out);
/* Have fetcher_take_ahead() ask its listener at once. Any thread. */
void fetcher_poke(struct fetcher *fetcher);

/* No job runs: the thread may start decoders. Any thread; returns at once. */
void fetcher_tend(struct fetcher *fetcher);

#endif
