/* nbody_mesh.h: the far part of gravity, on a mesh; the formulas are in nbody_gravity.h. Units: a mesh cell has the
 * length `cell`, and G is 1. All of it stays on the device, unless the mesh is transformed on the host beside a GPU. */
#ifndef MRIRECON_NBODY_MESH_H
#define MRIRECON_NBODY_MESH_H

#include "gridding/range/sums.h"

struct nbody_mesh;

/* A mesh of cells^3 cells; `split`: r_s in cells. reach > 0: open space, with a kernel truncated at this many cells; 0:
 * periodic. `cells` is nbody_mesh_round()ed. on_host: transforms on the host, as where nbody_mesh_serves() is false.
 * Fails with ERR_NO_MEMORY, ERR_GPU_OOM, ERR_NO_DEVICE. */
int nbody_mesh_create(struct nbody_mesh **out, struct dev *dev, int cells, double split, double reach, bool on_host);
void nbody_mesh_free(struct nbody_mesh *mesh);

/* Upper bounds of the `device` and `host` memory of a mesh; on a CPU, their sum is needed. */
void nbody_mesh_memory(const struct dev *dev, int cells, bool on_host, uint64_t *device, uint64_t *host);

/* Whether the device is a GPU that transforms such a mesh. */
bool nbody_mesh_serves(const struct dev *dev, int cells);

/* The window for spreading and interpolation, with cells of length `cell`. */
int nbody_mesh_window(struct range_law *law, double cell);

/* fields[4][count]: acceleration x, y, z, and potential, of `points` (in a box of the mesh's cells, each `cell` long)
 * with masses mass[count], in memory of the device. The listener (not NULL) is called by the sums, and once per plane
 * by transforms on the host. Fails with ERR_NO_MEMORY, ERR_DEVICE, ERR_CANCELED. */
int nbody_mesh_fields(struct nbody_mesh *mesh, const struct range_points *points, double cell, const float *mass,
                      float *fields, const struct listener *listener);

#endif
