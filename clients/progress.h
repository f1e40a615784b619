/* progress.h: how far something is, told on stderr: one moving bar on a terminal, a line per stage elsewhere. */
#ifndef MRIRECON_PROGRESS_H
#define MRIRECON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool terminal, drawn;
    double last;    /* when a bar was drawn last, seconds */
    char stage[64]; /* the stage told last */
};

/* On stderr as it is now. */
void progress_start(struct progress *progress);

/* fraction 0..1; below 0: not known. */
void progress_tell(struct progress *progress, double fraction, const char *stage);

/* Bytes that move, for a service_watch; `context` is a struct progress. */
void progress_moved(void *context, int64_t done, int64_t total);

/* Remove the bar, so that something else can be written. */
void progress_end(struct progress *progress);

#endif
