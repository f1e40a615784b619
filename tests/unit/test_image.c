/* Image files, read back by the libraries that others read them with: libismrmrd, libnifti, libpng. */
#include "recon/image/image.h"

#include "gridding/base/err.h"

#include <fcntl.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <ismrmrd/dataset.h>
#include <ismrmrd/ismrmrd.h>
#include <nifti1_io.h>

static char folder[64];

static int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_image.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_drop(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* Value of pixel (x, y, z) of channel c of image i: all different, none symmetric. */
static float value_at(size_t i, size_t c, size_t z, size_t y, size_t x)
{
    return (float)(1 + x + 10 * y + 100 * z + 1000 * c + 5000 * i);
}

/* Rotations by 30 degrees about z, then 20 about x: columns are read, phase, slice. */
static void orientation(struct image_info *info)
{
    double a = 30 * M_PI / 180, b = 20 * M_PI / 180;
    double read[3] = {cos(a), sin(a) * cos(b), sin(a) * sin(b)};
    double phase[3] = {-sin(a), cos(a) * cos(b), cos(a) * sin(b)};
    double slice[3] = {0, -sin(b), cos(b)};
    for (int d = 0; d < 3; d++) {
        info->read_dir[d] = (float)read[d];
        info->phase_dir[d] = (float)phase[d];
        info->slice_dir[d] = (float)slice[d];
    }
}

static struct image_series *series_make(size_t count, size_t channels, size_t nx, size_t ny, size_t nz,
                                        bool complex_valued)
{
    struct image_series *series = NULL;
    assert_int_equal(image_series_create(&series, count, channels, (const size_t[]){nx, ny, nz}, complex_valued), 0);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        struct image_info *info = &series->info[i];
        orientation(info);
        memcpy(info->position, (const float[]){12.5f, -40, 77}, sizeof info->position);
        memcpy(info->fov_mm, (const float[]){2.0f * (float)nx, 1.5f * (float)ny, 3.0f * (float)nz},
               sizeof info->fov_mm);
        info->repetition = (uint16_t)i;
        info->index = (uint16_t)(i + 1);
        info->measurement_uid = 77;
        for (size_t c = 0; c < channels; c++)
            for (size_t z = 0; z < nz; z++)
                for (size_t y = 0; y < ny; y++)
                    for (size_t x = 0; x < nx; x++) {
                        series->data[at++] = value_at(i, c, z, y, x);
                        if (complex_valued)
                            series->data[at++] = -2 * value_at(i, c, z, y, x);
                    }
    }
    series->xml = strdup("<ismrmrdHeader/>");
    return series;
}

static void path_make(char path[96], enum image_format format)
{
    snprintf(path, 96, "%s/image.%s", folder, image_format_name(format));
}

static void series_save(const struct image_series *series, enum image_format format, char path[96])
{
    path_make(path, format);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(image_write(series, format, fd), 0);
    close(fd);
}

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

static void a_file_that_is_no_image_is_refused(void **state)
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

/* Where the affine puts a pixel, RAS mm. float32 numbers below 200 mm through three products: some 1e-4 mm. */
#define MILLIMETRES 1e-3

static void expect_place(mat44 m, const double pixel[3], const double ras[3])
{
    for (int i = 0; i < 3; i++) {
        double at = (double)m.m[i][3];
        for (int a = 0; a < 3; a++)
            at += (double)m.m[i][a] * pixel[a];
        assert_true(fabs(at - ras[i]) < MILLIMETRES);
    }
}

/* LPS position of pixel (i, j, k) by ISMRMRD's convention: `position` is the centre pixel's, floor(N / 2). */
static void place_lps(const struct image_info *info, const size_t n[3], const double pixel[3], double lps[3])
{
    for (int i = 0; i < 3; i++)
        lps[i] =
            (double)info->position[i] +
            (pixel[0] - floor((double)n[0] / 2)) * (double)info->fov_mm[0] / (double)n[0] * (double)info->read_dir[i] +
            (pixel[1] - floor((double)n[1] / 2)) * (double)info->fov_mm[1] / (double)n[1] * (double)info->phase_dir[i] +
            (pixel[2] - floor((double)n[2] / 2)) * (double)info->fov_mm[2] / (double)n[2] * (double)info->slice_dir[i];
}

