/* Step "trajectory": determines the meaning of the trajectory's columns and its unit, and checks every number. */
#include "recon/mri/recon_seen.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

/* What was found of readout `i` of the frames before; NULL: nothing is kept. */
static struct seen_readout *seen_at(const struct recon_job *job, size_t i)
{
    return job->seen ? &job->seen->readout[job->frames->readouts[i]] : NULL;
}

/* ---- columns ---- */

/* The largest number of partitions (different kspace_encode_step_2) of an image's readouts. */
static int partitions_count(const struct recon_job *job)
{
    int most = 0;
    for (size_t f = 0; f < job->frames->count; f++)
        most = job->frames->frame[f].partitions > most ? job->frames->frame[f].partitions : most;
    return most;
}

/* kz of a readout by its partition, in cycles per pixel: steps of 1 / N are of 1 / field of view. */
static double partition_kz(const struct recon_job *job, const struct scan_readout *readout)
{
    return (readout->idx[SCAN_STEP2] - (double)job->encoding->partition_centre) / job->n[2];
}

/* A stack as converters write it: kx and ky, and partitions that are counted. */
static int partitions_take(struct recon_job *job, int partitions)
{
    job->coordinates = 2;
    for (size_t i = 0; i < job->frames->used; i++) {
        const struct scan_readout *readout = readout_at(job, i);
        double kz = partition_kz(job, readout);
        if (kz < -0.5 || kz > 0.5)
            return err_set_acquisition(
                ERR_TRAJ_RANGE, readout->acquisition,
                "Acquisition %u is of partition %u (kspace_encode_step_2), which with the centre %u is outside the "
                "encoded matrix, whose z is %d. Correct the header's matrixSize z or kspace_encoding_step_2 center, or "
                "store kz as third column of the trajectory.",
                readout->acquisition, readout->idx[SCAN_STEP2], job->encoding->partition_centre, job->n[2]);
    }
    recon_report_decide(job, "kz", "partitions",
                        "The trajectory has kx and ky, and the acquisitions count %d partitions "
                        "(kspace_encode_step_2): kz is (partition - %u) / %d cycles per pixel.",
                        partitions, job->encoding->partition_centre, job->n[2]);
    return 0;
}

/* A matrix with z > 1, and no kz. The right advice depends on whether the readouts count partitions: with z = 1 these
 * would all be summed into one image. */
static int kz_missing(struct recon_job *job)
{
    int partitions = partitions_count(job);
    uint32_t acquisition = readout_at(job, 0)->acquisition;
    if (partitions > 1 && job->columns == 2)
        return partitions_take(job, partitions);
    if (partitions > 1)
        return err_set_acquisition(
            ERR_TRAJ_DIMENSIONS, acquisition,
            "The trajectory has %d columns, but the encoded matrix %d x %d x %d needs kx, ky and kz. The acquisitions "
            "count %d partitions (kspace_encode_step_2): store each one's kz as third column, in the unit of kx and "
            "ky; in cycles per pixel it is (kspace_encode_step_2 - its centre) / %d.",
            job->columns, job->n[0], job->n[1], job->n[2], partitions, job->n[2]);
    return err_set_acquisition(
        ERR_TRAJ_DIMENSIONS, acquisition,
        "The trajectory has %d columns, but the encoded matrix %d x %d x %d needs kx, ky and kz. Store kz as third "
        "column. If the scan is 2-D (its acquisitions count no partitions; kspace_encode_step_2 is the same in all of "
        "an image), its encoded matrix has z = 1.",
        job->columns, job->n[0], job->n[1], job->n[2]);
}

/* The first readouts of the frames whose trajectories are known, and joined in job->seen->all. */
static size_t joined_before(const struct recon_job *job)
{
    return job->seen && job->frames->ascends ? job->seen->all_of : 0;
}

