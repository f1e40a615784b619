#include "daemon/queue/live.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

struct entry {
    struct entry *next;
    char id[JOB_ID];
    int file, event, holders;
    int64_t shown;
};

struct live {
    pthread_mutex_t lock; /* of the entries */
    struct entry *first;
};

int live_create(struct live **out)
{
    struct live *live = calloc(1, sizeof *live);
    if (!live)
        return err_no_memory("the list of images that are sent early");
    pthread_mutex_init(&live->lock, NULL);
    *out = live;
    return 0;
}

void live_free(struct live *live)
{
    if (!live)
        return;
    pthread_mutex_destroy(&live->lock);
    free(live);
}

/* Where the entry hangs; *NULL: there is none. Under the lock. */
static struct entry **entry_find(struct live *live, const char *id)
{
    struct entry **link = &live->first;
    while (*link && strcmp((*link)->id, id) != 0)
        link = &(*link)->next;
    return link;
}

int live_open(struct live *live, const char *id, int file, int event)
{
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return err_no_memory("images that are sent early");
    memcpy(entry->id, id, strnlen(id, JOB_ID - 1));
    entry->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    entry->event = event;
    entry->holders = 1;
    if (entry->file < 0) {
        free(entry);
        return err_set(ERR_IO, "The file for images that are sent early cannot be opened (%s).", strerror(errno));
    }
    pthread_mutex_lock(&live->lock);
    entry->next = live->first;
    live->first = entry;
    pthread_mutex_unlock(&live->lock);
    return 0;
}

void live_close(struct live *live, const char *id)
{
    pthread_mutex_lock(&live->lock);
    struct entry **link = entry_find(live, id), *entry = *link;
    const bool last = entry && --entry->holders == 0;
    if (last)
        *link = entry->next;
    pthread_mutex_unlock(&live->lock);
    if (!last)
        return;
    close(entry->file);
    free(entry);
}

bool live_hold(struct live *live, const char *id)
{
    pthread_mutex_lock(&live->lock);
    struct entry *entry = *entry_find(live, id);
    if (entry)
        entry->holders++;
    pthread_mutex_unlock(&live->lock);
    return entry != NULL;
}

int live_file(struct live *live, const char *id, int64_t *shown)
{
    int file = -1;
    pthread_mutex_lock(&live->lock);
    const struct entry *entry = *entry_find(live, id);
    if (entry)
        file = fcntl(entry->file, F_DUPFD_CLOEXEC, 0);
    *shown = entry ? entry->shown : 0;
    pthread_mutex_unlock(&live->lock);
    return file;
}

bool live_show(struct live *live, const char *id, int64_t bytes)
{
    struct stat there;
    pthread_mutex_lock(&live->lock);
    struct entry *entry = *entry_find(live, id);
    const bool more = entry && bytes > entry->shown && fstat(entry->file, &there) == 0 && bytes <= there.st_size;
    const bool waits = more && entry->event < 0;
    if (more)
        entry->shown = bytes;
    if (more && !waits)
        eventfd_write(entry->event, 1);
    pthread_mutex_unlock(&live->lock);
    return waits;
}

int64_t live_shown(struct live *live, const char *id)
{
    pthread_mutex_lock(&live->lock);
    const struct entry *entry = *entry_find(live, id);
    int64_t shown = entry ? entry->shown : 0;
    pthread_mutex_unlock(&live->lock);
    return shown;
}
