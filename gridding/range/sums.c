#include "gridding/range/sums.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/range/sums_leaf.h"

#include <math.h>
#include <stdlib.h>

struct range_points {
    const struct range_leaf *leaf;
    struct range_box box;
    double widest; /* the largest scale */
    void *state;   /* the leaf's */
};

enum { COORDINATE_MOST = 1 << 30 }; /* spacings from the origin */

enum { SHARED_LEAST = 1 << 14 }; /* points from which on threads share their check */

bool range_available(const struct dev *dev)
{
    return dev->leaf->range;
}

static int check_box(const struct range_box *box, double reach)
{
    size_t nodes = sizeof(float);
    if (box->dim < 1 || box->dim > 3)
        return err_set(ERR_BAD_PARAMETER, "A box has %d dimensions: it has 1 to 3.", box->dim);
    for (int d = 0; d < 3; d++)
        if (box->cells[d] < 1 || box->cells[d] > (d < box->dim ? RANGE_CELLS_MOST : 1) ||
            !size_mul(nodes, (size_t)box->cells[d], &nodes))
            return err_set(ERR_BAD_PARAMETER, "A box has %d cells along axis %d: it has 1 to %d, and 1 beyond axis %d.",
                           box->cells[d], d, RANGE_CELLS_MOST, box->dim - 1);
    for (int d = 0; d < box->dim; d++)
        if (!isfinite(box->origin[d]) || !(box->spacing[d] > 0 && box->spacing[d] < INFINITY))
            return err_set(ERR_BAD_PARAMETER,
                           "Axis %d of a box begins at %g and has a spacing of %g: both must be finite, the spacing "
                           "above 0.",
                           d, box->origin[d], box->spacing[d]);
    if (!(reach > 0 && reach < INFINITY))
        return err_set(ERR_BAD_PARAMETER, "A reach of %g: it must be above 0 and finite.", reach);
    return 0;
}

static double coordinate_of(const struct range_points_params *p, size_t i, int d)
{
    const size_t place = i * (size_t)p->box.dim + (size_t)d;
    return p->at_double ? p->at_double[place] : (double)p->at[place];
}

static bool coordinate_valid(const struct range_points_params *p, size_t i, int d)
{
    return fabs(coordinate_of(p, i, d) - p->box.origin[d]) <= COORDINATE_MOST * p->box.spacing[d];
}

static bool scale_valid(const struct range_points_params *p, size_t i)
{
    return !p->scale || (p->scale[i] > 0 && p->scale[i] < INFINITY);
}

/* Whether points from .. to - 1 are valid. */
static bool points_valid(const struct range_points_params *p, size_t from, size_t to, int threads)
{
    bool valid = true;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : valid) if (to - from > SHARED_LEAST)
    for (size_t i = from; i < to; i++) {
        for (int d = 0; d < p->box.dim; d++)
            valid = valid && coordinate_valid(p, i, d);
        valid = valid && scale_valid(p, i);
    }
    return valid;
}

/* Fails for a point that is not valid. */
static int check_point(const struct range_points_params *p, size_t i)
{
    for (int d = 0; d < p->box.dim; d++)
        if (!coordinate_valid(p, i, d))
            return err_set(ERR_BAD_PARAMETER,
                           "Coordinate %d of point %zu is %g: it must be finite, and within 2^30 cells of the box's "
                           "origin.",
                           d, i, coordinate_of(p, i, d));
    return scale_valid(p, i)
               ? 0
               : err_set(ERR_BAD_PARAMETER, "The scale of point %zu is %g: it must be above 0 and finite.", i,
                         (double)p->scale[i]);
}

static int check_points(const struct range_points_params *p, int threads, const struct listener *listener)
{
    enum { BETWEEN_LOOKS = 1 << 20 };
    int rc = 0;
    if (p->inputs > UINT32_MAX / 2)
        return err_set(ERR_BAD_PARAMETER, "%zu points are more than the %zu that can be summed at a time.", p->inputs,
                       (size_t)UINT32_MAX / 2);
    for (size_t from = 0, to; from < p->inputs && !rc; from = to) {
        to = p->inputs - from < BETWEEN_LOOKS ? p->inputs : from + BETWEEN_LOOKS;
        const bool valid = points_valid(p, from, to, threads);
        for (size_t i = from; i < to && !valid && !rc; i++)
            rc = check_point(p, i);
        if (listener && !rc)
            rc = listener->progress(listener->context, 0, p->inputs);
    }
    return rc;
}

