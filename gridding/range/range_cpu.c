/* range_cpu.c: sums over compact bins on the CPU: the distribution of bins over threads, and the order of adding them
 * up.
 *
 * Scatter: a thread sums a bin's points into a private tile (the bin's cells and a halo of width - 1), then adds the
 * tile to the grid. Tiles overlap by their halos, so bins are processed colour by colour: bins of one colour never
 * touch the same cell. No atomics; every cell receives its summands in the same order for any number of threads. A bin
 * with very many points (k = 0 of a radial scan) is cut into parts with their own tiles, which are summed first and
 * added in order. Gather needs no order: tiles are only read. */
#include "gridding/range/points.h"
#include "gridding/base/cpu_set.h"
#include "gridding/base/err.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 8, PART_LEAST = 8192, PARTS_MOST = 256, GATHERED = 4096 /* points at a time */, LINES_AHEAD = 2 };
/* A point's cells in the grid are farther apart than in a tile; a tile's cells are passed over three times. */
enum { REACHED_MOST = 2 };

struct part {
    uint32_t bin;
    size_t first, count; /* points */
};

struct range_cpu {
    const struct range_bins *bins;
    const struct range_kernel *law;
    const struct points_leaf *leaf;
    int threads;
    uint32_t *order;            /* occupied bins by colour, the fullest first */
    size_t colour[COLOURS + 1]; /* start of each colour in `order` */
    struct part *part;          /* parts of heavy bins, bin after bin */
    size_t parts, part_points;
    int extent[3];      /* cells of the largest tile */
    size_t tile_floats; /* of the largest tile at the most lanes */
    float *tiles;       /* [threads + parts + threads][tile_floats]: of threads, of parts, and .. */
    float *sums;        /* .. [threads]: sums of at most `together` points, or NULL: no bin has more */
    size_t together;
    struct asker *asker;
};

/* Approximate costs, in ns, of a point's kernel in one lane, of a cell of a tile, and of 4096 floats that are cleared.
 */
enum { COST_POINT = 16, COST_CELL = 1, COST_CLEARED = 1000 };

int range_cpu_lanes(int wanted)
{
    return wanted >= 16 ? 16 : wanted >= 8 ? 8 : wanted >= 4 ? 4 : 1;
}

static const struct points_leaf *best_leaf(void)
{
    static const struct points_leaf *const leaf[] = {&points_leaf_sse2, &points_leaf_avx2, &points_leaf_avx512};
    return leaf[cpu_set_best()];
}

static void bin_place(const struct range_bins *b, size_t bin, int tile[3])
{
    tile[0] = (int)(bin % (size_t)b->tiles[0]);
    tile[1] = (int)(bin / (size_t)b->tiles[0] % (size_t)b->tiles[1]);
    tile[2] = (int)(bin / ((size_t)b->tiles[0] * (size_t)b->tiles[1]));
}

/* Neighbours along an axis have different colours, because its number of bins is even, or one. */
static int bin_colour(const struct range_bins *b, size_t bin)
{
    int tile[3];
    bin_place(b, bin, tile);
    return tile[0] % 2 + tile[1] % 2 * 2 + tile[2] % 2 * 4;
}

struct ranked {
    size_t count;
    uint32_t bin;
    int colour;
};

static int by_colour_then_size(const void *a, const void *b)
{
    const struct ranked *p = a, *q = b;
    if (p->colour != q->colour)
        return p->colour - q->colour;
    if (p->count != q->count)
        return p->count < q->count ? 1 : -1;
    return p->bin < q->bin ? -1 : 1;
}

