/* Runs one job of kind "recon": a table of steps over one struct recon_job. */
#include "recon/mri/recon_made.h"
#include "recon/mri/recon_kind.h"
#include "recon/mri/recon_parts.h"
#include "recon/mri/recon_seen.h"

#include "gridding/base/ask.h"
#include "gridding/base/clock.h"
#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- step "decode" ---- */

struct recon_input {
    struct scan scan;
    double seconds, finished; /* duration of reading, and when it ended */
};

/* The reader's options from the parameters; recon_check() has accepted them. */
static void wanted_fill(struct scan_wanted *wanted, const struct param_values *values)
{
    double size[3], fov_mm[3];
    int sizes = recon_lengths(values, RECON_SIZE, size), views = recon_lengths(values, RECON_FOV_MM, fov_mm);
    *wanted = (struct scan_wanted){.group = ""};
    snprintf(wanted->group, sizeof wanted->group, "%s", values->value[RECON_GROUP].text);
    for (int d = 0; d < sizes; d++)
        wanted->size[d] = (uint32_t)size[d];
    for (int d = 0; d < views; d++)
        wanted->fov_mm[d] = (float)fov_mm[d];
}

int recon_read(void **out, const struct job_request *request, const struct job_listener *listener)
{
    struct scan_wanted wanted;
    const struct decode_limits limits = job_decode_limits(request);
    struct recon_input *input = calloc(1, sizeof *input);
    if (!input)
        return err_no_memory("reading a scan");
    wanted_fill(&wanted, request->values);
    wanted.in_place = request->input_stays;
    double start = clock_seconds();
    int rc = scan_decode(&input->scan, request->decoder, request->input, &wanted, &limits, job_decode_canceled,
                         (void *)(uintptr_t)listener);
    input->finished = clock_seconds();
    input->seconds = input->finished - start;
    if (rc != 0)
        free(input);
    else
        *out = input;
    return rc;
}

void recon_input_free(void *of)
{
    struct recon_input *input = of;
    if (!input)
        return;
    scan_close(&input->scan);
    free(input);
}

/* Matrix and field of view come from the file's header or from the parameters, never from both. */
static int geometry_report(struct recon_job *job)
{
    const struct param_values *values = job->request->values;
    const struct scan_encoding *e = &job->scan.encodings[0];
    bool sized = *values->value[RECON_SIZE].text, headless = job->scan.header->headless;
    char text[64];
    if (sized && !headless)
        return err_set(
            ERR_BAD_PARAMETER,
            "Parameter size is for scans without a header, and this one has an ISMRMRD header, which gives a "
            "matrix of %u x %u x %u. Leave size and fov_mm out.",
            e->matrix[0], e->matrix[1], e->matrix[2]);
    if (!headless || *values->value[RECON_FOV_MM].text)
        return 0;
    snprintf(text, sizeof text, "%.9g x %.9g x %.9g mm", (double)e->fov_mm[0], (double)e->fov_mm[1],
             (double)e->fov_mm[2]);
    recon_report_decide(job, "field of view", text, "The scan has no header and fov_mm is not given: 1 mm a pixel.");
    return 0;
}

static int decode(struct recon_job *job)
{
    if (job->input) {
        /* Reading time that passed before the job began does not count in the job's time. */
        double ahead = fmin(job->begun, job->input->finished) - (job->input->finished - job->input->seconds);
        job->scan = job->input->scan;
        recon_report_stage(job, recon_steps[RECON_STEP_DECODE].name, job->input->seconds);
        recon_report_number(job, "decode_ahead_seconds", fmax(0, ahead));
    }
    job->scan_bytes = scan_bytes(&job->scan);
    recon_report_number(job, "scan_bytes", (double)job->scan_bytes);
    if (job->scan.header->ignored)
        recon_report_number(job, "not_read", (double)job->scan.header->ignored);
    return geometry_report(job);
}

/* ---- step "sort" ---- */

