/* nufft.c: the device-independent part of NUFFTs: checks, the choice of kernel and grid, deapodisation tables, batches.
 */
#include "gridding/nufft/nufft_leaf.h"
#include "gridding/nufft/nufft_spread.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/range/kernel.h"
#include "gridding/range/overflow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct nufft {
    struct dev *dev;
    const struct nufft_leaf *leaf;
    void *state;
    size_t samples, pixels;
    struct nufft_shape shape;
    double crowded; /* 0 to 1: degree to which samples crowd in one place */
    double oversampling, expected_error, expected_seconds;
    struct nufft_times times;
    float *tables; /* memory of the shape's deapodise pointers */
};

int nufft_smooth_size(double n)
{
    for (int g = 2 * (int)ceil(n / 2 - 1e-9);; g += 2) {
        int rest = g;
        for (int p = 2; p <= 7; p += 1 + (p > 2))
            while (rest % p == 0)
                rest /= p;
        if (rest == 1)
            return g;
    }
}

static int check_kernel(const struct nufft_params *p)
{
    const bool radial = p->kernel == NUFFT_RADIAL;
    /* In three dimensions a radial kernel gets at least the oversampling that it needs there. */
    const double least = kernel_least_oversampling(2, radial);
    if (!(p->tolerance >= 1e-6 && p->tolerance <= 1e-1))
        return err_set(ERR_BAD_PARAMETER, "The tolerance is %g. Float32 gridding can keep 1e-6 to 1e-1.", p->tolerance);
    if (p->width != 0 && (p->width < KERNEL_MIN_WIDTH || p->width > KERNEL_MAX_WIDTH))
        return err_set(ERR_BAD_PARAMETER,
                       "The kernel width is %d. It is %d to %d grid cells, or chosen by the tolerance.", p->width,
                       KERNEL_MIN_WIDTH, KERNEL_MAX_WIDTH);
    if (p->oversampling != 0 && !(p->oversampling >= least && p->oversampling <= KERNEL_MAX_OVERSAMPLING))
        return err_set(ERR_BAD_PARAMETER, "The oversampling is %g. A %s kernel takes %g to %d, or the tolerance's.",
                       p->oversampling, radial ? "radial" : "separable", least, KERNEL_MAX_OVERSAMPLING);
    if (kernel_least_aliasing(p->width, p->oversampling, radial) > p->tolerance)
        return err_set(ERR_BAD_PARAMETER,
                       "No %s kernel of this width or oversampling keeps the tolerance of %g. Ask for more of it, or "
                       "for a larger tolerance.",
                       radial ? "radial" : "separable", p->tolerance);
    return 0;
}

static int check_params(const struct nufft_params *p, size_t samples)
{
    if (p->dim != 2 && p->dim != 3)
        return err_set(ERR_BAD_PARAMETER, "A NUFFT has 2 or 3 dimensions, not %d.", p->dim);
    for (int d = 0; d < 3; d++)
        if (p->n[d] < 1 || p->n[d] > NUFFT_SIZE_MOST || (d >= p->dim && p->n[d] != 1))
            return err_set(ERR_BAD_PARAMETER,
                           "An image of %d x %d x %d pixels cannot be made in %d dimensions: each size is 1 to %d.",
                           p->n[0], p->n[1], p->n[2], p->dim, NUFFT_SIZE_MOST);
    if (p->bin_depth < NUFFT_DEPTH_NONE)
        return err_set(ERR_BAD_PARAMETER, "The bin depth is %d. It is 1 or more samples, automatic, or without limit.",
                       p->bin_depth);
    if (p->overflow != NUFFT_SPLIT && p->overflow != NUFFT_OVERFLOW_CPU)
        return err_set(ERR_BAD_PARAMETER, "There is no choice %d for samples beyond the bin depth.", (int)p->overflow);
    if ((unsigned)p->purpose > NUFFT_FOR_BOTH)
        return err_set(ERR_BAD_PARAMETER, "A plan is for the adjoint, the forward transform or both; there is no %d.",
                       (int)p->purpose);
    if (p->batch < 1)
        return err_set(ERR_BAD_PARAMETER, "A batch holds at least one transform, not %d.", p->batch);
    if (samples > UINT32_MAX / 2)
        return err_set(ERR_BAD_PARAMETER, "One image has %zu samples. At most %u can be gridded together.", samples,
                       UINT32_MAX / 2);
    return check_kernel(p);
}