static int make_order(struct range_cpu *s)
{
    const struct range_bins *b = s->bins;
    struct ranked *rank = malloc((b->occupied + 1) * sizeof *rank);
    s->order = malloc((b->occupied + 1) * sizeof *s->order);
    s->part_points = b->count / PARTS_MOST > PART_LEAST ? b->count / PARTS_MOST : PART_LEAST;
    s->part = malloc((b->count / s->part_points * 2 + 2) * sizeof *s->part);
    if (!rank || !s->order || !s->part) {
        free(rank);
        return err_no_memory("ordering %zu bins", b->occupied);
    }
    size_t n = 0;
    for (size_t bin = 0; bin < b->bins; bin++) {
        size_t count = b->offset[bin + 1] - b->offset[bin];
        if (count == 0)
            continue;
        rank[n++] = (struct ranked){count, (uint32_t)bin, bin_colour(b, bin)};
        for (size_t first = 0; count > 2 * s->part_points && first < count; first += s->part_points)
            s->part[s->parts++] = (struct part){(uint32_t)bin, b->offset[bin] + first,
                                                count - first < s->part_points ? count - first : s->part_points};
    }
    qsort(rank, n, sizeof *rank, by_colour_then_size);
    for (size_t i = 0; i < n; i++) {
        s->order[i] = rank[i].bin;
        s->colour[rank[i].colour + 1] = i + 1;
    }
    for (int c = 1; c <= COLOURS; c++)
        s->colour[c] = s->colour[c] > s->colour[c - 1] ? s->colour[c] : s->colour[c - 1];
    free(rank);
    return 0;
}

static int row_floats(const struct range_cpu *s, int lanes)
{
    return (s->extent[0] * 2 * lanes + 2 * LAW_LANES - 1) / LAW_LANES * LAW_LANES;
}

int range_cpu_create(struct range_cpu **out, const struct range_bins *bins, const struct range_kernel *law, int lanes,
                     size_t together, int threads, struct asker *asker)
{
    struct range_cpu *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory("sums");
    s->bins = bins;
    s->law = law;
    s->leaf = best_leaf();
    s->threads = threads;
    s->asker = asker;
    for (int d = 0; d < 3; d++)
        s->extent[d] = d < bins->dim ? bins->most_cells[d] + law->width - 1 : 1;
    s->tile_floats = (size_t)row_floats(s, lanes) * (size_t)s->extent[1] * (size_t)s->extent[2] + LAW_LANES;
    s->tile_floats = (s->tile_floats + LAW_LANES - 1) / LAW_LANES * LAW_LANES;
    int rc = make_order(s);
    if (!rc) {
        const size_t tiles = (size_t)threads + s->parts, extra = bins->largest > together ? (size_t)threads : 0;
        const size_t bytes = (tiles + extra) * s->tile_floats * sizeof(float);
        s->together = together;
        s->tiles = aligned_alloc(64, bytes);
        s->sums = s->tiles && extra > 0 ? s->tiles + tiles * s->tile_floats : NULL;
        if (!s->tiles)
            rc = err_no_memory_bytes(bytes, "the tiles of %d threads", threads);
    }
    if (!rc)
        *out = s;
    else
        range_cpu_free(s);
    return rc;
}

void range_cpu_free(struct range_cpu *sums)
{
    if (!sums)
        return;
    free(sums->order);
    free(sums->part);
    free(sums->tiles);
    free(sums);
}

size_t range_cpu_bytes(const struct range_cpu *sums)
{
    return ((size_t)sums->threads * (sums->sums ? 2 : 1) + sums->parts) * sums->tile_floats * sizeof(float);
}

static struct points_run run_of(const struct range_cpu *s, int lanes, size_t tile, size_t first, size_t count,
                                const float *weight)
{
    return (struct points_run){.law = s->law,
                               .dim = s->bins->dim,
                               .lanes = lanes,
                               .point = s->bins->point + first,
                               .count = count,
                               .weight = weight ? weight + first : NULL,
                               .tile = {s->tiles + tile * s->tile_floats, row_floats(s, lanes), s->extent[1]}};
}

/* The cells that a bin's tile covers. */
static void bin_box(const struct range_cpu *s, size_t bin, int place[3], int start[3], int cells[3])
{
    const struct range_bins *b = s->bins;
    bin_place(b, bin, place);
    for (int d = 0; d < 3; d++) {
        start[d] = range_tile_start(place[d], b->tiles[d], b->grid[d]);
        cells[d] =
            range_tile_start(place[d] + 1, b->tiles[d], b->grid[d]) - start[d] + (d < b->dim ? s->law->width - 1 : 0);
    }
}

/* Line (y, z) of the grid, counted from the tile's first cell. */
static float *line_of(const struct range_bins *b, const int start[3], int y, int z, int lanes, struct c32 *grid)
{
    const size_t gz = (size_t)((start[2] + z) % b->grid[2]), gy = (size_t)((start[1] + y) % b->grid[1]);
    return (float *)(grid + (gz * (size_t)b->grid[1] + gy) * (size_t)b->grid[0] * (size_t)lanes);
}

