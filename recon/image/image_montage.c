/* A picture of a series: all of its slices, channels and frames as tiles, in one window, with numbers and gaps. */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PIXELS = 4096, /* across and down: a size that browsers and viewers show without trouble */
    SMALLEST_TILE = 16, /* tiles are not shrunk below this; of more tiles than fit, only some are shown */
    MOST_STRETCH = 16,  /* of a tile, along the axis whose pixels are longer */
    GAP = 2,            /* between tiles */
    GLYPH_WIDTH = 6,    /* with the space behind it */
    GLYPH_HEIGHT = 7,
    CAPTION = GLYPH_HEIGHT + 2,
    CAPTION_LENGTH = 64,
    GREY_GAP = 56,
    GREY_TEXT = 255,
    BLOCK = 1024 /* pixels at a time */
};

/* What tells tiles apart. */
enum dimension { FRAMES, SLICES, PLANES, CHANNELS, DIMENSIONS };

enum caption { CAPTION_WORDS, CAPTION_LETTERS, CAPTION_NUMBERS, CAPTION_NONE };

/* The arrangement of the tiles. In a table every row_step-th row and column_step-th column is shown; else every
 * column_step-th tile of a list, which is broken into rows. */
struct montage {
    const struct image_series *series;
    struct image_layout layout;
    size_t extent[DIMENSIONS];
    double native[2];     /* pixels of the picture of a tile that is not shrunk: its pixels are square */
    size_t width, height; /* of a tile */
    bool table;
    size_t across, down; /* of the table; of a list: its length, and 1 */
    size_t column_step, row_step;
    size_t columns, rows; /* that are shown */
    size_t tiles;
    enum caption caption;
};

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* ---- the order of the tiles ---- */

/* The index along each dimension of a tile of the table or the list. */
static void tile_place(const struct montage *m, size_t row, size_t column, size_t place[DIMENSIONS])
{
    size_t rest = m->table ? row * m->across + column : column;
    for (int d = DIMENSIONS - 1; d >= 0; d--) {
        place[d] = rest % m->extent[d];
        rest /= m->extent[d];
    }
}

/* Numbers count from 1. Dimensions of size 1 are left out. */
static void caption_print(const struct montage *m, const size_t place[DIMENSIONS], char text[CAPTION_LENGTH])
{
    static const char *const words[] = {
        [FRAMES] = "frame ", [SLICES] = "slice ", [PLANES] = "z ", [CHANNELS] = "coil "};
    int used = 0;
    text[0] = '\0';
    for (int d = 0; d < DIMENSIONS && m->caption != CAPTION_NONE; d++) {
        int letters = m->caption == CAPTION_WORDS ? (int)strlen(words[d]) : m->caption == CAPTION_LETTERS ? 1 : 0;
        if (m->extent[d] > 1)
            used += snprintf(text + used, (size_t)(CAPTION_LENGTH - used), "%s%.*s%zu", used ? " " : "", letters,
                             words[d], place[d] + 1);
    }
}

/* The most detailed caption that fits every tile. */
static void caption_choose(struct montage *m)
{
    size_t last[DIMENSIONS];
    char text[CAPTION_LENGTH];
    for (int d = 0; d < DIMENSIONS; d++)
        last[d] = m->extent[d] - 1;
    for (m->caption = CAPTION_WORDS; m->caption < CAPTION_NONE; m->caption++) {
        caption_print(m, last, text);
        if (*text && strlen(text) * GLYPH_WIDTH < m->width)
            return;
    }
}

/* ---- the plan ---- */

static size_t cell_height(const struct montage *m)
{
    return m->height + (m->caption != CAPTION_NONE ? CAPTION : 0);
}

static size_t picture_width(const struct montage *m)
{
    return m->columns * (m->width + GAP) - GAP;
}

static size_t picture_height(const struct montage *m)
{
    return m->rows * (cell_height(m) + GAP) - GAP;
}

