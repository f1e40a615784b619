/* scan_h5.h: inside the HDF5 reader: finding a scan among the objects of an untrusted file, and reading its datasets
 * safely. */
#ifndef MRIRECON_SCAN_H5_H
#define MRIRECON_SCAN_H5_H

#include "recon/scan/scan_pixels.h"

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCAN_H5_NAME = 256, SCAN_H5_FILTERS = 8 /* of a dataset, at most */ };

/* Some bytes of the upload, or of unpacked data. */
struct scan_h5_place {
    const uint8_t *at;
    uint64_t bytes;
};

/* An open upload. */
struct scan_h5 {
    hid_t file, driver;
    const uint8_t *image;        /* all of it, mapped */
    uint64_t bytes, base;        /* base: addresses in the file count from there */
    struct scan_h5_place *place; /* not NULL: libhdf5 reports the address of raw data, and reads none */
    uint64_t heap, heap_next;    /* where the last list was found */
};

/* Open a file image without copying it; `image` and `h5` outlive it. Fails with ERR_TRUNCATED, ERR_MALFORMED_FILE; to
 * be closed in any case. */
int scan_h5_open(struct scan_h5 *h5, const void *image, size_t bytes);
void scan_h5_close(struct scan_h5 *h5);

/* The items of a list as stored in the file, unpacked. */
struct scan_h5_items {
    struct scan_h5 *h5;
    hid_t dataset;     /* the caller's */
    size_t item_bytes; /* in the file */
    uint64_t count;
    uint64_t chunk;     /* items in one; 0: all lie together */
    bool last_is_plain; /* a partial last chunk is not filtered */
    int filters;
    struct {
        H5Z_filter_t id;
        unsigned item_bytes; /* of shuffle */
    } filter[SCAN_H5_FILTERS];
    uint8_t *buffer[2];
    uint64_t loaded;            /* the chunk in `place` */
    struct scan_h5_place place; /* the items, or those of a chunk */
};

/* Find where the items of a dataset that scan_h5_dataset() opened are stored. Fails with ERR_MALFORMED_FILE,
 * ERR_NO_MEMORY; the caller closes it in any case. */
int scan_h5_items_open(struct scan_h5_items *items, struct scan_h5 *h5, hid_t dataset, size_t item_bytes);
void scan_h5_items_close(struct scan_h5_items *items);

/* The number of contiguous items from `first` on; *at points to the first until the next call; 0: they cannot be read.
 */
uint64_t scan_h5_items_at(struct scan_h5_items *items, uint64_t first, const uint8_t **at);

/* The data that the 16 bytes of a variable-length list or text refer to: *length values of `item_bytes`, inside the
 * upload. Returns false if they are missing or fewer. */
enum { SCAN_H5_REFERENCE = 16 };
bool scan_h5_list(struct scan_h5 *h5, const uint8_t *reference, size_t item_bytes, struct scan_h5_place *out,
                  uint64_t *length);

/* The group that holds the scan: `wanted`, or "dataset", or the first that does. Fails with ERR_BAD_PARAMETER (none of
 * that name), ERR_HOSTILE_FILE (links that lead elsewhere), ERR_NO_IMAGE_DATA (images only), ERR_UNKNOWN_FORMAT (no
 * scan). */
int scan_h5_group(hid_t *group, char name[SCAN_H5_NAME], hid_t file, const char *wanted);

/* Open a dataset of `group` that is hard-linked and stored in this file itself, without external storage. Fails with
 * ERR_MALFORMED_FILE, ERR_HOSTILE_FILE, ERR_LIMIT. */
int scan_h5_dataset(hid_t *dataset, hid_t group, const char *name);

/* The same of any number of dimensions. */
int scan_h5_dataset_any(hid_t *dataset, hid_t group, const char *name);

/* A plain number: whole bytes in IEEE 754 or two's complement, which libhdf5 converts without out-of-bounds reads. */
bool scan_h5_is_plain(hid_t type);

/* The type of struct scan_readout, with the members that the file's type `stored` must have (-1: not compared). Fails
 * with ERR_MALFORMED_FILE, ERR_INTERNAL. */
int scan_h5_head_type(hid_t *out, hid_t stored);

/* How many items of this name the group has: the length of a list, 1 of anything else, 0 if it is missing. */
uint64_t scan_h5_count(hid_t group, const char *name);

/* A file of arrays: whether this is one, and reading it: see scan_hdf5_decode(). */
bool scan_h5_has_arrays(hid_t file);
int scan_h5_arrays_decode(int fd, uint64_t cap, hid_t file, const struct scan_wanted *wanted);

/* The arrays `sensitivities` and `fieldmap` of `group`, if it has them. The caller frees memory[2] (initially NULL) in
 * any case. Fails with ERR_MALFORMED_FILE, ERR_LIMIT, ERR_NO_MEMORY. */
int scan_h5_pixels_read(struct scan_pixels *out, void *memory[2], hid_t group);

#endif
