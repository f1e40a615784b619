#include "recon/mri/field_inner.h"

#include "gridding/base/err.h"
#include "gridding/base/vec.h"
#include "recon/mri/recon_weights.h"
#include "recon/mri/stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- times ---- */

/* Seconds to each kept sample of a frame. `k` as in field_frame(); NULL: no readout continues another. Fails with
 * ERR_MALFORMED_FILE. */
static int times_fill(const struct recon_job *job, const struct frame *frame, const size_t *offsets, const float *k,
                      float *times)
{
    const struct scan *scan = &job->scan;
    size_t before = 0; /* samples of the same line, in readouts that this one continues */
    for (size_t i = 0; i < frame->count; i++) {
        const struct scan_readout *r = readout_at(job, frame->first + i);
        if (!scan->times && !(r->sample_time_us > 0))
            return err_set_acquisition(ERR_MALFORMED_FILE, r->acquisition,
                                       "The scan has a field map, but acquisition %u has a sample_time_us of %g: a "
                                       "field map needs the time of each sample. Fill it in, or pass "
                                       "off_resonance=off.",
                                       r->acquisition, (double)r->sample_time_us);
        for (size_t s = 0; s < offsets[i + 1] - offsets[i]; s++) {
            const size_t at = before + r->discard_pre + s;
            if (scan->times && at >= scan->header->times_count)
                return err_set_acquisition(ERR_MALFORMED_FILE, r->acquisition,
                                           "The scan has %llu sampling times, but acquisition %u has more samples.",
                                           (unsigned long long)scan->header->times_count, r->acquisition);
            times[offsets[i] + s] = scan->times ? scan->times[at] : (float)((double)at * 1e-6 * r->sample_time_us);
        }
        const bool next = i + 1 < frame->count;
        /* Arrays' long readouts are cut into segments; of other scans, some count their spokes as segments. */
        const bool on = next && (scan->header->headless ? readout_at(job, frame->first + i + 1)->idx[SCAN_SEGMENT] > 0
                                                        : k && recon_readout_continues(job, frame, offsets, k, i));
        before = on ? before + r->samples : 0;
    }
    return 0;
}

static bool has_segments(const struct recon_job *job, const struct frame *frame)
{
    for (size_t i = 0; i < frame->count; i++)
        if (readout_at(job, frame->first + i)->idx[SCAN_SEGMENT] > 0)
            return true;
    return false;
}

static int span_extend(const struct recon_job *job, const struct frame *frame, double span[2])
{
    size_t *offsets = malloc((frame->count + 1) * sizeof *offsets);
    float *times = malloc(frame->samples * sizeof *times), *k = NULL;
    int rc = offsets && times ? 0 : err_no_memory("the times of %zu samples", frame->samples);
    if (rc == 0)
        recon_frame_offsets(job, frame, offsets);
    if (rc == 0 && has_segments(job, frame)) {
        k = malloc(frame->samples * (size_t)job->dim * sizeof *k);
        if (k)
            recon_frame_gather(job, frame, offsets, k, NULL);
        else
            rc = err_no_memory("the times of %zu samples", frame->samples);
    }
    if (rc == 0)
        rc = times_fill(job, frame, offsets, k, times);
    for (size_t s = 0; s < frame->samples && rc == 0; s++) {
        if (!isfinite(times[s]))
            rc = err_set(ERR_MALFORMED_FILE, "The sampling time of sample %zu is not finite.", s);
        span[0] = fmin(span[0], (double)times[s]);
        span[1] = fmax(span[1], (double)times[s]);
    }
    free(k);
    free(times);
    free(offsets);
    return rc;
}

/* ---- the scan's map and times ---- */

static int map_check(const struct recon_job *job, size_t values)
{
    const float *f = job->scan.field;
    const size_t nx = (size_t)job->n[0], ny = (size_t)job->n[1], nz = (size_t)job->n[2];
    int rc = recon_given_check(job, "field map (fieldmap)");
    for (size_t i = 0; i < values && rc == 0; i++)
        if (!isfinite(f[i]))
            rc = err_set(ERR_DATA_NONFINITE,
                         "The field map (fieldmap) has a value that is not finite at pixel %zu, %zu, %zu (x, y, z) of "
                         "map %zu. Set unknown values to 0.",
                         i % nx, i / nx % ny, i / nx / ny % nz, i / nx / ny / nz);
    return rc;
}

static size_t slice_of(const struct recon_job *job, const struct frame *frame)
{
    return readout_at(job, frame->first)->idx[SCAN_SLICE];
}

