/* Reads NumPy arrays: one table (.npy), or one array per column (.npz). */
#include "recon/particle/particles_build.h"
#include "recon/scan/scan_array.h"
#include "recon/scan/zip.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Compressed members are inflated into memory, all at the same time; stored members are read in place. */
#define UNPACKED_MOST (UINT64_C(2048) << 20)

enum { ARRAYS = PARTICLE_COLUMNS, MOST_COLUMNS = 32 };

/* A column of the output and its array: [rows], [rows][axes] or [frames][rows][..]. */
struct source {
    struct scan_array array;
    enum particle_column column;
    int axis, axes; /* axes of the column in this array: the first, and the number */
    int offset;     /* of the first in a row of the array */
};

struct shape {
    uint64_t frames, count;
};

static int wrong_shape(const struct scan_array *array, const char *expected)
{
    char shape[176];
    return err_set(ERR_MALFORMED_FILE, "The array %s is %s; %s is expected.", array->name,
                   scan_array_shape(array, shape), expected);
}

/* Copy the numbers of one source in a row. IDs are copied without rounding. */
static int source_read(const struct source *source, int tail, uint64_t frame, uint64_t row, struct particle *to)
{
    const struct scan_array *array = &source->array;
    uint64_t at[SCAN_ARRAY_AXES] = {0};
    double value[3];
    int axis = 0;
    if (array->axes == 2 + tail)
        at[axis++] = frame;
    at[axis++] = row;
    if (tail)
        at[axis] = (uint64_t)source->offset;
    if (source->column == PARTICLE_ID)
        return scan_array_whole(array, at, &to->id)
                   ? 0
                   : err_set(ERR_MALFORMED_FILE, "Point %llu: the id is not a whole number from 0 to 2^64 - 1.",
                             (unsigned long long)row + 1);
    scan_array_doubles(array, at, axis < array->axes ? axis : array->axes - 1, (uint64_t)source->axes, value);
    for (int d = 0; d < source->axes; d++)
        particles_row_set(to, source->column, source->axis + d, value[d]);
    return 0;
}

/* Rows of all frames, each from its arrays. */
static int rows_write(struct particles_builder *b, const struct source *source, int sources, const int *tail,
                      struct shape shape)
{
    int rc = 0;
    for (uint64_t f = 0; f < shape.frames && rc == 0; f++) {
        for (uint64_t i = 0; i < shape.count && rc == 0; i++) {
            struct particle row = {.element = 0};
            for (int s = 0; s < sources && rc == 0; s++)
                rc = source_read(&source[s], tail[s], f, i, &row);
            if (rc == 0)
                rc = particles_row_check(&row, b->columns, "Point", f * shape.count + i + 1);
            if (rc == 0)
                rc = particles_builder_add(b, &row);
        }
        if (rc == 0)
            rc = particles_builder_frame(b);
    }
    return rc;
}

static int sources_write(struct particles_builder *b, int memory, uint64_t most_bytes, const struct source *source,
                         int sources, const int *tail, struct shape shape)
{
    const struct particles_header told = b->header;
    unsigned columns = 0;
    size_t rows;
    for (int s = 0; s < sources; s++)
        columns |= 1U << source[s].column;
    if (!size_mul(shape.frames, shape.count, &rows))
        return err_set(ERR_LIMIT, "The number of points in the file overflows.");
    int rc = particles_builder_begin(b, memory, most_bytes, columns, rows);
    memcpy(b->header.box_low, told.box_low, sizeof told.box_low);
    memcpy(b->header.box_length, told.box_length, sizeof told.box_length);
    b->header.box_placed = told.box_placed;
    b->header.ignored = told.ignored;
    if (rc == 0)
        rc = rows_write(b, source, sources, tail, shape);
    if (rc == 0)
        rc = particles_builder_end(b);
    particles_builder_free(b);
    return rc;
}

/* ---- .npy ---- */

