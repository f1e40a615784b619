/* series_window.h: windows of a series in time, which are solved one after the other. Only recon/mri/ includes this. */
#ifndef MRIRECON_SERIES_WINDOW_H
#define MRIRECON_SERIES_WINDOW_H

#include <stdbool.h>
#include <stddef.h>

/* Images [first, first + count) of a series are solved together, and [from, until) of them are kept: not those at an
 * edge of the window, whose neighbours in time are missing. */
struct series_window {
    size_t first, count, from, until;
};

/* The window that gives the images from `done` on, of a series of `images`; of at most `most` images, 0: all. `more`:
 * the series will have more images. False: it is not complete. */
bool series_window(struct series_window *out, size_t done, size_t images, size_t most, bool more);

/* The number of images of which a window is complete, where more than `images` will come. */
size_t series_complete(size_t images, size_t most);

/* The number of images that two windows of `most` share. */
size_t series_overlap(size_t most);

#endif