/* As many maps as slices, or one for all. */
static int slices_check(struct recon_job *job)
{
    const struct frames *frames = job->frames;
    const uint64_t maps = job->scan.header->field_maps;
    size_t last = 0;
    bool several = false;
    for (size_t f = 0; f < frames->count; f++) {
        const size_t slice = slice_of(job, &frames->frame[f]);
        last = slice > last ? slice : last;
        several = several || slice != slice_of(job, &frames->frame[0]);
    }
    if (maps > 1 && maps != last + 1)
        return err_set(ERR_MALFORMED_FILE,
                       "The scan has field maps (fieldmap) of %llu slices, and its readouts are of slices up to number "
                       "%zu, counted from 0. Give a map for each slice, or one without an axis of slices for all.",
                       (unsigned long long)maps, last);
    if (maps == 1 && several)
        recon_report_warn(job, "The scan has several slices and one field map, which was used for all. Give the field "
                               "map an axis of slices, one map for each, or pass off_resonance=off.");
    return 0;
}

/* The segments for times from span[0] to span[1]. */
static int segments_choose(struct field *field, const double span[2])
{
    struct recon_job *job = field->job;
    const double tolerance = job->request->values->value[RECON_TOLERANCE].real;
    const struct spectrum *s = &field->spectrum;
    const double most = s->first + (s->bins - 1) * s->step, cycles = (most - s->first) * (span[1] - span[0]);
    char text[32], maps[64];
    bool enough = true;
    spectrum_differences(&field->differences, s);
    /* Solvers need a non-negative operator, and this one is so only up to its error; a tenth of the tolerance is far
     * below lambda. */
    if (recon_iterates(job))
        enough = segments_make(&field->normal, &field->differences, span[0], span[1], tolerance / 10, 1);
    enough = enough && segments_make(&field->plain, s, span[0], span[1], tolerance,
                                     recon_iterates(job) ? field->normal.count : 1);
    if (!enough)
        return err_set(ERR_LIMIT,
                       "The field map spans %.4g to %.4g Hz, %.4g cycles during a readout of %.3g ms; %d time segments "
                       "are too few for that at tolerance=%g. Set pixels outside the object to 0, or pass "
                       "off_resonance=off.",
                       s->first, most, cycles, 1e3 * (span[1] - span[0]), SEGMENTS_MOST, tolerance);
    /* Both use the same nodes, and so the same maps E_l. */
    if (recon_iterates(job) && field->plain.count > field->normal.count)
        segments_make(&field->normal, &field->differences, span[0], span[1], INFINITY, field->plain.count);
    snprintf(text, sizeof text, "%d segments", field->plain.count);
    snprintf(maps, sizeof maps, "field maps of %llu slices,", (unsigned long long)job->scan.header->field_maps);
    recon_report_decide(job, "off-resonance", text,
                        "The scan brings %s %.4g to %.4g Hz, %.3g cycles during a readout of %.3g ms: the "
                        "error of this number of time segments is %.1g (conjugate phase%s).",
                        job->scan.header->field_maps > 1 ? maps : "a field map of", s->first, most, cycles,
                        1e3 * (span[1] - span[0]),
                        recon_iterates(job) ? fmax(field->plain.error, field->normal.error) : field->plain.error,
                        recon_iterates(job) ? ", and the normal operator" : "");
    return 0;
}

static int look(struct field *field, bool *matters)
{
    struct recon_job *job = field->job;
    const size_t values = scan_field_count(job->scan.header, job->scan.encodings);
    double span[2] = {INFINITY, -INFINITY};
    int rc = map_check(job, values);
    if (rc == 0)
        rc = slices_check(job);
    for (size_t f = 0; f < job->frames->count && rc == 0; f++)
        rc = span_extend(job, &job->frames->frame[f], span);
    if (rc != 0)
        return rc;
    spectrum_of(&field->spectrum, values, job->scan.field);
    const struct spectrum *s = &field->spectrum;
    const double most = fmax(fabs(s->first), fabs(s->first + (s->bins - 1) * s->step));
    const double turn = 2 * M_PI * most * fmax(fabs(span[0]), fabs(span[1]));
    *matters = turn > job->request->values->value[RECON_TOLERANCE].real;
    if (!*matters) {
        recon_report_decide(
            job, "off-resonance", "none",
            "The scan brings a field map of at most %.3g Hz, which changes no sample's phase by more than %.1g.", most,
            turn);
        return 0;
    }
    return segments_choose(field, span);
}

int field_open(struct field **out, struct recon_job *job)
{
    bool matters = false;
    *out = NULL;
    if (!job->scan.field)
        return 0;
    if (recon_choice(job, RECON_OFF_RESONANCE) == RECON_OFF_RESONANCE_OFF) {
        recon_report_decide(job, "off-resonance", "off", "As requested, the scan's field map is not used.");
        return 0;
    }
    struct field *field = calloc(1, sizeof *field);
    if (!field)
        return err_no_memory("a field map");
    field->job = job;
    int rc = look(field, &matters);
    if (rc == 0 && matters)
        *out = field;
    else
        field_free(field);
    return rc;
}

