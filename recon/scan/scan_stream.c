/* Reads an MRD version 1 stream saved as a file (as siemens_to_ismrmrd writes them). Two passes: lengths and heads
 * first, then the samples, directly from the file. */
#include "recon/scan/mrd_readout.h"

#include "gridding/base/err.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "samples are passed on as they stand in the file: little-endian"
#endif

enum { BATCH = 1024 };

struct cursor {
    const uint8_t *start, *at, *end;
};

/* One message: its number and the places of its contents. */
struct item {
    unsigned id;
    const uint8_t *head, *body; /* body: an acquisition's trajectory and samples, or a text */
    size_t body_bytes;
};

/* Skip `bytes`; fails if the file ends early. */
static int take(struct cursor *c, uint64_t bytes, const uint8_t **from, unsigned id)
{
    if (bytes > (uint64_t)(c->end - c->at))
        return err_set(ERR_TRUNCATED,
                       "The MRD stream ends inside a message (number %u at byte %llu): the file is truncated; send the "
                       "complete file.",
                       id, (unsigned long long)(c->at - c->start));
    *from = c->at;
    c->at += bytes;
    return 0;
}

/* The next message; at the end of the file, MRD_CLOSE. */
static int message_next(struct cursor *c, struct item *item)
{
    const uint8_t *number = NULL;
    *item = (struct item){.id = MRD_CLOSE};
    if (c->at == c->end)
        return 0;
    uint64_t at = (uint64_t)(c->at - c->start);
    int rc = take(c, MRD_NUMBER_BYTES, &number, 0);
    if (rc != 0)
        return rc;
    item->id = mrd_u16(number);
    const int head = mrd_head_bytes(item->id);
    if (head < 0)
        return mrd_number_unknown(item->id, at);
    rc = take(c, (uint64_t)head, &item->head, item->id);
    if (rc != 0)
        return rc;
    const uint64_t bytes = mrd_body_bytes(item->id, item->head);
    item->body_bytes = (size_t)bytes;
    return take(c, bytes, &item->body, item->id);
}

/* First pass: count the acquisitions and what is not read, and find the header. */
static int survey(struct cursor c, struct item *xml, uint64_t *acquisitions, uint64_t *ignored)
{
    struct item item;
    do {
        int rc = message_next(&c, &item);
        if (rc != 0)
            return rc;
        if (item.id == MRD_HEADER && xml->id != MRD_HEADER)
            *xml = item;
        else if (item.id == MRD_ACQUISITION && xml->id != MRD_HEADER)
            return err_set(ERR_MALFORMED_FILE, "The MRD stream has acquisitions before its header.");
        *acquisitions += item.id == MRD_ACQUISITION;
        *ignored += item.id == MRD_WAVEFORM || item.id == MRD_IMAGE;
    } while (item.id != MRD_CLOSE);
    if (xml->id != MRD_HEADER)
        return err_set(ERR_MALFORMED_FILE, "The MRD stream has no header (message 3).");
    while (xml->body_bytes && xml->body[xml->body_bytes - 1] == '\0')
        xml->body_bytes--;
    return 0;
}

static int readouts_write(struct scan_builder *b, struct cursor c, struct scan_readout *batch)
{
    struct item item;
    uint32_t acquisition = 0;
    size_t count = 0;
    int rc;
    do {
        rc = message_next(&c, &item);
        if (rc == 0 && item.id == MRD_ACQUISITION)
            mrd_readout_fill(&batch[count++], item.head, acquisition++);
        if (rc == 0 && (count == BATCH || item.id == MRD_CLOSE)) {
            rc = scan_builder_readouts(b, batch, count);
            count = 0;
        }
    } while (rc == 0 && item.id != MRD_CLOSE);
    return rc == 0 ? scan_builder_layout(b) : rc;
}

static int samples_write(struct scan_builder *b, struct cursor c)
{
    struct item item;
    int rc;
    do {
        rc = message_next(&c, &item);
        if (rc == 0 && item.id == MRD_ACQUISITION) {
            struct scan_readout r;
            mrd_readout_fill(&r, item.head, 0);
            if (r.samples && r.coils)
                rc = scan_builder_samples(b, &r, item.body, item.body + 4 * (size_t)r.samples * r.traj_dims);
        }
    } while (rc == 0 && item.id != MRD_CLOSE);
    return rc;
}

int scan_stream_decode(int fd, uint64_t cap, const void *file, size_t bytes)
{
    struct cursor c = {file, file, (const uint8_t *)file + bytes};
    struct item xml = {0};
    uint64_t acquisitions = 0, ignored = 0;
    int rc = survey(c, &xml, &acquisitions, &ignored);
    if (rc != 0)
        return rc;
    struct scan_builder *b = malloc(sizeof *b);
    struct scan_readout *batch = malloc(BATCH * sizeof *batch);
    if (!b || !batch)
        rc = err_no_memory("reading the MRD stream");
    if (rc == 0)
        rc = scan_builder_begin(b, fd, cap, bytes, (const char *)xml.body, xml.body_bytes, acquisitions);
    if (rc == 0) {
        b->header.ignored = ignored;
        b->header.streamed = 1;
        rc = readouts_write(b, c, batch);
    }
    if (rc == 0)
        rc = samples_write(b, c);
    if (rc == 0)
        rc = scan_builder_finish(b);
    free(batch);
    free(b);
    return rc;
}