/* The points at which the image is computed: see recon_images.c. */
static void matrix_choose(struct recon_job *job)
{
    const struct scan_encoding *e = job->encoding;
    bool recon = recon_choice(job, RECON_MATRIX) == RECON_MATRIX_RECON;
    bool same = true, wider = false;
    job->dim = e->matrix[2] > 1 ? 3 : 2;
    for (int d = 0; d < 3; d++) {
        job->n[d] = d < job->dim ? (int)e->matrix[d] : 1;
        job->out_n[d] = recon && d < job->dim ? (int)e->recon_matrix[d] : job->n[d];
        job->out_fov_mm[d] = (double)(recon ? e->recon_fov_mm[d] : e->fov_mm[d]);
        job->out_k[d] = job->out_fov_mm[d] / job->out_n[d] / ((double)e->fov_mm[d] / job->n[d]);
        /* Fields of view are often rounded: voxels within a thousandth of each other are the same. */
        if (d >= job->dim || fabs(job->out_k[d] - 1) < 1e-3)
            job->out_k[d] = 1;
        same = same && job->out_n[d] == job->n[d] && job->out_k[d] == 1;
        wider = wider || job->out_n[d] * job->out_k[d] > job->n[d] * 1.01;
    }
    char text[64];
    snprintf(text, sizeof text, "%d x %d x %d", job->out_n[0], job->out_n[1], job->out_n[2]);
    if (!same)
        recon_report_decide(job, "matrix", text, "The header's reconSpace; the encoded matrix is %d x %d x %d.",
                            job->n[0], job->n[1], job->n[2]);
    if (wider)
        recon_report_warn(
            job,
            "The header's reconSpace is wider than its encodedSpace (%.4g x %.4g x %.4g mm). Outside of that, the "
            "trajectory may not be dense enough, and the image may show aliasing; matrix=encoded leaves it out.",
            (double)e->fov_mm[0], (double)e->fov_mm[1], (double)e->fov_mm[2]);
    json_object_set_new(job->report, "matrix", json_pack("[i,i,i]", job->out_n[0], job->out_n[1], job->out_n[2]));
}

static void readouts_report(struct recon_job *job)
{
    const struct frames *frames = job->frames;
    json_t *ignored = json_object();
    for (int i = 0; i < FRAMES_REASONS; i++)
        if (frames->ignored[i])
            json_object_set_new(ignored, frames_ignored_name((enum frames_ignored)i),
                                json_integer((json_int_t)frames->ignored[i]));
    if (frames->elsewhere)
        json_object_set_new(ignored, "other_encoding", json_integer((json_int_t)frames->elsewhere));
    json_object_set_new(job->report, "readouts",
                        json_pack("{s:I, s:I, s:o}", "total", (json_int_t)job->scan.header->readouts, "used",
                                  (json_int_t)frames->used, "ignored", ignored));
    for (size_t f = 0; f < frames->count; f++)
        job->samples += frames->frame[f].samples;
    recon_report_number(job, "samples", (double)job->samples);
    recon_report_number(job, "coils", frames->frame[0].coils);
    recon_report_number(job, "images", (double)frames->count);
    recon_report_number(job, "encoding", frames->encoding);
    if (frames->elsewhere)
        recon_report_warn(
            job, "%zu readouts of other encoding spaces were not used; choose one with the parameter `encoding`.",
            frames->elsewhere);
}

/* An upper bound of the size of the files of all results, and their number; false: the size cannot be counted. */
static bool files_count(const struct recon_job *job, const struct image_series shape[RECON_RESULTS], size_t *files,
                        size_t *bytes)
{
    struct result_file native[RECON_RESULTS];
    const struct job_room *room = &job->request->room;
    const struct result_file *file = room->count ? room->files : native;
    *files = (size_t)room->count;
    *bytes = 0;
    for (int r = 0; r < RECON_RESULTS && !room->count; r++)
        if (recon_wants(job, (enum recon_result)r))
            native[(*files)++] = (struct result_file){r, IMAGE_H5};
    for (size_t i = 0; i < *files; i++) {
        size_t more = 0;
        if (!image_file_most(&shape[file[i].result], (enum image_format)file[i].format, job->scan.header->xml_bytes,
                             &more) ||
            !size_add(*bytes, more, bytes) || *bytes > INT64_MAX)
            return false;
    }
    return true;
}

