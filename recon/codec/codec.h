/* codec.h: between those who start the program mrirecon-codec, and it.
 *
 *   mrirecon-codec decode
 *
 * with one end of a SOCK_SEQPACKET pair at CODEC_FD. It receives one struct codec_request with two descriptors (the
 * file, a memfd for what is made of it), says so by CODEC_BEGUN, and answers with one struct codec_report: of success,
 * once that is complete, or of a failure. Then it ends. The report is written by a process that read hostile bytes: the
 * parent believes neither its code nor its text without looking. A socket that is closed before the request came means
 * that there is nothing to do. Both begin with a magic number and a version; whoever gets another version than its own
 * refuses it with a sentence.
 *
 *   mrirecon-codec template
 *
 * with one end of such a pair at CODEC_FD. It gets ready to decode, and then, for each struct codec_head of
 * CODEC_FORK_MAGIC with one descriptor, forks a process that serves as `decode` does with that descriptor as its end,
 * and answers with one struct codec_forked. The process is a child of the template's parent, which ends and collects
 * it. No upload ever comes to the template, and none of those that it forked knows of another's.
 *
 * The request is believed: it comes from the process that owns this one. The codec limits its memory and time as the
 * request says before it looks at the file, for good (sandbox_limit()): its parent may not change limits of others.
 *
 *   mrirecon-codec convert FORM FILE FORMAT OUTFILE [VIEW]
 *
 * derives OUTFILE from FILE, which is of the native format of that form of results (recon/recon.h), or draws one slice
 * of it (VIEW: view_print(); the format is then png, whatever FORMAT says), and ends with status 0; with CODEC_REFUSED
 * where the result cannot be brought into the format: OUTFILE then holds the sentence that says why, at most
 * CODEC_REASON bytes; else with another, and says why on stderr.
 */
#ifndef MRIRECON_CODEC_H
#define MRIRECON_CODEC_H

#include "gridding/base/err.h"

enum { CODEC_VERSION = 4, CODEC_FD = 3, CODEC_FORMAT = 12, CODEC_WANTED = 512, CODEC_REFUSED = 3, CODEC_REASON = 511 };
#define CODEC_BEGUN         "b" /* a message of this one byte: from here on, its end is due to the upload */
#define CODEC_DECODE        "decode"
#define CODEC_TEMPLATE      "template"           /* not shorter: what is forked shows the other in its place */
#define CODEC_FORK_MAGIC    UINT32_C(0x4b46434d) /* "MCFK" */
#define CODEC_REQUEST_MAGIC UINT32_C(0x5152434d) /* "MCRQ" */
#define CODEC_REPORT_MAGIC  UINT32_C(0x5052434d) /* "MCRP" */

/* What a request and a report begin with, in every version. */
struct codec_head {
    uint32_t magic, version;
};

struct codec_forked {
    struct codec_head head;
    int64_t pid; /* of the forked process; 0: the kernel gave none */
};

struct codec_request {
    struct codec_head head;
    char format[CODEC_FORMAT]; /* of a reader in recon/codec_formats.c */
    uint64_t magic;            /* likewise: what is made of the file begins with it */
    uint64_t file_bytes;       /* length of the file */
    uint64_t arriving;         /* 1: the file is still being written, and tells its own end; else 0 */
    uint64_t most_bytes;       /* of what is made of it */
    uint64_t heap_bytes;       /* of its own memory */
    double cpu_seconds;
    _Alignas(8) unsigned char wanted[CODEC_WANTED]; /* the reader's own */
};

struct codec_report {
    struct codec_head head;
    struct err failure; /* .code 0: success */
};

#endif
