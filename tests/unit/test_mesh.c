/* Isosurfaces (recon/mesh/mesh.h): area and volume compared with those of spheres and tori; surfaces of any field are
 * closed. */
#include "tests/unit/mesh_fixture.h"

static double torus(const double at[3])
{
    const double ring = sqrt(at[0] * at[0] + at[1] * at[1]) - 1;
    return 0.4 - sqrt(ring * ring + at[2] * at[2]);
}

/* ---- whether a mesh is a surface ---- */

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool on_border(const struct mesh_field *field, const struct mesh_vertex *vertex)
{
    bool border = false;
    for (int d = 0; d < 3; d++)
        border = border || vertex->at[d] == 0 || vertex->at[d] == (float)(field->nodes[d] - 1);
    return border;
}

/* No edge may occur twice in the same direction. Returns the number of edges without an opposite edge, all of which
 * must be on the border. */
static size_t open_edges(const struct mesh *mesh, const struct mesh_field *field)
{
    const size_t count = 3 * mesh->triangles;
    uint64_t *edge = allocate(count, sizeof *edge);
    size_t open = 0;
    for (size_t i = 0; i < count; i++)
        edge[i] = (uint64_t)mesh->corner[i / 3][i % 3] << 32 | mesh->corner[i / 3][(i + 1) % 3];
    qsort(edge, count, sizeof *edge, by_value);
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || edge[i] != edge[i - 1]);
        assert_true((uint32_t)edge[i] < mesh->vertices && edge[i] >> 32 < mesh->vertices);
        const uint64_t back = edge[i] << 32 | edge[i] >> 32;
        if (bsearch(&back, edge, count, sizeof *edge, by_value))
            continue;
        open++;
        assert_true(on_border(field, &mesh->vertex[edge[i] >> 32]) &&
                    on_border(field, &mesh->vertex[(uint32_t)edge[i]]));
    }
    free(edge);
    return open;
}

static void random_fields_give_closed_surfaces(void **state)
{
    (void)state;
    /* Noise contains all 256 cell cases next to each other; with few levels, nodes lie on the isovalue. 3 nodes are the
     * least number with an interior. */
    static const size_t sizes[][3] = {{24, 17, 19}, {3, 3, 3}, {64, 5, 4}, {4, 5, 64}, {7, 64, 3}};
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct mesh_field field = field_random(sizes[seed % 5], seed, seed % 3 == 0 ? 0 : seed % 3 == 1 ? 4 : 2, -1);
        struct mesh *mesh = surface_of(&field, seed % 3 == 0 ? 0.5 : 1);
        struct mesh_measure measure;
        assert_int_equal(open_edges(mesh, &field), 0);
        assert_int_equal(mesh_measure(&measure, mesh), 0);
        assert_true(measure.closed);
        assert_true(measure.volume >= 0);
        assert_int_equal(measure.euler % 2, 0);
        mesh_free(mesh);
        field_free(&field);
    }
}

static void surfaces_are_open_at_the_border_only(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct mesh_field field = field_random((const size_t[3]){13, 17, 11}, seed, seed % 2 ? 3 : 0, NAN);
        struct mesh *mesh = surface_of(&field, seed % 2 ? 1 : 0.5);
        struct mesh_measure measure;
        assert_true(open_edges(mesh, &field) > 0);
        assert_int_equal(mesh_measure(&measure, mesh), 0);
        assert_false(measure.closed);
        mesh_free(mesh);
        field_free(&field);
    }
}

/* ---- measures ---- */

/* Relative errors of area and volume as the spacing is halved. Chords of length h on a curvature of 1 / r lie h^2 / 8 r
 * below it, so errors are of order h^2 and fall by a factor of 4. */
static void converges(double (*value)(const double at[3]), double area, double volume, int64_t euler, double smallest)
{
    double before[2] = {0, 0};
    for (size_t nodes = 17; nodes <= 65; nodes = 2 * nodes - 1) {
        struct mesh_field field = field_make(nodes, -1.53, 1.53, value);
        struct mesh *mesh = surface_of(&field, 0);
        struct mesh_measure measure;
        assert_int_equal(mesh_measure(&measure, mesh), 0);
        assert_true(measure.closed);
        assert_int_equal(measure.euler, euler);
        assert_int_equal(measure.pieces, 1);
        const double h = field.spacing[0] / smallest, error[2] = {1 - measure.area / area, 1 - measure.volume / volume};
        for (int i = 0; i < 2; i++) {
            assert_true(error[i] > 0 && error[i] < h * h);
            /* The limit is 4. */
            assert_true(nodes == 17 || error[i] < before[i] / 3);
            before[i] = error[i];
        }
        mesh_free(mesh);
        field_free(&field);
    }
}