/* Break a list into rows so that the picture is nearly square. */
static bool montage_fits(struct montage *m)
{
    size_t most_columns = (MOST_PIXELS + GAP) / (m->width + GAP),
           most_rows = (MOST_PIXELS + GAP) / (cell_height(m) + GAP);
    m->columns = ceil_div(m->across, m->column_step);
    m->rows = ceil_div(m->down, m->row_step);
    m->tiles = m->columns * m->rows;
    if (m->table || most_columns == 0 || most_rows == 0)
        return m->columns <= most_columns && m->rows <= most_rows;
    size_t square = (size_t)lround(sqrt((double)m->tiles * (double)cell_height(m) / (double)m->width));
    size_t fewest = ceil_div(m->tiles, most_rows);
    m->columns = square < fewest ? fewest : square;
    m->columns = m->columns > most_columns ? most_columns : m->columns;
    m->columns = m->columns > m->tiles ? m->tiles : m->columns;
    m->rows = ceil_div(m->tiles, m->columns);
    return m->rows <= most_rows;
}

static void tile_size(struct montage *m, size_t shrink)
{
    m->width = (size_t)fmax(1, round(m->native[0] / (double)shrink));
    m->height = (size_t)fmax(1, round(m->native[1] / (double)shrink));
    caption_choose(m);
}

/* With several frames and slices or coils: a row for each frame and a column for each slice or coil. With one frame: a
 * row for each slice and a column for each coil. With only one of these: a list. */
static void montage_arrange(struct montage *m)
{
    size_t slices = m->extent[SLICES] * m->extent[PLANES], channels = m->extent[CHANNELS];
    m->down = m->extent[FRAMES] > 1 ? m->extent[FRAMES] : slices;
    m->across = m->extent[FRAMES] > 1 ? slices * channels : channels;
    m->table = m->down > 1 && m->across > 1;
    if (!m->table) {
        m->across *= m->down;
        m->down = 1;
    }
}

static void montage_plan(struct montage *m)
{
    montage_arrange(m);
    m->column_step = m->row_step = 1;
    for (size_t shrink = 1;; shrink++) {
        tile_size(m, shrink);
        if (montage_fits(m))
            return;
        double next = (double)shrink + 1;
        if (m->width > MOST_PIXELS || cell_height(m) > MOST_PIXELS)
            continue; /* not even one tile fits */
        if (m->native[0] / next < SMALLEST_TILE || m->native[1] / next < SMALLEST_TILE)
            break;
    }
    while (!montage_fits(m)) {
        bool wide = !m->table || m->columns > (MOST_PIXELS + GAP) / (m->width + GAP);
        *(wide ? &m->column_step : &m->row_step) += 1;
    }
}

/* Pixels that are not square are stretched along their longer side, so that a circle is round. */
static void montage_stretch(struct montage *m)
{
    const struct image_series *series = m->series;
    double ratio = ((double)series->info->fov_mm[0] / (double)series->size[0]) /
                   ((double)series->info->fov_mm[1] / (double)series->size[1]);
    if (!isfinite(ratio) || ratio <= 0 || fabs(ratio - 1) < 0.01)
        ratio = 1;
    ratio = fmin(MOST_STRETCH, fmax(1.0 / MOST_STRETCH, ratio));
    m->native[0] = (double)series->size[0] * fmax(1, ratio);
    m->native[1] = (double)series->size[1] * fmax(1, 1 / ratio);
}

/* ---- drawing ---- */

/* The span of a tile's pixel on an axis of the image, in fractions of an image pixel: each is `parts` long, `parts`
 * being the tile's pixels along the axis. In integers, so that values do not change if nothing is shrunk. */
struct span {
    size_t begin, end, parts;
};

/* The share of the image's `pixel` that the span covers. */
static size_t overlap(const struct span *span, size_t pixel)
{
    size_t begin = pixel * span->parts, end = begin + span->parts;
    begin = begin > span->begin ? begin : span->begin;
    end = end < span->end ? end : span->end;
    return end - begin;
}

