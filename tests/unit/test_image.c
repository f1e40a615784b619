/* Image files: npy, ISMRMRD (read back with libismrmrd), sizes, refusals. NIfTI: test_image_nifti.c. */
#include "recon/image/image_leaf.h"
#include "tests/unit/image_fixture.h"

#include <ismrmrd/dataset.h>
#include <ismrmrd/ismrmrd.h>

static void npy_is_c_order(void **state)
{
    (void)state;
    struct image_series *series = series_make(2, 3, 5, 4, 2, true);
    int fd = memfd_create("npy", MFD_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_NPY, fd), 0);
    unsigned char head[10];
    assert_int_equal(pread(fd, head, 10, 0), 10);
    assert_memory_equal(head, "\x93NUMPY\x01\x00", 8);
    size_t length = head[8] + 256u * head[9];
    assert_int_equal((length + 10) % 64, 0);
    char *text = calloc(1, length + 1);
    assert_int_equal(pread(fd, text, length, 10), length);
    assert_non_null(strstr(text, "'descr': '<c8'"));
    assert_non_null(strstr(text, "'fortran_order': False"));
    assert_non_null(strstr(text, "'shape': (2, 3, 2, 4, 5)"));
    assert_int_equal(text[length - 1], '\n');
    size_t bytes = (size_t)2 * 3 * 2 * 4 * 5 * 8;
    assert_int_equal(lseek(fd, 0, SEEK_END), 10 + length + bytes);
    float pair[2];
    size_t at = ((((size_t)1 * 3 + 2) * 2 + 1) * 4 + 3) * 5 + 4;
    assert_int_equal(pread(fd, pair, sizeof pair, (off_t)(10 + length + 8 * at)), sizeof pair);
    assert_true(pair[0] == value_at(1, 2, 1, 3, 4) && pair[1] == -2 * pair[0]);
    free(text);
    close(fd);
    image_series_free(series);
}

/* The shape must be in the header, and the value at `pixel` must be that of value_at(). */
static void npy_look(const struct image_series *series, const char *shape, size_t pixel, float expected)
{
    char text[512] = "";
    float value;
    int fd = memfd_create("npy", MFD_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_NPY, fd), 0);
    assert_true(pread(fd, text, sizeof text - 1, 10) > 0);
    if (!strstr(text, shape))
        fail_msg("%s is not in %.100s", shape, text);
    size_t pixels = series->count * series->channels * series->size[0] * series->size[1] * series->size[2];
    off_t begin = lseek(fd, 0, SEEK_END) - (off_t)(4 * pixels);
    assert_int_equal(pread(fd, &value, sizeof value, begin + (off_t)(4 * pixel)), sizeof value);
    assert_true(value == expected);
    close(fd);
}

/* Axes are [frame][channel][slice or z][y][x], in the order of the counters, for any order of the images. */
static void npy_keeps_frames_and_slices_apart(void **state)
{
    (void)state;
    struct image_series *series = series_make(6, 2, 5, 4, 1, false);
    for (size_t i = 0; i < 6; i++) {
        series->info[i].repetition = (uint16_t)(1 - i / 3);
        series->info[i].slice = (uint16_t)(i % 3);
    }
    /* Frame 1, channel 1, slice 2, y 3, x 4: the third image of the first three. */
    npy_look(series, "'shape': (2, 2, 3, 4, 5)", (((1 * 2 + 1) * 3 + 2) * 4 + 3) * 5 + 4, value_at(2, 1, 0, 3, 4));
    npy_look(series, "'shape': (2, 2, 3, 4, 5)", 0, value_at(3, 0, 0, 0, 0));
    /* A slice number that occurs only in the second frame: every image becomes a frame of its own. */
    series->info[5].slice = 7;
    npy_look(series, "'shape': (6, 2, 1, 4, 5)", (size_t)3 * 2 * 20, value_at(0, 0, 0, 0, 0));
    image_series_free(series);
    /* Slabs: the z planes of one follow those of the other. */
    series = series_make(2, 2, 5, 4, 3, false);
    series->info[1].repetition = 0;
    series->info[1].slice = 1;
    npy_look(series, "'shape': (1, 2, 6, 4, 5)", ((1 * 6 + 4) * 4 + 2) * 5 + 1, value_at(1, 1, 1, 2, 1));
    image_series_free(series);
}