static void spheres_and_tori_converge(void **state)
{
    (void)state;
    const double pi = 3.14159265358979;
    converges(ball, 4 * pi, 4 * pi / 3, 2, 1);
    converges(torus, 4 * pi * pi * 0.4, 2 * pi * pi * 0.16, 0, 0.4);
}

static void normals_and_corners_look_outwards(void **state)
{
    (void)state;
    struct mesh_field field = field_make(61, -1.5, 1.5, ball);
    struct mesh *mesh = surface_of(&field, 0);
    for (size_t v = 0; v < mesh->vertices; v++) {
        const struct mesh_vertex *vertex = &mesh->vertex[v];
        double along = 0, length = 0;
        for (int d = 0; d < 3; d++) {
            along += (double)vertex->normal[d] * (double)vertex->at[d];
            length += (double)vertex->normal[d] * (double)vertex->normal[d];
        }
        /* Central differences of r err by h^2 / 6 r^2 = 4e-4; the sphere's vertices lie within h^2 / 8 of it. */
        assert_true(along > 0.999 && along < 1.001);
        assert_true(fabs(length - 1) < 1e-6);
    }
    for (size_t t = 0; t < mesh->triangles; t++) {
        const float *at[3];
        double out = 0;
        for (int i = 0; i < 3; i++)
            at[i] = mesh->vertex[mesh->corner[t][i]].at;
        for (int d = 0; d < 3; d++) {
            const int e = (d + 1) % 3, f = (d + 2) % 3;
            out += (double)at[0][d] * (((double)at[1][e] - (double)at[0][e]) * ((double)at[2][f] - (double)at[0][f]) -
                                       ((double)at[1][f] - (double)at[0][f]) * ((double)at[2][e] - (double)at[0][e]));
        }
        assert_true(out >= 0);
    }
    mesh_free(mesh);
    field_free(&field);
}

static void diagonal_neighbours_are_not_connected(void **state)
{
    (void)state;
    struct mesh_measure measure;
    for (int hole = 0; hole < 2; hole++) {
        float value[6 * 6 * 6];
        struct mesh_field field = {{6, 6, 6}, {0, 0, 0}, {1, 1, 1}, value};
        for (int i = 0; i < 6 * 6 * 6; i++) {
            bool border = false;
            for (int part = i, d = 0; d < 3; d++, part /= 6)
                border = border || part % 6 == 0 || part % 6 == 5;
            value[i] = hole && !border ? 1 : 0;
        }
        /* Nodes (2, 2, 2) and (3, 3, 2), which are diagonal neighbours on a cell's face. */
        value[(2 * 6 + 2) * 6 + 2] = value[(2 * 6 + 3) * 6 + 3] = hole ? 0 : 1;
        struct mesh *mesh = surface_of(&field, 0.5);
        assert_int_equal(open_edges(mesh, &field), 0);
        assert_int_equal(mesh_measure(&measure, mesh), 0);
        /* Each node alone is a ball; as holes in a block the two are connected. */
        assert_int_equal(measure.pieces, 2);
        assert_int_equal(measure.euler, 4);
        /* Two octahedra of half a spacing, 4/3 (1/2)^3 each. */
        if (!hole)
            assert_true(fabs(measure.volume - 2.0 / 6) < 1e-6);
        mesh_free(mesh);
    }
}

static void nodes_at_the_isovalue_are_inside(void **state)
{
    (void)state;
    /* A block of 3 x 3 x 3 nodes exactly at the isovalue, in a field lower by 1: the surface passes through these
     * nodes. */
    float value[7 * 7 * 7];
    struct mesh_field field = {{7, 7, 7}, {0, 0, 0}, {0.5, 1, 2}, value};
    for (int i = 0; i < 7 * 7 * 7; i++) {
        bool inside = true;
        for (int part = i, d = 0; d < 3; d++, part /= 7)
            inside = inside && part % 7 >= 2 && part % 7 <= 4;
        value[i] = inside ? 3 : 2;
    }
    struct mesh *mesh = surface_of(&field, 3);
    struct mesh_measure measure;
    assert_int_equal(mesh_measure(&measure, mesh), 0);
    assert_true(measure.closed);
    assert_int_equal(measure.euler, 2);
    /* A box of 1 x 2 x 4. */
    assert_true(fabs(measure.volume - 8) < 1e-6);
    assert_true(fabs(measure.area - 2 * (2 + 4 + 8)) < 1e-6);
    mesh_free(mesh);
}

