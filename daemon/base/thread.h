/* thread.h: threads, and conditions that are waited for until a time of the monotonic clock. */
#ifndef MRIRECON_DAEMON_THREAD_H
#define MRIRECON_DAEMON_THREAD_H

#include "gridding/base/err.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Start a thread. `purpose` completes the sentence of a failure: "The thread that ... cannot be started". Fails with
 * ERR_INTERNAL. */
static inline int thread_start(pthread_t *out, void *(*run)(void *), void *context, const char *purpose)
{
    int failed = pthread_create(out, NULL, run, context);
    return failed ? err_set(ERR_INTERNAL, "The thread that %s cannot be started: %s.", purpose, strerror(failed)) : 0;
}

/* A condition for thread_cond_wait(). */
static inline void thread_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* pthread_cond_timedwait() until clock_seconds() reaches `until`: 0 or ETIMEDOUT. */
static inline int thread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock, double until)
{
    struct timespec end = {.tv_sec = (time_t)until, .tv_nsec = (long)(1e9 * (until - (double)(time_t)until))};
    return pthread_cond_timedwait(condition, lock, &end);
}

#endif
