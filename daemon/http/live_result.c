#include "daemon/http/live_result.h"

#include "gridding/base/err.h"
#include "recon/scan/mrd_message.h"

#include <unistd.h>

bool live_image_next(int file, int64_t at, int64_t end, int64_t *next)
{
    uint8_t head[MRD_NUMBER_BYTES + MRD_IMAGE_BYTES + 8];
    if (end - at < (int64_t)sizeof head || pread(file, head, sizeof head, at) != sizeof head ||
        mrd_u16(head) != MRD_IMAGE)
        return false;
    const uint64_t body = mrd_image_bytes(head + MRD_NUMBER_BYTES);
    if (body > (uint64_t)(end - at) - sizeof head)
        return false;
    *next = at + (int64_t)sizeof head + (int64_t)body;
    return true;
}

/* The offset of the first image in a file that is an MRD stream: after the scan's header, if it has one. */
static int64_t images_start(int file)
{
    uint8_t head[MRD_NUMBER_BYTES + 4];
    const bool headed = pread(file, head, sizeof head, 0) == sizeof head && mrd_u16(head) == MRD_HEADER;
    return headed ? (int64_t)sizeof head + mrd_u32(head + MRD_NUMBER_BYTES) : 0;
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

int live_result_check(int live, int64_t sent, int result, int64_t bytes, const char *id, int64_t *at)
{
    const int64_t start = images_start(result);
    if (sent > bytes - start || !same_bytes(live, result, start, sent))
        return err_set(ERR_INTERNAL,
                       "The images sent so far are not those of the job, which was run again elsewhere or whose "
                       "decisions changed while the scan arrived. All of them are at /v1/jobs/%s/results.",
                       id);
    *at = start + sent;
    return 0;
}
