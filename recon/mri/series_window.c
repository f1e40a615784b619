#include "recon/mri/series_window.h"

enum { MARGIN = 8 }; /* a window's edge, of which the images are another's to give, is such a part of it */

static size_t margin_of(size_t most)
{
    return most < 2 * MARGIN ? 1 : most / MARGIN;
}

bool series_window(struct series_window *out, size_t done, size_t images, size_t most, bool more)
{
    const size_t first = most > 0 && done > 0 ? done - margin_of(most) : 0;
    const bool last = most == 0 || first + most + !more > images;
    if (last && more)
        return false;
    if (last)
        *out = (struct series_window){.count = most > 0 && most < images ? most : images};
    else
        *out = (struct series_window){.first = first, .count = most};
    out->first = last ? images - out->count : first;
    out->from = done;
    out->until = last ? images : first + most - margin_of(most);
    return true;
}

size_t series_complete(size_t images, size_t most)
{
    struct series_window window = {.until = 0};
    while (most > 0 && series_window(&window, window.until, images, most, true))
        ;
    return window.until;
}

size_t series_overlap(size_t most)
{
    return 2 * margin_of(most);
}
