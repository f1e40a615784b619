/* mrd_readout.h: shared by the readers of complete (scan_stream.c) and of arriving MRD streams (scan_follow.c). */
#ifndef MRIRECON_MRD_READOUT_H
#define MRIRECON_MRD_READOUT_H

#include "recon/scan/mrd_message.h"
#include "recon/scan/scan_build.h"

/* Fill a readout, without its offsets, from the 340 bytes of an acquisition's head; `acquisition`: its number in the
 * stream. */
void mrd_readout_fill(struct scan_readout *readout, const uint8_t *head, uint32_t acquisition);

/* Fails with ERR_MALFORMED_FILE. */
int mrd_number_unknown(unsigned number, uint64_t at);

#endif
