/* pool.h: threads that wait for disks, or compute for long, so that those that serve connections need not. Clients take
 * turns: a client's tasks run in the order of calling, only so many at a time, and of the clients that have some
 * waiting the one whose last task was begun longest ago is next.
 *
 * A task is part of whatever it is about, and is not touched after its function was called: the function may free it.
 */
#ifndef MRIRECON_DAEMON_POOL_H
#define MRIRECON_DAEMON_POOL_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { POOL_CLIENT = 64 };

struct pool_task {
    struct pool_task *next;
    void (*run)(struct pool_task *task); /* in a thread of the pool */
};

struct pool;

struct pool_limits {
    int threads;
    int client;   /* tasks of one client that run at a time */
    int niceness; /* of the threads, beside that of the process: 0 to 19, as nice(1) */
};

/* Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int pool_create(struct pool **out, const struct pool_limits *limits);

/* Any thread. Have the task run in the turn of `client` (cut to POOL_CLIENT - 1 bytes). false: the pool is closed, or
 * there is no memory. */
bool pool_run(struct pool *pool, struct pool_task *task, const char *client);

/* Take no more tasks, and return when those that were taken are done. */
void pool_close(struct pool *pool);
void pool_free(struct pool *pool); /* closes it; NULL ok */

#endif
