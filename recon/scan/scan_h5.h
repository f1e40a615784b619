/* scan_h5.h: inside the HDF5 reader: finding a scan among the objects of an untrusted file. */
#ifndef MRIRECON_SCAN_H5_H
#define MRIRECON_SCAN_H5_H

#include "recon/h5/h5_upload.h"
#include "recon/scan/scan_pixels.h"

enum { SCAN_H5_NAME = 256 };

/* The group that holds the scan: `wanted`, or "dataset", or the first that does. Fails with ERR_BAD_PARAMETER (none of
 * that name), ERR_HOSTILE_FILE (links that lead elsewhere), ERR_NO_IMAGE_DATA (images only), ERR_UNKNOWN_FORMAT (no
 * scan). */
int scan_h5_group(hid_t *group, char name[SCAN_H5_NAME], hid_t file, const char *wanted);

/* The type of struct scan_readout, with the members that the file's type `stored` must have (-1: not compared). Fails
 * with ERR_MALFORMED_FILE, ERR_INTERNAL. */
int scan_h5_head_type(hid_t *out, hid_t stored);

/* How many items of this name the group has: the length of a list, 1 of anything else, 0 if it is missing. */
uint64_t scan_h5_count(hid_t group, const char *name);

/* A file of arrays: whether this is one, and reading it: see scan_hdf5_decode(). */
bool scan_h5_has_arrays(hid_t file);
int scan_h5_arrays_decode(int fd, uint64_t cap, struct h5_upload *h5, const struct scan_wanted *wanted);

/* The arrays `sensitivities` and `fieldmap` of `group`, if it has them. The caller frees memory[2] (initially NULL) in
 * any case. Fails with ERR_MALFORMED_FILE, ERR_LIMIT, ERR_NO_MEMORY. */
int scan_h5_pixels_read(struct scan_pixels *out, void *memory[2], struct h5_upload *h5, hid_t group);

#endif
