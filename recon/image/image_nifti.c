/* NIfTI-1, gzipped: one file, header and pixels (https://nifti.nimh.nih.gov/nifti-1). */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    HEADER = 348,
    PIXELS_AT = 352, /* header and an empty extension */
    LONGEST = 32767, /* dim[] is int16 */
    DT_FLOAT32 = 16,
    DT_COMPLEX64 = 32
};

/* How the series' images lie in the file's x, y, z, t: images[t][z] is an index into the series. */
struct volume {
    size_t slices, frames;
    size_t *images;
    double column[3][3]; /* step to the next pixel along x, y, z; mm, LPS */
    double corner[3];    /* centre of the first pixel; mm, LPS */
};

static double dot(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* A direction as a unit vector; a missing one (all zero, as simulated scans have) becomes axis `axis`. */
static void direction(const float from[3], int axis, double out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = (double)from[i];
    double length = sqrt(dot(out, out));
    for (int i = 0; i < 3; i++)
        out[i] = isfinite(length) && length > 0 ? out[i] / length : (double)(i == axis);
}

static double slice_offset(const struct image_info *info)
{
    double normal[3], position[3] = {(double)info->position[0], (double)info->position[1], (double)info->position[2]};
    direction(info->slice_dir, 2, normal);
    return dot(position, normal);
}

static bool same_orientation(const struct image_info *a, const struct image_info *b)
{
    double worst = 0;
    for (int i = 0; i < 3; i++) {
        worst = fmax(worst, fabs((double)a->read_dir[i] - (double)b->read_dir[i]));
        worst = fmax(worst, fabs((double)a->phase_dir[i] - (double)b->phase_dir[i]));
        worst = fmax(worst, fabs((double)a->slice_dir[i] - (double)b->slice_dir[i]));
    }
    return worst < 1e-3;
}

static int by_uint16(uint16_t a, uint16_t b)
{
    return (a > b) - (a < b);
}

/* Everything that tells images apart except the slice. */
static int frame_compare(const struct image_info *a, const struct image_info *b)
{
    int order = by_uint16(a->repetition, b->repetition);
    order = order ? order : by_uint16(a->phase, b->phase);
    order = order ? order : by_uint16(a->contrast, b->contrast);
    order = order ? order : by_uint16(a->set, b->set);
    return order ? order : by_uint16(a->average, b->average);
}

static int volume_order(const void *pa, const void *pb, void *context)
{
    const struct image_series *series = context;
    const struct image_info *a = &series->info[*(const size_t *)pa], *b = &series->info[*(const size_t *)pb];
    int order = frame_compare(a, b);
    if (order)
        return order;
    double za = slice_offset(a), zb = slice_offset(b);
    return za != zb ? (za > zb) - (za < zb) : by_uint16(a->slice, b->slice);
}

/* Parallel slices at one spacing, as many in each frame, become the z axis; anything else a list along t. */
static void volume_stack(struct volume *v, const struct image_series *series)
{
    v->slices = 1;
    v->frames = series->count;
    if (series->size[2] != 1 || series->count < 2)
        return;
    size_t slices = 1;
    while (slices < series->count && frame_compare(&series->info[v->images[0]], &series->info[v->images[slices]]) == 0)
        slices++;
    if (slices < 2 || series->count % slices)
        return;
    const struct image_info *first = &series->info[v->images[0]];
    double step = (slice_offset(&series->info[v->images[slices - 1]]) - slice_offset(first)) / (double)(slices - 1);
    if (!(step > 0))
        return;
    for (size_t i = 0; i < series->count; i++) {
        const struct image_info *frame = &series->info[v->images[i - i % slices]], *info = &series->info[v->images[i]];
        double expected = slice_offset(first) + (double)(i % slices) * step;
        if (frame_compare(frame, info) != 0 || !same_orientation(first, info) ||
            fabs(slice_offset(info) - expected) > 0.01 * step)
            return;
    }
    v->slices = slices;
    v->frames = series->count / slices;
}

/* LPS(i) = position + sum over axes of (i_a - floor(N_a / 2)) step_a direction_a. */
static void volume_place(struct volume *v, const struct image_series *series)
{
    const struct image_info *first = &series->info[v->images[0]];
    direction(first->read_dir, 0, v->column[0]);
    direction(first->phase_dir, 1, v->column[1]);
    direction(first->slice_dir, 2, v->column[2]);
    for (int a = 0; a < 3; a++) {
        double step = (double)first->fov_mm[a] / (double)series->size[a];
        if (a == 2 && series->size[2] == 1 && series->slice_spacing_mm > 0)
            step = (double)series->slice_spacing_mm;
        for (int i = 0; i < 3; i++)
            v->column[a][i] *= step;
    }
    if (v->slices > 1) {
        /* The vector between slices itself: it may lean against the slices' normal. */
        const struct image_info *last = &series->info[v->images[v->slices - 1]];
        for (int i = 0; i < 3; i++)
            v->column[2][i] = ((double)last->position[i] - (double)first->position[i]) / (double)(v->slices - 1);
    }
    for (int i = 0; i < 3; i++) {
        v->corner[i] = (double)first->position[i];
        for (int a = 0; a < 3; a++)
            v->corner[i] -= (double)(series->size[a] / 2) * v->column[a][i];
    }
}

static int volume_create(struct volume *v, const struct image_series *series)
{
    v->images = calloc(series->count, sizeof *v->images);
    if (!v->images)
        return err_set(ERR_NO_MEMORY, "No memory to sort %zu images.", series->count);
    for (size_t i = 0; i < series->count; i++)
        v->images[i] = i;
    qsort_r(v->images, series->count, sizeof *v->images, volume_order, (void *)(uintptr_t)series);
    volume_stack(v, series);
    volume_place(v, series);
    return 0;
}

static void put16(unsigned char *header, size_t at, size_t value)
{
    int16_t v = (int16_t)value;
    memcpy(header + at, &v, sizeof v);
}

static void put32(unsigned char *header, size_t at, int32_t value)
{
    memcpy(header + at, &value, sizeof value);
}

static void put_float(unsigned char *header, size_t at, double value)
{
    float v = (float)value;
    memcpy(header + at, &v, sizeof v);
}

/* The quaternion (b, c, d) of rotation matrix r (a >= 0 is implied). */
static void quaternion(double r[3][3], double q[3])
{
    double a = 1 + r[0][0] + r[1][1] + r[2][2];
    if (a > 0.5) {
        a = 0.5 * sqrt(a);
        q[0] = 0.25 * (r[2][1] - r[1][2]) / a;
        q[1] = 0.25 * (r[0][2] - r[2][0]) / a;
        q[2] = 0.25 * (r[1][0] - r[0][1]) / a;
        return;
    }
    /* Near half a turn: start from the largest of b, c, d. */
    int i = r[0][0] > r[1][1] ? (r[0][0] > r[2][2] ? 0 : 2) : r[1][1] > r[2][2] ? 1 : 2;
    int j = (i + 1) % 3, k = (i + 2) % 3;
    q[i] = 0.5 * sqrt(fmax(0, 1 + r[i][i] - r[j][j] - r[k][k]));
    q[j] = 0.25 * (r[i][j] + r[j][i]) / q[i];
    q[k] = 0.25 * (r[i][k] + r[k][i]) / q[i];
    a = 0.25 * (r[k][j] - r[j][k]) / q[i];
    for (int n = 0; n < 3 && a < 0; n++)
        q[n] = -q[n];
}

/* The affine, as rows (sform) and, where its axes are at right angles, as a rotation (qform). NIfTI's x and y point to
 * the right and to the front of the patient, LPS' to the left and the back: the signs of the first two rows change. */
static void affine_put(unsigned char *header, const struct volume *v)
{
    double step[3], rotation[3][3];
    for (int a = 0; a < 3; a++) {
        step[a] = sqrt(dot(v->column[a], v->column[a]));
        put_float(header, 76 + 4 * ((size_t)a + 1), step[a]); /* pixdim[1..3] */
    }
    for (int i = 0; i < 3; i++) {
        double sign = i < 2 ? -1 : 1;
        for (int a = 0; a < 3; a++) {
            rotation[i][a] = step[a] > 0 ? sign * v->column[a][i] / step[a] : (double)(i == a);
            put_float(header, 280 + 16 * (size_t)i + 4 * (size_t)a, sign * v->column[a][i]); /* srow_x, _y, _z */
        }
        put_float(header, 280 + 16 * (size_t)i + 12, sign * v->corner[i]);
        put_float(header, 268 + 4 * (size_t)i, sign * v->corner[i]); /* qoffset */
    }
    put16(header, 254, 1); /* sform_code: scanner coordinates */
    double cosines = 0, determinant = 0;
    for (int a = 0; a < 3; a++) {
        int b = (a + 1) % 3, c = (a + 2) % 3;
        cosines = fmax(cosines, fabs(dot(v->column[a], v->column[b])) / (step[a] * step[b]));
        determinant += rotation[0][a] * (rotation[1][b] * rotation[2][c] - rotation[1][c] * rotation[2][b]);
    }
    if (!(cosines < 1e-3))
        return;
    double handed = determinant < 0 ? -1 : 1, q[3];
    for (int i = 0; i < 3; i++)
        rotation[i][2] *= handed;
    quaternion(rotation, q);
    put16(header, 252, 1);         /* qform_code */
    put_float(header, 76, handed); /* pixdim[0] = qfac */
    for (int i = 0; i < 3; i++)
        put_float(header, 256 + 4 * (size_t)i, q[i]); /* quatern_b, _c, _d */
}

static void header_make(unsigned char *header, const struct image_series *series, const struct volume *v)
{
    size_t dim[6] = {0, series->size[0], series->size[1], series->size[2] * v->slices, v->frames, series->channels};
    dim[0] = dim[5] > 1 ? 5 : dim[4] > 1 ? 4 : 3;
    put32(header, 0, HEADER);
    for (size_t i = 0; i < 8; i++)
        put16(header, 40 + 2 * i, i < 6 ? dim[i] : 1);
    put16(header, 70, series->complex_valued ? DT_COMPLEX64 : DT_FLOAT32);
    put16(header, 72, series->complex_valued ? 64 : 32); /* bitpix */
    for (size_t i = 0; i < 8; i++)
        put_float(header, 76 + 4 * i, 1); /* pixdim; affine_put() sets the first four */
    put_float(header, 108, PIXELS_AT);    /* vox_offset */
    put_float(header, 112, 1);            /* scl_slope */
    header[123] = 2;                      /* xyzt_units: mm */
    snprintf((char *)header + 148, 80, "mrirecond %s", MRIRECON_VERSION);
    affine_put(header, v);
    memcpy(header + 344, "n+1", 4);
}

/* A gzip stream into a descriptor. */
struct packer {
    z_stream z;
    int fd;
    unsigned char buffer[1 << 16];
};

static int packer_put(struct packer *p, const void *bytes, size_t count, bool last)
{
    const unsigned char *at = bytes;
    do {
        size_t now = count < (1u << 30) ? count : 1u << 30;
        p->z.next_in = (unsigned char *)(uintptr_t)at;
        p->z.avail_in = (uInt)now;
        at += now;
        count -= now;
        int flush = last && count == 0 ? Z_FINISH : Z_NO_FLUSH;
        do {
            p->z.next_out = p->buffer;
            p->z.avail_out = sizeof p->buffer;
            deflate(&p->z, flush);
            int rc = image_put(p->fd, p->buffer, sizeof p->buffer - p->z.avail_out);
            if (rc != 0)
                return rc;
        } while (p->z.avail_out == 0);
    } while (count);
    return 0;
}

int image_write_nifti(const struct image_series *series, int fd)
{
    struct volume v = {0};
    struct packer *packer = NULL;
    unsigned char header[PIXELS_AT] = {0};
    if (series->count == 0 || image_pixels(series) == 0)
        return err_set(ERR_INTERNAL, "A series without pixels makes no NIfTI file.");
    int rc = volume_create(&v, series);
    if (rc != 0)
        return rc;
    if (series->size[0] > LONGEST || series->size[1] > LONGEST || series->size[2] * v.slices > LONGEST ||
        v.frames > LONGEST || series->channels > LONGEST) {
        rc = err_set(ERR_LIMIT,
                     "A NIfTI file holds at most %d images along an axis; this series has %zu. Ask for h5 or npy.",
                     LONGEST, series->count);
        goto out;
    }
    header_make(header, series, &v);
    packer = calloc(1, sizeof *packer);
    /* Window bits 15, and 16 for a gzip header. Level 1: float32 pixels hardly shrink further, at five times the time.
     */
    if (!packer || deflateInit2(&packer->z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        rc = err_set(ERR_NO_MEMORY, "No memory to compress the image.");
        goto out;
    }
    packer->fd = fd;
    rc = packer_put(packer, header, sizeof header, false);
    size_t bytes = image_pixels(series) * image_lanes(series) * sizeof(float);
    for (size_t c = 0; c < series->channels && rc == 0; c++)
        for (size_t i = 0; i < series->count && rc == 0; i++)
            rc = packer_put(packer, image_plane(series, v.images[i], c), bytes, false);
    if (rc == 0)
        rc = packer_put(packer, header, 0, true);
    deflateEnd(&packer->z);
out:
    free(packer);
    free(v.images);
    return rc;
}
