/* metrics.h: what /metrics tells (Prometheus text format 0.0.4). Any thread; one lock inside, held for a few additions.
 *
 * Labels hold no ids and nothing that a sender chose: kinds, codes of err.h, names of stages and devices.
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
/* An upload was accepted; `format`: as scan_sniff() says. */
void metrics_ingested(struct metrics *metrics, const char *format, int64_t bytes);
void metrics_rejected(struct metrics *metrics, int code); /* an upload was refused */
void metrics_started(struct metrics *metrics, double waited);
void metrics_retried(struct metrics *metrics);
/* A job went back into the queue because the server was short of something of its own; `code` says of what. */
void metrics_put_back(struct metrics *metrics, int code);
void metrics_canceled(struct metrics *metrics);
/* A job ran to success; stages and samples are taken from its report. */
void metrics_succeeded(struct metrics *metrics, const char *kind, double seconds, const json_t *report);
/* A job began on the CPU for want of a GPU. */
void metrics_fell_back(struct metrics *metrics);
/* A GPU failed (ERR_DEVICE), or had not the memory for a job (ERR_GPU_OOM). */
void metrics_gpu_failed(struct metrics *metrics, const char *device, int code);
void metrics_failed(struct metrics *metrics, const char *kind, int code, double seconds);
/* Ended jobs were removed, for their age and for room, and of others the scans. */
void metrics_removed(struct metrics *metrics, int old, int large, int scans);
void metrics_answered(struct metrics *metrics, const char *method, unsigned status);

struct metrics_gpu {
    const char *device;
    int64_t used, total; /* bytes */
};

/* What is asked for at the moment of reading. */
struct metrics_now {
    int64_t waiting[PRIORITIES];
    bool ready;
    int64_t certificate_end;           /* s since 1970; 0: there is none */
    bool held;                         /* no job is begun, for the disk is low or fails */
    int64_t running, capacity, oldest; /* oldest: ms since 1970, 0: none waits */
    int64_t spool_used, spool_free, disk_bytes, disk_free;
    int found;                 /* scans and results kept aside, for no job knows of them */
    int64_t ended[JOB_STATES]; /* jobs that have ended and are kept */
    struct kept kept;
    int64_t keep_bytes, keep_seconds; /* 0: any */
    int workers, workers_ready, workers_resting;
    const struct metrics_gpu *gpu; /* [gpus] */
    int gpus;
};
void metrics_print(struct metrics *metrics, const struct metrics_now *now, FILE *out);

#endif
