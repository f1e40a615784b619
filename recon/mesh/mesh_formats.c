/* The names of the mesh formats, separate from their writers, which the daemon does not link. */
#include "recon/mesh/mesh.h"

static const struct file_format formats[] = {
    [MESH_PLY] = {"ply", "application/x-ply"}, [MESH_OBJ] = {"obj", "model/obj"}, [MESH_STL] = {"stl", "model/stl"},
    [MESH_PNG] = {"png", "image/png"},         [MESH_FORMATS] = {.name = NULL},
};

const struct result_form mesh_form = {"mesh", formats, false};
