/* http.h: the HTTP side: connections, bodies, dispatch by one table of routes, answers.
 *
 * libmicrohttpd's threads (option http-threads), each with an epoll set, call into http.c; a request is in one thread
 * at a time. Nobody there waits for a worker or a conversion: such a request is suspended (waiters.h) and its handler
 * is called again from the start, so handlers are written to look at what is there now, each time. Nor does anybody
 * there wait for the disk to sync, or make a list: a route's work() is done in a thread of a pool, in the turn of its
 * client, while the request is suspended.
 */
#ifndef MRIRECON_DAEMON_HTTP_H
#define MRIRECON_DAEMON_HTTP_H

#include "daemon/http/connections.h"
#include "daemon/queue/convert.h"
#include "daemon/http/digest.h"
#include "daemon/queue/housekeeper.h"
#include "daemon/http/http_parse.h"
#include "daemon/http/idempotency.h"
#include "daemon/http/listen.h"
#include "daemon/base/pool.h"
#include "daemon/queue/scheduler.h"
#include "daemon/http/tls.h"
#include "daemon/http/tokens.h"
#include "daemon/spool/uploads.h"

#include <microhttpd.h>
#include <stdatomic.h>

/* What requests are served from. All of it outlives the server. */
struct service {
    const struct options *options;
    const struct log *log;
    struct store *store;
    struct spool *spool;
    struct uploads *uploads;
    struct tokens *tokens;
    struct tls *tls; /* NULL: plain HTTP */
    struct connections *connections;
    struct metrics *metrics;
    struct waiters *waiters;
    struct scheduler *scheduler;
    struct converter *converter;
    struct pool *pool, *lists;
    struct keys *keys;
    struct housekeeper *housekeeper;
    bool state_is_known;       /* the state folder was opened, and what a crash left there is seen to */
    char address[LISTEN_NAME]; /* that is served; these two are set by http_create() */
    bool local;                /* only this machine reaches the service */
    _Atomic bool draining;
};

struct request;

enum route_flag {
    ROUTE_QUERY = 1,  /* the query may have parameters, which the route reads; without it there must be none */
    ROUTE_HEALTH = 2, /* answered on surplus connections, too */
    ROUTE_TUS = 4,    /* of uploads in pieces: whatever is answered tells the version of tus */
    ROUTE_LIST = 8,   /* its work is done in the turn of its sender among those that list */
};

#define TUS_VERSION "1.0.0"

struct route {
    const char *method;                     /* a GET is also served to HEAD */
    const char *path;                       /* "/v1/jobs/" + "*": a part that is given */
    enum role access;                       /* the least that its sender has to be */
    int (*begin)(struct request *request);  /* may be NULL: when the headers are there; a failure refuses the body */
    int (*work)(struct request *request);   /* may be NULL: what waits for a disk, once, when the body is there */
    int (*answer)(struct request *request); /* 0: answered or suspended; a failure is answered as a problem */
    unsigned flags;                         /* of enum route_flag */
};
extern const struct route http_routes[]; /* routes.c; ends with .method = NULL */

struct request {
    struct service *service;
    struct MHD_Connection *connection;
    const char *sent;           /* where the library read the target, for comparing addresses only */
    char *uri;                  /* the target as sent; the next three point into it */
    const char *target, *query; /* the path, as sent; what follows "?", or "" */
    const char *host;           /* that is meant; NULL: not said */
    const char *method;
    const struct route *route;
    struct identity identity;                   /* who sends it */
    char allow[64];                             /* the methods that the path takes */
    char part[HTTP_PATH_PARTS][HTTP_PATH_PART]; /* the path's parts */
    struct connection_watch *watch;             /* of its connection */
    bool begun, worked, suspended, answered;
    struct pool_task task; /* of work() */
    unsigned status;
    /* the body */
    struct err refusal; /* code 0: none; else the body is read and dropped */
    int64_t dropped;
    struct spool_file upload;  /* .spool NULL: none */
    struct digest digest;      /* of the body, where the sender told it */
    struct upload_chunk chunk; /* .uploads NULL: none */
    struct idempotency idempotency;
    /* a submit */
    struct job job; /* id "": not submitted yet */
    bool replayed;  /* it is the job of an earlier request with this key */
    int removed;    /* jobs, by a purge */
    char *page;     /* of a list; malloc */
    struct waiter waiter;
    bool watched;        /* the job is to be canceled where the sender goes away while it waits */
    int wait;            /* Prefer: wait, s; -1: none */
    bool strict;         /* Prefer: handling=strict: a wait that is over before the job is an error */
    int format;          /* of the image that Accept names; -1: none */
    uint64_t conversion; /* that it asked for, as its ticket; 0: none */
    double deadline;
};

struct http;

/* Serve on options->listen; *port is the one that is served. Fails with ERR_BAD_PARAMETER (not an address; one that
 * other machines reach, without TLS and tokens), ERR_IO (taken). */
int http_create(struct http **out, struct service *service, int *port);
/* Closes the socket and every connection. pool_close() and then waiters_close() come first. */
void http_free(struct http *http);

/* ---- for routes ---- */

const char *http_header(struct request *request, const char *name); /* NULL: not sent */

/* Bytes that the body will have; -1: not known, chunked; 0: none. */
int64_t http_body_bytes(struct request *request);

/* Answer. `headers`: NULL-terminated pairs {name, value, ..., NULL}. `text` is taken (malloc). */
int http_answer(struct request *request, unsigned status, const char *media, char *text, const char *const *headers);
/* What JSON, which is taken, is sent as (malloc); NULL: no memory. */
char *http_json_text(json_t *document);
/* The same with JSON, which is taken. */
int http_answer_json(struct request *request, unsigned status, json_t *document, const char *const *headers);
/* A problem document of a failure, with the headers that its code asks for. `problem` is taken. */
int http_answer_problem(struct request *request, json_t *problem, const char *const *headers);
/* Part of a file; `fd` is taken. */
int http_answer_file(struct request *request, unsigned status, int fd, int64_t offset, int64_t bytes,
                     const char *const *headers);
/* An answer that is made as it is sent: `reader` gives bytes; 0 where it has suspended the
 * connection (waiters_wait), MHD_CONTENT_READER_END_OF_STREAM at the end. `release` is called when the answer is
 * over, or could not be begun. */
int http_answer_stream(struct request *request, unsigned status, const char *media, MHD_ContentReaderCallback reader,
                       void *context, void (*release)(void *context), const char *const *headers);
/* Suspend until `key` is woken or `deadline`. false: nobody waits any more. */
bool http_wait(struct request *request, const char *key, double deadline);

#endif