/* Promise an upper bound of the size of the results: `result_bytes` of the report. */
static int results_promise(struct recon_job *job)
{
    const struct job_room *room = &job->request->room;
    struct image_series shape[RECON_RESULTS] = {
        [RECON_RESULT_IMAGE] = {
            .count = job->frames->count,
            .channels = recon_combines(job) ? 1 : (size_t)job->frames->frame[0].coils,
            .size = {(size_t)job->out_n[0], (size_t)job->out_n[1], (size_t)job->out_n[2]},
            .complex_valued = recon_complex_out(job),
        }};
    shape[RECON_RESULT_MAPS] = shape[RECON_RESULT_IMAGE];
    shape[RECON_RESULT_MAPS].channels = (size_t)job->frames->frame[0].coils;
    shape[RECON_RESULT_MAPS].complex_valued = true;
    size_t files = 0, bytes = 0;
    bool counted = files_count(job, shape, &files, &bytes);
    if (!counted)
        bytes = INT64_MAX;
    job->most_bytes = bytes;
    recon_report_number(job, "result_bytes", (double)bytes);
    bool for_good = !counted || (room->most && bytes > room->most);
    if (!for_good && (!room->free || bytes <= room->free))
        return 0;
    uint64_t most = for_good ? room->most : room->free;
    const struct image_series *image = &shape[RECON_RESULT_IMAGE];
    return err_set_bytes(for_good ? ERR_RESULT_TOO_LARGE : ERR_SPOOL_FULL, (int64_t)bytes, (int64_t)most,
                         "The result would be %zu image%s of %zu x %zu x %zu in %zu channel%s%s, which take up to %.1f "
                         "MB in %zu file%s; %s "
                         "%.1f MB (%s). Ask for fewer or smaller images (matrix, coils=rss, output=magnitude), or send "
                         "the scan in parts.",
                         image->count, image->count == 1 ? "" : "s", image->size[0], image->size[1], image->size[2],
                         image->channels, image->channels == 1 ? "" : "s",
                         recon_wants(job, RECON_RESULT_MAPS) ? " and the coils' maps" : "", 1e-6 * (double)bytes, files,
                         files == 1 ? "" : "s", for_good ? "a job's results may take" : "there is room for",
                         1e-6 * (double)most, for_good && room->most_of ? room->most_of : "the disk's free space");
}

static void division_report(struct recon_job *job, const struct frames_division *division)
{
    const struct frames *frames = job->frames;
    const struct frame *last = &frames->frame[frames->count - 1];
    size_t least = SIZE_MAX, most = 0;
    char text[32];
    if (!frames_divided(division))
        return;
    for (size_t f = 0; f < frames->count; f++) {
        least = frames->frame[f].count < least ? frames->frame[f].count : least;
        most = frames->frame[f].count > most ? frames->frame[f].count : most;
    }
    snprintf(text, sizeof text, "%d", last->repetition + 1);
    recon_report_decide(job, "frames", text,
                        "As requested: the readouts in the order of acquisition, divided by %s, whatever their "
                        "counters of repetition and average; %zu to %zu readouts an image, %zu left over at the end.",
                        division->by_time ? "time" : "count", least, most, frames->left_over);
}

static struct frames_division division_of(const struct param_values *values)
{
    return (struct frames_division){
        .images = (int)values->value[RECON_FRAMES].integer,
        .readouts = (int)values->value[RECON_FRAME_READOUTS].integer,
        .by_time = values->value[RECON_FRAME_BY].integer == RECON_FRAME_BY_TIME,
        .window = values->value[RECON_FRAME_WINDOW].real,
    };
}

int recon_frames(struct frames **out, const struct job_request *request, const struct scan *scan,
                 const struct frames_begun *begun, bool arriving, struct frames_grown **grown)
{
    const struct param_values *values = request->values;
    const bool series = values->value[RECON_METHOD].integer >= RECON_METHOD_TEMPORAL_TV;
    const bool separate = values->value[RECON_AVERAGES].integer == RECON_AVERAGES_SEPARATE;
    struct frames_division division = division_of(values);
    division.begun = division.readouts > 0 && (arriving || (begun && !series));
    division.arriving = arriving;
    const int encoding = (int)values->value[RECON_ENCODING].integer;
    int rc = grown && !frames_divided(&division) ? frames_follow(out, grown, scan, encoding, separate)
                                                 : frames_create(out, scan, encoding, separate, &division);
    if (rc == 0 && begun)
        frames_complete(*out, scan, begun);
    return rc;
}

