#include "gridding/nufft/grid_cpu.h"
#include "gridding/base/err.h"
#include "gridding/fft/columns.h"
#include "gridding/fft/fft_cpu.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL = 16, GROUPS = 4 };
enum { PANELS = 8, ROWS = 4 /* that a thread takes at a time where only some are transformed, which lie together */ };
enum { ALONE_VALUES = 1 << 17 /* fewer are transformed by one thread, before another that slept has come */ };
enum { PLANES_LEAST = 4 /* of each thread, so that none waits for long at the end */ };
enum { PIECES = 8 /* of each thread in a pass, if threads take what is left */ };
enum { OWN_VALUES = 1 << 19 /* fewer stay in the threads' own caches from pass to pass */ };

static const int group_lanes[GROUPS] = {1, 4, 8, 16};

struct grid_cpu {
    const struct nufft_shape *shape;
    int threads, lanes_most;
    bool same_parts;
    bool again, clear;                /* the last transform was a to_image(); the present one clears */
    size_t zeros, had;                /* values from the first on that are 0; before they were taken */
    struct fft_cpu *x_alone[2];       /* [to image, from image]: one lane */
    struct fft_columns *x[2][GROUPS]; /* [to image, from image][lanes]: more */
    struct fft_columns *column[2][3]; /* [to image, from image][axis], PANEL columns; y and z */
    struct c32 *values;
    struct c32 *panel; /* [threads][2][longest axis][PANEL] */
    size_t panel_count, bytes;
    struct asker *asker;
};

enum { COST_VALUE = 4 /* ns, of one value of an FFT, approximately */ };

static int group_of(int lanes)
{
    return lanes == 1 ? 0 : lanes == 4 ? 1 : lanes == 8 ? 2 : 3;
}

static int make_ffts(struct grid_cpu *p)
{
    const struct nufft_shape *s = p->shape;
    for (int forward = 0; forward < 2; forward++) {
        int sign = forward ? -1 : 1, rc = 0;
        rc = fft_cpu_create(&p->x_alone[forward], s->grid[0], 1, sign);
        for (int g = 1; g < GROUPS && group_lanes[g] <= p->lanes_most && !rc; g++)
            rc = fft_columns_create(&p->x[forward][g], s->grid[0], group_lanes[g], sign);
        for (int d = 1; d < s->dim && !rc; d++)
            rc = fft_columns_create(&p->column[forward][d], s->grid[d], PANEL, sign);
        if (rc)
            return rc;
    }
    return 0;
}

static size_t values_of(const struct grid_cpu *p, int lanes)
{
    return (size_t)p->shape->grid[0] * (size_t)p->shape->grid[1] * (size_t)p->shape->grid[2] * (size_t)lanes;
}

static int make_values(struct grid_cpu *p)
{
    const struct nufft_shape *s = p->shape;
    int longest = s->grid[0];
    for (int d = 1; d < 3; d++)
        longest = s->grid[d] > longest ? s->grid[d] : longest;
    p->panel_count = (size_t)longest * PANEL;
    size_t panels = (size_t)p->threads * 2 * p->panel_count * sizeof *p->panel, bytes = 0;
    if (size_mul(values_of(p, 1), (size_t)p->lanes_most * sizeof *p->values, &bytes) && size_add(bytes, 63, &bytes)) {
        p->values = aligned_alloc(64, bytes / 64 * 64);
        p->panel = aligned_alloc(64, panels);
    }
    if (!p->values || !p->panel)
        return err_no_memory_bytes(bytes, "an oversampled grid of %d x %d x %d", s->grid[0], s->grid[1], s->grid[2]);
    memset(p->panel, 0, panels);
    p->bytes = bytes + panels;
    return 0;
}

int grid_cpu_create(struct grid_cpu **out, const struct nufft_shape *shape, int lanes_most, int threads,
                    bool same_parts, struct asker *asker)
{
    struct grid_cpu *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory("a grid");
    p->shape = shape;
    p->threads = threads;
    p->same_parts = same_parts;
    p->lanes_most = lanes_most;
    p->asker = asker;
    int rc = make_ffts(p);
    if (!rc)
        rc = make_values(p);
    if (!rc)
        *out = p;
    else
        grid_cpu_free(p);
    return rc;
}