static int columns_check(struct recon_job *job)
{
    job->columns = readout_at(job, 0)->traj_dims;
    job->coordinates = job->dim;
    for (size_t i = joined_before(job); i < job->frames->used; i++) {
        const struct seen_readout *seen = seen_at(job, i);
        const struct scan_readout *readout = readout_at(job, i);
        if (seen && seen->columns > 0 && seen->columns == job->columns)
            continue;
        if (readout->traj_dims == 0 && job->encoding->trajectory == SCAN_CARTESIAN)
            return err_set_acquisition(
                ERR_TRAJ_MISSING, readout->acquisition,
                "The scan is Cartesian and contains no trajectory; this service reconstructs non-Cartesian scans. "
                "Store each sample's k-space position in the acquisitions.");
        if (readout->traj_dims == 0)
            return err_set_acquisition(ERR_TRAJ_MISSING, readout->acquisition,
                                       "Acquisition %u contains no trajectory (trajectory_dimensions is 0). Store each "
                                       "sample's k-space position in the acquisitions; \"mrirecon attach-trajectory\" "
                                       "does that from an array.",
                                       readout->acquisition);
        if (readout->traj_dims != job->columns)
            return err_set_acquisition(
                ERR_TRAJ_DIMENSIONS, readout->acquisition,
                "Acquisition %u has a trajectory of %u columns, but acquisition %u one of %d. All of "
                "an encoding space must agree.",
                readout->acquisition, readout->traj_dims, readout_at(job, 0)->acquisition, job->columns);
    }
    if (job->columns == job->dim || job->columns == job->dim + 1)
        return 0;
    if (job->columns < job->dim)
        return kz_missing(job);
    return err_set_acquisition(
        ERR_TRAJ_DIMENSIONS, readout_at(job, 0)->acquisition,
        "The trajectory has %d columns; the encoded matrix %d x %d x %d takes %d, or %d with density "
        "weights.",
        job->columns, job->n[0], job->n[1], job->n[2], job->dim, job->dim + 1);
}

/* ---- one pass over everything ---- */

static void extremes_join(struct extremes *into, const struct extremes *from, int columns)
{
    for (int c = 0; c < columns; c++)
        if (from->most[c] > into->most[c] || (from->most[c] == into->most[c] && from->most_at[c] < into->most_at[c])) {
            into->most[c] = from->most[c];
            into->most_at[c] = from->most_at[c];
        }
    into->greatest = fmaxf(into->greatest, from->greatest);
    into->level = into->level && from->level;
    into->longer = into->longer || from->longer;
    if (from->least < into->least || (from->least == into->least && from->least_at < into->least_at)) {
        into->least = from->least;
        into->least_at = from->least_at;
    }
}