/* Only an upload that the image needs exactly as it can be known here: by a GPU (a CPU reads samples where they are);
 * of the only image, of none that is begun while the scan arrives; in 2-D, because 3-D jobs upload few coils at a time;
 * of coils that nothing mixes, and that are one batch whatever memory there is, as iterations and a field map do not
 * promise. A large one would last longer than what it goes on beside. */
static bool begins_early(const struct recon_job *job)
{
    enum { EARLY_MOST = 64 << 20 };
    const struct frame *frame = job->frames->frame;
    return dev_is_gpu(job->dev) && job->frames->count == 1 && !job->scan.header->streamed && !job->feed && !job->fed &&
           job->dim == 2 && job->frames->ignored[FRAMES_NOISE] == 0 &&
           !recon_compresses(job->request->values, frame->coils) && !recon_iterates(job) && !job->scan.field &&
           frame->coils <= MOST_BATCH && (size_t)frame->coils * frame->samples <= EARLY_MOST / sizeof(struct c32);
}

static int sort(struct recon_job *job)
{
    const struct frames_division division = division_of(job->request->values);
    int rc = recon_frames(&job->frames, job->request, &job->scan, job->more, job->feed,
                          job->seen ? &job->seen->grown : NULL);
    if (rc != 0)
        return rc;
    division_report(job, &division);
    job->encoding = &job->scan.encodings[job->frames->encoding];
    matrix_choose(job);
    readouts_report(job);
    rc = results_promise(job);
    if (rc == 0 && begins_early(job))
        recon_early_begin(job);
    return rc;
}

/* ---- step "noise" ---- */

static int coils_prepare(struct recon_job *job)
{
    int rc = recon_noise(job);
    if (rc == 0)
        rc = recon_compress(job);
    return rc == 0 ? recon_delay(job) : rc;
}

/* ---- the job ---- */

static int images(struct recon_job *job)
{
    return job->feed ? recon_feed_add(job) : recon_images(job);
}

/* Run the steps from `first` to `last`. Those of the images are interleaved, image by image, and report their own
 * progress. */
static const struct {
    enum recon_step first, last;
    int (*run)(struct recon_job *job);
} parts[] = {
    {RECON_STEP_DECODE, RECON_STEP_DECODE, decode},
    {RECON_STEP_SORT, RECON_STEP_SORT, sort},
    {RECON_STEP_TRAJECTORY, RECON_STEP_TRAJECTORY, recon_trajectory},
    {RECON_STEP_NOISE, RECON_STEP_NOISE, coils_prepare},
    {RECON_STEP_DENSITY, RECON_STEP_SOLVE, images},
};

static int steps_run(struct recon_job *job)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && rc == 0; i++) {
        bool single = parts[i].first == parts[i].last;
        job->share = 0;
        for (enum recon_step s = parts[i].first; s <= parts[i].last; s++)
            job->share += recon_steps[s].share;
        if (single)
            rc = recon_tell(job, parts[i].first, 0, 0, 0);
        double start = clock_seconds();
        if (rc == 0)
            rc = parts[i].run(job);
        /* The scan may have been read before the job; the stages of the images are reported one by one. */
        if (single && parts[i].run != decode)
            recon_report_stage(job, recon_steps[parts[i].first].name, clock_seconds() - start);
        job->done += job->share;
    }
    recon_report_number(job, "seconds", clock_seconds() - job->begun);
    return rc;
}

static int image_result_write(const void *images, int format, int fd)
{
    return image_write(images, (enum image_format)format, fd);
}

static void image_result_free(void *images)
{
    image_series_free(images);
}

/* The threads that may draw a picture of the series. The native file is written meanwhile: of two processors, one is
 * busy with that. */
