/* clock.h: the clocks of gridding/base/clock.h, and what only the daemon needs: the boot clock, which counts the
 * machine's sleep as well, and times as text. */
#ifndef MRIRECON_DAEMON_CLOCK_H
#define MRIRECON_DAEMON_CLOCK_H

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "gridding/base/clock.h"

/* Milliseconds since the machine's boot, including suspend; never goes back. */
static inline int64_t clock_boot_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum {
    CLOCK_STEP_LEAST_MS = 500, /* smaller steps of the wall clock are ignored until they add up */
    CLOCK_AT_ONCE_MS = 50      /* limit for reading both clocks */
};

/* Wall clock minus boot clock, ms: changes when the wall clock is set. *now: the wall clock. */
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
