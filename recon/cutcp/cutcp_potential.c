/* The potential of each frame: one sum of limited range for the charges, or the split's parts; and one to find the
 * points near a charge. */
#include "recon/cutcp/cutcp_job.h"
#include "recon/cutcp/cutcp_law.h"
#include "recon/cutcp/cutcp_split.h"

#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "recon/kind_bins.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shares of a frame's time: of the direct sum's exclusion; of the split's parts, beside their error. */
#define EXCLUSION_SHARE 0.1
#define PARTS_SHARE     0.9

/* What lattice points near a charge are raised by. Elsewhere, a potential is at most the sum of the charges' magnitudes
 * over the exclusion, and near a charge, where 1 / r may reach 1e23 in float32, it must not outweigh the mark: the sum
 * of magnitudes is limited. */
#define EXCLUDED     1e36f
#define CHARGES_MOST 1e12

/* State shared by all frames. */
struct sums {
    struct cutcp_job *job;
    struct range_law potential, near; /* near: 1 within the exclusion */
    double cutoff, exclusion, unit;   /* unit: conversion from e/A */
    struct cutcp_sum sum;
    struct cutcp_split split;
    bool in_parts; /* by the split */
    struct split *parts;
    double error;           /* the largest measured of a frame, e/A */
    size_t count, nodes;    /* atoms of a frame; lattice points */
    double *at;             /* [count][3], relative to the lattice's origin */
    float *host;            /* [count] */
    float *values, *grid;   /* the device's: [count], [nodes] */
    double *mean;           /* [nodes], or NULL */
    size_t frame, on_nodes; /* charges that lie on lattice points, in all frames */
    double told;            /* the largest fraction reported */
    double done, share;     /* shares of a frame's work: completed before the current sum, and of that sum */
};

static double inside(const void *of, double t)
{
    (void)of;
    (void)t;
    return 1;
}

static bool file_most(const void *shape, int format, size_t *bytes)
{
    return volume_file_most(shape, (enum volume_format)format, bytes);
}

static int files_promise(struct cutcp_job *job, const struct volume *shape)
{
    char what[128];
    snprintf(what, sizeof what, "%zu frame%s of %zu x %zu x %zu points", shape->frames, shape->frames == 1 ? "" : "s",
             shape->size[0], shape->size[1], shape->size[2]);
    return kind_job_promise(&job->job, 0, file_most, shape, what,
                            "Ask for a larger spacing, a smaller padding, or frames=mean.");
}

static struct range_points_params points_params(const struct sums *s, double reach)
{
    struct range_points_params params = {.box = s->job->box, .reach = reach, .inputs = s->count, .at_double = s->at};
    kind_bins_set(&params, &s->job->job, CUTCP_BIN_DEPTH, CUTCP_OVERFLOW);
    return params;
}

/* ---- the choice between the direct sum and the split ---- */

static void direct_choose(struct sums *s, const char *reason, ...) __attribute__((format(printf, 2, 3)));

static void direct_choose(struct sums *s, const char *reason, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, reason);
    vsnprintf(text, sizeof text, reason, arguments);
    va_end(arguments);
    s->in_parts = false;
    kind_job_decide(&s->job->job, "method", "direct", "The direct sum, because %s.", text);
}

/* Fill s->sum: of the frames, the largest sum of squares. */
static void sum_describe(struct sums *s)
{
    const struct param_values *values = s->job->job.request->values;
    const double *charge = s->job->particles->charge;
    s->sum = (struct cutcp_sum){.form = (enum cutcp_form)values->value[CUTCP_FORM].integer,
                                .cutoff = s->cutoff,
                                .tolerance = values->value[CUTCP_TOLERANCE].real,
                                .lattice = s->job->box,
                                .count = s->count};
    for (size_t f = 0; f < s->job->frames; f++) {
        double squares = 0;
        for (size_t i = f * s->count; i < (f + 1) * s->count; i++)
            squares += charge[i] * charge[i];
        s->sum.squares = fmax(s->sum.squares, squares);
    }
}

/* Check the charges of each frame, where nodes near them are excluded. */
static int charges_check(const struct sums *s)
{
    const double *charge = s->job->particles->charge;
    for (size_t f = 0; f < s->job->frames && s->exclusion > 0; f++) {
        double sum = 0;
        for (size_t i = f * s->count; i < (f + 1) * s->count; i++)
            sum += fabs(charge[i]);
        if (!(sum * s->unit <= CHARGES_MOST))
            return err_set(ERR_MALFORMED_FILE,
                           "The magnitudes of the charges of frame %zu add up to %g e; potentials are computed up to "
                           "%g e.",
                           f + 1, sum, CHARGES_MOST / s->unit);
    }
    return 0;
}

