#include "recon/scan/mrd_frame.h"

/* Move input into the head until it has `wanted` bytes; false: the input ended before. */
static bool head_fill(struct mrd_frame *frame, const uint8_t **from, const uint8_t *end, size_t wanted)
{
    size_t count = wanted - frame->have, there = (size_t)(end - *from);
    if (count > there)
        count = there;
    memcpy(frame->head + frame->have, *from, count);
    frame->have += count;
    frame->at += count;
    *from += count;
    return frame->have == wanted;
}

static void message_end(struct mrd_frame *frame)
{
    frame->within = false;
    frame->have = 0;
    frame->messages++;
}

static int head_next(struct mrd_frame *frame, const uint8_t **from, const uint8_t *end, struct mrd_part *part)
{
    if (frame->have < MRD_NUMBER_BYTES && !head_fill(frame, from, end, MRD_NUMBER_BYTES))
        return 0;
    const unsigned number = mrd_u16(frame->head);
    const int bytes = mrd_head_bytes(number);
    if (bytes < 0)
        return err_set(ERR_MALFORMED_FILE,
                       "There is no MRD message of number %u, at byte %llu of the stream: the stream is damaged, or "
                       "not an MRD version 1 stream.",
                       number, (unsigned long long)frame->at - MRD_NUMBER_BYTES);
    if (!head_fill(frame, from, end, MRD_NUMBER_BYTES + (size_t)bytes))
        return 0;
    frame->number = number;
    frame->left = mrd_body_bytes(number, frame->head + MRD_NUMBER_BYTES);
    *part = (struct mrd_part){.bytes = frame->head, .count = frame->have, .first = true, .last = frame->left == 0};
    frame->within = true;
    if (part->last)
        message_end(frame);
    return 0;
}

int mrd_frame_next(struct mrd_frame *frame, const uint8_t **from, const uint8_t *end, struct mrd_part *part)
{
    *part = (struct mrd_part){.count = 0};
    if (*from == end)
        return 0;
    if (!frame->within)
        return head_next(frame, from, end, part);
    size_t count = (size_t)(end - *from);
    if (count > frame->left)
        count = (size_t)frame->left;
    frame->left -= count;
    frame->at += count;
    *part = (struct mrd_part){.bytes = *from, .count = count, .last = frame->left == 0};
    *from += count;
    if (part->last)
        message_end(frame);
    return 0;
}

bool mrd_frame_is_between(const struct mrd_frame *frame)
{
    return !frame->within && frame->have == 0;
}