/* Model: half of an image's energy is from samples with the same position between cells; all of it if samples crowd. A
 * radial kernel's aliasing is then larger by a fifth. */
static double corner_aliasing(const struct nufft_shape *shape, double crowded)
{
    const double part = 0.5 + 0.5 * crowded;
    double edge[3] = {0}, squares = 0;
    for (int d = 0; d < shape->dim; d++)
        edge[d] = 0.5 * shape->n[d] / shape->grid[d];
    if (shape->kernel == NUFFT_RADIAL)
        return fmax(shape->aliasing,
                    (1 + 0.2 * crowded) * kernel_aliasing_radial_at(shape->dim, shape->width, shape->beta, edge));
    for (int d = 0; d < shape->dim; d++) {
        const double apart = kernel_aliasing_at(shape->width, shape->beta, edge[d]),
                     alike = shape->width <= 3 ? apart : kernel_aliasing_alike(shape->width, shape->beta, edge[d]);
        squares += (1 - part) * apart * apart + part * alike * alike;
    }
    return fmax(shape->aliasing, sqrt(squares));
}

/* A kernel on a grid, and what it is expected to cost. */
struct choice {
    struct nufft_shape shape;
    double oversampling;
    struct nufft_cost cost;
};

/* The factor by which a device's errors may exceed its leaf's estimate, which is for samples that do not crowd: crowded
 * ones have few different rounded weights, whose errors on a GPU are correlated. Found by a search over random plans
 * (tests/gpu/test_gpu_plans); the CPU's sums need no factor (tests/unit/test_plans). */
static double crowded_excess(const struct nufft *plan)
{
    const double most = plan->leaf == &nufft_leaf_cpu ? 1 : plan->shape.dim == 2 ? 1.25 : 2.5;
    return 1 + (most - 1) * plan->crowded;
}

/* c->cost. */
static void estimate(const struct nufft *plan, struct choice *c)
{
    const double excess = crowded_excess(plan);
    c->shape.tolerance = plan->shape.tolerance / excess;
    c->cost = plan->leaf->cost(plan->dev, &c->shape, plan->samples);
    c->cost.error *= excess;
}

/* Whether `a` comes before `b`: a grid that the method asked for supports before those that it does not, however fast
 * another method is there. */
static bool cheaper(const struct nufft_cost *a, const struct nufft_cost *b)
{
    return a->as_asked != b->as_asked ? a->as_asked : a->seconds < b->seconds;
}

/* The size of an axis of at least `cells`. `fast`: one that the device transforms faster than others, if that is not
 * much longer. */
static int axis_size(const struct nufft *plan, double cells, bool fast)
{
    const int smooth = nufft_smooth_size(cells);
    const int size = fast && plan->leaf->fast_size ? plan->leaf->fast_size(smooth) : 0;
    return size != 0 && size <= 1.2 * cells ? size : smooth;
}

static struct choice sized(const struct nufft *plan, const struct nufft_params *p, int width, double oversampling,
                           bool fast)
{
    struct choice c = {.shape = plan->shape};
    c.shape.width = width;
    /* Rounding sizes up only increases the oversampling. */
    for (int d = 0; d < 3; d++) {
        double cells = p->n[d] * oversampling;
        c.shape.grid[d] = d < p->dim ? axis_size(plan, cells > width ? cells : width, fast) : 1;
    }
    return c;
}

/* Whether the grid is one of the `count` before; adds it to them. */
static bool grid_known(const struct nufft_shape *shape, int (*grids)[3], int count)
{
    memcpy(grids[count], shape->grid, sizeof *grids);
    for (int i = 0; i < count; i++)
        if (memcmp(grids[i], shape->grid, sizeof *grids) == 0)
            return true;
    return false;
}

