/* Decodes an upload in a decoder process, and opens its output. */
#include "gridding/base/err.h"
#include "recon/codec/codec.h"
#include "recon/codec/decode.h"
#include "recon/particle/particles.h"

#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(offsetof(struct particles_header, magic) == offsetof(struct decode_head, magic) &&
                   offsetof(struct particles_header, total_bytes) == offsetof(struct decode_head, total_bytes) &&
                   sizeof(struct particles_header) >= sizeof(struct decode_head),
               "The header of particles begins like that of every decoded file.");
_Static_assert(sizeof(struct particles_wanted) <= CODEC_WANTED, "A request has space for struct particles_wanted.");

int particles_decode(struct particles *out, struct decoder *decoder, int fd, const struct kind_input *inputs,
                     const struct particles_wanted *wanted, const struct decode_limits *limits,
                     int (*canceled)(void *context), void *context)
{
    struct stat status;
    struct decode_request request = {
        .file = fd,
        .wanted = wanted,
        .wanted_bytes = sizeof *wanted,
        .magic = PARTICLES_MAGIC,
        .limits = limits,
        .canceled = canceled,
        .context = context,
    };
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(ERR_IO, "The input is not a regular file.");
    int memory = -1, rc = particles_sniff(&request.format, fd, (uint64_t)status.st_size, inputs);
    if (rc == 0)
        rc = decode_file(&memory, decoder, &request);
    if (rc == 0)
        rc = particles_open(out, memory);
    /* The mapping keeps the memory alive. */
    if (memory >= 0)
        close(memory);
    return rc;
}
