/* Step "images": density compensation, gridding adjoint and coil combination, image by image.
 *
 * How images are scaled. An image is sum_m w_m d_m exp(+2 pi i k_m . r), divided by nothing (gridding/nufft/nufft.h):
 *   - weights of the file are used unchanged; several averages give their mean;
 *   - computed weights (analytic, pipe) are scaled so that a fully sampled object has its own units;
 *   - dcf=none is the bare sum;
 *   - prewhitening keeps the coils' mean noise power;
 *   - coils=rss is the root of the sum of the coils' squared magnitudes.
 * The size of the image does not change its values: `matrix` and reconSpace only choose at which points r the sum is
 * taken. If the voxels of reconSpace are those of encodedSpace, that crops the centre; with smaller voxels the image is
 * interpolated; with larger ones samples outside the image's own k-space are ignored.
 *
 * Images that share a trajectory share its plan: they are computed consecutively, whatever their order in the series.
 */
#include "recon/mri/recon_iterative.h"
#include "recon/mri/recon_made.h"
#include "recon/mri/recon_memory.h"

#include "gridding/base/err.h"
#include "recon/mri/plan_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESULTS_SMALL = 16 << 20,
    SMALL_BATCH = 128 << 20, /* bytes that they may always use */
    /* A GPU grids some coils while the next ones are uploaded: this many bytes of samples at a time, at least two coils
     * in 3-D, and all of a batch in 2-D, because the 2-D kernels share weights between coils. */
    UPLOAD_BATCH = 64 << 20
};

static int gridder_sizes(struct gridder *g)
{
    struct recon_job *job = g->job;
    memcpy(g->n, job->out_n, sizeof g->n);
    if (recon_iterates(job))
        iterative_size(job, g->n);
    g->pixels = (size_t)g->n[0] * (size_t)g->n[1] * (size_t)g->n[2];
    g->most_coils = 0;
    for (size_t f = 0; f < job->frames->count; f++) {
        const struct frame *frame = &job->frames->frame[f];
        g->most_samples = frame->samples > g->most_samples ? frame->samples : g->most_samples;
        g->most_count = frame->count > g->most_count ? frame->count : g->most_count;
        g->most_coils = frame->coils > g->most_coils ? frame->coils : g->most_coils;
        if ((!recon_combines(job) || recon_wants(job, RECON_RESULT_MAPS)) &&
            frame->coils != job->frames->frame[0].coils)
            return err_set(ERR_COILS_DIFFER,
                           "Parameter %s needs as many coils in every image, but image %zu has %d and the first %d. %s",
                           recon_combines(job) ? "results=maps" : "coils=none", f, frame->coils,
                           job->frames->frame[0].coils, recon_combines(job) ? "Leave it out." : "Pass coils=rss.");
    }
    g->batch = g->most_coils < MOST_BATCH ? g->most_coils : MOST_BATCH;
    /* A CPU's device memory is the host's. The coils of a batch, samples and grids, may use three quarters of the
     * scan's size, so that a job with its plan stays near twice that size. */
    size_t coil_bytes = g->most_samples * sizeof(struct c32) + 4 * g->pixels * sizeof(struct c32);
    size_t budget = job->scan_bytes / 4 * 3 > SMALL_BATCH ? job->scan_bytes / 4 * 3 : SMALL_BATCH;
    size_t batch = budget / coil_bytes;
    if ((size_t)g->batch > batch && !dev_is_gpu(job->dev))
        g->batch = batch < 1 ? 1 : (int)batch;
    batch = UPLOAD_BATCH / (g->most_samples * sizeof(struct c32) + 1);
    if (dev_is_gpu(job->dev) && job->dim == 3 && (size_t)g->batch > batch)
        g->batch = batch < 2 ? 2 : (int)batch;
    g->longest = g->kernels = 1;
    if (recon_series(job))
        return series_sizes(g);
    return recon_iterates(job) ? together_sizes(g) : 0;
}

