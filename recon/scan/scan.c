/* Opens a flat scan. The process that wrote it parsed hostile bytes, so every number in it is checked. */
#include "gridding/base/err.h"
#include "recon/codec/sealed.h"
#include "recon/scan/scan_check.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { ALIGNMENT = 64 };

const enum scan_index scan_place_index[SCAN_PLACES] = {
    [SCAN_PLACE_PHASE] = SCAN_PHASE,
    [SCAN_PLACE_CONTRAST] = SCAN_CONTRAST,
    [SCAN_PLACE_SET] = SCAN_SET,
    [SCAN_PLACE_SLICE] = SCAN_SLICE,
};

int scan_invalid(const char *what)
{
    return err_set(ERR_DECODER_DIED,
                   "The decoder returned an invalid scan (%s). The file is probably damaged in a way that misled it: "
                   "export the scan again, and report the file if other programs can read it.",
                   what);
}

/* The part [at, at + count * size) lies within the whole. */
static bool part_fits(const struct scan_header *h, uint64_t at, uint64_t count, size_t size)
{
    size_t bytes, end;
    return at >= sizeof *h && at % ALIGNMENT == 0 && size_mul(count, size, &bytes) && size_add(at, bytes, &end) &&
           end <= h->total_bytes;
}

/* Likewise `count` items from the beginning of an upload of `bytes`. */
static bool upload_fits(uint64_t at, uint64_t count, size_t size, uint64_t bytes)
{
    return at == 0 && count <= bytes / size;
}

/* `upload`: bytes of the upload. */
static int samples_check(const struct scan_header *h, uint64_t upload)
{
    if (h->in_place > 1)
        return scan_invalid("place of the samples");
    bool fits = h->in_place ? upload_fits(h->traj_at, h->traj_count, sizeof(float), upload) &&
                                  upload_fits(h->data_at, h->data_count, sizeof(struct c32), upload)
                            : part_fits(h, h->traj_at, h->traj_count, sizeof(float)) &&
                                  part_fits(h, h->data_at, h->data_count, sizeof(struct c32));
    return fits ? 0 : scan_invalid("samples outside the whole");
}

int scan_header_check(const struct scan_header *h, uint64_t upload)
{
    if (h->version != SCAN_VERSION)
        return scan_invalid("version");
    if (h->encodings < 1 || h->encodings > SCAN_MAX_ENCODINGS)
        return scan_invalid("number of encodings");
    if (h->readouts < 1 || h->readouts > SCAN_MAX_READOUTS)
        return scan_invalid("number of readouts");
    if (h->streamed > 1)
        return scan_invalid("streamed");
    if (h->headless > 1)
        return scan_invalid("origin of the header");
    if (h->map_coils > SCAN_MAX_COILS)
        return scan_invalid("number of coil maps");
    if (h->field_maps > SCAN_MAX_SLICES)
        return scan_invalid("number of field maps");
    if (h->xml_bytes > SCAN_MAX_XML)
        return scan_invalid("length of the XML header");
    if (!part_fits(h, h->encodings_at, h->encodings, sizeof(struct scan_encoding)) ||
        !part_fits(h, h->readouts_at, h->readouts, sizeof(struct scan_readout)) ||
        !part_fits(h, h->xml_at, h->xml_bytes + 1, 1))
        return scan_invalid("a part outside the whole");
    return samples_check(h, upload);
}

int scan_encoding_check(const struct scan_encoding *e)
{
    for (int d = 0; d < 3; d++) {
        if (e->matrix[d] < 1 || e->matrix[d] > SCAN_MAX_MATRIX || e->recon_matrix[d] < 1 ||
            e->recon_matrix[d] > SCAN_MAX_MATRIX)
            return scan_invalid("a matrix size");
        if (!(e->fov_mm[d] > 0 && isfinite(e->fov_mm[d]) && e->recon_fov_mm[d] > 0 && isfinite(e->recon_fov_mm[d])))
            return scan_invalid("a field of view");
    }
    if (e->images < 1)
        return scan_invalid("a number of images");
    if (e->trajectory > SCAN_OTHER)
        return scan_invalid("a trajectory");
    const char *name = e->trajectory_name, *end = memchr(name, '\0', sizeof e->trajectory_name);
    for (; end && name < end; name++)
        if (*name < ' ' || *name > '~')
            return scan_invalid("a trajectory's name");
    return end ? 0 : scan_invalid("a trajectory's name");
}

/* Products of 16-bit numbers cannot overflow 64 bits. */
int scan_readout_check(const struct scan_header *h, const struct scan_readout *r)
{
    uint64_t traj = (uint64_t)r->samples * r->traj_dims, data = (uint64_t)r->samples * r->coils;
    if (r->samples < 1 || r->coils < 1 || r->coils > SCAN_MAX_COILS)
        return scan_invalid("a readout's samples or coils");
    if (r->traj > h->traj_count || traj > h->traj_count - r->traj)
        return scan_invalid("a readout's trajectory");
    if (r->data > h->data_count || data > h->data_count - r->data)
        return scan_invalid("a readout's data");
    if ((uint32_t)r->discard_pre + r->discard_post > r->samples)
        return scan_invalid("a readout's discarded samples");
    return r->encoding < h->encodings ? 0 : scan_invalid("a readout's encoding");
}

