/* picture.h: pictures of any result, and their PNG files. Host memory. */
#ifndef MRIRECON_PICTURE_H
#define MRIRECON_PICTURE_H

#include "gridding/base/num.h"

/* 8 bits a channel, rows from the top, without gaps. The pixels are the caller's. */
struct picture {
    size_t width, height;
    int channels; /* 1: grey, 3: red, green, blue */
    uint8_t *pixels;
    int threads; /* that may compress it; 0: the caller's alone */
};

/* Write it to `fd` (a file opened for writing, at 0): the same bytes for any number of threads. Fails with ERR_IO,
 * ERR_SPOOL_FULL, ERR_NO_MEMORY, ERR_INTERNAL.
 */
int picture_write_png(const struct picture *picture, int fd);

/* A plane of values [y][x] as a grey picture: window[0] is black, window[1] white. A pixel is `ratio` times as wide as
 * high; the picture's are square. It is shrunk, by averaging, until no side is longer than `most` (0: 4096). The pixels
 * are the caller's. Fails with ERR_NO_MEMORY. */
int picture_of_plane(struct picture *out, const float *values, size_t width, size_t height, double ratio, size_t most,
                     const double window[2]);

#endif
