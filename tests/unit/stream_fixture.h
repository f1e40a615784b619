/* stream_fixture.h: scans that arrive bit by bit from the decoder, and jobs that compute on them meanwhile. */
#ifndef MRIRECON_STREAM_FIXTURE_H
#define MRIRECON_STREAM_FIXTURE_H

#include "recon/mri/recon_ahead.h"
#include "recon/mri/recon_kind.h"
#include "recon/scan/scan_build.h"
#include "recon/scan/scan_live.h"
#include "tests/unit/recon_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SPOKES = 20, SAMPLES = 32, COILS = 2, REPETITIONS = 3, CAP = 4 << 20 };

/* Of the images of the next scan; the encoded matrix has 16. */
static unsigned images_x = 16;

/* A scan's header; %u: images_x and its field of view; %s: its encodingLimits. */
static const char xml[] =
    "<ismrmrdHeader xmlns=\"http://www.ismrm.org/ISMRMRD\"><encoding><encodedSpace><matrixSize><x>16</x><y>16</y>"
    "<z>1</z></matrixSize><fieldOfView_mm><x>32</x><y>48</y><z>4</z></fieldOfView_mm></encodedSpace><reconSpace>"
    "<matrixSize><x>%u</x><y>16</y><z>1</z></matrixSize><fieldOfView_mm><x>%u</x><y>48</y><z>4</z></fieldOfView_mm>"
    "</reconSpace><encodingLimits>%s</encodingLimits><trajectory>other</trajectory></encoding></ismrmrdHeader>";

/* ---- a scan that arrives from the decoder ---- */

struct stream {
    struct flat flat; /* the whole scan */
    struct scan_builder builder;
    struct scan_readout *readouts; /* with the offsets that the builder assigned */
    int memory;
    size_t put;
};

/* Begin a scan of `repetitions` repetitions with `count` spokes each. */
static inline void stream_begin_of(struct stream *s, const char *limits, unsigned count, unsigned samples,
                                   unsigned repetitions)
{
    char header[sizeof xml + 200];
    memset(s, 0, sizeof *s);
    random_state = 1;
    flat_init(&s->flat, 16, 16, 1);
    s->flat.encodings[0].images = 1;
    s->flat.encodings[0].recon_matrix[0] = images_x;
    s->flat.encodings[0].recon_fov_mm[0] = 2 * (float)images_x;
    spokes(&s->flat, count * repetitions, samples, COILS);
    for (unsigned i = 0; i < count * repetitions; i++)
        s->flat.readouts[i].idx[SCAN_REPETITION] = (uint16_t)(i / count);
    s->memory = memfd_create("stream", MFD_CLOEXEC);
    assert_int_equal(ftruncate(s->memory, CAP), 0);
    snprintf(header, sizeof header, xml, images_x, 2 * images_x, limits);
    assert_int_equal(scan_builder_open(&s->builder, s->memory, CAP, header, strlen(header)), 0);
}

static inline void stream_begin(struct stream *s, const char *limits)
{
    stream_begin_of(s, limits, SPOKES, SAMPLES, REPETITIONS);
}

static inline void place(struct stream *s, unsigned readout, unsigned repetition, unsigned slice)
{
    s->flat.readouts[readout].idx[SCAN_REPETITION] = (uint16_t)repetition;
    s->flat.readouts[readout].idx[SCAN_SLICE] = (uint16_t)slice;
}

/* Decode readouts up to `count` and report them. */
static inline void stream_put(struct stream *s, size_t count)
{
    const struct flat *flat = &s->flat;
    s->readouts = realloc(s->readouts, (count + 1) * sizeof *s->readouts);
    for (; s->put < count; s->put++) {
        const struct scan_readout *from = &flat->readouts[s->put];
        struct scan_readout r = *from;
        assert_int_equal(scan_builder_arrive(&s->builder, &r), 0);
        assert_int_equal(
            scan_builder_put(&s->builder, flat->traj + from->traj, (size_t)r.samples * r.traj_dims * sizeof(float)), 0);
        assert_int_equal(scan_builder_align(&s->builder), 0);
        assert_int_equal(
            scan_builder_put(&s->builder, flat->data + from->data, (size_t)r.samples * r.coils * sizeof(struct c32)),
            0);
        s->readouts[s->put] = r;
    }
    assert_int_equal(scan_builder_tell(&s->builder, s->put, s->builder.data.at, false), 0);
}

static inline void stream_close(struct stream *s)
{
    stream_put(s, s->flat.header.readouts);
    assert_int_equal(scan_builder_close(&s->builder, s->readouts, s->put), 0);
}

