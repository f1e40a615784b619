/* blob_density.c: the lattice, and the density on it. */
#include "recon/blob/blob_job.h"

#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "recon/kind_bins.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the lattice ---- */

/* Comparisons here and below, because fmax() is a call: it has rules of its own for NaN. */
static double widest_of(const struct blob_job *job, const float *radius, size_t count)
{
    float widest = 0;
#pragma omp parallel for num_threads(dev_threads(job->job.dev)) schedule(static) reduction(max : widest)
    for (size_t i = 0; i < count; i++)
        widest = radius[i] > widest ? radius[i] : widest;
    return (double)widest;
}

static double padding_of(struct blob_job *job)
{
    const double padding = job->job.request->values->value[BLOB_PADDING].real;
    char text[48];
    if (padding != BLOB_PADDING_AUTO)
        return padding;
    const double widest = widest_of(job, job->radius, job->frames * job->points);
    /* One spacing more, so that the last node is beyond every point's reach. */
    const double chosen = widest * job->law.law.params.reach + job->job.request->values->value[BLOB_SPACING].real;
    snprintf(text, sizeof text, "%.3g angstroms", chosen);
    kind_job_decide(&job->job, "padding", text,
                    "The largest radius, %g, times the reach of a blob, %.3g, and a spacing.", widest,
                    job->law.law.params.reach);
    return chosen;
}

/* The lattice starts at min - padding and has floor((max + padding - origin) / spacing) + 1 nodes per axis; 1e-6 makes
 * this independent of the rounding of the quotient. */
static int lattice_lay(struct blob_job *job, struct volume *shape)
{
    const double spacing = job->job.request->values->value[BLOB_SPACING].real, padding = padding_of(job);
    const size_t points = job->frames * job->points;
    const int threads = dev_threads(job->job.dev);
    *shape = (struct volume){.frames = job->volumes};
    for (int d = 0; d < 3; d++) {
        const double *at = job->at + d;
        double low = INFINITY, high = -INFINITY;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : low) reduction(max : high)
        for (size_t i = 0; i < points; i++) {
            low = at[3 * i] < low ? at[3 * i] : low;
            high = at[3 * i] > high ? at[3 * i] : high;
        }
        shape->origin[d] = low - padding;
        shape->spacing[d] = spacing;
        const double nodes = floor((high + padding - shape->origin[d]) / spacing + 1e-6) + 1;
        if (!(nodes <= VOLUME_AXIS_MOST))
            return err_set(ERR_BAD_PARAMETER,
                           "The points span %g angstroms along axis %d: a lattice with a spacing of %g would need %g "
                           "nodes there, and the limit is %d. Choose a larger spacing.",
                           high - low, d, spacing, nodes, VOLUME_AXIS_MOST);
        shape->size[d] = (size_t)nodes;
    }
    json_object_set_new(
        job->job.report, "nodes",
        json_pack("[I, I, I]", (json_int_t)shape->size[0], (json_int_t)shape->size[1], (json_int_t)shape->size[2]));
    json_object_set_new(job->job.report, "origin",
                        json_pack("[f, f, f]", shape->origin[0], shape->origin[1], shape->origin[2]));
    return 0;
}

/* ---- what it takes ---- */

static bool volume_most(const void *of, int format, size_t *bytes)
{
    return volume_file_most(of, (enum volume_format)format, bytes);
}

/* Check the device's memory before the disk: a volume larger than the memory must fail, not wait for disk space. A GPU
 * holds the grid of one frame, the CPU all volumes. */
static int promise(struct blob_job *job, const struct volume *shape, size_t sums)
{
    static const char advice[] = "Choose a larger spacing or less padding.";
    size_t bytes = sizeof *shape->data * (dev_is_gpu(job->job.dev) ? 1 : shape->frames),
           values = job->points * sizeof(float);
    char what[128];
    snprintf(what, sizeof what, "A density of %zu x %zu x %zu nodes%s", shape->size[0], shape->size[1], shape->size[2],
             shape->frames > 1 ? " for each frame" : "");
    bool counted = size_add(values, sums, &values);
    for (int d = 0; d < 3; d++)
        counted = counted && size_mul(bytes, shape->size[d], &bytes);
    counted = counted && size_add(bytes, values, &bytes) && bytes <= INT64_MAX;
    const int rc = kind_job_memory(&job->job, counted ? bytes : INT64_MAX, what, advice);
    if (rc != 0 || !blob_wants(job, BLOB_VOLUME))
        return rc;
    what[0] = 'a';
    return kind_job_promise(&job->job, BLOB_VOLUME, volume_most, shape, what, advice);
}

/* ---- the sums ---- */

struct telling {
    struct blob_job *job;
    size_t frame;
};

