/* Decodes an upload: a decoder process reads it, and the result is opened. */
#include "gridding/base/err.h"
#include "recon/codec/decode.h"
#include "recon/scan/scan_check.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(offsetof(struct scan_header, magic) == offsetof(struct decode_head, magic) &&
                   offsetof(struct scan_header, total_bytes) == offsetof(struct decode_head, total_bytes) &&
                   sizeof(struct scan_header) >= sizeof(struct decode_head),
               "A scan begins as all that is decoded does.");

struct early {
    int file;
    uint64_t bytes;
    struct scan_upload mapped;
};

/* Mapping a small upload takes as long as decoding it, and is done beside that. scan_open_mapped() reports a failure.
 */
static void upload_map_early(void *of)
{
    struct early *early = of;
    if (scan_upload_map(&early->mapped, early->file, early->bytes) != 0)
        early->mapped = (struct scan_upload){NULL, 0};
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
    struct early early = {.file = fd, .bytes = (uint64_t)status.st_size};
    int memory = -1, rc = scan_sniff(&request.format, fd, early.bytes);
    if (rc == 0 && in_place && strcmp(request.format, "hdf5") == 0 && scan_upload_is_small(early.bytes)) {
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
