/* Decodes an upload: a decoder process reads it, and the result is opened. */
#include "gridding/base/err.h"
#include "recon/codec/decode.h"
#include "recon/scan/scan.h"

#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(offsetof(struct scan_header, magic) == offsetof(struct decode_head, magic) &&
                   offsetof(struct scan_header, total_bytes) == offsetof(struct decode_head, total_bytes) &&
                   sizeof(struct scan_header) >= sizeof(struct decode_head),
               "A scan begins as all that is decoded does.");

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
    int memory = -1, rc = scan_sniff(&request.format, fd, (uint64_t)status.st_size);
    if (rc == 0)
        rc = decode_file(&memory, decoder, &request);
    if (rc == 0)
        rc = scan_open(out, memory, wanted && wanted->in_place ? fd : -1);
    /* The mapping keeps the memory. */
    if (memory >= 0)
        close(memory);
    return rc;
}
