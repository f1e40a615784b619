/* codec.h: between scan_decode() and the program mrirecon-codec that it starts.
 *
 *   mrirecon-codec decode FORMAT MOST_BYTES SECONDS [GROUP]
 *
 * with the file, the flat scan's memfd and a pipe at the descriptors below. On success it exits 0; on failure it writes
 * one struct codec_report into the pipe and exits 1. The report is written by a process that read hostile bytes: the
 * parent believes neither its code nor its text without looking.
 */
#ifndef MRIRECON_CODEC_H
#define MRIRECON_CODEC_H

#include "gridding/base/err.h"

enum { CODEC_FD_FILE = 3, CODEC_FD_SCAN = 4, CODEC_FD_REPORT = 5 };
#define CODEC_REPORT_MAGIC UINT32_C(0x5052434d) /* "MCRP" */

struct codec_report {
    uint32_t magic;
    struct err failure;
};

#endif
