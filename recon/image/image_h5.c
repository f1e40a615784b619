/* ISMRMRD's image file: /dataset/image_0/{header, attributes, data} and /dataset/xml, as libismrmrd's
 * ismrmrd_append_image() lays it out, but data in one contiguous piece. libhdf5 writes everything but these, and closes
 * the file; then they are written to their place, without a copy. */
#include "recon/image/image_h5_fd.h"
#include "recon/image/image_head.h"
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The members of an image header in a file, and in memory as the packed ISMRMRD_ImageHeader. */
static const struct {
    const char *name;
    size_t offset, count; /* count 0: a scalar */
    char type;            /* s uint16, i uint32, l uint64, n int32, f float */
} members[] = {
    {"version", offsetof(ISMRMRD_ImageHeader, version), 0, 's'},
    {"data_type", offsetof(ISMRMRD_ImageHeader, data_type), 0, 's'},
    {"flags", offsetof(ISMRMRD_ImageHeader, flags), 0, 'l'},
    {"measurement_uid", offsetof(ISMRMRD_ImageHeader, measurement_uid), 0, 'i'},
    {"matrix_size", offsetof(ISMRMRD_ImageHeader, matrix_size), 3, 's'},
    {"field_of_view", offsetof(ISMRMRD_ImageHeader, field_of_view), 3, 'f'},
    {"channels", offsetof(ISMRMRD_ImageHeader, channels), 0, 's'},
    {"position", offsetof(ISMRMRD_ImageHeader, position), 3, 'f'},
    {"read_dir", offsetof(ISMRMRD_ImageHeader, read_dir), 3, 'f'},
    {"phase_dir", offsetof(ISMRMRD_ImageHeader, phase_dir), 3, 'f'},
    {"slice_dir", offsetof(ISMRMRD_ImageHeader, slice_dir), 3, 'f'},
    {"patient_table_position", offsetof(ISMRMRD_ImageHeader, patient_table_position), 3, 'f'},
    {"average", offsetof(ISMRMRD_ImageHeader, average), 0, 's'},
    {"slice", offsetof(ISMRMRD_ImageHeader, slice), 0, 's'},
    {"contrast", offsetof(ISMRMRD_ImageHeader, contrast), 0, 's'},
    {"phase", offsetof(ISMRMRD_ImageHeader, phase), 0, 's'},
    {"repetition", offsetof(ISMRMRD_ImageHeader, repetition), 0, 's'},
    {"set", offsetof(ISMRMRD_ImageHeader, set), 0, 's'},
    {"acquisition_time_stamp", offsetof(ISMRMRD_ImageHeader, acquisition_time_stamp), 0, 'i'},
    {"physiology_time_stamp", offsetof(ISMRMRD_ImageHeader, physiology_time_stamp), ISMRMRD_PHYS_STAMPS, 'i'},
    {"image_type", offsetof(ISMRMRD_ImageHeader, image_type), 0, 's'},
    {"image_index", offsetof(ISMRMRD_ImageHeader, image_index), 0, 's'},
    {"image_series_index", offsetof(ISMRMRD_ImageHeader, image_series_index), 0, 's'},
    {"user_int", offsetof(ISMRMRD_ImageHeader, user_int), ISMRMRD_USER_INTS, 'n'},
    {"user_float", offsetof(ISMRMRD_ImageHeader, user_float), ISMRMRD_USER_FLOATS, 'f'},
    {"attribute_string_len", offsetof(ISMRMRD_ImageHeader, attribute_string_len), 0, 'i'},
};

static hid_t header_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(ISMRMRD_ImageHeader));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        hid_t scalar = members[i].type == 's'   ? H5T_NATIVE_UINT16
                       : members[i].type == 'i' ? H5T_NATIVE_UINT32
                       : members[i].type == 'l' ? H5T_NATIVE_UINT64
                       : members[i].type == 'n' ? H5T_NATIVE_INT32
                                                : H5T_NATIVE_FLOAT;
        hsize_t count = members[i].count;
        hid_t array = count ? H5Tarray_create2(scalar, 1, &count) : H5Tcopy(scalar);
        H5Tinsert(type, members[i].name, members[i].offset, array);
        H5Tclose(array);
    }
    return type;
}