void field_free(struct field *field)
{
    if (!field)
        return;
    struct dev *dev = field->job->dev;
    dev_release(dev, field->images);
    dev_release(dev, field->data);
    dev_release(dev, field->interpolator);
    dev_release(dev, field->turns);
    dev_release(dev, field->place);
    free(field->times);
    free(field);
}

int field_segments(const struct field *field)
{
    return field->plain.count;
}

/* ---- on the device ---- */

bool field_bytes(const struct field *field, size_t pixels, size_t most_samples, int batch, size_t *bytes)
{
    /* Maps, interpolators, and those of a batch; field_normal's vectors; the field at each pixel. */
    const size_t segments = (size_t)field->plain.count, together = (size_t)batch;
    size_t of_pixels, of_samples;
    return size_mul(segments + together + 3, pixels, &of_pixels) &&
           size_mul(2 * segments + together + 1, most_samples, &of_samples) && size_add(of_pixels, of_samples, bytes) &&
           size_mul(*bytes, sizeof(struct c32), bytes);
}

/* The map, interpolated between pixels; 0 outside its matrix. */
static double map_at(const struct recon_job *job, const float *map, const double place[3])
{
    size_t low[3], high[3];
    double part[3], sum = 0;
    for (int d = 0; d < 3; d++) {
        const int n = job->n[d];
        if (!(place[d] > -0.5 - 1e-6 && place[d] < n - 0.5 + 1e-6))
            return 0;
        const double within = fmin(fmax(place[d], 0), n - 1);
        low[d] = (size_t)floor(within + 1e-9);
        high[d] = low[d] + 1 < (size_t)n ? low[d] + 1 : low[d];
        part[d] = fmax(0, within - (double)low[d]);
    }
    for (int corner = 0; corner < 8; corner++) {
        double weight = 1;
        size_t at = 0;
        for (int d = 2; d >= 0; d--) {
            weight *= corner >> d & 1 ? part[d] : 1 - part[d];
            at = at * (size_t)job->n[d] + (corner >> d & 1 ? high[d] : low[d]);
        }
        sum += weight > 0 ? weight * (double)map[at] : 0;
    }
    return sum;
}

/* E_l of the images' pixels: these and the encoded matrix have their centre at floor(n / 2), and differ by out_k. */
static int turns_make(struct field *field)
{
    const struct recon_job *job = field->job;
    const int *n = field->n;
    float *map = malloc(field->pixels * sizeof *map);
    int rc = map ? 0 : err_no_memory("a field map");
    for (size_t i = 0; i < field->pixels && rc == 0; i++) {
        const int at[3] = {(int)(i % (size_t)n[0]), (int)(i / (size_t)n[0] % (size_t)n[1]),
                           (int)(i / (size_t)n[0] / (size_t)n[1])};
        double place[3];
        for (int d = 0; d < 3; d++)
            place[d] = (at[d] - n[d] / 2) * (d < job->dim ? job->out_k[d] : 1) + job->n[d] / 2;
        map[i] = (float)map_at(job, field->map, place);
    }
    if (rc == 0)
        rc = dev_upload(job->dev, field->place, map, field->pixels * sizeof *map);
    for (int l = 0; l < field->plain.count && rc == 0; l++)
        rc = vec_wave(job->dev, field->pixels, field->plain.from + l * field->plain.step, field->place,
                      field->turns + (size_t)l * field->pixels);
    free(map);
    return rc;
}

int field_slice(struct field *field, const struct frame *frame)
{
    const struct recon_job *job = field->job;
    const size_t slice = job->scan.header->field_maps > 1 ? slice_of(job, frame) : 0;
    const float *map = job->scan.field + slice * (size_t)job->n[0] * (size_t)job->n[1] * (size_t)job->n[2];
    if (map == field->map)
        return 0;
    field->map = map;
    int rc = turns_make(field);
    if (rc != 0)
        field->map = NULL;
    return rc;
}

const float *field_map(const struct field *field)
{
    return field->map;
}

int field_load(struct field *field, const int n[3], size_t most_samples, int batch)
{
    struct dev *dev = field->job->dev;
    const size_t segments = (size_t)field->plain.count, together = (size_t)batch, item = sizeof(struct c32);
    memcpy(field->n, n, sizeof field->n);
    field->pixels = (size_t)n[0] * (size_t)n[1] * (size_t)n[2];
    field->batch = batch;
    field->times = malloc(most_samples * sizeof *field->times);
    int rc = field->times ? 0 : err_no_memory("a field map");
    if (rc == 0)
        rc = dev_alloc(dev, segments * field->pixels * item, (void **)&field->turns);
    if (rc == 0)
        rc = dev_alloc(dev, segments * most_samples * item, (void **)&field->interpolator);
    if (rc == 0)
        rc = dev_alloc(dev, together * most_samples * item, (void **)&field->data);
    if (rc == 0)
        rc = dev_alloc(dev, together * field->pixels * item, (void **)&field->images);
    return rc == 0 ? dev_alloc(dev, field->pixels * sizeof *field->place, (void **)&field->place) : rc;
}

