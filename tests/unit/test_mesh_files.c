/* Files of meshes (recon/mesh/mesh.h): PLY read back, the same numbers in OBJ and STL, and the picture. */
#include "recon/result_file.h"
#include "tests/unit/mesh_fixture.h"

#include <fcntl.h>
#include <png.h>
#include <sys/mman.h>
#include <unistd.h>

static int file_of(const struct mesh *mesh, enum mesh_format format)
{
    size_t most;
    const int fd = memfd_create("mesh", 0);
    assert_true(fd >= 0);
    assert_int_equal(mesh_write(mesh, format, fd), 0);
    assert_true(mesh_file_most(mesh->vertices, mesh->triangles, format, &most));
    assert_true((size_t)lseek(fd, 0, SEEK_END) <= most);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void ply_is_read_back(void **state)
{
    (void)state;
    struct mesh_field field = field_random((const size_t[3]){20, 21, 22}, 3, 0, -1);
    struct mesh *mesh = surface_of(&field, 0.5), *back = NULL;
    const int fd = file_of(mesh, MESH_PLY);
    assert_int_equal(mesh_read_ply(&back, fd), 0);
    assert_int_equal(back->vertices, mesh->vertices);
    assert_int_equal(back->triangles, mesh->triangles);
    assert_memory_equal(back->vertex, mesh->vertex, mesh->vertices * sizeof *mesh->vertex);
    assert_memory_equal(back->corner, mesh->corner, mesh->triangles * sizeof *mesh->corner);
    mesh_free(back);
    close(fd);
    mesh_free(mesh);
    field_free(&field);
}

static void damaged_ply_is_refused(void **state)
{
    (void)state;
    struct mesh_field field = field_random((const size_t[3]){5, 5, 5}, 3, 0, -1);
    struct mesh *mesh = surface_of(&field, 0.5), *back = NULL;
    const int fd = file_of(mesh, MESH_PLY);
    char bytes[1 << 16];
    const ssize_t length = pread(fd, bytes, sizeof bytes, 0);
    assert_true(length > 0);
    const ptrdiff_t head = strstr(bytes, "end_header\n") + 11 - bytes;
    const float nan = NAN, long_normal = 2;
    const uint32_t beyond = (uint32_t)mesh->vertices;
    const struct {
        ptrdiff_t at;
        const void *with;
        size_t count;
    } damage[] = {
        {0, "plx", 3},
        {strstr(bytes, "element vertex ") + 15 - bytes, "9", 1},
        {strstr(bytes, "element face ") + 13 - bytes, "9", 1},
        {strstr(bytes, "property float y") - bytes, "q", 1},
        {head, &nan, 4},
        {head + 12, &long_normal, 4},
        {length - 13, "\4", 1},
        {length - 4, &beyond, 4},
    };
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        assert_int_equal(pwrite(fd, damage[i].with, damage[i].count, damage[i].at), damage[i].count);
        assert_int_equal(mesh_read_ply(&back, fd), ERR_MALFORMED_FILE);
        assert_int_equal(pwrite(fd, bytes, (size_t)length, 0), length);
        assert_int_equal(mesh_read_ply(&back, fd), 0);
        mesh_free(back);
        back = NULL;
    }
    assert_int_equal(ftruncate(fd, length - 1), 0);
    assert_int_equal(mesh_read_ply(&back, fd), ERR_MALFORMED_FILE);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(mesh_read_ply(&back, fd), ERR_MALFORMED_FILE);
    assert_null(back);
    close(fd);
    mesh_free(mesh);
    field_free(&field);
}

