/* mrd_images.h: sends a session's images to its client, from the first completed one (daemon/queue/live.h) to the rest
 * of the job's result. One thread.
 *
 * A large image is sent in pieces, as they are made. Nothing is sent twice: when the job has succeeded, its result must
 * begin with the bytes already sent, and the rest follows.
 */
#ifndef MRIRECON_DAEMON_MRD_IMAGES_H
#define MRIRECON_DAEMON_MRD_IMAGES_H

#include "daemon/mrd/mrd_send.h"
#include "daemon/queue/core.h"

struct mrd_images {
    const struct core *core; /* NULL: no image is sent before the job's end */
    char id[JOB_ID];
    int file, event; /* event: an eventfd, readable when there are more images; -1: none */
    int64_t sent;    /* bytes of the file that were sent */
    int64_t whole;   /* of these, bytes of images that are known to have been sent to their end */
    bool reset;      /* the client has the beginning of an image whose rest it will not get */
};

/* Send images of job `id` as they are completed. If descriptors or disk space are lacking, all are sent at the end. */
void mrd_images_begin(struct mrd_images *images, const struct core *core, const char *id);
void mrd_images_end(struct mrd_images *images);

/* Whether there are images to send; reads the eventfd. */
bool mrd_images_wait(const struct mrd_images *images);
/* Send as much as the socket accepts without blocking; false: the client has disconnected. */
bool mrd_images_push(struct mrd_images *images, const struct mrd_line *line);
/* Send all that was made of them; false: as for mrd_line. */
bool mrd_images_flush(struct mrd_images *images, const struct mrd_line *line);
/* Whether an image was begun and not sent to its end. */
bool mrd_images_within(struct mrd_images *images);

/* Send the rest of the job's result `file`, an MRD stream of `bytes`, and its end; *sent: whether the client accepted
 * it. Fails with ERR_INTERNAL (the result does not begin with the bytes already sent; nothing more is sent), ERR_IO. */
int mrd_images_finish(struct mrd_images *images, const struct mrd_line *line, int file, int64_t bytes, bool *sent);

#endif
