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

/* Whether both members lie within the number and apart: libhdf5 reads outside of it where they do not. */
static bool members_fit(hid_t stored)
{
    const size_t size = H5Tget_size(stored);
    size_t end = 0;
    for (unsigned i = 0; i < 2; i++) {
        const hid_t member = H5Tget_member_type(stored, i);
        const size_t at = H5Tget_member_offset(stored, i), bytes = member >= 0 ? H5Tget_size(member) : 0;
        if (member >= 0)
            H5Tclose(member);
        if (bytes == 0 || bytes > size || at < end || at > size - bytes)
            return false;
        end = at + bytes;
    }
    return true;
}

/* The type to read it as: float32, or pairs of float32 with the file's member names (h5py: r and i). Negative: neither
 * fits. */
static hid_t type_wanted(hid_t dataset, bool complex_valued)
{
    hid_t stored = H5Dget_type(dataset), wanted = -1;
    bool pair = stored >= 0 && H5Tget_class(stored) == H5T_COMPOUND && H5Tget_nmembers(stored) == 2;
    if (!complex_valued && stored >= 0 && H5Tget_class(stored) == H5T_FLOAT)
        wanted = H5Tcopy(H5T_NATIVE_FLOAT);
    if (complex_valued && pair && H5Tget_member_class(stored, 0) == H5T_FLOAT &&
        H5Tget_member_class(stored, 1) == H5T_FLOAT && members_fit(stored)) {
        wanted = H5Tcreate(H5T_COMPOUND, sizeof(struct c32));
        for (unsigned i = 0; i < 2; i++) {
            char *name = H5Tget_member_name(stored, i);
            if (!name || H5Tinsert(wanted, name, i * sizeof(float), H5T_NATIVE_FLOAT) < 0) {
                H5Tclose(wanted);
                wanted = -1;
            }
            H5free_memory(name);
        }
    }
    if (stored >= 0)
        H5Tclose(stored);
    return wanted;
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

/* Read the dataset without reordering; the caller frees *memory. */
static int dataset_read(struct scan_array *array, hid_t file, int axes, void **memory, uint64_t *most)
{
    hid_t dataset = -1;
    int rc = scan_h5_dataset_any(&dataset, file, array->name);
    if (rc != 0)
        return rc;
    hid_t type = type_wanted(dataset, array->complex_valued);
    uint64_t items = 0;
    size_t bytes = 0;
    rc = size_take(array, dataset, axes);
    if (rc == 0 && type < 0)
        rc = err_set(ERR_MALFORMED_FILE, "The dataset %s holds no %s numbers.", array->name,
                     array->complex_valued ? "complex (compound of two floats)" : "floating-point");
    array->real_size = sizeof(float);
    if (rc == 0 && (!scan_array_order(array, false, &items) ||
                    !size_mul(items, sizeof(float) * (array->complex_valued ? 2 : 1), &bytes) || bytes > *most))
        rc = err_set(ERR_LIMIT, "The dataset %s takes more than %llu MB. Send the scan as .npz or ISMRMRD.",
                     array->name, (unsigned long long)*most >> 20);
    if (rc == 0 && !(*memory = malloc(bytes + 1)))
        rc = err_no_memory_bytes(bytes, "the dataset %s", array->name);
    if (rc == 0 && H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *memory) < 0)
        rc = err_set(ERR_MALFORMED_FILE, "The dataset %s is damaged.", array->name);
    array->items = *memory;
    *most -= rc == 0 ? bytes : 0;
    if (type >= 0)
        H5Tclose(type);
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
static int optional_read(struct scan_array *array, hid_t group, void **memory, uint64_t *most)
{
    return H5Lexists(group, array->name, H5P_DEFAULT) > 0 ? dataset_read(array, group, 0, memory, most) : 0;
}

int scan_h5_pixels_read(struct scan_pixels *out, void *memory[2], hid_t group)
{
    uint64_t most = ARRAYS_BYTES_MOST;
    *out =
        (struct scan_pixels){.maps = {.name = "sensitivities", .complex_valued = true}, .field = {.name = "fieldmap"}};
    int rc = optional_read(&out->maps, group, &memory[0], &most);
    return rc == 0 ? optional_read(&out->field, group, &memory[1], &most) : rc;
}

int scan_h5_arrays_decode(int fd, uint64_t cap, hid_t file, const struct scan_wanted *wanted)
{
    struct scan_arrays arrays = {.kspace = {.name = "rawdata", .complex_valued = true},
                                 .trajectory = {.name = "trajectory"}};
    void *memory[2] = {NULL, NULL};
    uint64_t most = ARRAYS_BYTES_MOST;
    const struct scan_wanted nothing = {.group = ""};
    int rc = dataset_read(&arrays.kspace, file, 4, &memory[0], &most);
    if (rc == 0)
        rc = dataset_read(&arrays.trajectory, file, 3, &memory[1], &most);
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
