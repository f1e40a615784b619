/* h5_upload.h: inside the codec: an untrusted HDF5 file that was uploaded. libhdf5 1.10 trusts the sizes in a damaged
 * file and reads out of bounds: it is only asked what a dataset is and where it is stored; its bytes are read, unpacked
 * and checked here. One thread. */
#ifndef MRIRECON_H5_UPLOAD_H
#define MRIRECON_H5_UPLOAD_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { H5_UPLOAD_FILTERS = 8 /* of a dataset, at most */, H5_UPLOAD_AXES = 8 };

/* Some bytes of the upload, or of unpacked data. */
struct h5_place {
    const uint8_t *at;
    uint64_t bytes;
};

/* An open upload. */
struct h5_upload {
    hid_t file, driver;
    const uint8_t *image;     /* all of it, mapped */
    uint64_t bytes, base;     /* base: addresses in the file count from there */
    struct h5_place *place;   /* not NULL: libhdf5 reports the address of raw data, and reads none */
    uint64_t heap, heap_next; /* where the last list was found */
    int growing;              /* the mapped file, which is still being written; -1: all of it is there */
    uint64_t there;           /* of its bytes, at the last look */
};

/* Open a file image without copying it; `image` and `h5` outlive it. `growing` (-1: complete): the file that is mapped
 * and will have `bytes`: what is asked of it waits until its bytes have been written. Fails with ERR_TRUNCATED,
 * ERR_MALFORMED_FILE; to be closed in any case. */
int h5_upload_open(struct h5_upload *h5, const void *image, size_t bytes, int growing);
void h5_upload_close(struct h5_upload *h5);

/* Wait until the first `end` bytes are there. Whoever reads the image at an address that it has not been given by the
 * functions below waits first: a page beyond the file's end cannot be read. */
void h5_upload_wait(struct h5_upload *h5, uint64_t end);

/* ---- datasets ---- */

/* The type of a name in a group: 'd'ataset, 'g'roup, external or soft 'l'ink, '?' another, '\0' none. */
char h5_kind_of(hid_t group, const char *name);

/* Open a list of `group` that is hard-linked and stored in this file itself, without external storage. Fails with
 * ERR_MALFORMED_FILE, ERR_HOSTILE_FILE, ERR_LIMIT. */
int h5_dataset_list(hid_t *dataset, hid_t group, const char *name);

/* The same of any number of dimensions. */
int h5_dataset_any(hid_t *dataset, hid_t group, const char *name);

/* A plain number: whole bytes in IEEE 754 or two's complement, which libhdf5 converts without out-of-bounds reads. */
bool h5_is_plain(hid_t type);

/* ---- their items ---- */

/* The items of a dataset as stored in the file, unpacked. */
struct h5_items {
    struct h5_upload *h5;
    hid_t dataset;     /* the caller's */
    size_t item_bytes; /* in the file */
    uint64_t count;
    int axes;
    uint64_t size[H5_UPLOAD_AXES]; /* items along each axis */
    uint64_t side[H5_UPLOAD_AXES]; /* of a chunk; of the whole where all lie together */
    uint64_t chunk;                /* items in one; 0: all lie together */
    bool last_is_plain;            /* a partial last chunk is not filtered */
    int filters;
    struct {
        H5Z_filter_t id;
        unsigned item_bytes; /* of shuffle */
    } filter[H5_UPLOAD_FILTERS];
    uint8_t *buffer[2];
    uint64_t loaded;       /* the chunk in `place` */
    struct h5_place place; /* the items, or those of a chunk */
};

/* Find where the items of a dataset that h5_dataset_list() or h5_dataset_any() opened are stored; at most
 * H5_UPLOAD_AXES axes. Fails with ERR_MALFORMED_FILE, ERR_NO_MEMORY; the caller closes it in any case. */
int h5_items_open(struct h5_items *items, struct h5_upload *h5, hid_t dataset, size_t item_bytes);
void h5_items_close(struct h5_items *items);

/* The number of contiguous items of a list from `first` on; *at points to the first until the next call; 0: they cannot
 * be read. */
uint64_t h5_items_at(struct h5_items *items, uint64_t first, const uint8_t **at);

/* What an item consists of: `count` numbers of the plain type `stored` (h5_is_plain()), without gaps. */
struct h5_numbers {
    hid_t stored;
    unsigned count;
};

/* Read the `rows` items along the first axis from `first` on, with all along the other axes, in C order, each number
 * converted to the native type `wanted` of `bytes` (at most 8). The rows must exist. Returns false if they cannot be
 * read. */
bool h5_items_convert(struct h5_items *items, const struct h5_numbers *numbers, uint64_t first, uint64_t rows,
                      hid_t wanted, size_t bytes, void *to);

/* The data that the 16 bytes of a variable-length list or text refer to: *length values of `item_bytes`, inside the
 * upload. Returns false if they are missing or fewer. */
enum { H5_UPLOAD_REFERENCE = 16 };
bool h5_list(struct h5_upload *h5, const uint8_t *reference, size_t item_bytes, struct h5_place *out, uint64_t *length);

#endif
