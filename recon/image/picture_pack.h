/* picture_pack.h: compresses the rows of pictures into zlib's format (RFC 1950), with nothing but Huffman codes and
 * runs of one byte, which is what zlib's strategy Z_RLE does, in a fifth of its time. Only recon/image/ includes this.
 */
#ifndef MRIRECON_PICTURE_PACK_H
#define MRIRECON_PICTURE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PACK_TOKENS = 1 << 15,                    /* of a block, which has its own codes */
    PACK_BLOCK_BYTES = 3 * PACK_TOKENS + 1024 /* more than a block of them takes: 21 bits a token, and its codes */
};

/* A stream that is being compressed. */
struct pack {
    uint64_t bits; /* not yet in out[] */
    int count;
    uint32_t adler;              /* checksum of all bytes so far */
    int last;                    /* the byte before; -1: none */
    size_t tokens, bytes;        /* of token[] and out[] */
    uint16_t token[PACK_TOKENS]; /* below 256: the byte; else a run of 3 + token - 256 bytes like the one before */
    uint8_t out[PACK_BLOCK_BYTES];
};

void pack_begin(struct pack *pack);
/* The next bytes. put() takes what is compressed, block by block; it returns 0, or a code that pack_add() returns. */
int pack_add(struct pack *pack, const uint8_t *bytes, size_t count,
             int (*put)(void *context, const uint8_t *bytes, size_t count), void *context);
/* The end of the stream. */
int pack_end(struct pack *pack, int (*put)(void *context, const uint8_t *bytes, size_t count), void *context);

#endif
