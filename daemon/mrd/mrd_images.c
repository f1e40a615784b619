#include "daemon/mrd/mrd_images.h"

#include <errno.h>
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

/* Whether `count` bytes of the two files, from `at` of the second on, are the same. */
static bool same_bytes(int first, int second, int64_t at, int64_t count)
{
    char a[16 << 10], b[sizeof a];
    for (int64_t done = 0; done < count;) {
        const size_t piece = count - done < (int64_t)sizeof a ? (size_t)(count - done) : sizeof a;
        const ssize_t got = pread(first, a, piece, done);
        if (got <= 0 || pread(second, b, (size_t)got, at + done) != got || memcmp(a, b, (size_t)got) != 0)
            return false;
        done += got;
    }
    return true;
}

int mrd_images_finish(struct mrd_images *images, const struct mrd_line *line, int file, int64_t bytes, bool *sent)
{
    int64_t at = mrd_images_start(file);
    *sent = false;
    if (images->sent > bytes - at || !same_bytes(images->file, file, at, images->sent))
        return err_set(ERR_INTERNAL,
                       "The images sent so far are not those of the job, which was run again elsewhere or whose "
                       "decisions changed while the scan arrived. All of them are at /v1/jobs/%s/results.",
                       images->id);
    at += images->sent;
    *sent = mrd_send_part(line, file, &at, bytes);
    return 0;
}
