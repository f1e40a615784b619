/* scan_pixels.h: inside the decoder: a scan's arrays with one value per pixel of its matrix: coil maps and a field map.
 */
#ifndef MRIRECON_SCAN_PIXELS_H
#define MRIRECON_SCAN_PIXELS_H

#include "recon/scan/scan_array.h"
#include "recon/scan/scan_build.h"

/* Arrays in C order; .items NULL: no such array. Leading axes of length 1 beyond the expected ones are skipped;
 * ISMRMRD's libraries add one. */
struct scan_pixels {
    struct scan_array maps;  /* complex [coil][y][x], or [coil][z][y][x] */
    struct scan_array field; /* real [y][x], or [z][y][x]: Hz; a [slice] before them: one for each */
};

/* Compare the shapes with the first encoding's matrix, and record in the header which arrays exist: before
 * scan_builder_layout(). `coils`: of the maps; 0: any number. Fails with ERR_MALFORMED_FILE (with both shapes),
 * ERR_LIMIT. */
int scan_pixels_take(struct scan_builder *builder, struct scan_pixels *pixels, uint64_t coils);

/* The number of slices that the field map has an axis for; 0: it has none, or does not fit the matrix. */
uint64_t scan_pixels_slices(const struct scan_pixels *pixels, const uint32_t matrix[3]);

/* Write them: after scan_builder_layout(). Fails with ERR_IO, ERR_NO_MEMORY. */
int scan_pixels_write(struct scan_builder *builder, const struct scan_pixels *pixels);

#endif
