/* The names of the mesh formats, apart from their writers: the daemon serves meshes and links none of these. */
#include "recon/mesh/mesh.h"

static const struct file_format formats[] = {
    [MESH_PLY] = {"ply", "application/x-ply"}, [MESH_OBJ] = {"obj", "model/obj"}, [MESH_STL] = {"stl", "model/stl"},
    [MESH_PNG] = {"png", "image/png"},         [MESH_FORMATS] = {.name = NULL},
};

const struct result_form mesh_form = {"mesh", formats, false};
