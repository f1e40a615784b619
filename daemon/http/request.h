/* request.h: a request while it is served: what it says, who it is from, and what its handlers keep of it.
 *
 * A request is in one thread at a time. Handlers read it here, and answer it by http_answer.h; http.c takes it from its
 * first line to its end.
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
#include "daemon/base/pool.h"
#include "daemon/outbox/outbox.h"
#include "daemon/queue/scheduler.h"
#include "daemon/http/tls.h"
#include "daemon/http/tokens.h"
#include "daemon/spool/uploads.h"

#include <microhttpd.h>
#include <stdatomic.h>

/* What requests are served from. All of it outlives the server. */
struct service {
    struct core core;
    struct uploads *uploads;
    struct tokens *tokens;
    struct destinations *destinations;
    struct outbox *outbox;
    struct sessions *sessions;
    struct tls *tls;   /* NULL: plain HTTP */
    struct page *page; /* NULL: there is none */
    struct connections *connections;
    struct scheduler *scheduler;
    struct feed *feed;
    struct converter *converter;
    struct pool *pool, *lists;
    struct idempotency_keys *keys;
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
    ROUTE_TUS = 4,    /* of resumable uploads: whatever is answered tells the version of tus */
    ROUTE_LIST = 8,   /* its work is done in the turn of its sender among those that list */
    ROUTE_LOGIN = 32, /* the attempts of an address are counted, and who does it is logged */
    ROUTE_HTML = 16,  /* served in place of the same path's other route to a sender that asks for HTML */
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

/* Where a request is:
 *
 *   HEAD -> BODY                 the head is there: http.c checks it and calls the route's begin()
 *   BODY -> WORK -> ANSWER       the body is there: work() runs in a pool, the connection suspended meanwhile
 *   BODY -> ANSWER               of a route without work()
 *   ANSWER -> WAITING -> ANSWER  answer() suspended the connection (http_wait) and is called again when it is resumed
 *   ANSWER -> ANSWERED           a response is queued
 *   BODY, WORK -> ANSWERED       the response is a refusal
 *
 * A request may end in any of them, when its sender goes away or the service stops. */
enum request_state { REQUEST_HEAD, REQUEST_BODY, REQUEST_WORK, REQUEST_ANSWER, REQUEST_WAITING, REQUEST_ANSWERED };

struct request {
    struct service *service;
    struct MHD_Connection *connection;
    const char *sent;           /* where the library read the target, for comparing addresses only */
    char *uri;                  /* the target as sent; the next three point into it */
    const char *target, *query; /* the path, as sent; what follows "?", or "" */
    const char *host;           /* that is meant; NULL: not said */
    const char *method;
    const struct route *route;
    char session[SESSION_TEXT];                 /* by whose cookie it is identified; "": by none */
    double session_end;                         /* clock_seconds() */
    struct identity identity;                   /* who sends it */
    char allow[64];                             /* the methods that the path takes */
    char part[HTTP_PATH_PARTS][HTTP_PATH_PART]; /* the path's parts */
    struct connection_watch *watch;             /* of its connection */
    enum request_state state;
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
    bool watched;         /* the job is to be canceled where the sender goes away while it waits */
    int wait;             /* Prefer: wait, s; -1: none */
    bool strict;          /* Prefer: handling=strict: a wait that is over before the job is an error */
    int format;           /* of the default result, that Accept names; -1: none */
    char view[VIEW_TEXT]; /* of the result, as view_print(); "": none */
    uint64_t conversion;  /* that it asked for, as its ticket; 0: none */
    double deadline;
};

const char *http_header(struct request *request, const char *name); /* NULL: not sent */

/* Bytes that the body will have; -1: not known, chunked; 0: none. */
int64_t http_body_bytes(struct request *request);

/* Who sends this request, as fair shares and quotas know it. Fails with ERR_BAD_REQUEST. */
int request_client(struct request *request, char name[JOB_CLIENT]);
/* The client in whose turn its work is done in a pool. */
void request_turn(struct request *request, char name[JOB_CLIENT]);
/* Whether its other side has closed, or sends no more. */
bool request_is_gone(const struct request *request);
/* The address it comes from. */
void request_peer(const struct request *request, char name[JOB_CLIENT]);

/* Suspend until `key` is woken or `deadline`. false: nobody waits any more. */
bool http_wait(struct request *request, const char *key, double deadline);

#endif
