/* outbox_parts.h: shared by daemon/outbox/outbox*.c, and included only there. */
#ifndef MRIRECON_DAEMON_OUTBOX_PARTS_H
#define MRIRECON_DAEMON_OUTBOX_PARTS_H

#include "daemon/outbox/outbox.h"
#include "recon/recon.h"

#include <pthread.h>
#include <sys/types.h>

/* A delivery under way. */
struct sending {
    struct delivery delivery; /* .sequence 0: none */
    struct destination to;
    const struct kind *kind; /* of the job, once its results are looked up */
    unsigned results;        /* bits of those whose DICOM files are still to be opened */
    int file[KIND_MAX_RESULTS], files;
    uint64_t ticket;   /* of a conversion; 0: none */
    pid_t pid;         /* 0: there is no sender yet: files are being made */
    int pidfd, socket; /* -1: none */
    double end;        /* clock_seconds() when it is given up */
};

enum { OUTBOX_COUNTED = 32 };

/* What became of attempts, by destination. */
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
    pthread_mutex_t lock;                   /* of what follows */
    struct outbox_count count[OUTBOX_COUNTED];
    int counted;
};

/* ---- outbox_message.c ---- */

/* What the sender of this delivery is told, as daemon/send/send.h has it; NULL: failed (failure set). */
json_t *outbox_message(struct outbox *outbox, const struct sending *sending);

/* ---- outbox_files.c ---- */

/* Open the DICOM files of the job. ERR_NOT_DONE: some are being made; ask again. Fails with ERR_NOT_ACCEPTABLE: there
 * can be none, and as spool_result_open() and converter_ask(). */
int files_open(struct outbox *outbox, struct sending *sending);
/* Also ends a conversion that is asked for. */
void files_close(struct outbox *outbox, struct sending *sending);

/* ---- outbox_metrics.c ---- */

/* An attempt has ended with the delivery in this state. */
void outbox_count(struct outbox *outbox, const char *destination, enum delivery_state state);

#endif