static int method_choose(struct sums *s)
{
    const struct cutcp_split *split = &s->split;
    const char *why = NULL;
    sum_describe(s);
    if (!(s->sum.tolerance > 0))
        return 0;
    why = cutcp_split_choose(&s->split, &s->sum, dev_is_gpu(s->job->job.dev));
    if (!why)
        why = cutcp_parts_refused(s->job->job.dev, split, &s->sum, s->exclusion);
    if (why) {
        direct_choose(s, "%s", why);
        return 0;
    }
    kind_job_decide(
        &s->job->job, "method", "split",
        "A near part up to %.3g A, and a smooth part on a mesh of %d x %d x %d: an expected error of %.2g e/A "
        "(tolerance %g), in 1/%.1f of the direct sum's time.",
        split->radius, split->mesh[0], split->mesh[1], split->mesh[2], split->error, s->sum.tolerance, split->gain);
    s->in_parts = true;
    return 0;
}

/* Check the device memory needed for the sums: on a GPU that is one grid and the values. The split is given up where it
 * alone lacks memory. */
static int memory_promise(struct sums *s, const struct volume *shape, bool mean)
{
    enum { ATOM_BYTES = 3 * sizeof(double) + sizeof(float), MEAN_BYTES = sizeof(double) };
    const bool gpu = dev_is_gpu(s->job->job.dev);
    const size_t grids =
        s->nodes * (sizeof(float) + (gpu ? 0 : sizeof(float) * shape->frames + (mean ? MEAN_BYTES : 0)));
    const size_t atoms = s->count * (sizeof(float) + (gpu ? 0 : ATOM_BYTES));
    const struct range_points_params points = points_params(s, s->cutoff);
    struct range_memory memory;
    int rc = range_memory(s->job->job.dev, &points, &memory);
    if (rc != 0)
        return rc;
    const size_t held = memory.points + memory.scatter;
    const size_t direct = atoms + grids + (memory.create > held ? memory.create : held);
    size_t mesh = 0, available, total;
    if (s->in_parts) {
        rc = cutcp_parts_memory(s->job->job.dev, &s->split, &s->sum, s->exclusion, &mesh);
        if (rc == 0)
            rc = dev_memory(s->job->job.dev, &available, &total);
        if (rc != 0)
            return rc;
        if (mesh > available || direct > available - mesh)
            direct_choose(s, "the split needs %.0f MB more than the direct sum, which are not free",
                          1e-6 * (double)mesh);
    }
    return kind_job_memory(&s->job->job, direct + (s->in_parts ? mesh : 0), "The potential",
                           "Ask for a larger spacing, a smaller padding, or frames=mean.");
}

/* Set the positions (relative to the lattice's origin) and values of one frame's atoms. Count charges that lie on
 * lattice points: the potential is infinite there, and the sum skips that pair. */
static void frame_gather(struct sums *s)
{
    const struct particles *p = s->job->particles;
    const size_t first = s->frame * s->count;
    size_t on_nodes = 0;
#pragma omp parallel for num_threads(dev_threads(s->job->job.dev)) schedule(static) reduction(+ : on_nodes)
    for (size_t i = 0; i < s->count; i++) {
        bool on_node = p->charge[first + i] != 0;
        for (size_t d = 0; d < 3; d++) {
            const double away = p->position[3 * (first + i) + d] - s->job->origin[d];
            const double node = away / s->job->box.spacing[d];
            s->at[3 * i + d] = away;
            on_node = on_node && node == rint(node);
        }
        s->host[i] = (float)(p->charge[first + i] * s->unit);
        on_nodes += on_node;
    }
    s->on_nodes += on_nodes;
}

static int tell(void *context, size_t done, size_t most)
{
    struct sums *s = context;
    const double of_frame = s->done + s->share * (double)done / (double)(most ? most : 1);
    /* A frame whose split is given up begins again. */
    s->told = fmax(s->told, ((double)s->frame + of_frame) / (double)s->job->frames);
    return kind_job_tell(&s->job->job, CUTCP_STEP_POTENTIAL, s->told, (int64_t)s->frame, (int64_t)s->job->frames);
}

/* grid += the sum of `law` over `points` with the values s->host; this is `share` of a frame's work. */
static int grid_add(struct sums *s, const struct range_points *points, const struct range_law *law, double share)
{
    const struct listener listener = {s, tell};
    int rc = dev_upload(s->job->job.dev, s->values, s->host, s->count * sizeof *s->values);
    s->share = share;
    if (rc == 0)
        rc = range_scatter(points, law, 1, s->values, s->grid, &listener);
    s->done += s->share;
    return rc;
}

