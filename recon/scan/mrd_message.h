/* mrd_message.h: the lengths of messages of an MRD version 1 stream: a 16-bit number and a body whose layout depends on
 * the number, little-endian. There is no common length field, so nothing after an unknown number can be parsed.
 *
 * Source: the protocol of Gadgetron and Siemens FIRE, ISMRMRD's headers (ismrmrd.h). */
#ifndef MRIRECON_MRD_MESSAGE_H
#define MRIRECON_MRD_MESSAGE_H

#include "gridding/base/num.h"

#include <string.h>

enum mrd_number {
    MRD_CONFIG_FILE = 1,
    MRD_CONFIG_TEXT = 2,
    MRD_HEADER = 3,
    MRD_CLOSE = 4,
    MRD_TEXT = 5,
    MRD_QUERY = 6,
    MRD_RESPONSE = 7,
    MRD_ACQUISITION = 1008,
    MRD_IMAGE = 1022,
    MRD_WAVEFORM = 1026
};

/* Bytes of a message's number; the largest head, which contains the body's length. */
enum { MRD_NUMBER_BYTES = 2, MRD_HEAD_MOST = 340, MRD_CONFIG_BYTES = 1024, MRD_IMAGE_BYTES = 198 };

static inline uint16_t mrd_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t mrd_u32(const uint8_t *at)
{
    return mrd_u16(at) | (uint32_t)mrd_u16(at + 2) << 16;
}

static inline uint64_t mrd_u64(const uint8_t *at)
{
    return mrd_u32(at) | (uint64_t)mrd_u32(at + 4) << 32;
}

/* Bytes of the head after the number; -1: unknown number. */
static inline int mrd_head_bytes(unsigned number)
{
    switch (number) {
    case MRD_CONFIG_FILE:
    case MRD_CLOSE:
        return 0;
    case MRD_CONFIG_TEXT:
    case MRD_HEADER:
    case MRD_TEXT:
        return 4;
    case MRD_QUERY:
        return 24;
    case MRD_RESPONSE:
        return 16;
    case MRD_ACQUISITION:
        return 340;
    case MRD_IMAGE:
        return MRD_IMAGE_BYTES + 8;
    case MRD_WAVEFORM:
        return 40;
    default:
        return -1;
    }
}

/* Bytes of attributes and pixels of an image; UINT64_MAX: overflow. */
static inline uint64_t mrd_image_bytes(const uint8_t *head)
{
    static const uint8_t of_type[] = {0, 2, 2, 4, 4, 4, 8, 8, 16};
    const unsigned type = mrd_u16(head + 2);
    uint64_t bytes = type < sizeof of_type ? of_type[type] : 0;
    for (int d = 0; d < 3; d++)
        bytes *= mrd_u16(head + 16 + 2 * d); /* at most 2^52 */
    if (__builtin_mul_overflow(bytes, (uint64_t)mrd_u16(head + 34), &bytes) ||
        __builtin_add_overflow(bytes, mrd_u64(head + MRD_IMAGE_BYTES), &bytes))
        return UINT64_MAX;
    return bytes;
}

/* Bytes of the body after the head, for a known number. The length is untrusted: do not allocate it. */
static inline uint64_t mrd_body_bytes(unsigned number, const uint8_t *head)
{
    switch (number) {
    case MRD_CONFIG_FILE:
        return MRD_CONFIG_BYTES;
    case MRD_CONFIG_TEXT:
    case MRD_HEADER:
    case MRD_TEXT:
        return mrd_u32(head);
    case MRD_QUERY:
        return mrd_u64(head + 16);
    case MRD_RESPONSE:
        return mrd_u64(head + 8);
    case MRD_ACQUISITION: /* samples of dims float32 and coils complex64 */
        return (uint64_t)mrd_u16(head + 34) * (4ULL * mrd_u16(head + 176) + 8ULL * mrd_u16(head + 38));
    case MRD_IMAGE:
        return mrd_image_bytes(head);
    case MRD_WAVEFORM:
        return 4ULL * mrd_u16(head + 28) * mrd_u16(head + 30);
    default:
        return 0;
    }
}

#endif
