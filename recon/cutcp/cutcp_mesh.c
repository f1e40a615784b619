/* The smooth part of the split, by a mesh: charges are spread, and the result is filtered. */
#include "recon/cutcp/cutcp_split.h"

#include "gridding/base/err.h"
#include "gridding/fft/filter_cpu.h"
#include "gridding/range/kernel.h"
#include "gridding/range/sums.h"

#include <math.h>
#include <stdlib.h>

struct cutcp_mesh {
    struct dev *dev;
    struct cutcp_split split;
    struct range_law window;
    struct cutcp_waves waves;
    float *inverse[3]; /* [mesh[d] / 2 + 1 + FILTER_WAVES]: of an axis, 1 / (nodes times the window's transform) */
    double wave[3];    /* radians per angstrom of one period in the box */
    float *nodes;      /* device memory, [z][y][x] */
    struct filter_cpu *filter;
};

static double window_value(const void *of, double t)
{
    const double beta = *(const double *)of;
    return kernel_bessel_i0(beta * sqrt(t)) / kernel_bessel_i0(beta);
}

/* Integral of the window of an axis times exp(i k x), k in radians per angstrom: kernel_transform() of a width of 1. */
static double window_transform(const struct cutcp_split *s, double k)
{
    const double width = 2 * s->reach;
    return width * kernel_transform(1, s->beta, k * width / (2 * KERNEL_PI));
}

static struct filter_shape filter_of(const struct cutcp_split *s, const struct range_box *lattice)
{
    struct filter_shape shape;
    for (int d = 0; d < 3; d++) {
        shape.from[d] = s->mesh[d];
        shape.to[d] = s->extended[d];
        shape.kept[d] = lattice ? lattice->cells[d] : s->extended[d];
    }
    return shape;
}

static struct range_points_params points_of(const struct cutcp_split *s, size_t count, const double *at)
{
    struct range_points_params params = {.box = {.dim = 3}, .reach = s->reach, .inputs = count, .at_double = at};
    for (int d = 0; d < 3; d++) {
        params.box.cells[d] = s->mesh[d];
        params.box.spacing[d] = s->length[d] / s->mesh[d];
        params.box.periodic[d] = true;
    }
    return params;
}

static size_t nodes_of(const struct cutcp_split *s)
{
    return (size_t)s->mesh[0] * (size_t)s->mesh[1] * (size_t)s->mesh[2];
}

static int axis_create(struct cutcp_mesh *mesh, int d)
{
    const struct cutcp_split *s = &mesh->split;
    const int count = s->mesh[d] / 2 + 1 + FILTER_WAVES;
    mesh->inverse[d] = malloc((size_t)count * sizeof(float));
    if (!mesh->inverse[d])
        return err_no_memory("a mesh");
    mesh->wave[d] = 2 * KERNEL_PI / s->length[d];
    for (int i = 0; i < count; i++) {
        const int wave = i < s->mesh[d] / 2 ? i : s->mesh[d] / 2; /* what is beyond is only padding */
        mesh->inverse[d][i] = (float)(1 / (s->mesh[d] * window_transform(s, wave * mesh->wave[d])));
    }
    return 0;
}

int cutcp_mesh_create(struct cutcp_mesh **out, struct dev *dev, const struct cutcp_split *split)
{
    const struct range_law_params window = {.form = RANGE_SEPARABLE, .reach = split->reach, .power = 1, .error = 1e-7};
    struct cutcp_mesh *mesh = calloc(1, sizeof *mesh);
    void *nodes = NULL;
    if (!mesh)
        return err_no_memory("a mesh");
    mesh->dev = dev;
    mesh->split = *split;
    int rc = range_law_make(&mesh->window, &window, window_value, &split->beta);
    for (int d = 0; d < 3 && rc == 0; d++)
        rc = axis_create(mesh, d);
    if (rc == 0)
        rc = cutcp_waves_create(&mesh->waves, split, dev_threads(dev));
    if (rc == 0)
        rc = dev_alloc(dev, nodes_of(split) * sizeof *mesh->nodes, &nodes);
    mesh->nodes = nodes;
    if (rc == 0)
        *out = mesh;
    else
        cutcp_mesh_free(mesh);
    return rc;
}