/* The hardware's prefetcher ends with each line of the grid, which is far from the next. */
static void line_prefetch(const float *cells, size_t floats, bool add)
{
    for (size_t e = 0; e < floats && add; e += LAW_LANES)
        __builtin_prefetch(cells + e, 1);
    for (size_t e = 0; e < floats && !add; e += LAW_LANES)
        __builtin_prefetch(cells + e, 0);
}

/* Call row(grid cells, tile cells, floats) for each contiguous run of a bin's tile in the periodic grid. `add`: grid +=
 * tile; otherwise tile = grid. */
static void exchange(const struct range_cpu *s, size_t bin, const struct points_tile *tile, int lanes, struct c32 *grid,
                     bool add)
{
    const struct range_bins *b = s->bins;
    int place[3], start[3], cells[3];
    bin_box(s, bin, place, start, cells);
    size_t lane_floats = 2 * (size_t)lanes;
    for (int z = 0; z < cells[2]; z++)
        for (int y = 0; y < cells[1]; y++) {
            float *line = line_of(b, start, y, z, lanes, grid);
            float *own = tile->cells + ((size_t)z * (size_t)tile->rows + (size_t)y) * (size_t)tile->row;
            int at = start[0];
            if (y + LINES_AHEAD < cells[1])
                line_prefetch(line_of(b, start, y + LINES_AHEAD, z, lanes, grid) + (size_t)at * lane_floats,
                              (size_t)cells[0] * lane_floats, add);
            for (int done = 0; done < cells[0];) {
                int n = b->grid[0] - at < cells[0] - done ? b->grid[0] - at : cells[0] - done;
                float *g = line + (size_t)at * lane_floats, *t = own + (size_t)done * lane_floats;
                size_t floats = (size_t)n * lane_floats;
                if (add)
                    for (size_t e = 0; e < floats; e++)
                        g[e] += t[e];
                else
                    memcpy(t, g, floats * sizeof *t);
                done += n;
                at = 0;
            }
        }
}

/* exchange() with `add` into the packed grid of `rows`. A bin's cells of a line are contiguous in its row, unless the
 * row is the whole line. */
static void add_to_rows(const struct range_cpu *s, size_t bin, const struct points_tile *tile, int lanes,
                        const struct range_rows *rows, struct c32 *packed)
{
    const struct range_bins *b = s->bins;
    int place[3], start[3], cells[3];
    bin_box(s, bin, place, start, cells);
    size_t lane_floats = 2 * (size_t)lanes;
    for (int z = 0; z < cells[2]; z++)
        for (int y = 0; y < cells[1]; y++) {
            size_t line =
                (size_t)((start[2] + z) % b->grid[2]) * (size_t)b->grid[1] + (size_t)((start[1] + y) % b->grid[1]);
            const struct range_row *row = &rows->row[rows->of_line[line] - 1];
            float *to = (float *)(packed + row->at * (size_t)lanes);
            const float *own = tile->cells + ((size_t)z * (size_t)tile->rows + (size_t)y) * (size_t)tile->row;
            size_t at = (size_t)((start[0] - (int)row->first + b->grid[0]) % b->grid[0]);
            for (size_t done = 0; done < (size_t)cells[0];) {
                size_t n = row->cells - at < (size_t)cells[0] - done ? row->cells - at : (size_t)cells[0] - done;
                for (size_t e = 0; e < n * lane_floats; e++)
                    to[at * lane_floats + e] += own[done * lane_floats + e];
                done += n;
                at = 0;
            }
        }
}

static void clear(const struct range_cpu *s, const struct points_run *run)
{
    memset(run->tile.cells, 0, (size_t)run->tile.row * (size_t)run->tile.rows * (size_t)s->extent[2] * sizeof(float));
}

/* Add a tile to another, and clear it. */
static void move_tile(float *restrict from, float *restrict to, size_t floats)
{
    for (size_t i = 0; i < floats; i++) {
        to[i] += from[i];
        from[i] = 0;
    }
}

/* Whether to stop before `count` points are summed into a tile, or from one. */
static bool stopped(const struct range_cpu *s, const struct points_run *run, size_t count)
{
    const size_t cells = (size_t)run->tile.row * (size_t)run->tile.rows * (size_t)s->extent[2] / 2;
    return asker_stopped(s->asker, count * (size_t)run->lanes * COST_POINT + cells * COST_CELL);
}

