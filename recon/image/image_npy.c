/* NumPy's .npy, format 1.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include "recon/image/image_leaf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* [frame][channel][slice or z][y][x]: this axis is z for a volume, the slice number for a stack of slices, and z of one
 * slab after the other for several slabs. */
static int pixels_put(const struct image_series *series, const struct image_layout *layout, int fd)
{
    const size_t bytes = image_pixels(series) * image_lanes(series) * sizeof(float);
    int rc = 0;
    for (size_t frame = 0; frame < layout->frames; frame++)
        for (size_t channel = 0; channel < series->channels; channel++)
            for (size_t slice = 0; slice < layout->slices && rc == 0; slice++)
                rc = image_put(fd, image_plane(series, layout->images[frame * layout->slices + slice], channel), bytes);
    return rc;
}

int image_write_npy(const struct image_series *series, int fd)
{
    /* magic, version 1.0, length of what follows; then the dictionary, padded with spaces to a multiple of 64 and ended
     * by a newline. */
    enum { PREFIX = 10 };
    char head[256] = "\x93NUMPY\x01";
    struct image_layout layout;
    int rc = image_layout_create(&layout, series);
    if (rc != 0)
        return rc;
    int used = snprintf(head + PREFIX, sizeof head - PREFIX,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%zu, %zu, %zu, %zu, %zu), }",
                        series->complex_valued ? "<c8" : "<f4", layout.frames, series->channels,
                        layout.slices * series->size[2], series->size[1], series->size[0]);
    size_t total = ((size_t)PREFIX + (size_t)used + 1 + 63) / 64 * 64;
    memset(head + PREFIX + used, ' ', total - PREFIX - (size_t)used);
    head[total - 1] = '\n';
    head[8] = (char)((total - PREFIX) & 0xff);
    head[9] = (char)((total - PREFIX) >> 8);
    rc = image_put(fd, head, total);
    if (rc == 0)
        rc = pixels_put(series, &layout, fd);
    free(layout.images);
    return rc;
}
