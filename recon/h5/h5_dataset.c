/* Opens datasets of an untrusted HDF5 file: only those that this file itself stores, in chunks of limited size, through
 * filters with bounded work. */
#include "recon/h5/h5_upload.h"

#include "gridding/base/err.h"
#include "gridding/base/num.h"

char h5_kind_of(hid_t group, const char *name)
{
    H5L_info_t link;
    H5O_info_t object;
    if (H5Lexists(group, name, H5P_DEFAULT) <= 0 || H5Lget_info(group, name, &link, H5P_DEFAULT) < 0)
        return '\0';
    if (link.type != H5L_TYPE_HARD)
        return 'l';
    if (H5Oget_info_by_name2(group, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
        return '?';
    return object.type == H5O_TYPE_DATASET ? 'd' : object.type == H5O_TYPE_GROUP ? 'g' : '?';
}

bool h5_is_plain(hid_t type)
{
    size_t bits = 8 * H5Tget_size(type), sign, exponent, exponent_bits, mantissa, mantissa_bits;
    H5T_class_t class = H5Tget_class(type);
    H5T_order_t order = H5Tget_order(type);
    if ((class != H5T_INTEGER && class != H5T_FLOAT) || bits == 0 || bits > 64 || H5Tget_offset(type) != 0 ||
        H5Tget_precision(type) != bits || (order != H5T_ORDER_LE && order != H5T_ORDER_BE))
        return false;
    return class == H5T_INTEGER ||
           (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 && mantissa == 0 &&
            mantissa_bits > 0 && exponent_bits > 0 && exponent == mantissa_bits && sign == exponent + exponent_bits &&
            sign == bits - 1);
}

/* Unpacked chunks must fit in memory, and only filters with bounded work are run. */
static int chunks_check(hid_t plist, size_t item_bytes, const char *name)
{
    enum { CHUNK_BYTES = 64 << 20 };
    hsize_t chunk[H5S_MAX_RANK] = {0};
    size_t length = 1, bytes;
    int axes = H5Pget_chunk(plist, H5S_MAX_RANK, chunk);
    if (axes < 1)
        return err_set(ERR_MALFORMED_FILE, "The layout of \"%s\" is damaged.", name);
    bool fits = true;
    for (int i = 0; i < axes && fits; i++)
        fits = size_mul(length, chunk[i], &length);
    if (!fits || !size_mul(length, item_bytes, &bytes) || bytes > CHUNK_BYTES)
        return err_set(ERR_LIMIT,
                       "\"%s\" is stored in chunks of %llu items; at most %d MB a chunk are read. Repack the "
                       "file with smaller chunks (h5repack -l CHUNK=...).",
                       name, (unsigned long long)length, CHUNK_BYTES >> 20);
    int filters = H5Pget_nfilters(plist);
    if (filters < 0 || filters > H5_UPLOAD_FILTERS)
        return err_set(ERR_MALFORMED_FILE, "\"%s\" is stored through %d filters; at most %d are read.", name, filters,
                       H5_UPLOAD_FILTERS);
    for (int i = 0; i < filters; i++) {
        unsigned flags, config;
        size_t values = 0;
        char title[64] = "";
        H5Z_filter_t id = H5Pget_filter2(plist, (unsigned)i, &flags, &values, NULL, sizeof title, title, &config);
        if (id != H5Z_FILTER_DEFLATE && id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_FLETCHER32)
            return err_set(ERR_MALFORMED_FILE,
                           "\"%s\" is stored through the filter %d (%s); gzip, shuffle and fletcher32 "
                           "are read. Repack the file (h5repack -f GZIP=1).",
                           name, (int)id, title);
    }
    return 0;
}

/* Every item must have been written: a dataset of 2^40 items and no bytes is a trap, or an interrupted measurement. */
static int storage_check(hid_t dataset, hid_t plist, hid_t space, size_t item_bytes, const char *name)
{
    enum { PACKED = 200, PACKED_FREE = 64 << 20 };
    hssize_t items = H5Sget_simple_extent_npoints(space);
    uint64_t stored = H5Dget_storage_size(dataset);
    size_t bytes;
    if (items < 0 || !size_mul((size_t)items, item_bytes, &bytes))
        return err_set(ERR_HOSTILE_FILE, "\"%s\" says it has more items than any file can hold.", name);
    if (H5Pget_layout(plist) != H5D_CHUNKED || H5Pget_nfilters(plist) == 0) {
        if (bytes > stored)
            return err_set_bytes(
                ERR_MALFORMED_FILE, (int64_t)(bytes & INT64_MAX), (int64_t)stored,
                "\"%s\" says it has %lld items (%zu bytes), but only %llu bytes of it were ever written.", name,
                (long long)items, bytes, (unsigned long long)stored);
    } else if (bytes > PACKED_FREE && bytes / PACKED > stored) {
        return err_set_bytes(ERR_HOSTILE_FILE, (int64_t)(bytes & INT64_MAX), (int64_t)stored,
                             "\"%s\" is compressed by a factor of %zu; at most %d is accepted.", name,
                             bytes / (stored ? stored : 1), PACKED);
    }
    return 0;
}

static int dataset_check(hid_t dataset, hid_t plist, hid_t space, hid_t type, int most_axes, const char *name)
{
    if (plist < 0 || space < 0 || type < 0)
        return err_set(ERR_MALFORMED_FILE, "\"%s\" cannot be opened: the file is damaged.", name);
    H5D_layout_t layout = H5Pget_layout(plist);
    if (layout == H5D_VIRTUAL || (layout == H5D_CONTIGUOUS && H5Pget_external_count(plist) != 0))
        return err_set(ERR_HOSTILE_FILE,
                       "\"%s\" is stored in other files (virtual or external storage), which are never "
                       "opened: copy the data into the file (h5repack does).",
                       name);
    int rank = H5Sget_simple_extent_ndims(space);
    if (layout == H5D_COMPACT)
        return err_set(ERR_MALFORMED_FILE,
                       "\"%s\" is stored in its own head (compact storage), which is not supported. Repack the file "
                       "(h5repack -l CONTI).",
                       name);
    if (rank < 0 || rank > most_axes || (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS))
        return err_set(ERR_MALFORMED_FILE, "\"%s\" has %d dimensions; at most %d %s read.", name, rank, most_axes,
                       most_axes == 1 ? "is" : "are");
    size_t item_bytes = H5Tget_size(type);
    if (item_bytes == 0)
        return err_set(ERR_MALFORMED_FILE, "The type of \"%s\" is damaged.", name);
    int rc = layout == H5D_CHUNKED ? chunks_check(plist, item_bytes, name) : 0;
    return rc == 0 ? storage_check(dataset, plist, space, item_bytes, name) : rc;
}

static int dataset_open(hid_t *out, hid_t group, int most_axes, const char *name)
{
    char kind = h5_kind_of(group, name);
    if (kind == 'l')
        return err_set(ERR_HOSTILE_FILE, "\"%s\" is a link to another place or file. Links are not followed.", name);
    if (kind != 'd')
        return err_set(
            ERR_MALFORMED_FILE,
            kind ? "\"%s\" is not a dataset, but must be one." : "There is no dataset \"%s\" where one must be.", name);
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    if (dataset < 0)
        return err_set(ERR_MALFORMED_FILE, "\"%s\" cannot be opened: the file is damaged.", name);
    hid_t plist = H5Dget_create_plist(dataset), space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    int rc = dataset_check(dataset, plist, space, type, most_axes, name);
    H5Tclose(type);
    H5Sclose(space);
    H5Pclose(plist);
    if (rc == 0)
        *out = dataset;
    else
        H5Dclose(dataset);
    return rc;
}

int h5_dataset_list(hid_t *out, hid_t group, const char *name)
{
    return dataset_open(out, group, 1, name);
}

int h5_dataset_any(hid_t *out, hid_t group, const char *name)
{
    return dataset_open(out, group, H5S_MAX_RANK, name);
}
