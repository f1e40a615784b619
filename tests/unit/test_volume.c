/* Volumes (recon/volume/): each format is read back, node by node, with code of this test. */
#include "gridding/base/err.h"
#include "recon/result_file.h"
#include "recon/volume/volume.h"

#include <png.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static struct volume *volume_make(size_t frames, size_t x, size_t y, size_t z)
{
    struct volume *v = NULL;
    assert_int_equal(volume_create(&v, frames, (const size_t[3]){x, y, z}), 0);
    for (int d = 0; d < 3; d++) {
        v->origin[d] = -1.25 + 7.1 * d;
        v->spacing[d] = 0.5 + 0.125 * d;
    }
    snprintf(v->title, sizeof v->title, "Potential, e/A");
    for (size_t i = 0; i < frames * x * y * z; i++)
        v->data[i] = (float)(sin(0.7 * (double)i) * exp(0.01 * (double)i));
    return v;
}

/* The file's bytes, followed by a NUL. */
static char *write_file(const struct volume *v, enum volume_format format, size_t *length)
{
    size_t most;
    int fd = memfd_create("volume", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(volume_write(v, format, fd), 0);
    *length = (size_t)lseek(fd, 0, SEEK_END);
    assert_true(volume_file_most(v, format, &most) && *length <= most);
    char *bytes = malloc(*length + 1);
    assert_non_null(bytes);
    assert_int_equal(pread(fd, bytes, *length, 0), (ssize_t)*length);
    bytes[*length] = '\0';
    close(fd);
    return bytes;
}

static void test_npy_is_read_back(void **state)
{
    (void)state;
    for (size_t frames = 1; frames <= 2; frames++) {
        struct volume *v = volume_make(frames, 5, 4, 3), *back = NULL;
        int fd = memfd_create("volume", MFD_CLOEXEC);
        assert_int_equal(volume_write(v, VOLUME_NPY, fd), 0);
        lseek(fd, 0, SEEK_SET);
        assert_int_equal(volume_read(&back, fd), 0);
        assert_true(back->frames == frames && memcmp(back->size, v->size, sizeof v->size) == 0);
        assert_memory_equal(back->data, v->data, frames * 60 * sizeof(float));
        assert_memory_equal(back->origin, v->origin, sizeof v->origin);
        assert_memory_equal(back->spacing, v->spacing, sizeof v->spacing);
        assert_string_equal(back->title, v->title);
        /* A file truncated anywhere, or with any byte of its header changed, is refused. */
        size_t length = (size_t)lseek(fd, 0, SEEK_END);
        struct volume *bad = NULL;
        for (size_t at = 0; at < 128; at++) {
            char byte, other;
            assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
            other = (char)(byte ^ 0x20);
            assert_int_equal(pwrite(fd, &other, 1, (off_t)at), 1);
            lseek(fd, 0, SEEK_SET);
            assert_int_equal(volume_read(&bad, fd), ERR_MALFORMED_FILE);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
        }
        for (size_t cut = 1; cut <= length; cut++) {
            assert_int_equal(ftruncate(fd, (off_t)(length - cut)), 0);
            lseek(fd, 0, SEEK_SET);
            assert_int_equal(volume_read(&bad, fd), ERR_MALFORMED_FILE);
        }
        assert_null(bad);
        close(fd);
        volume_free(v);
        volume_free(back);
    }
}

static void test_dx(void **state)
{
    (void)state;
    struct volume *v = volume_make(1, 5, 4, 3);
    size_t length;
    char *text = write_file(v, VOLUME_DX, &length), *at = strstr(text, "follows\n") + 8;
    assert_non_null(strstr(text,
                           "# Potential, e/A\nobject 1 class gridpositions counts 5 4 3\norigin -1.25 5.85 12.95\n"
                           "delta 0.5 0 0\ndelta 0 0.625 0\ndelta 0 0 0.75\n"));
    assert_non_null(strstr(text, "rank 0 items 60 data follows\n"));
    for (size_t x = 0; x < 5; x++)
        for (size_t y = 0; y < 4; y++)
            for (size_t z = 0; z < 3; z++)
                assert_true((float)strtod(at, &at) == v->data[(z * 4 + y) * 5 + x]);
    assert_int_equal(strncmp(at, "\nattribute \"dep\" string \"positions\"\n", 36), 0);
    free(text);
    volume_free(v);
    v = volume_make(2, 2, 2, 2);
    assert_int_equal(volume_write(v, VOLUME_DX, -1), ERR_NOT_ACCEPTABLE);
    volume_free(v);
}

static void test_mrc(void **state)
{
    (void)state;
    for (size_t frames = 1; frames <= 2; frames++) {
        struct volume *v = volume_make(frames, 5, 4, 3);
        size_t length;
        char *bytes = write_file(v, VOLUME_MRC, &length);
        int32_t words[256];
        float reals[256];
        memcpy(words, bytes, sizeof words);
        memcpy(reals, bytes, sizeof reals);
        assert_int_equal(length, 1024 + frames * 60 * sizeof(float));
        assert_true(words[0] == 5 && words[1] == 4 && words[2] == (int32_t)(3 * frames) && words[3] == 2);
        assert_true(words[7] == 5 && words[8] == 4 && words[9] == 3); /* MX, MY, MZ */
        assert_true(reals[10] == 2.5f && reals[11] == 2.5f && reals[12] == 2.25f && reals[13] == 90);
        assert_true(words[16] == 1 && words[17] == 2 && words[18] == 3);
        assert_int_equal(words[22], frames == 1 ? 1 : 401);
        assert_int_equal(words[27], 20140);
        assert_true(reals[49] == -1.25f && reals[50] == 5.85f && reals[51] == 12.95f);
        assert_memory_equal(bytes + 208, "MAP DD", 6);
        float least = v->data[0], largest = v->data[0];
        double sum = 0, squares = 0;
        const size_t nodes = 60 * frames;
        for (size_t i = 0; i < nodes; i++) {
            least = fminf(least, v->data[i]);
            largest = fmaxf(largest, v->data[i]);
            sum += (double)v->data[i];
            squares += (double)v->data[i] * (double)v->data[i];
        }
        const double mean = sum / (double)nodes, deviation = sqrt(squares / (double)nodes - mean * mean);
        assert_true(reals[19] == least && reals[20] == largest);
        /* float32's own rounding of either */
        assert_true(fabs((double)reals[21] - mean) < 1e-6 && fabs((double)reals[54] - deviation) < 1e-6);
        assert_memory_equal(bytes + 224, "Potential, e/A   ", 17);
        assert_memory_equal(bytes + 1024, v->data, nodes * sizeof(float));
        free(bytes);
        volume_free(v);
    }
}

/* A picture read back by libpng's simplified functions. */
static uint8_t *picture_of(const struct volume *v, png_image *image)
{
    size_t length;
    char *bytes = write_file(v, VOLUME_PNG, &length);
    memset(image, 0, sizeof *image);
    image->version = PNG_IMAGE_VERSION;
    assert_true(png_image_begin_read_from_memory(image, bytes, length));
    image->format = PNG_FORMAT_RGB;
    uint8_t *pixels = malloc(PNG_IMAGE_SIZE(*image));
    assert_true(png_image_finish_read(image, NULL, pixels, 0, NULL));
    free(bytes);
    return pixels;
}

static void test_png(void **state)
{
    (void)state;
    png_image image;
    struct volume *v = volume_make(1, 4, 4, 2);
    for (int i = 0; i < 32; i++)
        v->data[i] = i < 16 ? 1 : -1;
    v->data[12] = 0; /* x = 0, y = 3 of the first slice: its upper left corner */
    uint8_t *pixels = picture_of(v, &image);
    assert_true(image.width == 2 * 162 && image.height == 162);
    static const uint8_t white[] = {255, 255, 255}, red[] = {255, 0, 0}, blue[] = {0, 0, 255};
    assert_memory_equal(pixels, white, 3);
    assert_memory_equal(pixels + (size_t)3 * 40, red, 3);
    assert_memory_equal(pixels + (size_t)3 * 162, blue, 3);
    free(pixels);
    volume_free(v);
    /* Without negative values the picture is grey; if the slices do not fit, every n-th is shown. */
    v = volume_make(3, 400, 20, 400);
    for (size_t i = 0; i < (size_t)3 * 400 * 20 * 400; i++)
        v->data[i] = 1;
    pixels = picture_of(v, &image);
    assert_true(image.width <= 2048 && image.height <= 2048);
    assert_memory_equal(pixels, white, 3);
    free(pixels);
    volume_free(v);
}

static void test_limits(void **state)
{
    (void)state;
    struct volume *v = NULL, shape = {.frames = SIZE_MAX / 2, .size = {4, 1, 1}};
    size_t bytes;
    assert_int_equal(volume_create(&v, SIZE_MAX / 2, (const size_t[3]){4, 1, 1}), ERR_NO_MEMORY);
    assert_false(volume_file_most(&shape, VOLUME_NPY, &bytes));
    /* One node wide, or high, or deep. */
    for (int d = 0; d < 3; d++) {
        v = volume_make(1, d == 0 ? 1 : 3000, d == 1 ? 1 : 30, d == 2 ? 1 : 3);
        for (enum volume_format f = VOLUME_NPY; f < VOLUME_FORMATS; f++)
            free(write_file(v, f, &bytes));
        volume_free(v);
    }
}

static void test_cancel(void **state)
{
    (void)state;
    struct volume *v = volume_make(1, 30, 30, 30);
    const atomic_bool cancel = true;
    for (enum volume_format f = VOLUME_NPY; f < VOLUME_FORMATS; f++) {
        const int fd = memfd_create("volume", MFD_CLOEXEC);
        result_cancel_by(&cancel);
        assert_int_equal(volume_write(v, f, fd), ERR_CANCELED);
        result_cancel_by(NULL);
        assert_int_equal(lseek(fd, 0, SEEK_END), 0);
        close(fd);
    }
    volume_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_is_read_back),
        cmocka_unit_test(test_dx),
        cmocka_unit_test(test_mrc),
        cmocka_unit_test(test_png),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
