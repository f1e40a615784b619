/* The frames of DICOM images: their order, positions, values and UIDs. */
#include "recon/image/image_dicom_inner.h"

#include "gridding/base/err.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The steps in millimetres from one pixel to the next, and from one slice to the next. */
void dicom_steps(const struct dicom_series *m, double step[3], double *thickness)
{
    const struct image_series *s = m->series;
    for (int a = 0; a < 3; a++)
        step[a] = (double)s->info[0].fov_mm[a] / (double)s->size[a];
    *thickness = step[2];
    if (s->size[2] == 1 && s->slice_spacing_mm > 0)
        step[2] = (double)s->slice_spacing_mm;
}

struct dicom_source dicom_source_of(const struct dicom_series *m, size_t frame)
{
    const struct image_series *s = m->series;
    size_t depth = s->size[2], slices = m->layout.slices;
    struct dicom_source from = {.z = frame % depth,
                                .slice = frame / depth % slices,
                                .channel = frame / depth / slices % s->channels,
                                .moment = frame / depth / slices / s->channels};
    size_t image = m->layout.images[from.moment * slices + from.slice];
    from.info = &s->info[image];
    from.pixels = image_plane(s, image, from.channel) + from.z * s->size[0] * s->size[1] * image_lanes(s);
    return from;
}

void dicom_place(const struct dicom_series *m, const struct dicom_source *from, double corner[3], double axis[3][3])
{
    double step[3], thickness;
    const struct image_info *info = from->info;
    dicom_steps(m, step, &thickness);
    image_direction(info->read_dir, 0, axis[0]);
    image_direction(info->phase_dir, 1, axis[1]);
    image_direction(info->slice_dir, 2, axis[2]);
    /* floor(N / 2) pixels before the centre of the image, along each axis */
    for (int i = 0; i < 3; i++)
        corner[i] = (double)info->position[i] - (double)(m->series->size[0] / 2) * step[0] * axis[0][i] -
                    (double)(m->series->size[1] / 2) * step[1] * axis[1][i] +
                    ((double)from->z - (double)(m->series->size[2] / 2)) * step[2] * axis[2][i];
}

/* A pixel's value: its magnitude, or its phase; 0 if it is not finite. */
static double value_of(const struct image_series *s, const float *pixels, size_t i)
{
    double value = s->complex_valued ? hypot((double)pixels[2 * i], (double)pixels[2 * i + 1]) : (double)pixels[i];
    return isfinite(value) ? value : 0;
}

/* One slope for all frames; with a slope for each slice or moment, the series would flicker. */
static int values_range(struct dicom_series *m)
{
    const struct image_series *s = m->series;
    float low = 0, high = 0;
    double most = 0;
    int rc = s->phases ? 0 : image_window(s, &low, &high);
    for (size_t i = 0, all = s->count * s->channels * image_pixels(s); i < all && result_goes_on(i); i++)
        most = fmax(most, fabs(value_of(s, s->data, i)));
    m->low = s->phases ? -M_PI : 0;
    m->slope = s->phases ? 2 * M_PI / DICOM_GREYS : most > 0 ? most / DICOM_GREYS : 1;
    m->window[0] = s->phases ? -M_PI : (double)low;
    m->window[1] = s->phases ? M_PI : high > low ? (double)high : (double)low + m->slope;
    return rc;
}

void dicom_greys(const struct dicom_series *m, const struct dicom_source *from, uint16_t *greys)
{
    for (size_t i = 0; i < m->series->size[0] * m->series->size[1]; i++) {
        const double stored = (value_of(m->series, from->pixels, i) - m->low) / m->slope;
        greys[i] = htole16((uint16_t)fmax(0, fmin(DICOM_GREYS, rint(stored))));
    }
}

static void hash_values(struct dicom_hash *hash, const struct image_series *s)
{
    const size_t all = s->count * s->channels * image_pixels(s) * image_lanes(s);
    for (size_t i = 0, count; i < all && result_goes_on(i); i += count) {
        count = all - i < RESULT_VALUES ? all - i : RESULT_VALUES;
        dicom_hash_add(hash, s->data + i, count * sizeof *s->data);
    }
}

/* Derived from the file's contents: the same images have the same UIDs, and different images have different ones. */
static void uids_make(struct dicom_series *m)
{
    static const char *const what[] = {"instance", "series", "dimensions"};
    const struct image_series *s = m->series;
    struct dicom_hash hash;
    dicom_hash_begin(&hash);
    dicom_hash_add(&hash, s->size, sizeof s->size);
    dicom_hash_add(&hash, s->info, s->count * sizeof *s->info);
    hash_values(&hash, s);
    if (s->xml)
        dicom_hash_add(&hash, s->xml, strlen(s->xml));
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        dicom_hash_add(&hash, what[i], strlen(what[i]));
        dicom_hash_uid(&hash, m->uid[i]);
    }
}

int dicom_series_open(struct dicom_series *m, const struct image_series *series)
{
    size_t bytes;
    *m = (struct dicom_series){.series = series};
    if (series->count == 0 || image_pixels(series) == 0)
        return err_set(ERR_INTERNAL, "A series without pixels cannot be a DICOM file.");
    m->frames = series->count * series->channels * series->size[2];
    if (!size_mul(m->frames, 2 * series->size[0] * series->size[1], &bytes) || bytes > UINT32_MAX - 1 ||
        m->frames > INT32_MAX)
        return err_set(
            ERR_NOT_ACCEPTABLE,
            "A DICOM file holds at most 4 GB of pixels; these are %zu frames of %zu x %zu. Ask for h5 or npy.",
            m->frames, series->size[0], series->size[1]);
    int rc = image_layout_create(&m->layout, series);
    if (rc == 0)
        rc = values_range(m);
    if (rc == 0)
        uids_make(m);
    return rc;
}

void dicom_series_close(struct dicom_series *m)
{
    free(m->layout.images);
}
