/* Binary STL: 80 bytes of text (not beginning with "solid", which would be taken for the text form), the number of
 * triangles, and for each its normal, its three corners and two unused bytes. */
#include "recon/mesh/mesh_leaf.h"

#include <math.h>
#include <string.h>

enum { HEAD_BYTES = 80, RECORD_BYTES = 50 };

int mesh_write_stl(const struct mesh *mesh, int fd)
{
    char head[HEAD_BYTES] = "made by mrirecon";
    struct mesh_sink sink = {.fd = fd};
    const uint32_t count = (uint32_t)mesh->triangles;
    mesh_put(&sink, head, sizeof head);
    mesh_put(&sink, &count, sizeof count);
    for (size_t t = 0; t < mesh->triangles; t++) {
        char record[RECORD_BYTES] = "";
        double normal[3];
        float value[12];
        mesh_cross(mesh, t, normal);
        const double length = sqrt(normal[0] * normal[0] + normal[1] * normal[1] + normal[2] * normal[2]);
        for (int d = 0; d < 3; d++)
            value[d] = length > 0 ? (float)(normal[d] / length) : 0;
        for (int i = 0; i < 3; i++)
            memcpy(value + 3 + 3 * i, mesh->vertex[mesh->corner[t][i]].at, 3 * sizeof *value);
        memcpy(record, value, sizeof value);
        mesh_put(&sink, record, sizeof record);
    }
    return mesh_sink_end(&sink);
}