void cutcp_mesh_free(struct cutcp_mesh *mesh)
{
    if (!mesh)
        return;
    filter_cpu_free(mesh->filter);
    dev_release(mesh->dev, mesh->nodes);
    cutcp_waves_free(&mesh->waves);
    for (int d = 0; d < 3; d++)
        free(mesh->inverse[d]);
    free(mesh);
}

int cutcp_mesh_memory(struct dev *dev, const struct cutcp_split *split, size_t count, size_t *bytes)
{
    const struct filter_shape shape = filter_of(split, NULL);
    static const double somewhere[3];
    const struct range_points_params params = points_of(split, count, somewhere);
    struct range_memory memory;
    int rc = range_memory(dev, &params, &memory);
    const size_t held = memory.points + memory.scatter;
    *bytes = nodes_of(split) * sizeof(float) + filter_cpu_bytes(&shape, dev_threads(dev)) +
             (memory.create > held ? memory.create : held);
    return rc;
}

/* The transform of the smooth part over those of the window. */
static void factors(const void *of, const int wave[3], float factor[FILTER_WAVES])
{
    const struct cutcp_mesh *mesh = of;
    const float ky = (float)(wave[1] * mesh->wave[1]), kz = (float)(wave[2] * mesh->wave[2]);
    const float across = ky * ky + kz * kz, per_step = (float)(1 / mesh->waves.step);
    const float scale = mesh->inverse[1][abs(wave[1])] * mesh->inverse[2][abs(wave[2])];
    for (int i = 0; i < FILTER_WAVES; i++) {
        const float kx = (float)((wave[0] + i) * mesh->wave[0]);
        const float place = sqrtf(kx * kx + across) * per_step;
        const size_t below = (size_t)place < mesh->waves.count - 2 ? (size_t)place : mesh->waves.count - 2;
        const float *value = mesh->waves.value + below;
        factor[i] = scale * mesh->inverse[0][wave[0] + i] * (value[0] + (place - (float)below) * (value[1] - value[0]));
    }
}

/* A part of the listener's progress: units `from` to `to` of 100. */
struct share {
    const struct listener *listener;
    size_t from, to;
};

static int share_tell(void *context, size_t done, size_t most)
{
    const struct share *s = context;
    const double part = most ? (double)done / (double)most : 1;
    return s->listener
               ? s->listener->progress(s->listener->context, s->from + (size_t)(part * (double)(s->to - s->from)), 100)
               : 0;
}

int cutcp_mesh_sum(struct cutcp_mesh *mesh, const struct range_box *lattice, size_t count, const double *at,
                   const float *values, float *grid, const struct listener *listener)
{
    const struct range_points_params params = points_of(&mesh->split, count, at);
    const struct filter_shape shape = filter_of(&mesh->split, lattice);
    struct share spread = {listener, 0, 30}, filter = {listener, 30, 100};
    const struct listener first = {&spread, share_tell}, second = {&filter, share_tell};
    struct range_points *points = NULL;
    int rc = dev_zero(mesh->dev, mesh->nodes, nodes_of(&mesh->split) * sizeof *mesh->nodes);
    if (rc == 0)
        rc = range_points_create(&points, mesh->dev, &params, NULL);
    if (rc == 0)
        rc = range_scatter(points, &mesh->window, 1, values, mesh->nodes, &first);
    range_points_free(points);
    if (rc == 0 && !mesh->filter)
        rc = filter_cpu_create(&mesh->filter, &shape, dev_threads(mesh->dev));
    return rc == 0 ? filter_cpu_run(mesh->filter, mesh->nodes, &(struct filter_factors){factors, mesh}, grid, &second)
                   : rc;
}
