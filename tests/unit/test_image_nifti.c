/* NIfTI files, read back with libnifti: positions of pixels, times, brightness, refused series. */
#include "recon/image/image_leaf.h"
#include "tests/unit/image_fixture.h"

#include <nifti1_io.h>

/* The position of a pixel by the affine, in RAS mm. Three products of float32 numbers below 200 mm err by about 1e-4
 * mm. */
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

static void nifti_places_points_at_their_scanner_coordinates(void **state)
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

/* Half turns use the quaternion's other branches. */
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

/* Two repetitions of four slices, listed backwards, 10 mm apart and 3 mm thick. */
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
        size_t index = 4 + (3 - slice); /* in repetition 1 */
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

/* A series of 2-D slices at these positions along their normal, `slices` per frame. */
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

/* Nothing is written, and the error names the problem and the formats that are possible. */
static void nifti_refuses(struct image_series *series, const char *why)
{
    int fd = memfd_create("nifti", MFD_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_NIFTI, fd), ERR_NOT_ACCEPTABLE);
    if (!strstr(err_last()->text, why) || !strstr(err_last()->text, "Use h5, which keeps the position of each"))
        fail_msg("\"%s\" is not in \"%s\"", why, err_last()->text);
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    /* The other formats have no affine, or one per image. */
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
    /* Three orthogonal planes, as in a localizer. */
    series = slices_make(3, 3, (const float[]){0, 0, 0});
    for (size_t i = 0; i < 3; i++)
        for (int d = 0; d < 3; d++) {
            series->info[i].read_dir[d] = d == (int)i;
            series->info[i].phase_dir[d] = d == ((int)i + 1) % 3;
            series->info[i].slice_dir[d] = d == ((int)i + 2) % 3;
        }
    nifti_refuses(series, "different planes");
    /* A slice is missing in the second frame; then a slice is at another position. */
    nifti_refuses(slices_make(5, 3, (const float[]){0, 5, 10, 0, 5}), "not the same slices");
    nifti_refuses(slices_make(6, 3, (const float[]){0, 5, 10, 0, 5, 15}), "different places");
    nifti_refuses(slices_make(2, 1, (const float[]){0, 5}), "different places");
    /* Evenly spaced along the normal, but not on one line. */
    series = slices_make(3, 3, (const float[]){0, 5, 10});
    for (int d = 0; d < 3; d++)
        series->info[1].position[d] += 3 * series->info[1].read_dir[d];
    nifti_refuses(series, "are not in one row");
    series = series_make(2, 1, 6, 4, 3, false);
    series->info[1].repetition = 0;
    series->info[1].slice = 1;
    nifti_refuses(series, "2 slabs");
}

/* Slices without positions are stacked by their number, one thickness apart, with sform and qform codes that claim no
 * position. */
static void nifti_stacks_slices_without_positions(void **state)
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

static void nifti_stores_the_frame_time_if_it_is_known(void **state)
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

static void nifti_stores_the_brightness_window(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nifti_places_points_at_their_scanner_coordinates),
        cmocka_unit_test(nifti_qform_holds_for_half_turns),
        cmocka_unit_test(nifti_stacks_slices_at_their_spacing),
        cmocka_unit_test(nifti_refuses_series_without_a_common_affine),
        cmocka_unit_test(nifti_stacks_slices_without_positions),
        cmocka_unit_test(nifti_stores_the_frame_time_if_it_is_known),
        cmocka_unit_test(nifti_stores_the_brightness_window),
    };
    return cmocka_run_group_tests_name("image_nifti", tests, folder_make, folder_drop);
}
