/* mesh_surface.c: marching cubes, row by row of the lattice. A first pass counts, for each row, the crossings on the
 * edges that begin at its nodes (along x, y and z) and the triangles of its cells. Prefix sums of these counts give
 * each row its place in the output, and each crossing its vertex number; a second pass writes them. No two threads
 * write the same place. */
#include "recon/mesh/mesh_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_NODES = 1 << 21 }; /* between two calls of progress() */

/* Prefix sums at a row, and the numbers of its crossings along x and y (those along z follow). Vertices are ordered by
 * rows, and within a row along x, y, z. */
struct row {
    uint64_t vertex, triangle;
    uint32_t along[2];
};

struct extraction {
    const struct mesh_field *field;
    const struct mesh_watch *watch;
    float isovalue;
    struct row *rows; /* [z][y], one more at the end */
    uint8_t *columns; /* [threads][nodes[0]] */
    struct mesh_case cases[CELL_CASES];
    struct mesh *mesh;
    double done, share; /* last value passed to progress(), and the share of this pass */
};

static const float *row_of(const struct mesh_field *field, size_t y, size_t z)
{
    return field->value + (z * field->nodes[1] + y) * field->nodes[0];
}

/* Whether the nodes of rows (y, z), (y + 1, z), (y, z + 1), (y + 1, z + 1) are inside, as bits 0 to 3 of column[x]. At
 * the lattice's border a missing row is replaced by its neighbour, so that there are no crossings. Returns whether
 * there is any crossing between or along these rows. */
static bool columns_find(const struct extraction *e, size_t y, size_t z, uint8_t *column)
{
    const size_t *nodes = e->field->nodes, y1 = y + 1 < nodes[1] ? y + 1 : y, z1 = z + 1 < nodes[2] ? z + 1 : z;
    const float *a = row_of(e->field, y, z), *b = row_of(e->field, y1, z), *c = row_of(e->field, y, z1),
                *d = row_of(e->field, y1, z1), level = e->isovalue;
    unsigned any = 0, all = 15;
    for (size_t x = 0; x < nodes[0]; x++) {
        column[x] = (uint8_t)((a[x] >= level) | (b[x] >= level) << 1 | (c[x] >= level) << 2 | (d[x] >= level) << 3);
        any |= column[x];
        all &= column[x];
    }
    return any != 0 && all != 15;
}

static bool row_has_cells(const struct extraction *e, size_t y, size_t z)
{
    return y + 1 < e->field->nodes[1] && z + 1 < e->field->nodes[2];
}

/* The crossings on edges that begin in row (y, z) at x: along x (bit 0), y (bit 1), z (bit 2). */
static unsigned crossings(const uint8_t *column, size_t x, size_t nodes)
{
    const unsigned here = column[x], next = x + 1 < nodes ? column[x + 1] : here;
    return ((here ^ next) & 1) | ((here ^ here >> 1) & 1) << 1 | ((here ^ here >> 2) & 1) << 2;
}

/* ---- first pass ---- */

/* Counts of a row. -1: one of its values is not finite. */
static int row_count(const struct extraction *e, size_t number, uint8_t *column)
{
    const size_t nodes = e->field->nodes[0], y = number % e->field->nodes[1], z = number / e->field->nodes[1];
    const float *value = row_of(e->field, y, z);
    struct row *row = &e->rows[number];
    bool finite = true;
    for (size_t x = 0; x < nodes; x++)
        finite &= isfinite(value[x]) != 0;
    if (!finite)
        return -1;
    *row = (struct row){.vertex = 0};
    if (!columns_find(e, y, z, column))
        return 0;
    for (size_t x = 0; x < nodes; x++) {
        const unsigned crossed = crossings(column, x, nodes);
        row->along[0] += crossed & 1;
        row->along[1] += crossed >> 1 & 1;
        row->vertex += (unsigned)__builtin_popcount(crossed);
    }
    for (size_t x = 0; x + 1 < nodes && row_has_cells(e, y, z); x++)
        row->triangle += e->cases[column[x] | column[x + 1] << 4].triangles;
    return 0;
}

static int not_finite(const struct extraction *e, size_t number)
{
    const float *value = e->field->value + number * e->field->nodes[0];
    size_t x = 0;
    while (isfinite(value[x]))
        x++;
    return err_set(ERR_BAD_PARAMETER, "The field is %g at node (%zu, %zu, %zu); a surface needs finite values.",
                   (double)value[x], x, number % e->field->nodes[1], number / e->field->nodes[1]);
}

