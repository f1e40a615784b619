/* scan_check.h: what every flat scan is checked for, complete or arriving. Only recon/scan/ includes this. */
#ifndef MRIRECON_SCAN_CHECK_H
#define MRIRECON_SCAN_CHECK_H

#include "recon/scan/scan.h"

/* That the decoder returned what is no scan; `what` of it. */
int scan_invalid(const char *what);

/* All of the header but its magic number and the whole's size, of an upload of `upload` bytes; and each encoding and
 * readout. Fail with ERR_DECODER_DIED. */
int scan_header_check(const struct scan_header *header, uint64_t upload);
int scan_encoding_check(const struct scan_encoding *encoding);
int scan_readout_check(const struct scan_header *header, const struct scan_readout *readout);

#endif