/* The mean over the pixels, or parts of pixels, under pixel (x, y) of the tile. `plane`: the image's. */
static float tile_value(const struct montage *m, const float *plane, size_t x, size_t y)
{
    size_t nx = m->series->size[0], ny = m->series->size[1];
    const struct span across = {x * nx, (x + 1) * nx, m->width}, down = {y * ny, (y + 1) * ny, m->height};
    double sum = 0, weight = 0;
    for (size_t sy = down.begin / m->height; sy * m->height < down.end; sy++)
        for (size_t sx = across.begin / m->width; sx * m->width < across.end; sx++) {
            double share = (double)(overlap(&across, sx) * overlap(&down, sy));
            sum += share * (double)plane[sy * nx + sx];
            weight += share;
        }
    return (float)(sum / weight);
}

/* Greys of a row of finite values. The limits are applied to the numbers' bits, which order as the numbers do where
 * they are not negative: the compiler makes no vectors of comparisons of floats. */
static void row_draw(const float *restrict values, size_t count, const float window[2], uint8_t *restrict row)
{
    const float low = window[0], scale = window[1] > low ? 255.0f / (window[1] - low) : 0, most = 255;
    int32_t most_bits;
    memcpy(&most_bits, &most, sizeof most_bits);
#pragma omp simd
    for (size_t x = 0; x < count; x++) {
        float grey = (values[x] - low) * scale;
        int32_t bits;
        memcpy(&bits, &grey, sizeof bits);
        bits = bits > 0 ? bits : 0;
        bits = bits < most_bits ? bits : most_bits;
        memcpy(&grey, &bits, sizeof grey);
        row[x] = (uint8_t)(int)(grey + 0.5f);
    }
}

/* Greys of `count` pixels of the series from number `first` on, which stay in the cache meanwhile. */
static void pixels_draw(const struct image_series *series, size_t first, size_t count, const float window[2],
                        uint8_t *row)
{
    float values[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? count - at : BLOCK;
        image_brightness(series, first + at, n, values);
        row_draw(values, n, window, row + at);
    }
}

/* `values` and `row` have room for an image's pixels and a row of the tile's. */
static void tile_draw(const struct montage *m, const size_t place[DIMENSIONS], const float window[2], float *values,
                      float *row, uint8_t *corner, size_t stride)
{
    const struct image_series *series = m->series;
    const size_t nx = series->size[0], ny = series->size[1];
    size_t image = m->layout.images[place[FRAMES] * m->extent[SLICES] + place[SLICES]];
    size_t plane = (image * series->channels + place[CHANNELS]) * series->size[2] + place[PLANES];
    const size_t first = plane * nx * ny;
    if (m->width == nx && m->height == ny) {
        for (size_t y = 0; y < ny; y++)
            pixels_draw(series, first + y * nx, nx, window, corner + y * stride);
        return;
    }
    image_brightness(series, first, nx * ny, values);
    for (size_t y = 0; y < m->height; y++) {
        for (size_t x = 0; x < m->width; x++)
            row[x] = tile_value(m, values, x, y);
        row_draw(row, m->width, window, corner + y * stride);
    }
}

