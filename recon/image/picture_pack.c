#include "recon/image/picture_pack.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    RUN_LEAST = 3,
    RUN_MOST = 258,
    TOKENS = 256 + RUN_MOST - RUN_LEAST + 1, /* different ones */
    END = 256,                               /* of a block */
    SYMBOLS = 286,                           /* of literals and lengths of runs */
    LENGTH_MOST = 15,                        /* bits of a symbol's code */
    ORDERS = 19,                             /* symbols of the code of lengths */
    ORDER_MOST = 7
};

/* A Huffman code: the bits of each symbol, the first in the lowest place. */
struct code {
    uint8_t length[SYMBOLS]; /* 0: unused */
    uint16_t bits[SYMBOLS];
};

/* ---- bits ---- */

/* At most 57 at a time. Bytes beyond those that are complete are written, too, and overwritten later. */
static inline void bits_put(struct pack *pack, uint64_t bits, int count)
{
    pack->bits |= bits << pack->count;
    pack->count += count;
    memcpy(pack->out + pack->bytes, &pack->bits, sizeof pack->bits); /* little-endian, like all machines served here */
    pack->bytes += (size_t)pack->count >> 3;
    pack->bits >>= pack->count & ~7;
    pack->count &= 7;
}

/* Fill the last byte. */
static void bits_end(struct pack *pack)
{
    if (pack->count > 0)
        bits_put(pack, 0, 8 - pack->count);
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

/* The number of leaves at each depth of the Huffman tree of `count` >= 2 leaves in the order of their weights. */
static void depths_count(const struct leaf *leaf, int count, uint16_t depths[SYMBOLS])
{
    uint32_t weight[SYMBOLS];
    uint16_t parent[2 * SYMBOLS], depth[2 * SYMBOLS];
    int next = 0, joined = 0;
    /* Nodes 0 .. count - 1 are the leaves, the others are joined in the order of their weights. */
    for (int made = 0; made < count - 1; made++) {
        uint32_t sum = 0;
        for (int i = 0; i < 2; i++) {
            const bool is_leaf = next < count && (joined == made || leaf[next].weight <= weight[joined]);
            parent[is_leaf ? next : count + joined] = (uint16_t)(count + made);
            sum += is_leaf ? leaf[next++].weight : weight[joined++];
        }
        weight[made] = sum;
    }
    memset(depths, 0, SYMBOLS * sizeof *depths);
    depth[2 * count - 2] = 0;
    for (int i = 2 * count - 3; i >= 0; i--) {
        depth[i] = (uint16_t)(depth[parent[i]] + 1);
        depths[depth[i]] += i < count;
    }
}

/* Limit the depths: leaves below `most` move up to it, and for each place that they lack there a leaf above moves down.
 */
static void depths_limit(uint16_t depths[SYMBOLS], int most)
{
    int64_t used = 0;
    for (int d = most + 1; d < SYMBOLS; d++) {
        depths[most] = (uint16_t)(depths[most] + depths[d]);
        depths[d] = 0;
    }
    for (int d = 1; d <= most; d++)
        used += (int64_t)depths[d] << (most - d);
    for (; used > (int64_t)1 << most; used--) {
        int d = most - 1;
        while (depths[d] == 0)
            d--;
        depths[d]--;
        depths[d + 1] = (uint16_t)(depths[d + 1] + 2);
        depths[most]--;
    }
}

static uint16_t reversed(unsigned bits, int length)
{
    unsigned out = 0;
    for (int i = 0; i < length; i++)
        out |= (bits >> i & 1) << (length - 1 - i);
    return (uint16_t)out;
}

/* The canonical codes of these lengths. */
static void code_number(struct code *code, int symbols, int most)
{
    unsigned next = 0;
    for (int length = 1; length <= most; length++, next <<= 1)
        for (int s = 0; s < symbols; s++)
            if (code->length[s] == length)
                code->bits[s] = reversed(next++, length);
}

/* The code of symbols with these weights, of at most `most` bits. */
static void code_make(struct code *code, const uint32_t *weight, int symbols, int most)
{
    struct leaf leaf[SYMBOLS];
    uint16_t depths[SYMBOLS];
    int count = 0;
    memset(code, 0, sizeof *code);
    for (int s = 0; s < symbols; s++)
        if (weight[s])
            leaf[count++] = (struct leaf){weight[s], (uint16_t)s};
    if (count == 1) { /* a tree needs two leaves */
        leaf[1] = (struct leaf){1, (uint16_t)(leaf[0].symbol == 0)};
        count = 2;
    }
    qsort(leaf, (size_t)count, sizeof *leaf, by_weight);
    depths_count(leaf, count, depths);
    depths_limit(depths, most);
    /* The lightest are the deepest. */
    for (int d = most, at = 0; d > 0; d--)
        for (int i = 0; i < depths[d]; i++)
            code->length[leaf[at++].symbol] = (uint8_t)d;
    code_number(code, symbols, most);
}

/* ---- runs ---- */

/* The symbol of a run's length, its additional bits, and their number (RFC 1951, 3.2.5). */
static int length_symbol(int length, uint32_t *extra, int *extras)
{
    const int of = length - RUN_LEAST;
    *extra = 0;
    *extras = 0;
    if (length == RUN_MOST)
        return 285;
    if (of < 8)
        return 257 + of;
    const int high = 31 - __builtin_clz((unsigned)of);
    *extras = high - 2;
    *extra = (uint32_t)of & ((1u << *extras) - 1);
    return 257 + 4 * *extras + (of >> *extras);
}

/* The bits of each token. */
struct words {
    uint32_t bits[TOKENS];
    uint8_t count[TOKENS];
};

static void words_make(struct words *words, const struct code *code)
{
    for (int t = 0; t < 256; t++) {
        words->bits[t] = code->bits[t];
        words->count[t] = code->length[t];
    }
    for (int t = 256; t < TOKENS; t++) {
        uint32_t extra;
        int extras;
        const int s = length_symbol(t - 256 + RUN_LEAST, &extra, &extras);
        words->bits[t] = code->bits[s] | extra << code->length[s];
        words->count[t] = (uint8_t)(code->length[s] + extras + 1); /* a bit 0: the only code of distances, of 1 */
    }
}

/* ---- a block ---- */

static void weights_count(const struct pack *pack, uint32_t weight[SYMBOLS])
{
    uint32_t tokens[2][TOKENS] = {{0}};
    for (size_t i = 0; i < pack->tokens; i++)
        tokens[i & 1][pack->token[i]]++; /* two counts: equal tokens in succession do not wait for each other */
    memset(weight, 0, SYMBOLS * sizeof *weight);
    for (int t = 0; t < TOKENS; t++) {
        uint32_t extra;
        int extras;
        const int s = t < 256 ? t : length_symbol(t - 256 + RUN_LEAST, &extra, &extras);
        weight[s] += tokens[0][t] + tokens[1][t];
    }
    weight[END] = 1;
}

/* The lengths of the code, in the code of lengths; each by itself, but zeros in runs. */
static void lengths_put(struct pack *pack, const struct code *code)
{
    enum { ZEROS = 18, ZEROS_LEAST = 11, ZEROS_MOST = 138, ALL = SYMBOLS + 1 };
    static const uint8_t order[ORDERS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t length[ALL], symbol[ALL], extra[ALL];
    uint32_t weight[ORDERS] = {0};
    struct code own;
    int count = 0;
    memcpy(length, code->length, SYMBOLS);
    length[SYMBOLS] = 1; /* of the only code of distances */
    for (int i = 0, run; i < ALL; i += run) {
        for (run = 1; length[i] == 0 && i + run < ALL && length[i + run] == 0 && run < ZEROS_MOST;)
            run++;
        if (run < ZEROS_LEAST)
            run = 1;
        symbol[count] = run > 1 ? ZEROS : length[i];
        extra[count] = (uint8_t)(run - ZEROS_LEAST);
        weight[symbol[count++]]++;
    }
    code_make(&own, weight, ORDERS, ORDER_MOST);
    bits_put(pack, SYMBOLS - 257, 5);
    bits_put(pack, 0, 5); /* one code of distances */
    bits_put(pack, ORDERS - 4, 4);
    for (int i = 0; i < ORDERS; i++)
        bits_put(pack, own.length[order[i]], 3);
    for (int i = 0; i < count; i++) {
        bits_put(pack, own.bits[symbol[i]], own.length[symbol[i]]);
        if (symbol[i] == ZEROS)
            bits_put(pack, extra[i], 7);
    }
}

/* As bits_put(), two tokens at a time, with what it changes in registers. */
static void tokens_put(struct pack *pack, const struct words *words)
{
    uint64_t bits = pack->bits;
    unsigned count = (unsigned)pack->count;
    uint8_t *to = pack->out + pack->bytes;
    for (size_t i = 0; i + 1 < pack->tokens; i += 2) {
        const unsigned a = pack->token[i], b = pack->token[i + 1], first = words->count[a];
        bits |= (words->bits[a] | (uint64_t)words->bits[b] << first) << count;
        count += first + words->count[b];
        memcpy(to, &bits, sizeof bits);
        to += count >> 3;
        bits >>= count & ~7u;
        count &= 7;
    }
    pack->bits = bits;
    pack->count = (int)count;
    pack->bytes = (size_t)(to - pack->out);
    if (pack->tokens & 1)
        bits_put(pack, words->bits[pack->token[pack->tokens - 1]], words->count[pack->token[pack->tokens - 1]]);
}

static void block_put(struct pack *pack, bool last)
{
    uint32_t weight[SYMBOLS];
    struct code code;
    struct words words;
    weights_count(pack, weight);
    code_make(&code, weight, SYMBOLS, LENGTH_MOST);
    words_make(&words, &code);
    bits_put(pack, last, 1);
    bits_put(pack, 2, 2); /* with its own codes */
    lengths_put(pack, &code);
    tokens_put(pack, &words);
    bits_put(pack, code.bits[END], code.length[END]);
    pack->tokens = 0;
}

/* ---- the stream ---- */

void pack_begin(struct pack *pack)
{
    pack->bits = 0;
    pack->count = 0;
    pack->adler = (uint32_t)adler32(0, NULL, 0);
    pack->last = -1;
    pack->tokens = 0;
    pack->out[0] = 0x78; /* deflate, a window of 32 KiB */
    pack->out[1] = 0x01; /* the fastest level, and a check of both bytes */
    pack->bytes = 2;
}

/* The number of bytes from `at` on, at most RUN_MOST, that are `byte`. */
static inline size_t run_of(const uint8_t *bytes, size_t at, size_t count, int byte)
{
    const size_t end = count - at < RUN_MOST ? count : at + RUN_MOST;
    size_t i = at;
    while (i < end && bytes[i] == byte)
        i++;
    return i - at;
}

int pack_add(struct pack *pack, const uint8_t *bytes, size_t count,
             int (*put)(void *context, const uint8_t *bytes, size_t count), void *context)
{
    int rc = 0;
    pack->adler = (uint32_t)adler32_z(pack->adler, bytes, count);
    for (size_t at = 0; at < count && rc == 0;) {
        const size_t run = bytes[at] == pack->last ? run_of(bytes, at, count, pack->last) : 0;
        if (run >= RUN_LEAST) {
            pack->token[pack->tokens++] = (uint16_t)(256 + run - RUN_LEAST);
            at += run;
        } else {
            pack->last = bytes[at++];
            pack->token[pack->tokens++] = (uint16_t)pack->last;
        }
        if (pack->tokens < PACK_TOKENS)
            continue;
        block_put(pack, false);
        rc = put(context, pack->out, pack->bytes);
        pack->bytes = 0;
    }
    return rc;
}

int pack_end(struct pack *pack, int (*put)(void *context, const uint8_t *bytes, size_t count), void *context)
{
    block_put(pack, true);
    bits_end(pack);
    for (int i = 3; i >= 0; i--)
        pack->out[pack->bytes++] = (uint8_t)(pack->adler >> 8 * i);
    return put(context, pack->out, pack->bytes);
}