static int check_depth(const struct range_points_params *p)
{
    if (p->bin_depth < RANGE_DEPTH_NONE || (p->overflow != RANGE_SPLIT && p->overflow != RANGE_OVERFLOW_CPU))
        return err_set(ERR_BAD_PARAMETER,
                       "A bin depth of %d with overflow %d: a depth is above 0, 0 (auto) or -1 (none), the overflow 0 "
                       "(split) or 1 (cpu).",
                       p->bin_depth, (int)p->overflow);
    return 0;
}

static int check_device(const struct dev *dev)
{
    if (!range_available(dev))
        return err_set(ERR_NO_DEVICE,
                       "Sums of limited range are not on device %s: they are computed on the CPU (dev_create with "
                       "DEV_CPU).",
                       dev->name);
    return 0;
}

static int wrap(struct range_points **out, const struct range_leaf *leaf, const struct range_box *box, double widest,
                void *state)
{
    struct range_points *points = malloc(sizeof *points);
    if (!points) {
        leaf->destroy(state);
        return err_no_memory("points in bins");
    }
    *points = (struct range_points){leaf, *box, widest, state};
    *out = points;
    return 0;
}

static double widest_of(size_t inputs, const float *scale)
{
    float widest = scale ? 0 : 1;
    for (size_t i = 0; scale && i < inputs; i++)
        widest = scale[i] > widest ? scale[i] : widest;
    return (double)widest;
}

int range_points_create(struct range_points **out, struct dev *dev, const struct range_points_params *params,
                        const struct listener *listener)
{
    int rc = check_device(dev);
    if (!rc)
        rc = check_box(&params->box, params->reach);
    if (!rc)
        rc = check_depth(params);
    if (!rc)
        rc = check_points(params, dev->threads, listener);
    void *state = NULL;
    if (!rc)
        rc = dev->leaf->range->create(&state, dev, params, listener);
    return rc ? rc : wrap(out, dev->leaf->range, &params->box, widest_of(params->inputs, params->scale), state);
}

int range_memory(const struct dev *dev, const struct range_points_params *params, struct range_memory *memory)
{
    int rc = check_device(dev);
    if (!rc)
        rc = check_box(&params->box, params->reach);
    if (!rc)
        dev->leaf->range->memory(dev, params, memory);
    return rc;
}

void range_points_free(struct range_points *points)
{
    if (!points)
        return;
    points->leaf->destroy(points->state);
    free(points);
}

void range_points_info(const struct range_points *points, struct range_points_info *info)
{
    points->leaf->info(points->state, info);
}

int range_partition(const struct range_points *all, size_t depth, struct range_points **kept,
                    struct range_points **rest)
{
    void *part[2] = {NULL, NULL};
    struct range_points *first = NULL, *second = NULL;
    int rc = all->leaf->partition(all->state, depth, &part[0], &part[1]);
    if (rc)
        return rc;
    rc = wrap(&first, all->leaf, &all->box, all->widest, part[0]);
    if (rc) {
        all->leaf->destroy(part[1]);
        return rc;
    }
    rc = wrap(&second, all->leaf, &all->box, all->widest, part[1]);
    if (rc) {
        range_points_free(first);
        return rc;
    }
    *kept = first;
    *rest = second;
    return 0;
}

static int check_sum(const struct range_points *points, const struct range_law *law, int channels)
{
    if (channels < 1)
        return err_set(ERR_BAD_PARAMETER, "%d channels cannot be summed: 1 or more can.", channels);
    for (int d = 0; d < points->box.dim; d++)
        if (!(law->params.reach * points->widest <= RANGE_CELLS_MOST * points->box.spacing[d]))
            return err_set(ERR_BAD_PARAMETER, "A reach of %g times a scale of %g is more than %d cells of %g.",
                           law->params.reach, points->widest, RANGE_CELLS_MOST, points->box.spacing[d]);
    return 0;
}

int range_scatter(const struct range_points *points, const struct range_law *law, int channels, const float *values,
                  float *grid, const struct listener *listener)
{
    int rc = check_sum(points, law, channels);
    return rc ? rc : points->leaf->scatter(points->state, law, channels, values, grid, listener);
}

