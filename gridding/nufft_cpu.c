/* nufft_cpu.c: the NUFFT on the CPU: bins, then one pruned FFT pass per axis, the image's crop and deapodisation in the
 * last.
 *
 * The oversampled grid holds a group of 1, 4, 8 or 16 transforms, [z][y][x][lanes], and serves group after group. A
 * pass along z or y takes a panel of adjacent columns into cache, transforms it, and writes back only the rows the
 * image has (adjoint), or reads only those (forward): cropped rows cost nothing in the passes that follow. */
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/base/fft_cpu.h"
#include "gridding/range/kernel.h"
#include "gridding/nufft_leaf.h"
#include "gridding/range/range.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL = 16, GROUPS = 4 };

/* A group's grid should stay near the caches; beyond this only one transform is held at a time. */
static const size_t group_bytes_most = (size_t)384 << 20;

static const int group_lanes[GROUPS] = {1, 4, 8, 16};

struct cpu_plan {
    const struct nufft_shape *shape;
    int threads, lanes_most;
    struct range_law *law;
    struct range_bins *bins;
    struct range_cpu *sums;
    float *weight;                /* in the order of the bins, or NULL */
    struct fft_cpu *x[2][GROUPS]; /* [adjoint, forward][lanes] */
    struct fft_cpu *column[2][3]; /* [adjoint, forward][axis], PANEL columns; y and z */
    struct c32 *grid;
    struct c32 *panel; /* [threads][longest axis][PANEL] */
    size_t panel_count, bytes;
};

static double cpu_cost(const struct dev *dev, const struct nufft_shape *s, size_t samples)
{
    (void)dev;
    double cells = (double)s->grid[0] * s->grid[1] * s->grid[2],
           rows = s->dim == 3 ? (double)s->width * s->width : s->width;
    double floats = s->width * 2.0 * (s->batch >= 4 ? 4 : 1), vectors = ceil(floats / 16) / (s->batch >= 4 ? 4 : 1);
    /* ns, one core, AVX-512: fitted to tests/bench/bench_nufft over widths 3 to 8. */
    return 1e-9 * ((double)samples * (12 + 0.9 * rows * vectors) + cells * (2.2 + 0.18 * log2(cells)));
}

static int group_of(int lanes)
{
    return lanes == 1 ? 0 : lanes == 4 ? 1 : lanes == 8 ? 2 : 3;
}

static int make_ffts(struct cpu_plan *p)
{
    const struct nufft_shape *s = p->shape;
    for (int forward = 0; forward < 2; forward++) {
        int sign = forward ? -1 : 1, status = 0;
        for (int g = 0; g < GROUPS && group_lanes[g] <= p->lanes_most && status == 0; g++)
            status = fft_cpu_create(&p->x[forward][g], s->grid[0], group_lanes[g], sign);
        for (int d = 1; d < s->dim && status == 0; d++)
            status = fft_cpu_create(&p->column[forward][d], s->grid[d], PANEL, sign);
        if (status != 0)
            return status;
    }
    return 0;
}

static void cpu_destroy(void *state)
{
    struct cpu_plan *p = state;
    if (p == NULL)
        return;
    range_cpu_free(p->sums);
    range_bins_free(p->bins);
    range_law_free(p->law);
    for (int forward = 0; forward < 2; forward++) {
        for (int g = 0; g < GROUPS; g++)
            fft_cpu_free(p->x[forward][g]);
        for (int d = 0; d < 3; d++)
            fft_cpu_free(p->column[forward][d]);
    }
    free(p->weight);
    free(p->grid);
    free(p->panel);
    free(p);
}

