/* scan_h5.h: inside the HDF5 reader: finding a scan among the objects of a hostile file, and opening datasets with
 * care. */
#ifndef MRIRECON_SCAN_H5_H
#define MRIRECON_SCAN_H5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCAN_H5_NAME = 256 };

/* Memory that libhdf5 takes for variable-length values: no more than there is. Nothing is given back but all at once.
 */
struct scan_h5_arena {
    char *base;
    size_t size, used;
    bool full; /* more was asked for */
};

/* A transfer property list for items that take so many bytes in the file. It allocates from `arena`, which the caller
 * keeps; negative on failure. */
hid_t scan_h5_transfer(struct scan_h5_arena *arena, size_t item_bytes);

/* Open a file image without copying it; `image` outlives it. Fails with ERR_TRUNCATED, ERR_MALFORMED_FILE. */
int scan_h5_open(hid_t *file, const void *image, size_t bytes);

/* The group that holds the scan: `wanted`, or "dataset", or the first that does. Fails with ERR_BAD_PARAMETER (none of
 * that name), ERR_HOSTILE_FILE (links that lead elsewhere), ERR_NO_IMAGE_DATA (images only), ERR_UNKNOWN_FORMAT (no
 * scan). */
int scan_h5_group(hid_t *group, char name[SCAN_H5_NAME], hid_t file, const char *wanted);

/* Open a dataset of `group` that is hard-linked and stored in this very file by plain means.
 * Fails with ERR_MALFORMED_FILE, ERR_HOSTILE_FILE, ERR_LIMIT. */
int scan_h5_dataset(hid_t *dataset, hid_t group, const char *name);

/* How many things of this name are in the group: the length of a list, 1 of anything else, 0 where there is none. */
uint64_t scan_h5_count(hid_t group, const char *name);

#endif
