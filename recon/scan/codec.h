/* codec.h: between those who start the program mrirecon-codec, and it.
 *
 *   mrirecon-codec decode
 *
 * with one end of a SOCK_SEQPACKET pair at CODEC_FD. It receives one struct codec_request with two descriptors (the
 * file, the flat scan's memfd), says so by CODEC_BEGUN, and answers with one struct codec_report: of success, once the
 * flat scan is complete, or of a failure. Then it ends. The report is written by a process that read hostile bytes: the
 * parent believes neither its code nor its text without looking. A socket that is closed before the request came means
 * that there is nothing to do.
 *
 * The request is believed: it comes from the process that owns this one. The codec limits its memory and time as the
 * request says before it looks at the file, for good (sandbox_limit()): its parent may not change limits of others.
 *
 *   mrirecon-codec convert IMAGE.h5 FORMAT OUTFILE
 *
 * writes OUTFILE and ends with status 0; with CODEC_REFUSED where the image cannot be brought into the format: OUTFILE
 * then holds the sentence that says why, at most CODEC_REASON bytes; else with another, and says why on stderr.
 */
#ifndef MRIRECON_CODEC_H
#define MRIRECON_CODEC_H

#include "gridding/base/err.h"
#include "recon/scan/scan.h"

enum { CODEC_FD = 3, CODEC_REFUSED = 3, CODEC_REASON = 511 };
#define CODEC_BEGUN         "b" /* a message of this one byte: from here on, its end is due to the upload */
#define CODEC_REQUEST_MAGIC UINT32_C(0x5152434d) /* "MCRQ" */
#define CODEC_REPORT_MAGIC  UINT32_C(0x5052434d) /* "MCRP" */

struct codec_request {
    uint32_t magic;
    char format[12];     /* of scan_sniff() */
    uint64_t file_bytes; /* length of the file */
    uint64_t most_bytes; /* of the flat scan */
    uint64_t heap_bytes; /* of its own memory */
    double cpu_seconds;
    struct scan_wanted wanted;
};

struct codec_report {
    uint32_t magic;
    struct err failure; /* .code 0: success */
};

#endif