static inline void stream_end(struct stream *s)
{
    flat_free(&s->flat);
    free(s->readouts);
    close(s->memory);
}

/* ---- computing ahead ---- */

struct job {
    struct param_values values;
    struct job_request request;
    struct job_show show;
    void *ahead;
    size_t shown; /* images that were shown whole */
    bool dropped; /* the whole scan does not have all images that were computed */
    char *sent;   /* [bytes]: the images' messages, as far as they were shown */
    size_t bytes;
};

static inline size_t values_of(const struct image_series *images)
{
    return images->channels * images->size[0] * images->size[1] * (images->complex_valued ? 2 : 1);
}

static inline void show(void *context, const struct job_parts *parts, size_t count, size_t more)
{
    struct job *job = context;
    const size_t there = count * parts->bytes + more;
    assert_true(more < parts->bytes);
    if (there > job->bytes) /* each part of the scan reports from 0 */
        job->sent = realloc(job->sent, there);
    while (job->bytes < there) {
        size_t length = 0;
        const void *piece = parts->piece(parts->of, job->bytes / parts->bytes, job->bytes % parts->bytes, &length);
        assert_non_null(piece);
        length = length < there - job->bytes ? length : there - job->bytes;
        memcpy(job->sent + job->bytes, piece, length);
        job->bytes += length;
    }
    job->shown = count > job->shown ? count : job->shown;
}

/* Whether what was shown are the first images of the whole scan, and free it. */
static inline void shown_check(struct job *job, const struct image_series *final)
{
    const size_t bytes = image_message_bytes(final);
    assert_int_equal(job->bytes, job->shown * bytes);
    for (size_t at = 0, length; at < job->bytes; at += length) {
        char beginning[IMAGE_BEGINNING];
        const void *piece = image_message_piece(final, at / bytes, at % bytes, beginning, &length);
        assert_non_null(piece);
        assert_memory_equal(job->sent + at, piece, length);
    }
    free(job->sent);
    job->sent = NULL;
}

static inline void job_begin(struct job *job, const struct stream *s, const char *name, const char *value)
{
    memset(job, 0, sizeof *job);
    const struct kind *kind = kind_find("recon");
    param_values_init(kind, &job->values);
    assert_int_equal(param_values_set(kind, &job->values, "tolerance", "1e-5"), 0);
    assert_int_equal(param_values_set(kind, &job->values, "traj_units", "pixel"), 0);
    assert_int_equal(param_values_set(kind, &job->values, name, value), 0);
    job->show = (struct job_show){job, show};
    job->request = (struct job_request){.kind = kind, .values = &job->values, .input = -1, .show = &job->show};
    assert_int_equal(recon_ahead_create(&job->ahead, fcntl(s->memory, F_DUPFD_CLOEXEC, 0)), 0);
}

static inline bool job_step(struct job *job)
{
    bool over = false, more = false;
    const int rc = recon_ahead_go(job->ahead, dev, &job->request, NULL, &more, &over);
    if (rc != 0)
        fail_msg("%s: %s", err_name(rc), err_last()->text);
    return over;
}

/* Run the job on the whole scan, without and with what was computed ahead: the bits are the same, and `ahead` images
 * come from what was computed ahead. */
static inline void job_check(struct job *job, struct stream *s, int64_t ahead)
{
    struct job_outcome plain = {0}, quick = {0};
    job->request.show = NULL;
    assert_int_equal(recon_run_scan(&plain, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    job->request.ahead = job->ahead;
    assert_int_equal(recon_run_scan(&quick, dev, &job->request, NULL, flat_scan(&s->flat)), 0);
    const struct image_series *a = images_of(&plain), *b = images_of(&quick);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->info, b->info, a->count * sizeof *a->info);
    assert_memory_equal(a->data, b->data, a->count * values_of(a) * sizeof *a->data);
    if (job->shown)
        shown_check(job, a);
    assert_int_equal(reported(&quick, "images_ahead"), ahead);
    assert_true(json_equal(json_object_get(plain.report, "decisions"), json_object_get(quick.report, "decisions")));
    assert_true(json_equal(json_object_get(plain.report, "warnings"), json_object_get(quick.report, "warnings")));
    const char *name;
    json_t *value;
    json_object_foreach (plain.report, name, value)
        if (strcmp(name, "stages") != 0 && strcmp(name, "seconds") != 0 &&
            (strcmp(name, "plans") != 0 || !job->dropped) && !json_equal(value, json_object_get(quick.report, name)))
            fail_msg("the report's %s", name);
    drop(&plain);
    drop(&quick);
    recon_ahead_free(job->ahead);
}

#endif
