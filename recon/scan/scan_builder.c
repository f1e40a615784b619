/* Writes a flat scan, with pwrite instead of a mapping: a page that is written whole then needs neither a page fault
 * nor clearing. */
#include "recon/scan/scan_build.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Maximum expansion: float16 samples double in size, and everything else is smaller in the scan. */
enum { ALIGNMENT = 64, EXPANSION = 16, EXPANSION_FREE = 64 << 20 };

static int write_failed(void)
{
    int code = errno == ENOSPC || errno == ENOMEM ? ERR_NO_MEMORY : ERR_IO;
    return err_set(code, "The decoded scan cannot be stored in memory (%s).", strerror(errno));
}

/* Write the pieces one after the other at `at`. Modifies the vector. */
static int write_all(int fd, struct iovec *piece, int pieces, uint64_t at)
{
    while (pieces) {
        ssize_t done = pwritev(fd, piece, pieces, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return write_failed();
        at += (uint64_t)done;
        for (; pieces && (size_t)done >= piece->iov_len; piece++, pieces--)
            done -= (ssize_t)piece->iov_len;
        if (pieces) {
            piece->iov_base = (char *)piece->iov_base + done;
            piece->iov_len -= (size_t)done;
        }
    }
    return 0;
}

static int write_at(int fd, const void *from, size_t bytes, uint64_t at)
{
    struct iovec piece = {(void *)(uintptr_t)from, bytes};
    return bytes ? write_all(fd, &piece, 1, at) : 0;
}

/* Reserve `count` items of `size` bytes at *end. False: that would exceed the limit. */
static bool place(const struct scan_builder *b, uint64_t *end, uint64_t count, size_t size, uint64_t *at)
{
    size_t bytes, aligned, next;
    if (!size_add(*end, ALIGNMENT - 1, &aligned) || !size_mul(count, size, &bytes))
        return false;
    aligned &= ~(size_t)(ALIGNMENT - 1);
    if (!size_add(aligned, bytes, &next) || next > b->cap)
        return false;
    *at = aligned;
    *end = next;
    return true;
}

static int scan_too_large(const struct scan_builder *b, uint64_t need)
{
    return err_set_bytes(ERR_LIMIT, need > INT64_MAX ? INT64_MAX : (int64_t)need, (int64_t)b->cap,
                         "The scan needs more memory than the %llu MB that this service allows for one scan. Send it "
                         "in parts, or raise the memory limit.",
                         (unsigned long long)b->cap >> 20);
}

static int no_acquisitions(void)
{
    return err_set(ERR_NO_IMAGE_DATA, "The scan contains no acquisitions: only its header was written. Export it again "
                                      "after the measurement has ended.");
}

/* Lay out and write the parts before the readouts, up to *end. */
static int beginning_write(struct scan_builder *b, const char *xml, size_t xml_bytes, uint64_t *end)
{
    struct scan_header *h = &b->header;
    h->magic = SCAN_MAGIC;
    h->version = SCAN_VERSION;
    h->xml_bytes = xml_bytes;
    *end = sizeof *h;
    if (!place(b, end, h->encodings, sizeof *b->encodings, &h->encodings_at) ||
        !place(b, end, xml_bytes + 1, 1, &h->xml_at))
        return scan_too_large(b, *end + xml_bytes);
    int rc = write_at(b->fd, b->encodings, h->encodings * sizeof *b->encodings, h->encodings_at);
    if (rc == 0)
        rc = write_at(b->fd, xml, xml_bytes, h->xml_at);
    return rc == 0 ? write_at(b->fd, "", 1, h->xml_at + xml_bytes) : rc;
}

int scan_builder_begin(struct scan_builder *b, int fd, uint64_t cap, uint64_t file_bytes, const char *xml,
                       size_t xml_bytes, uint64_t acquisitions)
{
    *b = (struct scan_builder){.fd = fd, .cap = cap, .file_bytes = file_bytes};
    struct scan_header *h = &b->header;
    int rc = scan_xml_parse(b->encodings, &h->encodings, xml, xml_bytes);
    if (rc != 0)
        return rc;
    if (acquisitions == 0)
        return no_acquisitions();
    if (acquisitions > SCAN_MAX_READOUTS)
        return err_set(ERR_LIMIT, "The file announces %llu acquisitions; at most %d are read.",
                       (unsigned long long)acquisitions, SCAN_MAX_READOUTS);
    uint64_t end;
    rc = beginning_write(b, xml, xml_bytes, &end);
    if (rc == 0 && !place(b, &end, acquisitions, sizeof(struct scan_readout), &h->readouts_at))
        return scan_too_large(b, end + acquisitions * sizeof(struct scan_readout));
    return rc;
}

static int builder_readout_check(const struct scan_builder *b, const struct scan_readout *r)
{
    if (r->coils > SCAN_MAX_COILS)
        return err_set_acquisition(ERR_LIMIT, r->acquisition, "Acquisition %u has %u channels; at most %d are read.",
                                   r->acquisition, r->coils, SCAN_MAX_COILS);
    if ((uint32_t)r->discard_pre + r->discard_post > r->samples)
        return err_set_acquisition(
            ERR_MALFORMED_FILE, r->acquisition,
            "Acquisition %u discards %u + %u samples (discard_pre, discard_post) but has only %u.", r->acquisition,
            r->discard_pre, r->discard_post, r->samples);
    if (r->encoding >= b->header.encodings)
        return err_set_acquisition(
            ERR_ENCODING_INVALID, r->acquisition,
            "Acquisition %u belongs to encoding %u (encoding_space_ref), but the header describes "
            "only %u, counted from 0.",
            r->acquisition, r->encoding, b->header.encodings);
    return 0;
}

int scan_builder_readouts(struct scan_builder *b, struct scan_readout *readouts, size_t count)
{
    struct scan_header *h = &b->header;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct scan_readout *r = &readouts[i];
        if (r->samples == 0 || r->coils == 0) {
            h->ignored++;
            continue;
        }
        int rc = builder_readout_check(b, r);
        if (rc != 0)
            return rc;
        /* At most 2^26 readouts of 2^32 items: no overflow. */
        r->traj = h->traj_count;
        r->data = h->data_count;
        h->traj_count += (uint64_t)r->samples * r->traj_dims;
        h->data_count += (uint64_t)r->samples * r->coils;
        readouts[kept++] = *r;
    }
    int rc = write_at(b->fd, readouts, kept * sizeof *readouts, h->readouts_at + h->readouts * sizeof *readouts);
    h->readouts += kept;
    return rc;
}

