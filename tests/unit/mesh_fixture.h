/* mesh_fixture.h: fields and their surfaces, for the tests of recon/mesh/. */
#ifndef MRIRECON_TESTS_MESH_FIXTURE_H
#define MRIRECON_TESTS_MESH_FIXTURE_H

#include "gridding/base/err.h"
#include "recon/mesh/mesh.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static inline struct mesh_field field_make(size_t nodes, double from, double to, double (*value)(const double at[3]))
{
    struct mesh_field field = {.nodes = {nodes, nodes, nodes}};
    float *values = allocate(nodes * nodes * nodes, sizeof *values);
    for (int d = 0; d < 3; d++) {
        field.origin[d] = from;
        field.spacing[d] = (to - from) / (double)(nodes - 1);
    }
    for (size_t i = 0; i < nodes * nodes * nodes; i++) {
        const double h = field.spacing[0],
                     at[3] = {from + h * (double)(i % nodes), from + h * (double)(i / nodes % nodes),
                              from + h * (double)(i / nodes / nodes)};
        values[i] = (float)value(at);
    }
    field.value = values;
    return field;
}

static inline void field_free(struct mesh_field *field)
{
    free((void *)(uintptr_t)field->value);
}

/* Random node values: of `values` levels, or continuous if that is 0. The border gets `low` if it is finite. */
static inline struct mesh_field field_random(const size_t nodes[3], uint64_t seed, int levels, double low)
{
    struct mesh_field field = {.nodes = {nodes[0], nodes[1], nodes[2]}, .spacing = {1, 1, 1}};
    const size_t count = nodes[0] * nodes[1] * nodes[2];
    float *values = allocate(count, sizeof *values);
    for (size_t i = 0; i < count; i++) {
        const size_t at[3] = {i % nodes[0], i / nodes[0] % nodes[1], i / nodes[0] / nodes[1]};
        bool border = false;
        for (int d = 0; d < 3; d++)
            border = border || at[d] == 0 || at[d] == nodes[d] - 1;
        const double number = uniform(seed * 1000003 + i);
        values[i] = (float)(border && isfinite(low) ? low : levels ? floor(levels * number) : number);
    }
    field.value = values;
    return field;
}

static inline double ball(const double at[3])
{
    return 1 - sqrt(at[0] * at[0] + at[1] * at[1] + at[2] * at[2]);
}

static const struct mesh_watch plain = {.threads = 2};

static inline struct mesh *surface_of(const struct mesh_field *field, double isovalue)
{
    struct mesh *mesh = NULL;
    assert_int_equal(mesh_surface(&mesh, field, isovalue, &plain), 0);
    return mesh;
}

#endif
