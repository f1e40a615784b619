#include "recon/mesh/mesh_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

int mesh_create(struct mesh **out, size_t vertices, size_t triangles)
{
    struct mesh *mesh = calloc(1, sizeof *mesh);
    if (!mesh)
        return err_no_memory("a mesh");
    mesh->vertices = vertices;
    mesh->triangles = triangles;
    mesh->vertex = malloc((vertices + 1) * sizeof *mesh->vertex);
    mesh->corner = malloc((triangles + 1) * sizeof *mesh->corner);
    if (!mesh->vertex || !mesh->corner) {
        mesh_free(mesh);
        return err_no_memory_bytes(vertices * sizeof *mesh->vertex + triangles * sizeof *mesh->corner,
                                   "a mesh of %zu triangles", triangles);
    }
    *out = mesh;
    return 0;
}

void mesh_free(struct mesh *mesh)
{
    if (!mesh)
        return;
    free(mesh->vertex);
    free(mesh->corner);
    free(mesh);
}

void mesh_cross(const struct mesh *mesh, size_t triangle, double normal[3])
{
    const float *at[3];
    double side[2][3];
    for (int i = 0; i < 3; i++)
        at[i] = mesh->vertex[mesh->corner[triangle][i]].at;
    for (int d = 0; d < 3; d++) {
        side[0][d] = (double)at[1][d] - (double)at[0][d];
        side[1][d] = (double)at[2][d] - (double)at[0][d];
    }
    for (int d = 0; d < 3; d++) {
        const int e = (d + 1) % 3, f = (d + 2) % 3;
        normal[d] = side[0][e] * side[1][f] - side[0][f] * side[1][e];
    }
}

/* ---- measures ---- */

static uint32_t root_of(uint32_t *parent, uint32_t vertex)
{
    while (parent[vertex] != vertex) {
        parent[vertex] = parent[parent[vertex]];
        vertex = parent[vertex];
    }
    return vertex;
}

static size_t pieces_count(const struct mesh *mesh, uint32_t *parent)
{
    size_t pieces = mesh->vertices;
    for (size_t v = 0; v < mesh->vertices; v++)
        parent[v] = (uint32_t)v;
    for (size_t t = 0; t < mesh->triangles; t++)
        for (int i = 1; i < 3; i++) {
            const uint32_t a = root_of(parent, mesh->corner[t][0]), b = root_of(parent, mesh->corner[t][i]);
            pieces -= a != b;
            /* The lower number becomes the root: this keeps paths short, because vertices are numbered in the order of
             * extraction. */
            parent[a > b ? a : b] = a > b ? b : a;
        }
    return pieces;
}

/* Around a vertex inside a closed mesh, every triangle's edge from it is another's edge to it: the sums over the
 * triangles of a vertex of (next corner) and of (corner before) are equal. A vertex of an edge that belongs to one
 * triangle only has a fan that begins and ends at two different vertices. */
static bool closed(const struct mesh *mesh, int64_t *balance)
{
    for (size_t v = 0; v < mesh->vertices; v++)
        balance[v] = 0;
    for (size_t t = 0; t < mesh->triangles; t++)
        for (int i = 0; i < 3; i++) {
            const uint32_t *corner = mesh->corner[t];
            balance[corner[i]] += (int64_t)corner[(i + 1) % 3] - (int64_t)corner[(i + 2) % 3];
        }
    for (size_t v = 0; v < mesh->vertices; v++)
        if (balance[v] != 0)
            return false;
    return true;
}

int mesh_measure(struct mesh_measure *out, const struct mesh *mesh)
{
    /* Memory for the larger of the two, the balance. */
    int64_t *room = malloc((mesh->vertices + 1) * sizeof *room);
    double area = 0, volume = 0;
    if (!room)
        return err_no_memory_bytes(mesh->vertices * sizeof *room, "measuring a mesh of %zu vertices", mesh->vertices);
    for (size_t t = 0; t < mesh->triangles; t++) {
        const float *from = mesh->vertex[0].at, *at = mesh->vertex[mesh->corner[t][0]].at;
        double normal[3], height = 0;
        mesh_cross(mesh, t, normal);
        for (int d = 0; d < 3; d++)
            height += normal[d] * ((double)at[d] - (double)from[d]);
        area += sqrt(normal[0] * normal[0] + normal[1] * normal[1] + normal[2] * normal[2]) / 2;
        volume += height / 6;
    }
    *out = (struct mesh_measure){
        .area = area,
        .volume = volume,
        .closed = closed(mesh, room),
        .euler = (int64_t)mesh->vertices - (int64_t)(mesh->triangles / 2),
        .pieces = pieces_count(mesh, (uint32_t *)room),
    };
    free(room);
    return 0;
}