int scan_builder_layout(struct scan_builder *b)
{
    struct scan_header *h = &b->header;
    if (h->readouts == 0)
        return err_set(ERR_NO_IMAGE_DATA, "None of the acquisitions in the file has a sample.");
    uint64_t end = h->readouts_at + h->readouts * sizeof(struct scan_readout);
    const uint64_t maps = scan_map_count(h, b->encodings), field = scan_field_count(h, b->encodings);
    uint64_t need = end + (h->traj_count + field + h->times_count) * sizeof(float) +
                    (h->data_count + maps) * sizeof(struct c32) + 5 * ALIGNMENT;
    if (need > b->file_bytes * EXPANSION + EXPANSION_FREE)
        return err_set_bytes(ERR_HOSTILE_FILE, need > INT64_MAX ? INT64_MAX : (int64_t)need, -1,
                             "The file of %llu bytes would expand to %llu: its acquisitions claim more samples than a "
                             "file of this size can contain.",
                             (unsigned long long)b->file_bytes, (unsigned long long)need);
    if (b->in_place) {
        h->in_place = 1;
        h->traj_count = b->file_bytes / sizeof(float);
        h->data_count = b->file_bytes / sizeof(struct c32);
    } else if (!place(b, &end, h->traj_count, sizeof(float), &h->traj_at) ||
               !place(b, &end, h->data_count, sizeof(struct c32), &h->data_at)) {
        return scan_too_large(b, need);
    }
    if ((maps && !place(b, &end, maps, sizeof(struct c32), &h->maps_at)) ||
        (field && !place(b, &end, field, sizeof(float), &h->field_at)) ||
        (h->times_count && !place(b, &end, h->times_count, sizeof(float), &h->times_at)))
        return scan_too_large(b, need);
    h->total_bytes = end;
    b->traj.at = h->traj_at;
    b->data.at = h->data_at;
    return 0;
}

int scan_builder_recall(const struct scan_builder *b, struct scan_readout *readouts, uint64_t first, size_t count)
{
    char *to = (char *)readouts;
    uint64_t at = b->header.readouts_at + first * sizeof *readouts;
    for (size_t left = count * sizeof *readouts; left;) {
        ssize_t done = pread(b->fd, to, left, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_set(ERR_IO, "The decoded scan cannot be read back (%s).",
                           done < 0 ? strerror(errno) : "it is too short");
        to += done;
        at += (uint64_t)done;
        left -= (size_t)done;
    }
    return 0;
}

int scan_builder_amend(const struct scan_builder *b, const struct scan_readout *readouts, uint64_t first, size_t count)
{
    return write_at(b->fd, readouts, count * sizeof *readouts, b->header.readouts_at + first * sizeof *readouts);
}

static int stretch_flush(struct scan_stretch *s, int fd)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->pieces; i++)
        bytes += s->piece[i].iov_len;
    int rc = write_all(fd, s->piece, s->pieces, s->at);
    s->at += bytes;
    s->pieces = 0;
    return rc;
}

static int stretch_add(struct scan_stretch *s, int fd, const void *from, size_t bytes)
{
    if (bytes == 0)
        return 0;
    s->piece[s->pieces++] = (struct iovec){(void *)(uintptr_t)from, bytes};
    return s->pieces == SCAN_BUILD_PIECES ? stretch_flush(s, fd) : 0;
}

