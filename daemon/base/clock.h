/* clock.h: the clocks. Wall-clock time is for people, and may be set at any moment; waiting is measured on one that is
 * not: the monotonic clock, or where a machine's sleep counts as well, the time since its boot. */
#ifndef MRIRECON_DAEMON_CLOCK_H
#define MRIRECON_DAEMON_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* Milliseconds since 1970, UTC. */
static inline int64_t clock_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Milliseconds since the machine's boot, its sleep included; never goes back. */
static inline int64_t clock_boot_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum {
    CLOCK_STEP_LEAST_MS = 500, /* a clock that was set by less is left as it is, until that has added up */
    CLOCK_AT_ONCE_MS = 50      /* that reading both clocks may take */
};

/* Where the clock of the machine stands before the one since boot, ms: what changes when somebody sets the former.
 * *now: where it stands. */
static inline int64_t clock_offset(int64_t *now)
{
    int64_t before, after;
    do {
        before = clock_boot_milliseconds();
        *now = clock_milliseconds();
        after = clock_boot_milliseconds();
    } while (after - before > CLOCK_AT_ONCE_MS);
    return *now - after;
}

/* Seconds since some start; never goes back. */
static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A condition whose timed waits are told their end on the clock of clock_seconds(). */
static inline void clock_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

enum { CLOCK_TEXT = 32 };

/* "2026-01-31T12:00:00.250Z" (RFC 3339). */
static inline void clock_print(int64_t milliseconds, char text[CLOCK_TEXT])
{
    time_t seconds = (time_t)(milliseconds / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t used = strftime(text, CLOCK_TEXT, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + used, CLOCK_TEXT - used, ".%03dZ", (int)(milliseconds % 1000));
}

#endif
