/* Reads an MRD version 1 stream while it arrives: the file grows, and the stream contains its own end. */
#include "recon/scan/mrd_readout.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK = 256 << 10,
    READOUTS_FIRST = 1024,
    READOUTS_MOST = 1 << 20, /* kept in memory until the end */
    /* Between two checks for more bytes: at first, as a measurement goes on or ends, as long as was waited before; then
     * at the most, as it rests. */
    WAIT_LEAST_NS = 25000,
    WAIT_SOON_NS = 200000,
    WAIT_MOST_NS = 2000000,
    SOON_NS = 100000000 /* how long it is "at first" */
};

struct follower {
    struct scan_builder builder;
    int file;
    uint64_t at;     /* bytes consumed */
    uint8_t *chunk;  /* [CHUNK] */
    size_t from, to; /* bytes of the chunk not yet consumed */
    struct scan_readout *readouts;
    size_t count, room, told; /* told: the number in the last header written */
    uint64_t whole;           /* end of the last complete one in the scan */
    uint32_t acquisitions;
    bool begun;  /* the header was read */
    bool within; /* the last readout is not complete */
};

/* Sleep, after having waited for *waited ns. */
static void rest(long *waited)
{
    const long as_before = *waited < WAIT_LEAST_NS ? WAIT_LEAST_NS : *waited;
    const long ns = as_before < WAIT_SOON_NS ? as_before : as_before < SOON_NS ? WAIT_SOON_NS : WAIT_MOST_NS;
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    *waited += *waited < SOON_NS ? ns : 0;
}

/* Wait for at least one byte. */
static int more(struct follower *f)
{
    long waited = 0;
    while (f->from == f->to) {
        const size_t complete = f->count - f->within;
        int rc = complete > f->told ? scan_builder_tell(&f->builder, complete, f->whole, false) : 0;
        if (rc != 0)
            return rc;
        f->told = complete;
        ssize_t got = pread(f->file, f->chunk, CHUNK, (off_t)f->at);
        if (got < 0 && errno != EINTR)
            return err_set(ERR_IO, "The file cannot be read (%s).", strerror(errno));
        if (got == 0)
            rest(&waited);
        f->from = 0;
        f->to = got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* Copy the next `count` bytes to `to`. */
static int take(struct follower *f, void *to, size_t count)
{
    char *place = to;
    int rc = 0;
    while (count > 0 && (rc = more(f)) == 0) {
        const size_t there = f->to - f->from, piece = count < there ? count : there;
        memcpy(place, f->chunk + f->from, piece);
        place += piece;
        count -= piece;
        f->from += piece;
        f->at += piece;
    }
    return rc;
}

/* Append the next `count` bytes to the scan; `kept` false: skip them. */
static int pass(struct follower *f, uint64_t count, bool kept)
{
    int rc = 0;
    while (count > 0 && rc == 0 && (rc = more(f)) == 0) {
        const size_t there = f->to - f->from, piece = count < there ? (size_t)count : there;
        if (kept)
            rc = scan_builder_put(&f->builder, f->chunk + f->from, piece);
        count -= piece;
        f->from += piece;
        f->at += piece;
    }
    return rc;
}

static int header_take(struct follower *f, uint64_t bytes, int memory, uint64_t cap)
{
    if (bytes > SCAN_MAX_XML)
        return err_set(ERR_LIMIT, "The header of the MRD stream has %llu bytes; at most %d are read.",
                       (unsigned long long)bytes, SCAN_MAX_XML);
    char *xml = malloc(bytes + 1);
    int rc = xml ? take(f, xml, bytes) : err_no_memory("the header of the MRD stream");
    while (rc == 0 && bytes > 0 && xml[bytes - 1] == '\0')
        bytes--;
    if (rc == 0)
        rc = scan_builder_open(&f->builder, memory, cap, xml, bytes);
    if (rc == 0)
        f->builder.header.streamed = 1;
    free(xml);
    f->begun = true;
    return rc;
}

/* Remember a readout until the end. */
static int readout_keep(struct follower *f, const struct scan_readout *readout)
{
    if (f->count == f->room) {
        const size_t room = f->room ? 2 * f->room : READOUTS_FIRST;
        struct scan_readout *grown = room <= READOUTS_MOST ? realloc(f->readouts, room * sizeof *grown) : NULL;
        if (!grown)
            return err_set_bytes(ERR_LIMIT, (int64_t)(room * sizeof *readout), -1,
                                 "The MRD stream has too many acquisitions to be read while it arrives.");
        f->readouts = grown;
        f->room = room;
    }
    f->readouts[f->count++] = *readout;
    return 0;
}

static int acquisition_take(struct follower *f, const uint8_t *head, uint64_t body)
{
    struct scan_readout r;
    if (!f->begun)
        return err_set(ERR_MALFORMED_FILE, "The MRD stream has acquisitions before its header.");
    mrd_readout_fill(&r, head, f->acquisitions++);
    if (r.samples == 0 || r.coils == 0) {
        f->builder.header.ignored++;
        return pass(f, body, false);
    }
    const uint64_t traj = (uint64_t)r.samples * r.traj_dims * sizeof(float);
    int rc = scan_builder_arrive(&f->builder, &r);
    if (rc == 0)
        rc = readout_keep(f, &r);
    f->within = true;
    if (rc == 0)
        rc = pass(f, traj, true);
    if (rc == 0)
        rc = scan_builder_align(&f->builder);
    if (rc == 0)
        rc = pass(f, body - traj, true);
    f->within = false;
    f->whole = f->builder.data.at;
    return rc;
}

/* Read the next message; *end: it was CLOSE. */
static int message_take(struct follower *f, int memory, uint64_t cap, bool *end)
{
    uint8_t number[MRD_NUMBER_BYTES], head[MRD_HEAD_MOST];
    const uint64_t at = f->at;
    int rc = take(f, number, sizeof number);
    if (rc != 0)
        return rc;
    const unsigned id = mrd_u16(number);
    const int bytes = mrd_head_bytes(id);
    if (bytes < 0)
        return mrd_number_unknown(id, at);
    rc = take(f, head, (size_t)bytes);
    if (rc != 0)
        return rc;
    const uint64_t body = mrd_body_bytes(id, head);
    *end = id == MRD_CLOSE;
    if (id == MRD_ACQUISITION)
        return acquisition_take(f, head, body);
    if (id == MRD_HEADER && !f->begun)
        return header_take(f, body, memory, cap);
    f->builder.header.ignored += id == MRD_WAVEFORM || id == MRD_IMAGE;
    return pass(f, body, false);
}

int scan_stream_follow(int fd, uint64_t cap, int file, void (*done)(void))
{
    struct follower *f = calloc(1, sizeof *f);
    uint8_t *chunk = malloc(CHUNK);
    bool end = false;
    int rc = f && chunk ? 0 : err_no_memory("reading the MRD stream");
    if (rc == 0) {
        f->file = file;
        f->chunk = chunk;
    }
    while (rc == 0 && !end)
        rc = message_take(f, fd, cap, &end);
    if (rc == 0 && !f->begun)
        rc = err_set(ERR_MALFORMED_FILE, "The MRD stream has no header (message 3).");
    if (rc == 0)
        rc = scan_builder_close(&f->builder, f->readouts, f->count);
    if (rc == 0)
        done();
    free(f ? f->readouts : NULL);
    free(chunk);
    free(f);
    return rc;
}
