/* BART's arrays in a tar archive, read back as tar and BART read them: real and complex series, coils, slices, times
 * and other counters. */
#include "tests/unit/image_fixture.h"

/* Write a series, unpack the archive with tar, and read image.cfl; `dimensions` must be the content of image.hdr. */
static float *written(const struct image_series *series, const char *dimensions, size_t bytes)
{
    char command[512], header[256] = "", path[128];
    snprintf(path, sizeof path, "%s/image.cfl.tar", folder);
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_CLOEXEC, 0600);
    size_t most = 0;
    assert_int_equal(image_write(series, IMAGE_CFL, fd), 0);
    assert_true(image_file_most(series, IMAGE_CFL, 0, &most) && (size_t)lseek(fd, 0, SEEK_END) <= most);
    assert_int_equal(lseek(fd, 0, SEEK_END) % 512, 0);
    close(fd);
    snprintf(command, sizeof command, "tar -x -f %s -C %s && rm %s", path, folder, path);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/image.hdr", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    header[fread(header, 1, sizeof header - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    assert_string_equal(header, dimensions);
    snprintf(path, sizeof path, "%s/image.cfl", folder);
    file = fopen(path, "r");
    assert_non_null(file);
    float *values = malloc(bytes + 1);
    assert_int_equal(fread(values, 1, bytes + 1, file), bytes);
    fclose(file);
    unlink(path);
    return values;
}

/* x fastest, then y, z, coil and time. */
static void a_complex_volume_of_coils_in_time(void **state)
{
    (void)state;
    struct image_series *series = series_make(2, 3, 5, 4, 6, true);
    for (size_t i = 0; i < 2; i++)
        series->info[i].repetition = (uint16_t)i;
    float *seen = written(series, "# Dimensions\n5 4 6 3 1 1 1 1 1 1 2 1 1 1 1 1\n", 2 * 3 * 5 * 4 * 6 * 8);
    assert_memory_equal(seen, series->data, 2 * 3 * 5 * 4 * 6 * 8);
    free(seen);
    image_series_free(series);
}

/* Real numbers become complex ones; slices are BART's dimension 13, which is slower than time. */
static void real_slices_in_time(void **state)
{
    (void)state;
    struct image_series *series = series_make(6, 1, 5, 4, 1, false);
    for (size_t i = 0; i < 6; i++) {
        series->info[i].slice = (uint16_t)(i % 3);
        series->info[i].repetition = (uint16_t)(i / 3);
    }
    float *seen = written(series, "# Dimensions\n5 4 1 1 1 1 1 1 1 1 2 1 1 3 1 1\n", 6 * 20 * 8);
    for (size_t slice = 0, at = 0; slice < 3; slice++)
        for (size_t time = 0; time < 2; time++)
            for (size_t i = 0; i < 20; i++, at += 2) {
                assert_true(seen[at] == value_at(3 * time + slice, 0, 0, i / 5, i % 5));
                assert_true(seen[at + 1] == 0);
            }
    free(seen);
    image_series_free(series);
}

/* Contrasts, cardiac phases, sets and averages have dimensions of their own, 5, 6, 11 and 14, whatever the order in
 * which the images come; with a gap among the combinations, all are in dimension 10, in npy's order. */
static void counters_are_dimensions(void **state)
{
    (void)state;
    enum { ALL = 2 * 2 * 2 * 2 * 3 };
    struct image_series *series = series_make(ALL, 1, 5, 4, 1, true);
    for (size_t i = 0; i < ALL; i++) { /* contrast fastest, then set, slice, average, phase */
        const size_t n = i * 7 % ALL;
        series->info[i].repetition = 0;
        series->info[i].contrast = (uint16_t)(n % 2);
        series->info[i].set = (uint16_t)(3 * (n / 2 % 2));
        series->info[i].slice = (uint16_t)(n / 4 % 2);
        series->info[i].average = (uint16_t)(n / 8 % 2);
        series->info[i].phase = (uint16_t)(n / 16);
    }
    float *seen = written(series, "# Dimensions\n5 4 1 1 1 2 3 1 1 1 1 2 1 2 2 1\n", ALL * 20 * 8);
    for (size_t i = 0; i < ALL; i++) {
        const struct image_info *info = &series->info[i];
        const size_t at =
            info->contrast + 2 * (info->phase + 3 * (info->set / 3u + 2 * (info->slice + 2u * info->average)));
        assert_memory_equal(seen + at * 40, series->data + i * 40, 40 * sizeof *seen);
    }
    free(seen);
    series->info[ALL - 1].repetition = 1;
    seen = written(series, "# Dimensions\n5 4 1 1 1 1 1 1 1 1 48 1 1 1 1 1\n", ALL * 20 * 8);
    assert_memory_equal(seen + (ALL - 1) * 40, series->data + (ALL - 1) * 40, 40 * sizeof *seen);
    free(seen);
    image_series_free(series);
}

/* A full disk: the error is reported, and no file looks complete. */
static void no_space(void **state)
{
    (void)state;
    struct image_series *series = series_make(1, 1, 5, 4, 1, false);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(image_write(series, IMAGE_CFL, fd), ERR_SPOOL_FULL);
    close(fd);
    image_series_free(series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complex_volume_of_coils_in_time),
        cmocka_unit_test(real_slices_in_time),
        cmocka_unit_test(counters_are_dimensions),
        cmocka_unit_test(no_space),
    };
    return cmocka_run_group_tests_name("cfl", tests, folder_make, folder_drop);
}
