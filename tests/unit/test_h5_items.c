/* Items of HDF5 datasets, read from the file itself: the same as libhdf5 gives of a file that is not damaged, for each
 * layout, number and range of rows. */
#include "recon/h5/h5_upload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { AXES_MOST = 4, ITEMS_MOST = 4096 };

/* A dataset's shape, and how it is stored. */
struct layout {
    int axes;
    hsize_t size[AXES_MOST], side[AXES_MOST]; /* side 0: contiguous */
    bool packed, shuffled, summed;            /* deflate, shuffle, fletcher32 */
    bool growing;                             /* may be extended: chunks larger than the dataset */
    bool last_is_plain;
};

static const struct layout layouts[] = {
    {.axes = 1, .size = {37}},
    {.axes = 2, .size = {37, 3}},
    {.axes = 1, .size = {37}, .side = {8}},
    {.axes = 2, .size = {37, 3}, .side = {8, 3}, .packed = true},
    {.axes = 2, .size = {37, 3}, .side = {8, 2}, .packed = true, .shuffled = true},
    {.axes = 2, .size = {37, 3}, .side = {37, 1}, .summed = true},
    {.axes = 2, .size = {37, 3}, .side = {5, 2}, .packed = true, .shuffled = true, .summed = true},
    {.axes = 2, .size = {37, 3}, .side = {8, 2}, .packed = true, .last_is_plain = true},
    {.axes = 2, .size = {7, 3}, .side = {16, 4}, .growing = true, .packed = true},
    {.axes = 3, .size = {4, 5, 6}, .side = {3, 2, 4}},
    {.axes = 4, .size = {1, 9, 21, 5}, .side = {1, 4, 21, 2}, .packed = true},
    {.axes = 4, .size = {2, 9, 40, 5}, .side = {2, 9, 40, 5}},
};

static size_t items_of(const struct layout *l)
{
    size_t items = 1;
    for (int d = 0; d < l->axes; d++)
        items *= l->size[d];
    return items;
}

