#include "recon/image/picture_pack.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUN_LEAST = 3,
    RUN_MOST = 258,
    TOKENS = 256 + RUN_MOST + 1,            /* a byte, or 256 + the length of a run of the byte before */
    END = 256,                              /* of a block */
    SYMBOLS = 286,                          /* of bytes, END and the lengths of runs */
    BITS_MOST = 15,                         /* of a symbol's code */
    HEAD_BYTES = 2 + 8 + (SYMBOLS + 1) / 2, /* of a block */
    SLACK_BYTES = 32                        /* END, the end of a part, and what bits_put() writes beyond */
};

/* ---- bits ---- */

struct bits {
    uint64_t waiting;
    unsigned count; /* of `waiting`, below 8 between two calls */
    uint8_t *to;
};

/* At most 57 at a time, the first in the lowest place. Bytes beyond the complete ones are overwritten later. */
static inline void bits_put(struct bits *out, uint64_t bits, unsigned count)
{
    out->waiting |= bits << out->count;
    out->count += count;
    memcpy(out->to, &out->waiting, sizeof out->waiting); /* little-endian, like all machines served here */
    out->to += out->count >> 3;
    out->waiting >>= out->count & ~7u;
    out->count &= 7;
}

static uint32_t reversed(unsigned code, int length)
{
    uint32_t out = 0;
    for (int i = 0; i < length; i++)
        out = out << 1 | (code >> i & 1);
    return out;
}

/* ---- codes ---- */

struct leaf {
    uint32_t weight;
    uint16_t symbol;
};

static int by_weight(const void *pa, const void *pb)
{
    const struct leaf *a = pa, *b = pb;
    if (a->weight != b->weight)
        return a->weight < b->weight ? -1 : 1;
    return (a->symbol > b->symbol) - (a->symbol < b->symbol);
}

/* The depths of the Huffman tree of `count` >= 2 leaves in the order of their weights, divided by 2^shift; returns the
 * largest. */
static int depths_find(const struct leaf *leaf, int count, int shift, int depth[2 * SYMBOLS])
{
    uint64_t weight[2 * SYMBOLS];
    int parent[2 * SYMBOLS] = {0}, next = 0, joined = count, most = 0;
    for (int i = 0; i < count; i++)
        weight[i] = leaf[i].weight >> shift ? leaf[i].weight >> shift : 1;
    /* Nodes from `count` on join the two lightest that are left, and are made in the order of their weights. */
    for (int made = count; made < 2 * count - 1; made++) {
        weight[made] = 0;
        for (int i = 0; i < 2; i++) {
            const int least = next < count && (joined == made || weight[next] <= weight[joined]) ? next++ : joined++;
            parent[least] = made;
            weight[made] += weight[least];
        }
    }
    depth[2 * count - 2] = 0;
    for (int i = 2 * count - 3; i >= 0; i--) {
        depth[i] = depth[parent[i]] + 1;
        most = i < count && depth[i] > most ? depth[i] : most;
    }
    return most;
}

/* The lengths of a code of symbols with these weights. Weights that lead to too long ones are made more alike. */
static void lengths_find(const uint32_t weight[SYMBOLS], uint8_t length[SYMBOLS])
{
    struct leaf leaf[SYMBOLS];
    int depth[2 * SYMBOLS], count = 0;
    memset(length, 0, SYMBOLS);
    for (int s = 0; s < SYMBOLS; s++)
        if (weight[s])
            leaf[count++] = (struct leaf){weight[s], (uint16_t)s};
    qsort(leaf, (size_t)count, sizeof *leaf, by_weight);
    for (int shift = 0; depths_find(leaf, count, shift, depth) > BITS_MOST;)
        shift++;
    for (int i = 0; i < count; i++)
        length[leaf[i].symbol] = (uint8_t)depth[i];
}

/* ---- tokens ---- */

