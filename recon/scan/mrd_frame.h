/* mrd_frame.h: finds the message boundaries of an arriving MRD version 1 stream.
 *
 * The daemon stores a stream without reading it; the sandboxed codec does that. But it must detect the end of the
 * stream, and for that needs the length of each message. This parser copies the number and the head of one message, at
 * most MRD_NUMBER_BYTES + MRD_HEAD_MOST bytes, allocates nothing, and returns pointers to the bytes of bodies.
 */
#ifndef MRIRECON_MRD_FRAME_H
#define MRIRECON_MRD_FRAME_H

#include "gridding/base/err.h"
#include "recon/scan/mrd_message.h"

/* All zero: at the beginning of a stream. One thread at a time. */
struct mrd_frame {
    unsigned number;   /* enum mrd_number of the message, once its head is complete */
    uint64_t left;     /* bytes bytes of its body that have not arrived */
    uint64_t messages; /* complete messages so far */
    uint64_t at;       /* bytes of the stream so far */
    size_t have;       /* bytes in head */
    bool within;       /* the head is complete, and the message has not ended */
    uint8_t head[MRD_NUMBER_BYTES + MRD_HEAD_MOST];
};

/* A part of one message: its number and head together, or a piece of its body. */
struct mrd_part {
    const uint8_t *bytes; /* in frame->head or in the input; valid until the next call */
    size_t count;         /* 0: the input is used up */
    bool first, last;     /* the message begins with this part; ends with it. A message may have one part */
};

/* The next part of the input [*from, end); *from advances past it. Fails with ERR_MALFORMED_FILE if the number is
 * unknown; then nothing more can be parsed. */
int mrd_frame_next(struct mrd_frame *frame, const uint8_t **from, const uint8_t *end, struct mrd_part *part);

/* Whether the input so far ends between two messages. */
bool mrd_frame_is_between(const struct mrd_frame *frame);

#endif
