/* One slice of a series as PNG. */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <stdlib.h>

/* The brightness levels of the view's window. */
static int window_of(const struct image_series *series, const struct result_view *view, double window[2])
{
    float low = 0, high = 0;
    if (!view->percent) {
        window[0] = view->window[0] - view->window[1] / 2;
        window[1] = view->window[0] + view->window[1] / 2;
        /* Brightness of phases begins at 0, their values at -pi. */
        for (int i = 0; i < 2 && series->phases; i++)
            window[i] += (double)image_phase_offset();
        return 0;
    }
    int rc = image_window_between(series, view->window[0] / 100, view->window[1] / 100, &low, &high);
    window[0] = (double)low;
    window[1] = (double)high;
    return rc;
}

/* The first pixel of the plane that the view shows, in pixels of the whole series. */
static int plane_find(const struct image_series *series, const struct result_view *view, size_t *first)
{
    struct image_layout layout;
    int rc = image_layout_create(&layout, series);
    if (rc)
        return rc;
    size_t slices = layout.slices * series->size[2];
    long slice = view->slice == VIEW_MIDDLE ? (long)(slices / 2) : view->slice;
    rc = view_place("frame", view->frame, layout.frames);
    if (!rc)
        rc = view_place("slice", slice, slices);
    if (!rc)
        rc = view_place("channel", view->channel, series->channels);
    if (!rc) {
        size_t of = (size_t)slice / series->size[2], z = (size_t)slice % series->size[2];
        size_t image = layout.images[(size_t)view->frame * layout.slices + of];
        *first = ((image * series->channels + (size_t)view->channel) * series->size[2] + z) * series->size[0] *
                 series->size[1];
    }
    free(layout.images);
    return rc;
}

int image_write_view(const struct image_series *series, const struct result_view *view, int fd)
{
    if (series->count == 0 || series->channels == 0 || image_pixels(series) == 0)
        return err_set(ERR_INTERNAL, "A series without pixels has no picture.");
    struct picture picture;
    double window[2];
    size_t first, pixels = series->size[0] * series->size[1];
    int rc = plane_find(series, view, &first);
    if (!rc)
        rc = window_of(series, view, window);
    if (rc)
        return rc;
    float *plane = malloc(pixels * sizeof *plane);
    if (!plane)
        return err_no_memory("a slice");
    image_brightness(series, first, pixels, plane);
    double ratio = ((double)series->info->fov_mm[0] / (double)series->size[0]) /
                   ((double)series->info->fov_mm[1] / (double)series->size[1]);
    rc = picture_of_plane(&picture, plane, series->size[0], series->size[1], ratio, (size_t)view->size, window);
    free(plane);
    if (rc)
        return rc;
    rc = picture_write_png(&picture, fd);
    free(picture.pixels);
    return rc;
}
