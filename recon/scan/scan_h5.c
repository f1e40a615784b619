#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"
#include "gridding/base/num.h"

#include <stdio.h>
#include <string.h>

/* ---- groups ---- */

/* The type of a name in a group: 'd'ataset, 'g'roup, external or soft 'l'ink, '?' another, '\0' none. */
static char kind_of(hid_t group, const char *name)
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

/* Survey of a file's groups. */
struct groups_survey {
    char scan[SCAN_H5_NAME];   /* the first group with a scan */
    char images[SCAN_H5_NAME]; /* the first with images and no scan */
    char link[SCAN_H5_NAME];   /* a link in place of a scan */
    char names[SCAN_H5_NAME];  /* all names, for a sentence */
};

static herr_t image_find(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    (void)info;
    bool *found = context;
    if (strncmp(name, "image", 5) == 0 && kind_of(group, name) == 'g')
        *found = true;
    return *found;
}

/* What the group contains: a scan ('s'), only images ('i'), a link to another file in place of a scan ('l'), or nothing
 * ('\0'). */
static char group_look(hid_t file, const char *name)
{
    if (kind_of(file, name) != 'g')
        return kind_of(file, name) == 'l' && strncmp(name, "dataset", 7) == 0 ? 'l' : '\0';
    hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
    if (group < 0)
        return '\0';
    char data = kind_of(group, "data"), xml = kind_of(group, "xml");
    bool images = false;
    H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, image_find, &images);
    H5Gclose(group);
    if (data == 'l' || xml == 'l')
        return 'l';
    if (data && xml)
        return 's';
    /* A group with ISMRMRD's standard name counts as a scan even if parts are missing: the error then names what is
     * missing. */
    return images ? 'i' : (data || xml) && strncmp(name, "dataset", 7) == 0 ? 's' : '\0';
}

static herr_t group_visit(hid_t file, const char *name, const H5L_info_t *info, void *context)
{
    (void)info;
    struct groups_survey *found = context;
    size_t used = strlen(found->names);
    snprintf(found->names + used, sizeof found->names - used, "%s\"%.60s\"", used ? ", " : "", name);
    if (strlen(name) >= SCAN_H5_NAME)
        return 0;
    char look = group_look(file, name);
    char *to = look == 's' ? found->scan : look == 'i' ? found->images : look == 'l' ? found->link : NULL;
    if (to && (!*to || strcmp(name, "dataset") == 0))
        snprintf(to, SCAN_H5_NAME, "%s", name);
    return 0;
}

static int scan_missing(hid_t file, const struct groups_survey *found)
{
    if (*found->link)
        return err_set(ERR_HOSTILE_FILE,
                       "The group \"%s\" is, or holds, a link to another place or file instead of data. "
                       "Links are not followed: copy the data into the file (h5repack does).",
                       found->link);
    if (*found->images)
        return err_set(ERR_NO_IMAGE_DATA,
                       "The group \"%s\" holds reconstructed images and no raw data (acquisitions): "
                       "there is nothing to reconstruct.",
                       found->images);
    if (H5Aexists(file, "_NCProperties") > 0)
        return err_set(ERR_UNKNOWN_FORMAT,
                       "The file is a NetCDF file, not a scan. An ISMRMRD file is expected: HDF5 with "
                       "a group \"dataset\" that holds \"xml\" and \"data\".");
    if (H5Lexists(file, "DownloadData.xml", H5P_DEFAULT) > 0)
        return err_set(ERR_UNKNOWN_FORMAT, "The file is GE raw data (ScanArchive): convert it with ge_to_ismrmrd. An "
                                           "ISMRMRD scan is expected.");
    return err_set(
        ERR_UNKNOWN_FORMAT,
        "The HDF5 file contains no scan: none of its groups has \"xml\" and \"data\", as ISMRMRD requires. %s%s.",
        *found->names ? "It holds " : "It is empty", found->names);
}

int scan_h5_group(hid_t *group, char name[SCAN_H5_NAME], hid_t file, const char *wanted)
{
    struct groups_survey found = {0};
    if (H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, group_visit, &found) < 0)
        return err_set(ERR_MALFORMED_FILE, "The HDF5 file is damaged: its list of groups cannot be read.");
    if (wanted) {
        wanted += *wanted == '/';
        if (strchr(wanted, '/') || strlen(wanted) >= SCAN_H5_NAME || !*wanted || strcmp(wanted, ".") == 0)
            return err_set(ERR_BAD_PARAMETER, "\"%.64s\" cannot be the name of a scan's group.", wanted);
        char look = group_look(file, wanted);
        if (look == 'l' || (look == 'i' && !*found.link)) {
            snprintf(look == 'l' ? found.link : found.images, SCAN_H5_NAME, "%s", wanted);
            return scan_missing(file, &found);
        }
        if (look != 's')
            return err_set(ERR_BAD_PARAMETER, "The file has no scan in a group \"%.64s\". It holds %s.", wanted,
                           *found.names ? found.names : "nothing");
        snprintf(found.scan, sizeof found.scan, "%s", wanted);
    }
    if (!*found.scan)
        return scan_missing(file, &found);
    hid_t opened = H5Gopen2(file, found.scan, H5P_DEFAULT);
    if (opened < 0)
        return err_set(ERR_MALFORMED_FILE, "The group \"%s\" cannot be opened: the file is damaged.", found.scan);
    memcpy(name, found.scan, SCAN_H5_NAME);
    *group = opened;
    return 0;
}

/* ---- datasets ---- */

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
    if (filters < 0 || filters > SCAN_H5_FILTERS)
        return err_set(ERR_MALFORMED_FILE, "\"%s\" is stored through %d filters; at most %d are read.", name, filters,
                       SCAN_H5_FILTERS);
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
        return err_set(ERR_MALFORMED_FILE, "\"%s\" has %d dimensions; ISMRMRD requires a list, which has one.", name,
                       rank);
    size_t item_bytes = H5Tget_size(type);
    if (item_bytes == 0)
        return err_set(ERR_MALFORMED_FILE, "The type of \"%s\" is damaged.", name);
    int rc = layout == H5D_CHUNKED ? chunks_check(plist, item_bytes, name) : 0;
    return rc == 0 ? storage_check(dataset, plist, space, item_bytes, name) : rc;
}

static int dataset_open(hid_t *out, hid_t group, int most_axes, const char *name)
{
    char kind = kind_of(group, name);
    if (kind == 'l')
        return err_set(ERR_HOSTILE_FILE, "\"%s\" is a link to another place or file. Links are not followed.", name);
    if (kind != 'd')
        return err_set(ERR_MALFORMED_FILE,
                       kind ? "\"%s\" is not a dataset, as ISMRMRD requires."
                            : "The scan's group has no \"%s\", which ISMRMRD requires.",
                       name);
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

int scan_h5_dataset(hid_t *out, hid_t group, const char *name)
{
    return dataset_open(out, group, 1, name);
}

int scan_h5_dataset_any(hid_t *out, hid_t group, const char *name)
{
    return dataset_open(out, group, H5S_MAX_RANK, name);
}

uint64_t scan_h5_count(hid_t group, const char *name)
{
    char kind = kind_of(group, name);
    if (kind != 'd')
        return kind != '\0';
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT), space = H5Dget_space(dataset);
    hssize_t items = H5Sget_simple_extent_npoints(space);
    H5Sclose(space);
    H5Dclose(dataset);
    return items > 0 ? (uint64_t)items : 1;
}
