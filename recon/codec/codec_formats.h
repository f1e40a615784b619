/* codec_formats.h: the file formats that mrirecon-codec reads and derives: a row each in recon/codec_formats.c. */
#ifndef MRIRECON_CODEC_FORMATS_H
#define MRIRECON_CODEC_FORMATS_H

#include "recon/recon.h"

/* A reader: from one format to one type of decoded memory (an .npz file may be a scan or particles). */
struct codec_reader {
    uint64_t magic;     /* first member of the decoded memory, decode_request.magic */
    const char *format; /* kind_input.name */
    /* Decode a mapped file (which may change while it is read, so every number is read once) into the memfd `memory`,
     * which can grow to `most_bytes` and begins with a struct decode_head (recon/codec/decode.h). `wanted`: the kind's
     * options, in a struct of the reader's own; all 0: none. Fails with the codes of "the file" in err.h,
     * ERR_NO_MEMORY. */
    int (*decode)(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
    /* The same for a file that is still being written, of a format whose files contain their own end or length;
     * waits for that. NULL: the format needs complete files. `done` is called once all is written, before anything is
     * freed: who ends the process then saves that time. */
    int (*follow)(int memory, uint64_t most_bytes, int file, const void *wanted, void (*done)(void));
};
extern const struct codec_reader codec_readers[]; /* ends with .format = NULL */

/* A converter: from a form's native format to its others. */
struct codec_converter {
    const struct result_form *form;
    /* Read `in`, a native file written by a worker, and write it to `out` in that format. Fails as job_result.write()
     * (recon/kind_run.h), and with ERR_MALFORMED_FILE. */
    int (*convert)(int in, int format, int out);
    /* Draw one slice of it as PNG; NULL if the form has no views. Fails likewise, and with ERR_NOT_ACCEPTABLE. */
    int (*view)(int in, const struct result_view *view, int out);
};
extern const struct codec_converter codec_converters[]; /* ends with .form = NULL */

/* Initialise the formats' libraries at the start, outside the sandbox; and warm them up (load pages, resolve symbols)
 * if there is time. Fail with ERR_INTERNAL, ERR_NO_MEMORY. */
int codec_init(void);
int codec_warm_up(void);

#endif
