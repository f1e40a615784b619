/* feed.h: which jobs were added, changed their state or were removed, and whose deliveries changed, for streams of
 * events of all jobs.
 *
 * The last FEED_ENTRIES changes are kept in a ring, numbered from 1 in the order of their commits. A reader stores only
 * the number of the last change it has read, so a slow one costs nothing: if the ring overwrites changes that it has
 * not read, it gets FEED_LOST. Any thread; the store's writer adds.
 */
#ifndef MRIRECON_DAEMON_FEED_H
#define MRIRECON_DAEMON_FEED_H

#include "daemon/queue/readers.h"
#include "daemon/queue/waiters.h"
#include "daemon/store/store.h"

enum { FEED_ENTRIES = 2048, FEED_NAME = 16 + 1 };
#define FEED_KEY "jobs" /* the waiters' key of the next change */

struct feed;

/* `readers`: of the changes; they are woken only if there are some. Both outlive the feed. Fails with ERR_NO_MEMORY,
 * ERR_INTERNAL. */
int feed_create(struct feed **out, struct waiters *waiters, struct readers *readers);
void feed_free(struct feed *feed);

/* A job was added, or changed its state; `to` -1: it was removed. In the store's writer. */
void feed_add(struct feed *feed, const char *id, const char *client, int to);
/* Its deliveries were added, or changed their states. In the store's writer. */
void feed_add_deliveries(struct feed *feed, const char *id, const char *client);

/* A random name of this feed: numbers of another feed (the service's before a restart) are not valid in it. */
const char *feed_name(const struct feed *feed);
/* The number of the newest change; 0: none yet. */
int64_t feed_newest(struct feed *feed);

enum feed_what { FEED_JOB, FEED_REMOVED, FEED_DELIVERIES };
struct feed_entry {
    int64_t number;
    char id[JOB_ID];
    enum feed_what what;
    char *text; /* copy (malloc) of the text of feed_keep(); NULL: none yet */
};

enum feed_found { FEED_NEXT, FEED_END, FEED_LOST };
/* The next change after number `after` of a job of `client` (NULL: of anyone) that is the newest of this job, or the
 * newest of its deliveries. FEED_END: there is none; entry->number is the newest one. FEED_LOST: it is no longer in the
 * ring, or `after` is not a number of this feed. */
enum feed_found feed_next(struct feed *feed, int64_t after, const char *client, struct feed_entry *entry);
/* Cache a text for other readers of this change, as long as it is in the ring. */
void feed_keep(struct feed *feed, int64_t number, const char *text);

#endif
