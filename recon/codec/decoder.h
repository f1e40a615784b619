/* decoder.h: processes of mrirecon-codec that decode uploads.
 *
 * A process is started, links its libraries, shuts itself in (recon/codec/sandbox.h) and waits; it is then sent one
 * upload (recon/codec/codec.h), decodes it and ends. Starting takes longer than decoding a small scan, so processes can
 * be started ahead of the uploads, and are then forked from one that has its libraries and serves no upload: what a
 * process may do, and that it serves one upload and no second, is the same.
 *
 * A struct decoder belongs to one thread. Its processes end with it, and with the thread that started them.
 */
#ifndef MRIRECON_DECODER_H
#define MRIRECON_DECODER_H

#include "gridding/base/num.h"

struct decoder;

/* Limits on decoding one file. */
struct decode_limits {
    uint64_t bytes; /* of what is made of it */
    double seconds; /* of processor time, beside one for each MiB of the file; of the clock four times as many */
    /* NULL: the file is complete. Else it is of a format that tells its own end, and may still grow while this is true;
     * the clock's time counts from then on. */
    const _Atomic bool *arriving;
    /* Of such a file, for who looks at what is decoded while it is: receives a descriptor, the taker's, of the memory
     * that the decoder writes to, which nobody has checked; -1 before. NULL: nobody looks. */
    _Atomic int *live;
};

/* `codec`: path of mrirecon-codec; must outlive the decoder. Starts nothing yet. Fails with ERR_NO_MEMORY. */
int decoder_create(struct decoder **out, const char *codec);

/* Ends and collects all processes. */
void decoder_free(struct decoder *decoder);

enum { DECODER_MOST_READY = 4 };

/* Collect processes that have ended, and start as many as it takes for `count` (at most DECODER_MOST_READY) to stand
 * ready. Fails with ERR_INTERNAL, ERR_IO: then fewer stand ready, and decoding starts its own. */
int decoder_prepare(struct decoder *decoder, int count);

/* Set memory aside for the next scan, as much as the last one took; the kernel takes longer to hand out the
 * pages of a small scan than it takes to decode it. No memory to set aside is no failure: the scan takes its own. */
void decoder_prepare_memory(struct decoder *decoder);

/* Sentences on processes that ended while they stood ready, or were killed from outside, or that others were to be
 * forked from, since this was last asked; NULL: none did. Valid until the next call with this decoder. */
const char *decoder_lost(struct decoder *decoder);

/* ---- for scan_decode() ---- */

/* A fresh memfd, empty or all zero, that can grow to `cap` bytes and no further; what was set aside, if anything is.
 * The descriptor is the caller's to close. Fails with ERR_NO_MEMORY. */
int decoder_memory(struct decoder *decoder, uint64_t cap);

/* What was decoded into this memory is whole: the next may take as much. */
void decoder_note(struct decoder *decoder, int memory);

struct decoder_upload {
    int file; /* the upload */
    uint64_t file_bytes;
    int memory;         /* memfd that receives what is decoded */
    const char *format; /* of a reader in recon/codec_formats.c */
    uint64_t magic;     /* likewise */
    const void *wanted; /* what is wanted of the file, in the reader's own form; NULL: nothing in particular */
    size_t wanted_bytes;
    struct decode_limits limits; /* .bytes: what the memfd may grow to; .seconds: all of its processor time */
    int (*canceled)(void *context);
    void *context;
};

/* Have a process decode the upload, one that stands ready or a fresh one; the process has ended, or is being ended and
 * writes no more to a sealed memfd, on return. One that is killed from outside (SIGKILL) has its upload read once more
 * by another. Fails with what the process reported, how it died, ERR_LIMIT (time), ERR_NO_MEMORY (killed twice),
 * ERR_CANCELED. */
int decoder_run(struct decoder *decoder, const struct decoder_upload *upload);

#endif
