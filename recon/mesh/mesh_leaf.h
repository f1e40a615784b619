/* mesh_leaf.h: declarations shared by the files of recon/mesh/, and included only there. */
#ifndef MRIRECON_MESH_LEAF_H
#define MRIRECON_MESH_LEAF_H

#include "recon/image/picture.h"
#include "recon/mesh/mesh.h"

/* ---- cells ----
 *
 * Corner c of a cell: bit 0 is y, bit 1 is z, bit 2 is x, so that the corners of one x are neighbours. Edges: 0..3
 * along x, from corner e; 4..7 along y, from corner 2 (e - 4); 8..11 along z. */
enum { CELL_EDGES = 12, CELL_CASES = 256, CELL_TRIANGLES = 5 };

/* The triangles of a cell whose inside corners are the bits of the case's number: three edges each. */
struct mesh_case {
    uint8_t triangles, edge[CELL_TRIANGLES][3];
};
void mesh_cases_make(struct mesh_case cases[CELL_CASES]);

/* ---- memory ---- */

/* Allocate a mesh with uninitialised arrays. Fails with ERR_NO_MEMORY. */
int mesh_create(struct mesh **out, size_t vertices, size_t triangles);

/* ---- files ---- */

/* A write buffer. After a failure, further writes are ignored. */
struct mesh_sink {
    int fd, rc;
    size_t used;
    char bytes[1 << 16];
};
void mesh_put(struct mesh_sink *sink, const void *bytes, size_t count);
/* At most 1023 bytes at a time. */
void mesh_print(struct mesh_sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Flush the buffer; returns 0 or the first failure: ERR_SPOOL_FULL if the disk is full, else ERR_IO. */
int mesh_sink_end(struct mesh_sink *sink);

/* The triangle's normal; its length is twice the area. */
void mesh_cross(const struct mesh *mesh, size_t triangle, double normal[3]);

enum { MESH_PICTURE = 1024 }; /* maximum of the longer side, pixels */

/* Draw the mesh in colour, in orthographic projection from the front and above, scaled to fill the picture. Fails with
 * ERR_NO_MEMORY. */
int mesh_render(struct picture *out, const struct mesh *mesh);

int mesh_write_ply(const struct mesh *mesh, int fd);
int mesh_write_obj(const struct mesh *mesh, int fd);
int mesh_write_stl(const struct mesh *mesh, int fd);
int mesh_write_png(const struct mesh *mesh, int fd);

#endif
