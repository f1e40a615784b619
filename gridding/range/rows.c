/* rows.c: the cells of a grid that the kernels of binned points reach. */
#include "gridding/range/range.h"
#include "gridding/base/err.h"

#include <stdlib.h>
#include <string.h>

/* The occupied bins that reach each line of cells: reached[line][tiles[0]]. */
static void mark(const struct range_bins *b, uint8_t *reached)
{
    int halo = b->width - 1;
    for (size_t bin = 0; bin < b->bins; bin++) {
        if (b->offset[bin] == b->offset[bin + 1])
            continue;
        int x = (int)(bin % (size_t)b->tiles[0]), y = (int)(bin / (size_t)b->tiles[0] % (size_t)b->tiles[1]),
            z = (int)(bin / ((size_t)b->tiles[0] * (size_t)b->tiles[1]));
        int y0 = range_tile_start(y, b->tiles[1], b->grid[1]), y1 = range_tile_start(y + 1, b->tiles[1], b->grid[1]);
        int z0 = range_tile_start(z, b->tiles[2], b->grid[2]), z1 = range_tile_start(z + 1, b->tiles[2], b->grid[2]);
        for (int gz = z0; gz < z1 + (b->dim == 3 ? halo : 0); gz++)
            for (int gy = y0; gy < y1 + halo; gy++) {
                size_t line = (size_t)(gz % b->grid[2]) * (size_t)b->grid[1] + (size_t)(gy % b->grid[1]);
                reached[line * (size_t)b->tiles[0] + (size_t)x] = 1;
            }
    }
}

/* The shortest periodic run of cells that contains the marked bins and their halos; 0 cells: none is marked. */
static struct range_row run_of(const struct range_bins *b, const uint8_t *marked)
{
    int n = b->tiles[0], gap = 0, longest = 0, after = 0, first = 0;
    while (first < n && !marked[first])
        first++;
    if (first == n)
        return (struct range_row){.cells = 0};
    /* Go once around from the first marked bin; the longest gap ends before bin `after`. */
    for (int i = 1; i <= n; i++) {
        int x = (first + i) % n;
        if (!marked[x]) {
            gap++;
            continue;
        }
        if (gap > longest) {
            longest = gap;
            after = x;
        }
        gap = 0;
    }
    struct range_row row = {.first = (uint32_t)range_tile_start(after, n, b->grid[0])};
    int last = (after + n - longest - 1) % n, end = range_tile_start(last + 1, n, b->grid[0]) + b->width - 1;
    int cells = end - (int)row.first;
    cells += last < after ? b->grid[0] : 0;
    if (longest == 0 || cells >= b->grid[0])
        return (struct range_row){.first = 0, .cells = (uint32_t)b->grid[0]};
    row.cells = (uint32_t)cells;
    return row;
}

int range_rows_create(struct range_rows **out, const struct range_bins *b)
{
    size_t lines = (size_t)b->grid[1] * (size_t)b->grid[2], bytes = 0;
    struct range_rows *rows = calloc(1, sizeof *rows);
    uint8_t *reached = size_mul(lines, (size_t)b->tiles[0], &bytes) ? calloc(bytes, 1) : NULL;
    if (rows) {
        rows->row = malloc(lines * sizeof *rows->row);
        rows->of_line = calloc(lines, sizeof *rows->of_line);
    }
    if (!rows || !reached || !rows->row || !rows->of_line) {
        range_rows_free(rows);
        free(reached);
        return err_no_memory_bytes(bytes, "listing the rows of %zu bins", b->bins);
    }
    mark(b, reached);
    for (size_t line = 0; line < lines; line++) {
        struct range_row row = run_of(b, reached + line * (size_t)b->tiles[0]);
        if (row.cells == 0)
            continue;
        row.line = (uint32_t)line;
        row.at = rows->cells;
        rows->row[rows->count++] = row;
        rows->of_line[line] = (uint32_t)rows->count;
        rows->cells += row.cells;
    }
    free(reached);
    *out = rows;
    return 0;
}

void range_rows_free(struct range_rows *rows)
{
    if (!rows)
        return;
    free(rows->row);
    free(rows->of_line);
    free(rows);
}

int range_columns_mark(const struct range_bins *b, int number, int *mark)
{
    const bool deep = b->dim == 3;
    const size_t lines = deep ? (size_t)b->grid[1] : 1, row = (size_t)b->grid[0];
    uint8_t *first = calloc(lines * row, 1); /* columns of points' first cells, of which there are few */
    if (!first)
        return err_no_memory("%zu columns of a grid", lines * row);
    for (size_t bin = 0; bin < b->bins; bin++) {
        const int x = (int)(bin % (size_t)b->tiles[0]), y = (int)(bin / (size_t)b->tiles[0] % (size_t)b->tiles[1]);
        const size_t x0 = (size_t)range_tile_start(x, b->tiles[0], b->grid[0]),
                     y0 = deep ? (size_t)range_tile_start(y, b->tiles[1], b->grid[1]) : 0;
        for (size_t i = b->offset[bin]; i < b->offset[bin + 1]; i++)
            first[(y0 + (deep ? b->point[i].cell[1] : 0u)) * row + x0 + b->point[i].cell[0]] = 1;
    }
    for (size_t at = 0; at < lines * row; at++)
        for (size_t r = 0; r < (deep ? (size_t)b->width : 1) && first[at]; r++)
            for (size_t c = 0; c < (size_t)b->width; c++) {
                int *one = &mark[(at / row + r) % lines * row + (at % row + c) % row];
                *one = *one < 0 ? number : *one;
            }
    free(first);
    return 0;
}

int range_rows_mark(const struct range_bins *b, int number, int *mark)
{
    const size_t rows = (size_t)b->grid[1];
    uint8_t *first = calloc(rows, 1); /* rows of points' first cells */
    if (!first)
        return err_no_memory("%zu rows of a grid", rows);
    for (size_t bin = 0; bin < b->bins; bin++) {
        const int y = (int)(bin / (size_t)b->tiles[0]);
        const size_t y0 = (size_t)range_tile_start(y, b->tiles[1], b->grid[1]);
        for (size_t i = b->offset[bin]; i < b->offset[bin + 1]; i++)
            first[y0 + b->point[i].cell[1]] = 1;
    }
    for (size_t at = 0; at < rows; at++)
        for (size_t r = 0; r < (size_t)b->width && first[at]; r++) {
            int *one = &mark[(at + r) % rows];
            *one = *one < 0 ? number : *one;
        }
    free(first);
    return 0;
}