/* The kernel for a width and grid. */
static void consider(const struct nufft *plan, const struct nufft_params *p, struct choice *c)
{
    c->oversampling = nufft_oversampling(&c->shape);
    c->shape.beta = kernel_beta(c->shape.width, c->oversampling);
    c->shape.aliasing = kernel_aliasing(p->dim, c->shape.width, c->oversampling, p->kernel == NUFFT_RADIAL);
    c->shape.corner_aliasing = corner_aliasing(&c->shape, plan->crowded);
}

enum { RATIOS_MOST = 64 };

/* The oversamplings that are tried, at least the given one. */
struct ratios {
    int count;
    double ratio[RATIOS_MOST];
    bool fast[RATIOS_MOST]; /* the sizes of axes are of the device's fast ones */
};

static void add_ratio(struct ratios *to, double ratio, bool fast)
{
    if (to->count == RATIOS_MOST)
        return;
    to->ratio[to->count] = ratio;
    to->fast[to->count++] = fast;
}

/* If none is given: some, and those that lead to sizes of the longest axis which the device transforms faster, with
 * such sizes of the other axes, too, or without. */
static void ratios_make(const struct nufft *plan, const struct nufft_params *p, double least, struct ratios *to)
{
    static const double tried[] = {1.2, 1.25, 1.3, 1.375, 1.5, 1.625, 5. / 3, 1.75, 16. / 9, 15. / 8, 2};
    int longest = p->n[0];
    to->count = 0;
    if (p->oversampling != 0) {
        add_ratio(to, fmax(p->oversampling, least), false);
        return;
    }
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
        if (tried[i] >= least)
            add_ratio(to, tried[i], false);
    for (int d = 1; d < p->dim; d++)
        longest = p->n[d] > longest ? p->n[d] : longest;
    int size = plan->leaf->fast_size ? plan->leaf->fast_size((int)ceil(longest * fmax(least, tried[0]))) : 0;
    for (; size != 0 && size <= KERNEL_MAX_OVERSAMPLING * longest; size = plan->leaf->fast_size(size + 1)) {
        add_ratio(to, (double)size / longest, true);
        add_ratio(to, (double)size / longest, false);
    }
}

/* The fastest kernel and grid that meet the tolerance, of those that the method asked for supports if there are any. If
 * float32 cannot meet it, the most accurate of those whose aliasing does; if none's does, which check_kernel() limits
 * to a narrow range in three dimensions, the one with the least aliasing. If width and oversampling are both given,
 * they are used whatever their error. */
static void choose(struct nufft *plan, const struct nufft_params *p)
{
    const bool fixed = p->width != 0 && p->oversampling != 0;
    const double least = kernel_least_oversampling(p->dim, p->kernel == NUFFT_RADIAL);
    struct choice cheapest = {.cost = {INFINITY, INFINITY, false}}, exact = cheapest,
                  plain = {.shape.aliasing = INFINITY};
    struct ratios ratios;
    int grids[RATIOS_MOST][3];
    ratios_make(plan, p, least, &ratios);
    for (int width = p->width ? p->width : KERNEL_MIN_WIDTH; width <= (p->width ? p->width : KERNEL_MAX_WIDTH); width++)
        for (int i = 0; i < ratios.count; i++) {
            struct choice c = sized(plan, p, width, ratios.ratio[i], ratios.fast[i]);
            if (grid_known(&c.shape, grids, i))
                continue;
            consider(plan, p, &c);
            plain = c.shape.aliasing < plain.shape.aliasing ? c : plain;
            if (!fixed && c.shape.aliasing > p->tolerance)
                continue;
            estimate(plan, &c);
            cheapest = (fixed || c.cost.error <= p->tolerance) && cheaper(&c.cost, &cheapest.cost) ? c : cheapest;
            exact = c.cost.error < exact.cost.error ? c : exact;
        }
    estimate(plan, &plain);
    const struct choice *taken = isfinite(cheapest.cost.error) ? &cheapest
                                 : isfinite(exact.cost.error)  ? &exact
                                                               : &plain;
    plan->shape = taken->shape;
    plan->oversampling = taken->oversampling;
    plan->expected_error = taken->cost.error;
    plan->expected_seconds = taken->cost.seconds;
}

