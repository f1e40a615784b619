#include "daemon/base/pool.h"

#include "daemon/base/thread.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A client with tasks. */
struct line {
    struct line *next;
    char client[POOL_CLIENT];
    struct pool_task *first, **last; /* waiting */
    int running;
    uint64_t begun; /* sequence number of the start of its last task; 0: none yet */
};

struct pool {
    struct pool_limits limits;
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t news;
    struct line *lines;
    uint64_t begun;
    bool closed;
    int threads; /* running and not yet joined */
    pthread_t thread[];
};

/* The client whose turn it is; NULL: no task may run now. */
static struct line *line_next(const struct pool *pool)
{
    struct line *next = NULL;
    for (struct line *line = pool->lines; line; line = line->next)
        if (line->first && line->running < pool->limits.client &&
            (!next || line->begun <= next->begun)) /* of two new clients the earlier one */
            next = line;
    return next;
}

static struct line *line_of(struct pool *pool, const char *client)
{
    struct line *line = pool->lines;
    while (line && strncmp(line->client, client, POOL_CLIENT - 1) != 0)
        line = line->next;
    if (line || !(line = calloc(1, sizeof *line)))
        return line;
    snprintf(line->client, sizeof line->client, "%s", client);
    line->last = &line->first;
    line->next = pool->lines;
    pool->lines = line;
    return line;
}

/* Forget a client without tasks. */
static void line_leave(struct pool *pool, struct line *line)
{
    struct line **link = &pool->lines;
    if (line->first || line->running)
        return;
    while (*link != line)
        link = &(*link)->next;
    *link = line->next;
    free(line);
}

static void *pool_thread(void *context)
{
    struct pool *pool = context;
    if (pool->limits.niceness)
        setpriority(PRIO_PROCESS, (id_t)gettid(), getpriority(PRIO_PROCESS, 0) + pool->limits.niceness);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct line *line = line_next(pool);
        if (!line && pool->closed) /* waiting tasks are run by the threads of their clients' running ones */
            break;
        if (!line) {
            pthread_cond_wait(&pool->news, &pool->lock);
            continue;
        }
        struct pool_task *task = line->first;
        line->first = task->next;
        if (!line->first)
            line->last = &line->first;
        line->running++;
        line->begun = ++pool->begun;
        pthread_mutex_unlock(&pool->lock);
        task->run(task);
        pthread_mutex_lock(&pool->lock);
        line->running--;
        line_leave(pool, line);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int pool_create(struct pool **out, const struct pool_limits *limits)
{
    struct pool *pool = calloc(1, sizeof *pool + (size_t)limits->threads * sizeof *pool->thread);
    if (!pool)
        return err_no_memory("a pool of threads");
    pool->limits = *limits;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->news, NULL);
    for (; pool->threads < limits->threads; pool->threads++) {
        int rc = thread_start(&pool->thread[pool->threads], pool_thread, pool, "runs a pool's tasks");
        if (rc) {
            pool_free(pool);
            return rc;
        }
    }
    *out = pool;
    return 0;
}

bool pool_run(struct pool *pool, struct pool_task *task, const char *client)
{
    task->next = NULL;
    pthread_mutex_lock(&pool->lock);
    struct line *line = pool->closed ? NULL : line_of(pool, client);
    if (line) {
        *line->last = task;
        line->last = &task->next;
        pthread_cond_signal(&pool->news);
    }
    pthread_mutex_unlock(&pool->lock);
    return line != NULL;
}

void pool_close(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->closed = true;
    pthread_cond_broadcast(&pool->news);
    pthread_mutex_unlock(&pool->lock);
    for (; pool->threads > 0; pool->threads--)
        pthread_join(pool->thread[pool->threads - 1], NULL);
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    pool_close(pool);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->news);
    free(pool);
}
