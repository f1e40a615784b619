/* Wavefront OBJ: text, vertices numbered from 1. Nine digits preserve every float32. */
#include "recon/mesh/mesh_leaf.h"

int mesh_write_obj(const struct mesh *mesh, int fd)
{
    struct mesh_sink sink = {.fd = fd};
    mesh_print(&sink, "# made by mrirecon: %zu vertices, %zu triangles\n", mesh->vertices, mesh->triangles);
    for (size_t v = 0; v < mesh->vertices; v++) {
        const float *at = mesh->vertex[v].at;
        mesh_print(&sink, "v %.9g %.9g %.9g\n", (double)at[0], (double)at[1], (double)at[2]);
    }
    for (size_t v = 0; v < mesh->vertices; v++) {
        const float *normal = mesh->vertex[v].normal;
        mesh_print(&sink, "vn %.6f %.6f %.6f\n", (double)normal[0], (double)normal[1], (double)normal[2]);
    }
    for (size_t t = 0; t < mesh->triangles; t++) {
        const uint32_t *c = mesh->corner[t];
        mesh_print(&sink, "f %u//%u %u//%u %u//%u\n", c[0] + 1, c[0] + 1, c[1] + 1, c[1] + 1, c[2] + 1, c[2] + 1);
    }
    return mesh_sink_end(&sink);
}
