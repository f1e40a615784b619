/* decode.h: one file, decoded by a process of mrirecon-codec (recon/codec/decoder.h), as sealed memory. */
#ifndef MRIRECON_DECODE_H
#define MRIRECON_DECODE_H

#include "recon/codec/decoder.h"

/* What decoded memory begins with, in native byte order: both sides run on the same machine. */
struct decode_head {
    uint64_t magic;
    uint32_t version, count; /* these two are of the format's own use */
    uint64_t total_bytes;    /* of the whole, = the memfd's size once it is sealed */
};

struct decode_request {
    int file;           /* a regular file, read-only; stays the caller's */
    const char *format; /* as a reader of recon/codec_formats.c has it */
    const void *wanted; /* what is wanted of the file, in the reader's own form; NULL: nothing in particular */
    size_t wanted_bytes;
    uint64_t magic; /* that the decoded memory must begin with */
    const struct decode_limits *limits;
    int (*canceled)(void *context); /* polled; non-zero kills the process; may be NULL */
    void *context;
};

/* Decode the file: *memory is a memfd, the caller's, sealed against any change. It was made by a process that read
 * hostile bytes: only its head is checked. Fails as decoder_run(), and with ERR_DECODER_DIED (what is there is not what
 * was to be made), ERR_IO, ERR_NO_MEMORY. */
int decode_file(int *memory, struct decoder *decoder, const struct decode_request *request);

#endif
