/* decoder.h: processes of mrirecon-codec that decode uploads.
 *
 * A process starts, links its libraries, enters its sandbox (recon/codec/sandbox.h) and waits; it receives one upload
 * (recon/codec/codec.h), decodes it and ends. Starting takes longer than decoding a small scan, so processes can be
 * started before the uploads, by forking a template that has linked the libraries and serves no upload. Each process
 * still serves a single upload, in the same sandbox.
 *
 * A struct decoder belongs to one thread. Its processes end with it, and with the thread that started them.
 */
#ifndef MRIRECON_DECODER_H
#define MRIRECON_DECODER_H

#include "gridding/base/num.h"

struct decoder;

/* Limits on decoding one file. */
struct decode_limits {
    uint64_t bytes; /* of its decoded form */
    double
        seconds; /* of processor time, in addition to one for each MiB of the file; four times as much elapsed time */
    /* NULL: the file is complete. Else its format contains its own end, and it may grow while this is true; the limit
     * of elapsed time counts from when it is false. */
    const _Atomic bool *arriving;
    /* For reading the decoded form of such a file while it is written: receives a descriptor of the decoder's memory,
     * unchecked, which belongs to the thread that takes it; -1 before, and from then on: the decoder's end then waits
     * until `arriving` is false, at most 50 ms. NULL: not needed. */
    _Atomic int *live;
};

/* `codec`: path of mrirecon-codec; must outlive the decoder. Starts nothing yet. Fails with ERR_NO_MEMORY. */
int decoder_create(struct decoder **out, const char *codec);

/* Kills and reaps all processes. */
void decoder_free(struct decoder *decoder);

enum { DECODER_MOST_READY = 4 };

/* Reap processes that have ended, and start new ones until `count` (at most DECODER_MOST_READY) are ready. Fails with
 * ERR_INTERNAL, ERR_IO: then fewer are ready, and decoding starts its own. */
int decoder_prepare(struct decoder *decoder, int count);

/* Allocate memory for the next scan, as much as the last one used: page faults of a small scan take longer than
 * decoding it. Not a failure if there is no memory; the scan then allocates its own. */
void decoder_prepare_memory(struct decoder *decoder);

/* Sentences about processes that ended while ready, were killed from outside, or were templates, since the last call;
 * NULL: none. Valid until the next call with this decoder. */
const char *decoder_lost(struct decoder *decoder);

/* ---- for decode_file() ---- */

/* A memfd, empty or all zero, that can grow to `cap` bytes; the one allocated before, if any. The caller closes it.
 * Fails with ERR_NO_MEMORY. */
int decoder_memory(struct decoder *decoder, uint64_t cap);

/* Decoding into this memory has succeeded: the next scan may need as much. */
void decoder_note(struct decoder *decoder, int memory);

struct decoder_upload {
    int file; /* the upload */
    uint64_t file_bytes;
    int memory;         /* memfd that receives the decoded form */
    const char *format; /* of a reader in recon/codec_formats.c */
    uint64_t magic;     /* likewise */
    const void *wanted; /* the kind's options for the reader; NULL: none */
    size_t wanted_bytes;
    struct decode_limits limits; /* .bytes: the memfd's largest size; .seconds: all of its processor time */
    int (*canceled)(void *context);
    void *context;
    bool (*meanwhile)(void *of); /* called while a process reads, until it returns false; may be NULL */
    void *of;
};

/* Let a ready or a new process decode the upload. On return it has ended, or is being killed and cannot write to a
 * sealed memfd. If it is killed from outside (SIGKILL), another process tries once more. Fails with the reported
 * failure, the way it died, ERR_LIMIT (time), ERR_NO_MEMORY (killed twice), ERR_CANCELED. */
int decoder_run(struct decoder *decoder, const struct decoder_upload *upload);

#endif