/* Device memory for the samples and images of a batch. */
static int buffers_alloc(struct gridder *g)
{
    struct recon_job *job = g->job;
    size_t image_bytes = g->pixels * sizeof(float), all_bytes = (size_t)g->most_coils * g->pixels * sizeof(struct c32);
    size_t data_bytes = (size_t)g->batch * g->most_samples * sizeof(struct c32);
    int rc = 0;
    for (int i = 0; i < (g->batch < g->most_coils && dev_is_gpu(job->dev) ? 2 : 1) && rc == 0; i++)
        if (!g->data[i])
            rc = dev_alloc(job->dev, data_bytes, (void **)&g->data[i]);
    if (rc == 0 && g->field)
        rc = field_load(g->field, g->n, g->most_samples, g->batch);
    if (recon_iterates(job) || rc != 0)
        return rc;
    if (recon_maps(job))
        image_bytes = all_bytes;
    else if (!recon_squares(job) || g->field)
        image_bytes = (size_t)g->batch * g->pixels * sizeof(struct c32);
    if (recon_maps(job) && !g->maps)
        rc = dev_alloc(job->dev, all_bytes, (void **)&g->maps);
    if (rc == 0 && recon_maps(job) && !g->combined)
        rc = dev_alloc(job->dev, g->pixels * sizeof *g->combined, (void **)&g->combined);
    if (rc == 0 && recon_squares(job) && g->field && !g->squares)
        rc = dev_alloc(job->dev, g->pixels * sizeof *g->squares, (void **)&g->squares);
    return rc == 0 ? dev_alloc(job->dev, image_bytes, &g->image) : rc;
}

/* Copy a position or a direction; one that is not finite becomes 0, which is no direction: image.h's writers take an
 * axis of the patient for it. */
static bool vector_take(float to[3], const float from[3])
{
    const bool finite = isfinite(from[0]) && isfinite(from[1]) && isfinite(from[2]);
    for (int d = 0; d < 3; d++)
        to[d] = finite ? from[d] : 0;
    return finite;
}

/* Where the image is, from its first readout; false: that has values that are not finite. */
static bool place_fill(struct image_info *info, const struct scan_readout *readout)
{
    const bool taken[] = {
        vector_take(info->position, readout->position), vector_take(info->read_dir, readout->read_dir),
        vector_take(info->phase_dir, readout->phase_dir), vector_take(info->slice_dir, readout->slice_dir),
        vector_take(info->table_position, readout->table_position)};
    return taken[0] && taken[1] && taken[2] && taken[3] && taken[4];
}

/* The image's position, from its first readout. */
static void info_fill(struct recon_job *job, size_t f)
{
    const struct frame *frame = &job->frames->frame[f];
    const struct scan_readout *readout = &job->scan.readouts[job->frames->readouts[frame->first]];
    struct image_info *info = &job->images->info[f];
    place_fill(info, readout);
    for (int d = 0; d < 3; d++)
        info->fov_mm[d] = (float)job->out_fov_mm[d];
    info->average = readout->idx[SCAN_AVERAGE];
    info->slice = readout->idx[SCAN_SLICE];
    info->contrast = readout->idx[SCAN_CONTRAST];
    info->phase = readout->idx[SCAN_PHASE];
    info->repetition = frame->repetition;
    info->set = readout->idx[SCAN_SET];
    info->series = 1;
    info->index = (uint16_t)(f + 1);
    info->measurement_uid = readout->measurement_uid;
    info->time_stamp = readout->time_stamp;
}

/* The results, with all but their values. */
static int results_create(struct gridder *g, size_t channels)
{
    struct recon_job *job = g->job;
    int rc = image_series_create(&job->images, job->frames->count, channels,
                                 (const size_t[]){(size_t)job->out_n[0], (size_t)job->out_n[1], (size_t)job->out_n[2]},
                                 recon_complex_out(job));
    if (rc == 0 && recon_wants(job, RECON_RESULT_MAPS))
        rc = image_series_create(&job->maps, job->frames->count, (size_t)g->most_coils, job->images->size, true);
    if (rc != 0)
        return rc;
    struct image_series *series = job->images;
    series->phases = recon_choice(job, RECON_OUTPUT) == RECON_OUTPUT_PHASE;
    for (size_t f = 0; f < series->count; f++)
        info_fill(job, f);
    if (job->dim == 2 && series->count > 1 && series->info[0].slice != series->info[1].slice) {
        double square = 0;
        for (int d = 0; d < 3; d++)
            square += pow((double)series->info[1].position[d] - (double)series->info[0].position[d], 2);
        series->slice_spacing_mm = (float)sqrt(square);
    }
    if (job->scan.xml)
        series->xml = strdup(job->scan.xml);
    if (job->maps) {
        memcpy(job->maps->info, series->info, series->count * sizeof *series->info);
        job->maps->slice_spacing_mm = series->slice_spacing_mm;
        if (job->scan.xml)
            job->maps->xml = strdup(job->scan.xml);
    }
    return 0;
}

/* And their files are begun. */
static int results_begin(struct gridder *g, size_t channels)
{
    const int rc = results_create(g, channels);
    if (rc == 0)
        recon_files_begin(g->job);
    return rc;
}

/* Whether the results are so small that they need not wait for the look at what memory there is, during which their
 * files can be begun. */
static bool results_are_small(const struct recon_job *job, size_t channels)
{
    const double pixels = (double)job->out_n[0] * job->out_n[1] * job->out_n[2] * (double)job->frames->count;
    return !recon_wants(job, RECON_RESULT_MAPS) && pixels * (double)channels * sizeof(struct c32) <= RESULTS_SMALL;
}

