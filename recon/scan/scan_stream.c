/* Reads an MRD version 1 stream saved as a file (siemens_to_ismrmrd writes them): messages of a 16-bit number and a
 * body that the number defines, little-endian. Walked twice: lengths and heads first, samples then straight out of the
 * file. */
#include "recon/scan/scan_build.h"

#include "gridding/base/err.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "samples are passed on as they stand in the file: little-endian"
#endif

enum message {
    MESSAGE_CONFIG_FILE = 1,
    MESSAGE_CONFIG_TEXT = 2,
    MESSAGE_HEADER = 3,
    MESSAGE_CLOSE = 4,
    MESSAGE_TEXT = 5,
    MESSAGE_QUERY = 6,
    MESSAGE_RESPONSE = 7,
    MESSAGE_ACQUISITION = 1008,
    MESSAGE_IMAGE = 1022,
    MESSAGE_WAVEFORM = 1026
};
enum { CONFIG_BYTES = 1024, ACQUISITION_BYTES = 340, IMAGE_BYTES = 198, WAVEFORM_BYTES = 40, BATCH = 1024 };

struct cursor {
    const uint8_t *start, *at, *end;
};

/* One message: its number and where what it holds lies. */
struct item {
    unsigned id;
    const uint8_t *head, *body; /* head: of an acquisition; body: its trajectory, or a text */
    size_t body_bytes;
};

static uint16_t u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Step over `bytes`, or say that the file ends early. */
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

static int take_text(struct cursor *c, int length_bytes, struct item *item)
{
    const uint8_t *length = NULL;
    int rc = take(c, (uint64_t)length_bytes, &length, item->id);
    if (rc != 0)
        return rc;
    uint64_t bytes = length_bytes == 4 ? u32(length) : u64(length);
    rc = take(c, bytes, &item->body, item->id);
    item->body_bytes = (size_t)bytes;
    return rc;
}

static int take_acquisition(struct cursor *c, struct item *item)
{
    int rc = take(c, ACQUISITION_BYTES, &item->head, item->id);
    if (rc != 0)
        return rc;
    uint64_t samples = u16(item->head + 34), coils = u16(item->head + 38), dims = u16(item->head + 176);
    return take(c, samples * (4 * dims + 8 * coils), &item->body, item->id);
}

static int take_waveform(struct cursor *c, struct item *item)
{
    int rc = take(c, WAVEFORM_BYTES, &item->head, item->id);
    return rc == 0 ? take(c, 4ULL * u16(item->head + 28) * u16(item->head + 30), &item->body, item->id) : rc;
}

static int take_image(struct cursor *c, struct item *item)
{
    static const uint8_t size_of_type[] = {0, 2, 2, 4, 4, 4, 8, 8, 16};
    int rc = take(c, IMAGE_BYTES, &item->head, item->id);
    if (rc == 0)
        rc = take_text(c, 8, item);
    if (rc != 0)
        return rc;
    unsigned type = u16(item->head + 2);
    size_t bytes = type < sizeof size_of_type ? size_of_type[type] : 0;
    for (int d = 0; d < 3; d++)
        if (!size_mul(bytes, u16(item->head + 16 + 2 * d), &bytes))
            return take(c, UINT64_MAX, &item->body, item->id);
    if (!size_mul(bytes, u16(item->head + 34), &bytes))
        bytes = SIZE_MAX;
    return take(c, bytes, &item->body, item->id);
}

