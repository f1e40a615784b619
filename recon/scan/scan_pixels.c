#include "recon/scan/scan_pixels.h"

#include "gridding/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The last axes are [z][y][x] of the matrix, or [y][x] where z is 1; there are `before` more. */
static bool fits(const struct scan_array *array, const uint32_t matrix[3], int before)
{
    const int pixels = array->axes - before;
    if (pixels != 3 && (pixels != 2 || matrix[2] != 1))
        return false;
    for (int d = 0; d < pixels; d++)
        if (array->size[array->axes - 1 - d] != matrix[d])
            return false;
    return true;
}

/* Drop axes of length 1 at the front until the array fits; false: it does not. */
static bool fit(struct scan_array *array, const uint32_t matrix[3], int before, uint64_t coils)
{
    for (;; array->axes--) {
        if (fits(array, matrix, before) && (before == 0 || coils == 0 || array->size[0] == coils))
            return true;
        if (array->axes < 1 || array->size[0] != 1)
            return false;
        memmove(array->size, array->size + 1, (SCAN_ARRAY_AXES - 1) * sizeof *array->size);
        memmove(array->step, array->step + 1, (SCAN_ARRAY_AXES - 1) * sizeof *array->step);
    }
}

static int shape_wrong(const struct scan_array *array, const char *shape, const char *expected)
{
    return err_set(ERR_MALFORMED_FILE, "The array %s is %s %s; %s are expected.", array->name,
                   array->complex_valued ? "complex," : "real,", shape, expected);
}

static int maps_take(struct scan_builder *b, struct scan_array *maps, uint64_t coils)
{
    const uint32_t *n = b->encodings[0].matrix;
    char shape[176], expected[160], of[48] = "";
    scan_array_shape(maps, shape);
    if (coils)
        snprintf(of, sizeof of, "kspace's %llu coils and ", (unsigned long long)coils);
    snprintf(expected, sizeof expected,
             "complex numbers [coil, y, x], or [coil, z, y, x], with %sthe image's %u x %u x %u pixels (x, y, z)", of,
             n[0], n[1], n[2]);
    if (!maps->complex_valued || !fit(maps, n, 1, coils))
        return shape_wrong(maps, shape, expected);
    if (maps->size[0] > SCAN_MAX_COILS)
        return err_set(ERR_LIMIT, "The array %s has %llu coils; at most %d are read.", maps->name,
                       (unsigned long long)maps->size[0], SCAN_MAX_COILS);
    b->header.map_coils = maps->size[0];
    return 0;
}

uint64_t scan_pixels_slices(const struct scan_pixels *p, const uint32_t matrix[3])
{
    struct scan_array one = p->field, each = p->field;
    return p->field.items && !fit(&one, matrix, 0, 0) && fit(&each, matrix, 1, 0) ? each.size[0] : 0;
}

static int field_take(struct scan_builder *b, struct scan_pixels *p)
{
    const uint32_t *n = b->encodings[0].matrix;
    const uint64_t slices = scan_pixels_slices(p, n);
    char shape[176], expected[200];
    scan_array_shape(&p->field, shape);
    snprintf(expected, sizeof expected,
             "real numbers [y, x], or [z, y, x], of the image's %u x %u x %u pixels (x, y, z), in Hz, with an axis of "
             "the slices before them where each has its own",
             n[0], n[1], n[2]);
    if (p->field.complex_valued || !fit(&p->field, n, slices > 0, 0))
        return shape_wrong(&p->field, shape, expected);
    if (slices > SCAN_MAX_SLICES)
        return err_set(ERR_LIMIT, "The array %s has %llu slices; at most %d are read.", p->field.name,
                       (unsigned long long)slices, SCAN_MAX_SLICES);
    b->header.field_maps = slices ? slices : 1;
    return 0;
}

int scan_pixels_take(struct scan_builder *b, struct scan_pixels *p, uint64_t coils)
{
    int rc = p->maps.items ? maps_take(b, &p->maps, coils) : 0;
    return rc == 0 && p->field.items ? field_take(b, p) : rc;
}

/* Row r of x of an array. */
static void row_place(const struct scan_array *array, uint64_t r, uint64_t *at)
{
    for (int axis = array->axes - 2; axis >= 0; axis--) {
        at[axis] = r % array->size[axis];
        r /= array->size[axis];
    }
}

int scan_pixels_write(struct scan_builder *b, const struct scan_pixels *p)
{
    const uint64_t wide = b->encodings[0].matrix[0];
    const uint64_t rows[] = {scan_map_count(&b->header, b->encodings) / wide,
                             scan_field_count(&b->header, b->encodings) / wide};
    uint64_t at[SCAN_ARRAY_AXES] = {0};
    struct c32 *row = malloc(wide * sizeof *row);
    float *reals = malloc(wide * sizeof *reals);
    int rc = row && reals ? 0 : err_no_memory("reading coil maps and a field map");
    for (uint64_t r = 0; r < rows[0] && rc == 0; r++) {
        row_place(&p->maps, r, at);
        rc = scan_array_complexes(&p->maps, at, p->maps.axes - 1, wide, row);
        if (rc == 0)
            rc = scan_builder_maps(b, r * wide, row, wide);
    }
    memset(at, 0, sizeof at);
    for (uint64_t r = 0; r < rows[1] && rc == 0; r++) {
        row_place(&p->field, r, at);
        scan_array_reals(&p->field, at, p->field.axes - 1, wide, reals, 1);
        rc = scan_builder_field(b, r * wide, reals, wide);
    }
    free(reals);
    free(row);
    return rc;
}
