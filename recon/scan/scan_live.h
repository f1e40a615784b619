/* scan_live.h: a scan that is still being decoded: an MRD stream that arrives (recon/scan/scan_follow.c).
 *
 * The decoder writes each readout, with its head before it, and from time to time how many are complete. This copies
 * what is complete into memory of its own and checks it as scan_open() does: the process that writes parsed hostile
 * bytes, and may change what it has written. Whoever computes on the copy may go wrong with it, and no further.
 */
#ifndef MRIRECON_SCAN_LIVE_H
#define MRIRECON_SCAN_LIVE_H

#include "recon/scan/scan.h"

struct scan_live;

/* `memory`: what the decoder writes to, unsealed; taken, also after a failure. Fails with ERR_NO_MEMORY. */
int scan_live_open(struct scan_live **out, int memory);
void scan_live_free(struct scan_live *live);

/* Take what has come: *readouts are complete, *closed: there will be no more. At most `most_bytes` are copied in all.
 * Fails with ERR_DECODER_DIED (no such scan), ERR_LIMIT, ERR_NO_MEMORY. */
int scan_live_look(struct scan_live *live, uint64_t most_bytes, uint64_t *readouts, bool *closed);

/* The first `readouts` of them, at least one, as a scan; valid until the next call. */
struct scan scan_live_part(struct scan_live *live, uint64_t readouts);

#endif
