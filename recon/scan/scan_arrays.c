#include "recon/scan/scan_arrays.h"

#include "gridding/base/err.h"
#include "recon/scan/scan_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONGEST = 65535,       /* samples of a readout: 16 bits in the flat scan */
    BLOCK_ITEMS = 1 << 20, /* samples gathered before they are written */
    BATCH = 1024,          /* heads of readouts likewise */
    INDEX_MOST = 65536     /* ISMRMRD's counters have 16 bits */
};

/* How the arrays become readouts. */
struct layout {
    const struct scan_arrays *arrays;
    uint64_t coils, samples;    /* of a readout */
    uint64_t repetitions, rows; /* readouts of each repetition: the trajectory's indices before the sample */
    int between;                /* axes of the trajectory before the sample */
    bool has_coils;             /* k-space has an axis for them */
    bool sliced;                /* its repetitions are slices: each has a field map of its own */
    uint64_t part, parts;       /* samples of a part of a readout, and its parts */
    uint64_t noise_samples, noise_parts;
    int dims, columns; /* of the trajectory as it is written: with weights one more */
    uint32_t matrix[3];
    float fov_mm[3];
};

/* ---- shapes ---- */

static int shape_wrong(const struct scan_array *array, const char *expected)
{
    char shape[176];
    return err_set(ERR_MALFORMED_FILE, "The array %s is %s %s; %s", array->name,
                   array->complex_valued ? "complex," : "real,", scan_array_shape(array, shape), expected);
}

static int shapes_differ(const struct scan_array *one, const struct scan_array *other, const char *expected)
{
    char shape[2][176];
    return err_set(ERR_MALFORMED_FILE, "The arrays %s (%s) and %s (%s) do not fit: %s", one->name,
                   scan_array_shape(one, shape[0]), other->name, scan_array_shape(other, shape[1]), expected);
}

#define FIT                                                                                                        \
    "kspace is [coil, ..., sample] and trajectory [..., sample, 2 or 3] with the same ... and sample; kspace may " \
    "have "                                                                                                        \
    "repetitions between coil and ..., and leave out the coil where there is one."

static int kspace_check(struct layout *l)
{
    const struct scan_array *k = &l->arrays->kspace, *t = &l->arrays->trajectory;
    if (!k->complex_valued || k->axes < 1)
        return shape_wrong(k, "complex numbers [coil, ..., sample] are expected.");
    if (t->complex_valued || t->axes < 2 || t->size[t->axes - 1] < 2 || t->size[t->axes - 1] > 3)
        return shape_wrong(t, "real numbers [..., sample, 2 or 3] are expected: kx, ky and, in 3-D, kz.");
    l->between = t->axes - 2;
    int extra = k->axes - l->between - 1; /* before those that both arrays have */
    if (extra < 0 || extra > 2)
        return shapes_differ(k, t, FIT);
    l->rows = 1;
    for (int i = 0; i <= l->between; i++) {
        if (k->size[extra + i] != t->size[i])
            return shapes_differ(k, t, FIT);
        l->rows *= i < l->between ? t->size[i] : 1;
    }
    l->has_coils = extra > 0;
    l->coils = extra > 0 ? k->size[0] : 1;
    l->repetitions = extra > 1 ? k->size[1] : 1;
    l->samples = t->size[l->between];
    if (l->coils < 1 || l->rows < 1 || l->repetitions < 1 || l->samples < 1)
        return err_set(ERR_NO_IMAGE_DATA, "The array kspace has no samples: one of its axes has the length 0.");
    if (l->coils > SCAN_MAX_COILS || l->repetitions > INDEX_MOST)
        return shape_wrong(k,
                           "at most 1024 coils and 65536 repetitions are read. The first axis is that of the coils.");
    return 0;
}

static int others_check(struct layout *l)
{
    const struct scan_array *t = &l->arrays->trajectory, *w = &l->arrays->weights, *n = &l->arrays->noise;
    bool fits = !w->complex_valued && w->axes == t->axes - 1;
    for (int i = 0; fits && i < w->axes; i++)
        fits = w->size[i] == t->size[i];
    if (w->items && !fits)
        return shapes_differ(w, t, "weights are real and have the trajectory's shape without its last axis.");
    if (n->items && (!n->complex_valued || n->axes != 2 || n->size[0] != l->coils || n->size[1] < 1))
        return shapes_differ(n, &l->arrays->kspace, "noise is complex [coil, sample], with kspace's coils.");
    l->noise_samples = n->items ? n->size[1] : 0;
    return 0;
}