void grid_cpu_free(struct grid_cpu *p)
{
    if (!p)
        return;
    for (int forward = 0; forward < 2; forward++) {
        fft_cpu_free(p->x_alone[forward]);
        for (int g = 0; g < GROUPS; g++)
            fft_columns_free(p->x[forward][g]);
        for (int d = 0; d < 3; d++)
            fft_columns_free(p->column[forward][d]);
    }
    free(p->values);
    free(p->panel);
    free(p);
}

size_t grid_cpu_bytes(const struct grid_cpu *p)
{
    return p->bytes;
}

struct c32 *grid_cpu_values(struct grid_cpu *p)
{
    return p->values;
}

bool grid_cpu_take_zeros(struct grid_cpu *p, int lanes)
{
    p->had = p->zeros;
    p->zeros = 0;
    return p->had >= values_of(p, lanes);
}

void grid_cpu_lose(struct grid_cpu *p)
{
    p->zeros = p->had = 0;
    p->again = false;
}

struct c32 *grid_cpu_exchange(struct grid_cpu *p, struct c32 *values)
{
    struct c32 *before = p->values;
    p->values = values;
    return before;
}

/* The grid row of image row i: frequency i - n/2, periodic. */
static inline size_t grid_row(int i, int n, int grid)
{
    return (size_t)((i - n / 2 + grid) % grid);
}

/* The calling thread's two panels. */
static struct c32 *panel_of(const struct grid_cpu *p)
{
    return p->panel + (size_t)omp_get_thread_num() * 2 * p->panel_count;
}

/* Transform a row; the result may be in one of the thread's panels. */
static const struct c32 *row_run(const struct grid_cpu *p, bool forward, int lanes, struct c32 *row)
{
    struct c32 *panel = panel_of(p);
    if (lanes > 1)
        return fft_columns_run(p->x[forward][group_of(lanes)], row, (size_t)lanes, panel, panel + p->panel_count);
    fft_cpu_run(p->x_alone[forward], row);
    return row;
}

/* One pass along axis d (1: y, 2: z) goes over `lines` (z planes for y; y rows for z): panel by panel: copy in,
 * transform, copy out. In the compact form image row i of the axis is at row i. */
struct pass {
    int d, lanes, lines, panels;
    bool forward;
    size_t row, stride, between; /* values of a row; from one along the axis, and from one line, to the next */
};

static struct pass pass_of(const struct grid_cpu *p, int d, int lanes, bool forward)
{
    const struct nufft_shape *s = p->shape;
    const size_t row = (size_t)s->grid[0] * (size_t)lanes, plane = row * (size_t)s->grid[1];
    /* Along y only the planes of the image are needed (z is first in the adjoint and last in the forward transform);
     * along z all y rows are needed in the adjoint, and in the forward transform the y pass has filled them. */
    return (struct pass){.d = d,
                         .lanes = lanes,
                         .lines = d == 1 ? s->n[2] : s->grid[1],
                         .panels = (int)((row + PANEL - 1) / PANEL),
                         .forward = forward,
                         .row = row,
                         .stride = d == 1 ? row : plane,
                         .between = d == 1 ? plane : row};
}

static void panel_run(const struct grid_cpu *p, const struct pass *pass, int line, int panel)
{
    const int length = p->shape->grid[pass->d], n = p->shape->n[pass->d];
    const size_t first = (size_t)panel * PANEL, stride = pass->stride;
    const size_t columns = pass->row - first < PANEL ? pass->row - first : PANEL;
    struct c32 *a = panel_of(p), *b = a + p->panel_count, *base = p->values + (size_t)line * pass->between + first;
    const struct c32 *in = b;
    size_t pitch = PANEL;
    if (asker_stopped(p->asker, (size_t)length * PANEL * COST_VALUE))
        return;
    if (pass->forward) {
        memset(b, 0, (size_t)length * PANEL * sizeof *b);
        for (int i = 0; i < n; i++)
            memcpy(b + grid_row(i, n, length) * PANEL, base + (size_t)i * stride, columns * sizeof *b);
    } else if (columns == PANEL) {
        in = base;
        pitch = stride;
    } else {
        for (int i = 0; i < length; i++)
            memcpy(b + i * PANEL, base + (size_t)i * stride, columns * sizeof *b);
    }
    const struct c32 *out = fft_columns_run(p->column[pass->forward][pass->d], in, pitch, a, b);
    for (int i = 0; i < (pass->forward ? length : n); i++)
        memcpy(base + (size_t)i * stride, out + (pass->forward ? (size_t)i : grid_row(i, n, length)) * PANEL,
               columns * sizeof *base);
    for (int i = n; i < length && p->clear; i++) /* what was not overwritten */
        memset(base + (size_t)i * stride, 0, columns * sizeof *base);
}

