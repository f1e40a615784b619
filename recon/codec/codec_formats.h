/* codec_formats.h: the file formats that mrirecon-codec reads and derives: a row each in recon/codec_formats.c. */
#ifndef MRIRECON_CODEC_FORMATS_H
#define MRIRECON_CODEC_FORMATS_H

#include "recon/recon.h"

/* How uploads of one format are read, into one kind of memory: an .npz file may be a scan or particles. */
struct codec_reader {
    uint64_t magic;     /* that the memory begins with, decode_request.magic */
    const char *format; /* as kind_input.name has it */
    /* Make of a file in memory (which may change while it is read: every number is read once) what its kind reads, in
     * the memfd `memory` that can grow to `most_bytes`; it begins with a struct decode_head (recon/codec/decode.h).
     * `wanted`: what the kind wants of the file, in a struct of the reader's own; all 0 where it wants nothing in
     * particular. Fails with the codes of "the file" in err.h, ERR_NO_MEMORY. */
    int (*decode)(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
    /* The same of a file that is still being written, for a format whose files tell their own end, for which this
     * waits. NULL: of this format complete files are read only. */
    int (*follow)(int memory, uint64_t most_bytes, int file);
};
extern const struct codec_reader codec_readers[]; /* ends with .format = NULL */

/* How the formats of one form of results are derived from the native one. */
struct codec_converter {
    const struct result_form *form;
    /* Read `in`, a native file that a worker wrote, and write it to `out` as that format. Fails as job_result.write()
     * (recon/kind_run.h), and with ERR_MALFORMED_FILE. */
    int (*convert)(int in, int format, int out);
    /* Draw one slice of it as PNG; NULL if the form has no views. Fails likewise, and with ERR_NOT_ACCEPTABLE. */
    int (*view)(int in, const struct result_view *view, int out);
};
extern const struct codec_converter codec_converters[]; /* ends with .form = NULL */

/* What the libraries of all formats do before a file is there: at the start, outside the sandbox; and to have their
 * pages and symbols ready, where there is time. Fail with ERR_INTERNAL, ERR_NO_MEMORY. */
int codec_init(void);
int codec_warm_up(void);

#endif