static hid_t pixel_type(bool complex_valued)
{
    if (!complex_valued)
        return H5Tcopy(H5T_NATIVE_FLOAT);
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct c32));
    H5Tinsert(type, "real", offsetof(struct c32, re), H5T_NATIVE_FLOAT);
    H5Tinsert(type, "imag", offsetof(struct c32, im), H5T_NATIVE_FLOAT);
    return type;
}

static hid_t string_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    return type;
}

/* How datasets are made and written; libhdf5 takes a while to make each list. */
struct lists {
    hid_t texts, numbers; /* datasets of these */
    hid_t transfer;
};

static struct lists lists_create(void)
{
    /* The size of libhdf5's conversion buffer; by default it allocates and clears a megabyte for each dataset. */
    enum { CONVERT_BYTES = 1 << 14 };
    const struct lists lists = {H5P_DEFAULT, H5Pcreate(H5P_DATASET_CREATE), H5Pcreate(H5P_DATASET_XFER)};
    H5Pset_buffer(lists.transfer, CONVERT_BYTES, NULL, NULL);
    /* Every element is written, so no fill values are needed first (HDF5 requires them for texts). Their place in the
     * file is known at once. */
    H5Pset_fill_time(lists.numbers, H5D_FILL_TIME_NEVER);
    H5Pset_alloc_time(lists.numbers, H5D_ALLOC_TIME_EARLY);
    return lists;
}

static void lists_close(const struct lists *lists)
{
    H5Pclose(lists->transfer);
    H5Pclose(lists->numbers);
}

/* Make a dataset of `count` elements in `place` and write all of it. `made`: one of the lists. */
static bool dataset_write(hid_t place, const char *name, hid_t type, hsize_t count, const void *from,
                          const struct lists *lists, hid_t made)
{
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t data = H5Dcreate2(place, name, type, space, H5P_DEFAULT, made, H5P_DEFAULT);
    bool written = data >= 0 && H5Dwrite(data, type, H5S_ALL, H5S_ALL, lists->transfer, from) >= 0;
    written = (data < 0 || H5Dclose(data) >= 0) && written;
    H5Sclose(space);
    return written;
}

/* Make the dataset of the pixels, and find their place: *at. */
static bool pixels_place(hid_t place, hid_t type, const struct image_series *series, const struct lists *lists,
                         int64_t *at)
{
    hsize_t size[5] = {series->count, series->channels, series->size[2], series->size[1], series->size[0]};
    hid_t space = H5Screate_simple(5, size, NULL);
    hid_t data = H5Dcreate2(place, "data", type, space, H5P_DEFAULT, lists->numbers, H5P_DEFAULT);
    const haddr_t found = data < 0 ? HADDR_UNDEF : H5Dget_offset(data);
    *at = (int64_t)found;
    H5Sclose(space);
    return (data < 0 || H5Dclose(data) >= 0) && found != HADDR_UNDEF;
}

