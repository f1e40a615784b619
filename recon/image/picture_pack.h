/* picture_pack.h: bytes as a part of a Deflate stream (RFC 1951), by Huffman codes and runs of one byte: what zlib's
 * strategy Z_RLE makes of the rows of a picture, in a third of its time. Only recon/image/ includes this.
 */
#ifndef MRIRECON_PICTURE_PACK_H
#define MRIRECON_PICTURE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most bytes that `count` bytes take, with what is written beyond them. */
size_t pack_most(size_t count);

/* Write `count` > 0 bytes to `to`, which begins and ends at a whole byte; `last`: the stream ends with them. Returns
 * how many bytes they take. */
size_t pack_bytes(const uint8_t *from, size_t count, bool last, uint8_t *to);

#endif