static void obj_and_stl_contain_the_same_mesh(void **state)
{
    (void)state;
    struct mesh_field field = field_make(9, -1.5, 1.5, ball);
    struct mesh *mesh = surface_of(&field, 0);
    FILE *obj = fdopen(file_of(mesh, MESH_OBJ), "r"), *stl = fdopen(file_of(mesh, MESH_STL), "r");
    char line[256];
    size_t v = 0, n = 0, t = 0;
    float at[3];
    while (fgets(line, sizeof line, obj)) {
        unsigned corner[3];
        if (sscanf(line, "v %f %f %f", at, at + 1, at + 2) == 3) {
            assert_memory_equal(at, mesh->vertex[v++].at, sizeof at);
        } else if (sscanf(line, "vn %f %f %f", at, at + 1, at + 2) == 3) {
            for (int d = 0; d < 3; d++)
                assert_true(fabsf(at[d] - mesh->vertex[n].normal[d]) < 1e-6f);
            n++;
        } else if (sscanf(line, "f %u//%*u %u//%*u %u//%*u", corner, corner + 1, corner + 2) == 3) {
            for (int i = 0; i < 3; i++)
                assert_int_equal(corner[i], mesh->corner[t][i] + 1);
            t++;
        }
    }
    assert_true(v == mesh->vertices && n == v && t == mesh->triangles);
    uint32_t count;
    assert_int_equal(fseek(stl, 80, SEEK_SET), 0);
    assert_int_equal(fread(&count, sizeof count, 1, stl), 1);
    assert_int_equal(count, mesh->triangles);
    for (t = 0; t < count; t++) {
        float value[12];
        uint16_t nothing;
        assert_int_equal(fread(value, sizeof value, 1, stl), 1);
        assert_int_equal(fread(&nothing, sizeof nothing, 1, stl), 1);
        double out = 0;
        for (int d = 0; d < 3; d++)
            out += (double)value[d] * (double)mesh->vertex[mesh->corner[t][0]].normal[d];
        /* For triangles of 0.4 on a radius of 1. */
        assert_true(out > 0.7);
        for (int i = 0; i < 3; i++)
            assert_memory_equal(value + 3 + 3 * i, mesh->vertex[mesh->corner[t][i]].at, 3 * sizeof(float));
    }
    assert_int_equal(fgetc(stl), EOF);
    fclose(obj);
    fclose(stl);
    mesh_free(mesh);
    field_free(&field);
}

/* The pixels of the mesh's picture, three bytes each. */
static uint8_t *picture_of(const struct mesh *mesh, int *width, int *height)
{
    FILE *file = fdopen(file_of(mesh, MESH_PNG), "r");
    png_image png = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_stdio(&png, file));
    png.format = PNG_FORMAT_RGB;
    uint8_t *rgb = malloc(PNG_IMAGE_SIZE(png));
    assert_true(png_image_finish_read(&png, NULL, rgb, 0, NULL));
    *width = (int)png.width;
    *height = (int)png.height;
    fclose(file);
    return rgb;
}

/* The fraction of pixels that are not white. */
static double drawn(const struct mesh *mesh, int *width, int *height)
{
    uint8_t *rgb = picture_of(mesh, width, height);
    const size_t pixels = (size_t)*width * (size_t)*height;
    size_t dark = 0;
    for (size_t i = 0; i < pixels; i++)
        dark += rgb[3 * i] < 255 || rgb[3 * i + 1] < 255 || rgb[3 * i + 2] < 255;
    free(rgb);
    return (double)dark / (double)pixels;
}

static void the_picture_shows_a_disc(void **state)
{
    (void)state;
    int width, height;
    struct mesh_field field = field_make(81, -1.5, 1.5, ball);
    struct mesh *mesh = surface_of(&field, 0);
    const double part = drawn(mesh, &width, &height);
    /* A disc of 1024 - 2 * 16 pixels across. Its edge is accurate to a pixel, the polygon's radius to h^2 / 8: 0.5
     * %. */
    assert_true(abs(width - 1024) <= 1 && abs(height - 1024) <= 1);
    assert_true(fabs(part / (3.14159265 / 4 * 992 * 992 / width / height) - 1) < 5e-3);
    mesh_free(mesh);
    mesh = surface_of(&field, 9);
    assert_true(drawn(mesh, &width, &height) == 0);
    mesh_free(mesh);
    field_free(&field);
}