static int make_grid(struct cpu_plan *p, size_t cells)
{
    const struct nufft_shape *s = p->shape;
    int longest = s->grid[1] > s->grid[2] ? s->grid[1] : s->grid[2];
    p->panel_count = (size_t)longest * PANEL;
    size_t panels = (size_t)p->threads * p->panel_count * sizeof *p->panel, grid = 0;
    bool fits = size_mul(cells, (size_t)p->lanes_most * sizeof *p->grid, &grid) && size_add(grid, 63, &grid);
    if (fits) {
        p->grid = aligned_alloc(64, grid / 64 * 64);
        p->panel = aligned_alloc(64, panels);
    }
    if (p->grid == NULL || p->panel == NULL)
        return err_set_bytes(ERR_NO_MEMORY, (int64_t)grid, -1, "no memory for an oversampled grid of %d x %d x %d",
                             s->grid[0], s->grid[1], s->grid[2]);
    memset(p->panel, 0, panels);
    p->bytes = grid + panels + range_cpu_bytes(p->sums) + p->bins->count * sizeof *p->bins->point;
    return 0;
}

static int cpu_create(void **state, struct dev *dev, const struct nufft_shape *s, size_t samples, const float *k)
{
    struct cpu_plan *p = calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(ERR_NO_MEMORY, "no memory for a plan");
    p->shape = s;
    p->threads = dev->threads;
    size_t cells = (size_t)s->grid[0] * (size_t)s->grid[1] * (size_t)s->grid[2];
    p->lanes_most = range_cpu_lanes(s->batch);
    while (p->lanes_most > 1 && cells * (size_t)p->lanes_most * sizeof(struct c32) > group_bytes_most)
        p->lanes_most = range_cpu_lanes(p->lanes_most / 2);
    const int flat = p->lanes_most > 1 ? 24 : 16, deep[] = {16, 12, 12};
    const int tile2[3] = {flat, flat, 1};
    /* The polynomials' own error is to vanish beside the kernel's. */
    double reached = kernel_aliasing(s->dim, s->width, (double)s->grid[0] / s->n[0], s->kernel == NUFFT_RADIAL);
    int status =
        range_law_create(&p->law, s->width, s->beta, s->kernel == NUFFT_RADIAL, 0.01 * fmin(s->tolerance, reached));
    if (status == 0)
        status =
            range_bins_create(&p->bins, s->dim, s->grid, s->width, s->dim == 3 ? deep : tile2, samples, k, p->threads);
    if (status == 0)
        status = range_cpu_create(&p->sums, p->bins, p->law, p->lanes_most, p->threads);
    if (status == 0)
        status = make_ffts(p);
    if (status == 0)
        status = make_grid(p, cells);
    if (status == 0)
        *state = p;
    else
        cpu_destroy(p);
    return status;
}

static void cpu_describe(const void *state, struct nufft_info *info)
{
    const struct cpu_plan *p = state;
    info->batch = p->lanes_most;
    info->bins = p->bins->bins;
    info->occupied_bins = p->bins->occupied;
    info->largest_bin = p->bins->largest;
    info->bytes = p->bytes;
}

static int cpu_set_weights(void *state, const float *weights)
{
    struct cpu_plan *p = state;
    float *permuted = NULL;
    if (weights != NULL) {
        permuted = malloc((p->bins->count + 1) * sizeof *permuted);
        if (permuted == NULL)
            return err_set(ERR_NO_MEMORY, "no memory for %zu weights", p->bins->count);
        for (size_t i = 0; i < p->bins->count; i++)
            permuted[i] = weights[p->bins->point[i].source];
    }
    free(p->weight);
    p->weight = permuted;
    return 0;
}

/* The grid row of image row i: frequency i - n/2, periodic. */
static inline size_t grid_row(int i, int n, int grid)
{
    return (size_t)((i - n / 2 + grid) % grid);
}

/* One pass along axis d (1: y, 2: z) over `lines` (z planes for y; y rows for z): panel by panel in, transform, out. In
 * the compact form image row i of the axis stands at row i. */