/* How threads share the next loop with schedule(runtime), over `count` equal parts of `values` in all. Processors are
 * rarely equally fast: each may serve other processes, or share its core with another machine's. */
static void share(const struct grid_cpu *p, size_t count, size_t values, bool same_parts)
{
    const size_t piece = count / ((size_t)p->threads * PIECES);
    if (same_parts || values < OWN_VALUES)
        omp_set_schedule(omp_sched_static, 0);
    else
        omp_set_schedule(omp_sched_dynamic, piece > 1 ? (int)piece : 1);
}

static void pass_run(const struct grid_cpu *p, int d, int lanes, bool forward)
{
    const struct pass pass = pass_of(p, d, lanes, forward);
    const size_t panels = (size_t)pass.lines * (size_t)pass.panels;
    share(p, panels, panels * PANEL * (size_t)p->shape->grid[d], p->same_parts || forward);
#pragma omp parallel for collapse(2) schedule(runtime) num_threads(p->threads)
    for (int line = 0; line < pass.lines; line++)
        for (int panel = 0; panel < pass.panels; panel++)
            panel_run(p, &pass, line, panel);
}

/* The deapodisation factors [x] of pixel row (z, y), for the last pass of the adjoint and the first of the forward
 * transform. */
static inline float row_factor(const struct nufft_shape *s, int z, int y)
{
    return s->deapodise_radial ? 1 : s->deapodise[1][y] * s->deapodise[2][z];
}

static inline const float *row_factors(const struct nufft_shape *s, int z, int y)
{
    return s->deapodise_radial ? s->deapodise_radial + ((size_t)z * (size_t)s->n[1] + (size_t)y) * (size_t)s->n[0]
                               : s->deapodise[0];
}

/* Deapodised pixels of one lane: their squares added, as vectors. */
static inline void pixels_square(const struct c32 *v, const float *fx, float f, int count, float *squares)
{
    for (int i = 0; i < count; i++) {
        const float w = fx[i] * f;
        squares[i] += (v[i].re * v[i].re + v[i].im * v[i].im) * w * w;
    }
}

/* x pass of a row of the adjoint, cropped and deapodised into image[lane][z][y][x], or its squares added to
 * squares[z][y][x]. */
static void row_finish(const struct grid_cpu *p, int lanes, int z, int y, struct c32 *image, float *squares)
{
    const struct nufft_shape *s = p->shape;
    size_t row = (size_t)s->grid[0] * (size_t)lanes, pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
    struct c32 *line = p->values + ((size_t)z * (size_t)s->grid[1] + (size_t)y) * row;
    if (asker_stopped(p->asker, row * COST_VALUE))
        return;
    const struct c32 *values = row_run(p, false, lanes, line);
    const float *fx = row_factors(s, z, y), f = row_factor(s, z, y);
    size_t out = ((size_t)z * (size_t)s->n[1] + (size_t)y) * (size_t)s->n[0];
    if (lanes == 1 && !image) {
        const int half = s->n[0] / 2;
        pixels_square(values + s->grid[0] - half, fx, f, half, squares + out);
        pixels_square(values, fx + half, f, s->n[0] - half, squares + out + half);
    }
    for (int x = 0; x < s->n[0] && (lanes > 1 || image); x++) {
        const struct c32 *v = values + grid_row(x, s->n[0], s->grid[0]) * (size_t)lanes;
        float w = fx[x] * f, sum = 0;
        if (image)
            for (int l = 0; l < lanes; l++)
                image[(size_t)l * pixels + out + (size_t)x] = (struct c32){v[l].re * w, v[l].im * w};
        else {
            for (int l = 0; l < lanes; l++)
                sum += v[l].re * v[l].re + v[l].im * v[l].im;
            squares[out + (size_t)x] += sum * w * w;
        }
    }
    if (p->clear)
        memset(line, 0, row * sizeof *line);
}

static void finish_rows(const struct grid_cpu *p, int lanes, struct c32 *image, float *squares)
{
    const size_t rows = (size_t)p->shape->n[2] * (size_t)p->shape->n[1];
    share(p, rows, rows * (size_t)p->shape->grid[0] * (size_t)lanes, p->same_parts);
#pragma omp parallel for collapse(2) schedule(runtime) num_threads(p->threads)
    for (int z = 0; z < p->shape->n[2]; z++)
        for (int y = 0; y < p->shape->n[1]; y++)
            row_finish(p, lanes, z, y, image, squares);
}

