/* The picture of a series, read back with libpng: positions of tiles, gaps, captions, square display of pixels. */
#include "tests/unit/image_fixture.h"

#include <png.h>

static uint8_t *png_load(const char *path, int *width, int *height)
{
    png_image png = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&png, path));
    assert_int_equal(png.format, PNG_FORMAT_GRAY);
    uint8_t *grey = malloc(PNG_IMAGE_SIZE(png));
    assert_true(png_image_finish_read(&png, NULL, grey, 0, NULL));
    *width = (int)png.width;
    *height = (int)png.height;
    return grey;
}

static void square_pixels(struct image_series *series)
{
    for (size_t i = 0; i < series->count; i++)
        for (int d = 0; d < 2; d++)
            series->info[i].fov_mm[d] = 2 * (float)series->size[d];
}

static void png_shows_all_images_as_tiles_in_one_window(void **state)
{
    (void)state;
    char path[96];
    int width, height;
    /* 2 images of 2 slices of 20 x 30: four tiles, 2 x 2. Values 0..1 grow with x, tile by tile; one hot pixel is
     * clipped. */
    struct image_series *series = series_make(2, 1, 20, 30, 2, false);
    for (size_t i = 0; i < 2400; i++)
        series->data[i] = (float)(i % 20) / 19.0f * (float)(i / 600 + 1) / 4;
    series->data[5] = 1e6f;
    series->data[6] = NAN;
    square_pixels(series);
    series_save(series, IMAGE_PNG, path);
    uint8_t *grey = png_load(path, &width, &height);
    /* A row per frame, a column per slice; gaps of 2, captions of 9. */
    assert_int_equal(width, 20 + 2 + 20);
    assert_int_equal(height, 2 * (9 + 30) + 2);
    for (size_t tile = 0; tile < 4; tile++) {
        const uint8_t *corner = grey + (tile / 2 * 41 + 9) * 42 + tile % 2 * 22;
        for (size_t x = 0; x < 20; x++) {
            /* The window's histogram bins are 0.8 % wide; 255 * 0.008 plus rounding is under 4 grey values. */
            double expected = 255.0 * (double)x / 19 * (double)(tile + 1) / 4;
            assert_true(fabs(corner[12 * 42 + x] - expected) < 4);
        }
    }
    assert_int_equal(grey[9 * 42 + 5], 255);
    assert_int_equal(grey[9 * 42 + 6], 0);
    for (int y = 0; y < height; y++)
        assert_int_equal(grey[y * 42 + 20], 56);
    free(grey);
    unlink(path);
    image_series_free(series);

    /* 64 x 40 tiles of 100 x 150 exceed 4096 pixels, so they shrink by a whole factor, here 2. */
    series = series_make(40, 1, 100, 150, 64, false);
    square_pixels(series);
    series_save(series, IMAGE_PNG, path);
    grey = png_load(path, &width, &height);
    assert_int_equal(width, 64 * (50 + 2) - 2);
    assert_int_equal(height, 40 * (9 + 75 + 2) - 2);
    free(grey);
    unlink(path);
    image_series_free(series);

    /* More tiles than shrinking can fit still give a picture. */
    series = series_make(66000, 1, 17, 16, 1, false);
    series_save(series, IMAGE_PNG, path);
    grey = png_load(path, &width, &height);
    assert_true(width <= 4096 && height <= 4096);
    free(grey);
    unlink(path);
    /* The same series exceeds the counters of ISMRMRD and NIfTI. */
    int fd = memfd_create("limit", MFD_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_H5, fd), ERR_LIMIT);
    assert_int_equal(image_write(series, IMAGE_NIFTI, fd), ERR_NOT_ACCEPTABLE);
    close(fd);
    image_series_free(series);
}

/* The size of the picture for a series of `frames` frames of `slices` slices. */
static void png_measure(size_t frames, size_t slices, size_t channels, const size_t size[3], float fov_x, int *width,
                        int *height)
{
    char path[96];
    struct image_series *series = series_make(frames * slices, channels, size[0], size[1], size[2], false);
    square_pixels(series);
    for (size_t i = 0; i < series->count; i++) {
        series->info[i].repetition = (uint16_t)(i / slices);
        series->info[i].slice = (uint16_t)(i % slices);
        series->info[i].fov_mm[0] = fov_x > 0 ? fov_x : series->info[i].fov_mm[0];
    }
    series_save(series, IMAGE_PNG, path);
    free(png_load(path, width, height));
    unlink(path);
    image_series_free(series);
}

static void png_has_a_row_for_each_frame(void **state)
{
    (void)state;
    static const struct {
        size_t frames, slices, channels, size[3];
        float fov_x;
        int width, height;
    } cases[] = {
        {1, 1, 1, {30, 20, 1}, 0, 30, 20},                 /* a single tile: no caption */
        {3, 5, 1, {30, 20, 1}, 0, 5 * 32 - 2, 3 * 31 - 2}, /* frames and slices */
        {3, 1, 4, {30, 20, 1}, 0, 4 * 32 - 2, 3 * 31 - 2}, /* frames and coils */
        {3, 2, 4, {30, 20, 1}, 0, 8 * 32 - 2, 3 * 22 - 2}, /* all three: "3 2 4" is too long */
        {1, 5, 2, {30, 20, 1}, 0, 2 * 32 - 2, 5 * 31 - 2}, /* slices and coils */
        {2, 1, 1, {30, 20, 7}, 0, 7 * 32 - 2, 2 * 31 - 2}, /* frames of a volume */
        {1, 9, 1, {30, 31, 1}, 0, 3 * 32 - 2, 3 * 42 - 2}, /* slices alone: a nearly square list */
        {1, 1, 1, {30, 20, 1}, 120, 60, 20},               /* pixels of 4 x 2 mm */
        {1, 1, 1, {30, 20, 1}, 20, 30, 60},                /* pixels of 0.67 x 2 mm */
        {1, 1, 1, {30, 20, 1}, NAN, 30, 20},               /* pixels of unknown size */
        {1, 1, 1, {9000, 2, 1}, 0, 3000, 1},               /* wider than any picture */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int width, height;
        png_measure(cases[i].frames, cases[i].slices, cases[i].channels, cases[i].size, cases[i].fov_x, &width,
                    &height);
        if (width != cases[i].width || height != cases[i].height)
            fail_msg("case %zu: %d x %d instead of %d x %d", i, width, height, cases[i].width, cases[i].height);
    }
}