static void pass(struct cpu_plan *p, int d, int lanes, bool forward)
{
    const struct nufft_shape *s = p->shape;
    size_t row = (size_t)s->grid[0] * (size_t)lanes, stride = d == 1 ? row : row * (size_t)s->grid[1];
    size_t between = d == 1 ? row * (size_t)s->grid[1] : row;
    /* Along y only the planes of the image are there (z went first, adjoint; goes last, forward); along z all y rows
     * are needed in the adjoint, and in the forward transform y has just filled them. */
    int lines = d == 1 ? s->n[2] : s->grid[1], panels = (int)((row + PANEL - 1) / PANEL);
    int length = s->grid[d], n = s->n[d];
#pragma omp parallel for collapse(2) schedule(static) num_threads(p->threads)
    for (int line = 0; line < lines; line++)
        for (int part = 0; part < panels; part++) {
            size_t first = (size_t)part * PANEL, columns = row - first < PANEL ? row - first : PANEL;
            struct c32 *panel = p->panel + (size_t)omp_get_thread_num() * p->panel_count;
            struct c32 *base = p->grid + (size_t)line * between + first;
            if (forward) {
                memset(panel, 0, (size_t)length * PANEL * sizeof *panel);
                for (int i = 0; i < n; i++)
                    memcpy(panel + grid_row(i, n, length) * PANEL, base + (size_t)i * stride, columns * sizeof *panel);
            } else {
                for (int i = 0; i < length; i++)
                    memcpy(panel + i * PANEL, base + (size_t)i * stride, columns * sizeof *panel);
            }
            fft_cpu_run(p->column[forward][d], panel);
            for (int i = 0; i < (forward ? length : n); i++)
                memcpy(base + (size_t)i * stride, panel + (forward ? (size_t)i : grid_row(i, n, length)) * PANEL,
                       columns * sizeof *panel);
        }
}

/* What the last pass of the adjoint does with a pixel row, or the first of the forward transform takes: [x] factors of
 * the row (z, y). */
static inline float row_factor(const struct nufft_shape *s, int z, int y)
{
    return s->deapodise_radial != NULL ? 1 : s->deapodise[1][y] * s->deapodise[2][z];
}

static inline const float *row_factors(const struct nufft_shape *s, int z, int y)
{
    return s->deapodise_radial != NULL
               ? s->deapodise_radial + ((size_t)z * (size_t)s->n[1] + (size_t)y) * (size_t)s->n[0]
               : s->deapodise[0];
}

/* x pass of the adjoint, cropped and deapodised into image[lane][z][y][x], or its squares added to squares[z][y][x]. */
static void finish_rows(struct cpu_plan *p, int lanes, struct c32 *image, float *squares)
{
    const struct nufft_shape *s = p->shape;
    size_t row = (size_t)s->grid[0] * (size_t)lanes, pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    const struct fft_cpu *fft = p->x[0][group_of(lanes)];
#pragma omp parallel for collapse(2) schedule(static) num_threads(p->threads)
    for (int z = 0; z < s->n[2]; z++)
        for (int y = 0; y < s->n[1]; y++) {
            struct c32 *line = p->grid + ((size_t)z * (size_t)s->grid[1] + (size_t)y) * row;
            fft_cpu_run(fft, line);
            const float *fx = row_factors(s, z, y), f = row_factor(s, z, y);
            size_t out = ((size_t)z * (size_t)s->n[1] + (size_t)y) * (size_t)s->n[0];
            for (int x = 0; x < s->n[0]; x++) {
                const struct c32 *v = line + grid_row(x, s->n[0], s->grid[0]) * (size_t)lanes;
                float w = fx[x] * f, sum = 0;
                if (image != NULL)
                    for (int l = 0; l < lanes; l++)
                        image[(size_t)l * pixels + out + (size_t)x] = (struct c32){v[l].re * w, v[l].im * w};
                else {
                    for (int l = 0; l < lanes; l++)
                        sum += v[l].re * v[l].re + v[l].im * v[l].im;
                    squares[out + (size_t)x] += sum * w * w;
                }
            }
        }
}