int range_scatter_set(const struct range_points *points, const struct range_law *law, int channels, const float *values,
                      float *grid, const struct listener *listener)
{
    int rc = check_sum(points, law, channels);
    return rc ? rc : points->leaf->scatter_set(points->state, law, channels, values, grid, listener);
}

int range_gather(const struct range_points *points, const struct range_law *law, int channels, const float *grid,
                 float *values, const struct listener *listener)
{
    int rc = check_sum(points, law, channels);
    return rc ? rc : points->leaf->gather(points->state, law, channels, grid, values, listener);
}

static bool same_box(const struct range_box *a, const struct range_box *b)
{
    bool same = a->dim == b->dim;
    for (int d = 0; d < a->dim && same; d++)
        same = a->cells[d] == b->cells[d] && a->periodic[d] == b->periodic[d] && a->origin[d] == b->origin[d] &&
               a->spacing[d] == b->spacing[d];
    return same;
}

static int check_pair(const struct range_points *to, const struct range_points *from)
{
    if (to->leaf != from->leaf || !same_box(&to->box, &from->box))
        return err_set(ERR_BAD_PARAMETER,
                       "Both sets of points of a sum over pairs must be on one device and in one box.");
    return 0;
}

static int check_pair_law(const struct range_points *from, const struct range_law *law, int channels)
{
    int rc = law ? check_sum(from, law, channels) : 0;
    if (!rc && law && law->params.form == RANGE_SEPARABLE)
        rc = err_set(ERR_BAD_PARAMETER, "Sums over pairs cannot use a separable law: use the radial form.");
    return rc;
}

/* A listener that reports two passes as one. */
struct half {
    const struct listener *listener;
    size_t before; /* passes done */
};

static int tell_half(void *context, size_t done, size_t most)
{
    const struct half *half = context;
    return half->listener->progress(half->listener->context, half->before * most + done, 2 * most);
}

/* Whether both laws can be summed in one pass. */
static bool agree(const struct range_law *a, const struct range_law *b)
{
    return a->params.reach == b->params.reach && a->params.least == b->params.least &&
           a->params.soft == b->params.soft && a->params.spline == b->params.spline;
}

int range_pairs(const struct range_points *to, const struct range_points *from, const struct range_pair_sums *sums,
                int channels, const float *values, const struct listener *listener)
{
    int rc = check_pair(to, from);
    if (!rc)
        rc = check_pair_law(from, sums->scalar_law, channels);
    if (!rc)
        rc = check_pair_law(from, sums->vector_law, channels);
    if (!rc && !sums->scalar_law && !sums->vector_law)
        rc = err_set(ERR_BAD_PARAMETER, "Sums over pairs need a law: neither a scalar nor a vector law is given.");
    if (rc)
        return rc;
    if (!sums->scalar_law || !sums->vector_law || agree(sums->scalar_law, sums->vector_law))
        return to->leaf->pairs(to->state, from->state, sums, channels, values, listener);
    const struct range_pair_sums vectors = {.vector_law = sums->vector_law, .vectors = sums->vectors},
                                 scalars = {.scalar_law = sums->scalar_law, .scalars = sums->scalars};
    struct half first = {listener, 0}, second = {listener, 1};
    const struct listener halves[2] = {{&first, tell_half}, {&second, tell_half}};
    rc = to->leaf->pairs(to->state, from->state, &vectors, channels, values, listener ? &halves[0] : NULL);
    return rc ? rc : to->leaf->pairs(to->state, from->state, &scalars, channels, values, listener ? &halves[1] : NULL);
}

int range_count(const struct range_points *to, const struct range_points *from, int edges, const double *edge,
                uint64_t *counts, const struct listener *listener)
{
    int rc = check_pair(to, from);
    if (!rc && (edges < 2 || edges > RANGE_EDGES_MOST))
        rc = err_set(ERR_BAD_PARAMETER, "Distances have %d edges: there are 2 to %d.", edges, RANGE_EDGES_MOST);
    for (int e = 0; e < edges && !rc; e++)
        if (!(edge[e] >= 0 && edge[e] < INFINITY) || (e > 0 && edge[e] <= edge[e - 1]))
            rc = err_set(ERR_BAD_PARAMETER, "Edge %d of the distances is %g: edges are finite, at least 0, and rise.",
                         e, edge[e]);
    return rc ? rc : to->leaf->count(to->state, from->state, edges, edge, counts, listener);
}