static void h5_is_read_by_libismrmrd(void **state)
{
    (void)state;
    char path[96];
    for (int complex_valued = 0; complex_valued < 2; complex_valued++) {
        struct image_series *series = series_make(3, 2, 6, 5, 4, complex_valued);
        series->info[2].slice = 9;
        series->info[2].time_stamp = 1234567;
        series_save(series, IMAGE_H5, path);
        ISMRMRD_Dataset dataset;
        ISMRMRD_Image image;
        ismrmrd_init_dataset(&dataset, path, "dataset");
        assert_int_equal(ismrmrd_open_dataset(&dataset, false), 0);
        assert_int_equal(ismrmrd_get_number_of_images(&dataset, "image_0"), 3);
        ismrmrd_init_image(&image);
        assert_int_equal(ismrmrd_read_image(&dataset, "image_0", 2, &image), 0);
        assert_int_equal(image.head.data_type, complex_valued ? ISMRMRD_CXFLOAT : ISMRMRD_FLOAT);
        assert_int_equal(image.head.image_type, complex_valued ? ISMRMRD_IMTYPE_COMPLEX : ISMRMRD_IMTYPE_MAGNITUDE);
        assert_int_equal(image.head.matrix_size[0], 6);
        assert_int_equal(image.head.matrix_size[1], 5);
        assert_int_equal(image.head.matrix_size[2], 4);
        assert_int_equal(image.head.channels, 2);
        assert_int_equal(image.head.slice, 9);
        assert_int_equal(image.head.repetition, 2);
        assert_int_equal(image.head.image_index, 3);
        assert_int_equal(image.head.measurement_uid, 77);
        assert_int_equal(image.head.acquisition_time_stamp, 1234567);
        assert_true(image.head.position[1] == -40 && image.head.field_of_view[2] == 12);
        assert_true(image.head.read_dir[1] == series->info[2].read_dir[1]);
        assert_true(image.head.slice_dir[2] == series->info[2].slice_dir[2]);
        assert_int_equal(strlen(image.attribute_string), image.head.attribute_string_len);
        const float *pixels = image.data;
        size_t pixel = ((size_t)1 * 4 + 3) * 30 + 4 * 6 + 5; /* channel 1, z 3, y 4, x 5 */
        assert_true(pixels[pixel * (complex_valued ? 2 : 1)] == value_at(2, 1, 3, 4, 5));
        ismrmrd_cleanup_image(&image);
        char *xml = ismrmrd_read_header(&dataset);
        assert_string_equal(xml, "<ismrmrdHeader/>");
        free(xml);
        ismrmrd_close_dataset(&dataset);

        struct image_series *back = NULL;
        assert_int_equal(image_read_h5(&back, path), 0);
        assert_true(back->complex_valued == complex_valued && back->count == 3 && back->channels == 2);
        assert_memory_equal(back->size, series->size, sizeof back->size);
        assert_memory_equal(back->data, series->data, (complex_valued ? 8u : 4u) * 3 * 2 * 120);
        assert_memory_equal(back->info, series->info, 3 * sizeof *back->info);
        assert_string_equal(back->xml, series->xml);
        image_series_free(back);
        image_series_free(series);
        unlink(path);
    }
}

/* Whatever its shape and header, for it may end before them. */
static void the_pixels_end_an_h5_file(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {
        {1, 1, 1, 1, 1}, {300, 1, 1, 1, 1}, {3, 2, 6, 5, 4}, {1, 1, 256, 200, 1}, {9, 1, 64, 64, 1}, {1, 1, 400, 40, 1},
    };
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++) {
        const size_t *n = shapes[i / 3], xml = (size_t[]){0, 1, 100000}[i % 3];
        struct image_series *series = series_make(n[0], n[1], n[2], n[3], n[4], i % 2), *back = NULL;
        const size_t bytes = n[0] * n[1] * n[2] * n[3] * n[4] * (i % 2 ? sizeof(struct c32) : sizeof(float));
        free(series->xml);
        series->xml = xml > 0 ? calloc(xml, 1) : NULL;
        if (xml > 0)
            memset(series->xml, '<', xml - 1);
        const int fd = memfd_create("image", MFD_CLOEXEC);
        int64_t at = 0;
        assert_int_equal(image_begin_h5(series, fd, &at), 0);
        assert_int_equal(lseek(fd, 0, SEEK_END), at);
        assert_int_equal(image_read_h5_fd(&back, fd), ERR_MALFORMED_FILE);
        assert_int_equal(image_finish_h5(series, fd, at), 0);
        assert_int_equal(lseek(fd, 0, SEEK_END), at + (off_t)bytes);
        assert_int_equal(image_read_h5_fd(&back, fd), 0);
        assert_memory_equal(back->data, series->data, bytes);
        image_series_free(back);
        image_series_free(series);
        close(fd);
    }
}

