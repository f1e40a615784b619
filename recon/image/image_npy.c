/* NumPy's .npy, format 1.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include "recon/image/image_leaf.h"

#include <stdio.h>
#include <string.h>

int image_write_npy(const struct image_series *series, int fd)
{
    /* magic, version 1.0, length of what follows; then the dictionary, padded with spaces to a multiple of 64 and ended
     * by a newline. */
    enum { PREFIX = 10 };
    char head[256] = "\x93NUMPY\x01";
    int used = snprintf(head + PREFIX, sizeof head - PREFIX,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%zu, %zu, %zu, %zu, %zu), }",
                        series->complex_valued ? "<c8" : "<f4", series->count, series->channels, series->size[2],
                        series->size[1], series->size[0]);
    size_t total = ((size_t)PREFIX + (size_t)used + 1 + 63) / 64 * 64;
    memset(head + PREFIX + used, ' ', total - PREFIX - (size_t)used);
    head[total - 1] = '\n';
    head[8] = (char)((total - PREFIX) & 0xff);
    head[9] = (char)((total - PREFIX) >> 8);
    int rc = image_put(fd, head, total);
    if (rc == 0)
        rc = image_put(fd, series->data,
                       series->count * series->channels * image_pixels(series) * image_lanes(series) * sizeof(float));
    return rc;
}
