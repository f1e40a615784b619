/* recon/image/picture.h: pictures of any shape come back from their PNG file, which has the same bytes for any number
 * of threads. */
#include "gridding/base/err.h"
#include "recon/image/picture.h"
#include "recon/image/picture_pack.h"

#include <fcntl.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

/* Noise beside runs of equal pixels. */
static void fill(const struct picture *picture)
{
    const size_t row = picture->width * (size_t)picture->channels;
    uint32_t random = 1;
    for (size_t y = 0; y < picture->height; y++)
        for (size_t x = 0; x < row; x++) {
            random = random * 1664525 + 1013904223;
            picture->pixels[y * row + x] = x < row / 2 ? (uint8_t)(random >> 24) : (uint8_t)y;
        }
}

/* The bytes of its file; the caller frees them. */
static uint8_t *file_of(const struct picture *picture, size_t *bytes)
{
    struct stat there;
    const int fd = memfd_create("picture", MFD_CLOEXEC);
    assert_int_equal(picture_write_png(picture, fd), 0);
    assert_int_equal(fstat(fd, &there), 0);
    *bytes = (size_t)there.st_size;
    uint8_t *content = malloc(*bytes);
    assert_int_equal(pread(fd, content, *bytes, 0), there.st_size);
    close(fd);
    return content;
}

static void check_pixels(const struct picture *picture, const uint8_t *file, size_t bytes)
{
    const size_t count = picture->width * picture->height * (size_t)picture->channels;
    png_image image = {.version = PNG_IMAGE_VERSION};
    uint8_t *read = malloc(count);
    assert_true(png_image_begin_read_from_memory(&image, file, bytes));
    assert_int_equal(image.width, picture->width);
    assert_int_equal(image.height, picture->height);
    assert_int_equal(image.format, picture->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY);
    assert_true(png_image_finish_read(&image, NULL, read, 0, NULL));
    assert_int_equal(image.warning_or_error, 0);
    assert_memory_equal(read, picture->pixels, count);
    free(read);
}

/* One piece and many, rows longer than a piece, a last piece of one row, and more pieces than are held at a time. */
static void pictures_come_back_with_the_same_bytes_for_any_number_of_threads(void **state)
{
    (void)state;
    static const struct picture shapes[] = {{1, 1, 1, NULL, 0},     {1, 1, 3, NULL, 0},     {260, 360, 1, NULL, 0},
                                            {200, 122, 3, NULL, 0}, {40000, 5, 1, NULL, 0}, {3, 9000, 3, NULL, 0},
                                            {1500, 700, 1, NULL, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct picture picture = shapes[i];
        size_t bytes, again;
        picture.pixels = malloc(picture.width * picture.height * (size_t)picture.channels);
        fill(&picture);
        uint8_t *alone = file_of(&picture, &bytes);
        check_pixels(&picture, alone, bytes);
        for (picture.threads = 1; picture.threads < 5; picture.threads++) {
            uint8_t *shared = file_of(&picture, &again);
            assert_int_equal(again, bytes);
            assert_memory_equal(shared, alone, bytes);
            free(shared);
        }
        free(alone);
        free(picture.pixels);
    }
}

static void a_full_disk_is_told(void **state)
{
    (void)state;
    struct picture picture = {1500, 700, 1, malloc(1500 * 700), 2};
    fill(&picture);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(picture_write_png(&picture, full), ERR_SPOOL_FULL);
    close(full);
    free(picture.pixels);
}

enum { PACKED_MOST = 1200000, NOISE = 120000 };

/* Two parts of a stream, packed, are what zlib unpacks; and as small as by its strategy Z_RLE, but for the table of
 * lengths, of 160 bytes. */
static void check_packed(const uint8_t *bytes, size_t count)
{
    const size_t half = count / 2, room = pack_most(half) + pack_most(count - half);
    uint8_t *packed = malloc(room), *back = malloc(count);
    size_t used = half ? pack_bytes(bytes, half, false, packed) : 0;
    used += pack_bytes(bytes + half, count - half, true, packed + used);
    assert_true(used <= room);
    z_stream in = {.next_in = packed, .avail_in = (uInt)used, .next_out = back, .avail_out = (uInt)count};
    assert_int_equal(inflateInit2(&in, -MAX_WBITS), Z_OK);
    assert_int_equal(inflate(&in, Z_FINISH), Z_STREAM_END);
    assert_int_equal(in.total_out, count);
    assert_int_equal(in.avail_in, 0);
    inflateEnd(&in);
    assert_memory_equal(back, bytes, count);
    z_stream out = {.next_in = (uint8_t *)(uintptr_t)bytes, .avail_in = (uInt)count};
    assert_int_equal(deflateInit2(&out, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_RLE), Z_OK);
    uint8_t *other = malloc(deflateBound(&out, count));
    out.next_out = other;
    out.avail_out = (uInt)deflateBound(&out, count);
    assert_int_equal(deflate(&out, Z_FINISH), Z_STREAM_END);
    assert_true((double)used < 1.01 * (double)out.total_out + 2 * 160 + 16);
    deflateEnd(&out);
    free(other);
    free(back);
    free(packed);
}

/* Runs of every length, at both ends and in the middle; all bytes alike; all different; noise of few and of many bits;
 * and bytes of which each is 2.2 times as frequent as the one before, whose Huffman tree is deeper than 15 bits. */
static void packed_bytes_come_back(void **state)
{
    (void)state;
    uint8_t *bytes = malloc(PACKED_MOST);
    uint32_t random = 1;
    for (size_t run = 1; run < 600; run++) {
        memset(bytes, 7, run);
        check_packed(bytes, run);
        memset(bytes + run, 9, 2 * run);
        check_packed(bytes, 3 * run);
    }
    for (int bits = 0; bits <= 8; bits++) {
        for (size_t i = 0; i < NOISE; i++) {
            random = random * 1664525 + 1013904223;
            bytes[i] = (uint8_t)(random >> 24 >> (8 - bits));
        }
        check_packed(bytes, NOISE);
        check_packed(bytes, 1000);
    }
    size_t count = 0;
    double share = 2;
    for (int byte = 0; (double)count + share < PACKED_MOST; byte++, share *= 2.2)
        for (double i = 1; i < share; i++)
            bytes[count++] = (uint8_t)byte;
    for (size_t i = count - 1; i > 0; i--) { /* shuffled, so that there are no runs */
        random = random * 1664525 + 1013904223;
        const size_t j = (size_t)((uint64_t)random * (i + 1) >> 32);
        const uint8_t swapped = bytes[i];
        bytes[i] = bytes[j];
        bytes[j] = swapped;
    }
    check_packed(bytes, count);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_come_back_with_the_same_bytes_for_any_number_of_threads),
        cmocka_unit_test(packed_bytes_come_back),
        cmocka_unit_test(a_full_disk_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
