/* volume.h: real values on a regular grid in space, and their file formats: npy, OpenDX, MRC and PNG. Host memory.
 *
 * The native format is npy with three arrays in sequence, as numpy.save() writes them to one open file: the values,
 * float32 [z][y][x] (of several frames [frame][z][y][x]), the only array that numpy.load(path) returns; then float64
 * [2][3], the position of node (0, 0, 0) and the spacing, x first; then the title as text. The other formats are
 * derived from it.
 */
#ifndef MRIRECON_VOLUME_H
#define MRIRECON_VOLUME_H

#include "recon/recon.h"

enum { VOLUME_TITLE = 80, VOLUME_AXIS_MOST = 1 << 20 };

struct volume {
    size_t frames, size[3];       /* size: x, y, z */
    double origin[3], spacing[3]; /* of node (0, 0, 0); > 0; in angstroms if the kind knows the unit */
    char title[VOLUME_TITLE];     /* the quantity and its unit: "Electrostatic potential, e/A"; ASCII */
    float *data;                  /* [frame][z][y][x] */
};

enum volume_format { VOLUME_NPY, VOLUME_DX, VOLUME_MRC, VOLUME_PNG, VOLUME_FORMATS };
extern const struct result_form volume_form; /* the form of results that are volumes */

/* An uninitialised volume of this shape (data, frames and size are set). Fails with ERR_NO_MEMORY. */
int volume_create(struct volume **out, size_t frames, const size_t size[3]);
void volume_free(struct volume *volume);

/* An upper bound of the file size of a volume of this shape (frames and size are used) in `format`. false: it
 * overflows. */
bool volume_file_most(const struct volume *shape, enum volume_format format, size_t *bytes);

/* Write it to `fd` (a file opened for writing, at 0). Several threads may call it at a time, each with its own file.
 * dx: nodes in the order of OpenDX (z fastest), nine digits, which preserve every float32. mrc: MRC2014, mode 2; the
 * position is in ORIGIN, NSTART is 0; frames are a stack of volumes. png: slices of z, of all frames, blue to white to
 * red about 0, or black to white where no value is negative; every n-th slice if there are too many. Fails with ERR_IO,
 * ERR_SPOOL_FULL, ERR_NO_MEMORY, and, for formats other than npy, ERR_NOT_ACCEPTABLE (dx: several frames; mrc: too many
 * sections). */
int volume_write(const struct volume *volume, enum volume_format format, int fd);

/* As job_result.write() and .free(), of a struct volume. */
int volume_result_write(const void *volume, int format, int fd);
void volume_result_free(void *volume);

/* Read back what volume_write(VOLUME_NPY) wrote. Fails with ERR_IO, ERR_MALFORMED_FILE, ERR_NO_MEMORY. */
int volume_read(struct volume **out, int fd);

/* As codec_converter.convert() and .view(). */
int volume_convert(int in, int format, int out);
int volume_view(int in, const struct result_view *view, int out);

#endif
