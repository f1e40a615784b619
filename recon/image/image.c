#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int image_series_create(struct image_series **out, size_t count, size_t channels, const size_t size[3],
                        bool complex_valued)
{
    size_t floats = complex_valued ? 2 : 1, bytes;
    bool fits = size_mul(floats, count, &floats) && size_mul(floats, channels, &floats);
    for (int d = 0; d < 3; d++)
        fits = fits && size_mul(floats, size[d], &floats);
    if (!fits || !size_mul(floats, sizeof(float), &bytes))
        return err_set(ERR_NO_MEMORY, "%zu images of %zu x %zu x %zu pixels and %zu channels are more than any memory.",
                       count, size[0], size[1], size[2], channels);
    struct image_series *series = calloc(1, sizeof *series);
    if (series) {
        series->info = calloc(count ? count : 1, sizeof *series->info);
        series->data = calloc(floats ? floats : 1, sizeof(float));
    }
    if (!series || !series->info || !series->data) {
        image_series_free(series);
        return err_no_memory_bytes(bytes, "%zu images, %zu bytes in all", count, bytes);
    }
    series->count = count;
    series->channels = channels;
    memcpy(series->size, size, sizeof series->size);
    series->complex_valued = complex_valued;
    *out = series;
    return 0;
}

void image_series_free(struct image_series *series)
{
    if (!series)
        return;
    free(series->info);
    free(series->data);
    free(series->xml);
    free(series);
}

size_t image_pixels(const struct image_series *series)
{
    return series->size[0] * series->size[1] * series->size[2];
}

size_t image_lanes(const struct image_series *series)
{
    return series->complex_valued ? 2 : 1;
}

const float *image_plane(const struct image_series *series, size_t index, size_t channel)
{
    return series->data + (index * series->channels + channel) * image_pixels(series) * image_lanes(series);
}

/* Bytes of the pixels of a picture: each image, plane and channel is a tile of a byte a pixel, stretched 16 times at
 * most, with a frame and a caption; a picture is 4096 pixels across and down at most (image_montage.c). */
static size_t picture_most(const struct image_series *shape)
{
    enum { STRETCH = 16, FRAME = 256, WHOLE = 4096 * 4096 };
    double x = (double)shape->size[0], y = (double)shape->size[1];
    double tiles = (double)shape->count * (double)shape->channels * (double)shape->size[2];
    double all = tiles * (STRETCH * x * y + FRAME * (x + y + 1));
    return all < WHOLE ? (size_t)all : WHOLE;
}

bool image_file_most(const struct image_series *shape, enum image_format format, size_t xml_bytes, size_t *bytes)
{
    /* Overheads: of a file; of an image in it: its header, its place in a table. Incompressible data grow by less than
     * a hundredth. */
    enum {
        FILE_BYTES = 128 << 10,
        IMAGE_BYTES = 2 << 10,
        PLANE_BYTES = 512,
        SLICE_BYTES = 4 << 10,
        PACKED_SHARE = 128
    };
    size_t values, all = shape->complex_valued || format == IMAGE_CFL ? sizeof(struct c32) : sizeof(float), images;
    for (int d = 0; d < 3; d++)
        if (!size_mul(all, shape->size[d], &all))
            return false;
    if (!size_mul(shape->count, shape->channels, &images) || !size_mul(all, images, &values))
        return false;
    if (format == IMAGE_PNG)
        values = picture_most(shape);
    /* Each plane has an item of its own, mostly text, or a file with all that is known of the scan. */
    size_t planes = format == IMAGE_DICOM ? PLANE_BYTES : format == IMAGE_DICOM_ZIP ? SLICE_BYTES : 0;
    if (!size_mul(planes, images, &planes) || !size_mul(planes, shape->size[2], &planes) ||
        !size_add(values, planes, &values))
        return false;
    return size_add(values, values / PACKED_SHARE, &values) && size_mul(images, IMAGE_BYTES, &images) &&
           size_add(values, images, &values) && size_add(values, xml_bytes, &values) &&
           size_add(values, FILE_BYTES, bytes);
}
