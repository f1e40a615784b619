/* Pictures as PNG. */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <png.h>
#include <setjmp.h>
#include <zlib.h>

enum { PIECE_BYTES = 1 << 16 }; /* of the file are written at once */

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

int picture_write_png(const struct picture *picture, int fd)
{
    struct png_sink sink = {.fd = fd};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &sink, sink_error, sink_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        png_destroy_write_struct(&png, NULL);
        return err_no_memory("encoding the picture");
    }
    if (setjmp(sink.escape) == 0) {
        png_set_write_fn(png, &sink, sink_write, sink_flush);
        /* One filter, and run lengths only: noise has no longer repeats. This takes a fifth of the default's time, for
         * a file 8 % smaller. */
        png_set_compression_strategy(png, Z_RLE);
        png_set_compression_buffer_size(png, PIECE_BYTES);
        png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
        png_set_IHDR(png, info, (png_uint_32)picture->width, (png_uint_32)picture->height, 8,
                     picture->channels == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
        png_write_info(png, info);
        for (size_t y = 0; y < picture->height; y++)
            png_write_row(png, picture->pixels + y * picture->width * (size_t)picture->channels);
        png_write_end(png, NULL);
    }
    png_destroy_write_struct(&png, &info);
    return sink.rc;
}