/* Rows from the top, the leftmost of five pixels is bit 4. */
static const struct {
    char letter;
    uint8_t rows[GLYPH_HEIGHT];
} glyphs[] = {
    {'0', {0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e}}, {'1', {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e}},
    {'2', {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f}}, {'3', {0x1f, 0x02, 0x04, 0x02, 0x01, 0x11, 0x0e}},
    {'4', {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02}}, {'5', {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e}},
    {'6', {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e}}, {'7', {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08}},
    {'8', {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e}}, {'9', {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c}},
    {'a', {0x00, 0x00, 0x0e, 0x01, 0x0f, 0x11, 0x0f}}, {'c', {0x00, 0x00, 0x0e, 0x10, 0x10, 0x11, 0x0e}},
    {'e', {0x00, 0x00, 0x0e, 0x11, 0x1f, 0x10, 0x0e}}, {'f', {0x06, 0x09, 0x08, 0x1c, 0x08, 0x08, 0x08}},
    {'i', {0x04, 0x00, 0x0c, 0x04, 0x04, 0x04, 0x0e}}, {'l', {0x0c, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e}},
    {'m', {0x00, 0x00, 0x1a, 0x15, 0x15, 0x11, 0x11}}, {'o', {0x00, 0x00, 0x0e, 0x11, 0x11, 0x11, 0x0e}},
    {'r', {0x00, 0x00, 0x16, 0x19, 0x10, 0x10, 0x10}}, {'s', {0x00, 0x00, 0x0e, 0x10, 0x0e, 0x01, 0x1e}},
    {'z', {0x00, 0x00, 0x1f, 0x02, 0x04, 0x08, 0x1f}},
};

static void text_draw(const char *text, uint8_t *corner, size_t stride)
{
    for (; *text; text++, corner += GLYPH_WIDTH)
        for (size_t i = 0; i < sizeof glyphs / sizeof *glyphs; i++)
            for (size_t bit = 0; bit < (glyphs[i].letter == *text) * (size_t)GLYPH_HEIGHT * 5; bit++)
                if (glyphs[i].rows[bit / 5] >> (4 - bit % 5) & 1)
                    corner[bit / 5 * stride + bit % 5] = GREY_TEXT;
}

static int montage_draw(const struct montage *m, const float window[2], struct picture *picture)
{
    const size_t pixels = m->series->size[0] * m->series->size[1];
    float *values = malloc((pixels + m->width) * sizeof *values);
    if (!values)
        return err_no_memory("drawing the picture");
    char text[CAPTION_LENGTH];
    size_t place[DIMENSIONS], stride = picture->width;
    memset(picture->pixels, GREY_GAP, picture->width * picture->height);
    for (size_t tile = 0; tile < m->tiles && !result_canceled(); tile++) {
        size_t row = tile / m->columns, column = tile % m->columns;
        uint8_t *corner = picture->pixels + row * (cell_height(m) + GAP) * stride + column * (m->width + GAP);
        tile_place(m, row * m->row_step, (m->table ? column : tile) * m->column_step, place);
        caption_print(m, place, text);
        text_draw(text, corner + stride + 1, stride);
        tile_draw(m, place, window, values, values + pixels, corner + (cell_height(m) - m->height) * stride, stride);
    }
    free(values);
    return 0;
}

int image_montage(struct picture *out, const struct image_series *series)
{
    if (series->count == 0 || series->channels == 0 || image_pixels(series) == 0)
        return err_set(ERR_INTERNAL, "A series without pixels has no picture.");
    struct montage m = {.series = series};
    float window[2] = {0, 0};
    int rc = image_layout_create(&m.layout, series);
    if (rc != 0)
        return rc;
    m.extent[FRAMES] = m.layout.frames;
    m.extent[SLICES] = m.layout.slices;
    m.extent[PLANES] = series->size[2];
    m.extent[CHANNELS] = series->channels;
    montage_stretch(&m);
    montage_plan(&m);
    rc = image_window(series, &window[0], &window[1]);
    struct picture picture = {
        .width = picture_width(&m), .height = picture_height(&m), .channels = 1, .threads = series->threads};
    if (rc == 0 && !(picture.pixels = malloc(picture.width * picture.height)))
        rc = err_no_memory_bytes(picture.width * picture.height, "a picture of %zu x %zu", picture.width,
                                 picture.height);
    if (rc == 0)
        rc = montage_draw(&m, window, &picture);
    if (rc == 0)
        *out = picture;
    else
        free(picture.pixels);
    free(m.layout.images);
    return rc;
}