static void nifti_puts_points_where_the_scanner_saw_them(void **state)
{
    (void)state;
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        char path[96];
        struct image_series *series = series_make(2, 1, 7, 6, 5, false);
        for (int i = 0; i < 2; i++)
            for (int d = 0; mirrored && d < 3; d++)
                series->info[i].slice_dir[d] *= -1;
        static const double points[3][3] = {{0, 0, 0}, {6, 2, 1}, {3, 5, 4}};
        memset(series->data, 0, sizeof(float) * 2 * 210);
        for (int p = 0; p < 3; p++)
            series->data[(size_t)((points[p][2] * 6 + points[p][1]) * 7 + points[p][0])] = (float)(p + 1);
        series_save(series, IMAGE_NIFTI, path);
        nifti_image *image = nifti_image_read(path, 1);
        assert_non_null(image);
        assert_int_equal(image->nx, 7);
        assert_int_equal(image->ny, 6);
        assert_int_equal(image->nz, 5);
        assert_int_equal(image->nt, 2);
        assert_int_equal(image->datatype, DT_FLOAT32);
        assert_int_equal(image->qform_code, NIFTI_XFORM_SCANNER_ANAT);
        assert_int_equal(image->sform_code, NIFTI_XFORM_SCANNER_ANAT);
        assert_true(fabsf(image->dx - 2) < 1e-5f && fabsf(image->dy - 1.5f) < 1e-5f && fabsf(image->dz - 3) < 1e-5f);
        for (int p = 0; p < 3; p++) {
            double lps[3];
            place_lps(&series->info[0], series->size, points[p], lps);
            double ras[3] = {-lps[0], -lps[1], lps[2]};
            expect_place(image->sto_xyz, points[p], ras);
            expect_place(image->qto_xyz, points[p], ras);
            const float *pixels = image->data;
            assert_true(pixels[(size_t)((points[p][2] * 6 + points[p][1]) * 7 + points[p][0])] == (float)(p + 1));
        }
        nifti_image_free(image);
        unlink(path);
        image_series_free(series);
    }
}

/* Half turns: the quaternion's other branches. */
static void nifti_qform_holds_for_half_turns(void **state)
{
    (void)state;
    static const float axes[4][3][3] = {
        {{1, 0, 0}, {0, -1, 0}, {0, 0, -1}},
        {{-1, 0, 0}, {0, 1, 0}, {0, 0, -1}},
        {{-1, 0, 0}, {0, -1, 0}, {0, 0, 1}},
        {{0, 0, -1}, {-1, 0, 0}, {0, 1, 0}},
    };
    for (int t = 0; t < 4; t++) {
        char path[96];
        struct image_series *series = series_make(1, 1, 4, 6, 8, false);
        memcpy(series->info->read_dir, axes[t][0], 12);
        memcpy(series->info->phase_dir, axes[t][1], 12);
        memcpy(series->info->slice_dir, axes[t][2], 12);
        series_save(series, IMAGE_NIFTI, path);
        nifti_image *image = nifti_image_read(path, 1);
        assert_non_null(image);
        static const double pixel[3] = {3, 1, 7};
        double lps[3];
        place_lps(series->info, series->size, pixel, lps);
        expect_place(image->qto_xyz, pixel, (const double[]){-lps[0], -lps[1], lps[2]});
        expect_place(image->sto_xyz, pixel, (const double[]){-lps[0], -lps[1], lps[2]});
        nifti_image_free(image);
        unlink(path);
        image_series_free(series);
    }
}

/* Two repetitions of four slices, listed backwards and 10 mm apart though each is 3 mm thick. */
static void nifti_stacks_slices_at_their_spacing(void **state)
{
    (void)state;
    char path[96];
    struct image_series *series = series_make(8, 2, 6, 4, 1, true);
    for (size_t i = 0; i < 8; i++) {
        struct image_info *info = &series->info[i];
        size_t slice = 3 - i % 4;
        info->repetition = (uint16_t)(i / 4);
        info->slice = (uint16_t)slice;
        for (int d = 0; d < 3; d++)
            info->position[d] += 10 * (float)slice * info->slice_dir[d];
    }
    series_save(series, IMAGE_NIFTI, path);
    nifti_image *image = nifti_image_read(path, 1);
    assert_non_null(image);
    assert_int_equal(image->nz, 4);
    assert_int_equal(image->nt, 2);
    assert_int_equal(image->nu, 2);
    assert_int_equal(image->datatype, DT_COMPLEX64);
    assert_true(fabsf(image->dz - 10) < 1e-4f);
    for (size_t slice = 0; slice < 4; slice++) {
        size_t index = 4 + (3 - slice); /* of repetition 1 */
        double lps[3];
        place_lps(&series->info[index], series->size, (const double[]){1, 3, 0}, lps);
        expect_place(image->sto_xyz, (const double[]){1, 3, (double)slice}, (const double[]){-lps[0], -lps[1], lps[2]});
        expect_place(image->qto_xyz, (const double[]){1, 3, (double)slice}, (const double[]){-lps[0], -lps[1], lps[2]});
        const float *pixels = image->data;
        size_t at = (((1 * 2 + 1) * 4 + slice) * 4 + 3) * 6 + 1; /* channel 1, repetition 1, y 3, x 1 */
        assert_true(pixels[2 * at] == value_at(index, 1, 0, 3, 1));
    }
    nifti_image_free(image);
    unlink(path);

    /* Slices that turn about an axis have no common affine: a list along t. */
    for (size_t i = 0; i < 8; i++) {
        series->info[i].slice_dir[0] += 0.1f * (float)i;
        series->info[i].repetition = 0;
    }
    series_save(series, IMAGE_NIFTI, path);
    image = nifti_image_read(path, 0);
    assert_int_equal(image->nz, 1);
    assert_int_equal(image->nt, 8);
    nifti_image_free(image);
    unlink(path);
    image_series_free(series);
}

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

