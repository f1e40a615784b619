/* Who writes to an upload, or turns it into a job: one thread. */
#include "daemon/spool/uploads_parts.h"

#include <pthread.h>
#include <string.h>

int upload_lost(int code)
{
    return err_set(code, "The disk failed while storing bytes of this upload, and it is unknown which of them it has. "
                         "Create a new one; the server's operator should check the disk.");
}

/* The lock of this upload; NULL: it has none. By the holder of uploads->lock. */
static struct upload_writing *writing_find(struct uploads *uploads, const char *id)
{
    for (int i = 0; i < WRITERS; i++)
        if (strcmp(uploads->writing[i].id, id) == 0)
            return &uploads->writing[i];
    return NULL;
}

int upload_lock(struct uploads *uploads, const char *id, enum upload_use use)
{
    struct upload_writing *writing;
    int rc = 0;
    pthread_mutex_lock(&uploads->lock);
    while ((writing = writing_find(uploads, id)) &&
           (writing->use == UPLOAD_UPKEEP || (writing->use == UPLOAD_FINISH && use == UPLOAD_FINISH)))
        pthread_cond_wait(&uploads->kept, &uploads->lock);
    struct upload_writing *room = writing_find(uploads, "");
    if (writing)
        rc = writing->lost ? upload_lost(ERR_NOT_FOUND)
                           : err_set(ERR_UPLOAD_LOCKED,
                                     "Another request is writing to this upload. Try again when it has ended.");
    else if (!room)
        rc = err_set(ERR_UPLOAD_LOCKED, "%d uploads are being written at the moment. Try again later.", WRITERS);
    else {
        memcpy(room->id, id, JOB_ID);
        room->use = use;
    }
    pthread_mutex_unlock(&uploads->lock);
    return rc;
}

void upload_unlock(struct uploads *uploads, const char *id)
{
    pthread_mutex_lock(&uploads->lock);
    struct upload_writing *writing = writing_find(uploads, id);
    if (writing && !writing->lost) {
        *writing = (struct upload_writing){.id = ""};
        pthread_cond_broadcast(&uploads->kept);
    }
    pthread_mutex_unlock(&uploads->lock);
}

void upload_check_begin(struct uploads *uploads, const char *id, int64_t begin)
{
    pthread_mutex_lock(&uploads->lock);
    struct upload_writing *writing = writing_find(uploads, id);
    if (writing) {
        writing->checked = true;
        writing->begin = begin;
    }
    pthread_mutex_unlock(&uploads->lock);
}

bool upload_is_checked(struct uploads *uploads, const char *id, int64_t *begin)
{
    const struct upload_writing *writing = writing_find(uploads, id);
    if (writing && writing->checked)
        *begin = writing->begin;
    return writing && writing->checked;
}

void upload_lock_for_good(struct uploads *uploads, const char *id)
{
    pthread_mutex_lock(&uploads->lock);
    struct upload_writing *writing = writing_find(uploads, id);
    if (writing)
        writing->lost = true;
    pthread_mutex_unlock(&uploads->lock);
}

bool upload_is_lost(struct uploads *uploads, const char *id)
{
    pthread_mutex_lock(&uploads->lock);
    const struct upload_writing *writing = writing_find(uploads, id);
    const bool is = writing && writing->lost;
    pthread_mutex_unlock(&uploads->lock);
    return is;
}