/* Samples of a frame's readouts, or of the first partition of a stack: one readout after the other. */
struct run {
    size_t at, length;
};

static struct run run_of(const size_t *offsets, const struct stack *stack, size_t number)
{
    const size_t i = stack ? stack->lead[number] : number;
    return (struct run){offsets[i], offsets[i + 1] - offsets[i]};
}

void field_interpolate(const struct field *field, const struct frame *frame, const size_t *offsets,
                       const struct stack *stack, const struct segments *segments, struct c32 *out)
{
    double complex b[SEGMENTS_MOST];
    const size_t samples = field->samples, runs = stack ? frame->count / (size_t)stack->partitions : frame->count;
    size_t m = 0;
    for (size_t i = 0; i < runs; i++) {
        const struct run now = run_of(offsets, stack, i), before = i > 0 ? run_of(offsets, stack, i - 1) : now;
        const bool same = i > 0 && before.length == now.length &&
                          memcmp(field->times + now.at, field->times + before.at, now.length * sizeof(float)) == 0;
        for (size_t s = 0; s < now.length; s++, m++) {
            if (!same)
                segments_at(segments, (double)field->times[now.at + s], b);
            for (int l = 0; l < segments->count; l++) {
                struct c32 *to = out + (size_t)l * samples;
                to[m] = same ? to[m - now.length] : (struct c32){(float)creal(b[l]), -(float)cimag(b[l])};
            }
        }
    }
}

int field_times(struct field *field, const struct frame *frame, const size_t *offsets, const float *k,
                const struct stack *stack, const char **why)
{
    size_t number[SCAN_MAX_MATRIX] = {0};
    field->frame = NULL;
    int rc = times_fill(field->job, frame, offsets, k, field->times);
    for (size_t i = 0; i < frame->count && rc == 0; i++) {
        const struct run lead = run_of(offsets, stack, number[stack->row[i]]++);
        if (memcmp(field->times + offsets[i], field->times + lead.at, lead.length * sizeof(float)) != 0)
            *why = "its partitions have different sampling times, and the field map's time segments with them";
    }
    return rc;
}

int field_frame(struct field *field, const struct frame *frame, const size_t *offsets, const float *k,
                const struct stack *stack)
{
    struct dev *dev = field->job->dev;
    const size_t samples = stack ? stack->samples : frame->samples, all = (size_t)field->plain.count * samples;
    if (field->frame == frame)
        return 0;
    field->frame = frame;
    field->samples = samples;
    int rc = times_fill(field->job, frame, offsets, k, field->times);
    struct c32 *host = rc == 0 ? malloc(all * sizeof *host) : NULL;
    if (rc == 0 && !host)
        rc = err_no_memory_bytes(all * sizeof *host, "the time segments of %zu samples", samples);
    if (rc == 0) {
        field_interpolate(field, frame, offsets, stack, &field->plain, host);
        rc = dev_upload(dev, field->interpolator, host, all * sizeof *host);
    }
    free(host);
    return rc;
}

/* Segment l of some coils, added to their images. */
static int segment_adjoint(struct field *field, struct nufft *plan, int l, int count, int planes,
                           const struct c32 *data, struct c32 *images)
{
    struct dev *dev = field->job->dev;
    int rc = vec_multiply_each(dev, field->samples, count * planes, field->interpolator + (size_t)l * field->samples,
                               data, field->data); /* conj(b_l) y */
    if (rc == 0)
        rc = nufft_adjoint(plan, count * planes, field->data, field->images); /* A' conj(b_l) y */
    if (rc == 0)
        rc = vec_multiply_conj_add_each(dev, field->pixels, count, field->turns + (size_t)l * field->pixels,
                                        field->images, images); /* + conj(E_l) ... */
    return rc;
}

int field_adjoint(struct field *field, struct nufft *plan, int count, int planes, const struct c32 *data,
                  struct c32 *images, const struct normal_ask *ask)
{
    const size_t coil = (size_t)planes * field->samples;
    int rc = dev_zero(field->job->dev, images, (size_t)count * field->pixels * sizeof *images);
    for (int c = 0; c < count && rc == 0; c += field->batch) {
        const int now = count - c < field->batch ? count - c : field->batch;
        for (int l = 0; l < field->plain.count && rc == 0; l++) {
            rc = ask->ask(ask->context);
            if (rc == 0)
                rc = segment_adjoint(field, plan, l, now, planes, data + (size_t)c * coil,
                                     images + (size_t)c * field->pixels);
        }
    }
    return rc;
}
