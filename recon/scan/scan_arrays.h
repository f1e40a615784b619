/* scan_arrays.h: inside the decoder: a scan in the form of arrays, without an ISMRMRD header. */
#ifndef MRIRECON_SCAN_ARRAYS_H
#define MRIRECON_SCAN_ARRAYS_H

#include "recon/scan/scan.h"
#include "recon/scan/scan_pixels.h"

/* The arrays of one scan, described in C order, the last axis fastest; .step describes their order in memory. */
struct scan_arrays {
    struct scan_array kspace;     /* complex [coil][..][sample]; without an axis of coils: one coil */
    struct scan_array trajectory; /* real [..][sample][2 or 3]; k-space may have one more axis before .., repetitions */
    struct scan_array weights;    /* optional: real [..][sample], density weights */
    struct scan_array noise;      /* optional: complex [coil][sample], without signal */
    struct scan_pixels pixels;    /* optional; a field map for each repetition makes them slices */
    struct scan_array times;      /* optional: real [sample], seconds from the start of a readout */
    uint64_t bytes;               /* of all arrays, unpacked */
    uint64_t ignored;             /* arrays that are not read */
};

/* Write them as a flat scan, as the other readers do. Each combination of the indices between coil and sample is a
 * readout: the last is kspace_encode_step_1; those before it are kspace_encode_step_2 if the matrix is 3-D, as are
 * repetitions of a trajectory of kx and ky. A readout of more than 65535 samples is cut into segments. `wanted` has the
 * matrix and field of view. Fails with ERR_BAD_PARAMETER (no size), ERR_MALFORMED_FILE (shapes that do not fit, with
 * both shapes), and as scan_builder's functions. */
int scan_arrays_write(int fd, uint64_t cap, const struct scan_arrays *arrays, const struct scan_wanted *wanted);

#endif
