/* decode.h: one file, decoded by a process of mrirecon-codec (recon/codec/decoder.h), as memory for sealed_map(). */
#ifndef MRIRECON_DECODE_H
#define MRIRECON_DECODE_H

#include "recon/codec/decoder.h"

/* The beginning of decoded memory, in native byte order: both processes run on the same machine. */
struct decode_head {
    uint64_t magic;
    uint32_t version, count; /* for the format's own use */
    uint64_t total_bytes;    /* the memfd's size once it is complete */
};

struct decode_request {
    int file;           /* a regular file, read-only; stays the caller's */
    const char *format; /* of a reader in recon/codec_formats.c */
    const void *wanted; /* the kind's options for the reader; NULL: none */
    size_t wanted_bytes;
    uint64_t magic; /* that the decoded memory must begin with */
    const struct decode_limits *limits;
    int (*canceled)(void *context); /* polled; non-zero kills the process; may be NULL */
    void *context;
    bool (*meanwhile)(void *of); /* called while the decoder reads, again after a millisecond, later 50, if it returns
                                    true; NULL: nothing is to be done */
    void *of;
};

/* Decode the file: *memory is a memfd, the caller's, for sealed_map(). It was written by a process that read untrusted
 * bytes, and only its head has been checked. Fails as decoder_run(), and with ERR_DECODER_DIED (the head is
 * invalid), ERR_IO, ERR_NO_MEMORY. */
int decode_file(int *memory, struct decoder *decoder, const struct decode_request *request);

#endif