static void dataset_write(hid_t file, const char *name, const struct layout *l, hid_t stored, unsigned numbers)
{
    double value[2 * ITEMS_MOST];
    const size_t items = items_of(l);
    const hsize_t endless[AXES_MOST] = {H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED};
    hid_t plist = H5Pcreate(H5P_DATASET_CREATE), pair = H5Tcreate(H5T_COMPOUND, 2 * H5Tget_size(stored));
    hid_t wide = H5Tcreate(H5T_COMPOUND, 2 * sizeof(double));
    assert_true(items <= ITEMS_MOST);
    for (size_t i = 0; i < items * numbers; i++)
        value[i] = (double)(i % 120) + 1;
    H5Tinsert(pair, "r", 0, stored);
    H5Tinsert(pair, "i", H5Tget_size(stored), stored);
    H5Tinsert(wide, "r", 0, H5T_NATIVE_DOUBLE);
    H5Tinsert(wide, "i", sizeof(double), H5T_NATIVE_DOUBLE);
    if (l->side[0])
        assert_true(H5Pset_chunk(plist, l->axes, l->side) >= 0);
    if (l->shuffled)
        H5Pset_shuffle(plist);
    if (l->packed)
        H5Pset_deflate(plist, 4);
    if (l->summed)
        H5Pset_fletcher32(plist);
    if (l->last_is_plain)
        H5Pset_chunk_opts(plist, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    hid_t space = H5Screate_simple(l->axes, l->size, l->growing ? endless : NULL);
    hid_t set = H5Dcreate2(file, name, numbers == 2 ? pair : stored, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    assert_true(set >= 0);
    assert_true(H5Dwrite(set, numbers == 2 ? wide : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value) >= 0);
    H5Dclose(set);
    H5Sclose(space);
    H5Tclose(wide);
    H5Tclose(pair);
    H5Pclose(plist);
}

/* A file in memory with one dataset "d", and `extent` as its size once it is written, if there is one; the caller frees
 * it. */
static void *file_make(const struct layout *l, hid_t stored, unsigned numbers, bool newest, const hsize_t *extent,
                       size_t *bytes)
{
    char path[] = "/tmp/test_h5_items.XXXXXX";
    struct stat status;
    const int written = mkstemp(path);
    assert_true(written >= 0);
    hid_t plist = H5Pcreate(H5P_FILE_ACCESS);
    if (newest)
        H5Pset_libver_bounds(plist, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, plist);
    dataset_write(file, "d", l, stored, numbers);
    if (extent) {
        hid_t set = H5Dopen2(file, "d", H5P_DEFAULT);
        assert_true(H5Dset_extent(set, extent) >= 0);
        H5Dclose(set);
    }
    H5Fclose(file);
    H5Pclose(plist);
    assert_int_equal(fstat(written, &status), 0);
    *bytes = (size_t)status.st_size;
    void *image = malloc(*bytes); /* exactly, so that a byte too far is found */
    assert_int_equal(pread(written, image, *bytes, 0), *bytes);
    close(written);
    unlink(path);
    return image;
}

/* Each range of rows is what was written, and nothing behind it is touched. */
static void rows_compare(struct h5_items *items, const struct h5_numbers *numbers, const struct layout *l)
{
    static double got[2 * ITEMS_MOST + 1];
    const size_t row = items_of(l) / l->size[0] * numbers->count;
    for (uint64_t first = 0; first <= l->size[0]; first++)
        for (uint64_t rows = 0; first + rows <= l->size[0]; rows += rows < 3 ? 1 : 5) {
            got[rows * row] = -7;
            assert_true(h5_items_convert(items, numbers, first, rows, H5T_NATIVE_DOUBLE, sizeof *got, got));
            for (size_t i = 0; i < rows * row; i++)
                assert_true(got[i] == (double)((first * row + i) % 120) + 1);
            assert_true(got[rows * row] == -7);
        }
    assert_false(h5_items_convert(items, numbers, 0, l->size[0] + 1, H5T_NATIVE_DOUBLE, sizeof *got, got));
    assert_false(h5_items_convert(items, numbers, l->size[0] + 1, 0, H5T_NATIVE_DOUBLE, sizeof *got, got));
    assert_false(h5_items_convert(items, numbers, 1, UINT64_MAX, H5T_NATIVE_DOUBLE, sizeof *got, got));
}

static void file_compare(const struct layout *l, hid_t stored, unsigned count, bool newest)
{
    struct h5_upload h5;
    struct h5_items items;
    const struct h5_numbers numbers = {.stored = stored, .count = count};
    size_t bytes;
    hid_t set = -1;
    void *image = file_make(l, stored, count, newest, NULL, &bytes);
    assert_int_equal(h5_upload_open(&h5, image, bytes, -1), 0);
    assert_int_equal(h5_dataset_any(&set, h5.file, "d"), 0);
    assert_int_equal(h5_items_open(&items, &h5, set, count * H5Tget_size(stored)), 0);
    assert_int_equal(items.count, items_of(l));
    rows_compare(&items, &numbers, l);
    h5_items_close(&items);
    H5Dclose(set);
    h5_upload_close(&h5);
    free(image);
}

static void each_layout_is_read(void **state)
{
    (void)state;
    const hid_t stored[] = {H5T_IEEE_F64LE, H5T_IEEE_F32BE, H5T_STD_I8LE, H5T_STD_U32BE, H5T_STD_I64LE};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t t = 0; t < sizeof stored / sizeof *stored; t++)
            file_compare(&layouts[l], stored[t], 1 + (t + l) % 2, l % 3 == 0);
    file_compare(&layouts[3], H5T_IEEE_F32LE, 2, true);
    file_compare(&layouts[6], H5T_IEEE_F32LE, 2, true);
}

/* A chunk that was never written, of which the file says nothing else. */
static void a_missing_chunk_is_no_zeros(void **state)
{
    (void)state;
    const struct layout l = {.axes = 2, .size = {8, 3}, .side = {8, 3}, .packed = true, .growing = true};
    const hsize_t extent[2] = {32, 3};
    size_t bytes;
    hid_t set = -1;
    void *image = file_make(&l, H5T_IEEE_F64LE, 1, false, extent, &bytes);
    struct h5_upload h5;
    struct h5_items items;
    const struct h5_numbers numbers = {.stored = H5T_IEEE_F64LE, .count = 1};
    double got[32 * 3];
    assert_int_equal(h5_upload_open(&h5, image, bytes, -1), 0);
    assert_int_equal(h5_dataset_any(&set, h5.file, "d"), 0);
    assert_int_equal(h5_items_open(&items, &h5, set, sizeof *got), 0);
    assert_true(h5_items_convert(&items, &numbers, 0, 8, H5T_NATIVE_DOUBLE, sizeof *got, got));
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    assert_false(h5_items_convert(&items, &numbers, 0, 9, H5T_NATIVE_DOUBLE, sizeof *got, got));
    h5_items_close(&items);
    H5Dclose(set);
    h5_upload_close(&h5);
    free(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_layout_is_read),
                                       cmocka_unit_test(a_missing_chunk_is_no_zeros)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
