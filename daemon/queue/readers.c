#include "daemon/queue/readers.h"

#include "gridding/base/err.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct reader *next;
    char client[JOB_CLIENT];
    int count;
};

struct readers {
    const char *what;
    int client_most, most;
    pthread_mutex_t lock; /* of the rest */
    struct reader *first;
    int count;
};

int readers_create(struct readers **out, const char *what, int client_most, int most)
{
    struct readers *readers = calloc(1, sizeof *readers);
    if (!readers)
        return err_no_memory("the number of %s", what);
    readers->what = what;
    readers->client_most = client_most;
    readers->most = most;
    pthread_mutex_init(&readers->lock, NULL);
    *out = readers;
    return 0;
}

void readers_free(struct readers *readers)
{
    if (!readers)
        return;
    for (struct reader *reader = readers->first, *next; reader; reader = next) {
        next = reader->next;
        free(reader);
    }
    pthread_mutex_destroy(&readers->lock);
    free(readers);
}

/* The link to the client's entry, or to NULL at the end. */
static struct reader **reader_find(struct readers *readers, const char *client)
{
    struct reader **link = &readers->first;
    while (*link && strcmp((*link)->client, client) != 0)
        link = &(*link)->next;
    return link;
}

int readers_join(struct readers *readers, const char *client)
{
    int rc = 0;
    pthread_mutex_lock(&readers->lock);
    struct reader **link = reader_find(readers, client);
    if (readers->count >= readers->most)
        rc = err_set(ERR_CONNECTIONS,
                     "As many %s are open as the service allows, %d: half of its connections. Try again later.",
                     readers->what, readers->most);
    else if (*link && (*link)->count >= readers->client_most)
        rc = err_set(ERR_QUOTA, "You have %d %s open, as many as one client may have. Close one first.",
                     readers->client_most, readers->what);
    else if (!*link && !(*link = calloc(1, sizeof **link)))
        rc = err_no_memory("another of the %s; try again later", readers->what);
    if (!rc) {
        snprintf((*link)->client, sizeof(*link)->client, "%s", client);
        (*link)->count++;
        readers->count++;
    }
    pthread_mutex_unlock(&readers->lock);
    return rc;
}

void readers_leave(struct readers *readers, const char *client)
{
    pthread_mutex_lock(&readers->lock);
    struct reader **link = reader_find(readers, client), *reader = *link;
    readers->count--;
    if (--reader->count == 0) {
        *link = reader->next;
        free(reader);
    }
    pthread_mutex_unlock(&readers->lock);
}

int readers_count(struct readers *readers)
{
    pthread_mutex_lock(&readers->lock);
    const int count = readers->count;
    pthread_mutex_unlock(&readers->lock);
    return count;
}