static int picture_threads(const struct recon_job *job, const struct image_series *series)
{
    const size_t *size = series->size;
    const int all = recon_threads(job, series->count * series->channels * size[0] * size[1] * size[2]);
    return all > 2 ? all : 1;
}

/* Move a series to the results, if it was requested. */
static void result_give(struct job_outcome *out, const struct recon_job *job, enum recon_result result,
                        struct image_series **series)
{
    if (!recon_wants(job, result))
        return;
    (*series)->threads = picture_threads(job, *series);
    out->result[out->results++] =
        (struct job_result){recon_kind.results[result].name, *series, image_result_write, image_result_free};
    *series = NULL;
}

static void job_free(struct recon_job *job)
{
    recon_early_free(job);
    recon_files_end(job, true);
    recon_made_return(job);
    image_series_free(job->images);
    image_series_free(job->maps);
    free(job->coil_lives);
    free(job->made);
    free(job->mix);
    free(job->hash);
    frames_free(job->frames);
}

static void begun_take(struct recon_job *job, const struct recon_begun *begun)
{
    job->before = begun->made;
    job->fed = &begun->feed;
}

/* Run all steps. A report exists unless creating it fails. */
static int job_steps(struct recon_job *job)
{
    int rc = recon_report_create(&job->report);
    job->begun = job->request->begun > 0 ? job->request->begun : clock_seconds();
    if (job->request->ahead)
        begun_take(job, recon_begun_of(job->request->ahead));
    if (rc != 0)
        return rc;
    json_object_set_new(job->report, "device", json_string(dev_name(job->dev)));
    /* Without a GPU, using the CPU is expected: no warning. */
    if (*dev_note(job->dev))
        recon_report_decide(job, "device", dev_is_gpu(job->dev) ? "gpu" : "cpu", "%s", dev_note(job->dev));
    struct step_progress told = {.step = 0};
    const struct dev_ask ask = {job, recon_asked};
    job->told = &told;
    dev_ask_set(job->dev, job->listener ? &ask : NULL);
    rc = steps_run(job);
    dev_ask_set(job->dev, NULL);
    job->told = NULL;
    return rc;
}

static int job_run(struct job_outcome *out, struct recon_job *job)
{
    int rc = job_steps(job);
    if (rc == 0)
        rc = recon_report_frames(job);
    if (rc == 0) {
        recon_files_end(job, false);
        *out = (struct job_outcome){.most_bytes = job->most_bytes, .report = job->report};
        result_give(out, job, RECON_RESULT_IMAGE, &job->images);
        result_give(out, job, RECON_RESULT_MAPS, &job->maps);
    } else {
        json_decref(job->report);
    }
    job_free(job);
    return rc;
}

int recon_run_part(struct recon_made **out, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, const struct scan *scan, const struct frames_begun *more,
                   struct recon_begun *begun)
{
    struct recon_job job = {.dev = dev,
                            .request = request,
                            .listener = listener,
                            .scan = *scan,
                            .before = begun->made,
                            .fed = &begun->feed,
                            .seen = &begun->seen,
                            .host_memory = begun->host_memory,
                            .keep = out,
                            .more = more};
    int rc = job_steps(&job);
    json_decref(job.report);
    job_free(&job);
    return rc;
}

int recon_run_feed(struct recon_begun *begun, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, const struct scan *scan)
{
    struct recon_job job = {.dev = dev,
                            .request = request,
                            .listener = listener,
                            .scan = *scan,
                            .seen = &begun->seen,
                            .feed = &begun->feed};
    int rc = job_steps(&job);
    json_decref(job.report);
    job_free(&job);
    return rc;
}

int recon_run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
              const struct job_listener *listener, const void *input)
{
    struct recon_job job = {.dev = dev, .request = request, .listener = listener, .input = input};
    return job_run(out, &job);
}

int recon_run_scan(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, const struct scan *scan)
{
    struct recon_job job = {.dev = dev, .request = request, .listener = listener, .scan = *scan};
    int rc = kind_check(request->kind, request->values);
    return rc == 0 ? job_run(out, &job) : rc;
}