static void phase_images_keep_their_range(void **state)
{
    (void)state;
    char path[96];
    struct image_series *series = series_make(2, 1, 6, 5, 1, false), *back = NULL;
    series->phases = true;
    for (int i = 0; i < 60; i++)
        series->data[i] = i < 20 ? -3.1f : i < 40 ? 0 : 3.1f;
    series_save(series, IMAGE_H5, path);
    ISMRMRD_Dataset dataset;
    ISMRMRD_Image image;
    ismrmrd_init_dataset(&dataset, path, "dataset");
    assert_int_equal(ismrmrd_open_dataset(&dataset, false), 0);
    ismrmrd_init_image(&image);
    assert_int_equal(ismrmrd_read_image(&dataset, "image_0", 1, &image), 0);
    assert_int_equal(image.head.image_type, ISMRMRD_IMTYPE_PHASE);
    ismrmrd_cleanup_image(&image);
    ismrmrd_close_dataset(&dataset);
    assert_int_equal(image_read_h5(&back, path), 0);
    assert_true(back->phases && !back->complex_valued);
    assert_memory_equal(back->data, series->data, 60 * sizeof(float));
    /* A picture shows -pi as black and pi as white. */
    float low, high;
    assert_int_equal(image_window(back, &low, &high), 0);
    float bright[60];
    image_brightness(back, 0, 60, bright);
    assert_true(bright[0] - low < 0.05f && high - bright[59] < 0.05f);
    assert_true(fabsf(bright[30] - (low + high) / 2) < 1e-5f);
    image_series_free(back);
    image_series_free(series);
    unlink(path);
}

static void unknown_image_formats_are_refused(void **state)
{
    (void)state;
    char path[96];
    struct image_series *series = series_make(1, 1, 8, 8, 1, false), *back = NULL;
    series_save(series, IMAGE_NPY, path);
    assert_int_equal(image_read_h5(&back, path), ERR_MALFORMED_FILE);
    unlink(path);
    assert_int_equal(image_read_h5(&back, path), ERR_IO);
    series->data[0] = 0;
    series_save(series, IMAGE_H5, path);
    assert_int_equal(truncate(path, 3000), 0);
    assert_int_equal(image_read_h5(&back, path), ERR_MALFORMED_FILE);
    unlink(path);
    assert_null(back);
    image_series_free(series);
}