int particles_npy_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *of)
{
    const struct particles_wanted *wanted = of;
    struct particles_builder b = {.fd = memory};
    struct source source[1 + PARTICLES_ORDER];
    int sources = 1, used = 3, tail[1 + PARTICLES_ORDER] = {1};
    unsigned there = 1U << PARTICLE_POSITION;
    struct scan_array array;
    int rc = scan_array_npy_any(&array, "particles", file, bytes);
    if (rc != 0)
        return rc;
    const uint64_t columns = array.axes ? array.size[array.axes - 1] : 0;
    if (array.complex_valued || array.axes < 2 || array.axes > 3 || columns < 3 || columns > MOST_COLUMNS)
        return wrong_shape(&array, "real numbers, [points][columns] or [frames][points][columns], of 3 to 32 columns");
    source[0] = (struct source){array, PARTICLE_POSITION, 0, 3, 0};
    for (int i = 0; i < PARTICLES_ORDER && wanted->order[i] && used < (int)columns; i++) {
        const int axes = wanted->order[i] == PARTICLE_VELOCITY ? 3 : 1;
        if (used + axes > (int)columns)
            return wrong_shape(&array, "three columns of velocities, or none");
        source[sources] = (struct source){array, (enum particle_column)wanted->order[i], 0, axes, used};
        there |= 1U << wanted->order[i];
        tail[sources++] = 1;
        used += axes;
    }
    b.header.ignored = columns - (uint64_t)used;
    rc = particles_needed(wanted, there, "The array's columns are x, y, z, followed by it.");
    const struct shape shape = {array.axes == 3 ? array.size[0] : 1, array.size[array.axes - 2]};
    return rc == 0 ? sources_write(&b, memory, most_bytes, source, sources, tail, shape) : rc;
}

/* ---- .npz ---- */

struct archive {
    struct zip zip;
    void *memory[ZIP_MEMBERS];
    struct source source[ARRAYS];
    int sources, tail[ARRAYS];
    struct scan_array box;
    char name[ZIP_MEMBERS][ZIP_NAME];
};

static int array_take(struct archive *a, int member, size_t length, uint64_t *most, struct scan_array *array)
{
    const struct zip_member *m = &a->zip.member[member];
    const uint8_t *bytes = NULL;
    memcpy(a->name[member], m->name, length);
    int rc = zip_read(&a->zip, m, *most, &bytes, &a->memory[member]);
    *most -= rc == 0 && a->memory[member] ? m->unpacked : 0;
    if (rc == 0)
        rc = scan_array_npy_any(array, a->name[member], bytes, m->unpacked);
    return rc == 0 && array->complex_valued ? wrong_shape(array, "an array of real numbers") : rc;
}

/* The meaning of a member, from its name; members with other names are ignored. */
static int member_take(struct archive *a, const struct particles_wanted *wanted, int member, uint64_t *most,
                       uint64_t *ignored)
{
    const char *name = a->zip.member[member].name;
    const size_t length = strlen(name);
    int axis = 0, column = -1;
    if (length > 4 && strcmp(name + length - 4, ".npy") == 0) {
        if (strcmp(name, "box.npy") == 0)
            return array_take(a, member, length - 4, most, &a->box);
        column = particles_column_find(name, length - 4, &axis);
    }
    const bool vector = column == PARTICLE_POSITION || column == PARTICLE_VELOCITY;
    if (column == PARTICLE_VELOCITY && axis >= 0 && particles_are_read(wanted, PARTICLE_VELOCITY))
        return err_set(ERR_MALFORMED_FILE,
                       "The archive has an array %s; it takes velocities as one array, velocity, [points][3].", name);
    if (column < 0 || (vector && axis >= 0)) {
        ++*ignored;
        return 0;
    }
    for (int s = 0; s < a->sources; s++)
        if (a->source[s].column == (enum particle_column)column)
            return err_set(ERR_MALFORMED_FILE, "The archive has two arrays with the same meaning, %s and %s.",
                           a->source[s].array.name, name);
    struct source *source = &a->source[a->sources];
    *source = (struct source){.column = (enum particle_column)column, .axes = vector ? 3 : 1};
    a->tail[a->sources++] = vector;
    return array_take(a, member, length - 4, most, &source->array);
}

