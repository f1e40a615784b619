/* scan_write.h: ISMRMRD scans written in batches (libismrmrd's own loop writes one acquisition at a time, one chunk
 * each). The file is what libismrmrd 1.8 would write: /dataset/xml, /dataset/data with members head, traj, data. One
 * thread at a time. */
#ifndef MRIRECON_SCAN_WRITE_H
#define MRIRECON_SCAN_WRITE_H

#include "gridding/base/num.h"

#include <hdf5.h>
#include <ismrmrd/ismrmrd.h>

/* traj: float32 [samples][trajectory_dimensions]; data: float32 pairs [channels][samples]; lengths in float32. */
struct scan_write_acquisition {
    ISMRMRD_AcquisitionHeader head;
    hvl_t traj, data;
};

struct scan_writer;

/* Create (or replace) the file `path` for `count` acquisitions. Fails with ERR_IO, ERR_NO_MEMORY. */
int scan_writer_create(struct scan_writer **out, const char *path, const char *xml, size_t count);

/* Append; the memory is the caller's again on return. Fails with ERR_IO. */
int scan_writer_append(struct scan_writer *writer, size_t count, const struct scan_write_acquisition *acquisitions);

/* Write a list of float32 of `axes` axes beside the acquisitions. Fails with ERR_IO. */
int scan_writer_array(struct scan_writer *writer, const char *name, int axes, const hsize_t *size, const float *values);
/* The same of complex numbers, as pairs of float32. */
int scan_writer_complex_array(struct scan_writer *writer, const char *name, int axes, const hsize_t *size,
                              const struct c32 *values);

/* Close, and free in any case. Fails with ERR_IO if the file could not be written completely, or fewer than `count`
 * acquisitions were appended. */
int scan_writer_finish(struct scan_writer *writer);

/* Close, after appending ended with `rc`; an incomplete file is deleted. Returns rc with its sentence, or the failure
 * of scan_writer_finish(). */
int scan_writer_end(struct scan_writer *writer, const char *path, int rc);

#endif
