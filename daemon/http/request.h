/* request.h: a request in progress: its head, its sender, and the state of its handlers.
 *
 * A request is in one thread at a time. Handlers read it by these functions and answer it by http_answer.h; http.c
 * manages it from its first line to its end.
 */
#ifndef MRIRECON_DAEMON_REQUEST_H
#define MRIRECON_DAEMON_REQUEST_H

#include "daemon/http/connections.h"
#include "daemon/queue/convert.h"
#include "daemon/http/digest.h"
#include "daemon/queue/feed.h"
#include "daemon/queue/housekeeper.h"
#include "daemon/http/http_fields.h"
#include "daemon/http/http_parse.h"
#include "daemon/http/idempotency.h"
#include "daemon/http/listen.h"
#include "daemon/http/sessions.h"
#include "daemon/http/stream_body.h"
#include "daemon/base/pool.h"
#include "daemon/outbox/outbox.h"
#include "daemon/queue/scheduler.h"
#include "daemon/http/tls.h"
#include "daemon/http/tokens.h"
#include "daemon/spool/uploads.h"

#include <microhttpd.h>
#include <stdatomic.h>

/* The parts of the daemon that requests use. All outlive the server. */
struct service {
    struct core core;
    struct uploads *uploads;
    struct tokens *tokens;
    struct destinations *destinations;
    struct outbox *outbox;
    struct sessions *sessions;
    struct tls *tls;   /* NULL: plain HTTP */
    struct page *page; /* NULL: no web page */
    struct connections *connections;
    struct scheduler *scheduler;
    struct feed *feed;
    struct readers *event_readers, *image_readers;
    struct converter *converter;
    struct pool *pool, *lists;
    struct idempotency_keys *keys;
    struct housekeeper *housekeeper;
    bool state_is_known;       /* the state folder was opened, and recovered if necessary */
    char address[LISTEN_NAME]; /* listened on; http_create() sets this and `local` */
    bool local;                /* only this machine can reach the service */
    _Atomic bool draining;
};

struct request;

enum route_flag {
    ROUTE_QUERY = 1,  /* the route reads query parameters; without this flag there must be none */
    ROUTE_HEALTH = 2, /* answered on surplus connections, too */
    ROUTE_TUS = 4,    /* of resumable uploads: each answer has the version of tus */
    ROUTE_LIST = 8,   /* work() runs in the pool for lists, in its sender's turn */
    ROUTE_LOGIN = 32, /* failed attempts are counted per address, and the sender is logged */
    ROUTE_HTML = 16,  /* the path's route for senders that ask for HTML */
    ROUTE_ENDS = 64,  /* shows or takes the ends of jobs: of the one that the path names, or of any */
};

#define TUS_VERSION "1.0.0"

struct route {
    const char *method;                    /* a GET is also served to HEAD */
    const char *path;                      /* "/v1/jobs/" + "*": "*" matches one part */
    enum role access;                      /* the least role that its sender needs */
    int (*begin)(struct request *request); /* may be NULL; called after the headers; a failure refuses the body */
    int (*work)(struct request *request);  /* may be NULL; called once after the body, in a pool: may wait for a disk */
    int (*answer)(struct request *request); /* 0: answered or suspended; the answer to a failure is a problem */
    unsigned flags;                         /* of enum route_flag */
};

/* The states of a request:
 *
 *   HEAD -> BODY                 the head is complete: http.c checks it and calls the route's begin()
 *   BODY -> WORK -> ANSWER       the body is complete: work() runs in a pool while the connection is suspended
 *   BODY -> ANSWER               the same, of a route without work()
 *   ANSWER -> WAITING -> ANSWER  answer() suspended the connection (http_wait) and is called again when it is resumed
 *   ANSWER -> ANSWERED           a response is queued
 *   BODY, WORK -> ANSWERED       the response is a refusal
 *
 * In any state a request can end because its sender disconnects or the service stops. */
enum request_state { REQUEST_HEAD, REQUEST_BODY, REQUEST_WORK, REQUEST_ANSWER, REQUEST_WAITING, REQUEST_ANSWERED };

struct request {
    struct service *service;
    struct MHD_Connection *connection;
    const char *sent;           /* the library's copy of the target, for comparing addresses only */
    char *uri;                  /* the target as sent; the next three point into it */
    const char *target, *query; /* the path, as sent; the part after "?", or "" */
    const char *host;           /* of the Host header or the target; NULL: none */
    const char *method;
    const struct route *route;
    char session[SESSION_TEXT];                 /* id of the session whose cookie identified the sender; "": none */
    double session_end;                         /* clock_seconds() */
    struct identity identity;                   /* of the sender */
    char allow[64];                             /* the path's methods */
    char part[HTTP_PATH_PARTS][HTTP_PATH_PART]; /* the path's parts */
    struct connection_watch *watch;             /* of its connection */
    enum request_state state;
    struct pool_task task; /* of work() */
    unsigned status;
    /* the body */
    struct err refusal; /* code 0: none; else the body is read and dropped */
    int64_t dropped;
    struct spool_file upload;  /* .spool NULL: none */
    struct stream_body stream; /* of a submission */
    struct digest digest;      /* of the body, if the sender announced one */
    struct upload_chunk chunk; /* .uploads NULL: none */
    int64_t left;              /* of a created upload: ms until it is removed */
    struct idempotency idempotency;
    /* a submit */
    struct job job; /* id "": not submitted yet */
    bool replayed;  /* the job is that of an earlier request with this key */
    int removed;    /* jobs, by a purge */
    char *page;     /* of a list; malloc */
    struct waiter waiter;
    bool late;            /* the job has not written the format that it wants: it is answered after the job's end */
    char awaited[JOB_ID]; /* the job whose end is awaited (ROUTE_ENDS), until then */
    double awaited_until; /* clock_seconds(); 0: none was */
    bool watched;         /* cancel the job if the sender disconnects while it waits */
    int wait;             /* Prefer: wait, s; -1: none */
    bool strict;          /* Prefer: handling=strict: it is an error if the wait ends before the job */
    int format;           /* of the default result, selected by Accept; -1: none */
    bool multipart;       /* Accept has multipart/mixed: its images are sent one by one */
    char live[JOB_ID];    /* the id of the live entry for them; "": none */
    char view[VIEW_TEXT]; /* of the result, in the form of view_print(); "": none */
    uint64_t conversion;  /* ticket of a requested conversion; 0: none */
    double deadline;
};

const char *http_header(struct request *request, const char *name); /* NULL: not sent */

/* Announced size of the body in bytes; -1: unknown, chunked; 0: none. */
int64_t http_body_bytes(struct request *request);

/* The client to which fair shares and quotas attribute the request. Fails with ERR_BAD_REQUEST. */
int request_client(struct request *request, char name[JOB_CLIENT]);
/* The client in whose turn a pool runs the request's work. */
void request_turn(struct request *request, char name[JOB_CLIENT]);
/* The client's address. */
void request_peer(const struct request *request, char name[JOB_CLIENT]);
/* Among whose streams this one counts: its token's client, or the address, not the name in the client's own header:
 * with that it could open any number. */
void request_counted(const struct request *request, char name[JOB_CLIENT]);

/* Suspend until `key` is woken or `deadline`. false: the service stops, no request may wait. */
bool http_wait(struct request *request, const char *key, double deadline);

#endif