/* All arrays must have the same number of points; a column may be shared by all frames. */
static int shapes_check(const struct archive *a, struct shape *shape)
{
    const struct source *position = NULL;
    for (int s = 0; s < a->sources; s++)
        if (a->source[s].column == PARTICLE_POSITION)
            position = &a->source[s];
    if (!position)
        return err_set(ERR_MALFORMED_FILE, "The archive has no array position. numpy.savez(\"particles.npz\", "
                                           "position=..., charge=...) writes one.");
    const struct scan_array *p = &position->array;
    if (p->axes < 2 || p->axes > 3 || p->size[p->axes - 1] != 3)
        return wrong_shape(p, "[points][3] or [frames][points][3]");
    *shape = (struct shape){p->axes == 3 ? p->size[0] : 1, p->size[p->axes - 2]};
    for (int s = 0; s < a->sources; s++) {
        const struct scan_array *c = &a->source[s].array;
        const int tail = a->tail[s], rows = c->axes - 1 - tail;
        if (rows < 0 || rows > 1 || c->size[rows] != shape->count || (rows == 1 && c->size[0] != shape->frames) ||
            (tail && c->size[c->axes - 1] != 3))
            return wrong_shape(c, "as many points as in position, for each frame or once for all frames");
    }
    return 0;
}

/* The box: three lengths, or [2][3]: origin and lengths. */
static int box_take(const struct archive *a, struct particles_header *h)
{
    const struct scan_array *box = &a->box;
    if (!box->items)
        return 0;
    const bool placed = box->axes == 2 && box->size[0] == 2;
    if (!(placed && box->size[1] == 3) && !(box->axes == 1 && box->size[0] == 3))
        return wrong_shape(box, "three lengths, or [2][3]: origin and lengths,");
    for (int d = 0; d < 3; d++) {
        uint64_t low[2] = {0, (uint64_t)d}, length[2] = {placed ? 1 : (uint64_t)d, (uint64_t)d};
        if (placed)
            scan_array_doubles(box, low, 1, 1, &h->box_low[d]);
        scan_array_doubles(box, length, placed ? 1 : 0, 1, &h->box_length[d]);
        if (!isfinite(h->box_low[d]))
            return err_set(ERR_MALFORMED_FILE, "The box's origin along axis %c is not finite.", 'x' + d);
        if (!(h->box_length[d] > 0 && h->box_length[d] < INFINITY))
            return err_set(ERR_MALFORMED_FILE, "The box's length along axis %c is %g; it must be above 0 and finite.",
                           'x' + d, h->box_length[d]);
    }
    h->box_placed = placed;
    return 0;
}

int particles_npz_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *of)
{
    const struct particles_wanted *wanted = of;
    struct archive *a = calloc(1, sizeof *a);
    struct particles_builder b = {.fd = memory};
    struct shape shape;
    uint64_t most = UNPACKED_MOST;
    unsigned there = 0;
    int rc = a ? zip_open(&a->zip, file, bytes) : err_no_memory("reading the file");
    for (int i = 0; rc == 0 && i < a->zip.members; i++)
        rc = member_take(a, wanted, i, &most, &b.header.ignored);
    if (rc == 0)
        rc = shapes_check(a, &shape);
    for (int s = 0; rc == 0 && s < a->sources; s++)
        there |= 1U << a->source[s].column;
    if (rc == 0)
        rc = particles_needed(wanted, there, "numpy.savez() writes one named array per column.");
    if (rc == 0)
        rc = box_take(a, &b.header);
    if (rc == 0)
        rc = sources_write(&b, memory, most_bytes, a->source, a->sources, a->tail, shape);
    for (int i = 0; a && i < ZIP_MEMBERS; i++)
        free(a->memory[i]);
    free(a);
    return rc;
}
