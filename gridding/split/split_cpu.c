/* split_cpu.c: sums in two parts on the CPU (split.h): by sums of limited range, and the CPU's filter. */
#include "gridding/base/err.h"
#include "gridding/fft/filter_cpu.h"
#include "gridding/range/sums.h"
#include "gridding/split/split_leaf.h"

#include <stdlib.h>
#include <string.h>

struct split_cpu {
    struct dev *dev;
    struct split_params params;
    struct filter_factors factors; /* copies of the tables */
    float *table[4];
    struct range_law inside; /* 1 within the exclusion */
    float *nodes;            /* of the mesh, and of the lattice where nodes are excluded */
    struct filter_cpu *filter;
};

static size_t product(const int n[3])
{
    return (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
}

static size_t nodes_most(const struct split_params *p)
{
    const size_t mesh = product(p->mesh), lattice = p->exclusion > 0 ? product(p->lattice.cells) : 0;
    return mesh > lattice ? mesh : lattice;
}

/* Points that are spread on the mesh. */
static struct range_points_params points_of(const struct split_params *p, const double *at)
{
    struct range_points_params params = {
        .box = {.dim = 3}, .reach = p->window.params.reach, .inputs = p->count, .at_double = at};
    for (int d = 0; d < 3; d++) {
        params.box.cells[d] = p->mesh[d];
        params.box.spacing[d] = p->extended[d] * p->lattice.spacing[d] / p->mesh[d];
        params.box.periodic[d] = true;
    }
    return params;
}

static const char *refused(const struct split_params *params)
{
    (void)params;
    return NULL;
}

static double inside(const void *of, double t)
{
    (void)of;
    (void)t;
    return 1;
}

static int tables_copy(struct split_cpu *s)
{
    const struct filter_factors *from = &s->params.factors;
    s->factors = *from;
    for (int i = 0; i < 4; i++) {
        const size_t count = i < 3 ? (size_t)s->params.mesh[i] / 2 + 1 : from->count;
        const float *table = i < 3 ? from->axis[i] : from->radial;
        s->table[i] = malloc(count * sizeof(float));
        if (!s->table[i])
            return err_no_memory("the factors of a mesh");
        memcpy(s->table[i], table, count * sizeof(float));
        if (i < 3)
            s->factors.axis[i] = s->table[i];
        else
            s->factors.radial = s->table[i];
    }
    return 0;
}

static void destroy(void *state)
{
    struct split_cpu *s = state;
    if (!s)
        return;
    filter_cpu_free(s->filter);
    s->dev->leaf->release(s->dev, s->nodes);
    for (int i = 0; i < 4; i++)
        free(s->table[i]);
    free(s);
}

static int create(void **state, struct dev *dev, const struct split_params *params)
{
    const struct range_law_params near = {.form = RANGE_RADIAL, .reach = params->exclusion, .error = 1e-6};
    struct split_cpu *s = calloc(1, sizeof *s);
    void *nodes = NULL;
    if (!s)
        return err_no_memory("a sum in two parts");
    s->dev = dev;
    s->params = *params;
    int rc = tables_copy(s);
    if (rc == 0 && params->exclusion > 0)
        rc = range_law_make(&s->inside, &near, inside, NULL);
    if (rc == 0)
        rc = dev->leaf->alloc(dev, nodes_most(params) * sizeof *s->nodes, &nodes);
    s->nodes = nodes;
    if (rc == 0)
        *state = s;
    else
        destroy(s);
    return rc;
}

static int memory(struct dev *dev, const struct split_params *params, size_t *bytes)
{
    const struct filter_shape shape = split_shape(params);
    static const double somewhere[3];
    const struct range_points_params points = points_of(params, somewhere);
    struct range_memory needed;
    int rc = range_memory(dev, &points, &needed);
    const size_t held = needed.points + needed.scatter;
    *bytes = nodes_most(params) * sizeof(float) + filter_cpu_bytes(&shape, dev->threads) +
             (needed.create > held ? needed.create : held);
    return rc;
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

/* grid += the sum of a law. */
static int law_add(const struct split_cpu *s, const struct range_points_params *params, const struct range_law *law,
                   const float *values, float *grid, const struct listener *listener)
{
    struct range_points *points = NULL;
    int rc = range_points_create(&points, s->dev, params, NULL);
    if (rc == 0)
        rc = range_scatter(points, law, 1, values, grid, listener);
    range_points_free(points);
    return rc;
}

static int smooth_sum(struct split_cpu *s, const double *at, const float *values, float *grid,
                      const struct listener *listener)
{
    const struct split_params *p = &s->params;
    const struct range_points_params points = points_of(p, at);
    const struct filter_shape shape = split_shape(p);
    struct share spread = {listener, 0, 20}, filter = {listener, 20, 70};
    int rc = s->dev->leaf->zero(s->dev, s->nodes, product(p->mesh) * sizeof *s->nodes);
    if (rc == 0)
        rc = law_add(s, &points, &p->window, values, s->nodes, &(struct listener){&spread, share_tell});
    if (rc == 0 && !s->filter)
        rc = filter_cpu_create(&s->filter, &shape, s->dev->threads);
    return rc == 0 ? filter_cpu_run(s->filter, s->nodes, &s->factors, grid, &(struct listener){&filter, share_tell})
                   : rc;
}

static int nodes_exclude(struct split_cpu *s, const double *at, const float *values, float *grid,
                         const struct listener *listener)
{
    const struct split_params *p = &s->params;
    const struct range_points_params points = {
        .box = p->lattice, .reach = p->exclusion, .inputs = p->count, .at_double = at};
    struct share share = {listener, 90, 100};
    const size_t nodes = product(p->lattice.cells);
    float *charged = malloc((p->count + 1) * sizeof *charged);
    int rc = charged ? s->dev->leaf->zero(s->dev, s->nodes, nodes * sizeof *s->nodes)
                     : err_no_memory("the points near nodes");
    for (size_t i = 0; i < p->count && rc == 0; i++)
        charged[i] = values[i] != 0;
    if (rc == 0)
        rc = law_add(s, &points, &s->inside, charged, s->nodes, &(struct listener){&share, share_tell});
#pragma omp parallel for num_threads(s->dev->threads) schedule(static)
    for (size_t i = 0; i < (rc == 0 ? nodes : 0); i++)
        grid[i] = s->nodes[i] > 0 ? 0 : grid[i];
    free(charged);
    return rc;
}

static int sum(void *state, const double *at, const float *values, float *grid, const struct listener *listener)
{
    struct split_cpu *s = state;
    const struct split_params *p = &s->params;
    const struct range_points_params points = {
        .box = p->lattice, .reach = p->near.params.reach, .inputs = p->count, .at_double = at};
    struct share near = {listener, 70, p->exclusion > 0 ? 90 : 100};
    int rc = smooth_sum(s, at, values, grid, listener);
    if (rc == 0)
        rc = law_add(s, &points, &p->near, values, grid, &(struct listener){&near, share_tell});
    return rc == 0 && p->exclusion > 0 ? nodes_exclude(s, at, values, grid, listener) : rc;
}

const struct split_leaf split_leaf_cpu = {
    .refused = refused, .create = create, .destroy = destroy, .memory = memory, .sum = sum};