static int gridder_create(struct gridder *g)
{
    struct recon_job *job = g->job;
    int rc = gridder_sizes(g);
    size_t channels = recon_combines(job) ? 1 : (size_t)g->most_coils;
    const bool small = results_are_small(job, channels);
    if (rc == 0 && small)
        rc = results_begin(g, channels);
    if (rc != 0)
        return rc;
    rc = recon_memory_check(g, channels);
    if (rc != 0 && plan_cache_clear(job->cache))
        rc = recon_memory_check(g, channels);
    if (rc == 0 && !small)
        rc = results_begin(g, channels);
    if (rc != 0)
        return rc;
    job->made = calloc(job->frames->count, sizeof *job->made);
    size_t coordinates = g->most_samples * (size_t)job->dim;
    g->k = malloc(coordinates * sizeof(float));
    g->planned_k = malloc(job->hash ? coordinates * sizeof(float) : 1); /* with one image there is nothing to compare */
    g->weights = malloc(g->most_samples * sizeof(float));
    g->offsets = malloc((g->most_count + 1) * sizeof *g->offsets);
    g->staging = malloc(gridder_staging(g));
    if (!job->coil_lives)
        job->coil_lives = calloc((size_t)g->most_coils, sizeof *job->coil_lives);
    g->data[0] = recon_early_take(job);
    const bool squares = recon_squares(job) || recon_iterates(job);
    g->coil = squares ? NULL : malloc(g->pixels * sizeof *g->coil);
    if (!job->made || !g->k || !g->planned_k || !g->weights || !g->offsets || !g->staging || !job->coil_lives ||
        (!g->coil && !squares))
        return err_no_memory("an image of %zu samples", g->most_samples);
    rc = buffers_alloc(g);
    if (rc != 0 && rc != ERR_DEVICE && plan_cache_clear(job->cache))
        rc = buffers_alloc(g);
    return rc;
}

static void gridder_free(struct gridder *g)
{
    recon_early_free(g->job); /* it may be writing to data[0] */
    gridder_plan_drop(g);
    field_free(g->field);
    dev_release(g->job->dev, g->squares);
    dev_release(g->job->dev, g->combined);
    dev_release(g->job->dev, g->maps);
    dev_release(g->job->dev, g->image);
    dev_release(g->job->dev, g->data[1]);
    dev_release(g->job->dev, g->data[0]);
    free(g->coil);
    free(g->staging);
    free(g->offsets);
    free(g->weights);
    free(g->planned_k);
    free(g->k);
}

static void info_report(struct recon_job *job, size_t f)
{
    const struct frame *frame = &job->frames->frame[f];
    struct image_info place;
    if (!place_fill(&place, readout_at(job, frame->first)))
        recon_report_warn(job,
                          "The position or a direction of an image is not finite: the image is placed at 0, or along "
                          "the patient's axes.");
    if (!frame->one_place)
        recon_report_warn(
            job, "The readouts of an image differ in position or direction; the image has those of the first.");
    if (frame->averages > 1)
        recon_report_decide(job, "averages", "combine", "%d averages are combined into one image.", frame->averages);
}

