/* clock.h: the two clocks of all programs. Durations and waits are measured on the monotonic clock, which nobody can
 * set; points in time that people read are the wall clock's. */
#ifndef MRIRECON_CLOCK_H
#define MRIRECON_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Seconds since some start, monotonic: never goes back. */
static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Milliseconds since 1970, UTC: the wall clock, which may be set forwards or back at any moment. */
static inline int64_t clock_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

#endif
