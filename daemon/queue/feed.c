#include "daemon/queue/feed.h"

#include "daemon/base/clock.h"
#include "daemon/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct feed_change {
    char id[JOB_ID], client[JOB_CLIENT];
    enum feed_what what;
    bool stale; /* a newer change follows that includes this one */
    char *text;
};

/* A thread wakes the readers: waking a thousand takes some ten milliseconds, for which the store's writer must not
 * wait. */
#define WAKE_SECONDS 0.05 /* minimum interval */

struct feed {
    struct waiters *waiters;
    struct readers *readers;
    char name[FEED_NAME];
    pthread_t thread;
    pthread_cond_t news;
    pthread_mutex_t lock;                    /* of the rest */
    struct feed_change change[FEED_ENTRIES]; /* change n is at n % FEED_ENTRIES */
    bool changed, closing;                   /* for the thread */
    int64_t newest;
};

static void *wake_readers(void *context)
{
    struct feed *feed = context;
    pthread_mutex_lock(&feed->lock);
    while (!feed->closing) {
        if (!feed->changed) {
            pthread_cond_wait(&feed->news, &feed->lock);
            continue;
        }
        feed->changed = false;
        pthread_mutex_unlock(&feed->lock);
        waiters_wake(feed->waiters, FEED_KEY);
        pthread_mutex_lock(&feed->lock);
        double until = clock_seconds() + WAKE_SECONDS;
        while (!feed->closing && thread_cond_wait(&feed->news, &feed->lock, until) == 0)
            ;
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

int feed_create(struct feed **out, struct waiters *waiters, struct readers *readers)
{
    unsigned long long random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(ERR_INTERNAL, "The system returned no random numbers for the name of the events.");
    struct feed *feed = calloc(1, sizeof *feed);
    if (!feed)
        return err_no_memory("the list of changes");
    feed->waiters = waiters;
    feed->readers = readers;
    snprintf(feed->name, sizeof feed->name, "%016llx", random);
    pthread_mutex_init(&feed->lock, NULL);
    thread_cond_init(&feed->news);
    int rc = thread_start(&feed->thread, wake_readers, feed, "wakes the readers of events");
    if (rc) {
        pthread_mutex_destroy(&feed->lock);
        pthread_cond_destroy(&feed->news);
        free(feed);
        return rc;
    }
    *out = feed;
    return 0;
}

void feed_free(struct feed *feed)
{
    if (!feed)
        return;
    pthread_mutex_lock(&feed->lock);
    feed->closing = true;
    pthread_cond_signal(&feed->news);
    pthread_mutex_unlock(&feed->lock);
    pthread_join(feed->thread, NULL);
    for (int i = 0; i < FEED_ENTRIES; i++)
        free(feed->change[i].text);
    pthread_cond_destroy(&feed->news);
    pthread_mutex_destroy(&feed->lock);
    free(feed);
}

/* Whether a change of the same job makes an earlier one stale: a removal ends its deliveries, too. */
static bool supersedes(enum feed_what what, enum feed_what earlier)
{
    return what == FEED_REMOVED || (what == FEED_DELIVERIES) == (earlier == FEED_DELIVERIES);
}

static void change_add(struct feed *feed, const char *id, const char *client, enum feed_what what)
{
    pthread_mutex_lock(&feed->lock);
    for (int i = 0; i < FEED_ENTRIES; i++) {
        struct feed_change *earlier = &feed->change[i];
        if (!earlier->stale && strcmp(earlier->id, id) == 0 && supersedes(what, earlier->what))
            earlier->stale = true;
    }
    struct feed_change *change = &feed->change[++feed->newest % FEED_ENTRIES];
    free(change->text);
    *change = (struct feed_change){.what = what};
    snprintf(change->id, sizeof change->id, "%s", id);
    snprintf(change->client, sizeof change->client, "%s", client);
    feed->changed = true;
    if (readers_count(feed->readers) > 0)
        pthread_cond_signal(&feed->news);
    pthread_mutex_unlock(&feed->lock);
}

void feed_add(struct feed *feed, const char *id, const char *client, int to)
{
    change_add(feed, id, client, to < 0 ? FEED_REMOVED : FEED_JOB);
}

void feed_add_deliveries(struct feed *feed, const char *id, const char *client)
{
    change_add(feed, id, client, FEED_DELIVERIES);
}

const char *feed_name(const struct feed *feed)
{
    return feed->name;
}

int64_t feed_newest(struct feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    int64_t newest = feed->newest;
    pthread_mutex_unlock(&feed->lock);
    return newest;
}

enum feed_found feed_next(struct feed *feed, int64_t after, const char *client, struct feed_entry *entry)
{
    enum feed_found found = FEED_END;
    pthread_mutex_lock(&feed->lock);
    *entry = (struct feed_entry){.number = feed->newest};
    if (after < 0 || after > feed->newest || feed->newest - after > FEED_ENTRIES)
        found = FEED_LOST;
    for (int64_t number = after + 1; found == FEED_END && number <= feed->newest; number++) {
        const struct feed_change *change = &feed->change[number % FEED_ENTRIES];
        if (change->stale || (client && strcmp(change->client, client) != 0))
            continue;
        entry->number = number;
        entry->what = change->what;
        memcpy(entry->id, change->id, sizeof entry->id);
        entry->text = change->text ? strdup(change->text) : NULL;
        found = FEED_NEXT;
    }
    pthread_mutex_unlock(&feed->lock);
    return found;
}

void feed_keep(struct feed *feed, int64_t number, const char *text)
{
    pthread_mutex_lock(&feed->lock);
    struct feed_change *change = &feed->change[number % FEED_ENTRIES];
    if (feed->newest - number < FEED_ENTRIES && !change->text)
        change->text = strdup(text); /* without memory, the next reader makes it again */
    pthread_mutex_unlock(&feed->lock);
}
