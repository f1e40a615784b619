/* Image files, read back with the usual libraries: libismrmrd, libnifti. */
#include "recon/image/image_leaf.h"
#include "tests/unit/image_fixture.h"

#include <ismrmrd/dataset.h>
#include <ismrmrd/ismrmrd.h>
#include <nifti1_io.h>

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

/* The shape in the header, and the number that value_at() gave the first pixel of a place. */
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

/* [frame][channel][slice or z][y][x], in the order of the counters whatever the order of the images. */
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
    /* A slice that is another's in the second frame: every image is a frame of its own. */
    series->info[5].slice = 7;
    npy_look(series, "'shape': (6, 2, 1, 4, 5)", (size_t)3 * 2 * 20, value_at(0, 0, 0, 0, 0));
    image_series_free(series);
    /* Slabs: z of the one after z of the other. */
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

static void phases_stay_phases(void **state)
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

/* The position of a pixel by the affine, RAS mm. float32 numbers below 200 mm through three products: an error of some
 * 1e-4 mm. */
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

    image_series_free(series);
}

/* A series of 2-D slices at these places along their normal, `slices` of each frame. */
static struct image_series *slices_make(size_t count, size_t slices, const float *at)
{
    struct image_series *series = series_make(count, 1, 6, 4, 1, false);
    for (size_t i = 0; i < count; i++) {
        struct image_info *info = &series->info[i];
        info->repetition = (uint16_t)(i / slices);
        info->slice = (uint16_t)(i % slices);
        for (int d = 0; d < 3; d++)
            info->position[d] += at[i] * info->slice_dir[d];
    }
    return series;
}

/* Nothing is written, and the error says what is wrong and which formats are possible. */
static void nifti_refuses(struct image_series *series, const char *why)
{
    int fd = memfd_create("nifti", MFD_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_NIFTI, fd), ERR_NOT_ACCEPTABLE);
    if (!strstr(err_last()->text, why) || !strstr(err_last()->text, "Use h5, which keeps the position of each"))
        fail_msg("\"%s\" is not in \"%s\"", why, err_last()->text);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    /* The other formats have no affine, or one for each image. */
    assert_int_equal(image_write(series, IMAGE_H5, fd), 0);
    close(fd);
    fd = memfd_create("others", MFD_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_PNG, fd), 0);
    assert_int_equal(image_write(series, IMAGE_NPY, fd), 0);
    close(fd);
    image_series_free(series);
}

static void nifti_refuses_series_without_a_common_affine(void **state)
{
    (void)state;
    struct image_series *series = slices_make(3, 3, (const float[]){0, 5, 12.5f});
    nifti_refuses(series, "are 5 to 7.5 mm apart");
    /* Three planes, as of a localizer. */
    series = slices_make(3, 3, (const float[]){0, 0, 0});
    for (size_t i = 0; i < 3; i++)
        for (int d = 0; d < 3; d++) {
            series->info[i].read_dir[d] = d == (int)i;
            series->info[i].phase_dir[d] = d == ((int)i + 1) % 3;
            series->info[i].slice_dir[d] = d == ((int)i + 2) % 3;
        }
    nifti_refuses(series, "different planes");
    /* A slice is missing in the second frame; and one is another. */
    nifti_refuses(slices_make(5, 3, (const float[]){0, 5, 10, 0, 5}), "not the same slices");
    nifti_refuses(slices_make(6, 3, (const float[]){0, 5, 10, 0, 5, 15}), "different places");
    nifti_refuses(slices_make(2, 1, (const float[]){0, 5}), "different places");
    /* At even distances along the normal, but not on one line. */
    series = slices_make(3, 3, (const float[]){0, 5, 10});
    for (int d = 0; d < 3; d++)
        series->info[1].position[d] += 3 * series->info[1].read_dir[d];
    nifti_refuses(series, "are not in one row");
    series = series_make(2, 1, 6, 4, 3, false);
    series->info[1].repetition = 0;
    series->info[1].slice = 1;
    nifti_refuses(series, "2 slabs");
}

/* Slices of a scan without positions are stacked by their number, one thickness apart; no code claims a position. */
static void nifti_stacks_slices_without_a_place(void **state)
{
    (void)state;
    char path[96];
    struct image_series *series = slices_make(6, 3, (const float[]){0, 0, 0, 0, 0, 0});
    series_save(series, IMAGE_NIFTI, path);
    nifti_image *image = nifti_image_read(path, 1);
    assert_non_null(image);
    assert_true(image->nz == 3 && image->nt == 2 && image->sform_code == 0 && image->qform_code == 0);
    assert_true(fabsf(image->dz - 3) < 1e-5f);
    const float *pixels = image->data;
    assert_true(pixels[((1 * 3 + 2) * 4 + 1) * 6 + 3] == value_at(5, 0, 0, 1, 3));
    nifti_image_free(image);
    unlink(path);
    image_series_free(series);
}

