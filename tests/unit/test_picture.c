/* recon/image/picture.h: pictures of any shape come back from their PNG file, which has the same bytes for any number
 * of threads. */
#include "gridding/base/err.h"
#include "recon/image/picture.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Noise in one of `parts` of each row, beside runs of equal pixels. */
static void fill(const struct picture *picture, size_t parts)
{
    const size_t row = picture->width * (size_t)picture->channels;
    uint32_t random = 1;
    for (size_t y = 0; y < picture->height; y++)
        for (size_t x = 0; x < row; x++) {
            random = random * 1664525 + 1013904223;
            picture->pixels[y * row + x] = x < row / parts ? (uint8_t)(random >> 24) : (uint8_t)y;
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
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        struct picture picture = shapes[i / 2];
        size_t bytes, again;
        picture.pixels = malloc(picture.width * picture.height * (size_t)picture.channels);
        fill(&picture, 1 + i % 2); /* noise alone, which cannot be compressed, too */
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

/* While a large picture is written, and at the end of a small one. */
static void a_full_disk_is_told(void **state)
{
    (void)state;
    for (size_t width = 15; width <= 1500; width *= 100) {
        struct picture picture = {width, 700, 1, malloc(width * 700), 2};
        fill(&picture, 2);
        const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
        assert_int_equal(picture_write_png(&picture, full), ERR_SPOOL_FULL);
        close(full);
        free(picture.pixels);
    }
}

static bool packing_fails;

/* In place of libisal's, which it calls. */
int isal_deflate(struct isal_zstream *stream)
{
    int (*next)(struct isal_zstream *);
    *(void **)&next = dlsym(RTLD_NEXT, "isal_deflate");
    return packing_fails ? ISAL_INVALID_OPERATION : next(stream);
}

/* It counts as no memory, which packing lacks first. */
static void rows_that_cannot_be_packed_are_told(void **state)
{
    (void)state;
    struct picture picture = {40, 30, 1, malloc(40 * 30), 1};
    fill(&picture, 2);
    const int fd = memfd_create("picture", MFD_CLOEXEC);
    packing_fails = true;
    assert_int_equal(picture_write_png(&picture, fd), ERR_NO_MEMORY);
    packing_fails = false;
    close(fd);
    free(picture.pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_come_back_with_the_same_bytes_for_any_number_of_threads),
        cmocka_unit_test(a_full_disk_is_told),
        cmocka_unit_test(rows_that_cannot_be_packed_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
