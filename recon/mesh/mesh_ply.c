/* PLY, the Stanford triangle format: a header of text, then binary vertices and faces, little-endian, as this machine.
 * The reader accepts only files of this writer. */
#include "recon/mesh/mesh_leaf.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "vertices and faces are written as they lie in memory");
_Static_assert(sizeof(struct mesh_vertex) == 24, "a vertex is one record of the file");

enum { FACE_BYTES = 1 + 3 * sizeof(uint32_t), HEAD_MOST = 1024 };

static const char head_format[] = "ply\nformat binary_little_endian 1.0\ncomment made by mrirecon\n"
                                  "element vertex %zu\nproperty float x\nproperty float y\nproperty float z\n"
                                  "property float nx\nproperty float ny\nproperty float nz\n"
                                  "element face %zu\nproperty list uchar int vertex_indices\nend_header\n";

int mesh_write_ply(const struct mesh *mesh, int fd)
{
    struct mesh_sink sink = {.fd = fd};
    mesh_print(&sink, head_format, mesh->vertices, mesh->triangles);
    mesh_put(&sink, mesh->vertex, mesh->vertices * sizeof *mesh->vertex);
    for (size_t t = 0; t < mesh->triangles; t++) {
        char face[FACE_BYTES] = {3};
        memcpy(face + 1, mesh->corner[t], sizeof mesh->corner[t]);
        mesh_put(&sink, face, sizeof face);
    }
    return mesh_sink_end(&sink);
}

/* ---- reading ---- */

static int damaged(const char *what)
{
    return err_set(ERR_MALFORMED_FILE, "The mesh cannot be read back: %s. Run the job again.", what);
}

static int read_all(int fd, off_t at, void *to, size_t bytes)
{
    char *into = to;
    while (bytes > 0) {
        const ssize_t got = pread(fd, into, bytes, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(ERR_IO, "The mesh cannot be read (%s).", strerror(errno));
        if (got == 0)
            return damaged("the file ends early");
        into += got;
        at += got;
        bytes -= (size_t)got;
    }
    return 0;
}

/* Parse the sizes in a header. Returns its length; 0: not written by this program. */
static size_t head_parse(const char *text, size_t *vertices, size_t *triangles)
{
    char same[HEAD_MOST];
    if (sscanf(text, "ply\nformat binary_little_endian 1.0\ncomment made by mrirecon\nelement vertex %10zu",
               vertices) != 1)
        return 0;
    const char *faces = strstr(text, "element face ");
    if (!faces || sscanf(faces, "element face %10zu", triangles) != 1)
        return 0;
    const int length = snprintf(same, sizeof same, head_format, *vertices, *triangles);
    return strncmp(same, text, (size_t)length) == 0 ? (size_t)length : 0;
}

static int vertices_check(const struct mesh *mesh)
{
    for (size_t v = 0; v < mesh->vertices; v++)
        for (int d = 0; d < 3; d++)
            if (!isfinite(mesh->vertex[v].at[d]) || !(fabsf(mesh->vertex[v].normal[d]) <= 1.001f))
                return damaged("a vertex is no number");
    return 0;
}

static int faces_read(struct mesh *mesh, int fd, off_t at)
{
    enum { TOGETHER = 4096 };
    char faces[TOGETHER * FACE_BYTES];
    for (size_t t = 0; t < mesh->triangles; t += TOGETHER) {
        const size_t count = mesh->triangles - t < TOGETHER ? mesh->triangles - t : TOGETHER;
        const int rc = read_all(fd, at + (off_t)(t * FACE_BYTES), faces, count * FACE_BYTES);
        if (rc != 0)
            return rc;
        for (size_t i = 0; i < count; i++) {
            uint32_t *corner = mesh->corner[t + i];
            memcpy(corner, faces + i * FACE_BYTES + 1, 3 * sizeof *corner);
            if (faces[i * FACE_BYTES] != 3 || corner[0] >= mesh->vertices || corner[1] >= mesh->vertices ||
                corner[2] >= mesh->vertices)
                return damaged("a face refers to a vertex that does not exist");
        }
    }
    return 0;
}

int mesh_read_ply(struct mesh **out, int fd)
{
    char text[HEAD_MOST + 1] = "";
    size_t vertices, triangles;
    struct mesh *mesh = NULL;
    /* lseek: the codec's sandbox does not allow fstat. */
    const off_t bytes = lseek(fd, 0, SEEK_END);
    const ssize_t got = pread(fd, text, HEAD_MOST, 0);
    if (bytes < 0 || got < 0)
        return err_set(ERR_IO, "The mesh cannot be read (%s).", strerror(errno));
    const size_t head = head_parse(text, &vertices, &triangles);
    /* Counts have at most ten digits, so this cannot overflow. */
    if (!head || head + vertices * sizeof *mesh->vertex + triangles * FACE_BYTES != (size_t)bytes)
        return damaged("its header does not describe the file");
    int rc = mesh_create(&mesh, vertices, triangles);
    if (rc == 0)
        rc = read_all(fd, (off_t)head, mesh->vertex, vertices * sizeof *mesh->vertex);
    if (rc == 0)
        rc = vertices_check(mesh);
    if (rc == 0)
        rc = faces_read(mesh, fd, (off_t)(head + vertices * sizeof *mesh->vertex));
    if (rc == 0)
        *out = mesh;
    else
        mesh_free(mesh);
    return rc;
}
