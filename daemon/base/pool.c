#include "daemon/base/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pool {
    pthread_mutex_t lock; /* of the list and `closed` */
    pthread_cond_t news;
    struct pool_task *first, **last;
    bool closed;
    int threads; /* that run and are not joined yet */
    pthread_t thread[];
};

static void *pool_thread(void *context)
{
    struct pool *pool = context;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->first && !pool->closed)
            pthread_cond_wait(&pool->news, &pool->lock);
        struct pool_task *task = pool->first;
        if (!task)
            break;
        pool->first = task->next;
        if (!pool->first)
            pool->last = &pool->first;
        pthread_mutex_unlock(&pool->lock);
        task->run(task);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int pool_create(struct pool **out, int threads)
{
    struct pool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof *pool->thread);
    if (!pool)
        return err_set(ERR_NO_MEMORY, "No memory for a pool of threads.");
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->news, NULL);
    pool->last = &pool->first;
    for (int failed; pool->threads < threads; pool->threads++) {
        failed = pthread_create(&pool->thread[pool->threads], NULL, pool_thread, pool);
        if (failed) {
            pool_free(pool);
            return err_set(ERR_INTERNAL, "A thread cannot be started: %s.", strerror(failed));
        }
    }
    *out = pool;
    return 0;
}

bool pool_run(struct pool *pool, struct pool_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&pool->lock);
    bool open = !pool->closed;
    if (open) {
        *pool->last = task;
        pool->last = &task->next;
        pthread_cond_signal(&pool->news);
    }
    pthread_mutex_unlock(&pool->lock);
    return open;
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