static void a_full_disk_is_reported_as_one(void **state)
{
    (void)state;
    struct image_series *series = series_make(4, 2, 64, 64, 4, true);
    for (int format = 0; format < IMAGE_FORMATS; format++) {
        int fd = open("/dev/full", O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(image_write(series, (enum image_format)format, fd), ERR_SPOOL_FULL);
        close(fd);
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(image_write(series, (enum image_format)format, fd), ERR_IO);
        close(fd);
    }
    image_series_free(series);
}

/* A writer looks for a cancel between the pieces that it writes, so that the file of a canceled job stays short. */
static void writing_ends_with_a_cancel(void **state)
{
    (void)state;
    struct image_series *series = series_make(4, 2, 640, 640, 4, true);
    const atomic_bool cancel = true;
    for (int format = 0; format < IMAGE_FORMATS; format++) {
        const int fd = memfd_create("image", MFD_CLOEXEC);
        result_cancel_by(&cancel);
        assert_int_equal(image_write(series, (enum image_format)format, fd), ERR_CANCELED);
        result_cancel_by(NULL);
        assert_int_equal(lseek(fd, 0, SEEK_END), 0);
        close(fd);
    }
    image_series_free(series);
}

/* After a cancel no writer passes over all values first: those behind the first plane are not there. */
static void no_values_are_looked_at_after_a_cancel(void **state)
{
    (void)state;
    struct image_series *series = series_make(4, 2, 640, 640, 4, true);
    const size_t plane = (size_t)640 * 640 * sizeof(struct c32), all = 4 * 2 * 4 * plane;
    float *const kept = series->data;
    const atomic_bool cancel = true;
    float *data = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(data != MAP_FAILED && mprotect(data, plane, PROT_READ | PROT_WRITE) == 0);
    memcpy(data, kept, plane);
    series->data = data;
    for (int format = 0; format < IMAGE_FORMATS; format++) {
        const int fd = memfd_create("image", MFD_CLOEXEC);
        result_cancel_by(&cancel);
        assert_int_equal(image_write(series, (enum image_format)format, fd), ERR_CANCELED);
        result_cancel_by(NULL);
        close(fd);
    }
    munmap(data, all);
    series->data = kept;
    image_series_free(series);
}

/* Incompressible values, also in shapes whose frame or header outweighs them. */
static void no_format_exceeds_its_size_estimate(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {
        {1, 1, 1, 1, 1},    {300, 1, 1, 1, 1},  {40, 8, 2, 3, 1},    {1, 1, 256, 200, 1},
        {12, 3, 33, 31, 1}, {2, 2, 20, 21, 22}, {1, 1, 1000, 40, 1},
    };
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int complex_valued = 0; complex_valued < 2; complex_valued++) {
            const size_t *n = shapes[i];
            struct image_series *series = series_make(n[0], n[1], n[2], n[3], n[4], complex_valued);
            size_t values = n[0] * n[1] * n[2] * n[3] * n[4] * (complex_valued ? 2 : 1), most = 0;
            for (size_t v = 0; v < values; v++)
                series->data[v] = (float)((random = random * 1664525 + 1013904223) >> 8);
            for (int c = 0; c < 2; c++) /* pixels so elongated that a picture stretches them by its limit */
                series->info[0].fov_mm[c] = (size_t)c == i % 2 ? 20 * (float)n[2 + c] : (float)n[2 + c];
            for (int format = 0; format < IMAGE_FORMATS; format++) {
                assert_true(image_file_most(series, (enum image_format)format, strlen(series->xml), &most));
                int fd = memfd_create("most", MFD_CLOEXEC);
                int rc = image_write(series, (enum image_format)format, fd);
                if (rc == 0 && (size_t)lseek(fd, 0, SEEK_END) > most)
                    fail_msg("shape %zu as %s: %zu bytes, estimated at most %zu", i,
                             image_format_name((enum image_format)format), (size_t)lseek(fd, 0, SEEK_END), most);
                assert_true(rc == 0 || format == IMAGE_NIFTI); /* NIfTI does not accept every series */
                close(fd);
            }
            image_series_free(series);
        }
    const struct image_series endless = {.count = 1, .channels = 1, .size = {SIZE_MAX / 2, 2, 2}};
    size_t most;
    assert_false(image_file_most(&endless, IMAGE_NPY, 0, &most));
}

static void formats_are_found_by_name_and_media_type(void **state)
{
    (void)state;
    for (int format = 0; format < IMAGE_FORMATS; format++) {
        assert_int_equal(form_format_find(&image_form, image_format_name((enum image_format)format)), format);
        assert_int_equal(form_format_find(&image_form, image_format_media((enum image_format)format)), format);
    }
    assert_int_equal(form_format_find(&image_form, "bmp"), -1);
}

static void a_series_too_large_for_size_t_is_refused(void **state)
{
    (void)state;
    struct image_series *series = NULL;
    size_t huge = (size_t)1 << 40;
    assert_int_equal(image_series_create(&series, huge, 1, (const size_t[]){huge, 1, 1}, false), ERR_NO_MEMORY);
    assert_null(series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_is_c_order),
        cmocka_unit_test(npy_keeps_frames_and_slices_apart),
        cmocka_unit_test(h5_is_read_by_libismrmrd),
        cmocka_unit_test(the_pixels_end_an_h5_file),
        cmocka_unit_test(phase_images_keep_their_range),
        cmocka_unit_test(unknown_image_formats_are_refused),
        cmocka_unit_test(a_full_disk_is_reported_as_one),
        cmocka_unit_test(writing_ends_with_a_cancel),
        cmocka_unit_test(no_values_are_looked_at_after_a_cancel),
        cmocka_unit_test(no_format_exceeds_its_size_estimate),
        cmocka_unit_test(formats_are_found_by_name_and_media_type),
        cmocka_unit_test(a_series_too_large_for_size_t_is_refused),
    };
    return cmocka_run_group_tests_name("image", tests, folder_make, folder_drop);
}
