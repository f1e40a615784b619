/* deliveries.h: the outbox: notifications of ended jobs, one row for each job and destination.
 *
 * The rows of a job are inserted in the transaction that commits its end, so that neither exists without the other. A
 * delivery is tried until it is delivered or dead; while it is pending or being sent, the job is not removed for its
 * age or for space (store_ended()). It is removed with its job.
 *
 *   pending -> sending -> delivered | dead | pending (to be tried again)
 *   dead, delivered -> pending     sent again on request
 *
 * Threads, times and failures as in store.h.
 */
#ifndef MRIRECON_DAEMON_DELIVERIES_H
#define MRIRECON_DAEMON_DELIVERIES_H

#include "daemon/store/store.h"

enum delivery_state { DELIVERY_PENDING, DELIVERY_SENDING, DELIVERY_DELIVERED, DELIVERY_DEAD, DELIVERY_STATES };
const char *delivery_state_name(enum delivery_state state);
int delivery_state_find(const char *name); /* -1: none */

enum { DELIVERY_NAME = 40 + 1, DELIVERY_ANSWER = 300 };

struct delivery {
    int64_t sequence; /* order of insertion; larger is newer */
    char job[JOB_ID];
    char destination[DELIVERY_NAME];
    char client[JOB_CLIENT]; /* the job's */
    enum delivery_state state;
    int64_t attempts;             /* since it was inserted or sent again */
    int64_t created, due, ended;  /* due: of the next attempt; ended: delivered or dead, 0: not yet */
    char answer[DELIVERY_ANSWER]; /* of the last attempt; "": none */
};

/* The properties of an ended job that decide where it is sent. */
struct job_end {
    const char *kind, *client, *name;
    const char *asked; /* names requested by its sender, separated by commas; "": none */
    enum job_state state;
};
/* `route` returns the names of the destinations of an ended job as a new JSON array; NULL: none. In the writer's
 * thread: it must be quick and not call the store. */
struct store_router {
    json_t *(*route)(void *context, const struct job_end *end);
    void *context;
};
/* Set the router, for jobs that end from now on. Without one no deliveries are added. */
void store_route(struct store *store, struct store_router router);

/* pending -> sending, counting an attempt, of the delivery that has been due longest and whose destination is not in
 * `busy` (a JSON array; NULL: empty). *found: there is one. */
int store_delivery_claim(struct store *store, json_t *busy, struct delivery *out, bool *found);
/* When the next pending delivery to a destination not in `busy` is due, ms since 1970; 0: there is none. */
int store_delivery_next(struct store *store, json_t *busy, int64_t *due);

/* sending -> `state`; with DELIVERY_PENDING, to be tried again after `pause` ms. Fails with ERR_NOT_FOUND: the job was
 * deleted meanwhile. */
int store_delivery_end(struct store *store, const struct delivery *delivery, enum delivery_state state, int64_t pause,
                       const char *answer);

/* Have an ended job sent to this destination now: again, or for the first time. Fails with ERR_NOT_FOUND, ERR_CONFLICT
 * (the job has not ended, or it is being sent). */
int store_delivery_send(struct store *store, const char *id, const char *destination);

struct delivery_filter {
    int64_t before;          /* older than the one with this sequence; 0: from the newest */
    int state;               /* -1: any */
    const char *job;         /* NULL: any */
    const char *destination; /* NULL: any */
    const char *client;      /* NULL: any */
};
/* Up to `limit` deliveries, newest first. */
int store_deliveries(struct store *store, const struct delivery_filter *filter, struct delivery *list, int limit,
                     int *count);

struct delivery_counts {
    int64_t pending, sending, dead;
    int64_t oldest; /* creation of the oldest that is neither delivered nor dead; 0: there is none */
};
int store_delivery_counts(struct store *store, struct delivery_counts *out);

#endif
