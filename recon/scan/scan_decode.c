/* Decodes an upload: a decoder process reads it, and the result is opened. */
#include "gridding/base/err.h"
#include "recon/codec/decode.h"
#include "recon/h5/h5_length.h"
#include "recon/scan/scan_check.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(offsetof(struct scan_header, magic) == offsetof(struct decode_head, magic) &&
                   offsetof(struct scan_header, total_bytes) == offsetof(struct decode_head, total_bytes) &&
                   sizeof(struct scan_header) >= sizeof(struct decode_head),
               "A scan begins as all that is decoded does.");

struct early {
    int file;
    uint64_t bytes; /* of the whole; 0: unknown */
    bool arriving;
    struct scan_upload mapped;
    size_t there; /* bytes of the mapping whose pages were taken */
};

/* Mapping a small upload takes as long as decoding it, and is done beside that: of one that arrives, what is there, as
 * long as this returns true. scan_open_mapped() reports a failure. */
static bool upload_map_early(void *of)
{
    struct early *early = of;
    struct stat status;
    if (!early->mapped.base && scan_upload_map(&early->mapped, early->file, early->bytes, !early->arriving) != 0)
        early->mapped = (struct scan_upload){NULL, 0};
    if (!early->mapped.base || !early->arriving || fstat(early->file, &status) != 0)
        return false;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), arrived = (size_t)status.st_size / page * page;
    if (arrived > early->there && arrived <= early->mapped.bytes &&
        madvise((char *)(uintptr_t)early->mapped.base + early->there, arrived - early->there, MADV_POPULATE_READ) != 0)
        return false; /* an older kernel */
    early->there = arrived > early->there ? arrived : early->there;
    return (uint64_t)status.st_size < early->bytes;
}

/* The length of the upload, from its beginning if it arrives. */
static uint64_t upload_bytes(int file, uint64_t now, bool arriving)
{
    uint8_t head[H5_LENGTH_HEAD];
    if (!arriving)
        return now;
    return pread(file, head, sizeof head, 0) == sizeof head ? h5_length(head, sizeof head) : 0;
}

int scan_decode(struct scan *out, struct decoder *decoder, int fd, const struct scan_wanted *wanted,
                const struct decode_limits *limits, int (*canceled)(void *context), void *context)
{
    struct stat status;
    struct decode_request request = {
        .file = fd,
        .wanted = wanted,
        .wanted_bytes = wanted ? sizeof *wanted : 0,
        .magic = SCAN_MAGIC,
        .limits = limits,
        .canceled = canceled,
        .context = context,
    };
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(ERR_IO, "The scan is not a regular file.");
    const bool in_place = wanted && wanted->in_place;
    struct early early = {.file = fd, .arriving = limits->arriving != NULL};
    int memory = -1, rc = scan_sniff(&request.format, fd, (uint64_t)status.st_size);
    if (rc == 0 && in_place && strcmp(request.format, "hdf5") == 0)
        early.bytes = upload_bytes(fd, (uint64_t)status.st_size, early.arriving);
    if (early.bytes > 0 && scan_upload_is_small(early.bytes)) {
        request.meanwhile = upload_map_early;
        request.of = &early;
    }
    if (rc == 0)
        rc = decode_file(&memory, decoder, &request);
    if (rc == 0)
        rc = scan_open_mapped(out, memory, in_place ? fd : -1, &early.mapped);
    scan_upload_unmap(&early.mapped);
    /* The mapping keeps the memory. */
    if (memory >= 0)
        close(memory);
    return rc;
}
