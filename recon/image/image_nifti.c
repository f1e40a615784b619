/* NIfTI-1, gzipped: one file, header and pixels (https://nifti.nimh.nih.gov/nifti-1). */
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

enum {
    HEADER = 348,
    PIXELS_AT = 352, /* header and an empty extension */
    LONGEST = 32767, /* dim[] is int16 */
    DT_FLOAT32 = 16,
    DT_COMPLEX64 = 32
};

/* Seconds per tick of acquisition time stamps: the unit that siemens_to_ismrmrd copies and mrirecon simulate writes.
 * ISMRMRD leaves the unit open. */
#define TICK_SECONDS 2.5e-3

/* The arrangement of the series' images in the file's x, y, z, t: images[t * slices + z] is an index into the series.
 */
struct arrangement {
    size_t slices, frames;
    size_t *images;
    bool placed;         /* the scan gives the positions of its slices */
    double step[3];      /* from a slice to the next; mm, LPS */
    double column[3][3]; /* step to the next pixel along x, y, z; mm, LPS */
    double corner[3];    /* centre of the first pixel; mm, LPS */
};

static double dot(const double a[3], const double b[3])
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static double slice_offset(const struct image_info *info)
{
    double normal[3], position[3] = {(double)info->position[0], (double)info->position[1], (double)info->position[2]};
    image_direction(info->slice_dir, 2, normal);
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

/* The distance from `steps` steps beyond `a` to `b`; mm. */
static double slice_distance(const struct image_info *a, double steps, const double step[3], const struct image_info *b)
{
    double way[3];
    for (int i = 0; i < 3; i++)
        way[i] = (double)b->position[i] - (double)a->position[i] - steps * step[i];
    return sqrt(dot(way, way));
}

static int volume_order(const void *pa, const void *pb, void *context)
{
    const struct image_series *series = context;
    const struct image_info *a = &series->info[*(const size_t *)pa], *b = &series->info[*(const size_t *)pb];
    int order = image_frame_compare(a, b);
    if (order)
        return order;
    double za = slice_offset(a), zb = slice_offset(b);
    return za != zb ? (za > zb) - (za < zb) : (a->slice > b->slice) - (a->slice < b->slice);
}

/* A file has one affine: refuse images that it would place wrongly. */
#define ELSEWHERE " Use h5, which keeps the position of each, or npy or png."

static int refuse_spacing(const struct arrangement *v, const struct image_series *series)
{
    static const double none[3] = {0, 0, 0};
    double least = INFINITY, most = 0;
    for (size_t z = 1; z < v->slices; z++) {
        double apart = slice_distance(&series->info[v->images[z - 1]], 0, none, &series->info[v->images[z]]);
        least = fmin(least, apart);
        most = fmax(most, apart);
    }
    if (most - least < 1e-2 * most)
        return err_set(ERR_NOT_ACCEPTABLE,
                       "The slices of this image are not in one row, as a NIfTI file requires." ELSEWHERE);
    return err_set(ERR_NOT_ACCEPTABLE,
                   "The slices of this image are %.4g to %.4g mm apart; a NIfTI file has one spacing." ELSEWHERE, least,
                   most);
}

/* Check that every image is where the affine of the first frame puts it. */
static int volume_check(const struct arrangement *v, const struct image_series *series)
{
    const struct image_info *first = &series->info[v->images[0]];
    const double room = 1e-3 + 0.01 * sqrt(dot(v->step, v->step));
    bool regular = series->count % v->slices == 0;
    for (size_t i = 0; i < series->count; i++)
        if (!same_orientation(first, &series->info[v->images[i]]))
            return err_set(ERR_NOT_ACCEPTABLE,
                           "The images are in different planes; a NIfTI file has one orientation for all." ELSEWHERE);
    for (size_t i = 0; i < series->count && regular; i++) {
        const struct image_info *info = &series->info[v->images[i]];
        regular = image_frame_compare(&series->info[v->images[i - i % v->slices]], info) == 0;
        if (!regular || slice_distance(first, (double)(i % v->slices), v->step, info) <= room)
            continue;
        return i < v->slices ? refuse_spacing(v, series)
                             : err_set(ERR_NOT_ACCEPTABLE, "The frames of this image are in different places; a NIfTI "
                                                           "file has one position for all." ELSEWHERE);
    }
    return regular
               ? 0
               : err_set(ERR_NOT_ACCEPTABLE,
                         "The %zu images are not the same slices in each frame, as a NIfTI file requires." ELSEWHERE,
                         series->count);
}

/* Parallel slices at one spacing, the same in each frame, become the z axis, frames the t axis. */
static int volume_stack(struct arrangement *v, const struct image_series *series)
{
    const struct image_info *first = &series->info[v->images[0]];
    v->slices = 1;
    v->placed = true;
    while (v->slices < series->count && image_frame_compare(first, &series->info[v->images[v->slices]]) == 0)
        v->slices++;
    v->frames = (series->count + v->slices - 1) / v->slices;
    if (v->slices == 1)
        return volume_check(v, series);
    /* The vector between slices itself: it may be oblique to the slices' normal. */
    const struct image_info *last = &series->info[v->images[v->slices - 1]];
    for (int i = 0; i < 3; i++)
        v->step[i] = ((double)last->position[i] - (double)first->position[i]) / (double)(v->slices - 1);
    if (series->size[2] > 1)
        return err_set(ERR_NOT_ACCEPTABLE, "This image is %zu slabs; a NIfTI file holds one at a time." ELSEWHERE,
                       v->slices);
    int rc = volume_check(v, series);
    v->placed = sqrt(dot(v->step, v->step)) > 1e-3;
    return rc;
}

/* LPS(i) = position + sum over axes of (i_a - floor(N_a / 2)) step_a direction_a. Slices that all have the same
 * position are placed one thickness apart. */
static void volume_place(struct arrangement *v, const struct image_series *series)
{
    const struct image_info *first = &series->info[v->images[0]];
    image_direction(first->read_dir, 0, v->column[0]);
    image_direction(first->phase_dir, 1, v->column[1]);
    image_direction(first->slice_dir, 2, v->column[2]);
    for (int a = 0; a < 3; a++) {
        double step = (double)first->fov_mm[a] / (double)series->size[a];
        if (a == 2 && series->size[2] == 1 && series->slice_spacing_mm > 0)
            step = (double)series->slice_spacing_mm;
        for (int i = 0; i < 3; i++)
            v->column[a][i] = v->slices > 1 && a == 2 && v->placed ? v->step[i] : v->column[a][i] * step;
    }
    for (int i = 0; i < 3; i++) {
        v->corner[i] = (double)first->position[i];
        for (int a = 0; a < 3; a++)
            v->corner[i] -= (double)(series->size[a] / 2) * v->column[a][i];
    }
}

static int arrangement_create(struct arrangement *v, const struct image_series *series)
{
    v->images = calloc(series->count, sizeof *v->images);
    if (!v->images)
        return err_no_memory("sorting %zu images", series->count);
    for (size_t i = 0; i < series->count; i++)
        v->images[i] = i;
    qsort_r(v->images, series->count, sizeof *v->images, volume_order, (void *)(uintptr_t)series);
    int rc = volume_stack(v, series);
    volume_place(v, series);
    return rc;
}

/* Seconds from one frame to the next; 0 if unknown, or if something other than time distinguishes the frames. Taken
 * from repetitions that begin at even distances, in stamps whose unit is known. The header's TR is the time of one
 * readout, not of a frame. */
static double frame_seconds(const struct arrangement *v, const struct image_series *series)
{
    const char *vendor = series->xml ? strstr(series->xml, "systemVendor>") : NULL;
    vendor = vendor ? vendor + strlen("systemVendor>") : "";
    if (v->frames < 2 || (strncasecmp(vendor, "siemens", 7) != 0 && strncasecmp(vendor, "mrirecon", 8) != 0))
        return 0;
    const struct image_info *first = &series->info[v->images[0]];
    const struct image_info *last = &series->info[v->images[(v->frames - 1) * v->slices]];
    double step = ((double)last->time_stamp - (double)first->time_stamp) / (double)(v->frames - 1);
    for (size_t t = 0; t < v->frames; t++) {
        struct image_info info = series->info[v->images[t * v->slices]];
        double late = (double)info.time_stamp - (double)first->time_stamp - (double)t * step;
        info.repetition = first->repetition;
        if (image_frame_compare(&info, first) != 0 || fabs(late) > fmax(1, 0.01 * step))
            return 0;
    }
    return step > 0 ? step * TICK_SECONDS : 0;
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
    /* For angles near half a turn: start from the largest of b, c, d. */
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
static void affine_put(unsigned char *header, const struct arrangement *v)
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
    if (!v->placed)
        return;            /* the codes stay 0: pixdim alone counts */
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

/* The display window (not for complex values), and the time between frames, if known. */
static int header_show(unsigned char *header, const struct image_series *series, const struct arrangement *v)
{
    float low = 0, high = 0;
    double seconds = frame_seconds(v, series);
    int rc = series->complex_valued ? 0 : image_window(series, &low, &high);
    if (series->phases) {
        low -= high / 2;
        high /= 2;
    }
    put_float(header, 124, (double)high); /* cal_max */
    put_float(header, 128, (double)low);  /* cal_min */
    header[123] = 2;                      /* xyzt_units: mm */
    if (seconds > 0) {
        put_float(header, 92, seconds); /* pixdim[4] */
        header[123] |= 8;               /* seconds */
    }
    return rc;
}

static int header_make(unsigned char *header, const struct image_series *series, const struct arrangement *v)
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
    snprintf((char *)header + 148, 80, "mrirecond %s", MRIRECON_VERSION);
    affine_put(header, v);
    memcpy(header + 344, "n+1", 4);
    return header_show(header, series, v);
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
    struct arrangement v = {0};
    struct packer *packer = NULL;
    unsigned char header[PIXELS_AT] = {0};
    if (series->count == 0 || image_pixels(series) == 0)
        return err_set(ERR_INTERNAL, "A series without pixels cannot be a NIfTI file.");
    int rc = arrangement_create(&v, series);
    if (rc != 0)
        goto out;
    if (series->size[0] > LONGEST || series->size[1] > LONGEST || series->size[2] * v.slices > LONGEST ||
        v.frames > LONGEST || series->channels > LONGEST) {
        rc = err_set(ERR_NOT_ACCEPTABLE,
                     "A NIfTI file holds at most %d images along an axis; this series has %zu. Ask for h5 or npy.",
                     LONGEST, series->count);
        goto out;
    }
    rc = header_make(header, series, &v);
    if (rc != 0)
        goto out;
    packer = calloc(1, sizeof *packer);
    /* Window bits 15, and 16 for a gzip header. Level 1: float32 pixels hardly shrink further, at five times the time.
     */
    if (!packer || deflateInit2(&packer->z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        rc = err_no_memory("compressing the image");
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
