/* Pictures as PNG, read back with libpng: all kinds of rows, and what the encoder treats apart. */
#include "recon/image/picture.h"

#include "gridding/base/err.h"

#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Write the picture, read it back, and compare. Returns the size of the file. */
static size_t round_trip(const struct picture *picture)
{
    const size_t count = picture->width * picture->height * (size_t)picture->channels;
    int fd = memfd_create("picture", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(picture_write_png(picture, fd), 0);
    const size_t bytes = (size_t)lseek(fd, 0, SEEK_END);
    uint8_t *file = malloc(bytes), *back = malloc(count + 1);
    assert_int_equal(pread(fd, file, bytes, 0), (ssize_t)bytes);
    png_image png = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_memory(&png, file, bytes));
    assert_int_equal(png.format, picture->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY);
    assert_int_equal(png.width, picture->width);
    assert_int_equal(png.height, picture->height);
    assert_true(png_image_finish_read(&png, NULL, back, 0, NULL));
    assert_int_equal(png.warning_or_error, 0);
    assert_memory_equal(back, picture->pixels, count);
    free(back);
    free(file);
    close(fd);
    return bytes;
}

/* A picture whose differences between neighbours are `rows`: its filtered rows are these bytes. */
static void undo_differences(struct picture *picture)
{
    for (size_t y = 0; y < picture->height; y++)
        for (size_t x = 1; x < picture->width; x++)
            picture->pixels[y * picture->width + x] =
                (uint8_t)(picture->pixels[y * picture->width + x] + picture->pixels[y * picture->width + x - 1]);
}

static void random_pictures_come_back(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < 300; i++) {
        struct picture picture = {.width = 1 + next_random(&seed) % 300,
                                  .height = 1 + next_random(&seed) % 300,
                                  .channels = next_random(&seed) % 4 == 0 ? 3 : 1};
        const size_t count = picture.width * picture.height * (size_t)picture.channels;
        const unsigned values = 1 + next_random(&seed) % 256, runs = 1 + next_random(&seed) % 40;
        picture.pixels = malloc(count);
        for (size_t at = 0; at < count;) {
            const uint8_t value = (uint8_t)(next_random(&seed) % values);
            const size_t run = 1 + next_random(&seed) % runs * (next_random(&seed) % runs);
            for (size_t end = at + run; at < end && at < count; at++)
                picture.pixels[at] = value;
        }
        round_trip(&picture);
        free(picture.pixels);
    }
}

/* A row for each length of a run of zeros, through the longest that a token has, twice, and one more. */
static void runs_of_every_length_come_back(void **state)
{
    (void)state;
    enum { WIDTH = 600, HEIGHT = 520 };
    struct picture picture = {WIDTH, HEIGHT, 1, calloc(WIDTH, HEIGHT)};
    for (size_t y = 0; y < HEIGHT; y++)
        for (size_t x = y; x < WIDTH; x++)
            picture.pixels[y * WIDTH + x] = (uint8_t)(17 * x % 251 + 1);
    undo_differences(&picture);
    round_trip(&picture);
    free(picture.pixels);
}

/* Frequencies as Fibonacci's numbers give the deepest tree: without a limit the rarest of 20 bytes would have a code of
 * 19 bits, and 15 are the most. */
static void the_rarest_bytes_have_a_code(void **state)
{
    (void)state;
    enum { BYTES = 20, WIDTH = 200, HEIGHT = 89 };
    struct picture picture = {WIDTH, HEIGHT, 1, malloc(WIDTH * HEIGHT)};
    size_t at = 0, a = 1, b = 1;
    for (int i = 0; i < BYTES; i++) {
        for (size_t n = 0; n < a && at < WIDTH * HEIGHT; n++)
            picture.pixels[at++] = (uint8_t)(3 + 2 * i);
        const size_t sum = a + b;
        a = b;
        b = sum;
    }
    while (at < WIDTH * HEIGHT)
        picture.pixels[at++] = 3 + 2 * (BYTES - 1);
    uint32_t seed = 7; /* in any order, so that they are no runs */
    for (size_t i = WIDTH * HEIGHT - 1; i > 0; i--) {
        const size_t j = next_random(&seed) % (i + 1);
        const uint8_t swap = picture.pixels[i];
        picture.pixels[i] = picture.pixels[j];
        picture.pixels[j] = swap;
    }
    undo_differences(&picture);
    round_trip(&picture);
    free(picture.pixels);
}

/* Of one value; of one pixel; and noise, which no code shortens: its file may be a hundredth larger than the pixels
 * (recon/image/image.c promises that), beside 57 bytes of chunks, 6 of zlib's format and 300 of codes for each block.
 */
static void the_extremes_come_back(void **state)
{
    (void)state;
    enum { SIDE = 700, PIXELS = SIDE * SIDE, BLOCK = 1 << 15 };
    uint8_t *pixels = calloc(1, PIXELS);
    assert_true(round_trip(&(struct picture){SIDE, SIDE, 1, pixels}) < PIXELS / 100);
    round_trip(&(struct picture){1, 1, 1, pixels});
    round_trip(&(struct picture){1, 1, 3, pixels});
    round_trip(&(struct picture){1, SIDE, 1, pixels});
    uint32_t seed = 3;
    for (size_t i = 0; i < PIXELS; i++)
        pixels[i] = (uint8_t)next_random(&seed);
    const size_t most = PIXELS + PIXELS / 100 + 63 + 300 * (PIXELS / BLOCK + 1);
    assert_true(round_trip(&(struct picture){SIDE, SIDE, 1, pixels}) < most);
    free(pixels);
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    uint8_t pixels[64] = {0};
    const struct picture picture = {8, 8, 1, pixels};
    int full[2];
    assert_int_equal(pipe(full), 0);
    close(full[0]);
    assert_int_equal(picture_write_png(&picture, full[0]), ERR_IO);
    close(full[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pictures_come_back),    cmocka_unit_test(runs_of_every_length_come_back),
        cmocka_unit_test(the_rarest_bytes_have_a_code), cmocka_unit_test(the_extremes_come_back),
        cmocka_unit_test(a_full_disk_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