/* Time and brightness in the header: (pixdim[4], units of time, cal_min, cal_max). */
static void nifti_header(const struct image_series *series, float *step, int *units, float cal[2])
{
    char path[96];
    series_save(series, IMAGE_NIFTI, path);
    nifti_image *image = nifti_image_read(path, 0);
    assert_non_null(image);
    *step = image->dt;
    *units = image->time_units;
    cal[0] = image->cal_min;
    cal[1] = image->cal_max;
    nifti_image_free(image);
    unlink(path);
}

static void nifti_tells_time_where_it_is_known(void **state)
{
    (void)state;
    static const char *const vendors[] = {"SIEMENS", "Siemens Healthineers", "mrirecon", "GE", ""};
    for (size_t v = 0; v < sizeof vendors / sizeof *vendors; v++)
        for (int uneven = 0; uneven < 3; uneven++) {
            char xml[200];
            float step, cal[2];
            int units;
            struct image_series *series = slices_make(8, 2, (const float[]){0, 5, 0, 5, 0, 5, 0, 5});
            for (size_t i = 0; i < 8; i++)
                series->info[i].time_stamp =
                    (uint32_t)(1000 + i / 2 * 480 + i % 2 * 30 + (uneven == 1 && i == 4 ? 200 : 0));
            for (size_t i = 0; uneven == 2 && i < 8; i++) {
                series->info[i].contrast = (uint16_t)(i / 2); /* echoes: no time passes */
                series->info[i].repetition = 0;
            }
            snprintf(xml, sizeof xml,
                     "<ismrmrdHeader><acquisitionSystemInformation><systemVendor>%s</systemVendor>"
                     "</acquisitionSystemInformation></ismrmrdHeader>",
                     vendors[v]);
            free(series->xml);
            series->xml = strdup(xml);
            nifti_header(series, &step, &units, cal);
            bool known = v < 3 && uneven == 0;
            assert_int_equal(units, known ? NIFTI_UNITS_SEC : NIFTI_UNITS_UNKNOWN);
            assert_true(fabsf(step - (known ? 1.2f : 1)) < 1e-6f); /* 480 ticks of 2.5 ms */
            image_series_free(series);
        }
}

static void nifti_tells_how_bright_to_show_it(void **state)
{
    (void)state;
    float step, cal[2];
    int units;
    struct image_series *series = series_make(1, 1, 50, 40, 1, false);
    for (size_t i = 0; i < 2000; i++)
        series->data[i] = (float)i / 2000;
    series->data[7] = 1e6f;
    nifti_header(series, &step, &units, cal);
    /* The window's bins are 0.8 % wide. */
    assert_true(fabsf(cal[0] - 0.0055f) < 1e-4f && fabsf(cal[1] - 0.995f) < 0.01f);
    image_series_free(series);
    series = series_make(1, 1, 50, 40, 1, true);
    nifti_header(series, &step, &units, cal);
    assert_true(cal[0] == 0 && cal[1] == 0);
    image_series_free(series);
    series = series_make(1, 1, 50, 40, 1, false);
    series->phases = true;
    nifti_header(series, &step, &units, cal);
    assert_true(fabsf(cal[0] + 3.14159265f) < 1e-5f && fabsf(cal[1] - 3.14159265f) < 1e-5f);
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

/* Incompressible values, also in shapes whose frame or head outweighs them. */
static void no_form_takes_more_than_its_most(void **state)
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
            for (int c = 0; c < 2; c++) /* pixels that a picture stretches as far as it does */
                series->info[0].fov_mm[c] = (size_t)c == i % 2 ? 20 * (float)n[2 + c] : (float)n[2 + c];
            for (int format = 0; format < IMAGE_FORMATS; format++) {
                assert_true(image_file_most(series, (enum image_format)format, strlen(series->xml), &most));
                int fd = memfd_create("most", MFD_CLOEXEC);
                int rc = image_write(series, (enum image_format)format, fd);
                if (rc == 0 && (size_t)lseek(fd, 0, SEEK_END) > most)
                    fail_msg("shape %zu as %s: %zu bytes, %zu at most", i, image_format_name((enum image_format)format),
                             (size_t)lseek(fd, 0, SEEK_END), most);
                assert_true(rc == 0 || format == IMAGE_NIFTI); /* which does not accept every series */
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
        cmocka_unit_test(phases_stay_phases),
        cmocka_unit_test(a_file_that_is_no_image_is_refused),
        cmocka_unit_test(nifti_puts_points_where_the_scanner_saw_them),
        cmocka_unit_test(nifti_qform_holds_for_half_turns),
        cmocka_unit_test(nifti_stacks_slices_at_their_spacing),
        cmocka_unit_test(nifti_refuses_series_without_a_common_affine),
        cmocka_unit_test(nifti_stacks_slices_without_a_place),
        cmocka_unit_test(nifti_tells_time_where_it_is_known),
        cmocka_unit_test(nifti_tells_how_bright_to_show_it),
        cmocka_unit_test(a_full_disk_is_reported_as_one),
        cmocka_unit_test(no_form_takes_more_than_its_most),
        cmocka_unit_test(formats_are_found_by_name_and_media_type),
        cmocka_unit_test(a_series_too_large_for_size_t_is_refused),
    };
    return cmocka_run_group_tests_name("image", tests, folder_make, folder_drop);
}