int scan_builder_samples(struct scan_builder *b, const struct scan_readout *r, const void *traj, const void *data)
{
    int rc = stretch_add(&b->traj, b->fd, traj, (size_t)r->samples * r->traj_dims * sizeof(float));
    return rc == 0 ? stretch_add(&b->data, b->fd, data, (size_t)r->samples * r->coils * sizeof(struct c32)) : rc;
}

int scan_builder_flush(struct scan_builder *b)
{
    int rc = stretch_flush(&b->traj, b->fd);
    return rc == 0 ? stretch_flush(&b->data, b->fd) : rc;
}

int scan_builder_maps(struct scan_builder *b, uint64_t first, const struct c32 *maps, size_t count)
{
    return write_at(b->fd, maps, count * sizeof *maps, b->header.maps_at + first * sizeof *maps);
}

int scan_builder_field(struct scan_builder *b, uint64_t first, const float *field, size_t count)
{
    return write_at(b->fd, field, count * sizeof *field, b->header.field_at + first * sizeof *field);
}

int scan_builder_times(struct scan_builder *b, const float *times)
{
    return write_at(b->fd, times, b->header.times_count * sizeof *times, b->header.times_at);
}

int scan_builder_finish(struct scan_builder *b)
{
    int rc = scan_builder_flush(b);
    return rc == 0 ? write_at(b->fd, &b->header, sizeof b->header, 0) : rc;
}

/* ---- a scan that arrives ---- */

int scan_builder_open(struct scan_builder *b, int fd, uint64_t cap, const char *xml, size_t xml_bytes)
{
    *b = (struct scan_builder){.fd = fd, .cap = cap};
    struct scan_header *h = &b->header;
    uint64_t end;
    int rc = scan_xml_parse(b->encodings, &h->encodings, xml, xml_bytes);
    if (rc == 0)
        rc = beginning_write(b, xml, xml_bytes, &end);
    if (rc == 0 && !place(b, &end, 0, 1, &h->traj_at))
        rc = scan_too_large(b, end);
    h->data_at = b->data.at = h->traj_at;
    return rc;
}

_Static_assert(sizeof(struct scan_readout) % sizeof(struct c32) == 0, "what follows a readout's head is aligned");

int scan_builder_arrive(struct scan_builder *b, struct scan_readout *r)
{
    int rc = builder_readout_check(b, r);
    if (rc != 0)
        return rc;
    const uint64_t traj = (uint64_t)r->samples * r->traj_dims * sizeof(float);
    const uint64_t before = b->data.at - b->header.traj_at + sizeof *r;
    r->traj = before / sizeof(float);
    r->data = (before + traj + sizeof(struct c32) - 1) / sizeof(struct c32);
    return scan_builder_put(b, r, sizeof *r);
}

int scan_builder_put(struct scan_builder *b, const void *bytes, size_t count)
{
    uint64_t end;
    if (__builtin_add_overflow(b->data.at, count, &end) || end > b->cap)
        return scan_too_large(b, end);
    int rc = write_at(b->fd, bytes, count, b->data.at);
    b->data.at = end;
    return rc;
}

int scan_builder_align(struct scan_builder *b)
{
    static const char zeros[sizeof(struct c32)];
    return scan_builder_put(b, zeros, -b->data.at % sizeof zeros);
}

/* The counts of a scan whose readouts end at `end`. */
static void counts_set(struct scan_header *h, uint64_t readouts, uint64_t end)
{
    h->readouts = readouts;
    h->traj_count = (end - h->traj_at) / sizeof(float);
    h->data_count = (end - h->traj_at) / sizeof(struct c32);
    h->total_bytes = end;
}

int scan_builder_tell(const struct scan_builder *b, uint64_t readouts, uint64_t end, bool all)
{
    struct scan_header h = b->header;
    counts_set(&h, readouts, end);
    h.magic = all ? SCAN_ARRIVED : SCAN_ARRIVING;
    h.readouts_at = h.traj_at; /* the table is written at the end */
    h.told = scan_told(&h);
    return write_at(b->fd, &h, sizeof h, 0);
}

int scan_builder_close(struct scan_builder *b, const struct scan_readout *readouts, size_t count)
{
    struct scan_header *h = &b->header;
    uint64_t end = b->data.at;
    if (count == 0)
        return h->ignored ? err_set(ERR_NO_IMAGE_DATA, "None of the acquisitions in the file has a sample.")
                          : no_acquisitions();
    counts_set(h, count, end);
    if (!place(b, &end, count, sizeof *readouts, &h->readouts_at))
        return scan_too_large(b, end + count * sizeof *readouts);
    h->total_bytes = end;
    /* Who computes on the scan as it arrives needs no table of readouts, which takes a while to write. */
    int rc = scan_builder_tell(b, count, b->data.at, true);
    if (rc == 0)
        rc = write_at(b->fd, readouts, count * sizeof *readouts, h->readouts_at);
    h->told = scan_told(h);
    return rc == 0 ? write_at(b->fd, h, sizeof *h, 0) : rc;
}