/* Seconds of each sample of a readout. */
static int times_check(const struct layout *l)
{
    const struct scan_array *t = &l->arrays->times;
    char expected[160];
    if (!t->items || (!t->complex_valued && t->axes == 1 && t->size[0] == l->samples))
        return 0;
    snprintf(expected, sizeof expected,
             "real numbers [sample] are expected: the seconds from the start of a readout to each of kspace's %llu "
             "samples.",
             (unsigned long long)l->samples);
    return shape_wrong(t, expected);
}

/* The axis of repetitions is one of slices where the field map has as many maps. */
static int slices_check(struct layout *l)
{
    const uint64_t slices = scan_pixels_slices(&l->arrays->pixels, l->matrix);
    l->sliced = slices > 0 && slices == l->repetitions;
    if (slices == 0 || l->sliced)
        return 0;
    if (l->repetitions > 1)
        return shapes_differ(&l->arrays->pixels.field, &l->arrays->kspace,
                             "a fieldmap with an axis of slices has as many as kspace has between coil and the "
                             "trajectory's axes.");
    return shapes_differ(&l->arrays->pixels.field, &l->arrays->kspace,
                         "a fieldmap with an axis of slices needs a kspace with one, [coil, slice, ..., sample].");
}

/* The indices of row r of the trajectory, before the sample. */
static void row_place(const struct layout *l, uint64_t r, uint64_t *at)
{
    for (int i = l->between; i-- > 0; r /= l->arrays->trajectory.size[i])
        at[i] = r % l->arrays->trajectory.size[i];
}

/* The number of samples in a part of a readout of `samples`. */
static uint64_t part_samples(const struct layout *l, uint64_t samples, uint64_t part)
{
    uint64_t left = samples - part * l->part;
    return left < l->part ? left : l->part;
}

/* Tools that support only 3-D add a third column of zeros to 2-D trajectories. */
static int flat_check(const struct layout *l)
{
    const struct scan_array *t = &l->arrays->trajectory;
    uint64_t at[SCAN_ARRAY_AXES] = {0};
    float *kz = malloc(l->part * sizeof *kz);
    if (!kz)
        return err_no_memory("reading a trajectory");
    bool flat = true;
    at[l->between + 1] = 2;
    for (uint64_t r = 0; r < l->rows && flat; r++) {
        row_place(l, r, at);
        for (uint64_t part = 0; part < l->parts && flat; part++) {
            uint64_t count = part_samples(l, l->samples, part);
            at[l->between] = part * l->part;
            scan_array_reals(t, at, l->between, count, kz, 1);
            for (uint64_t i = 0; i < count && flat; i++)
                flat = kz[i] == 0;
        }
    }
    free(kz);
    return flat ? 0
                : err_set(ERR_BAD_PARAMETER,
                          "The array trajectory has a third column, kz, that is not 0 throughout, and size=%u,%u is "
                          "that of a 2-D image. Give size=X,Y,Z for a 3-D image.",
                          l->matrix[0], l->matrix[1]);
}

static int layout_make(struct layout *l, const struct scan_wanted *wanted)
{
    if (wanted->size[0] == 0)
        return err_set(ERR_BAD_PARAMETER,
                       "The file contains arrays, which do not determine the size of the image. Give size=X,Y (3-D: "
                       "size=X,Y,Z) in pixels, and fov_mm likewise.");
    for (int d = 0; d < 3; d++) {
        l->matrix[d] = wanted->size[d] ? wanted->size[d] : 1;
        l->fov_mm[d] = wanted->fov_mm[d] > 0 ? wanted->fov_mm[d] : (float)l->matrix[d];
    }
    int rc = kspace_check(l);
    if (rc == 0)
        rc = others_check(l);
    if (rc == 0)
        rc = times_check(l);
    if (rc == 0)
        rc = slices_check(l);
    if (rc != 0)
        return rc;
    uint64_t most = BLOCK_ITEMS / l->coils;
    l->part = most < LONGEST ? most : LONGEST;
    l->parts = (l->samples + l->part - 1) / l->part;
    l->noise_parts = (l->noise_samples + l->part - 1) / l->part;
    if (l->parts > INDEX_MOST || l->noise_parts > INDEX_MOST)
        return shape_wrong(&l->arrays->kspace,
                           "no readout has that many samples. The last axis is that of the samples.");
    l->dims = (int)l->arrays->trajectory.size[l->between + 1];
    if (l->dims == 3 && l->matrix[2] == 1) {
        rc = flat_check(l);
        l->dims = 2;
    }
    l->columns = l->dims + (l->arrays->weights.items != NULL);
    return rc;
}

/* ---- readouts ---- */