/* Mark lattice points near a charge: they are raised by EXCLUDED, far above any potential, while the grid is on the
 * device. */
static int exclusion_mark(struct sums *s, const struct range_points *points)
{
    const double *charge = s->job->particles->charge + s->frame * s->count;
    for (size_t i = 0; i < s->count; i++)
        s->host[i] = charge[i] != 0 ? EXCLUDED : 0;
    return grid_add(s, points, &s->near, EXCLUSION_SHARE);
}

/* Set marked lattice points to 0. */
static void exclude(const struct sums *s, float *potential)
{
#pragma omp parallel for num_threads(dev_threads(s->job->job.dev)) schedule(static)
    for (size_t i = 0; i < s->nodes; i++)
        potential[i] = potential[i] >= EXCLUDED / 2 ? 0 : potential[i];
}

static int direct_sum(struct sums *s, float *potential)
{
    const struct range_points_params params = points_params(s, s->cutoff);
    const struct listener listener = {s, tell};
    struct dev *dev = s->job->job.dev;
    struct range_points *points = NULL;
    s->done = s->share = 0; /* sorting the points is quick, but the listener may cancel that too */
    int rc = dev_zero(dev, s->grid, s->nodes * sizeof *s->grid);
    if (rc == 0)
        rc = range_points_create(&points, dev, &params, &listener);
    if (rc == 0)
        rc = grid_add(s, points, &s->potential, s->exclusion > 0 ? 1 - EXCLUSION_SHARE : 1);
    if (rc == 0 && s->exclusion > 0)
        rc = exclusion_mark(s, points);
    range_points_free(points);
    if (rc == 0)
        rc = dev_download(dev, potential, s->grid, s->nodes * sizeof *potential);
    if (rc == 0 && s->exclusion > 0)
        exclude(s, potential);
    return rc;
}

/* The sum by the split, and its error, measured. */
static int parts_sum(struct sums *s, float *potential, double *error)
{
    const struct listener listener = {s, tell};
    struct dev *dev = s->job->job.dev;
    int rc = s->parts ? 0 : cutcp_parts_create(&s->parts, dev, &s->split, &s->sum, s->exclusion);
    if (rc == 0)
        rc = dev_upload(dev, s->values, s->host, s->count * sizeof *s->values);
    s->share = PARTS_SHARE;
    if (rc == 0)
        rc = split_sum(s->parts, s->at, s->values, s->grid, &listener);
    s->done += s->share;
    s->share = 1 - PARTS_SHARE;
    if (rc == 0)
        rc = dev_download(dev, potential, s->grid, s->nodes * sizeof *potential);
    if (rc == 0)
        rc = cutcp_measure(&s->sum, s->unit, s->exclusion, s->at, s->host, potential, dev_threads(dev), &listener,
                           error);
    s->done += s->share;
    return rc;
}

/* The potential of a frame. A split whose measured error exceeds the tolerance is given up, for all frames that follow,
 * too. */
static int frame_sum(struct sums *s, float *potential)
{
    double error = 0;
    frame_gather(s);
    s->done = 0;
    int rc = s->in_parts ? parts_sum(s, potential, &error) : 0;
    if (rc != 0)
        return rc;
    if (s->in_parts && error <= s->sum.tolerance) {
        s->error = fmax(s->error, error);
        return 0;
    }
    if (s->in_parts)
        direct_choose(s, "the error of the split, measured in frame %zu, is %.2g e/A, more than the tolerance",
                      s->frame, error);
    split_free(s->parts);
    s->parts = NULL;
    return direct_sum(s, potential);
}

static int frames_sum(struct sums *s)
{
    struct volume *v = s->job->volume;
    const int threads = dev_threads(s->job->job.dev);
    int rc = 0;
    for (s->frame = 0; s->frame < s->job->frames && rc == 0; s->frame++) {
        rc = kind_job_tell(&s->job->job, CUTCP_STEP_POTENTIAL, (double)s->frame / (double)s->job->frames,
                           (int64_t)s->frame, (int64_t)s->job->frames);
        float *potential = v->data + (s->mean ? 0 : s->frame * s->nodes);
        if (rc == 0)
            rc = frame_sum(s, potential);
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size_t i = 0; i < (s->mean && rc == 0 ? s->nodes : 0); i++)
            s->mean[i] += (double)potential[i];
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < (s->mean && rc == 0 ? s->nodes : 0); i++)
        v->data[i] = (float)(s->mean[i] / (double)s->job->frames);
    return rc;
}

