/* outbox_parts.h: shared by daemon/outbox/outbox*.c, and included only there. */
#ifndef MRIRECON_DAEMON_OUTBOX_PARTS_H
#define MRIRECON_DAEMON_OUTBOX_PARTS_H

#include "daemon/outbox/outbox.h"
#include "recon/recon.h"

#include <pthread.h>
#include <sys/types.h>

/* A delivery in progress. */
struct sending {
    struct delivery delivery; /* .sequence 0: none */
    struct destination to;
    const struct kind *kind; /* of the job, once its results were looked up */
    unsigned results;        /* bits of those whose DICOM files are still to be opened */
    int file[KIND_MAX_RESULTS], files;
    uint64_t ticket;   /* of a conversion; 0: none */
    pid_t pid;         /* 0: not started yet: files are being converted */
    int pidfd, socket; /* -1: none */
    double end;        /* clock_seconds() when the sender is killed; once `ended`: of the next attempt to store that */
    bool ended;        /* the attempt is over, and the store has failed to record its outcome: */
    enum delivery_state outcome;
    int64_t pause; /* ms until the next attempt */
    char answer[DELIVERY_ANSWER];
};

enum { OUTBOX_COUNTED = 32 };

/* Counts of attempts' outcomes, by destination. */
struct outbox_count {
    char name[DELIVERY_NAME];
    uint64_t attempts, delivered, dead;
};

struct outbox {
    struct core core;
    struct destinations *destinations;
    struct converter *converter;
    const char *program;
    pthread_t thread;
    int wake; /* eventfd */
    _Atomic bool stopping;
    bool troubled;                          /* the store failed, and the log says so */
    struct sending sending[OUTBOX_SENDERS]; /* of the thread */
    pthread_mutex_t lock;                   /* of the members below */
    struct outbox_count count[OUTBOX_COUNTED];
    int counted;
};

/* ---- outbox_message.c ---- */

/* The message to the sender of this delivery (daemon/send/send.h); NULL: failed (failure set). */
json_t *outbox_message(struct outbox *outbox, const struct sending *sending);

/* ---- outbox_files.c ---- */

/* Open the DICOM files of the job. ERR_NOT_DONE: some are being converted; call again. Fails with ERR_NOT_ACCEPTABLE
 * (no result can be DICOM), and as spool_result_open() and converter_ask(). */
int outbox_files_open(struct outbox *outbox, struct sending *sending);
/* Also withdraws a requested conversion. */
void files_close(struct outbox *outbox, struct sending *sending);

/* ---- outbox_metrics.c ---- */

/* Count an attempt that has ended with the delivery in this state. */
void outbox_count(struct outbox *outbox, const char *destination, enum delivery_state state);

#endif
