#include "daemon/mrd/mrd_images.h"

#include "daemon/http/live_result.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void mrd_images_begin(struct mrd_images *images, const struct core *core, const char *id)
{
    *images = (struct mrd_images){.file = -1, .event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    memcpy(images->id, id, strnlen(id, JOB_ID - 1));
    if (images->event >= 0 && spool_live_create(core->spool, id, &images->file) == 0 &&
        live_open(core->live, id, images->file, images->event) == 0)
        images->core = core;
    else
        mrd_images_end(images);
}

void mrd_images_end(struct mrd_images *images)
{
    if (images->core)
        live_close(images->core->live, images->id);
    if (images->file >= 0)
        close(images->file);
    if (images->event >= 0)
        close(images->event);
    *images = (struct mrd_images){.file = -1, .event = -1};
}

bool mrd_images_wait(const struct mrd_images *images)
{
    eventfd_t told;
    if (!images->core)
        return false;
    eventfd_read(images->event, &told);
    return live_shown(images->core->live, images->id) > images->sent;
}

bool mrd_images_push(struct mrd_images *images, const struct mrd_line *line)
{
    const int64_t shown = images->core ? live_shown(images->core->live, images->id) : 0;
    return mrd_send_some(line, images->file, &images->sent, shown);
}

bool mrd_images_flush(struct mrd_images *images, const struct mrd_line *line)
{
    const int64_t shown = images->core ? live_shown(images->core->live, images->id) : 0;
    return mrd_send_part(line, images->file, &images->sent, shown);
}

bool mrd_images_within(struct mrd_images *images)
{
    while (images->whole < images->sent)
        if (!live_image_next(images->file, images->whole, images->sent, &images->whole))
            return true;
    return false;
}

int mrd_images_finish(struct mrd_images *images, const struct mrd_line *line, int file, int64_t bytes, bool *sent)
{
    int64_t at = 0;
    *sent = false;
    int rc = live_result_check(images->file, images->sent, file, bytes, images->id, &at);
    if (rc)
        return rc;
    *sent = mrd_send_part(line, file, &at, bytes);
    return 0;
}
