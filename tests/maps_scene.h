/* maps_scene.h: coil images of an object with smooth coil maps, with noise, for tests of coil maps. */
#ifndef MRIRECON_TEST_MAPS_SCENE_H
#define MRIRECON_TEST_MAPS_SCENE_H

#include "recon/mri/maps.h"
#include "tests/random.h"

#include <math.h>
#include <stdlib.h>

struct maps_scene_case {
    const char *name;
    int dim, n, coils, calibration, width;
};

struct maps_scene {
    struct maps_params params;
    size_t pixels;
    struct c32 *images; /* [coils][pixels] */
};

/* Axes of different lengths. The object is an ellipse, brighter in places; a coil's map is a wave over two cycles. */
static inline void maps_scene_create(struct maps_scene *s, const struct maps_scene_case *c, double noise)
{
    const int n[3] = {c->n, c->dim == 3 ? c->n - 2 : c->n + 3, c->dim == 3 ? c->n + 1 : 1};
    uint64_t seed = 5;
    s->params = maps_defaults(MAPS_ESPIRIT, c->coils, n);
    s->params.calibration = c->calibration;
    s->params.width = c->width;
    s->pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
    s->images = calloc((size_t)c->coils * s->pixels, sizeof *s->images);
    for (size_t i = 0; i < (size_t)c->coils * s->pixels; i++) {
        const size_t r = i % s->pixels, coil = i / s->pixels, row = r / (size_t)n[0];
        const double x = (double)(r % (size_t)n[0]) / n[0] - 0.5, y = (double)(row % (size_t)n[1]) / n[1] - 0.5;
        const double z = n[2] > 1 ? (double)(row / (size_t)n[1]) / n[2] - 0.5 : 0;
        const double turn = 2 * M_PI * (double)coil / c->coils,
                     along = x * cos(turn) + y * sin(turn) + 0.3 * z * cos(2 * turn);
        const double object = x * x + 1.3 * y * y + z * z < 0.15 ? 0.6 + 0.3 * cos(25 * x + 9 * y - 11 * z) : 0;
        const double size = object * (0.55 + 0.45 * sin(M_PI * along)), phase = 2 * (x * sin(turn) - z) + turn;
        s->images[i].re = (float)(size * cos(phase) + noise * (uniform_next(&seed) - 0.5));
        s->images[i].im = (float)(size * sin(phase) + noise * (uniform_next(&seed) - 0.5));
    }
}

static inline void maps_scene_free(struct maps_scene *s)
{
    free(s->images);
}

#endif