static int make_tables(struct nufft *plan)
{
    struct nufft_shape *s = &plan->shape;
    bool radial = s->kernel == NUFFT_RADIAL;
    size_t count = radial ? plan->pixels : (size_t)s->n[0] + (size_t)s->n[1] + (size_t)s->n[2];
    plan->tables = malloc(count * sizeof *plan->tables);
    if (!plan->tables)
        return err_no_memory_bytes(count * sizeof *plan->tables, "the deapodisation");
    if (!radial) {
        float *next = plan->tables;
        for (int d = 0; d < 3; d++) {
            s->deapodise[d] = next;
            for (int i = 0; i < s->n[d]; i++)
                *next++ = d < s->dim
                              ? (float)(1 / kernel_transform(s->width, s->beta, (double)(i - s->n[d] / 2) / s->grid[d]))
                              : 1;
        }
        return 0;
    }
    s->deapodise_radial = plan->tables;
#pragma omp parallel for num_threads(plan->dev->threads)
    for (int z = 0; z < s->n[2]; z++)
        for (int y = 0; y < s->n[1]; y++)
            for (int x = 0; x < s->n[0]; x++) {
                double fx = (double)(x - s->n[0] / 2) / s->grid[0], fy = (double)(y - s->n[1] / 2) / s->grid[1],
                       fz = (double)(z - s->n[2] / 2) / s->grid[2];
                plan->tables[((size_t)z * (size_t)s->n[1] + (size_t)y) * (size_t)s->n[0] + (size_t)x] =
                    (float)(1 / kernel_transform_radial(s->dim, s->width, s->beta, sqrt(fx * fx + fy * fy + fz * fz)));
            }
    return 0;
}

/* Checks the parameters, and makes the choices of a plan that has nothing yet. */
static int begin(struct nufft *plan, struct dev *dev, const struct nufft_params *params, size_t samples, const float *k)
{
    int rc = check_params(params, samples);
    if (rc)
        return rc;
    const struct nufft_spread spread = nufft_spread_of(params, samples, k);
    *plan = (struct nufft){.dev = dev,
                           .leaf = dev->leaf->nufft,
                           .samples = samples,
                           .pixels = (size_t)params->n[0] * (size_t)params->n[1] * (size_t)params->n[2],
                           .crowded = spread.crowded,
                           .shape = {.dim = params->dim,
                                     .n = {params->n[0], params->n[1], params->n[2]},
                                     .kernel = params->kernel,
                                     .tolerance = params->tolerance,
                                     .batch = params->batch,
                                     .bin_depth = params->bin_depth,
                                     .overflow = params->overflow,
                                     .method = params->method,
                                     .purpose = params->purpose,
                                     .centre = spread.centre,
                                     .filled = spread.filled,
                                     .apart = spread.apart,
                                     .overflow_ops = &range_overflow_ops}};
    choose(plan, params);
    return 0;
}

int nufft_create(struct nufft **out, struct dev *dev, const struct nufft_params *params, size_t samples, const float *k)
{
    struct nufft *plan = calloc(1, sizeof *plan);
    if (!plan)
        return err_no_memory("a plan");
    int rc = begin(plan, dev, params, samples, k);
    if (!rc)
        rc = make_tables(plan);
    if (!rc)
        rc = plan->leaf->create(&plan->state, dev, &plan->shape, samples, k);
    if (!rc)
        *out = plan;
    else
        nufft_free(plan);
    return rc;
}

int nufft_expect(struct dev *dev, const struct nufft_params *params, size_t samples, const float *k,
                 struct nufft_expected *out)
{
    struct nufft plan;
    int rc = begin(&plan, dev, params, samples, k);
    if (rc)
        return rc;
    const int *grid = plan.shape.grid;
    *out = (struct nufft_expected){
        plan.shape.width, {grid[0], grid[1], grid[2]}, plan.expected_error, plan.expected_seconds};
    return 0;
}

