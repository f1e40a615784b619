/* Passes over waves[z][y][x], of which x has only the half that a real field needs: lines along x by FFTW, along y and
 * z 16 neighbouring columns at a time. Along z, one pass transforms, multiplies and transforms back. Each transform
 * back is as long as the result and leaves only what is kept. */
#include "gridding/fft/filter_cpu.h"

#include "gridding/base/err.h"
#include "gridding/base/num.h"
#include "gridding/fft/columns.h"
#include "gridding/fft/fft_cpu.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 16, ALIGNMENT = 64 };

struct filter_cpu {
    struct filter_shape shape;
    int threads;
    size_t row;                                  /* waves along x, padded */
    struct c32 *waves;                           /* [z][y][row] */
    struct c32 *work;                            /* [threads][work_count] */
    size_t panel_count, plane_count, line_count; /* of the parts of a thread's memory */
    struct fft_columns *forth[3], *back[3];      /* of y and z */
    struct fft_cpu *line_forth, *line_back;
};

/* A thread's memory: three panels of columns, a plane of the result's rows, two lines. */
struct work {
    struct c32 *panel[3], *plane, *line[2];
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t padded(size_t count)
{
    return (count + COLUMNS - 1) / COLUMNS * COLUMNS;
}

static void sizes_set(struct filter_cpu *f, const struct filter_shape *shape, int threads)
{
    size_t longest = 0;
    for (int d = 0; d < 3; d++)
        longest = larger(longest, (size_t)(shape->from[d] > shape->to[d] ? shape->from[d] : shape->to[d]));
    f->shape = *shape;
    f->threads = threads;
    f->row = padded((size_t)shape->from[0] / 2 + 1);
    f->panel_count = longest * COLUMNS;
    f->plane_count = (size_t)shape->kept[1] * f->row;
    f->line_count = padded(longest);
}

static size_t waves_count(const struct filter_cpu *f)
{
    return larger((size_t)f->shape.from[2], (size_t)f->shape.kept[2]) * (size_t)f->shape.from[1] * f->row;
}

static size_t work_count(const struct filter_cpu *f)
{
    return 3 * f->panel_count + f->plane_count + 2 * f->line_count;
}

static struct work work_of(const struct filter_cpu *f)
{
    struct c32 *at = f->work + (size_t)omp_get_thread_num() * work_count(f);
    struct work w = {.panel = {at, at + f->panel_count, at + 2 * f->panel_count}};
    w.plane = at + 3 * f->panel_count;
    w.line[0] = w.plane + f->plane_count;
    w.line[1] = w.line[0] + f->line_count;
    return w;
}

size_t filter_cpu_bytes(const struct filter_shape *shape, int threads)
{
    struct filter_cpu f;
    sizes_set(&f, shape, threads);
    return (waves_count(&f) + (size_t)threads * work_count(&f)) * sizeof(struct c32) + 2 * ALIGNMENT;
}

int filter_cpu_create(struct filter_cpu **out, const struct filter_shape *shape, int threads)
{
    struct filter_cpu *f = calloc(1, sizeof *f);
    if (!f)
        return err_no_memory("a convolution");
    sizes_set(f, shape, threads);
    f->waves = aligned_alloc(ALIGNMENT, waves_count(f) * sizeof *f->waves);
    f->work = aligned_alloc(ALIGNMENT, (size_t)threads * work_count(f) * sizeof *f->work);
    int rc = f->waves && f->work
                 ? 0
                 : err_no_memory_bytes(filter_cpu_bytes(shape, threads), "a convolution by Fourier transforms");
    for (int d = 1; d < 3 && rc == 0; d++) {
        rc = fft_columns_create(&f->forth[d], shape->from[d], COLUMNS, -1);
        if (rc == 0)
            rc = fft_columns_create(&f->back[d], shape->to[d], COLUMNS, 1);
    }
    if (rc == 0)
        rc = fft_cpu_real_create(&f->line_forth, shape->from[0], -1);
    if (rc == 0)
        rc = fft_cpu_real_create(&f->line_back, shape->to[0], 1);
    if (rc == 0)
        *out = f;
    else
        filter_cpu_free(f);
    return rc;
}

void filter_cpu_free(struct filter_cpu *f)
{
    if (!f)
        return;
    for (int d = 1; d < 3; d++) {
        fft_columns_free(f->forth[d]);
        fft_columns_free(f->back[d]);
    }
    fft_cpu_free(f->line_forth);
    fft_cpu_free(f->line_back);
    free(f->waves);
    free(f->work);
    free(f);
}

/* ---- progress ---- */

/* Of passes over planes: only the calling thread calls the listener. */
struct pass {
    const struct listener *listener;
    size_t most;
    atomic_size_t done;
    atomic_int rc;
};

/* Whether to stop, after a plane. */
static bool pass_step(struct pass *p)
{
    const size_t done = atomic_fetch_add_explicit(&p->done, 1, memory_order_relaxed);
    if (omp_get_thread_num() == 0 && p->listener && atomic_load(&p->rc) == 0)
        atomic_store(&p->rc, p->listener->progress(p->listener->context, done, p->most));
    return atomic_load_explicit(&p->rc, memory_order_relaxed) != 0;
}

/* ---- passes ---- */

/* The wave at index i of n, in the order of a transform; that of half of an even n is n / 2. */
static int wave_at(int i, int n)
{
    return i <= n / 2 ? i : i - n;
}

/* Copy the waves of n rows to the rows of another length, where waves that its nodes do not tell apart are added up. */
static void rows_move(struct c32 *to, int to_n, const struct c32 *from, int n, size_t pitch)
{
    memset(to, 0, (size_t)to_n * COLUMNS * sizeof *to);
    for (int i = 0; i < n; i++) {
        if (2 * i == n)
            continue;
        const int wave = wave_at(i, n) % to_n;
        struct c32 *row = to + (size_t)(wave < 0 ? wave + to_n : wave) * COLUMNS;
        const struct c32 *values = from + (size_t)i * pitch;
        for (int c = 0; c < COLUMNS; c++)
            row[c] = (struct c32){row[c].re + values[c].re, row[c].im + values[c].im};
    }
}

/* The same along x, where waves below 0 are the conjugates of those above. */
static void line_move(struct c32 *to, int to_n, const struct c32 *from, int n)
{
    memset(to, 0, ((size_t)to_n / 2 + 1) * sizeof *to);
    for (int i = 0; 2 * i < n; i++) {
        const int above = i % to_n, below = (to_n - above) % to_n;
        if (above <= to_n / 2)
            to[above] = (struct c32){to[above].re + from[i].re, to[above].im + from[i].im};
        if (i > 0 && below <= to_n / 2)
            to[below] = (struct c32){to[below].re + from[i].re, to[below].im - from[i].im};
    }
}

static void forth_xy(struct filter_cpu *f, const float *field, struct pass *pass)
{
    const struct filter_shape *s = &f->shape;
    const size_t nx = (size_t)s->from[0], ny = (size_t)s->from[1];
#pragma omp parallel for schedule(dynamic) num_threads(f->threads)
    for (int z = 0; z < s->from[2]; z++) {
        const struct work w = work_of(f);
        struct c32 *plane = f->waves + (size_t)z * ny * f->row;
        if (pass_step(pass))
            continue;
        for (size_t y = 0; y < ny; y++) {
            float *line = (float *)w.line[0];
            memcpy(line, field + ((size_t)z * ny + y) * nx, nx * sizeof *line);
            fft_cpu_real_forth(f->line_forth, line, plane + y * f->row);
            memset(plane + y * f->row + nx / 2 + 1, 0, (f->row - nx / 2 - 1) * sizeof *plane);
        }
        for (size_t at = 0; at < f->row; at += COLUMNS) {
            const struct c32 *out = fft_columns_run(f->forth[1], plane + at, f->row, w.panel[0], w.panel[1]);
            for (size_t y = 0; y < ny; y++)
                memcpy(plane + y * f->row + at, out + y * COLUMNS, COLUMNS * sizeof *plane);
        }
    }
}

static void multiply(const struct filter_cpu *f, int x, int y, const struct filter_factors *factors, struct c32 *panel)
{
    const struct filter_shape *s = &f->shape;
    const int last = (int)factors->count - 2, wave_y = abs(wave_at(y, s->from[1]));
    const float most = factors->most > 0 ? (float)factors->most : INFINITY;
    float place[3], across[COLUMNS], scale[COLUMNS];
    for (int d = 0; d < 3; d++)
        place[d] = (float)(factors->wave[d] / factors->step);
    for (int c = 0; c < COLUMNS; c++) {
        const float along_x = (float)(x + c) * place[0], along_y = (float)wave_y * place[1];
        across[c] = along_x * along_x + along_y * along_y;
        /* What is beyond half the nodes only fills the panel. */
        scale[c] = x + c <= s->from[0] / 2 ? factors->axis[0][x + c] * factors->axis[1][wave_y] : 0;
    }
    for (int z = 0; z < s->from[2]; z++) {
        struct c32 *row = panel + (size_t)z * COLUMNS;
        const int wave_z = abs(wave_at(z, s->from[2]));
        const float along = (float)wave_z * place[2], axis = factors->axis[2][wave_z];
        for (int c = 0; c < COLUMNS; c++) {
            const float axes = scale[c] * axis;
            const float factor =
                axes > most ? 0 : axes * filter_radial(factors->radial, last, sqrtf(along * along + across[c]));
            row[c] = (struct c32){row[c].re * factor, row[c].im * factor};
        }
    }
}

static void forth_and_back_z(struct filter_cpu *f, const struct filter_factors *factors, struct pass *pass)
{
    const struct filter_shape *s = &f->shape;
    const size_t plane = (size_t)s->from[1] * f->row;
#pragma omp parallel for schedule(dynamic) num_threads(f->threads)
    for (int y = 0; y < s->from[1]; y++) {
        const struct work w = work_of(f);
        if (pass_step(pass))
            continue;
        for (size_t at = 0; at < f->row; at += COLUMNS) {
            struct c32 *base = f->waves + (size_t)y * f->row + at;
            struct c32 *out = fft_columns_run(f->forth[2], base, plane, w.panel[0], w.panel[1]);
            struct c32 *other = out == w.panel[0] ? w.panel[1] : w.panel[0];
            multiply(f, (int)at, y, factors, out);
            rows_move(w.panel[2], s->to[2], out, s->from[2], COLUMNS);
            out = fft_columns_run(f->back[2], w.panel[2], COLUMNS, other, w.panel[2]);
            for (int z = 0; z < s->kept[2]; z++)
                memcpy(base + (size_t)z * plane, out + (size_t)z * COLUMNS, COLUMNS * sizeof *base);
        }
    }
}

static void back_xy(struct filter_cpu *f, float *result, struct pass *pass)
{
    const struct filter_shape *s = &f->shape;
    const size_t kept_x = (size_t)s->kept[0], kept_y = (size_t)s->kept[1];
#pragma omp parallel for schedule(dynamic) num_threads(f->threads)
    for (int z = 0; z < s->kept[2]; z++) {
        const struct work w = work_of(f);
        const struct c32 *plane = f->waves + (size_t)z * (size_t)s->from[1] * f->row;
        if (pass_step(pass))
            continue;
        for (size_t at = 0; at < f->row; at += COLUMNS) {
            rows_move(w.panel[2], s->to[1], plane + at, s->from[1], f->row);
            const struct c32 *out = fft_columns_run(f->back[1], w.panel[2], COLUMNS, w.panel[0], w.panel[2]);
            for (size_t y = 0; y < kept_y; y++)
                memcpy(w.plane + y * f->row + at, out + y * COLUMNS, COLUMNS * sizeof *out);
        }
        for (size_t y = 0; y < kept_y; y++) {
            float *line = (float *)w.line[1];
            line_move(w.line[0], s->to[0], w.plane + y * f->row, s->from[0]);
            fft_cpu_real_back(f->line_back, w.line[0], line);
            memcpy(result + ((size_t)z * kept_y + y) * kept_x, line, kept_x * sizeof *line);
        }
    }
}

int filter_cpu_run(struct filter_cpu *f, const float *field, const struct filter_factors *factors, float *result,
                   const struct listener *listener)
{
    const struct filter_shape *s = &f->shape;
    struct pass pass = {.listener = listener, .most = (size_t)s->from[2] + (size_t)s->from[1] + (size_t)s->kept[2]};
    forth_xy(f, field, &pass);
    forth_and_back_z(f, factors, &pass);
    back_xy(f, result, &pass);
    return atomic_load(&pass.rc);
}
