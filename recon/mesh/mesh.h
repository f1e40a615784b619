/* mesh.h: triangle meshes: isosurfaces of fields on a grid, what they measure, and the files they are served as. Host
 * memory. A mesh belongs to one thread at a time. */
#ifndef MRIRECON_MESH_H
#define MRIRECON_MESH_H

#include "gridding/base/num.h"
#include "recon/recon.h"

/* One record of a PLY file, in native byte order. */
struct mesh_vertex {
    float at[3], normal[3]; /* normal: of length 1, to where the field is lower */
};

struct mesh {
    size_t vertices, triangles;
    struct mesh_vertex *vertex; /* [vertices] */
    uint32_t (*corner)[3];      /* [triangles]: vertices, anticlockwise as seen from where the field is lower */
};

void mesh_free(struct mesh *mesh); /* NULL is allowed */

/* A field on a lattice of nodes[0] x nodes[1] x nodes[2], x fastest: node (x, y, z) lies at origin + spacing (x, y, z).
 */
struct mesh_field {
    size_t nodes[3];
    double origin[3], spacing[3]; /* spacing > 0 */
    const float *value;
};

/* How an extraction runs, and how it is stopped. */
struct mesh_watch {
    int threads;
    uint64_t most_bytes; /* of memory that the mesh may take; 0: any */
    /* Called from the calling thread every few tens of milliseconds, with what is done, 0..1; non-zero: stop. May be
     * NULL. */
    int (*progress)(void *context, double done);
    void *context;
};

/* The surface between nodes of value >= isovalue (inside) and < isovalue, by marching cubes (Lorensen and Cline,
 * doi:10.1145/37402.37422). Where two diagonal corners of a cell's face are inside, the surface separates them, in both
 * cells of the face (Montani et al., doi:10.1007/BF01900830): each edge of the mesh belongs to two triangles of
 * opposite sense, or, on the lattice's border, to one. No edge belongs to more. Vertices lie on the lattice's edges,
 * linear between its nodes; a node of just the isovalue is a vertex several times over, and triangles there may have
 * no area. Normals are those of central differences. Vertices and triangles are in one order for any number of threads
 * (rows are counted first, then filled: Schroeder et al., doi:10.1109/LDAV.2015.7348069). A field without a surface
 * gives a mesh of no triangles.
 * Fails with ERR_BAD_PARAMETER (a field with a value that is not finite, or an isovalue that is not), ERR_LIMIT (more
 * than 2^31 - 1 vertices or triangles), ERR_NO_MEMORY (watch->most_bytes, too), ERR_CANCELED. */
int mesh_surface(struct mesh **out, const struct mesh_field *field, double isovalue, const struct mesh_watch *watch);

struct mesh_measure {
    double area;
    double volume; /* inside; of a mesh that is closed */
    bool closed;   /* no edge belongs to one triangle only */
    int64_t euler; /* V - E + F: 2 for each sphere, 0 for each torus; of a mesh that is closed */
    size_t pieces; /* that share no vertex */
};

/* Of a mesh of mesh_surface(). Fails with ERR_NO_MEMORY. */
int mesh_measure(struct mesh_measure *out, const struct mesh *mesh);

/* ---- files ---- */

/* The forms a mesh is served in; names and media types are in mesh_formats.c, which links nothing. PLY: binary, with
 * normals; the native one. OBJ: text, with normals. STL: binary, a normal for each triangle. PNG: a picture. */
enum mesh_format { MESH_PLY, MESH_OBJ, MESH_STL, MESH_PNG, MESH_FORMATS };
extern const struct result_form mesh_form; /* of results that are meshes */

/* The most bytes that a mesh of this size takes as `format`; false: too many to be counted. */
bool mesh_file_most(size_t vertices, size_t triangles, enum mesh_format format, size_t *bytes);

/* Write `mesh` to `fd` (a file opened for writing, at 0) as `format`. Fails with ERR_IO, ERR_NO_MEMORY, ERR_SPOOL_FULL.
 */
int mesh_write(const struct mesh *mesh, enum mesh_format format, int fd);

/* Read back what mesh_write(MESH_PLY) wrote, or what somebody else put there: indices and numbers are checked. Fails
 * with ERR_IO, ERR_MALFORMED_FILE, ERR_NO_MEMORY. */
int mesh_read_ply(struct mesh **out, int fd);

/* As job_result.write() and .free(), of a struct mesh; as codec_converter.convert(). */
int mesh_result_write(const void *mesh, int format, int fd);
void mesh_result_free(void *mesh);
int mesh_convert(int in, int format, int out);

#endif
