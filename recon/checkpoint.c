#include "recon/checkpoint.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PAGE = 4096, SLOTS = 2 };
#define MAGIC UINT64_C(0x544e504b43454843) /* "CHECKPNT" */

/* The head of a state. Slot i's head is at page i; the states follow after both heads. */
struct head {
    uint64_t magic, sequence, bytes;
    uint32_t crc;
    char tag[CHECKPOINT_TAG];
    uint32_t head_crc; /* of all members above */
};

static uint64_t slot_bytes(size_t room)
{
    return ((uint64_t)room + PAGE - 1) / PAGE * PAGE;
}

uint64_t checkpoint_bytes(size_t room)
{
    return SLOTS * (PAGE + slot_bytes(room));
}

static off_t slot_at(int slot, size_t room)
{
    return (off_t)(SLOTS * PAGE + (uint64_t)slot * slot_bytes(room));
}

static uint32_t crc_of(uint32_t crc, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t piece; count; at += piece, count -= piece) {
        piece = count < (1u << 30) ? count : 1u << 30;
        crc = (uint32_t)crc32(crc, at, (uInt)piece);
    }
    return crc;
}

static bool head_read(const struct checkpoint *checkpoint, int slot, size_t room, struct head *head)
{
    return pread(checkpoint->fd, head, sizeof *head, slot * PAGE) == sizeof *head && head->magic == MAGIC &&
           head->bytes <= room && head->head_crc == crc_of(0, head, offsetof(struct head, head_crc));
}

static int write_failed(void)
{
    return err_set(errno == ENOSPC || errno == EDQUOT ? ERR_SPOOL_FULL : ERR_IO,
                   "The checkpoint cannot be written (%s).", strerror(errno));
}

static int put(int fd, const void *bytes, size_t count, off_t at)
{
    const char *from = bytes;
    while (count) {
        ssize_t done = pwrite(fd, from, count, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return write_failed();
        from += done;
        at += done;
        count -= (size_t)done;
    }
    return 0;
}

/* The slot of the newest state of any tag; -1: none. */
static int newest(const struct checkpoint *checkpoint, size_t room, uint64_t *sequence)
{
    int slot = -1;
    *sequence = 0;
    for (int i = 0; i < SLOTS; i++) {
        struct head head;
        if (!head_read(checkpoint, i, room, &head) || head.sequence <= *sequence)
            continue;
        *sequence = head.sequence;
        slot = i;
    }
    return slot;
}

int checkpoint_save(const struct checkpoint *checkpoint, const char *tag, size_t room,
                    const struct checkpoint_part *parts, int count)
{
    struct head head;
    uint64_t sequence;
    const int slot = newest(checkpoint, room, &sequence) == 0 ? 1 : 0;
    memset(&head, 0, sizeof head);
    head.magic = MAGIC;
    head.sequence = sequence + 1;
    strncpy(head.tag, tag, sizeof head.tag - 1);
    for (int i = 0; i < count; i++)
        head.bytes += parts[i].count;
    if (head.bytes > room || (checkpoint->most && checkpoint_bytes(room) > checkpoint->most))
        return err_set_bytes(ERR_LIMIT, (int64_t)checkpoint_bytes(room), (int64_t)checkpoint->most,
                             "A checkpoint of %llu bytes is larger than it may be.", (unsigned long long)head.bytes);
    off_t at = slot_at(slot, room);
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++) {
        rc = put(checkpoint->fd, parts[i].bytes, parts[i].count, at);
        head.crc = crc_of(head.crc, parts[i].bytes, parts[i].count);
        at += (off_t)parts[i].count;
    }
    head.head_crc = crc_of(0, &head, offsetof(struct head, head_crc));
    /* The state before its head, so that a valid head never describes a state that a power cut has lost. */
    if (rc == 0 && fdatasync(checkpoint->fd) < 0)
        rc = write_failed();
    if (rc == 0)
        rc = put(checkpoint->fd, &head, sizeof head, slot * PAGE);
    if (rc == 0 && fdatasync(checkpoint->fd) < 0)
        rc = write_failed();
    return rc;
}

static bool state_read(const struct checkpoint *checkpoint, int slot, size_t room, const struct head *head, char *to)
{
    for (uint64_t have = 0; have < head->bytes;) {
        ssize_t got = pread(checkpoint->fd, to + have, head->bytes - have, slot_at(slot, room) + (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        have += (uint64_t)got;
    }
    return crc_of(0, to, head->bytes) == head->crc;
}

int checkpoint_load(const struct checkpoint *checkpoint, const char *tag, size_t room, void **state, size_t *bytes)
{
    struct head head[SLOTS];
    bool there[SLOTS];
    *state = NULL;
    *bytes = 0;
    for (int i = 0; i < SLOTS; i++)
        there[i] = head_read(checkpoint, i, room, &head[i]) && strncmp(head[i].tag, tag, sizeof head[i].tag - 1) == 0;
    const int first = there[1] && (!there[0] || head[1].sequence > head[0].sequence);
    for (int turn = 0; turn < SLOTS && !*state; turn++) {
        const int slot = turn == 0 ? first : 1 - first;
        if (!there[slot])
            continue;
        char *memory = malloc(head[slot].bytes + 1);
        if (!memory)
            return err_no_memory_bytes(head[slot].bytes, "a checkpoint");
        if (state_read(checkpoint, slot, room, &head[slot], memory)) {
            *state = memory;
            *bytes = head[slot].bytes;
        } else {
            free(memory);
        }
    }
    return 0;
}