/* The next one; moves *at behind it. */
static inline unsigned token_next(const uint8_t *from, size_t count, size_t *at)
{
    const size_t i = *at;
    size_t run = 0;
    if (i > 0 && from[i] == from[i - 1])
        for (run = 1; run < RUN_MOST && i + run < count && from[i + run] == from[i]; run++)
            ;
    *at += run < RUN_LEAST ? 1 : run;
    return run < RUN_LEAST ? from[i] : 256 + (unsigned)run;
}

/* The symbol of a run's length, with its additional bits (RFC 1951, 3.2.5). */
static int length_symbol(unsigned length, uint32_t *extra, int *extras)
{
    const unsigned of = length - RUN_LEAST;
    *extra = 0;
    *extras = 0;
    if (length == RUN_MOST)
        return SYMBOLS - 1;
    if (of < 8)
        return END + 1 + (int)of;
    *extras = 29 - __builtin_clz(of);
    *extra = of & ((1u << *extras) - 1);
    return END + 1 + 4 * *extras + (int)(of >> *extras);
}

/* The bits of each token, and how many. */
struct words {
    uint32_t bits[TOKENS];
    uint8_t count[TOKENS];
};

static void words_make(struct words *words, const uint8_t length[SYMBOLS])
{
    uint32_t code[SYMBOLS] = {0};
    unsigned next = 0;
    for (int l = 1; l <= BITS_MOST; l++, next <<= 1)
        for (int s = 0; s < SYMBOLS; s++)
            if (length[s] == l)
                code[s] = reversed(next++, l);
    for (int t = 0; t <= END; t++) {
        words->bits[t] = code[t];
        words->count[t] = length[t];
    }
    for (unsigned t = 256 + RUN_LEAST; t < TOKENS; t++) {
        uint32_t extra;
        int extras;
        const int s = length_symbol(t - 256, &extra, &extras);
        words->bits[t] = code[s] | extra << length[s];
        words->count[t] = (uint8_t)(length[s] + extras + 1); /* a bit 0: the only code of distances */
    }
}

/* ---- a block ---- */

/* Lengths are told as numbers of 4 bits: their own code gives 0 to 15 the same length. One code of distances, of 1. */
static void head_put(struct bits *out, const uint8_t length[SYMBOLS], bool last)
{
    enum { OWN = 2, CODES = 19, OTHERS = 3 /* that repeat lengths, first in the list */ };
    bits_put(out, (unsigned)last | OWN << 1, 3);
    bits_put(out, SYMBOLS - 257, 5);
    bits_put(out, 0, 5);
    bits_put(out, CODES - 4, 4);
    for (int i = 0; i < CODES; i++)
        bits_put(out, i < OTHERS ? 0 : 4, 3);
    for (int s = 0; s < SYMBOLS; s++)
        bits_put(out, reversed(length[s], 4), 4);
    bits_put(out, reversed(1, 4), 4);
}

size_t pack_most(size_t count)
{
    return HEAD_BYTES + SLACK_BYTES + count * BITS_MOST / 8;
}

size_t pack_bytes(const uint8_t *from, size_t count, bool last, uint8_t *to)
{
    uint32_t tokens[TOKENS] = {0}, weight[SYMBOLS] = {0};
    uint8_t length[SYMBOLS];
    struct words words;
    struct bits out = {.to = to};
    for (size_t at = 0; at < count;)
        tokens[token_next(from, count, &at)]++;
    memcpy(weight, tokens, 256 * sizeof *weight);
    weight[END] = 1;
    for (unsigned t = 256 + RUN_LEAST; t < TOKENS; t++) {
        uint32_t extra;
        int extras;
        weight[length_symbol(t - 256, &extra, &extras)] += tokens[t];
    }
    lengths_find(weight, length);
    words_make(&words, length);
    head_put(&out, length, last);
    for (size_t at = 0; at < count;) {
        const unsigned t = token_next(from, count, &at);
        bits_put(&out, words.bits[t], words.count[t]);
    }
    bits_put(&out, words.bits[END], words.count[END]);
    if (!last) /* an empty block as it is, which ends with a whole byte */
        bits_put(&out, 0, 3);
    bits_put(&out, 0, -out.count & 7);
    if (!last)
        bits_put(&out, 0xffff0000, 32);
    return (size_t)(out.to - to);
}