/* Sum a run's points into its tile, `together` at a time: the error of a float32 sum of many points of equal sign in
 * one place grows with their number. */
static void sum_run(const struct range_cpu *s, const struct points_run *run, const struct c32 *values, size_t stride)
{
    const size_t floats = (size_t)run->tile.row * (size_t)run->tile.rows * (size_t)s->extent[2];
    clear(s, run);
    if (run->count <= s->together) {
        s->leaf->scatter(run, values, stride);
        return;
    }
    struct points_run cut = *run;
    cut.tile.cells = s->sums + (size_t)omp_get_thread_num() * s->tile_floats;
    clear(s, &cut);
    for (size_t first = 0; first < run->count; first += s->together) {
        cut.point = run->point + first;
        cut.weight = run->weight ? run->weight + first : NULL;
        cut.count = run->count - first < s->together ? run->count - first : s->together;
        if (stopped(s, &cut, cut.count))
            return;
        s->leaf->scatter(&cut, values, stride);
        move_tile(cut.tile.cells, run->tile.cells, floats);
    }
}

static size_t points_in(const struct range_bins *b, size_t bin)
{
    return b->offset[bin + 1] - b->offset[bin];
}

/* The first part of a heavy bin. */
static size_t first_part(const struct range_cpu *s, uint32_t bin)
{
    size_t low = 0, high = s->parts;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->part[middle].bin < bin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The target of the sums: a whole grid, or its packed rows. */
struct target {
    struct c32 *cells;
    const struct range_rows *rows; /* or NULL */
};

static void add_tile(const struct range_cpu *s, size_t bin, const struct points_tile *tile, int lanes,
                     const struct target *to)
{
    if (to->rows)
        add_to_rows(s, bin, tile, lanes, to->rows, to->cells);
    else
        exchange(s, bin, tile, lanes, to->cells, true);
}

/* Few points reach fewer cells than their tile has, which would be cleared, and added to the grid: they are summed in
 * the grid itself, in *tile. Not where the bin wraps around, nor where a kernel's row ends within a vector. */
static bool sums_in_grid(const struct range_cpu *s, size_t bin, int lanes, const struct target *to,
                         struct points_tile *tile)
{
    const struct range_bins *b = s->bins;
    int place[3], start[3], cells[3];
    bin_box(s, bin, place, start, cells);
    size_t reached = points_in(b, bin), all = 1;
    bool inside = !to->rows && s->law->width * 2 * lanes % LAW_LANES == 0;
    for (int d = 0; d < b->dim; d++) {
        reached *= (size_t)s->law->width;
        all *= (size_t)cells[d];
        inside = inside && start[d] + cells[d] <= b->grid[d];
    }
    const size_t first =
        ((size_t)start[2] * (size_t)b->grid[1] + (size_t)start[1]) * (size_t)b->grid[0] + (size_t)start[0];
    *tile = (struct points_tile){(float *)(to->cells + first * (size_t)lanes), 2 * lanes * b->grid[0], b->grid[1]};
    return inside && reached <= all * REACHED_MOST;
}

static void scatter_bin(struct range_cpu *s, uint32_t bin, size_t thread, int lanes, const struct c32 *values,
                        size_t stride, const float *weight, const struct target *to)
{
    const struct range_bins *b = s->bins;
    if (points_in(b, bin) > 2 * s->part_points) {
        for (size_t p = first_part(s, bin); p < s->parts && s->part[p].bin == bin; p++) {
            struct points_run run =
                run_of(s, lanes, (size_t)s->threads + p, s->part[p].first, s->part[p].count, weight);
            add_tile(s, bin, &run.tile, lanes, to);
        }
        return;
    }
    struct points_run run = run_of(s, lanes, thread, b->offset[bin], points_in(b, bin), weight);
    if (stopped(s, &run, run.count <= s->together ? run.count : 0))
        return;
    if (run.count <= s->together && sums_in_grid(s, bin, lanes, to, &run.tile)) {
        s->leaf->scatter(&run, values, stride);
        return;
    }
    run = run_of(s, lanes, thread, b->offset[bin], points_in(b, bin), weight);
    sum_run(s, &run, values, stride);
    add_tile(s, bin, &run.tile, lanes, to);
}

/* The first `cells` of the target are cleared before. */
static int scatter(struct range_cpu *s, int lanes, const struct c32 *values, size_t stride, const float *weight,
                   size_t cells, const struct target *to)
{
    enum { CLEARED = 4096 }; /* floats at a time */
    size_t floats = cells * 2 * (size_t)lanes, chunks = (floats + CLEARED - 1) / CLEARED;
#pragma omp parallel num_threads(s->threads)
    {
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < chunks; i++)
            if (!asker_stopped(s->asker, COST_CLEARED))
                memset((float *)to->cells + i * CLEARED, 0,
                       (i + 1 < chunks ? CLEARED : floats - i * CLEARED) * sizeof(float));
#pragma omp for schedule(dynamic)
        for (size_t p = 0; p < s->parts; p++) {
            struct points_run run =
                run_of(s, lanes, (size_t)s->threads + p, s->part[p].first, s->part[p].count, weight);
            sum_run(s, &run, values, stride);
        }
        for (int c = 0; c < COLOURS; c++) {
            if (s->colour[c] == s->colour[c + 1])
                continue;
#pragma omp for schedule(dynamic)
            for (size_t i = s->colour[c]; i < s->colour[c + 1]; i++)
                scatter_bin(s, s->order[i], (size_t)omp_get_thread_num(), lanes, values, stride, weight, to);
        }
    }
    return asker_rc(s->asker);
}

