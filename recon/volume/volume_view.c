/* One slice of z of a volume as PNG. */
#include "recon/image/picture.h"
#include "recon/volume/volume_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 1 << 18 };

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The quantiles of evenly chosen nodes; nodes that are not finite are skipped. */
static int window_of(const struct volume *v, const struct result_view *view, double window[2])
{
    if (!view->percent) {
        window[0] = view->window[0] - view->window[1] / 2;
        window[1] = view->window[0] + view->window[1] / 2;
        return 0;
    }
    const size_t nodes = volume_nodes(v), step = (nodes + SAMPLES - 1) / SAMPLES;
    size_t count = 0;
    float *sample = malloc((nodes / step + 1) * sizeof *sample);
    if (!sample)
        return err_no_memory("the picture's window");
    for (size_t i = 0; i < nodes; i += step)
        if (isfinite(v->data[i]))
            sample[count++] = v->data[i];
    qsort(sample, count, sizeof *sample, compare);
    for (int i = 0; i < 2; i++)
        window[i] = count > 0 ? (double)sample[(size_t)((double)(count - 1) * view->window[i] / 100)] : 0;
    free(sample);
    return 0;
}

static int view_draw(const struct volume *v, const struct result_view *view, int fd)
{
    struct picture picture;
    double window[2];
    long slice = view->slice == VIEW_MIDDLE ? (long)(v->size[2] / 2) : view->slice;
    int rc = view_place("frame", view->frame, v->frames);
    if (!rc)
        rc = view_place("slice", slice, v->size[2]);
    if (!rc)
        rc = view_place("channel", view->channel, 1);
    if (!rc)
        rc = window_of(v, view, window);
    size_t first = ((size_t)view->frame * v->size[2] + (size_t)slice) * v->size[1] * v->size[0];
    if (!rc)
        rc = picture_of_plane(&picture, v->data + first, v->size[0], v->size[1], v->spacing[0] / v->spacing[1],
                              (size_t)view->size, window);
    if (rc)
        return rc;
    rc = picture_write_png(&picture, fd);
    free(picture.pixels);
    return rc;
}

int volume_view(int in, const struct result_view *view, int out)
{
    struct volume *volume = NULL;
    int rc = volume_read(&volume, in);
    if (rc == 0)
        rc = view_draw(volume, view, out);
    volume_free(volume);
    return rc;
}
