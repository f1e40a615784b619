#include "recon/scan/scan_live.h"

#include "gridding/base/err.h"
#include "recon/scan/scan_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READOUTS_FIRST = 1024 };

struct scan_live {
    int memory;
    char *base; /* a copy of the decoder's memory at the same offsets; its pages are allocated as they are filled */
    size_t size;
    uint64_t have, at;         /* bytes copied; offset of the next readout's head */
    struct scan_header header; /* the newest */
    struct scan_header part;   /* of scan_live_part() */
    struct scan_readout *readouts;
    uint64_t count, room;
};

int scan_live_open(struct scan_live **out, int memory)
{
    struct stat there = {.st_size = 0};
    struct scan_live *live = calloc(1, sizeof *live);
    if (live && fstat(memory, &there) == 0) {
        live->size = (size_t)there.st_size;
        live->base = mmap(NULL, live->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (!live || !live->base || live->base == MAP_FAILED) {
        close(memory);
        free(live);
        return err_no_memory("a scan that arrives");
    }
    live->memory = memory;
    *out = live;
    return 0;
}

void scan_live_free(struct scan_live *live)
{
    if (!live)
        return;
    munmap(live->base, live->size);
    close(live->memory);
    free(live->readouts);
    free(live);
}

/* Copy the decoder's memory up to `end`. */
static int copy(struct scan_live *live, uint64_t end)
{
    while (live->have < end) {
        ssize_t got = pread(live->memory, live->base + live->have, end - live->have, (off_t)live->have);
        if (got == 0 || (got < 0 && errno != EINTR))
            return scan_invalid("a part that is not there");
        live->have += got > 0 ? (uint64_t)got : 0;
    }
    return 0;
}

/* Copy the parts before the readouts, once. */
static int beginning_check(const struct scan_live *live)
{
    const struct scan_header *h = &live->header;
    const struct scan_encoding *encodings = (const void *)(live->base + h->encodings_at);
    int rc = 0;
    for (uint32_t i = 0; i < h->encodings && rc == 0; i++)
        rc = scan_encoding_check(&encodings[i]);
    const char *xml = live->base + h->xml_at;
    if (rc == 0 && memchr(xml, '\0', h->xml_bytes + 1) != xml + h->xml_bytes)
        rc = scan_invalid("the end of the XML header");
    return rc;
}

/* The next readout: its head, its trajectory, and its samples, one after the other. */
static int readout_take(struct scan_live *live, uint64_t end)
{
    const struct scan_header *h = &live->header;
    struct scan_readout r;
    if (live->at > end || end - live->at < sizeof r)
        return scan_invalid("a readout outside the whole");
    memcpy(&r, live->base + live->at, sizeof r);
    int rc = scan_readout_check(h, &r);
    const uint64_t traj = live->at + sizeof r, before = traj - h->traj_at + sizeof(float) * r.samples * r.traj_dims;
    const uint64_t data = (before + sizeof(struct c32) - 1) / sizeof(struct c32);
    if (rc == 0 && (r.traj != (traj - h->traj_at) / sizeof(float) || r.data != data))
        rc = scan_invalid("the place of a readout");
    if (rc != 0)
        return rc;
    if (live->count == live->room) {
        const uint64_t room = live->room ? 2 * live->room : READOUTS_FIRST;
        struct scan_readout *grown = realloc(live->readouts, room * sizeof *grown);
        if (!grown)
            return err_no_memory("%llu readouts", (unsigned long long)room);
        live->readouts = grown;
        live->room = room;
    }
    live->readouts[live->count++] = r;
    live->at = h->traj_at + (r.data + (uint64_t)r.samples * r.coils) * sizeof(struct c32);
    return 0;
}

int scan_live_look(struct scan_live *live, uint64_t most_bytes, uint64_t *readouts, bool *closed)
{
    struct scan_header now;
    *readouts = live->count;
    *closed = false;
    if (pread(live->memory, &now, sizeof now, 0) != sizeof now)
        return scan_invalid("its header");
    const bool all = now.magic == SCAN_ARRIVED || now.magic == SCAN_MAGIC;
    if ((!all && now.magic != SCAN_ARRIVING) || now.readouts < live->count || now.told != scan_told(&now))
        return 0; /* nothing yet, or a second decoder has started over, or the header is being written */
    const bool first = live->header.magic == 0;
    if (!first && (now.traj_at != live->header.traj_at || now.encodings != live->header.encodings ||
                   now.encodings_at != live->header.encodings_at || now.xml_at != live->header.xml_at ||
                   now.xml_bytes != live->header.xml_bytes))
        return scan_invalid("a header that changed");
    int rc = now.total_bytes <= live->size && !now.in_place ? scan_header_check(&now, 0) : scan_invalid("size");
    if (rc != 0)
        return rc;
    const uint64_t end = now.traj_at + now.data_count * sizeof(struct c32);
    if (end > most_bytes)
        return err_set(ERR_LIMIT, "The scan is too large to be computed while it arrives.");
    live->header = now;
    if (first)
        live->at = now.traj_at;
    rc = copy(live, end);
    if (rc == 0 && first)
        rc = beginning_check(live);
    while (rc == 0 && live->count < now.readouts)
        rc = readout_take(live, end);
    *readouts = live->count;
    *closed = rc == 0 && all;
    return rc;
}

struct scan scan_live_part(struct scan_live *live, uint64_t readouts)
{
    live->part = live->header;
    live->part.readouts = readouts;
    return (struct scan){
        .header = &live->part,
        .encodings = (const void *)(live->base + live->header.encodings_at),
        .readouts = live->readouts,
        .xml = live->base + live->header.xml_at,
        .traj = (const void *)(live->base + live->header.traj_at),
        .data = (const void *)(live->base + live->header.traj_at),
    };
}