/* The next message; at the end of the file, MESSAGE_CLOSE. */
static int message_next(struct cursor *c, struct item *item)
{
    const uint8_t *skipped = NULL;
    *item = (struct item){.id = MESSAGE_CLOSE};
    if (c->at == c->end)
        return 0;
    uint64_t at = (uint64_t)(c->at - c->start);
    int rc = take(c, 2, &skipped, 0);
    if (rc != 0)
        return rc;
    item->id = u16(skipped);
    switch (item->id) {
    case MESSAGE_CLOSE:
        return 0;
    case MESSAGE_CONFIG_FILE:
        return take(c, CONFIG_BYTES, &item->body, item->id);
    case MESSAGE_CONFIG_TEXT:
    case MESSAGE_HEADER:
    case MESSAGE_TEXT:
        return take_text(c, 4, item);
    case MESSAGE_QUERY:
        rc = take(c, 16, &skipped, item->id);
        return rc == 0 ? take_text(c, 8, item) : rc;
    case MESSAGE_RESPONSE:
        rc = take(c, 8, &skipped, item->id);
        return rc == 0 ? take_text(c, 8, item) : rc;
    case MESSAGE_ACQUISITION:
        return take_acquisition(c, item);
    case MESSAGE_IMAGE:
        return take_image(c, item);
    case MESSAGE_WAVEFORM:
        return take_waveform(c, item);
    default:
        return err_set(
            ERR_MALFORMED_FILE,
            "The MRD stream has a message of unknown number %u at byte %llu. What follows cannot be read: the "
            "stream is damaged, or no MRD version 1 stream.",
            item->id, (unsigned long long)at);
    }
}

static void readout_fill(struct scan_readout *r, const uint8_t *head, uint32_t acquisition)
{
    *r = (struct scan_readout){
        .flags = u64(head + 2),
        .acquisition = acquisition,
        .measurement_uid = u32(head + 10),
        .scan_counter = u32(head + 14),
        .time_stamp = u32(head + 18),
        .samples = u16(head + 34),
        .coils = u16(head + 38),
        .discard_pre = u16(head + 168),
        .discard_post = u16(head + 170),
        .center_sample = u16(head + 172),
        .encoding = u16(head + 174),
        .traj_dims = u16(head + 176),
    };
    memcpy(&r->sample_time_us, head + 178, sizeof r->sample_time_us);
    memcpy(r->position, head + 182, sizeof r->position);
    memcpy(r->read_dir, head + 194, sizeof r->read_dir);
    memcpy(r->phase_dir, head + 206, sizeof r->phase_dir);
    memcpy(r->slice_dir, head + 218, sizeof r->slice_dir);
    memcpy(r->table_position, head + 230, sizeof r->table_position);
    memcpy(r->idx, head + 242, sizeof r->idx);
}

/* First walk: count acquisitions and what is not read, and find the header. */
static int survey(struct cursor c, struct item *xml, uint64_t *acquisitions, uint64_t *ignored)
{
    struct item item;
    do {
        int rc = message_next(&c, &item);
        if (rc != 0)
            return rc;
        if (item.id == MESSAGE_HEADER && xml->id != MESSAGE_HEADER)
            *xml = item;
        else if (item.id == MESSAGE_ACQUISITION && xml->id != MESSAGE_HEADER)
            return err_set(ERR_MALFORMED_FILE, "The MRD stream has acquisitions before its header.");
        *acquisitions += item.id == MESSAGE_ACQUISITION;
        *ignored += item.id == MESSAGE_WAVEFORM || item.id == MESSAGE_IMAGE;
    } while (item.id != MESSAGE_CLOSE);
    if (xml->id != MESSAGE_HEADER)
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
        if (rc == 0 && item.id == MESSAGE_ACQUISITION)
            readout_fill(&batch[count++], item.head, acquisition++);
        if (rc == 0 && (count == BATCH || item.id == MESSAGE_CLOSE)) {
            rc = scan_builder_readouts(b, batch, count);
            count = 0;
        }
    } while (rc == 0 && item.id != MESSAGE_CLOSE);
    return rc == 0 ? scan_builder_layout(b) : rc;
}

static int samples_write(struct scan_builder *b, struct cursor c)
{
    struct item item;
    int rc;
    do {
        rc = message_next(&c, &item);
        if (rc == 0 && item.id == MESSAGE_ACQUISITION) {
            struct scan_readout r;
            readout_fill(&r, item.head, 0);
            if (r.samples && r.coils)
                rc = scan_builder_samples(b, &r, item.body, item.body + 4 * (size_t)r.samples * r.traj_dims);
        }
    } while (rc == 0 && item.id != MESSAGE_CLOSE);
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