static int parts_check(const struct scan *scan)
{
    int rc = 0;
    for (uint32_t i = 0; i < scan->header->encodings && rc == 0; i++)
        rc = scan_encoding_check(&scan->encodings[i]);
    for (uint64_t i = 0; i < scan->header->readouts && rc == 0; i++)
        rc = scan_readout_check(scan->header, &scan->readouts[i]);
    const uint64_t maps = rc == 0 ? scan_map_count(scan->header, scan->encodings) : 0;
    if (maps && !part_fits(scan->header, scan->header->maps_at, maps, sizeof(struct c32)))
        rc = scan_invalid("coil maps outside the whole");
    const uint64_t field = rc == 0 ? scan_field_count(scan->header, scan->encodings) : 0;
    if (field && !part_fits(scan->header, scan->header->field_at, field, sizeof(float)))
        rc = scan_invalid("field maps outside the whole");
    if (rc == 0 && scan->header->times_count &&
        !part_fits(scan->header, scan->header->times_at, scan->header->times_count, sizeof(float)))
        rc = scan_invalid("sampling times outside the whole");
    if (rc == 0 && memchr(scan->xml, '\0', scan->header->xml_bytes + 1) != scan->xml + scan->header->xml_bytes)
        rc = scan_invalid("the end of the XML header");
    return rc;
}

bool scan_upload_is_small(uint64_t bytes)
{
    enum { SMALL_BYTES = 16 << 20 };
    return bytes <= SMALL_BYTES;
}

int scan_upload_map(struct scan_upload *out, int fd, uint64_t bytes, bool pages)
{
    const void *base = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED | (pages ? MAP_POPULATE : 0), fd, 0);
    if (base == MAP_FAILED)
        return err_set_bytes(ERR_NO_MEMORY, (int64_t)bytes, -1, "The scan (%llu bytes) cannot be mapped (%s).",
                             (unsigned long long)bytes, strerror(errno));
    *out = (struct scan_upload){base, (size_t)bytes};
    return 0;
}

void scan_upload_unmap(struct scan_upload *upload)
{
    if (upload->base)
        munmap((void *)(uintptr_t)upload->base, upload->bytes);
    *upload = (struct scan_upload){NULL, 0};
}

/* Take the mapping of the upload that contains the scan's samples, or make it. */
static int upload_take(struct scan *scan, int upload, uint64_t bytes, struct scan_upload *mapped)
{
    if (mapped->base && mapped->bytes != bytes)
        scan_upload_unmap(mapped);
    int rc = mapped->base ? 0 : scan_upload_map(mapped, upload, bytes, scan_upload_is_small(bytes));
    if (rc != 0)
        return rc;
    scan->upload = mapped->base;
    scan->upload_bytes = mapped->bytes;
    scan->traj = mapped->base;
    scan->data = mapped->base;
    *mapped = (struct scan_upload){NULL, 0};
    return 0;
}

/* The scan at `base`, whose header was checked; its parts are checked here. */
static int parts_open(struct scan *out, const char *base, int upload, uint64_t upload_bytes, struct scan_upload *mapped)
{
    const struct scan_header *h = (const void *)base;
    struct scan scan = {
        .header = h,
        .encodings = (const void *)(base + h->encodings_at),
        .readouts = (const void *)(base + h->readouts_at),
        .xml = base + h->xml_at,
        .traj = h->in_place ? NULL : (const void *)(base + h->traj_at),
        .data = h->in_place ? NULL : (const void *)(base + h->data_at),
        .maps = h->map_coils ? (const void *)(base + h->maps_at) : NULL,
        .field = h->field_maps ? (const void *)(base + h->field_at) : NULL,
        .times = h->times_count ? (const void *)(base + h->times_at) : NULL,
    };
    int rc = parts_check(&scan);
    if (rc == 0 && h->in_place)
        rc = upload_take(&scan, upload, upload_bytes, mapped);
    if (rc == 0)
        *out = scan;
    return rc;
}

int scan_open_mapped(struct scan *out, int fd, int upload, struct scan_upload *mapped)
{
    struct stat file = {.st_size = 0};
    const char *base;
    size_t bytes;
    int rc = sealed_map(&base, &bytes, fd, sizeof(struct scan_header), "scan", scan_invalid);
    if (rc != 0)
        return rc;
    const struct scan_header *h = (const void *)base;
    if (upload >= 0 && (fstat(upload, &file) != 0 || !S_ISREG(file.st_mode)))
        file.st_size = 0;
    rc = h->magic != SCAN_MAGIC ? scan_invalid("magic number") : 0;
    if (rc == 0 && h->total_bytes != bytes)
        rc = scan_invalid("size");
    if (rc == 0)
        rc = scan_header_check(h, (uint64_t)file.st_size);
    if (rc == 0)
        rc = parts_open(out, base, upload, (uint64_t)file.st_size, mapped);
    if (rc != 0)
        munmap((void *)(uintptr_t)base, bytes);
    return rc;
}

int scan_open(struct scan *out, int fd, int upload)
{
    struct scan_upload none = {NULL, 0};
    return scan_open_mapped(out, fd, upload, &none);
}

void scan_close(struct scan *scan)
{
    if (scan && scan->header)
        munmap((void *)(uintptr_t)scan->header, scan->header->total_bytes);
    if (scan && scan->upload)
        munmap((void *)(uintptr_t)scan->upload, scan->upload_bytes);
    if (scan)
        *scan = (struct scan){0};
}

uint64_t scan_bytes(const struct scan *scan)
{
    uint64_t bytes = scan->header->total_bytes;
    for (uint64_t i = 0; i < scan->header->readouts && scan->header->in_place; i++) {
        const struct scan_readout *r = &scan->readouts[i];
        bytes += (uint64_t)r->samples * (r->traj_dims * sizeof(float) + r->coils * sizeof(struct c32));
    }
    return bytes;
}