/* The pixels' dataset is the last, so that they end the file. */
static bool file_fill(hid_t file, const struct image_series *series, const ISMRMRD_ImageHeader *headers,
                      const char *const *texts, int64_t *at)
{
    const struct lists lists = lists_create();
    hid_t types[3] = {header_type(), pixel_type(series->complex_valued), string_type()};
    hid_t group = H5Gcreate2(file, "dataset", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t image = group < 0 ? -1 : H5Gcreate2(group, "image_0", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const char *xml = series->xml;
    bool written = image >= 0 &&
                   dataset_write(image, "header", types[0], series->count, headers, &lists, lists.numbers) &&
                   dataset_write(image, "attributes", types[2], series->count, texts, &lists, lists.texts) &&
                   (!xml || dataset_write(group, "xml", types[2], 1, &xml, &lists, lists.texts)) &&
                   pixels_place(image, types[1], series, &lists, at);
    written = (image < 0 || H5Gclose(image) >= 0) && written;
    written = (group < 0 || H5Gclose(group) >= 0) && written;
    for (int i = 0; i < 3; i++)
        H5Tclose(types[i]);
    lists_close(&lists);
    return written;
}

/* HDF5 prints its error stack unless told not to. */
struct h5_quiet {
    H5E_auto2_t print;
    void *context;
};

static struct h5_quiet quiet_begin(void)
{
    struct h5_quiet quiet = {0};
    H5open();
    H5Eget_auto2(H5E_DEFAULT, &quiet.print, &quiet.context);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return quiet;
}

static void quiet_end(const struct h5_quiet *quiet)
{
    H5Eset_auto2(H5E_DEFAULT, quiet->print, quiet->context);
}

static int image_file_write(const struct image_series *series, const ISMRMRD_ImageHeader *headers,
                            const char *const *texts, int fd, int64_t *at)
{
    struct h5_fd io = {.fd = fd}, *handed = &io;
    hid_t driver = h5_fd_register(), list = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file = -1;
    /* Few pixels, too, go behind all else, not into a block of small data. */
    bool written =
        driver >= 0 && H5Pset_driver(list, driver, &handed) >= 0 && H5Pset_small_data_block_size(list, 0) >= 0;
    if (written)
        file = H5Fcreate("image.h5", H5F_ACC_TRUNC, H5P_DEFAULT, list);
    written = written && file >= 0 && file_fill(file, series, headers, texts, at);
    written = (file < 0 || H5Fclose(file) >= 0) && written;
    H5Pclose(list);
    if (driver >= 0)
        H5FDunregister(driver);
    if (io.error)
        return result_put_failed(io.error, "The image");
    return written ? 0 : err_set(ERR_IO, "HDF5 could not write the image.");
}

/* Write everything but the pixels; *at: their place. */
static int all_but_pixels(const struct image_series *series, int fd, int64_t *at)
{
    int rc = image_head_check(series);
    if (rc != 0)
        return rc;
    ISMRMRD_ImageHeader *headers = calloc(series->count + 1, sizeof *headers);
    const char **texts = calloc(series->count + 1, sizeof *texts);
    if (!headers || !texts) {
        rc = err_no_memory("the headers of %zu images", series->count);
        goto out;
    }
    for (size_t i = 0; i < series->count; i++) {
        image_head_fill(&headers[i], series, i);
        texts[i] = image_attributes;
    }
    struct h5_quiet quiet = quiet_begin();
    rc = image_file_write(series, headers, texts, fd, at);
    quiet_end(&quiet);
out:
    free(texts);
    free(headers);
    return rc;
}

static size_t pixel_bytes(const struct image_series *series)
{
    return series->count * series->channels * image_pixels(series) * image_lanes(series) * sizeof(float);
}

int image_begin_h5(const struct image_series *series, int fd, int64_t *at)
{
    int rc = all_but_pixels(series, fd, at);
    /* It ends before the pixels, for then it is refused as truncated if they never come. */
    if (rc == 0 && lseek(fd, 0, SEEK_END) == *at + (off_t)pixel_bytes(series) && ftruncate(fd, (off_t)*at) < 0)
        rc = result_put_failed(errno, "The image");
    return rc;
}

int image_finish_h5(const struct image_series *series, int fd, int64_t at)
{
    if (lseek(fd, (off_t)at, SEEK_SET) < 0)
        return result_put_failed(errno, "The image");
    return image_put(fd, series->data, pixel_bytes(series));
}

int image_write_h5(const struct image_series *series, int fd)
{
    int64_t at = 0;
    int rc = all_but_pixels(series, fd, &at);
    return rc == 0 ? image_finish_h5(series, fd, at) : rc;
}

/* ---- reading back ---- */

static int image_malformed(const char *what)
{
    return err_set(ERR_MALFORMED_FILE, "The file is not an image file of mrirecond: %s.", what);
}

static int image_xml_read(hid_t file, char **out)
{
    if (H5Lexists(file, "dataset/xml", H5P_DEFAULT) <= 0)
        return 0;
    hid_t data = H5Dopen2(file, "dataset/xml", H5P_DEFAULT), type = string_type();
    hid_t space = data < 0 ? -1 : H5Dget_space(data);
    char *text = NULL;
    bool read = space >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
                H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text) >= 0;
    if (read && text) {
        *out = strdup(text);
        H5free_memory(text);
    }
    if (space >= 0)
        H5Sclose(space);
    if (data >= 0)
        H5Dclose(data);
    H5Tclose(type);
    if (!read)
        return image_malformed("/dataset/xml is not one text");
    return *out ? 0 : err_no_memory("the image's header");
}

static int headers_read(hid_t file, struct image_series *series)
{
    ISMRMRD_ImageHeader *headers = calloc(series->count + 1, sizeof *headers);
    if (!headers)
        return err_no_memory("the headers of %zu images", series->count);
    hid_t data = H5Dopen2(file, "dataset/image_0/header", H5P_DEFAULT), type = header_type();
    hid_t space = data < 0 ? -1 : H5Dget_space(data);
    bool read = space >= 0 && H5Sget_simple_extent_npoints(space) == (hssize_t)series->count &&
                H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, headers) >= 0;
    for (size_t i = 0; read && i < series->count; i++)
        image_head_read(&series->info[i], &headers[i]);
    series->phases =
        read && series->count > 0 && !series->complex_valued && headers[0].image_type == ISMRMRD_IMTYPE_PHASE;
    if (space >= 0)
        H5Sclose(space);
    if (data >= 0)
        H5Dclose(data);
    H5Tclose(type);
    free(headers);
    return read ? 0 : image_malformed("/dataset/image_0/header does not fit its images");
}

