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

/* The mapping of a file that contains a scan's samples; .base NULL: none. */
struct scan_upload {
    const void *base;
    size_t bytes;
};
/* Map the file `fd`, with all its pages at once or without. Fails with ERR_NO_MEMORY. */
int scan_upload_map(struct scan_upload *out, int fd, uint64_t bytes, bool pages);
bool scan_upload_is_small(uint64_t bytes);
void scan_upload_unmap(struct scan_upload *upload);
/* scan_open() with a mapping of the whole of `upload` that was made before, which it takes if the scan's samples are
 * there. */
int scan_open_mapped(struct scan *out, int fd, int upload, struct scan_upload *mapped);

#endif
