/* A picture of a series: its slices, channels and images as tiles of one 8-bit grey PNG, all in one window. */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <png.h>
#include <zlib.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PIXELS = 4096,    /* across and down: what browsers and viewers show without trouble */
    SMALLEST_TILE = 16,    /* tiles are not shrunk below this; of more tiles than fit, only some are shown */
    WINDOW_BINS = 1 << 15, /* upper halves of floats that are not negative */
    PIECE_BYTES = 1 << 16  /* of the file are written at once */
};

/* How the tiles lie. */
struct montage {
    size_t tiles, step;   /* every step-th of all slices is shown */
    size_t shrink;        /* pixels of the image per pixel of the picture, along x and y */
    size_t width, height; /* of a tile */
    size_t columns, rows;
};

static size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

/* As near to a square as may be, counted in pixels. */
static bool montage_fits(struct montage *m, size_t tiles)
{
    size_t most_columns = MOST_PIXELS / m->width, most_rows = MOST_PIXELS / m->height;
    if (most_columns == 0 || most_rows == 0)
        return false;
    size_t square = (size_t)lround(sqrt((double)tiles * (double)m->height / (double)m->width));
    size_t fewest = ceil_div(tiles, most_rows);
    m->columns = square < fewest ? fewest : square;
    if (m->columns > most_columns)
        m->columns = most_columns;
    if (m->columns > tiles)
        m->columns = tiles;
    m->rows = ceil_div(tiles, m->columns);
    m->tiles = tiles;
    return m->rows <= most_rows;
}

static void montage_plan(struct montage *m, const struct image_series *series)
{
    size_t slices = series->count * series->channels * series->size[2];
    for (m->shrink = 1;; m->shrink++) {
        m->width = ceil_div(series->size[0], m->shrink);
        m->height = ceil_div(series->size[1], m->shrink);
        m->step = 1;
        if (montage_fits(m, slices))
            return;
        size_t next = m->shrink + 1;
        if (series->size[0] / next < SMALLEST_TILE || series->size[1] / next < SMALLEST_TILE)
            break;
    }
    while (!montage_fits(m, ceil_div(slices, m->step)))
        m->step++;
}

static float magnitude(const struct image_series *series, size_t pixel)
{
    const float *p = series->data + (series->complex_valued ? 2 * pixel : pixel);
    float value = series->complex_valued ? hypotf(p[0], p[1]) : fabsf(p[0]);
    return isfinite(value) ? value : 0;
}

/* The 0.5 % and 99.5 % quantiles of all magnitudes. Positive floats order as their bits do; the upper 16 bits make a
 * histogram whose bins are 0.8 % wide whatever the range of the values. */
static int window_find(const struct image_series *series, size_t pixels, float *low, float *high)
{
    uint64_t *histogram = calloc(WINDOW_BINS, sizeof *histogram);
    if (!histogram)
        return err_set(ERR_NO_MEMORY, "No memory for the picture's histogram.");
    for (size_t i = 0; i < pixels; i++) {
        float value = magnitude(series, i);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        histogram[bits >> 16]++;
    }
    double below = 0, edges[2] = {0.005 * (double)pixels, 0.995 * (double)pixels};
    float *found[2] = {low, high};
    int next = 0;
    for (uint32_t bin = 0; bin < WINDOW_BINS && next < 2; bin++) {
        below += (double)histogram[bin];
        while (next < 2 && below > edges[next]) {
            /* The window's lower edge is its bin's lower edge, its upper edge the bin's upper. */
            uint32_t bits = (bin + (uint32_t)next) << 16;
            memcpy(found[next++], &bits, sizeof bits);
        }
    }
    free(histogram);
    return 0;
}

/* Draw slice `slice` of all slices, as tile `tile`. */
static void tile_draw(const struct montage *m, const struct image_series *series, size_t slice, size_t tile, float low,
                      float high, uint8_t *picture)
{
    size_t nx = series->size[0], ny = series->size[1], stride = m->columns * m->width;
    uint8_t *corner = picture + tile / m->columns * m->height * stride + tile % m->columns * m->width;
    float scale = high > low ? 255.0f / (high - low) : 0;
    for (size_t y = 0; y < m->height; y++)
        for (size_t x = 0; x < m->width; x++) {
            float sum = 0;
            int count = 0;
            for (size_t sy = y * m->shrink; sy < (y + 1) * m->shrink && sy < ny; sy++)
                for (size_t sx = x * m->shrink; sx < (x + 1) * m->shrink && sx < nx; sx++, count++)
                    sum += magnitude(series, (slice * ny + sy) * nx + sx);
            float grey = (sum / (float)count - low) * scale;
            corner[y * stride + x] = (uint8_t)(grey <= 0 ? 0 : grey >= 255 ? 255 : grey + 0.5f);
        }
}

/* What libpng's callbacks share. */
struct png_sink {
    int fd, rc;
    jmp_buf escape;
};

static void sink_write(png_structp png, png_bytep bytes, png_size_t count)
{
    struct png_sink *sink = png_get_io_ptr(png);
    sink->rc = image_put(sink->fd, bytes, count);
    if (sink->rc != 0)
        longjmp(sink->escape, 1);
}

static void sink_flush(png_structp png)
{
    (void)png;
}

static void sink_error(png_structp png, png_const_charp words)
{
    struct png_sink *sink = png_get_error_ptr(png);
    sink->rc = err_set(ERR_INTERNAL, "The picture could not be encoded: %s.", words);
    longjmp(sink->escape, 1);
}

static void sink_warning(png_structp png, png_const_charp words)
{
    (void)png;
    (void)words;
}

static int picture_encode(const uint8_t *picture, size_t width, size_t height, int fd)
{
    struct png_sink sink = {.fd = fd};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &sink, sink_error, sink_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_write_struct(&png, NULL);
        return err_set(ERR_NO_MEMORY, "No memory to encode the picture.");
    }
    if (setjmp(sink.escape) == 0) {
        png_set_write_fn(png, &sink, sink_write, sink_flush);
        /* One filter, and runs only: the noise of an image holds no longer repeats. A fifth of the default's time for a
         * file 8 % smaller. */
        png_set_compression_strategy(png, Z_RLE);
        png_set_compression_buffer_size(png, PIECE_BYTES);
        png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
        png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
        png_write_info(png, info);
        for (size_t y = 0; y < height; y++)
            png_write_row(png, picture + y * width);
        png_write_end(png, NULL);
    }
    png_destroy_write_struct(&png, &info);
    return sink.rc;
}

int image_write_png(const struct image_series *series, int fd)
{
    size_t slices = series->count * series->channels * series->size[2];
    if (slices == 0 || series->size[0] == 0 || series->size[1] == 0)
        return err_set(ERR_INTERNAL, "A series without pixels has no picture.");
    struct montage m;
    montage_plan(&m, series);
    size_t width = m.columns * m.width, height = m.rows * m.height;
    float low = 0, high = 0;
    int rc = window_find(series, slices * series->size[0] * series->size[1], &low, &high);
    if (rc != 0)
        return rc;
    uint8_t *picture = calloc(height, width);
    if (!picture)
        return err_set_bytes(ERR_NO_MEMORY, (int64_t)(width * height), -1, "No memory for a picture of %zu x %zu.",
                             width, height);
    for (size_t tile = 0; tile < m.tiles; tile++)
        tile_draw(&m, series, tile * m.step, tile, low, high, picture);
    rc = picture_encode(picture, width, height, fd);
    free(picture);
    return rc;
}
