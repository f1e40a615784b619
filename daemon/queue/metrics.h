/* metrics.h: counters and the text of /metrics (Prometheus text format 0.0.4). Any thread; one internal lock, held for
 * a few additions.
 *
 * Labels contain no ids and no text from clients: kinds, codes of err.h, names of stages and devices.
 */
#ifndef MRIRECON_DAEMON_METRICS_H
#define MRIRECON_DAEMON_METRICS_H

#include "daemon/store/store.h"

#include <jansson.h>
#include <stdio.h>

struct metrics;

int metrics_create(struct metrics **out);
void metrics_free(struct metrics *metrics);

void metrics_submitted(struct metrics *metrics, const char *kind);
/* An upload was accepted; `format`: of scan_sniff(). */
void metrics_ingested(struct metrics *metrics, const char *format, int64_t bytes);
void metrics_rejected(struct metrics *metrics, int code); /* an upload was refused */
void metrics_started(struct metrics *metrics, double waited);
void metrics_retried(struct metrics *metrics);
/* A job was queued again because of a shortage of the server's own (SHORTAGES in scheduler.h); `code` says of what. */
void metrics_put_back(struct metrics *metrics, int code);
void metrics_canceled(struct metrics *metrics);
/* A job succeeded; stages and samples are taken from its report. */
void metrics_succeeded(struct metrics *metrics, const char *kind, double seconds, const json_t *report);
/* A job started on the CPU because there is no GPU. */
void metrics_fell_back(struct metrics *metrics);
/* A GPU failed (ERR_DEVICE) or ran out of memory (ERR_GPU_OOM). */
void metrics_gpu_failed(struct metrics *metrics, const char *device, int code);
void metrics_failed(struct metrics *metrics, const char *kind, int code, double seconds);
/* Ended jobs were removed by age (old) and by size (large), and scans of further jobs. */
void metrics_removed(struct metrics *metrics, int old, int large, int scans);
/* How an MRD session ended. ANSWERED: the images were sent; FAILED: the job's error was sent; LEFT: the client
 * disconnected, or the service stopped, before the job's end; REFUSED: the stream was refused; BROKEN: it ended without
 * CLOSE; EMPTY: it was only CLOSE. */
enum metrics_session {
    METRICS_SESSION_ANSWERED,
    METRICS_SESSION_FAILED,
    METRICS_SESSION_LEFT,
    METRICS_SESSION_REFUSED,
    METRICS_SESSION_BROKEN,
    METRICS_SESSION_EMPTY,
    METRICS_SESSIONS
};
const char *metrics_session_name(enum metrics_session end); /* "answered", ... */
void metrics_session_began(struct metrics *metrics);
void metrics_session_ended(struct metrics *metrics, enum metrics_session end);
void metrics_answered(struct metrics *metrics, const char *method, unsigned status);

struct metrics_gpu {
    const char *device;
    int64_t used, total; /* bytes */
};

/* Gauges, read when /metrics is requested. */
struct metrics_now {
    int64_t waiting[PRIORITIES];
    bool ready;
    int64_t certificate_end;           /* s since 1970; 0: there is none */
    bool held;                         /* no job starts: the disk is full or failing */
    int64_t running, capacity, oldest; /* oldest: ms since 1970, 0: none waits */
    int64_t spool_used, spool_free, disk_bytes, disk_free;
    int sessions;              /* logins of browsers */
    int streams;               /* open streams of the events of all jobs */
    int found;                 /* scans and results without a job, in found-TIME folders */
    int64_t ended[JOB_STATES]; /* jobs that have ended and are kept */
    struct kept kept;
    int64_t keep_bytes, keep_seconds; /* 0: any */
    int workers, workers_ready, workers_resting;
    const struct metrics_gpu *gpu; /* [gpus] */
    int gpus;
};
void metrics_print(struct metrics *metrics, const struct metrics_now *now, FILE *out);

#endif
