/* scan_live.h: a scan that is still being decoded, from an arriving MRD stream (recon/scan/scan_follow.c).
 *
 * The decoder writes each readout after its head, and from time to time the number of complete ones. This module copies
 * complete readouts into its own memory and checks them as scan_open() does, because the decoder parses untrusted
 * bytes, and a compromised one might change memory after the check.
 */
#ifndef MRIRECON_SCAN_LIVE_H
#define MRIRECON_SCAN_LIVE_H

#include "recon/scan/scan.h"

struct scan_live;

/* `memory`: the decoder's memory, unsealed; taken, also after a failure. Fails with ERR_NO_MEMORY. */
int scan_live_open(struct scan_live **out, int memory);
void scan_live_free(struct scan_live *live);

/* Copy new readouts: *readouts are complete; *closed: no more will come. At most `most_bytes` are copied in all. Fails
 * with ERR_DECODER_DIED (an invalid scan), ERR_LIMIT, ERR_NO_MEMORY. */
int scan_live_look(struct scan_live *live, uint64_t most_bytes, uint64_t *readouts, bool *closed);

/* The first `readouts` of them, at least one, as a scan; valid until the next call. */
struct scan scan_live_part(struct scan_live *live, uint64_t readouts);

#endif