/* y and x passes of a 3-D adjoint, plane by plane, which stay in a thread's cache in between. */
static void finish_planes(const struct grid_cpu *p, int lanes, struct c32 *image, float *squares)
{
    const struct pass pass = pass_of(p, 1, lanes, false);
#pragma omp parallel for schedule(dynamic) num_threads(p->threads)
    for (int z = 0; z < p->shape->n[2]; z++) {
        for (int panel = 0; panel < pass.panels; panel++)
            panel_run(p, &pass, z, panel);
        for (int y = 0; y < p->shape->n[1]; y++)
            row_finish(p, lanes, z, y, image, squares);
    }
}

/* The reverse of finish_rows: image rows, deapodised and padded, through the x transform into the compact grid. */
static void start_rows(struct grid_cpu *p, int lanes, const struct c32 *image)
{
    const struct nufft_shape *s = p->shape;
    size_t row = (size_t)s->grid[0] * (size_t)lanes, pixels = (size_t)s->n[0] * (size_t)s->n[1] * (size_t)s->n[2];
#pragma omp parallel for collapse(2) schedule(static) num_threads(p->threads)
    for (int z = 0; z < s->n[2]; z++)
        for (int y = 0; y < s->n[1]; y++) {
            struct c32 *line = p->values + ((size_t)z * (size_t)s->grid[1] + (size_t)y) * row;
            if (asker_stopped(p->asker, row * COST_VALUE))
                continue;
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
            const struct c32 *transformed = row_run(p, true, lanes, line);
            if (transformed != line)
                memcpy(line, transformed, row * sizeof *line);
        }
}

int grid_cpu_to_image(struct grid_cpu *p, int lanes, struct c32 *image, float *squares)
{
    p->clear = p->again && !p->same_parts;
    pass_run(p, p->shape->dim - 1, lanes, false);
    int rc = grid_cpu_rest(p, lanes, image, squares);
    if (rc == 0 && p->clear)
        p->zeros = p->had < values_of(p, lanes) ? values_of(p, lanes) : p->had;
    p->clear = false;
    p->again = true;
    return rc;
}

/* The largest mark of a panel's columns. */
static int panel_mark(const struct grid_cpu *p, const struct pass *pass, const int *mark, int line, int panel)
{
    const size_t lanes = (size_t)pass->lanes, first = (size_t)panel * PANEL / lanes;
    const size_t end = ((size_t)panel * PANEL + PANEL - 1) / lanes + 1, all = (size_t)p->shape->grid[0];
    int most = -1;
    for (size_t x = first; x < end && x < all; x++) {
        const int one = mark[(size_t)line * all + x];
        most = one > most ? one : most;
    }
    return most;
}

int grid_cpu_columns(struct grid_cpu *p, int lanes, const int *mark, int number)
{
    const struct pass pass = pass_of(p, p->shape->dim - 1, lanes, false);
#pragma omp parallel for collapse(2) schedule(static, PANELS) num_threads(p->threads)
    for (int line = 0; line < pass.lines; line++)
        for (int panel = 0; panel < pass.panels; panel++)
            if (panel_mark(p, &pass, mark, line, panel) == number)
                panel_run(p, &pass, line, panel);
    return asker_rc(p->asker);
}

int grid_cpu_rest(struct grid_cpu *p, int lanes, struct c32 *image, float *squares)
{
    if (p->shape->dim == 3 && p->shape->n[2] >= PLANES_LEAST * p->threads) {
        finish_planes(p, lanes, image, squares);
        return asker_rc(p->asker);
    }
    if (p->shape->dim == 3)
        pass_run(p, 1, lanes, false);
    finish_rows(p, lanes, image, squares);
    return asker_rc(p->asker);
}

/* ---- 2-D, the x pass first ---- */

/* Values from one panel to the next: a row more than its columns have, so that the same row of neighbouring panels has
 * other places in the cache. */
static size_t panel_pitch(const struct grid_cpu *p)
{
    return ((size_t)p->shape->grid[1] + 1) * PANEL;
}

static int panels_count(const struct grid_cpu *p, int lanes)
{
    const int each = PANEL / lanes;
    return (p->shape->n[0] + each - 1) / each;
}

size_t grid_cpu_panels(const struct grid_cpu *p, int lanes)
{
    return (size_t)panels_count(p, lanes) * panel_pitch(p);
}

