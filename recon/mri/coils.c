/* Gathers the samples of one coil of an image in one row. */
#include "recon/mri/recon_steps.h"

#include "gridding/base/err.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct c32 *recon_kept_data(const struct recon_job *job, const struct scan_readout *readout, int coil)
{
    return job->scan.data + readout->data + (size_t)coil * readout->samples + readout->discard_pre;
}

enum { INFINITE_BITS = 0x7f800000 };

/* The largest real or imaginary part of `count` numbers, as bits without the sign, which order as magnitudes do; NaN is
 * above all. */
static uint32_t largest_bits(const struct c32 *data, size_t count)
{
    const float *floats = &data->re;
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < 2 * count; i++) {
        uint32_t bits;
        memcpy(&bits, floats + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

bool recon_any_nonfinite(const struct c32 *data, size_t count)
{
    return largest_bits(data, count) >= INFINITE_BITS;
}

int recon_data_nonfinite(const struct scan_readout *readout)
{
    return err_set_acquisition(ERR_DATA_NONFINITE, readout->acquisition,
                               "Acquisition %u contains k-space data that are not finite numbers in single precision: "
                               "NaN, infinity, or, of complex128 or float64, more than 3.4e38. The scan was damaged "
                               "before it was sent, or its samples need a smaller scale.",
                               readout->acquisition);
}

void recon_coil_mix(const struct recon_job *job, const struct scan_readout *readout, int coil, struct c32 *out)
{
    const size_t samples = frames_kept(readout);
    if (!job->mixed_coils) {
        memcpy(out, recon_kept_data(job, readout, coil), samples * sizeof *out);
        return;
    }
    const struct c32 *row = job->mix + (size_t)coil * (size_t)job->mixed_coils;
    memset(out, 0, samples * sizeof *out);
    for (int j = 0; j < job->mixed_coils; j++) {
        const struct c32 *data = recon_kept_data(job, readout, j), w = row[j];
        if (w.re == 0 && w.im == 0) /* half of a whitening matrix */
            continue;
        for (size_t s = 0; s < samples; s++) {
            out[s].re += w.re * data[s].re - w.im * data[s].im;
            out[s].im += w.re * data[s].im + w.im * data[s].re;
        }
    }
}

int recon_coils_gather(const struct recon_job *job, const struct frame *frame, const size_t *offsets, int first,
                       int count, struct c32 *out)
{
    const uint32_t *readouts = job->frames->readouts + frame->first;
    size_t bad = SIZE_MAX;
#pragma omp parallel for collapse(2) schedule(static) reduction(min    \
                                                                : bad) \
    num_threads(recon_threads(job, (size_t)count * frame->samples))
    for (int c = 0; c < count; c++)
        for (size_t i = 0; i < frame->count; i++) {
            const struct scan_readout *readout = &job->scan.readouts[readouts[i]];
            struct c32 *to = out + (size_t)c * frame->samples + offsets[i];
            size_t samples = offsets[i + 1] - offsets[i];
            recon_coil_mix(job, readout, first + c, to);
            uint32_t largest = largest_bits(job->compressed ? to : recon_kept_data(job, readout, first + c), samples);
            if (largest > 0)
#pragma omp atomic write
                job->coil_lives[first + c] = true;
            if (largest >= INFINITE_BITS)
                bad = i < bad ? i : bad;
        }
    return bad == SIZE_MAX ? 0 : recon_data_nonfinite(&job->scan.readouts[readouts[bad]]);
}

size_t recon_offset_find(const size_t *offsets, size_t first, size_t last, size_t samples)
{
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (offsets[middle] < samples)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

/* The values of coils that are the scan's own, [coils][samples of the frame], of which threads copy pieces. */
struct values {
    const struct recon_job *job;
    const struct frame *frame;
    const size_t *offsets;
    int first;         /* coil */
    atomic_size_t bad; /* the frame's first readout with a number that is not finite; SIZE_MAX: none */
};

static void bad_note(struct values *of, size_t readout)
{
    size_t before = of->bad;
    while (readout < before && !atomic_compare_exchange_weak(&of->bad, &before, readout))
        ;
}

/* dev_fill.write */
static void values_copy(void *values, size_t first, size_t bytes, void *out)
{
    struct values *of = values;
    const struct frame *frame = of->frame;
    const uint32_t *readouts = of->job->frames->readouts + frame->first;
    struct c32 *to = out;
    size_t left = bytes / sizeof *to, at = first / sizeof *to % frame->samples;
    int coil = of->first + (int)(first / sizeof *to / frame->samples);
    for (; left > 0; coil++, at = 0) {
        size_t i = recon_offset_find(of->offsets, 0, frame->count, at + 1) - 1; /* the readout of sample `at` */
        for (; i < frame->count && left > 0; i++) {
            const size_t rest = of->offsets[i + 1] - at, samples = rest < left ? rest : left;
            memcpy(to, recon_kept_data(of->job, &of->job->scan.readouts[readouts[i]], coil) + (at - of->offsets[i]),
                   samples * sizeof *to);
            const uint32_t largest = largest_bits(to, samples);
            if (largest > 0)
#pragma omp atomic write
                of->job->coil_lives[coil] = true;
            if (largest >= INFINITE_BITS)
                bad_note(of, i);
            to += samples;
            at += samples;
            left -= samples;
        }
    }
}

static int values_end(const struct values *of)
{
    const struct recon_job *job = of->job;
    const uint32_t *readouts = job->frames->readouts + of->frame->first;
    const int rc = dev_fill_end(job->dev);
    return rc || of->bad == SIZE_MAX ? rc : recon_data_nonfinite(&job->scan.readouts[readouts[of->bad]]);
}

int recon_coils_upload(const struct recon_job *job, const struct frame *frame, const size_t *offsets, int first,
                       int count, struct c32 *data)
{
    struct values of = {job, frame, offsets, first, SIZE_MAX};
    const struct dev_fill fill = {values_copy, &of};
    dev_fill_begin(job->dev, data, (size_t)count * frame->samples * sizeof *data, &fill);
    return values_end(&of);
}

/* ---- an upload that begins before its image ---- */

struct recon_early {
    struct values of;
    struct c32 *data; /* on the device, [coils][samples]: the job's until it is taken */
    size_t bytes;
    bool taken, under_way;
    size_t offsets[]; /* the frame's */
};

void recon_early_begin(struct recon_job *job)
{
    const struct frame *frame = job->frames->frame;
    struct recon_early *early = malloc(sizeof *early + (frame->count + 1) * sizeof *early->offsets);
    const size_t bytes = (size_t)frame->coils * frame->samples * sizeof *early->data;
    job->coil_lives = calloc((size_t)frame->coils, sizeof *job->coil_lives);
    if (!early || !job->coil_lives || dev_alloc(job->dev, bytes, (void **)&early->data) != 0) {
        free(early); /* the image asks for memory again */
        return;
    }
    recon_frame_offsets(job, frame, early->offsets);
    early->of = (struct values){job, frame, early->offsets, 0, SIZE_MAX};
    early->bytes = bytes;
    early->taken = false;
    early->under_way = true;
    job->early = early;
    dev_fill_begin(job->dev, early->data, bytes, &(struct dev_fill){values_copy, &early->of});
}

size_t recon_early_bytes(const struct recon_job *job)
{
    return job->early && !job->early->taken ? job->early->bytes : 0;
}

struct c32 *recon_early_take(struct recon_job *job)
{
    if (!job->early)
        return NULL;
    job->early->taken = true;
    return job->early->data;
}

bool recon_early_is(const struct recon_job *job, const struct c32 *data, int first)
{
    return job->early && job->early->under_way && data == job->early->data && first == 0;
}

int recon_early_end(struct recon_job *job)
{
    job->early->under_way = false;
    return values_end(&job->early->of);
}

void recon_early_free(struct recon_job *job)
{
    struct recon_early *early = job->early;
    if (!early)
        return;
    const struct err failure = *err_last(); /* that of the job, if it failed */
    if (early->under_way && dev_fill_end(job->dev) != 0)
        err_restore(&failure);
    if (!early->taken)
        dev_release(job->dev, early->data);
    free(early);
    job->early = NULL;
}

int recon_coil_gather(const struct recon_job *job, const struct frame *frame, const size_t *offsets, int coil,
                      struct c32 *out)
{
    return recon_coils_gather(job, frame, offsets, coil, 1, out);
}

/* Whether one of the scan's coils has a sample that is not 0. */
static bool coil_lives(const struct recon_job *job, int coil)
{
    const struct frames *frames = job->frames;
    bool lives = !job->compressed && job->coil_lives[coil];
    for (size_t i = 0; i < frames->used && job->compressed && !lives; i++) {
        const struct scan_readout *readout = &job->scan.readouts[frames->readouts[i]];
        lives = largest_bits(recon_kept_data(job, readout, coil), frames_kept(readout)) > 0;
    }
    return lives;
}

bool recon_coils_report(struct recon_job *job, int coils)
{
    coils = job->compressed ? job->mixed_coils : coils;
    char list[128] = "";
    size_t used = 0;
    int dead = 0;
    for (int c = 0; c < coils; c++) {
        if (coil_lives(job, c))
            continue;
        if (used + 16 < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", dead ? ", " : "", c);
        else if (list[used - 1] != '.')
            used += (size_t)snprintf(list + used, sizeof list - used, ", ...");
        dead++;
    }
    if (dead == coils)
        recon_report_warn(job, "All samples of all coils are 0, so the image is 0 too.");
    else if (dead > 0)
        recon_report_warn(job,
                          "%d of %d coils contain only zeros: number %s, counted from 0. A coil element or its channel "
                          "may be broken.",
                          dead, coils, list);
    return dead < coils;
}
