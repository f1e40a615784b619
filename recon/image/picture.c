/* Pictures as PNG (ISO 15948): chunks of a length, a name, bytes and a checksum. Each row is stored as the differences
 * between neighbouring pixels (filter "Sub"), and packed with runs and Huffman codes only: noise has no longer repeats.
 */
#include "recon/image/image_leaf.h"
#include "recon/image/picture_pack.h"

#include "gridding/base/err.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { FILTER_SUB = 1, CHUNK_HEAD = 8, NAME = 4 };

static void u32_put(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static int chunk_put(int fd, const char *name, const uint8_t *bytes, size_t count)
{
    uint8_t head[CHUNK_HEAD], end[4];
    u32_put(head, (uint32_t)count);
    memcpy(head + 4, name, NAME);
    const uLong sum = crc32(0, head + 4, NAME);
    u32_put(end, (uint32_t)(count ? crc32_z(sum, bytes, count) : sum));
    int rc = image_put(fd, head, sizeof head);
    if (rc == 0 && count)
        rc = image_put(fd, bytes, count);
    return rc == 0 ? image_put(fd, end, sizeof end) : rc;
}

static int data_put(void *fd, const uint8_t *bytes, size_t count)
{
    return chunk_put(*(const int *)fd, "IDAT", bytes, count);
}

/* out[1 + bytes]: the filter, and the row's differences. */
static void row_filter(const uint8_t *row, size_t bytes, size_t channels, uint8_t *out)
{
    *out++ = FILTER_SUB;
    memcpy(out, row, channels);
    for (size_t i = channels; i < bytes; i++)
        out[i] = (uint8_t)(row[i] - row[i - channels]);
}

int picture_write_png(const struct picture *picture, int fd)
{
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    enum { DEPTH = 8, GREY = 0, COLOURS = 2 };
    const size_t channels = picture->channels == 3 ? 3 : 1, bytes = picture->width * channels;
    uint8_t head[13] = {[8] = DEPTH, [9] = channels == 3 ? COLOURS : GREY};
    struct pack *pack = malloc(sizeof *pack);
    uint8_t *row = malloc(1 + bytes);
    int rc = pack && row ? 0 : err_no_memory("encoding the picture");
    u32_put(head, (uint32_t)picture->width);
    u32_put(head + 4, (uint32_t)picture->height);
    if (rc == 0)
        rc = image_put(fd, signature, sizeof signature);
    if (rc == 0)
        rc = chunk_put(fd, "IHDR", head, sizeof head);
    if (rc == 0)
        pack_begin(pack);
    for (size_t y = 0; y < picture->height && rc == 0; y++) {
        row_filter(picture->pixels + y * bytes, bytes, channels, row);
        rc = pack_add(pack, row, 1 + bytes, data_put, &fd);
    }
    if (rc == 0)
        rc = pack_end(pack, data_put, &fd);
    if (rc == 0)
        rc = chunk_put(fd, "IEND", NULL, 0);
    free(row);
    free(pack);
    return rc;
}
