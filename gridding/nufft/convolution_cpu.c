/* convolution_cpu.c: circular convolution of images on the CPU. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/ask.h"
#include "gridding/base/err.h"
#include "gridding/nufft/grid_cpu.h"
#include "gridding/range/range.h"

#include <stdlib.h>

/* A group's grid should fit approximately into the caches; above this size images are convolved one at a time. */
static const size_t group_bytes_most = (size_t)384 << 20;

struct convolution_cpu {
    struct nufft_shape shape; /* only sizes: nothing is gridded or deapodised */
    int threads, lanes_most;
    size_t cells;
    float *ones, *spectrum; /* [longest axis]; [cells], rounded up to even */
    struct grid_cpu *grid;
    struct asker *asker; /* the device's */
};

enum { PIECE = 1 << 14 /* cells between two questions to the asker, at 1 ns for a value */ };

static int axis_size(int axis, int cells)
{
    (void)axis;
    return cells;
}

static void destroy(void *state)
{
    struct convolution_cpu *c = state;
    if (!c)
        return;
    grid_cpu_free(c->grid);
    free(c->spectrum);
    free(c->ones);
    free(c);
}

static int create(void **state, struct dev *dev, int dim, const int n[3], const int grid[3], int batch)
{
    struct convolution_cpu *c = calloc(1, sizeof *c);
    if (!c)
        return err_no_memory("a convolution");
    int longest = grid[0] > grid[1] ? grid[0] : grid[1];
    longest = longest > grid[2] ? longest : grid[2];
    c->cells = (size_t)grid[0] * (size_t)grid[1] * (size_t)grid[2];
    c->threads = dev->threads;
    c->asker = dev_asker(dev);
    c->ones = malloc((size_t)longest * sizeof *c->ones);
    c->spectrum = calloc(c->cells + c->cells % 2, sizeof *c->spectrum);
    c->shape = (struct nufft_shape){.dim = dim,
                                    .n = {n[0], n[1], n[2]},
                                    .grid = {grid[0], grid[1], grid[2]},
                                    .deapodise = {c->ones, c->ones, c->ones}};
    c->lanes_most = range_cpu_lanes(batch);
    while (c->lanes_most > 1 && c->cells * (size_t)c->lanes_most * sizeof(struct c32) > group_bytes_most)
        c->lanes_most = range_cpu_lanes(c->lanes_most / 2);
    int rc = c->ones && c->spectrum
                 ? grid_cpu_create(&c->grid, &c->shape, c->lanes_most, c->threads, true, c->asker)
                 : err_no_memory_bytes(c->cells * sizeof *c->spectrum, "a convolution on %d x %d x %d cells", grid[0],
                                       grid[1], grid[2]);
    if (rc) {
        destroy(c);
        return rc;
    }
    for (int i = 0; i < longest; i++)
        c->ones[i] = 1;
    *state = c;
    return 0;
}

static size_t bytes(const void *state)
{
    const struct convolution_cpu *c = state;
    return grid_cpu_bytes(c->grid) + c->cells * sizeof *c->spectrum;
}

/* The end of a piece; or where it begins, if nothing more is to be done. */
static size_t piece_end(const struct convolution_cpu *c, size_t from, int lanes)
{
    const size_t end = c->cells - from < PIECE ? c->cells : from + PIECE;
    return asker_stopped(c->asker, PIECE * (size_t)lanes) ? from : end;
}

static int set_kernel(void *state, const int kernel_n[3], const struct c32 *kernel, float scale)
{
    struct convolution_cpu *c = state;
    struct nufft_shape shape = c->shape;
    struct grid_cpu *grid = NULL;
    for (int d = 0; d < 3; d++)
        shape.n[d] = kernel_n[d];
    int rc = grid_cpu_create(&grid, &shape, 1, c->threads, true, c->asker);
    if (rc)
        return rc;
    rc = grid_cpu_from_image(grid, 1, kernel);
    const struct c32 *values = grid_cpu_values(grid);
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (size_t from = 0; from < c->cells; from += PIECE) {
        const size_t end = piece_end(c, from, 1);
        for (size_t i = from; i < end; i++)
            c->spectrum[i] = values[i].re * scale;
    }
    grid_cpu_free(grid);
    return rc ? rc : asker_rc(c->asker);
}

/* values[cells][lanes] times the spectrum. */
static void multiply(const struct convolution_cpu *c, int lanes, struct c32 *values)
{
#pragma omp parallel for schedule(static) num_threads(c->threads)
    for (size_t from = 0; from < c->cells; from += PIECE) {
        const size_t end = piece_end(c, from, lanes);
        for (size_t i = from; i < end; i++)
            for (int l = 0; l < lanes; l++) {
                struct c32 *v = &values[i * (size_t)lanes + (size_t)l];
                *v = (struct c32){v->re * c->spectrum[i], v->im * c->spectrum[i]};
            }
    }
}

static int apply(void *state, int batch, const struct c32 *image, struct c32 *result)
{
    struct convolution_cpu *c = state;
    const int *n = c->shape.n;
    size_t pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
    int rc = 0;
    for (int done = 0, lanes; done < batch && rc == 0; done += lanes) {
        lanes = range_cpu_lanes(batch - done < c->lanes_most ? batch - done : c->lanes_most);
        rc = grid_cpu_from_image(c->grid, lanes, image + (size_t)done * pixels);
        if (rc == 0)
            multiply(c, lanes, grid_cpu_values(c->grid));
        if (rc == 0)
            rc = grid_cpu_to_image(c->grid, lanes, result + (size_t)done * pixels, NULL);
    }
    return rc;
}

static struct c32 *kernel(void *state)
{
    return (struct c32 *)(void *)((struct convolution_cpu *)state)->spectrum;
}

const struct convolution_leaf convolution_leaf_cpu = {
    .axis_size = axis_size,
    .create = create,
    .destroy = destroy,
    .bytes = bytes,
    .set_kernel = set_kernel,
    .apply = apply,
    .kernel = kernel,
};