/* The near side is seen, blue as outer sides are, and brightest where the normal is halfway between the viewer and the
 * light of direction (-0.4, 0.6, 0.693): at (-0.217, 0.326) radii of 496 pixels. The diffuse light, strongest at (-0.4,
 * 0.6), moves that by 0.42 * 0.62 / (0.25 * 32) of the distance: 3 %, or 5 pixels. */
static void the_picture_shows_the_near_side(void **state)
{
    (void)state;
    int width, height, most = 0, bright = 0;
    double x_sum = 0, y_sum = 0;
    struct mesh_field field = field_make(81, -1.5, 1.5, ball);
    struct mesh *mesh = surface_of(&field, 0);
    uint8_t *rgb = picture_of(mesh, &width, &height);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const uint8_t *pixel = rgb + 3 * (y * width + x);
            const double off[2] = {x + 0.5 - width / 2.0, height / 2.0 - y - 0.5};
            if (hypot(off[0], off[1]) > 480)
                continue;
            assert_true(pixel[2] > pixel[0]);
            if (pixel[0] > most) {
                most = pixel[0];
                bright = 0;
                x_sum = y_sum = 0;
            }
            if (pixel[0] == most) {
                bright++;
                x_sum += off[0];
                y_sum += off[1];
            }
        }
    assert_true(fabs(x_sum / bright + 0.217 * 496) < 10 && fabs(y_sum / bright - 0.326 * 496) < 10);
    free(rgb);
    mesh_free(mesh);
    field_free(&field);
}

static void a_full_disk_and_a_cancel_are_reported(void **state)
{
    (void)state;
    struct mesh_field field = field_make(41, -1.5, 1.5, ball);
    struct mesh *mesh = surface_of(&field, 0);
    const int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0);
    for (int format = 0; format < MESH_FORMATS; format++)
        assert_int_equal(mesh_write(mesh, (enum mesh_format)format, full), ERR_SPOOL_FULL);
    close(full);
    const atomic_bool cancel = true;
    const int file = memfd_create("mesh", MFD_CLOEXEC);
    result_cancel_by(&cancel);
    for (int format = 0; format < MESH_FORMATS; format++)
        assert_int_equal(mesh_write(mesh, (enum mesh_format)format, file), ERR_CANCELED);
    result_cancel_by(NULL);
    assert_int_equal(lseek(file, 0, SEEK_END), 0);
    close(file);
    mesh_free(mesh);
    field_free(&field);
    size_t bytes;
    assert_false(mesh_file_most(SIZE_MAX / 2, 1, MESH_PLY, &bytes));
}

/* The picture of a canceled job does not pass over the mesh, which is not there. */
static void no_triangle_is_looked_at_after_a_cancel(void **state)
{
    (void)state;
    struct mesh_field field = field_make(41, -1.5, 1.5, ball);
    struct mesh *mesh = surface_of(&field, 0), gone = *mesh;
    const size_t vertices = mesh->vertices * sizeof *mesh->vertex, corners = mesh->triangles * sizeof *mesh->corner;
    gone.vertex = mmap(NULL, vertices, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    gone.corner = mmap(NULL, corners, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(gone.vertex != MAP_FAILED && gone.corner != MAP_FAILED);
    const atomic_bool cancel = true;
    const int file = memfd_create("mesh", MFD_CLOEXEC);
    result_cancel_by(&cancel);
    assert_int_equal(mesh_write(&gone, MESH_PNG, file), ERR_CANCELED);
    result_cancel_by(NULL);
    close(file);
    munmap(gone.vertex, vertices);
    munmap(gone.corner, corners);
    mesh_free(mesh);
    field_free(&field);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ply_is_read_back),
        cmocka_unit_test(damaged_ply_is_refused),
        cmocka_unit_test(obj_and_stl_contain_the_same_mesh),
        cmocka_unit_test(the_picture_shows_a_disc),
        cmocka_unit_test(the_picture_shows_the_near_side),
        cmocka_unit_test(a_full_disk_and_a_cancel_are_reported),
        cmocka_unit_test(no_triangle_is_looked_at_after_a_cancel),
    };
    return cmocka_run_group_tests_name("mesh_files", tests, NULL, NULL);
}
