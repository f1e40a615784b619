/* scan_check.h: the checks of every flat scan, complete or arriving. Only recon/scan/ includes this. */
#ifndef MRIRECON_SCAN_CHECK_H
#define MRIRECON_SCAN_CHECK_H

#include "recon/scan/scan.h"

/* Set the failure of an invalid scan from the decoder; `what`: the invalid part. */
int scan_invalid(const char *what);

/* Check the header without its magic number and total size, for an upload of `upload` bytes; an encoding; a readout.
 * Fail with ERR_DECODER_DIED. */
int scan_header_check(const struct scan_header *header, uint64_t upload);
int scan_encoding_check(const struct scan_encoding *encoding);
int scan_readout_check(const struct scan_header *header, const struct scan_readout *readout);

#endif