/* The caption above a tile of 100 pixels is drawn with glyphs, each in a column of 6 pixels. */
static void png_numbers_its_tiles(void **state)
{
    (void)state;
    char path[96];
    int width, height;
    struct image_series *series = series_make(12, 1, 130, 20, 1, false);
    square_pixels(series);
    memset(series->data, 0, sizeof(float) * 12 * 130 * 20);
    for (size_t i = 0; i < 12; i++) {
        series->info[i].repetition = (uint16_t)(i / 3);
        series->info[i].slice = (uint16_t)(i % 3);
    }
    series_save(series, IMAGE_PNG, path);
    uint8_t *grey = png_load(path, &width, &height);
    assert_int_equal(width, 3 * 132 - 2);
    /* The caption of the tile in the last row is "frame 4 slice 1". Its 4, at character 6, is the only one; its 1, at
     * character 14, must equal that of "frame 1" in the first row, at character 6. */
    const uint8_t *last = grey + (size_t)3 * 31 * (size_t)width + (size_t)width + 1;
    static const char *const four[] = {"...#.", "..##.", ".#.#.", "#..#.", "#####", "...#.", "...#."};
    for (size_t y = 0; y < 7; y++)
        for (size_t x = 0; x < 5; x++) {
            assert_int_equal(last[y * (size_t)width + 6 * 6 + x], four[y][x] == '#' ? 255 : 56);
            assert_int_equal(last[y * (size_t)width + 14 * 6 + x], grey[(y + 1) * (size_t)width + 1 + 6 * 6 + x]);
        }
    free(grey);
    unlink(path);
    image_series_free(series);
}

/* With pixels of 4 x 2 mm a disc stays round. */
static void png_keeps_the_aspect_of_pixels(void **state)
{
    (void)state;
    char path[96];
    int width, height;
    struct image_series *series = series_make(1, 1, 50, 100, 1, false);
    series->info->fov_mm[0] = series->info->fov_mm[1] = 200;
    for (int y = 0; y < 100; y++)
        for (int x = 0; x < 50; x++)
            series->data[y * 50 + x] = hypotf(4 * ((float)x + 0.5f) - 100, 2 * ((float)y + 0.5f) - 100) < 60 ? 1 : 0;
    series_save(series, IMAGE_PNG, path);
    uint8_t *grey = png_load(path, &width, &height);
    assert_true(width == 100 && height == 100);
    for (int y = 0; y < 100; y++)
        for (int x = 0; x < 100; x++) {
            double radius = hypot(2 * (x + 0.5) - 100, 2 * (y + 0.5) - 100);
            if (fabs(radius - 60) > 4) /* one pixel of the image */
                assert_true(radius < 60 ? grey[y * 100 + x] > 250 : grey[y * 100 + x] == 0);
        }
    free(grey);
    unlink(path);
    image_series_free(series);
}

static void a_black_image_is_a_black_picture(void **state)
{
    (void)state;
    char path[96];
    int width, height;
    struct image_series *series = series_make(1, 1, 9, 8, 1, false);
    memset(series->data, 0, 72 * sizeof(float));
    series_save(series, IMAGE_PNG, path);
    uint8_t *grey = png_load(path, &width, &height);
    for (int i = 0; i < width * height; i++)
        assert_int_equal(grey[i], 0);
    free(grey);
    unlink(path);
    image_series_free(series);
}

/* Rows of more pixels than are drawn at a time. */
static void a_wide_image_is_drawn_in_order(void **state)
{
    (void)state;
    enum { NX = 2500, NY = 3 };
    char path[96];
    int width, height;
    struct image_series *series = series_make(1, 1, NX, NY, 1, false);
    for (size_t i = 0; i < NX * NY; i++)
        series->data[i] = (float)(i % NX) / (NX - 1);
    square_pixels(series);
    series_save(series, IMAGE_PNG, path);
    uint8_t *grey = png_load(path, &width, &height);
    assert_int_equal(width, NX);
    assert_int_equal(height, NY);
    for (int i = 0; i < NX * NY; i++) /* within 4, as above */
        assert_true(fabs(grey[i] - 255.0 * (i % NX) / (NX - 1)) < 4);
    free(grey);
    unlink(path);
    image_series_free(series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_shows_all_images_as_tiles_in_one_window),
        cmocka_unit_test(png_has_a_row_for_each_frame),
        cmocka_unit_test(png_numbers_its_tiles),
        cmocka_unit_test(png_keeps_the_aspect_of_pixels),
        cmocka_unit_test(a_black_image_is_a_black_picture),
        cmocka_unit_test(a_wide_image_is_drawn_in_order),
    };
    return cmocka_run_group_tests_name("montage", tests, folder_make, folder_drop);
}
