/* Surfaces of molecules (recon/mesh/): the time to extract, measure, draw and write one. One JSON line per lattice: the
 * minimum of three runs, in seconds of wall-clock time.
 *
 *   bench_mesh [threads] */
#include "recon/mesh/mesh.h"
#include "tests/bench/bench.h"

#include <sys/mman.h>
#include <unistd.h>

enum { RUNS = 3, ATOMS = 3000 };

/* ATOMS random blobs of radius 1.7 in a cube of 36 angstroms, as dense as proteins with their hydrogens, summed by a
 * plain loop that is not timed. */
static float *density(size_t nodes, double spacing)
{
    float *value = take(nodes * nodes * nodes * sizeof *value);
    const double radius = 1.7, reach = 2.16 * radius;
    for (size_t i = 0; i < nodes * nodes * nodes; i++)
        value[i] = 0;
    for (size_t a = 0; a < ATOMS; a++) {
        size_t from[3], to[3];
        double at[3];
        for (int d = 0; d < 3; d++) {
            at[d] = 4 + 36 * uniform(3 * a + (size_t)d);
            from[d] = (size_t)((at[d] - reach) / spacing) + 1;
            to[d] = (size_t)((at[d] + reach) / spacing) + 1;
        }
        for (size_t z = from[2]; z < to[2]; z++)
            for (size_t y = from[1]; y < to[1]; y++)
                for (size_t x = from[0]; x < to[0]; x++) {
                    const double off[3] = {(double)x * spacing - at[0], (double)y * spacing - at[1],
                                           (double)z * spacing - at[2]};
                    const double r2 = off[0] * off[0] + off[1] * off[1] + off[2] * off[2];
                    value[(z * nodes + y) * nodes + x] += (float)exp(-2.5 * (r2 / (radius * radius) - 1));
                }
    }
    return value;
}

static double file_seconds(const struct mesh *mesh, enum mesh_format format)
{
    double least = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        const int fd = memfd_create("mesh", 0);
        const double start = clock_seconds();
        must(mesh_write(mesh, format, fd), "mesh_write");
        least = fmin(least, clock_seconds() - start);
        close(fd);
    }
    return least;
}

static void run(double spacing, int threads)
{
    const size_t nodes = (size_t)(44 / spacing) + 1;
    float *value = density(nodes, spacing);
    const struct mesh_field field = {{nodes, nodes, nodes}, {0, 0, 0}, {spacing, spacing, spacing}, value};
    const struct mesh_watch watch = {.threads = threads};
    struct mesh *mesh = NULL;
    struct mesh_measure measure;
    double extract = INFINITY, measured = INFINITY;
    for (int i = 0; i < RUNS; i++) {
        mesh_free(mesh);
        double start = clock_seconds();
        must(mesh_surface(&mesh, &field, 1, &watch), "mesh_surface");
        extract = fmin(extract, clock_seconds() - start);
        start = clock_seconds();
        must(mesh_measure(&measure, mesh), "mesh_measure");
        measured = fmin(measured, clock_seconds() - start);
    }
    printf("{\"nodes\":%zu,\"threads\":%d,\"triangles\":%zu,\"closed\":%s,\"surface_s\":%.4f,\"measure_s\":%.4f,"
           "\"ply_s\":%.4f,\"obj_s\":%.4f,\"stl_s\":%.4f,\"png_s\":%.4f}\n",
           nodes, threads, mesh->triangles, measure.closed ? "true" : "false", extract, measured,
           file_seconds(mesh, MESH_PLY), file_seconds(mesh, MESH_OBJ), file_seconds(mesh, MESH_STL),
           file_seconds(mesh, MESH_PNG));
    fflush(stdout);
    mesh_free(mesh);
    free(value);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    for (double spacing = 0.4; spacing > 0.09; spacing /= 2)
        run(spacing, threads);
    return 0;
}