/* Replace counts by exclusive prefix sums. */
static void rows_sum(struct extraction *e, size_t rows)
{
    uint64_t vertices = 0, triangles = 0;
    for (size_t i = 0; i <= rows; i++) {
        const struct row row = e->rows[i];
        e->rows[i].vertex = vertices;
        e->rows[i].triangle = triangles;
        vertices += row.vertex;
        triangles += row.triangle;
    }
}

/* ---- second pass ---- */

/* The gradient at a node: central differences, one-sided at the border. */
static void gradient(const struct mesh_field *field, const size_t at[3], double out[3])
{
    size_t step = 1;
    const float *value = row_of(field, at[1], at[2]) + at[0];
    for (int d = 0; d < 3; d++) {
        const size_t before = at[d] > 0, behind = at[d] + 1 < field->nodes[d];
        const double rise = (double)value[behind * step] - (double)value[-(ptrdiff_t)(before * step)];
        out[d] = before + behind > 0 ? rise / ((double)(before + behind) * field->spacing[d]) : 0;
        step *= field->nodes[d];
    }
}

/* The crossing on the edge along `axis` that begins at a node. */
static struct mesh_vertex vertex_make(const struct extraction *e, const size_t node[3], int axis)
{
    const struct mesh_field *field = e->field;
    size_t other[3] = {node[0], node[1], node[2]};
    other[axis]++;
    const double a = (double)row_of(field, node[1], node[2])[node[0]],
                 b = (double)row_of(field, other[1], other[2])[other[0]], t = ((double)e->isovalue - a) / (b - a);
    struct mesh_vertex vertex;
    double here[3], there[3], normal[3], length = 0;
    gradient(field, node, here);
    gradient(field, other, there);
    for (int d = 0; d < 3; d++) {
        vertex.at[d] = (float)(field->origin[d] + field->spacing[d] * ((double)node[d] + (d == axis ? t : 0)));
        normal[d] = -(here[d] + t * (there[d] - here[d]));
        length += normal[d] * normal[d];
    }
    length = sqrt(length);
    /* Along the edge, the field does change. */
    for (int d = 0; d < 3; d++)
        vertex.normal[d] = length > 0 && isfinite(length) ? (float)(normal[d] / length)
                           : d == axis                    ? a > b ? 1 : -1
                                                          : 0;
    return vertex;
}

/* Vertex numbers of a row's next crossing along each axis. */
struct cursor {
    uint64_t next[3];
};

static struct cursor cursor_of(const struct extraction *e, size_t y, size_t z)
{
    const struct row *row = &e->rows[z * e->field->nodes[1] + y];
    return (struct cursor){{row->vertex, row->vertex + row->along[0], row->vertex + row->along[0] + row->along[1]}};
}

static void row_vertices(const struct extraction *e, size_t y, size_t z, const uint8_t *column)
{
    struct cursor cursor = cursor_of(e, y, z);
    for (size_t x = 0; x < e->field->nodes[0]; x++) {
        const unsigned crossed = crossings(column, x, e->field->nodes[0]);
        for (int axis = 0; axis < 3; axis++)
            if (crossed >> axis & 1)
                e->mesh->vertex[cursor.next[axis]++] = vertex_make(e, (const size_t[3]){x, y, z}, axis);
    }
}

/* The numbers of a cell's crossings, by the edges' places, from the cursors of its four rows, which then stand at the
 * next cell. Edges without a crossing get numbers that are not used. `here` and `next`: the columns at both ends. */
static void cell_edges(struct cursor row[4], unsigned here, unsigned next, uint64_t number[CELL_EDGES])
{
    static const uint8_t pair[4][2] = {{0, 1}, {2, 3}, {0, 2}, {1, 3}}; /* along y at both z, along z at both y */
    for (int i = 0; i < 4; i++) {
        number[i] = row[i].next[0];
        row[i].next[0] += (here ^ next) >> i & 1;
    }
    for (int i = 0; i < 4; i++) {
        uint64_t *at = &row[pair[i][0]].next[i < 2 ? 1 : 2];
        const int first = i < 2 ? 4 + i : 8 + i - 2; /* at the end of lower x; the other's place is 2 on */
        number[first] = *at;
        *at += (here >> pair[i][0] ^ here >> pair[i][1]) & 1;
        number[first + 2] = *at;
    }
}

static void row_triangles(const struct extraction *e, size_t y, size_t z, const uint8_t *column)
{
    struct cursor row[4] = {cursor_of(e, y, z), cursor_of(e, y + 1, z), cursor_of(e, y, z + 1),
                            cursor_of(e, y + 1, z + 1)};
    uint32_t(*corner)[3] = e->mesh->corner + e->rows[z * e->field->nodes[1] + y].triangle;
    for (size_t x = 0; x + 1 < e->field->nodes[0]; x++) {
        uint64_t number[CELL_EDGES];
        const struct mesh_case *cell = &e->cases[column[x] | column[x + 1] << 4];
        if (!cell->triangles)
            continue;
        cell_edges(row, column[x], column[x + 1], number);
        for (int t = 0; t < cell->triangles; t++, corner++)
            for (int i = 0; i < 3; i++)
                (*corner)[i] = (uint32_t)number[cell->edge[t][i]];
    }
}

