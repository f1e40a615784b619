/* The picture of a mesh as PNG. */
#include "recon/mesh/mesh_leaf.h"

#include <stdlib.h>

int mesh_write_png(const struct mesh *mesh, int fd)
{
    struct picture picture;
    int rc = mesh_render(&picture, mesh);
    if (rc != 0)
        return rc;
    rc = picture_write_png(&picture, fd);
    free(picture.pixels);
    return rc;
}