/* The mirror of finish_rows: image rows, deapodised and padded, through the x transform into the compact grid. */
static void start_rows(struct cpu_plan *p, int lanes, const struct c32 *image)
{
    const struct nufft_shape *s = p->shape;
    size_t row = (size_t)s->grid[0] * (size_t)lanes, pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    const struct fft_cpu *fft = p->x[1][group_of(lanes)];
#pragma omp parallel for collapse(2) schedule(static) num_threads(p->threads)
    for (int z = 0; z < s->n[2]; z++)
        for (int y = 0; y < s->n[1]; y++) {
            struct c32 *line = p->grid + ((size_t)z * (size_t)s->grid[1] + (size_t)y) * row;
            memset(line, 0, row * sizeof *line);
            const float *fx = row_factors(s, z, y), f = row_factor(s, z, y);
            size_t in = ((size_t)z * (size_t)s->n[1] + (size_t)y) * (size_t)s->n[0];
            for (int x = 0; x < s->n[0]; x++) {
                struct c32 *v = line + grid_row(x, s->n[0], s->grid[0]) * (size_t)lanes;
                for (int l = 0; l < lanes; l++) {
                    const struct c32 *from = image + (size_t)l * pixels + in + (size_t)x;
                    v[l] = (struct c32){from->re * fx[x] * f, from->im * fx[x] * f};
                }
            }
            fft_cpu_run(fft, line);
        }
}

static int next_lanes(const struct cpu_plan *p, int left)
{
    return range_cpu_lanes(left < p->lanes_most ? left : p->lanes_most);
}

static void adjoint(struct cpu_plan *p, int batch, const struct c32 *data, struct c32 *image, float *squares)
{
    const struct nufft_shape *s = p->shape;
    size_t pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    for (int done = 0, lanes; done < batch; done += lanes) {
        lanes = next_lanes(p, batch - done);
        range_cpu_scatter(p->sums, lanes, data + (size_t)done * p->bins->count, p->bins->count, p->weight, p->grid);
        for (int d = s->dim - 1; d >= 1; d--)
            pass(p, d, lanes, false);
        finish_rows(p, lanes, image != NULL ? image + (size_t)done * pixels : NULL, squares);
    }
}

static int cpu_adjoint(void *state, int batch, const struct c32 *data, struct c32 *image)
{
    adjoint(state, batch, data, image, NULL);
    return 0;
}

static int cpu_adjoint_squares(void *state, int batch, const struct c32 *data, float *squares)
{
    adjoint(state, batch, data, NULL, squares);
    return 0;
}

static int cpu_forward(void *state, int batch, const struct c32 *image, struct c32 *data)
{
    struct cpu_plan *p = state;
    const struct nufft_shape *s = p->shape;
    size_t pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    for (int done = 0, lanes; done < batch; done += lanes) {
        lanes = next_lanes(p, batch - done);
        start_rows(p, lanes, image + (size_t)done * pixels);
        for (int d = 1; d < s->dim; d++)
            pass(p, d, lanes, true);
        range_cpu_gather(p->sums, lanes, p->grid, p->weight, data + (size_t)done * p->bins->count, p->bins->count);
    }
    return 0;
}

static int cpu_convolve(void *state, const float *weights, float *convolved)
{
    struct cpu_plan *p = state;
    size_t count = p->bins->count;
    struct c32 *values = calloc(count + 1, sizeof *values);
    if (values == NULL)
        return err_set(ERR_NO_MEMORY, "no memory to convolve %zu weights", count);
    for (size_t m = 0; m < count; m++)
        values[m] = (struct c32){weights[m], 0};
    range_cpu_scatter(p->sums, 1, values, count, NULL, p->grid);
    range_cpu_gather(p->sums, 1, p->grid, NULL, values, count);
    for (size_t m = 0; m < count; m++)
        convolved[m] = values[m].re;
    free(values);
    return 0;
}

const struct nufft_leaf nufft_leaf_cpu = {
    .cost = cpu_cost,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .describe = cpu_describe,
    .set_weights = cpu_set_weights,
    .adjoint = cpu_adjoint,
    .adjoint_squares = cpu_adjoint_squares,
    .forward = cpu_forward,
    .convolve = cpu_convolve,
};