int range_cpu_scatter(struct range_cpu *sums, int lanes, const struct c32 *values, size_t stride, const float *weight,
                      struct c32 *grid)
{
    const struct range_bins *b = sums->bins;
    const struct target whole = {grid, NULL};
    return scatter(sums, lanes, values, stride, weight, (size_t)b->grid[0] * (size_t)b->grid[1] * (size_t)b->grid[2],
                   &whole);
}

int range_cpu_scatter_add(struct range_cpu *sums, int lanes, const struct c32 *values, size_t stride,
                          const float *weight, struct c32 *grid)
{
    const struct target whole = {grid, NULL};
    return scatter(sums, lanes, values, stride, weight, 0, &whole);
}

int range_cpu_scatter_rows(struct range_cpu *sums, const struct range_rows *rows, int lanes, const struct c32 *values,
                           size_t stride, const float *weight, struct c32 *packed)
{
    const struct target part = {packed, rows};
    return scatter(sums, lanes, values, stride, weight, rows->cells, &part);
}

static void gather_run(struct range_cpu *s, size_t bin, size_t thread, size_t first, size_t count, int lanes,
                       const struct c32 *grid, const float *weight, struct c32 *values, size_t stride)
{
    struct points_run run = run_of(s, lanes, thread, first, 0, weight);
    if (stopped(s, &run, 0))
        return;
    /* exchange() only reads the grid here. */
    exchange(s, bin, &run.tile, lanes, (struct c32 *)(uintptr_t)grid, false);
    for (size_t at = 0; at < count; at += run.count) {
        run = run_of(s, lanes, thread, first + at, count - at < GATHERED ? count - at : GATHERED, weight);
        if (asker_stopped(s->asker, run.count * (size_t)lanes * COST_POINT))
            return;
        s->leaf->gather(&run, values, stride);
    }
}

int range_cpu_gather(struct range_cpu *sums, int lanes, const struct c32 *grid, const float *weight, struct c32 *values,
                     size_t stride)
{
    struct range_cpu *s = sums;
    const struct range_bins *b = s->bins;
#pragma omp parallel num_threads(s->threads)
    {
        size_t thread = (size_t)omp_get_thread_num();
        /* Padding is read with whole vectors and multiplied by 0, so it must be finite. */
        struct points_run padding = run_of(s, lanes, thread, 0, 0, NULL);
        clear(s, &padding);
#pragma omp for schedule(dynamic) nowait
        for (size_t p = 0; p < s->parts; p++)
            gather_run(s, s->part[p].bin, thread, s->part[p].first, s->part[p].count, lanes, grid, weight, values,
                       stride);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < b->occupied; i++) {
            uint32_t bin = s->order[i];
            if (points_in(b, bin) <= 2 * s->part_points)
                gather_run(s, bin, thread, b->offset[bin], points_in(b, bin), lanes, grid, weight, values, stride);
        }
    }
    return asker_rc(s->asker);
}