/* The x pass of row y: the image's columns go to the panels. */
static void row_turn(const struct grid_cpu *p, int lanes, int y, struct c32 *panels)
{
    const struct nufft_shape *s = p->shape;
    const size_t each = (size_t)lanes, row = (size_t)s->grid[0] * each, pitch = panel_pitch(p);
    const size_t half = (size_t)(s->n[0] / 2) * each, all = (size_t)s->n[0] * each;
    struct c32 *to = panels + (size_t)y * PANEL;
    if (asker_stopped(p->asker, row * COST_VALUE))
        return;
    const struct c32 *values = row_run(p, false, lanes, p->values + (size_t)y * row);
    for (size_t at = 0, count; at < all; at += count) { /* at most a panel's, from the row's end or its beginning */
        const size_t left = (at < half ? half : all) - at, room = PANEL - at % PANEL;
        count = left < room ? left : room;
        memcpy(to + at / PANEL * pitch + at % PANEL, values + (at < half ? row - half + at : at - half),
               count * sizeof *to);
    }
}

int grid_cpu_rows(struct grid_cpu *p, int lanes, const int *mark, int number, struct c32 *panels)
{
    size_t values = 0;
    for (int y = 0; y < p->shape->grid[1]; y++)
        values += mark[y] == number ? (size_t)p->shape->grid[0] * (size_t)lanes : 0;
    const int threads = values < ALONE_VALUES ? 1 : p->threads;
#pragma omp parallel for schedule(static, ROWS) num_threads(threads)
    for (int y = 0; y < p->shape->grid[1]; y++)
        if (mark[y] == number)
            row_turn(p, lanes, y, panels);
    return asker_rc(p->asker);
}

/* Deapodise a transformed panel [y][PANEL], of the image's columns from x on, into image or squares. */
static void panel_finish(const struct grid_cpu *p, int lanes, int x, const struct c32 *panel, struct c32 *image,
                         float *squares)
{
    const struct nufft_shape *s = p->shape;
    const size_t pixels = (size_t)s->n[0] * (size_t)s->n[1];
    const int end = x + PANEL / lanes < s->n[0] ? x + PANEL / lanes : s->n[0];
    for (int y = 0; y < s->n[1]; y++) {
        const struct c32 *v = panel + grid_row(y, s->n[1], s->grid[1]) * PANEL;
        const float *fx = row_factors(s, 0, y), f = row_factor(s, 0, y);
        if (lanes == 1 && !image)
            pixels_square(v, fx + x, f, end - x, squares + (size_t)y * (size_t)s->n[0] + (size_t)x);
        for (int i = x; i < end && (lanes > 1 || image); i++, v += lanes) {
            const size_t out = (size_t)y * (size_t)s->n[0] + (size_t)i;
            const float w = fx[i] * f;
            float sum = 0;
            for (int l = 0; l < lanes && image; l++)
                image[(size_t)l * pixels + out] = (struct c32){v[l].re * w, v[l].im * w};
            for (int l = 0; l < lanes && !image; l++)
                sum += v[l].re * v[l].re + v[l].im * v[l].im;
            if (!image)
                squares[out] += sum * w * w;
        }
    }
}

/* A thread that comes late, as one that slept does beside other work, leaves more to the others. */
int grid_cpu_rest_columns(struct grid_cpu *p, int lanes, const struct c32 *panels, struct c32 *image, float *squares)
{
    const size_t length = (size_t)p->shape->grid[1], pitch = panel_pitch(p);
    const int count = panels_count(p, lanes);
    const int threads = (size_t)count * length * PANEL < ALONE_VALUES ? 1 : p->threads;
#pragma omp parallel for schedule(dynamic, PANELS) num_threads(threads)
    for (int panel = 0; panel < count; panel++) {
        struct c32 *a = panel_of(p), *b = a + p->panel_count;
        if (asker_stopped(p->asker, length * PANEL * COST_VALUE))
            continue;
        const struct c32 *in = panels + (size_t)panel * pitch;
        const struct c32 *out = fft_columns_run(p->column[0][1], in, PANEL, a, b);
        panel_finish(p, lanes, panel * (PANEL / lanes), out, image, squares);
    }
    return asker_rc(p->asker);
}

int grid_cpu_from_image(struct grid_cpu *p, int lanes, const struct c32 *image)
{
    grid_cpu_lose(p);
    start_rows(p, lanes, image);
    for (int d = 1; d < p->shape->dim; d++)
        pass_run(p, d, lanes, true);
    return asker_rc(p->asker);
}
