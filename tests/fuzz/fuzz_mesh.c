/* libFuzzer target: the PLY files that the codec reads back (recon/mesh/mesh_ply.c), and the surfaces of fields
 * (recon/mesh/mesh_surface.c). An input that begins with "p" is a PLY file after that byte; any other gives the values
 * of a field, one byte each. */
#include "recon/mesh/mesh.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

static int memory_file(void)
{
    const int fd = memfd_create("mesh", MFD_CLOEXEC);
    check(fd >= 0);
    return fd;
}

/* A mesh that was read can be written, within the estimated size, and is read back from PLY. */
static void check_written(const struct mesh *mesh, bool picture)
{
    for (int format = 0; format < MESH_FORMATS; format++) {
        struct mesh *back = NULL;
        size_t most;
        if (format == MESH_PNG && !picture)
            continue;
        const int fd = memory_file();
        check(mesh_write(mesh, (enum mesh_format)format, fd) == 0);
        check(mesh_file_most(mesh->vertices, mesh->triangles, (enum mesh_format)format, &most));
        check((size_t)lseek(fd, 0, SEEK_END) <= most);
        if (format == MESH_PLY) {
            check(mesh_read_ply(&back, fd) == 0);
            check(back->vertices == mesh->vertices && back->triangles == mesh->triangles);
            check(memcmp(back->corner, mesh->corner, mesh->triangles * sizeof *mesh->corner) == 0);
            mesh_free(back);
        }
        close(fd);
    }
}

static void read_ply(const uint8_t *data, size_t size)
{
    struct mesh *mesh = NULL;
    const int fd = memory_file();
    check(write(fd, data, size) == (ssize_t)size);
    if (check_result(mesh_read_ply(&mesh, fd))) {
        for (size_t t = 0; t < mesh->triangles; t++)
            for (int i = 0; i < 3; i++)
                check(mesh->corner[t][i] < mesh->vertices);
        /* A picture takes 30 ms, and more if triangles are large, so only one in 64 is drawn. */
        check_written(mesh, mesh->triangles < 4 && size % 64 == 0);
    }
    mesh_free(mesh);
    close(fd);
}

/* A cube of 2 to 8 nodes per side inside a border below the isovalue: its surface must be closed. */
static void extract(const uint8_t *data, size_t size)
{
    enum { MOST = 10 };
    float value[MOST * MOST * MOST];
    struct mesh_measure measure;
    struct mesh *mesh = NULL;
    const size_t inner = 2 + data[0] % 7, nodes = inner + 2;
    const struct mesh_watch watch = {.threads = 1};
    const struct mesh_field field = {{nodes, nodes, nodes}, {0, 0, 0}, {1, 2, 0.5}, value};
    for (size_t i = 0; i < nodes * nodes * nodes; i++)
        value[i] = -1000;
    for (size_t i = 1; i < size && i <= inner * inner * inner; i++)
        value[(((i - 1) / inner / inner + 1) * nodes + (i - 1) / inner % inner + 1) * nodes + (i - 1) % inner + 1] =
            (float)(int8_t)data[i];
    check(mesh_surface(&mesh, &field, 0, &watch) == 0);
    check(mesh_measure(&measure, mesh) == 0);
    check(measure.closed && measure.area >= 0 && measure.volume >= -1e-6 && measure.euler % 2 == 0);
    check_written(mesh, false);
    mesh_free(mesh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 'p')
        read_ply(data + 1, size - 1);
    else if (size > 0)
        extract(data, size);
    return 0;
}
