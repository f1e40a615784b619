/* BART's array files, NAME.hdr and NAME.cfl (src/misc/io.c of https://github.com/mrirecon/bart), in one tar archive
 * (POSIX.1-1988 ustar), which `tar x` takes from a pipe. */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* BART's dimensions: 0 to 2 space, 3 coils, 5 echoes, 6 coefficients, 10 and 11 times, 13 slices, 14 averages; the
 * first is the fastest in memory. Counters are where `bart twixread` (src/twixread.c) puts them. */
enum { BLOCK = 512, BART_COIL = 3, BART_SLICE = 13, BART_AXES = 16 };
static const int bart_axis[IMAGE_COUNTERS] = {
    [IMAGE_CONTRAST] = 5, [IMAGE_PHASE] = 6, [IMAGE_REPETITION] = 10, [IMAGE_SET] = 11, [IMAGE_AVERAGE] = 14,
};

struct tar_head {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6], version[2],
        owner[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct tar_head) == BLOCK, "a header is one block");

/* Octal digits; from 8 GiB on, as GNU tar and POSIX' readers know it, big-endian binary behind a set bit. */
static void size_put(char field[12], uint64_t size)
{
    if (size < UINT64_C(1) << 33) {
        snprintf(field, 12, "%011llo", (unsigned long long)size);
        return;
    }
    memset(field, 0, 12);
    field[0] = (char)0x80;
    for (int i = 0; i < 8; i++)
        field[11 - i] = (char)(size >> 8 * i & 0xff);
}

static int head_put(int fd, const char *name, uint64_t size)
{
    struct tar_head head = {.mode = "0000644", .uid = "0000000", .gid = "0000000", .mtime = "00000000000", .type = '0'};
    unsigned sum = 0;
    snprintf(head.name, sizeof head.name, "%s", name);
    size_put(head.size, size);
    memcpy(head.magic, "ustar", 6);
    memcpy(head.version, "00", 2);
    memset(head.checksum, ' ', sizeof head.checksum);
    for (size_t i = 0; i < sizeof head; i++)
        sum += ((const unsigned char *)&head)[i];
    snprintf(head.checksum, sizeof head.checksum, "%06o", sum);
    return image_put(fd, &head, sizeof head);
}

/* Zeros up to the next block, after `size` bytes. */
static int pad_put(int fd, uint64_t size)
{
    static const char zeros[BLOCK];
    return image_put(fd, zeros, (BLOCK - size % BLOCK) % BLOCK);
}

/* Real numbers as complex ones, row by row. */
static int plane_put(const struct image_series *series, size_t index, size_t channel, struct c32 *row, int fd)
{
    const float *from = image_plane(series, index, channel);
    const size_t wide = series->size[0], rows = image_pixels(series) / wide;
    if (series->complex_valued)
        return image_put(fd, from, rows * wide * sizeof *row);
    int rc = 0;
    for (size_t r = 0; r < rows && rc == 0; r++) {
        for (size_t x = 0; x < wide; x++)
            row[x] = (struct c32){from[r * wide + x], 0};
        rc = image_put(fd, row, wide * sizeof *row);
    }
    return rc;
}

/* The sizes of BART's dimensions. Fails with ERR_NO_MEMORY. */
static int axes_find(const struct image_series *series, const struct image_layout *layout, size_t size[BART_AXES])
{
    struct image_frames frames;
    int rc = image_frames_find(&frames, series);
    if (rc != 0)
        return rc;
    for (int i = 0; i < BART_AXES; i++)
        size[i] = 1;
    for (int i = 0; i < 3; i++)
        size[i] = series->size[i];
    size[BART_COIL] = series->channels;
    size[BART_SLICE] = layout->slices;
    for (int i = 0; i < IMAGE_COUNTERS && frames.grid; i++)
        size[bart_axis[i]] = frames.size[i];
    if (!frames.grid)
        size[bart_axis[IMAGE_REPETITION]] = frames.count;
    free(frames.counters);
    return 0;
}

/* Image `number` in BART's order, as an index into the series. */
static size_t image_of(const struct image_layout *layout, const size_t size[BART_AXES], size_t number)
{
    size_t at[BART_AXES] = {0}, frame = 0;
    for (int i = BART_COIL + 1; i < BART_AXES; i++) {
        at[i] = number % size[i];
        number /= size[i];
    }
    for (int i = 0; i < IMAGE_COUNTERS; i++)
        frame = frame * size[bart_axis[i]] + at[bart_axis[i]];
    return layout->images[frame * layout->slices + at[BART_SLICE]];
}

static int planes_put(const struct image_series *series, const struct image_layout *layout,
                      const size_t size[BART_AXES], int fd)
{
    struct c32 *row = malloc(series->size[0] * sizeof *row);
    int rc = row ? 0 : err_no_memory("a row of %zu pixels", series->size[0]);
    for (size_t i = 0; i < series->count; i++)
        for (size_t channel = 0; channel < series->channels && rc == 0; channel++)
            rc = plane_put(series, image_of(layout, size, i), channel, row, fd);
    free(row);
    return rc;
}

static size_t header_make(const size_t size[BART_AXES], char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "# Dimensions\n");
    for (int i = 0; i < BART_AXES; i++)
        used +=
            (size_t)snprintf(text + used, room - used, "%zu%s", size[i] ? size[i] : 1, i + 1 < BART_AXES ? " " : "\n");
    return used;
}

int image_write_cfl(const struct image_series *series, int fd)
{
    static const char end[2 * BLOCK];
    char header[512];
    struct image_layout layout;
    size_t size[BART_AXES];
    int rc = image_layout_create(&layout, series);
    if (rc != 0)
        return rc;
    rc = axes_find(series, &layout, size);
    const size_t used = rc == 0 ? header_make(size, header, sizeof header) : 0;
    const uint64_t bytes = (uint64_t)(series->count * series->channels * image_pixels(series)) * sizeof(struct c32);
    if (rc == 0)
        rc = head_put(fd, "image.hdr", used);
    if (rc == 0)
        rc = image_put(fd, header, used);
    if (rc == 0)
        rc = pad_put(fd, used);
    if (rc == 0)
        rc = head_put(fd, "image.cfl", bytes);
    if (rc == 0)
        rc = planes_put(series, &layout, size, fd);
    if (rc == 0)
        rc = pad_put(fd, bytes);
    if (rc == 0)
        rc = image_put(fd, end, sizeof end);
    free(layout.images);
    return rc;
}
