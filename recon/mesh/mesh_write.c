#include "recon/mesh/mesh_leaf.h"

bool mesh_file_most(size_t vertices, size_t triangles, enum mesh_format format, size_t *bytes)
{
    /* OBJ: numbers of 16 characters ("-1.23456789e-38"), normals of 10, indices of 10, and separators. PNG: 3 bytes per
     * pixel; incompressible data grow by at most a hundredth. */
    static const struct {
        size_t vertex, triangle, file;
    } size[MESH_FORMATS] = {
        [MESH_PLY] = {24, 13, 1024},
        [MESH_OBJ] = {2 + 3 * 17 + 3 + 3 * 11, 2 + 3 * 23, 128},
        [MESH_STL] = {0, 50, 84},
        [MESH_PNG] = {0, 0, 4096 + (size_t)MESH_PICTURE * MESH_PICTURE * 3 * 101 / 100},
    };
    size_t of_vertices, of_triangles;
    return size_mul(vertices, size[format].vertex, &of_vertices) &&
           size_mul(triangles, size[format].triangle, &of_triangles) && size_add(of_vertices, of_triangles, bytes) &&
           size_add(*bytes, size[format].file, bytes);
}

int mesh_write(const struct mesh *mesh, enum mesh_format format, int fd)
{
    static int (*const write_as[MESH_FORMATS])(const struct mesh *, int) = {[MESH_PLY] = mesh_write_ply,
                                                                            [MESH_OBJ] = mesh_write_obj,
                                                                            [MESH_STL] = mesh_write_stl,
                                                                            [MESH_PNG] = mesh_write_png};
    return write_as[format](mesh, fd);
}

int mesh_result_write(const void *mesh, int format, int fd)
{
    return mesh_write(mesh, (enum mesh_format)format, fd);
}

void mesh_result_free(void *mesh)
{
    mesh_free(mesh);
}

int mesh_convert(int in, int format, int out)
{
    struct mesh *mesh = NULL;
    int rc = mesh_read_ply(&mesh, in);
    if (rc == 0)
        rc = mesh_write(mesh, (enum mesh_format)format, out);
    mesh_free(mesh);
    return rc;
}
