/* batch_jobs.h: the scans of a folder as jobs of a server, some at a time, their results saved to another folder, with
 * a journal there, from which an interrupted command continues. Shared by `mrirecon batch` and `mrirecon watch`. */
#ifndef MRIRECON_BATCH_JOBS_H
#define MRIRECON_BATCH_JOBS_H

#include "clients/batch_folder.h"
#include "clients/client.h"
#include "clients/progress.h"
#include "clients/result.h"

#define LOOK_SECONDS 0.25 /* between two polls of the server */

struct batch {
    struct server *server;
    const struct client_options *options;
    const char *folder, *out;
    bool endless; /* waits for an unreachable server without limit; prints the names of saved results */
    struct client_result result;
    char *path;   /* of a submission */
    char *inside; /* the folder for results, if it is the default one */
    struct scan_entry *scan;
    int count;
    struct journal *journal;
    struct progress progress;
    double answered;         /* time of the server's last answer; 0: none yet */
    double send_at;          /* no scan is sent before this time */
    int waits_for;           /* the failure reported last as the reason for waiting; 0: none */
    char now[PROGRESS_TEXT]; /* progress of a running job; "": none runs */
};

/* Fill in the members that follow from `options`, with `priority` as the default of that option. CLIENT_OK, or the exit
 * status after the reason was printed. */
int batch_create(struct batch *batch, struct server *server, const struct client_options *options,
                 const char *priority);
void batch_clear(struct batch *batch);

/* Make the folder for results and open the journal in it. The folder's scans are not read. Fails with ERR_IO,
 * ERR_NO_MEMORY. */
int batch_open(struct batch *batch);

/* Fill in the states of entries that an earlier run has sent. Fails with ERR_IO, ERR_NO_MEMORY. */
int batch_resume(struct batch *batch, struct scan_entry *entry, int count);

/* Send new scans, up to the limit, and poll each scan on the server, except those that wait (scan_entry.not_before).
 * *idle: nothing more can be sent before the next poll. Fails with errors that concern every scan, and ERR_CANCELED. */
int batch_round(struct batch *batch, bool *idle);

/* Print the calling thread's failure as the reason for waiting. */
void batch_waits_for_failure(struct batch *batch);

/* The number of entries in a state. */
int batch_count(const struct batch *batch, enum scan_state state);

/* Draw the progress. */
void batch_tell(struct batch *batch);

#endif