/* Readouts in their order: noise, then repetitions, rows and parts. */
static uint64_t readouts_count(const struct layout *l)
{
    return l->noise_parts + l->repetitions * l->rows * l->parts;
}

struct readout_place {
    bool noise;
    uint64_t repetition, row, part, samples; /* samples: of this part */
};

static struct readout_place place_of(const struct layout *l, uint64_t readout)
{
    if (readout < l->noise_parts)
        return (struct readout_place){
            .noise = true, .part = readout, .samples = part_samples(l, l->noise_samples, readout)};
    readout -= l->noise_parts;
    uint64_t part = readout % l->parts;
    return (struct readout_place){.repetition = readout / l->parts / l->rows,
                                  .row = readout / l->parts % l->rows,
                                  .part = part,
                                  .samples = part_samples(l, l->samples, part)};
}

static void head_fill(struct scan_readout *r, const struct layout *l, uint64_t readout)
{
    struct readout_place place = place_of(l, readout);
    /* Partitions are distinguished in 3-D only; in 2-D, all readouts belong to one plane whatever their numbers. */
    uint64_t lines = l->between > 0 ? l->arrays->trajectory.size[l->between - 1] : 1;
    uint64_t partition = l->matrix[2] > 1 ? place.row / lines : 0;
    *r = (struct scan_readout){
        .flags = place.noise ? UINT64_C(1) << (SCAN_NOISE - 1) : 0,
        .acquisition = (uint32_t)readout,
        .scan_counter = (uint32_t)readout,
        .samples = (uint16_t)place.samples,
        .coils = (uint16_t)l->coils,
        .traj_dims = place.noise ? 0 : (uint16_t)l->columns,
        .read_dir = {1, 0, 0},
        .phase_dir = {0, 1, 0},
        .slice_dir = {0, 0, 1},
    };
    r->idx[SCAN_STEP1] = (uint16_t)(l->matrix[2] > 1 ? place.row % lines : place.row);
    /* A 2-D trajectory (kx, ky) in 3-D: axes beyond its own are the partitions that share it. */
    bool shared = l->matrix[2] > 1 && l->dims == 2 && l->repetitions > 1 && !l->sliced;
    r->idx[SCAN_STEP2] = (uint16_t)(shared ? place.repetition : partition);
    r->idx[SCAN_REPETITION] = (uint16_t)(shared || l->sliced ? 0 : place.repetition);
    if (l->sliced) { /* side by side, around the centre */
        r->idx[SCAN_SLICE] = (uint16_t)place.repetition;
        r->position[2] = ((float)place.repetition - (float)(l->repetitions - 1) / 2) * l->fov_mm[2];
    }
    r->idx[SCAN_SEGMENT] = (uint16_t)place.part;
}

static int heads_write(struct scan_builder *b, const struct layout *l)
{
    struct scan_readout *batch = malloc(BATCH * sizeof *batch);
    int rc = batch ? 0 : err_no_memory("reading the arrays");
    for (uint64_t first = 0, all = readouts_count(l); rc == 0 && first < all; first += BATCH) {
        size_t count = all - first < BATCH ? (size_t)(all - first) : BATCH;
        for (size_t i = 0; i < count; i++)
            head_fill(&batch[i], l, first + i);
        rc = scan_builder_readouts(b, batch, count);
    }
    free(batch);
    return rc == 0 ? scan_builder_layout(b) : rc;
}

/* ---- samples ---- */

static void trajectory_gather(const struct layout *l, const struct readout_place *place, float *to)
{
    const struct scan_arrays *a = l->arrays;
    uint64_t at[SCAN_ARRAY_AXES] = {0};
    row_place(l, place->row, at);
    at[l->between] = place->part * l->part;
    for (int d = 0; d < l->dims; d++) {
        at[l->between + 1] = (uint64_t)d;
        scan_array_reals(&a->trajectory, at, l->between, place->samples, to + d, (size_t)l->columns);
    }
    if (l->columns > l->dims)
        scan_array_reals(&a->weights, at, l->between, place->samples, to + l->dims, (size_t)l->columns);
}