static int series_read(hid_t file, struct image_series **out)
{
    hid_t data = H5Dopen2(file, "dataset/image_0/data", H5P_DEFAULT);
    if (data < 0)
        return image_malformed("it has no /dataset/image_0/data");
    struct image_series *series = NULL;
    hid_t space = H5Dget_space(data), stored = H5Dget_type(data), type = -1;
    hsize_t n[5];
    int rc = 0;
    H5T_class_t class = H5Tget_class(stored);
    if (H5Sget_simple_extent_ndims(space) != 5 || (class != H5T_FLOAT && class != H5T_COMPOUND)) {
        rc = image_malformed("its data are not [images][channels][z][y][x]");
        goto out;
    }
    H5Sget_simple_extent_dims(space, n, NULL);
    rc = image_series_create(&series, n[0], n[1], (const size_t[]){n[4], n[3], n[2]}, class == H5T_COMPOUND);
    if (rc != 0)
        goto out;
    type = pixel_type(series->complex_valued);
    if (H5Dread(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, series->data) < 0)
        rc = image_malformed("its pixels cannot be read");
    H5Tclose(type);
    if (rc == 0)
        rc = headers_read(file, series);
    if (rc == 0)
        rc = image_xml_read(file, &series->xml);
out:
    H5Tclose(stored);
    H5Sclose(space);
    H5Dclose(data);
    if (rc == 0)
        *out = series;
    else
        image_series_free(series);
    return rc;
}

int image_read_h5_fd(struct image_series **out, int fd)
{
    struct h5_quiet quiet = quiet_begin();
    struct h5_fd io = {.fd = fd}, *handed = &io;
    hid_t driver = h5_fd_register(), list = H5Pcreate(H5P_FILE_ACCESS), file = -1;
    if (driver >= 0 && H5Pset_driver(list, driver, &handed) >= 0)
        file = H5Fopen("image.h5", H5F_ACC_RDONLY, list);
    int rc = file < 0 ? image_malformed("it is not HDF5") : series_read(file, out);
    if (file >= 0)
        H5Fclose(file);
    H5Pclose(list);
    if (driver >= 0)
        H5FDunregister(driver);
    quiet_end(&quiet);
    return rc;
}

int image_read_h5(struct image_series **out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(ERR_IO, "%s cannot be read (%s).", path, strerror(errno));
    int rc = image_read_h5_fd(out, fd);
    close(fd);
    return rc;
}
