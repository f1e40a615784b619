/* Reads an HDF5 file that holds arrays in place of an ISMRMRD scan, as the RRSG reproducibility challenge published its
 * data (doi:10.1002/mrm.28569): rawdata [1, sample, readout, coil], complex, and trajectory [3, sample, readout]. */
#include "recon/scan/scan_arrays.h"
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"

#include <stdlib.h>
#include <string.h>

/* They are held in the decoder's memory while they are read. */
#define ARRAYS_BYTES_MOST (UINT64_C(640) << 20)

bool scan_h5_has_arrays(hid_t file)
{
    return H5Lexists(file, "rawdata", H5P_DEFAULT) > 0 && H5Lexists(file, "trajectory", H5P_DEFAULT) > 0;
}

/* The plain floating-point numbers that its items consist of; two of a kind without a gap are a complex number (h5py: r
 * and i). numbers->stored is the caller's; negative: neither fits. */
static void numbers_find(struct h5_numbers *numbers, hid_t stored, bool complex_valued)
{
    const H5T_class_t class = stored >= 0 ? H5Tget_class(stored) : H5T_NO_CLASS;
    hid_t other = -1;
    *numbers = (struct h5_numbers){.stored = -1, .count = complex_valued ? 2 : 1};
    if (!complex_valued && class == H5T_FLOAT)
        numbers->stored = H5Tcopy(stored);
    if (complex_valued && class == H5T_COMPOUND && H5Tget_nmembers(stored) == 2) {
        numbers->stored = H5Tget_member_type(stored, 0);
        other = H5Tget_member_type(stored, 1);
    }
    const size_t bytes = numbers->stored >= 0 ? H5Tget_size(numbers->stored) : 0;
    bool fits = numbers->stored >= 0 && H5Tget_class(numbers->stored) == H5T_FLOAT && h5_is_plain(numbers->stored) &&
                H5Tget_size(stored) == numbers->count * bytes;
    if (fits && complex_valued)
        fits = other >= 0 && H5Tequal(numbers->stored, other) > 0 && H5Tget_member_offset(stored, 0) == 0 &&
               H5Tget_member_offset(stored, 1) == bytes;
    if (other >= 0)
        H5Tclose(other);
    if (!fits && numbers->stored >= 0) {
        H5Tclose(numbers->stored);
        numbers->stored = -1;
    }
}

/* `axes`: how many there must be; 0: any number. */
static int size_take(struct scan_array *array, hid_t dataset, int axes)
{
    hid_t space = H5Dget_space(dataset);
    int found = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    hsize_t size[SCAN_ARRAY_AXES] = {0};
    if (axes == 0 && found > 0 && found <= SCAN_ARRAY_AXES)
        axes = found;
    if (found == axes)
        H5Sget_simple_extent_dims(space, size, NULL);
    if (space >= 0)
        H5Sclose(space);
    array->axes = axes;
    for (int i = 0; i < axes; i++)
        array->size[i] = size[i];
    return found == axes
               ? 0
               : err_set(ERR_MALFORMED_FILE, "The dataset %s has %d axes; %s are expected.", array->name, found,
                         axes == 0               ? "1 to 8"
                         : array->complex_valued ? "[1, sample, readout, coil]"
                                                 : "[3, sample, readout]");
}

/* Read an open dataset without reordering; the caller frees *memory. */
static int items_read(struct scan_array *array, struct h5_upload *h5, hid_t dataset, const struct h5_numbers *numbers,
                      void **memory, uint64_t *most)
{
    struct h5_items items;
    uint64_t count = 0;
    size_t bytes = 0;
    array->real_size = sizeof(float);
    if (!scan_array_order(array, false, &count) || !size_mul(count, sizeof(float) * numbers->count, &bytes) ||
        bytes > *most)
        return err_set(ERR_LIMIT, "The dataset %s takes more than %llu MB. Send the scan as .npz or ISMRMRD.",
                       array->name, (unsigned long long)*most >> 20);
    if (!(*memory = malloc(bytes + 1)))
        return err_no_memory_bytes(bytes, "the dataset %s", array->name);
    int rc = h5_items_open(&items, h5, dataset, numbers->count * H5Tget_size(numbers->stored));
    if (rc == 0 && !h5_items_convert(&items, numbers, 0, array->size[0], H5T_NATIVE_FLOAT, sizeof(float), *memory))
        rc = err_set(ERR_MALFORMED_FILE, "The dataset %s is damaged.", array->name);
    h5_items_close(&items);
    array->items = *memory;
    *most -= rc == 0 ? bytes : 0;
    return rc;
}

