/* mrd_frame.h: where the messages of an arriving MRD version 1 stream begin and end.
 *
 * The daemon stores a stream and does not read it: that is done by the sandboxed codec. It must only know where the
 * stream ends, and that needs the length of each message. This reader keeps the number and the head of one message, at
 * most MRD_NUMBER_BYTES + MRD_HEAD_MOST bytes, allocates nothing, and hands on the bytes of bodies where they lie.
 */
#ifndef MRIRECON_DAEMON_MRD_FRAME_H
#define MRIRECON_DAEMON_MRD_FRAME_H

#include "gridding/base/err.h"
#include "recon/scan/mrd_message.h"

/* All zero: at the beginning of a stream. One thread at a time. */
struct mrd_frame {
    unsigned number;   /* of the message, once its head is there: enum mrd_number */
    uint64_t left;     /* bytes of its body that have not arrived */
    uint64_t messages; /* that have ended */
    uint64_t at;       /* bytes of the stream so far */
    size_t have;       /* bytes in head */
    bool within;       /* the head is complete, and the message has not ended */
    uint8_t head[MRD_NUMBER_BYTES + MRD_HEAD_MOST];
};

/* Bytes of one message that were taken: its number and head together, or a piece of its body. */
struct mrd_part {
    const uint8_t *bytes; /* in frame->head or in the input; valid until the next call */
    size_t count;         /* 0: the input is used up */
    bool first, last;     /* the message begins with this part; ends with it. A message may have one part */
};

/* The next part of the input [*from, end); *from moves behind what was taken. Fails with ERR_MALFORMED_FILE: there is
 * no message of this number; then nothing more can be read. */
int mrd_frame_next(struct mrd_frame *frame, const uint8_t **from, const uint8_t *end, struct mrd_part *part);

/* Whether the input so far ends between two messages. */
bool mrd_frame_is_between(const struct mrd_frame *frame);

#endif