static int frame_tell(void *context, size_t done, size_t most)
{
    const struct telling *now = context;
    const double part = most > 0 ? (double)done / (double)most : 1;
    return kind_job_tell(&now->job->job, BLOB_STEP_DENSITY, ((double)now->frame + part) / (double)now->job->frames,
                         (int64_t)now->frame, (int64_t)now->job->frames);
}

/* Device memory, shared by all frames. */
struct density_sums {
    struct blob_job *job;
    size_t nodes;         /* per volume */
    float *values, *grid; /* [points]; [nodes], on a GPU only: the CPU sums directly into the volume */
};

/* Sum one frame's points to its volume, or add them to a volume that frames share. */
static int frame_sum(const struct density_sums *f, const struct range_points_params *params, size_t frame)
{
    struct blob_job *job = f->job;
    struct dev *dev = job->job.dev;
    struct telling now = {job, frame};
    const struct listener listener = {&now, frame_tell};
    const bool each = job->volumes > 1; /* a volume for each frame */
    float *volume = job->volume->data + (each ? frame : 0) * f->nodes, *grid = f->grid ? f->grid : volume;
    struct range_points *points = NULL;
    int rc = range_points_create(&points, dev, params, &listener);
    if (rc == 0)
        rc = frame == 0 || each ? range_scatter_set(points, &job->law.law, 1, f->values, grid, &listener)
                                : range_scatter(points, &job->law.law, 1, f->values, grid, &listener);
    if (rc == 0 && f->grid && (each || frame == job->frames - 1))
        rc = dev_download(dev, volume, f->grid, f->nodes * sizeof *volume);
    range_points_free(points);
    return rc;
}

static int frames_begin(struct density_sums *f)
{
    struct blob_job *job = f->job;
    struct dev *dev = job->job.dev;
    const size_t bytes = job->points * sizeof *f->values;
    void *values = NULL, *grid = NULL;
    float *host = malloc(bytes);
    int rc = host ? dev_alloc(dev, bytes, &values) : err_no_memory_bytes(bytes, "%zu points", job->points);
    f->values = values;
    for (size_t i = 0; rc == 0 && i < job->points; i++)
        host[i] = job->volumes < job->frames ? job->law.value / (float)job->frames : job->law.value;
    if (rc == 0)
        rc = dev_upload(dev, values, host, bytes);
    free(host);
    if (rc == 0 && dev_is_gpu(dev))
        rc = dev_alloc(dev, f->nodes * sizeof *f->grid, &grid);
    f->grid = grid;
    return rc;
}

static struct range_points_params params_of(const struct blob_job *job, const struct volume *shape, size_t frame)
{
    struct range_points_params params = {
        .box = {.dim = 3},
        .inputs = job->points,
        .at_double = job->at + 3 * frame * job->points,
        .scale = job->radius + frame * job->points,
    };
    params.reach = widest_of(job, params.scale, job->points) * job->law.law.params.reach;
    for (int d = 0; d < 3; d++) {
        params.box.cells[d] = (int)shape->size[d];
        params.box.origin[d] = shape->origin[d];
        params.box.spacing[d] = shape->spacing[d];
    }
    kind_bins_set(&params, &job->job, BLOB_BIN_DEPTH, BLOB_OVERFLOW);
    return params;
}

static int frames_sum(struct blob_job *job, const struct volume *shape)
{
    struct density_sums f = {.job = job, .nodes = shape->size[0] * shape->size[1] * shape->size[2]};
    int rc = volume_create(&job->volume, shape->frames, shape->size);
    if (rc == 0)
        rc = frames_begin(&f);
    for (size_t frame = 0; rc == 0 && frame < job->frames; frame++) {
        const struct range_points_params params = params_of(job, shape, frame);
        rc = frame_sum(&f, &params, frame);
    }
    dev_release(job->job.dev, f.values);
    dev_release(job->job.dev, f.grid);
    if (rc != 0)
        return rc;
    memcpy(job->volume->origin, shape->origin, sizeof shape->origin);
    memcpy(job->volume->spacing, shape->spacing, sizeof shape->spacing);
    snprintf(job->volume->title, sizeof job->volume->title, "Blob density, B = %g, eps = %g, %s", job->law.blobbiness,
             job->law.eps, job->law.truncation == BLOB_CUBE ? "cube" : "sphere");
    return 0;
}

int blob_density(struct blob_job *job)
{
    struct volume shape;
    struct range_memory sums = {.create = 0};
    int rc = lattice_lay(job, &shape);
    if (rc != 0)
        return rc;
    const struct range_points_params params = params_of(job, &shape, 0);
    rc = range_memory(job->job.dev, &params, &sums);
    const size_t beside = sums.points + sums.scatter;
    if (rc == 0)
        rc = promise(job, &shape, sums.create > beside ? sums.create : beside);
    return rc == 0 ? frames_sum(job, &shape) : rc;
}