static int data_gather(const struct layout *l, const struct readout_place *place, struct c32 *to)
{
    const struct scan_array *from = place->noise ? &l->arrays->noise : &l->arrays->kspace;
    uint64_t at[SCAN_ARRAY_AXES] = {0};
    int first = from->axes - 1 - (place->noise ? 0 : l->between); /* axes of its own */
    if (!place->noise)
        row_place(l, place->row, at + first);
    if (first > 1)
        at[1] = place->repetition;
    at[from->axes - 1] = place->part * l->part;
    for (uint64_t c = 0; c < l->coils; c++, to += place->samples) {
        if (place->noise || l->has_coils)
            at[0] = c;
        int rc = scan_array_complexes(from, at, from->axes - 1, place->samples, to);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Collect readouts until the blocks are full, then write them. */
static int samples_write(struct scan_builder *b, const struct layout *l)
{
    enum { COLUMNS = 4 };
    struct c32 *data = malloc(BLOCK_ITEMS * sizeof *data);
    float *traj = malloc((size_t)COLUMNS * BLOCK_ITEMS * sizeof *traj);
    uint64_t used = 0, samples = 0;
    int rc = data && traj ? 0 : err_no_memory("reading the arrays");
    for (uint64_t i = 0, all = readouts_count(l); rc == 0 && i < all; i++) {
        struct readout_place place = place_of(l, i);
        const struct scan_readout r = {.samples = (uint16_t)place.samples,
                                       .coils = (uint16_t)l->coils,
                                       .traj_dims = place.noise ? 0 : (uint16_t)l->columns};
        if (used + place.samples * l->coils > BLOCK_ITEMS) {
            rc = scan_builder_flush(b);
            used = samples = 0;
        }
        if (rc != 0)
            break;
        if (!place.noise)
            trajectory_gather(l, &place, traj + samples * COLUMNS);
        rc = data_gather(l, &place, data + used);
        if (rc == 0)
            rc = scan_builder_samples(b, &r, traj + samples * COLUMNS, data + used);
        used += place.samples * l->coils;
        samples += place.samples;
    }
    if (rc == 0)
        rc = scan_builder_finish(b); /* it writes from the blocks */
    free(traj);
    free(data);
    return rc;
}

static int times_write(struct scan_builder *b, const struct layout *l)
{
    const uint64_t at[SCAN_ARRAY_AXES] = {0};
    float *times = malloc(l->samples * sizeof *times);
    int rc = times ? 0 : err_no_memory("reading sampling times");
    if (rc == 0) {
        scan_array_reals(&l->arrays->times, at, 0, l->samples, times, 1);
        rc = scan_builder_times(b, times);
    }
    free(times);
    return rc;
}

/* ---- the whole ---- */

/* The header that a converter would have written; the images' header is derived from it. */
static size_t header_write(const struct layout *l, char *xml, size_t size)
{
    char space[256];
    snprintf(space, sizeof space,
             "<matrixSize><x>%u</x><y>%u</y><z>%u</z></matrixSize><fieldOfView_mm><x>%.9g</x><y>%.9g</y><z>%.9g</z>"
             "</fieldOfView_mm>",
             l->matrix[0], l->matrix[1], l->matrix[2], (double)l->fov_mm[0], (double)l->fov_mm[1],
             (double)l->fov_mm[2]);
    return (size_t)snprintf(xml, size,
                            "<?xml version=\"1.0\"?>\n<ismrmrdHeader xmlns=\"http://www.ismrm.org/ISMRMRD\">"
                            "<experimentalConditions><H1resonanceFrequency_Hz>0</H1resonanceFrequency_Hz>"
                            "</experimentalConditions><encoding><encodedSpace>%s</encodedSpace><reconSpace>%s"
                            "</reconSpace><encodingLimits/><trajectory>other</trajectory></encoding></ismrmrdHeader>\n",
                            space, space);
}

int scan_arrays_write(int fd, uint64_t cap, const struct scan_arrays *arrays, const struct scan_wanted *wanted)
{
    struct layout l = {.arrays = arrays};
    struct scan_pixels pixels = arrays->pixels;
    char xml[1024];
    int rc = layout_make(&l, wanted);
    if (rc != 0)
        return rc;
    struct scan_builder *b = malloc(sizeof *b);
    if (!b)
        return err_no_memory("reading the arrays");
    uint64_t bytes = header_write(&l, xml, sizeof xml);
    rc = scan_builder_begin(b, fd, cap, arrays->bytes, xml, bytes, readouts_count(&l));
    if (rc == 0) {
        b->header.ignored = arrays->ignored;
        b->header.headless = 1;
        b->header.times_count = arrays->times.items ? l.samples : 0;
        rc = scan_pixels_take(b, &pixels, l.coils);
    }
    if (rc == 0)
        rc = heads_write(b, &l);
    if (rc == 0)
        rc = scan_pixels_write(b, &pixels);
    if (rc == 0 && arrays->times.items)
        rc = times_write(b, &l);
    if (rc == 0)
        rc = samples_write(b, &l);
    free(b);
    return rc;
}
