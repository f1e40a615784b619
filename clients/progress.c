#include "clients/progress.h"

#include "clients/client.h"
#include "gridding/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR = 32, BAR_LEAST = 8, COLUMNS = 80 /* if the terminal does not report its width */ };
#define REDRAW_SECONDS 0.05

void progress_start(struct progress *progress)
{
    *progress = (struct progress){.terminal = isatty(STDERR_FILENO)};
}

static int columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
}

/* A wrapped line would not be overwritten by the next: the text must fit, and leave the last column for the cursor. */
static void draw(double fraction, const char *text)
{
    int room = columns() - 1, length = (int)strlen(text);
    fprintf(stderr, "\r\033[K");
    if (fraction >= 0) {
        int percent = (int)((fraction > 1 ? 1 : fraction) * 100), around = (int)strlen("[] 100 %  ");
        int bar = room - around - length, least = room / 5;
        bar = bar < least ? least : bar < BAR ? bar : BAR;
        int full = bar * percent / 100;
        if (bar >= BAR_LEAST)
            fprintf(stderr, "[%.*s%.*s] ", full, "################################", bar - full,
                    "................................");
        fprintf(stderr, "%3d %%  ", percent);
        room -= bar >= BAR_LEAST ? bar + around : around - (int)strlen("[] ");
    }
    char whole[PROGRESS_TEXT];
    snprintf(whole, sizeof whole, "%s", text);
    if (length > room) {
        room = room > 0 ? room : 0;
        while (room > 0 && ((unsigned char)whole[room] & 0xc0) == 0x80) /* not within a character */
            room--;
        whole[room] = '\0';
    }
    client_print_text(stderr, whole);
    fflush(stderr);
}

void progress_tell(struct progress *progress, double fraction, const char *text)
{
    double now = clock_seconds();
    bool fresh = strncmp(progress->text, text, sizeof progress->text - 1) != 0;
    if (!progress->terminal || (!fresh && now - progress->last < REDRAW_SECONDS))
        return;
    snprintf(progress->text, sizeof progress->text, "%s", text);
    progress->last = now;
    progress->drawn = true;
    draw(fraction, progress->text);
}

void progress_moved(void *context, int64_t done, int64_t total)
{
    char text[64];
    if (total > 0)
        snprintf(text, sizeof text, "%.1f of %.1f MB", (double)done * 1e-6, (double)total * 1e-6);
    else
        snprintf(text, sizeof text, "%.1f MB", (double)done * 1e-6);
    progress_tell(context, total > 0 ? (double)done / (double)total : -1, text);
}

void progress_end(struct progress *progress)
{
    if (progress->drawn)
        fprintf(stderr, "\r\033[K");
    progress->drawn = false;
}

void progress_step(const json_t *job, char text[PROGRESS_TEXT])
{
    const json_t *step = json_object_get(job, "step"), *of = json_object_get(step, "iterations");
    if (!json_is_object(step)) {
        snprintf(text, PROGRESS_TEXT, "%s", client_text(job, "state"));
        return;
    }
    int used = snprintf(text, PROGRESS_TEXT, "%.40s", client_text(step, "name"));
    if (json_is_integer(of))
        used += snprintf(text + used, (size_t)(PROGRESS_TEXT - used), ", %.40s %lld of %lld", client_text(step, "unit"),
                         (long long)json_integer_value(json_object_get(step, "iteration")),
                         (long long)json_integer_value(of));
    snprintf(text + used, (size_t)(PROGRESS_TEXT - used), " (step %d of %d)",
             (int)json_integer_value(json_object_get(step, "number")),
             (int)json_integer_value(json_object_get(step, "steps")));
}