static void report(struct sums *s)
{
    struct kind_job *job = &s->job->job;
    const struct volume *v = s->job->volume;
    const double *charge = s->job->particles->charge;
    const size_t nodes = s->nodes * v->frames;
    const int threads = dev_threads(job->dev);
    double sum = 0;
    float least = v->data[0], largest = v->data[0];
    for (size_t i = 0; i < s->count; i++)
        sum += charge[i];
        /* Comparisons, because fminf() is a call: it has rules of its own for NaN. */
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : least) reduction(max : largest)
    for (size_t i = 0; i < nodes; i++) {
        least = v->data[i] < least ? v->data[i] : least;
        largest = v->data[i] > largest ? v->data[i] : largest;
    }
    kind_job_number(job, "atoms", (double)s->count);
    kind_job_number(job, "frames", (double)s->job->frames);
    kind_job_number(job, "charge", sum);
    kind_job_number(job, "least", (double)least);
    kind_job_number(job, "largest", (double)largest);
    if (s->in_parts)
        kind_job_number(job, "error", s->error);
    if (s->on_nodes && !(s->exclusion > 0))
        kind_job_warn(job,
                      "%zu charges lie on lattice points, where their potential is infinite; they contribute nothing "
                      "there. Another padding moves the lattice; exclusion sets such points to 0.",
                      s->on_nodes);
}

static int buffers_create(struct sums *s, bool mean)
{
    struct dev *dev = s->job->job.dev;
    void *values = NULL, *grid = NULL;
    s->at = malloc(3 * s->count * sizeof *s->at);
    s->host = malloc(s->count * sizeof *s->host);
    s->mean = mean ? calloc(s->nodes, sizeof *s->mean) : NULL;
    if (!s->at || !s->host || (mean && !s->mean))
        return err_no_memory("the potential of %zu atoms", s->count);
    int rc = dev_alloc(dev, s->count * sizeof *s->values, &values);
    if (rc == 0)
        rc = dev_alloc(dev, s->nodes * sizeof *s->grid, &grid);
    s->values = values;
    s->grid = grid;
    return rc;
}

static void volume_describe(struct sums *s)
{
    struct volume *v = s->job->volume;
    const struct param_values *values = s->job->job.request->values;
    memcpy(v->origin, s->job->origin, sizeof v->origin);
    memcpy(v->spacing, s->job->box.spacing, sizeof v->spacing);
    snprintf(v->title, sizeof v->title, "Electrostatic potential, %.8s", values->value[CUTCP_UNITS].text);
}

int cutcp_potential(struct cutcp_job *job)
{
    const struct param_values *values = job->job.request->values;
    const bool mean = values->value[CUTCP_FRAMES].integer == CUTCP_FRAMES_MEAN && job->frames > 1;
    const struct range_law_params near = {
        .form = RANGE_RADIAL, .reach = values->value[CUTCP_EXCLUSION].real, .error = 1e-6};
    struct volume shape = {.frames = mean ? 1 : job->frames};
    struct sums s = {.job = job,
                     .cutoff = values->value[CUTCP_CUTOFF].real,
                     .exclusion = near.reach,
                     .unit = values->value[CUTCP_UNITS].integer == CUTCP_UNITS_KT_PER_E ? CUTCP_KT_PER_E : 1,
                     .count = job->particles->count};
    for (int d = 0; d < 3; d++)
        shape.size[d] = (size_t)job->box.cells[d];
    int rc = files_promise(job, &shape);
    if (rc != 0)
        return rc;
    s.nodes = shape.size[0] * shape.size[1] * shape.size[2]; /* files_promise() has checked the product */
    rc = charges_check(&s);
    if (rc == 0)
        rc = method_choose(&s);
    if (rc == 0)
        rc = memory_promise(&s, &shape, mean);
    if (rc == 0)
        rc = cutcp_law_make(&s.potential, s.sum.form, s.cutoff);
    if (rc == 0 && s.exclusion > 0)
        rc = range_law_make(&s.near, &near, inside, NULL);
    if (rc == 0)
        rc = volume_create(&job->volume, shape.frames, shape.size);
    if (rc == 0)
        rc = buffers_create(&s, mean);
    if (rc == 0) {
        volume_describe(&s);
        rc = frames_sum(&s);
    }
    if (rc == 0)
        report(&s);
    split_free(s.parts);
    dev_release(job->job.dev, s.values);
    dev_release(job->job.dev, s.grid);
    free(s.at);
    free(s.host);
    free(s.mean);
    return rc;
}
