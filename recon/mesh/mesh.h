/* mesh.h: triangle meshes: isosurfaces of fields on a grid, their area and volume, and their file formats. Host memory.
 * A mesh belongs to one thread at a time. */
#ifndef MRIRECON_MESH_H
#define MRIRECON_MESH_H

#include "gridding/base/num.h"
#include "recon/recon.h"

/* One record of a PLY file, in native byte order. */
struct mesh_vertex {
    float at[3], normal[3]; /* normal: of length 1, pointing to lower values of the field */
};

struct mesh {
    size_t vertices, triangles;
    struct mesh_vertex *vertex; /* [vertices] */
    uint32_t (*corner)[3];      /* [triangles]: vertices, anticlockwise seen from the side of lower values */
};

void mesh_free(struct mesh *mesh); /* NULL is allowed */

/* A field on a lattice of nodes[0] x nodes[1] x nodes[2], x fastest: node (x, y, z) lies at origin + spacing (x, y, z).
 */
struct mesh_field {
    size_t nodes[3];
    double origin[3], spacing[3]; /* spacing > 0 */
    const float *value;
};

/* Limits and progress of an extraction. */
struct mesh_watch {
    int threads;
    uint64_t most_bytes; /* memory limit of the mesh; 0: none */
    /* Called in the calling thread every few tens of milliseconds with the completed fraction, 0..1; non-zero: stop.
     * May be NULL. */
    int (*progress)(void *context, double done);
    void *context;
};

/* The surface between nodes of value >= isovalue (inside) and < isovalue, by marching cubes (Lorensen and Cline,
 * doi:10.1145/37402.37422). Where two diagonal corners of a cell's face are inside, the surface separates them, in both
 * cells of the face (Montani et al., doi:10.1007/BF01900830): each edge of the mesh belongs to two triangles with a
 * consistent orientation, or, on the lattice's border, to one. Vertices lie on the lattice's edges, linear between its
 * nodes; a node of just the isovalue is a vertex several times over, and triangles there may have no area. Normals are
 * those of central differences. Vertices and triangles are in one order for any number of threads (rows are counted
 * first, then filled: Schroeder et al., doi:10.1109/LDAV.2015.7348069). A field without a surface gives a mesh of no
 * triangles. Fails with ERR_BAD_PARAMETER (a field with a value that is not finite, or an isovalue that is not),
 * ERR_LIMIT (more than 2^31 - 1 vertices or triangles), ERR_NO_MEMORY (watch->most_bytes, too), ERR_CANCELED. */
int mesh_surface(struct mesh **out, const struct mesh_field *field, double isovalue, const struct mesh_watch *watch);

struct mesh_measure {
    double area;
    double volume; /* enclosed; of a closed mesh */
    bool closed;   /* every edge belongs to two triangles */
    int64_t euler; /* V - E + F: 2 for each sphere, 0 for each torus; of a closed mesh */
    size_t pieces; /* connected components */
};

/* Measure a mesh made by mesh_surface(). Fails with ERR_NO_MEMORY. */
int mesh_measure(struct mesh_measure *out, const struct mesh *mesh);

/* ---- files ---- */

/* The file formats of meshes; names and media types are in mesh_formats.c, which has no dependencies. PLY: binary, with
 * normals; the native one. OBJ: text, with normals. STL: binary, a normal for each triangle. PNG: a picture. */
enum mesh_format { MESH_PLY, MESH_OBJ, MESH_STL, MESH_PNG, MESH_FORMATS };
extern const struct result_form mesh_form; /* the form of results that are meshes */

/* An upper bound of the file size of such a mesh in `format`; false: it overflows. */
bool mesh_file_most(size_t vertices, size_t triangles, enum mesh_format format, size_t *bytes);

/* Write `mesh` to `fd` (a file opened for writing, at 0) as `format`. Fails with ERR_IO, ERR_NO_MEMORY, ERR_SPOOL_FULL.
 */
int mesh_write(const struct mesh *mesh, enum mesh_format format, int fd);

/* Read a file of mesh_write(MESH_PLY). The file is not trusted: indices and numbers are checked. Fails with ERR_IO,
 * ERR_MALFORMED_FILE, ERR_NO_MEMORY. */
int mesh_read_ply(struct mesh **out, int fd);

/* As job_result.write() and .free(), of a struct mesh; as codec_converter.convert(). */
int mesh_result_write(const void *mesh, int format, int fd);
void mesh_result_free(void *mesh);
int mesh_convert(int in, int format, int out);

#endif