/* The largest magnitude of all images' numbers; NaN is above all. */
static float images_most(const struct recon_job *job)
{
    const struct image_series *series = job->images;
    const size_t pixels = series->size[0] * series->size[1] * series->size[2];
    const size_t values = series->count * series->channels * pixels * (series->complex_valued ? 2 : 1);
    const float *data = series->data;
    uint32_t most = 0; /* as bits, which order as magnitudes do */
    float largest;
#pragma omp parallel for schedule(static) reduction(max : most) num_threads(recon_threads(job, values))
    for (size_t i = 0; i < values; i++) {
        uint32_t bits;
        memcpy(&bits, data + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    memcpy(&largest, &most, sizeof largest);
    return largest;
}

/* Check that float32, from 1e-38 to 1e38, holds the images and, where the method needs them, the squares of pixels down
 * to a thousandth of the brightest. `lives`: a coil has a signal. */
static int images_check(struct recon_job *job, bool lives)
{
    const double most = (double)images_most(job), least_square = 1e-16, most_square = 1e16;
    const bool squares =
        recon_iterates(job) ? recon_choice(job, RECON_METHOD) == RECON_METHOD_L1_WAVELET : recon_squares(job);
    if (!isfinite(most))
        return err_set(ERR_DATA_NONFINITE,
                       "The image has values that are not finite numbers, because the k-space data, or the density "
                       "weights, are too large for single precision. Divide them by a constant.");
    if (!lives)
        return 0;
    if (most == 0 && (recon_maps(job) || recon_iterates(job)))
        recon_report_warn(job,
                          "All pixels are 0, although the k-space is not: the coil maps are 0 everywhere, as those of "
                          "coils=sense are where it finds no object (those of coils=adaptive cover every pixel), or "
                          "lambda is too large, or the k-space data are below %g.",
                          least_square);
    else if (squares && (most < least_square || most > most_square))
        recon_report_warn(job,
                          "The image's largest value is %.3g. The squares of values beyond %g to %g are inaccurate or "
                          "lost in single precision, and the image with them. Multiply the k-space data by a constant.",
                          most, least_square, most_square);
    return 0;
}

/* An image's trajectory, and the first image of the series that has the same. */
struct leader {
    uint64_t hash;
    size_t image, first;
};

static int by_hash(const void *pa, const void *pb)
{
    const struct leader *a = pa, *b = pb;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return (a->image > b->image) - (a->image < b->image);
}

static int by_first(const void *pa, const void *pb)
{
    const struct leader *a = pa, *b = pb;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->image > b->image) - (a->image < b->image);
}

/* The order of computing images: those of one trajectory consecutively, otherwise in the order of the series, so that
 * the first ones are complete early. */
static int order_make(const struct recon_job *job, size_t **out)
{
    const size_t count = job->frames->count;
    size_t *order = malloc(count * sizeof *order);
    struct leader *leader = malloc(count * sizeof *leader);
    if (!order || !leader) {
        free(order);
        free(leader);
        return err_no_memory("the order of %zu images", count);
    }
    for (size_t f = 0; f < count; f++)
        leader[f] = (struct leader){job->hash ? job->hash[f] : 0, f, f};
    qsort(leader, count, sizeof *leader, by_hash);
    for (size_t i = 1; i < count; i++)
        if (leader[i].hash == leader[i - 1].hash)
            leader[i].first = leader[i - 1].first;
    qsort(leader, count, sizeof *leader, by_first);
    for (size_t i = 0; i < count; i++)
        order[i] = leader[i].image;
    free(leader);
    *out = order;
    return 0;
}

static int images_run(struct gridder *g, const size_t *order)
{
    struct recon_job *job = g->job;
    struct iterative *it = NULL;
    int rc = recon_iterates(job) ? iterative_create(&it, g) : 0;
    for (size_t f = 0; f < job->frames->count; f++)
        g->coils += job->frames->frame[f].coils;
    recon_made_take(g);
    gridder_show(g);
    for (size_t f = 0; f < job->frames->count && rc == 0 && recon_series(job); f++)
        rc = series_leads(job, f) ? series_frames(it, f) : 0;
    for (size_t i = 0, done; i < job->frames->count && rc == 0 && !recon_series(job); i += done) {
        done = 1;
        if (job->made[order[i]])
            continue;
        if (g->together)
            rc = together_frames(it, order + i, job->frames->count - i, &done);
        else
            rc = it ? iterative_frame(it, order[i]) : adjoint_frame(g, order[i]);
        job->made[order[i]] = rc == 0;
        if (rc == 0)
            gridder_show(g);
    }
    if (rc == 0 && it && !job->keep) /* images of a beginning are the whole job's to report */
        iterative_report(it);
    iterative_free(it);
    return rc;
}

int recon_images(struct recon_job *job)
{
    struct gridder g = {.job = job};
    size_t *order = NULL;
    job->cache = job->request->cache;
    job->decisions = json_array_size(json_object_get(job->report, "decisions"));
    job->warnings = json_array_size(json_object_get(job->report, "warnings"));
    int rc = field_open(&g.field, job);
    /* The normal operators of a field map's segments give the plan other weights in turn, and need its own again. */
    if (g.field && recon_iterates(job))
        job->cache = NULL;
    if (rc == 0)
        rc = gridder_create(&g);
    if (rc == 0)
        rc = order_make(job, &order);
    if (rc == 0)
        rc = images_run(&g, order);
    if (rc == 0)
        rc = recon_tell(job, RECON_STEP_GRIDDING, 1, g.coils_done, g.coils);
    if (rc == 0) {
        if (g.plan || !job->before) /* else the reused images' report has it */
            gridder_report_overflow(&g);
        const bool lives = recon_coils_report(job, g.most_coils);
        rc = job->keep ? 0 : images_check(job, lives); /* of a beginning, the whole job's */
        recon_report_number(job, "upload_beside_gridding", g.beside);
        for (size_t f = 0; f < job->frames->count; f++)
            info_report(job, f);
    }
    if (rc == 0 && job->keep)
        rc = recon_made_keep(&g);
    free(order);
    gridder_free(&g);
    return rc;
}