/* The largest magnitude of column `c`, as bits. Inlined for each number of columns, so that the loop is vectorised. */
static inline uint32_t column_most(const float *k, size_t samples, size_t columns, size_t c)
{
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t s = 0; s < samples; s++) {
        uint32_t bits;
        memcpy(&bits, k + s * columns + c, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

static inline void columns_scan(const float *k, size_t samples, size_t columns, uint32_t most[4], float *least,
                                float *greatest)
{
    float low = INFINITY, high = -INFINITY;
    for (size_t c = 0; c < columns; c++)
        most[c] = column_most(k, samples, columns, c);
    for (size_t s = 0; s < samples; s++) {
        const float last = k[s * columns + columns - 1];
        low = last < low ? last : low;
        high = last > high ? last : high;
    }
    *least = low;
    *greatest = high;
}

/* The extremes of one readout, without their places. */
static struct extremes readout_scan(const float *k, size_t samples, int columns)
{
    struct extremes here = {.longer = samples > 1};
    if (columns == 2)
        columns_scan(k, samples, 2, here.most, &here.least, &here.greatest);
    else if (columns == 3)
        columns_scan(k, samples, 3, here.most, &here.least, &here.greatest);
    else
        columns_scan(k, samples, (size_t)columns, here.most, &here.least, &here.greatest);
    here.level = recon_level(here.least, here.greatest);
    return here;
}

/* Join those of readout `at` of the frames. */
static void readout_join(struct extremes *into, struct extremes here, size_t at, int columns)
{
    for (int c = 0; c < columns; c++)
        here.most_at[c] = at;
    here.least_at = at;
    extremes_join(into, &here, columns);
}

/* FNV-1a over 32-bit words. Equal hashes only suggest equal trajectories; the bytes are compared too. */
static uint64_t words_hash(const void *words, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)words + i * sizeof bits, sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    return (hash ^ count) * UINT64_C(0x100000001b3);
}

static uint64_t readout_hash(const struct recon_job *job, const struct scan_readout *readout)
{
    return words_hash(kept_traj(job, readout), frames_kept(readout) * (size_t)job->columns);
}

/* Look at the trajectory of readout `i` of the frames, if that was not done before. */
static struct extremes readout_look(const struct recon_job *job, size_t i)
{
    const struct scan_readout *readout = readout_at(job, i);
    struct seen_readout *seen = seen_at(job, i);
    if (seen && seen->columns > 0)
        return seen->extremes;
    const struct extremes found = readout_scan(kept_traj(job, readout), frames_kept(readout), job->columns);
    if (seen)
        *seen = (struct seen_readout){.extremes = found, .hash = readout_hash(job, readout), .columns = job->columns};
    return found;
}

void recon_seen_look(struct recon_seen *seen, const struct scan *scan, size_t i)
{
    const struct scan_readout *readout = &scan->readouts[i];
    const struct recon_job job = {.scan = *scan, .columns = readout->traj_dims};
    if (job.columns < 2 || job.columns > 4 || frames_kept(readout) == 0 || seen->readout[i].columns > 0)
        return; /* the job says what is wrong */
    seen->readout[i] = (struct seen_readout){
        .extremes = readout_scan(kept_traj(&job, readout), frames_kept(readout), job.columns),
        .hash = readout_hash(&job, readout),
        .columns = job.columns,
    };
    seen->looked++;
}

/* The samples of readouts that are to be looked at. */
static void looks_count(const struct recon_job *job, size_t *samples)
{
    *samples = job->samples;
    if (!job->seen)
        return;
    *samples = 0;
    for (size_t i = joined_before(job); i < job->frames->used; i++)
        if (seen_at(job, i)->columns == 0) {
            *samples += frames_kept(readout_at(job, i));
            job->seen->looked++;
        }
}

enum { JOINED = 8 };

static void trajectories_scan(const struct recon_job *job, struct extremes *out)
{
    int columns = job->columns;
    size_t samples;
    const size_t first = joined_before(job), used = job->frames->used;
    struct extremes none = {.least = INFINITY, .greatest = -INFINITY, .least_at = SIZE_MAX, .level = true};
    for (int c = 0; c < 4; c++)
        none.most_at[c] = SIZE_MAX;
    struct extremes all = first > 0 ? job->seen->all : none;
    looks_count(job, &samples);
    /* Joining what was found before takes about as long as looking at some samples. */
    const size_t work = samples + (job->seen ? JOINED * (used - first) : 0);
#pragma omp parallel num_threads(recon_threads(job, work))
    {
        struct extremes mine = none;
#pragma omp for schedule(static)
        for (size_t i = first; i < used; i++)
            readout_join(&mine, readout_look(job, i), i, columns);
#pragma omp critical
        extremes_join(&all, &mine, columns);
    }
    *out = all;
    if (!job->seen)
        return;
    job->seen->joined += used - first;
    if (job->frames->ascends) {
        job->seen->all = all;
        job->seen->all_of = used;
    }
}

/* Of a frame's readouts, and what distinguishes their samples besides the trajectory. */
static uint64_t frame_hash(const struct recon_job *job, const struct frame *frame)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)frame->averages;
    for (size_t i = frame->first; i < frame->first + frame->count; i++) {
        const struct scan_readout *readout = readout_at(job, i);
        const struct seen_readout *seen = seen_at(job, i);
        if (job->scan.field)
            hash = (hash ^ words_hash(&readout->sample_time_us, 1)) * UINT64_C(0x100000001b3);
        if (job->coordinates < job->dim)
            hash = (hash ^ readout->idx[SCAN_STEP2]) * UINT64_C(0x100000001b3);
        hash = (hash ^ (seen ? seen->hash : readout_hash(job, readout))) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static int hashes_make(struct recon_job *job)
{
    if (job->frames->count < 2)
        return 0;
    job->hash = calloc(job->frames->count, sizeof *job->hash);
    if (!job->hash)
        return err_no_memory("comparing the trajectories of %zu images", job->frames->count);
#pragma omp parallel for schedule(dynamic) num_threads(job->seen ? 1 : recon_threads(job, job->samples))
    for (size_t f = 0; f < job->frames->count; f++)
        job->hash[f] = frame_hash(job, &job->frames->frame[f]);
    return 0;
}

/* ---- the unit ---- */

static int positions_check(const struct recon_job *job, const struct extremes *found)
{
    bool filled = false;
    for (int d = 0; d < job->coordinates; d++) {
        uint32_t acquisition = readout_at(job, found->most_at[d])->acquisition;
        if (found->most[d] >= INFINITE_BITS)
            return err_set_acquisition(ERR_TRAJ_NONFINITE, acquisition,
                                       "Acquisition %u has a k%c that is not a finite number (%g).", acquisition,
                                       "xyz"[d], (double)bits_float(found->most[d]));
        filled = filled || found->most[d] > 0;
    }
    if (!filled)
        return err_set(ERR_TRAJ_MISSING, "All samples of the trajectory are at k = 0: it was never filled in.");
    return 0;
}

/* The unit follows from the largest |k| of each axis alone: `dim` samples suffice. */
static int unit_decide(struct recon_job *job, const struct extremes *found)
{
    float k[3][3] = {{0}};
    double fov_m[3];
    struct traj_unit_found unit;
    /* With an assumed field of view, units of length cannot be determined. */
    bool assumed = job->scan.header->headless && !*job->request->values->value[RECON_FOV_MM].text;
    for (int d = 0; d < 3; d++)
        fov_m[d] = assumed ? 0 : (double)job->encoding->fov_mm[d] / 1000;
    for (int d = 0; d < job->coordinates; d++)
        k[d][d] = bits_float(found->most[d]);
    enum traj_unit asked = (enum traj_unit)recon_choice(job, RECON_TRAJ_UNITS);
    int rc = traj_unit_find(asked, job->coordinates, job->n, fov_m, (size_t)job->coordinates, 3, k[0], &unit);
    if (rc != 0) {
        struct err failure = *err_last();
        int worst = 0;
        for (int d = 1; d < job->coordinates; d++)
            if (k[d][d] > k[worst][worst])
                worst = d;
        failure.acquisition = readout_at(job, found->most_at[worst])->acquisition;
        return err_restore(&failure);
    }
    memcpy(job->scale, unit.scale, sizeof job->scale);
    recon_report_decide(job, "trajectory unit", traj_unit_name(unit.unit), "%s", unit.reason);
    if (*unit.warning)
        recon_report_warn(job, "%s", unit.warning);
    return 0;
}

/* Partitions without a kz are summed into one image. */
static int partitions_check(struct recon_job *job, const struct extremes *found)
{
    int partitions = partitions_count(job);
    if (partitions < 2)
        return 0;
    if (job->coordinates == 3 && found->most[2] == 0)
        return err_set(ERR_TRAJ_MISSING,
                       "The trajectory's kz is 0 throughout, but the acquisitions of an image count %d partitions "
                       "(kspace_encode_step_2), which would all become one. Fill in the third column: in cycles per "
                       "pixel it is (kspace_encode_step_2 - its centre) / %d.",
                       partitions, job->n[2]);
    if (job->dim == 2)
        recon_report_warn(job,
                          "The acquisitions of an image count %d partitions (kspace_encode_step_2), but the encoded "
                          "matrix has z = 1, so all were summed into one image. If they are partitions of a stack, set "
                          "the encoded matrix's z to their number and store kz as third column of the trajectory.",
                          partitions);
    return 0;
}

int recon_trajectory(struct recon_job *job)
{
    const bool beginning = job->keep || job->feed; /* the whole job's report has the warnings */
    struct extremes found;
    int rc = job->seen ? recon_seen_grow(job->seen, job->scan.header->readouts) : 0;
    if (rc == 0)
        rc = columns_check(job);
    if (rc != 0)
        return rc;
    trajectories_scan(job, &found);
    rc = positions_check(job, &found);
    if (rc == 0)
        rc = recon_weights_decide(job, &found);
    if (rc == 0)
        rc = partitions_check(job, &found);
    if (rc == 0)
        rc = unit_decide(job, &found);
    if (rc == 0 && !beginning)
        recon_weights_doubt(job, &found);
    if (rc == 0 && !beginning && (recon_choice(job, RECON_FRAMES) > 0 || recon_choice(job, RECON_FRAME_READOUTS) > 0))
        rc = recon_cover_warn(job);
    if (rc == 0)
        rc = hashes_make(job);
    return rc;
}

/* ---- one frame ---- */

void recon_frame_offsets(const struct recon_job *job, const struct frame *frame, size_t *offsets)
{
    const uint32_t *kept = job->frames->kept;
    size_t before = 0;
    for (size_t i = 0; i < frame->count; i++) {
        offsets[i] = before;
        before += kept ? kept[frame->first + i] : frames_kept(readout_at(job, frame->first + i));
    }
    offsets[frame->count] = before;
}

int recon_frame_cut(const struct frame *frame, const size_t *offsets, size_t first, size_t end, struct frame *part,
                    size_t **own)
{
    const size_t count = end - first;
    *part = *frame;
    part->first += first;
    part->count = count;
    part->samples = offsets[end] - offsets[first];
    *own = malloc((count + 1) * sizeof **own);
    if (!*own)
        return err_no_memory("%zu readouts of an image", count);
    for (size_t i = 0; i <= count; i++)
        (*own)[i] = offsets[first + i] - offsets[first];
    return 0;
}

void recon_frame_gather(const struct recon_job *job, const struct frame *frame, const size_t *offsets, float *k,
                        float *weights)
{
    size_t dim = (size_t)job->dim, columns = (size_t)job->columns, coordinates = (size_t)job->coordinates;
#pragma omp parallel for schedule(static) num_threads(recon_threads(job, frame->samples))
    for (size_t i = 0; i < frame->count; i++) {
        const float *from = kept_traj(job, readout_at(job, frame->first + i));
        float *to = k + offsets[i] * dim;
        size_t samples = offsets[i + 1] - offsets[i];
        for (size_t s = 0; s < samples; s++)
            for (size_t d = 0; d < coordinates; d++)
                to[s * dim + d] = (float)((double)from[s * columns + d] * job->scale[d]);
        for (size_t s = 0; coordinates < dim && s < samples; s++)
            to[s * dim + 2] = (float)partition_kz(job, readout_at(job, frame->first + i));
        for (size_t s = 0; weights && s < samples; s++)
            weights[offsets[i] + s] = from[s * columns + dim];
    }
}

static double distance(int dim, const float *a, const float *b)
{
    double sum = 0;
    for (int d = 0; d < dim; d++)
        sum += ((double)a[d] - b[d]) * ((double)a[d] - b[d]);
    return sqrt(sum);
}

bool recon_readout_continues(const struct recon_job *job, const struct frame *frame, const size_t *offsets,
                             const float *k, size_t i)
{
    const struct scan_readout *before = readout_at(job, frame->first + i);
    const struct scan_readout *next = readout_at(job, frame->first + i + 1);
    if (next->idx[SCAN_SEGMENT] != before->idx[SCAN_SEGMENT] + 1 || next->idx[SCAN_STEP1] != before->idx[SCAN_STEP1] ||
        next->idx[SCAN_STEP2] != before->idx[SCAN_STEP2] || next->idx[SCAN_AVERAGE] != before->idx[SCAN_AVERAGE] ||
        offsets[i + 1] - offsets[i] < 2)
        return false;
    const float *start = k + offsets[i + 1] * (size_t)job->dim;
    double step = distance(job->dim, start - job->dim, start - 2 * job->dim);
    return distance(job->dim, start, start - job->dim) <= 3 * step;
}

bool recon_frame_curves(const struct recon_job *job, const struct frame *frame, const size_t *offsets, const float *k,
                        size_t *curves, size_t *samples)
{
    size_t count = 0, start = 0, length = 0;
    for (size_t i = 0; i < frame->count; i++) {
        if (i + 1 < frame->count && recon_readout_continues(job, frame, offsets, k, i))
            continue;
        size_t curve = offsets[i + 1] - offsets[start];
        if (count > 0 && curve != length)
            return false;
        length = curve;
        start = i + 1;
        count++;
    }
    *curves = count;
    *samples = length;
    return true;
}
