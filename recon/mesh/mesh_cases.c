/* mesh_cases.c: the 256 cases of marching cubes, generated from one rule.
 *
 * Around each face of a cell, seen from outside and anticlockwise, each run of inside corners is cut off by a segment
 * from the edge by which the walk enters the run to the edge by which it leaves. A face's segments follow from its four
 * corners alone, and the neighbouring cell has the same ones reversed: surfaces fit together, with a consistent
 * orientation. An edge is entered in one of its faces and left in the other, so the segments of a cell's faces form
 * closed polygons (of 3 to 7 edges). These are cut into triangles by diagonals that do not lie in a face, where the
 * other cell could have the same; for every case there are such. */
#include "recon/mesh/mesh_leaf.h"

#include <string.h>

enum { CORNERS = 8, FACES = 6, NO_EDGE = 255, LONGEST = 12 };

/* Corners of the faces, anticlockwise as seen from outside. */
static const uint8_t faces[FACES][4] = {
    {0, 2, 3, 1}, /* x = 0 */
    {4, 5, 7, 6}, /* x = 1 */
    {0, 4, 6, 2}, /* y = 0 */
    {1, 3, 7, 5}, /* y = 1 */
    {0, 1, 5, 4}, /* z = 0 */
    {2, 6, 7, 3}, /* z = 1 */
};

static int edge_between(int a, int b)
{
    const int axis = a ^ b, low = a & b;
    return axis == 4 ? low : axis == 1 ? 4 + low / 2 : 8 + (low & 1) + (low >> 2) * 2;
}

/* Whether both edges belong to one face. */
static bool share_face(int a, int b)
{
    for (int f = 0; f < FACES; f++) {
        int found = 0;
        for (int i = 0; i < 4; i++) {
            const int edge = edge_between(faces[f][i], faces[f][(i + 1) % 4]);
            found += edge == a || edge == b;
        }
        if (found == 2)
            return true;
    }
    return false;
}

/* next[edge]: the edge that follows in the polygon. */
static void segments_find(int inside, uint8_t next[CELL_EDGES])
{
    memset(next, NO_EDGE, CELL_EDGES);
    for (int f = 0; f < FACES; f++)
        for (int i = 0; i < 4; i++) {
            const uint8_t *face = faces[f];
            if (inside >> face[i] & 1 || !(inside >> face[(i + 1) % 4] & 1))
                continue;
            int end = i + 1;
            while (inside >> face[(end + 1) % 4] & 1)
                end++;
            next[edge_between(face[i], face[(i + 1) % 4])] = (uint8_t)edge_between(face[end % 4], face[(end + 1) % 4]);
        }
}

/* Triangles of the polygon's part from `from` to `to` and the line between these; false: not without a diagonal in a
 * face. */
static bool polygon_cut(struct mesh_case *of, const uint8_t *polygon, int from, int to)
{
    if (to - from < 2)
        return true;
    for (int middle = from + 1; middle < to; middle++) {
        const int before = of->triangles;
        if ((middle - from > 1 && share_face(polygon[from], polygon[middle])) ||
            (to - middle > 1 && share_face(polygon[middle], polygon[to])))
            continue;
        const uint8_t triangle[3] = {polygon[from], polygon[middle], polygon[to]};
        memcpy(of->edge[of->triangles++], triangle, sizeof triangle);
        if (polygon_cut(of, polygon, from, middle) && polygon_cut(of, polygon, middle, to))
            return true;
        of->triangles = (uint8_t)before;
    }
    return false;
}

void mesh_cases_make(struct mesh_case cases[CELL_CASES])
{
    for (int inside = 0; inside < CELL_CASES; inside++) {
        uint8_t next[CELL_EDGES];
        segments_find(inside, next);
        cases[inside].triangles = 0;
        for (int first = 0; first < CELL_EDGES; first++) {
            uint8_t polygon[LONGEST];
            int length = 0;
            for (int edge = first; next[edge] != NO_EDGE;) {
                polygon[length++] = (uint8_t)edge;
                const int then = next[edge];
                next[edge] = NO_EDGE;
                edge = then;
            }
            polygon_cut(&cases[inside], polygon, 0, length - 1);
        }
    }
}
