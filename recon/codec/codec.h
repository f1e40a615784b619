/* codec.h: the protocol between mrirecon-codec and the processes that start it.
 *
 *   mrirecon-codec decode
 *
 * with one end of a SOCK_SEQPACKET pair at CODEC_FD. It receives one struct codec_request with two descriptors (the
 * file, and a memfd for its decoded form), acknowledges it by CODEC_BEGUN, answers with one struct codec_report (of
 * success, once the decoded form is complete, or of a failure), and ends. The report is written by a process that has
 * read untrusted bytes, so the parent checks its code and its text. If the socket is closed before a request arrives,
 * the process just ends. Request and report begin with a magic number and a version; a different version is refused
 * with a sentence.
 *
 *   mrirecon-codec template
 *
 * with one end of such a pair at CODEC_FD. It prepares to decode, and then, for each struct codec_head of
 * CODEC_FORK_MAGIC with one descriptor, forks a process that serves that descriptor as `decode` does, and answers with
 * one struct codec_forked. The process is a child of the template's parent, which kills and reaps it. The template
 * receives no upload, and no forked process can access another's.
 *
 * Requests are trusted, because they come from the parent. Before the codec reads the file it limits its memory and
 * time, permanently, as the request says (sandbox_limit()); its parent's sandbox may not set limits of other processes.
 *
 *   mrirecon-codec convert FORM FILE FORMAT OUTFILE [VIEW]
 *
 * converts FILE, in the native format of that form of results (recon/recon.h), to OUTFILE, or draws one slice of it
 * (VIEW: view_print(); the format is then png, whatever FORMAT says). Exit status: 0; CODEC_REFUSED if the result
 * cannot be converted to the format (OUTFILE then contains the reason, one sentence of at most CODEC_REASON bytes);
 * otherwise another, with a message on stderr.
 */
#ifndef MRIRECON_CODEC_H
#define MRIRECON_CODEC_H

#include "gridding/base/err.h"

enum { CODEC_VERSION = 4, CODEC_FD = 3, CODEC_FORMAT = 12, CODEC_WANTED = 512, CODEC_REFUSED = 3, CODEC_REASON = 511 };
#define CODEC_BEGUN         "b" /* a message of one byte: if the process ends after it, the upload is the cause */
#define CODEC_DECODE        "decode"
#define CODEC_TEMPLATE      "template" /* at least as long as CODEC_DECODE, which forked processes show in its place */
#define CODEC_FORK_MAGIC    UINT32_C(0x4b46434d) /* "MCFK" */
#define CODEC_REQUEST_MAGIC UINT32_C(0x5152434d) /* "MCRQ" */
#define CODEC_REPORT_MAGIC  UINT32_C(0x5052434d) /* "MCRP" */

/* The beginning of a request and of a report, in every version. */
struct codec_head {
    uint32_t magic, version;
};

struct codec_forked {
    struct codec_head head;
    int64_t pid; /* of the forked process; 0: fork failed */
};

struct codec_request {
    struct codec_head head;
    char format[CODEC_FORMAT]; /* of a reader in recon/codec_formats.c */
    uint64_t magic;            /* of the same reader: the decoded form begins with it */
    uint64_t file_bytes;       /* length of the file */
    uint64_t arriving;         /* 1: the file is still being written, and contains its own end; else 0 */
    uint64_t most_bytes;       /* limit of the decoded form */
    uint64_t heap_bytes;       /* limit of the process's own memory */
    double cpu_seconds;
    _Alignas(8) unsigned char wanted[CODEC_WANTED]; /* the reader's options */
};

struct codec_report {
    struct codec_head head;
    struct err failure; /* .code 0: success */
};

#endif