static int dataset_read(struct scan_array *array, struct h5_upload *h5, hid_t group, int axes, void **memory,
                        uint64_t *most)
{
    struct h5_numbers numbers;
    hid_t dataset = -1;
    int rc = h5_dataset_any(&dataset, group, array->name);
    if (rc != 0)
        return rc;
    hid_t stored = H5Dget_type(dataset);
    numbers_find(&numbers, stored, array->complex_valued);
    rc = size_take(array, dataset, axes);
    if (rc == 0 && numbers.stored < 0)
        rc = err_set(ERR_MALFORMED_FILE, "The dataset %s holds no %s numbers.", array->name,
                     array->complex_valued ? "complex (compound of two floats)" : "floating-point");
    if (rc == 0)
        rc = items_read(array, h5, dataset, &numbers, memory, most);
    if (numbers.stored >= 0)
        H5Tclose(numbers.stored);
    if (stored >= 0)
        H5Tclose(stored);
    H5Dclose(dataset);
    return rc;
}

/* Permute the axes into the order that scan_arrays_write() expects: order[i] is the file's axis. */
static void axes_turn(struct scan_array *array, int axes, const int *order)
{
    struct scan_array from = *array;
    array->axes = axes;
    for (int i = 0; i < axes; i++) {
        array->size[i] = from.size[order[i]];
        array->step[i] = from.step[order[i]];
    }
}

/* An array of the group that may be missing. */
static int optional_read(struct scan_array *array, struct h5_upload *h5, hid_t group, void **memory, uint64_t *most)
{
    return H5Lexists(group, array->name, H5P_DEFAULT) > 0 ? dataset_read(array, h5, group, 0, memory, most) : 0;
}

int scan_h5_pixels_read(struct scan_pixels *out, void *memory[2], struct h5_upload *h5, hid_t group)
{
    uint64_t most = ARRAYS_BYTES_MOST;
    *out =
        (struct scan_pixels){.maps = {.name = "sensitivities", .complex_valued = true}, .field = {.name = "fieldmap"}};
    int rc = optional_read(&out->maps, h5, group, &memory[0], &most);
    return rc == 0 ? optional_read(&out->field, h5, group, &memory[1], &most) : rc;
}

int scan_h5_arrays_decode(int fd, uint64_t cap, struct h5_upload *h5, const struct scan_wanted *wanted)
{
    struct scan_arrays arrays = {.kspace = {.name = "rawdata", .complex_valued = true},
                                 .trajectory = {.name = "trajectory"}};
    void *memory[2] = {NULL, NULL};
    uint64_t most = ARRAYS_BYTES_MOST;
    const struct scan_wanted nothing = {.group = ""};
    int rc = dataset_read(&arrays.kspace, h5, h5->file, 4, &memory[0], &most);
    if (rc == 0)
        rc = dataset_read(&arrays.trajectory, h5, h5->file, 3, &memory[1], &most);
    if (rc == 0 && arrays.kspace.size[0] != 1)
        rc = err_set(ERR_MALFORMED_FILE, "The dataset rawdata has %llu entries along its first axis; 1 is expected.",
                     (unsigned long long)arrays.kspace.size[0]);
    if (rc == 0) {
        arrays.bytes = ARRAYS_BYTES_MOST - most;
        axes_turn(&arrays.kspace, 3, (const int[]){3, 2, 1});
        axes_turn(&arrays.trajectory, 3, (const int[]){2, 1, 0});
        rc = scan_arrays_write(fd, cap, &arrays, wanted ? wanted : &nothing);
    }
    free(memory[0]);
    free(memory[1]);
    return rc;
}
