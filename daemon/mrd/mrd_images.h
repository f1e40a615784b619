/* mrd_images.h: the images of one session on their way to its client, from the first that is made (daemon/queue/live.h)
 * to the job's result. One thread.
 *
 * What was sent is not sent again: when the job has succeeded, its result has to begin with these bytes, and the rest
 * of it follows.
 */
#ifndef MRIRECON_DAEMON_MRD_IMAGES_H
#define MRIRECON_DAEMON_MRD_IMAGES_H

#include "daemon/mrd/mrd_send.h"
#include "daemon/queue/core.h"

struct mrd_images {
    const struct core *core; /* NULL: none are sent early */
    char id[JOB_ID];
    int file, event; /* event: an eventfd, readable when there is more to send; -1: none */
    int64_t sent;    /* bytes of the file */
};

/* Have images of job `id` sent as they are made. Without descriptors or disk for that, they all follow at the end. */
void mrd_images_begin(struct mrd_images *images, const struct core *core, const char *id);
void mrd_images_end(struct mrd_images *images);

/* Whether there is something to send; *event is read. */
bool mrd_images_wait(const struct mrd_images *images);
/* Send what the socket takes at once; false: the client has gone. */
bool mrd_images_push(struct mrd_images *images, const struct mrd_line *line);
/* Send all that is there, to the end of an image; false: as for mrd_line. */
bool mrd_images_flush(struct mrd_images *images, const struct mrd_line *line);

/* Send the rest of the job's result `file`, an MRD stream of `bytes`, with its end; *sent: whether the client took it.
 * Fails with ERR_INTERNAL (the result does not begin with what was sent; nothing is sent then), ERR_IO. */
int mrd_images_finish(struct mrd_images *images, const struct mrd_line *line, int file, int64_t bytes, bool *sent);

#endif
