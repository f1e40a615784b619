/* pool.h: threads that wait for disks, so that those that serve connections need not.
 *
 * A task is part of whatever it is about, and is not touched after its function was called: the function may free it.
 */
#ifndef MRIRECON_DAEMON_POOL_H
#define MRIRECON_DAEMON_POOL_H

#include "gridding/base/err.h"

#include <stdbool.h>

struct pool_task {
    struct pool_task *next;
    void (*run)(struct pool_task *task); /* in a thread of the pool */
};

struct pool;

/* Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int pool_create(struct pool **out, int threads);

/* Any thread. Have the task run, in the order of calling as threads become free. false: the pool is closed. */
bool pool_run(struct pool *pool, struct pool_task *task);

/* Take no more tasks, and return when those that were taken are done. */
void pool_close(struct pool *pool);
void pool_free(struct pool *pool); /* closes it; NULL ok */

#endif