static int row_fill(const struct extraction *e, size_t number, uint8_t *column)
{
    const size_t y = number % e->field->nodes[1], z = number / e->field->nodes[1];
    if (!columns_find(e, y, z, column))
        return 0;
    row_vertices(e, y, z, column);
    if (row_has_cells(e, y, z))
        row_triangles(e, y, z, column);
    return 0;
}

/* ---- both ---- */

/* A pass over all rows. *bad: the first row of which `visit` returned other than 0; else SIZE_MAX. */
static int pass(struct extraction *e, size_t rows, int (*visit)(const struct extraction *, size_t, uint8_t *),
                size_t *bad)
{
    const struct mesh_watch *watch = e->watch;
    const size_t batch = 1 + BATCH_NODES / e->field->nodes[0];
    size_t first_bad = SIZE_MAX;
    for (size_t from = 0; from < rows; from += batch) {
        const size_t to = from + batch < rows ? from + batch : rows;
        if (watch->progress && watch->progress(watch->context, e->done + e->share * (double)from / (double)rows) != 0)
            return err_set(ERR_CANCELED, "The job was canceled while the surface was extracted.");
#pragma omp parallel for schedule(dynamic, 16) num_threads(watch->threads) reduction(min : first_bad)
        for (size_t i = from; i < to; i++)
            if (visit(e, i, e->columns + (size_t)omp_get_thread_num() * e->field->nodes[0]) != 0)
                first_bad = i < first_bad ? i : first_bad;
    }
    e->done += e->share;
    *bad = first_bad;
    return 0;
}

static int mesh_allocate(struct extraction *e, const struct row *all)
{
    const uint64_t bytes = all->vertex * sizeof *e->mesh->vertex + all->triangle * sizeof *e->mesh->corner;
    if (all->vertex > INT32_MAX || all->triangle > INT32_MAX)
        return err_set(ERR_LIMIT,
                       "The surface has %llu vertices and %llu triangles; the limit is %d of each. Choose a larger "
                       "spacing or another isovalue.",
                       (unsigned long long)all->vertex, (unsigned long long)all->triangle, INT32_MAX);
    if (e->watch->most_bytes && bytes > e->watch->most_bytes)
        return err_no_memory_bytes(bytes, "a surface of %llu triangles, which takes %.1f MB where %.1f MB are free",
                                   (unsigned long long)all->triangle, 1e-6 * (double)bytes,
                                   1e-6 * (double)e->watch->most_bytes);
    return mesh_create(&e->mesh, (size_t)all->vertex, (size_t)all->triangle);
}

static int extract(struct extraction *e, size_t rows)
{
    size_t bad;
    mesh_cases_make(e->cases);
    e->share = 0.4;
    int rc = pass(e, rows, row_count, &bad);
    if (rc == 0 && bad != SIZE_MAX)
        rc = not_finite(e, bad);
    if (rc != 0)
        return rc;
    rows_sum(e, rows);
    rc = mesh_allocate(e, &e->rows[rows]);
    e->share = 0.6;
    return rc == 0 ? pass(e, rows, row_fill, &bad) : rc;
}

int mesh_surface(struct mesh **out, const struct mesh_field *field, double isovalue, const struct mesh_watch *watch)
{
    struct extraction e = {.field = field, .watch = watch, .isovalue = (float)isovalue};
    const size_t rows = field->nodes[1] * field->nodes[2];
    if (!isfinite(e.isovalue))
        return err_set(ERR_BAD_PARAMETER, "The isovalue is %g; it must be finite.", isovalue);
    /* Without cells there are no triangles to which vertices could belong. */
    if (field->nodes[0] < 2 || field->nodes[1] < 2 || field->nodes[2] < 2)
        return mesh_create(out, 0, 0);
    e.rows = calloc(rows + 1, sizeof *e.rows);
    e.columns = malloc((size_t)watch->threads * field->nodes[0]);
    int rc = e.rows && e.columns ? extract(&e, rows)
                                 : err_no_memory_bytes((rows + 1) * sizeof *e.rows, "the rows of a surface");
    free(e.rows);
    free(e.columns);
    if (rc == 0)
        *out = e.mesh;
    else
        mesh_free(e.mesh);
    return rc;
}