static void png_tiles_what_there_is_in_one_window(void **state)
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
    series_save(series, IMAGE_PNG, path);
    uint8_t *grey = png_load(path, &width, &height);
    assert_int_equal(width, 40);
    assert_int_equal(height, 60);
    for (size_t tile = 0; tile < 4; tile++) {
        const uint8_t *corner = grey + tile / 2 * 30 * 40 + tile % 2 * 20;
        for (size_t x = 0; x < 20; x++) {
            /* The window's bins are 0.8 % wide: 255 * 0.008 and rounding are under 4 grey values. */
            double expected = 255.0 * (double)x / 19 * (double)(tile + 1) / 4;
            assert_true(fabs(corner[12 * 40 + x] - expected) < 4);
        }
    }
    assert_int_equal(grey[5], 255);
    assert_int_equal(grey[6], 0);
    free(grey);
    unlink(path);
    image_series_free(series);

    /* 64 x 40 tiles of 100 x 150 do not fit 4096: they shrink by whole numbers. */
    series = series_make(40, 1, 100, 150, 64, false);
    series_save(series, IMAGE_PNG, path);
    grey = png_load(path, &width, &height);
    assert_true(width <= 4096 && height <= 4096 && width > 2048 && height > 2048);
    assert_int_equal(width % 50, 0);
    free(grey);
    unlink(path);
    image_series_free(series);

    /* More tiles than any shrinking helps: still a picture. */
    series = series_make(66000, 1, 17, 16, 1, false);
    series_save(series, IMAGE_PNG, path);
    grey = png_load(path, &width, &height);
    assert_true(width <= 4096 && height <= 4096);
    free(grey);
    unlink(path);
    /* The same series is more than the counters of ISMRMRD and NIfTI hold. */
    int fd = memfd_create("limit", MFD_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_H5, fd), ERR_LIMIT);
    assert_int_equal(image_write(series, IMAGE_NIFTI, fd), ERR_LIMIT);
    close(fd);
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

static void a_full_disk_is_told_as_one(void **state)
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

/* Values that cannot be packed, in shapes whose frame or head outweighs them, too. */
static void no_form_takes_more_than_its_most(void **state)
{
    (void)state;
    static const size_t shapes[][5] = {
        {1, 1, 1, 1, 1},     {300, 1, 1, 1, 1},  {40, 8, 2, 3, 1},
        {1, 1, 256, 200, 1}, {12, 3, 33, 31, 1}, {2, 2, 20, 21, 22},
    };
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int complex_valued = 0; complex_valued < 2; complex_valued++) {
            const size_t *n = shapes[i];
            struct image_series *series = series_make(n[0], n[1], n[2], n[3], n[4], complex_valued);
            size_t values = n[0] * n[1] * n[2] * n[3] * n[4] * (complex_valued ? 2 : 1), most = 0;
            for (size_t v = 0; v < values; v++)
                series->data[v] = (float)((random = random * 1664525 + 1013904223) >> 8);
            assert_true(image_file_most(series, strlen(series->xml), &most));
            for (int format = 0; format < IMAGE_FORMATS; format++) {
                int fd = memfd_create("most", MFD_CLOEXEC);
                int rc = image_write(series, (enum image_format)format, fd);
                if (rc == 0 && (size_t)lseek(fd, 0, SEEK_END) > most)
                    fail_msg("shape %zu as %s: %zu bytes, %zu at most", i, image_format_name((enum image_format)format),
                             (size_t)lseek(fd, 0, SEEK_END), most);
                assert_true(rc == 0 || format == IMAGE_NIFTI); /* which does not take every series */
                close(fd);
            }
            image_series_free(series);
        }
    const struct image_series endless = {.count = 1, .channels = 1, .size = {SIZE_MAX / 2, 2, 2}};
    size_t most;
    assert_false(image_file_most(&endless, 0, &most));
}

static void formats_are_found_by_name_and_media_type(void **state)
{
    (void)state;
    for (int format = 0; format < IMAGE_FORMATS; format++) {
        assert_int_equal(image_format_find(image_format_name((enum image_format)format)), format);
        assert_int_equal(image_format_find(image_format_media((enum image_format)format)), format);
    }
    assert_int_equal(image_format_find("bmp"), -1);
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
        cmocka_unit_test(h5_is_read_by_libismrmrd),
        cmocka_unit_test(a_file_that_is_no_image_is_refused),
        cmocka_unit_test(nifti_puts_points_where_the_scanner_saw_them),
        cmocka_unit_test(nifti_qform_holds_for_half_turns),
        cmocka_unit_test(nifti_stacks_slices_at_their_spacing),
        cmocka_unit_test(png_tiles_what_there_is_in_one_window),
        cmocka_unit_test(a_black_image_is_a_black_picture),
        cmocka_unit_test(a_full_disk_is_told_as_one),
        cmocka_unit_test(no_form_takes_more_than_its_most),
        cmocka_unit_test(formats_are_found_by_name_and_media_type),
        cmocka_unit_test(a_series_too_large_for_size_t_is_refused),
    };
    return cmocka_run_group_tests_name("image", tests, folder_make, folder_drop);
}
