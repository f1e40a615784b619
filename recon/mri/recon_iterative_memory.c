/* What iterative methods need: their device memory, and how many coils and images are computed together in it. */
#include "recon/mri/recon_iterative_inner.h"

enum {
    BATCH_PIXELS = 1 << 22, /* of coils computed together: the longest time until a cancel is noticed */
    BATCH_PIXELS_GPU = 1 << 24,
    SHARE = 4,               /* of the available memory, at most 1 / SHARE */
    DIVIDED_PIXELS = 1 << 24 /* of all coils, from which on several devices compute one image */
};

void iterative_at_once(struct gridder *g)
{
    const struct nufft_params params = {.dim = g->job->dim, .n = {g->n[0], g->n[1], g->n[2]}, .batch = 1};
    g->at_once = g->job->dim == 2 && !g->field && normal_takes_coils(g->job->dev, &params);
}

int iterative_room(const struct gridder *g, size_t *bytes)
{
    size_t available, total;
    int rc = dev_memory(g->job->dev, &available, &total);
    *bytes = rc == 0 ? available / SHARE : 0;
    return rc;
}

/* The fewest coils that can be computed together: where the operator takes coils, those of an image. */
static size_t batch_least(const struct gridder *g)
{
    return g->at_once ? (size_t)g->most_coils : 1;
}

int iterative_batch(const struct gridder *g)
{
    const size_t coils = (size_t)g->most_coils, all = g->at_once ? coils * g->longest : (size_t)g->batch;
    size_t batch = (dev_is_gpu(g->job->dev) ? BATCH_PIXELS_GPU : BATCH_PIXELS) / g->pixels;
    batch = g->solved_most && batch > g->solved_most ? g->solved_most : batch;
    batch = batch < batch_least(g) ? batch_least(g) : batch;
    return (int)(batch < all ? batch : all);
}

/* A device's parts share the coils where each has enough to do, and the operator is one for all. */
void iterative_whole(struct gridder *g)
{
    g->solved_most = 0;
    g->divided = dev_parts(g->job->dev) > 1 && !g->field && !recon_series(g->job) &&
                 g->pixels * (size_t)g->most_coils >= DIVIDED_PIXELS;
}

bool iterative_halve(struct gridder *g)
{
    const size_t batch = (size_t)iterative_batch(g);
    g->solved_most = batch / 2;
    return batch > batch_least(g);
}

/* In images: of another device that shares the coils, its maps, a vector, its groups' sums, the coils computed
 * together, each with a grid of twice the size, and the normal operator's kernel. */
static size_t other_images(const struct gridder *g, size_t batch, size_t grid)
{
    const int groups = sense_groups(g->pixels, g->most_coils), parts = dev_parts(g->job->dev);
    const int own = parts < groups ? (groups + parts - 1) / parts : 1; /* groups of a device */
    const size_t coils = (size_t)(own * sense_group(g->pixels, g->most_coils));
    return coils + 1 + (size_t)own + batch * (1 + grid) + grid / 2;
}

bool iterative_bytes(const struct gridder *g, size_t *own, size_t *other)
{
    /* Images and maps of all coils; those of all images of a series that keeps them; the coils computed together, each
     * with a grid of twice the size; two spectra and a point spread function of that size; a group's sum. For each
     * image of a series: b, x and the solver's vectors; for each of its trajectories the kernel of its normal operator.
     * Of images solved together: each one's maps, kernel and limit. */
    const size_t batch = (size_t)iterative_batch(g), grid = (size_t)1 << g->job->dim;
    const size_t solver = (size_t)method_of(g->job)->vectors(g->job->dim);
    const size_t maps = g->together ? g->longest : 1, limits = g->together ? g->longest * (1 + grid) : 0;
    const size_t images = g->keeps ? g->longest : 1, segments = g->field ? (size_t)field_segments(g->field) : 1;
    size_t vectors = 1 + batch * (1 + grid) + 3 * grid + limits, coils, series, kernels;
    return size_mul(images + maps, (size_t)g->most_coils, &coils) && size_mul(2 + solver, g->longest, &series) &&
           size_mul((grid / 2 + 1) * segments, g->kernels + (g->field && g->longest > 1), &kernels) &&
           size_add(vectors, coils, &vectors) && size_add(vectors, series, &vectors) &&
           size_add(vectors, kernels, &vectors) && size_mul(vectors, g->pixels, &vectors) &&
           size_mul(vectors, sizeof(struct c32), own) && size_mul(other_images(g, batch, grid), g->pixels, other) &&
           size_mul(*other, sizeof(struct c32), other);
}