void nufft_free(struct nufft *plan)
{
    if (!plan)
        return;
    if (plan->state)
        plan->leaf->destroy(plan->state);
    free(plan->tables);
    free(plan);
}

void nufft_describe(const struct nufft *plan, struct nufft_info *info)
{
    const struct nufft_shape *s = &plan->shape;
    *info = (struct nufft_info){.width = s->width,
                                .grid = {s->grid[0], s->grid[1], s->grid[2]},
                                .oversampling = plan->oversampling,
                                .beta = s->beta,
                                .expected_error = plan->expected_error,
                                .batch = s->batch,
                                .samples = plan->samples};
    plan->leaf->describe(plan->state, info);
}

const char *nufft_method_name(enum nufft_method method)
{
    static const char *const names[] = {
        [NUFFT_METHOD_CPU] = "cpu",         [NUFFT_METHOD_TILES] = "tiles",
        [NUFFT_METHOD_BRICK8] = "brick8",   [NUFFT_METHOD_BRICK2D] = "brick2d",
        [NUFFT_METHOD_BRICK16] = "brick16", [NUFFT_METHOD_BRICK_DENSE] = "brick-dense",
    };
    return names[method];
}

void nufft_times(const struct nufft *plan, struct nufft_times *times)
{
    *times = plan->times;
}

void nufft_inside(const struct nufft *plan, struct nufft_inside *out)
{
    *out = (struct nufft_inside){plan->dev, plan->leaf, plan->state, plan->samples};
}

int nufft_bins(const struct nufft *plan, struct nufft_bins *bins)
{
    if (!plan->leaf->bins)
        return err_set(ERR_BAD_PARAMETER, "The plans of %s do not tell their bins.", dev_name(plan->dev));
    return plan->leaf->bins(plan->state, bins);
}

int nufft_set_weights(struct nufft *plan, const float *weights)
{
    return plan->leaf->set_weights(plan->state, weights);
}

int nufft_adjoint_begin(struct nufft *plan, int batch, const struct c32 *data, struct c32 *image)
{
    for (int first = 0; first < batch; first += plan->shape.batch) {
        int now = batch - first < plan->shape.batch ? batch - first : plan->shape.batch;
        int rc = plan->leaf->adjoint(plan->state, now, data + (size_t)first * plan->samples,
                                     image + (size_t)first * plan->pixels);
        if (rc)
            return rc;
    }
    return 0;
}

int nufft_adjoint_squares_begin(struct nufft *plan, int batch, const struct c32 *data, float *squares)
{
    for (int first = 0; first < batch; first += plan->shape.batch) {
        int now = batch - first < plan->shape.batch ? batch - first : plan->shape.batch;
        int rc = plan->leaf->adjoint_squares(plan->state, now, data + (size_t)first * plan->samples, squares);
        if (rc)
            return rc;
    }
    return 0;
}

int nufft_finish(struct nufft *plan)
{
    plan->times = (struct nufft_times){.gpu = 0};
    return plan->leaf->finish ? plan->leaf->finish(plan->state, &plan->times) : 0;
}

int nufft_adjoint(struct nufft *plan, int batch, const struct c32 *data, struct c32 *image)
{
    int rc = nufft_adjoint_begin(plan, batch, data, image);
    return rc ? rc : nufft_finish(plan);
}

int nufft_adjoint_squares(struct nufft *plan, int batch, const struct c32 *data, float *squares)
{
    int rc = nufft_adjoint_squares_begin(plan, batch, data, squares);
    return rc ? rc : nufft_finish(plan);
}

int nufft_forward(struct nufft *plan, int batch, const struct c32 *image, struct c32 *data)
{
    for (int first = 0; first < batch; first += plan->shape.batch) {
        int now = batch - first < plan->shape.batch ? batch - first : plan->shape.batch;
        int rc = plan->leaf->forward(plan->state, now, image + (size_t)first * plan->pixels,
                                     data + (size_t)first * plan->samples);
        if (rc)
            return rc;
    }
    return 0;
}

int nufft_convolve(struct nufft *plan, const float *weights, float *convolved)
{
    return plan->leaf->convolve(plan->state, weights, convolved);
}
