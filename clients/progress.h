/* progress.h: how far something is, as one moving line on stderr where that is a terminal. Elsewhere nothing is told: a
 * log has no use for it. */
#ifndef MRIRECON_PROGRESS_H
#define MRIRECON_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { PROGRESS_TEXT = 160 };

struct progress {
    bool terminal, drawn;
    double last;              /* when a bar was drawn last, seconds */
    char text[PROGRESS_TEXT]; /* told last */
};

/* On stderr as it is now. */
void progress_start(struct progress *progress);

/* fraction 0..1; below 0: not known. What does not fit the terminal's width is left out. */
void progress_tell(struct progress *progress, double fraction, const char *text);

/* Bytes that move, for a server_watch; `context` is a struct progress. */
void progress_moved(void *context, int64_t done, int64_t total);

/* Remove the bar, so that something else can be written. */
void progress_end(struct progress *progress);

/* Where a running job is, from its document: "density, iteration 12 of 30 (step 5 of 8)"; else its state. */
void progress_step(const json_t *job, char text[PROGRESS_TEXT]);

#endif
