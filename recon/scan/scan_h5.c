#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"
#include "gridding/base/num.h"

#include <stdio.h>
#include <string.h>

/* ---- groups ---- */

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
    if (strncmp(name, "image", 5) == 0 && h5_kind_of(group, name) == 'g')
        *found = true;
    return *found;
}

/* What the group contains: a scan ('s'), only images ('i'), a link to another file in place of a scan ('l'), or nothing
 * ('\0'). */
static char group_look(hid_t file, const char *name)
{
    if (h5_kind_of(file, name) != 'g')
        return h5_kind_of(file, name) == 'l' && strncmp(name, "dataset", 7) == 0 ? 'l' : '\0';
    hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
    if (group < 0)
        return '\0';
    char data = h5_kind_of(group, "data"), xml = h5_kind_of(group, "xml");
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

uint64_t scan_h5_count(hid_t group, const char *name)
{
    char kind = h5_kind_of(group, name);
    if (kind != 'd')
        return kind != '\0';
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT), space = H5Dget_space(dataset);
    hssize_t items = H5Sget_simple_extent_npoints(space);
    H5Sclose(space);
    H5Dclose(dataset);
    return items > 0 ? (uint64_t)items : 1;
}
