/* pool.h: a pool of threads for work that waits for disks or computes for long, so that the threads that serve
 * connections do not. Clients take turns: a client's tasks run in the order of submission, at most `client` at a time;
 * of the clients with waiting tasks, the next is the one whose last task started longest ago.
 *
 * A task is embedded in its subject and not touched after its function was called: the function may free it.
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
    int client;   /* concurrent tasks of one client */
    int niceness; /* of the threads, added to that of the process: 0 to 19, as nice(1) */
};

/* Fails with ERR_NO_MEMORY, ERR_INTERNAL. */
int pool_create(struct pool **out, const struct pool_limits *limits);

/* Any thread. Run the task in the turn of `client` (truncated to POOL_CLIENT - 1 bytes). false: the pool is closed, or
 * there is no memory. */
bool pool_run(struct pool *pool, struct pool_task *task, const char *client);

/* Accept no more tasks, and return when the accepted ones are done. */
void pool_close(struct pool *pool);
void pool_free(struct pool *pool); /* closes it; NULL ok */

#endif
