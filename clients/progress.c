#include "clients/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 32 };
#define REDRAW_SECONDS 0.05

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_start(struct progress *progress)
{
    *progress = (struct progress){.terminal = isatty(STDERR_FILENO)};
}

void progress_tell(struct progress *progress, double fraction, const char *stage)
{
    bool fresh = strncmp(progress->stage, stage, sizeof progress->stage - 1) != 0;
    snprintf(progress->stage, sizeof progress->stage, "%s", stage);
    if (!progress->terminal) {
        if (fresh)
            fprintf(stderr, "%s\n", progress->stage);
        return;
    }
    double now = seconds_now();
    if (!fresh && now - progress->last < REDRAW_SECONDS)
        return;
    progress->last = now;
    progress->drawn = true;
    if (fraction < 0) {
        fprintf(stderr, "\r\033[K%s", progress->stage);
    } else {
        fraction = fraction > 1 ? 1 : fraction;
        int full = (int)(fraction * BAR);
        fprintf(stderr, "\r\033[K[%.*s%.*s] %3d %%  %s", full, "################################", BAR - full,
                "................................", (int)(fraction * 100), progress->stage);
    }
    fflush(stderr);
}

void progress_moved(void *context, int64_t done, int64_t total)
{
    char text[64];
    if (total > 0)
        snprintf(text, sizeof text, "%.1f of %.1f MB", (double)done * 1e-6, (double)total * 1e-6);
    else
        snprintf(text, sizeof text, "%.1f MB", (double)done * 1e-6);
    struct progress *progress = context;
    if (progress->terminal) /* elsewhere each text would be a line */
        progress_tell(progress, total > 0 ? (double)done / (double)total : -1, text);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fprintf(stderr, "\r\033[K");
    progress->drawn = false;
}
