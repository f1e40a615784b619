/* progress.h: a progress bar on stderr if that is a terminal; otherwise nothing is printed, as logs have no use for
 * it. */
#ifndef MRIRECON_PROGRESS_H
#define MRIRECON_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { PROGRESS_TEXT = 160 };

struct progress {
    bool terminal, drawn;
    double last;              /* time of the last drawing, seconds */
    char text[PROGRESS_TEXT]; /* drawn last */
};

/* Begin, on stderr. */
void progress_start(struct progress *progress);

/* fraction 0..1; below 0: not known. The text is cut to the terminal's width. */
void progress_tell(struct progress *progress, double fraction, const char *text);

/* Progress of a transfer, for a server_watch; `context` is a struct progress. */
void progress_moved(void *context, int64_t done, int64_t total);

/* Erase the bar, before other output. */
void progress_end(struct progress *progress);

/* The step of a running job, from its document: "density, iteration 12 of 30 (step 5 of 8)"; otherwise its state. */
void progress_step(const json_t *job, char text[PROGRESS_TEXT]);

#endif