static void an_empty_surface_is_no_failure(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        struct mesh_field field = field_random((const size_t[3]){9, 8, 7}, 1, 0, NAN);
        struct mesh *mesh = surface_of(&field, full ? -1 : 2);
        struct mesh_measure measure;
        assert_int_equal(mesh->triangles + mesh->vertices, 0);
        assert_int_equal(mesh_measure(&measure, mesh), 0);
        assert_true(measure.closed && measure.area == 0 && measure.volume == 0 && measure.pieces == 0);
        mesh_free(mesh);
        field_free(&field);
    }
    struct mesh_field flat = field_random((const size_t[3]){9, 1, 7}, 1, 0, NAN);
    struct mesh *mesh = surface_of(&flat, 0.5);
    assert_int_equal(mesh->triangles + mesh->vertices, 0);
    mesh_free(mesh);
    field_free(&flat);
}

/* ---- failures ---- */

static void nonfinite_values_are_refused_with_their_position(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct mesh_field field = field_random((const size_t[3]){9, 8, 7}, 1, 0, NAN);
        float *value = (float *)(uintptr_t)field.value;
        value[(4 * 8 + 3) * 9 + 2] = bad[i];
        value[(5 * 8 + 3) * 9 + 2] = NAN;
        struct mesh *mesh = NULL;
        assert_int_equal(mesh_surface(&mesh, &field, 0.5, &plain), ERR_BAD_PARAMETER);
        assert_non_null(strstr(err_last()->text, "node (2, 3, 4)"));
        assert_null(mesh);
        field_free(&field);
    }
    struct mesh_field field = field_random((const size_t[3]){9, 8, 7}, 1, 0, NAN);
    struct mesh *mesh = NULL;
    assert_int_equal(mesh_surface(&mesh, &field, NAN, &plain), ERR_BAD_PARAMETER);
    field_free(&field);
}

/* Cancels at call number *left. */
static int stop(void *context, double done)
{
    assert_true(done >= 0 && done <= 1);
    return --*(int *)context == 0;
}

static void extraction_can_be_canceled_and_is_limited(void **state)
{
    (void)state;
    struct mesh_field field = field_random((const size_t[3]){40, 40, 40}, 1, 0, -1);
    struct mesh *mesh = NULL;
    for (int calls = 1; calls <= 2; calls++) {
        int left = calls;
        const struct mesh_watch watch = {.threads = 1, .progress = stop, .context = &left};
        assert_int_equal(mesh_surface(&mesh, &field, 0.5, &watch), ERR_CANCELED);
        assert_null(mesh);
    }
    mesh = surface_of(&field, 0.5);
    const uint64_t bytes = mesh->vertices * sizeof *mesh->vertex + mesh->triangles * sizeof *mesh->corner;
    mesh_free(mesh);
    mesh = NULL;
    struct mesh_watch watch = {.threads = 1, .most_bytes = bytes - 1};
    assert_int_equal(mesh_surface(&mesh, &field, 0.5, &watch), ERR_NO_MEMORY);
    assert_int_equal(err_last()->required, bytes);
    watch.most_bytes = bytes;
    assert_int_equal(mesh_surface(&mesh, &field, 0.5, &watch), 0);
    mesh_free(mesh);
    field_free(&field);
}

static void threads_do_not_change_the_mesh(void **state)
{
    (void)state;
    struct mesh_field field = field_random((const size_t[3]){40, 30, 20}, 7, 0, NAN);
    struct mesh *one = NULL, *many = NULL;
    assert_int_equal(mesh_surface(&one, &field, 0.5, &(struct mesh_watch){.threads = 1}), 0);
    for (int threads = 2; threads <= 8; threads += 3) {
        assert_int_equal(mesh_surface(&many, &field, 0.5, &(struct mesh_watch){.threads = threads}), 0);
        assert_int_equal(many->vertices, one->vertices);
        assert_int_equal(many->triangles, one->triangles);
        assert_memory_equal(many->vertex, one->vertex, one->vertices * sizeof *one->vertex);
        assert_memory_equal(many->corner, one->corner, one->triangles * sizeof *one->corner);
        mesh_free(many);
    }
    mesh_free(one);
    field_free(&field);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_fields_give_closed_surfaces),
        cmocka_unit_test(surfaces_are_open_at_the_border_only),
        cmocka_unit_test(spheres_and_tori_converge),
        cmocka_unit_test(normals_and_corners_look_outwards),
        cmocka_unit_test(diagonal_neighbours_are_not_connected),
        cmocka_unit_test(nodes_at_the_isovalue_are_inside),
        cmocka_unit_test(an_empty_surface_is_no_failure),
        cmocka_unit_test(nonfinite_values_are_refused_with_their_position),
        cmocka_unit_test(extraction_can_be_canceled_and_is_limited),
        cmocka_unit_test(threads_do_not_change_the_mesh),
    };
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
