#include "clients/simulation.h"

#include "clients/random.h"
#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

enum {
    NOISE_SAMPLES = 2048,   /* of the noise acquisition */
    BLOCK_BYTES = 32 << 20, /* of data computed before they are written */
    SAMPLE_TIME_US = 4,
    TR_TICKS = 2 /* between readouts, of 2.5 ms */
};

/* One acquisition of a trajectory: a readout, or a part of a readout that is too long. */
struct piece {
    size_t readout, part, first, samples;
};

/* ---- random numbers ---- */

/* Element `index` of a sequence of complex normal numbers, standard deviation 1 in each part (Box and Muller). */
static struct c32 normal(uint64_t seed, uint64_t index)
{
    uint64_t a = random_mix(seed ^ random_mix(2 * index)), b = random_mix(seed ^ random_mix(2 * index + 1));
    double radius = sqrt(-2 * log(((double)(a >> 11) + 1) * 0x1p-53)), angle = 2 * M_PI * ((double)(b >> 11) * 0x1p-53);
    return (struct c32){(float)(radius * cos(angle)), (float)(radius * sin(angle))};
}

/* data[coils][samples] += noise; `acquisition` gives the position in the stream of random numbers. The noise of a coil
 * is sqrt(1 - R^2) times its own plus R times its neighbour's. */
static void add_noise(const struct simulation *sim, uint64_t acquisition, size_t samples, struct c32 *data)
{
    const struct simulate_options *o = sim->options;
    size_t coils = (size_t)o->coils;
    float own = (float)(sim->noise * sqrt(1 - o->correlation * o->correlation)),
          other = (float)(sim->noise * o->correlation);
    uint64_t seed = random_mix(o->seed), base = acquisition * coils * SIMULATION_LONGEST;
    for (size_t c = 0; c < coils && sim->noise > 0; c++)
        for (size_t i = 0; i < samples; i++) {
            struct c32 mine = normal(seed, base + c * samples + i), theirs = {0, 0};
            if (other > 0)
                theirs = normal(seed, base + (c + 1) % coils * samples + i);
            data[c * samples + i].re += own * mine.re + other * theirs.re;
            data[c * samples + i].im += own * mine.im + other * theirs.im;
        }
}

/* Uniform in -1 .. 1, two per hash. */
static void fill_random(uint64_t seed, uint64_t acquisition, size_t count, struct c32 *data)
{
    uint64_t x = random_mix(seed ^ random_mix(acquisition));
    for (size_t i = 0; i < count; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t y = x ^ x >> 29;
        data[i] = (struct c32){(float)(int32_t)y * 0x1p-31f, (float)(int32_t)(y >> 32) * 0x1p-31f};
    }
}

/* ---- acquisitions ---- */

int simulation_phantom(const struct simulate_options *o, int slice, double phase, struct phantom **out)
{
    const enum phantom_kind kind = o->object == SIMULATE_ASYMMETRIC ? PHANTOM_ASYMMETRIC : PHANTOM_SHEPP_LOGAN;
    const double height = o->slices > 1 ? (slice - (o->slices - 1) / 2.0) * o->spacing_mm / o->fov_mm[0] : NAN;
    return phantom_create_moved(out, kind, o->dim, o->traj.n, height, o->coils, phase);
}

static struct piece piece_of(const struct simulation *sim, size_t index)
{
    struct piece piece = {.readout = index / sim->parts, .part = index % sim->parts};
    piece.first = sim->traj->samples * piece.part / sim->parts;
    piece.samples = sim->traj->samples * (piece.part + 1) / sim->parts - piece.first;
    return piece;
}

static void set_common(const struct simulation *sim, int slice, uint32_t counter, size_t samples,
                       ISMRMRD_AcquisitionHeader *head)
{
    const struct simulate_options *o = sim->options;
    ismrmrd_init_acquisition_header(head);
    head->measurement_uid = 1;
    head->scan_counter = counter;
    head->acquisition_time_stamp = counter * TR_TICKS;
    head->number_of_samples = (uint16_t)samples;
    head->available_channels = head->active_channels = (uint16_t)o->coils;
    for (int c = 0; c < o->coils; c++)
        ismrmrd_set_channel_on(head->channel_mask, (uint16_t)c);
    head->sample_time_us = SAMPLE_TIME_US;
    double offset = (slice - (o->slices - 1) / 2.0) * o->spacing_mm;
    for (int d = 0; d < 3; d++) {
        head->position[d] = (float)(o->position[d] + offset * o->direction[2][d]);
        head->read_dir[d] = (float)o->direction[0][d];
        head->phase_dir[d] = (float)o->direction[1][d];
        head->slice_dir[d] = (float)o->direction[2][d];
    }
}

static void set_head(const struct simulation *sim, int frame, int slice, size_t index, uint32_t counter,
                     ISMRMRD_AcquisitionHeader *head)
{
    const struct simulate_options *o = sim->options;
    struct piece piece = piece_of(sim, index);
    size_t spokes = sim->traj->readouts / (o->traj.kind == TRAJ_STACK_OF_STARS ? (size_t)o->traj.n[2] : 1);
    bool from_centre = o->traj.kind == TRAJ_SPIRAL || o->traj.kind == TRAJ_CONES;
    size_t centre = from_centre ? 0 : sim->traj->samples / 2;
    set_common(sim, slice, counter, piece.samples, head);
    head->trajectory_dimensions = (uint16_t)sim->columns;
    head->center_sample =
        (uint16_t)(centre >= piece.first && centre < piece.first + piece.samples ? centre - piece.first : 0);
    head->idx.kspace_encode_step_1 = (uint16_t)(piece.readout % spokes % 65536);
    head->idx.kspace_encode_step_2 = (uint16_t)(piece.readout / spokes);
    head->idx.slice = (uint16_t)slice;
    head->idx.repetition = (uint16_t)frame;
    head->idx.segment = (uint16_t)piece.part;
    bool first = index == 0, last = index == sim->pieces - 1;
    if (first)
        ismrmrd_set_flag(&head->flags, ISMRMRD_ACQ_FIRST_IN_SLICE);
    if (last)
        ismrmrd_set_flag(&head->flags, ISMRMRD_ACQ_LAST_IN_SLICE);
    if (first && slice == 0)
        ismrmrd_set_flag(&head->flags, ISMRMRD_ACQ_FIRST_IN_REPETITION);
    if (last && slice == o->slices - 1)
        ismrmrd_set_flag(&head->flags, ISMRMRD_ACQ_LAST_IN_REPETITION);
    if (last && slice == o->slices - 1 && frame == o->frames - 1)
        ismrmrd_set_flag(&head->flags, ISMRMRD_ACQ_LAST_IN_MEASUREMENT);
}

double simulation_slope(const struct simulate_options *o, int slice, size_t d)
{
    const bool falls = d == 0 ? slice % 4 == 1 || slice % 4 == 2 : slice % 4 >= 2;
    return d > 1 ? 0 : falls ? -o->off_resonance : o->off_resonance;
}

/* exp(-2 pi i f(r) t) of a linear field is exactly a shift of k in proportion to time. */
static float *off_resonance_shift(const struct simulation *sim, int slice, const struct piece *piece, const float *k)
{
    const struct simulate_options *o = sim->options;
    const size_t dim = (size_t)sim->traj->dim;
    float *out = malloc(piece->samples * dim * sizeof *out);
    for (size_t s = 0; s < piece->samples && out; s++) {
        const double seconds = 1e-6 * SAMPLE_TIME_US * (double)(piece->first + s);
        for (size_t d = 0; d < dim; d++)
            out[s * dim + d] = (float)(k[s * dim + d] + simulation_slope(o, slice, d) * seconds / o->traj.n[d]);
    }
    return out;
}

/* data[coils][samples] of one acquisition. Fails with ERR_NO_MEMORY. */
static int make_data(const struct simulation *sim, int frame, int slice, size_t index, uint32_t counter,
                     struct c32 *data)
{
    const struct simulate_options *o = sim->options;
    struct piece piece = piece_of(sim, index);
    size_t count = piece.samples * (size_t)o->coils;
    if (!sim->phantoms) {
        fill_random(o->seed, counter, count, data);
        return 0;
    }
    const float *k = sim->traj->k + (piece.readout * sim->traj->samples + piece.first) * (size_t)sim->traj->dim;
    struct phantom *moved = NULL;
    if (o->motion > 0) {
        const double scan = (double)sim->pieces * o->frames * o->slices;
        int rc = simulation_phantom(o, slice, o->motion * (counter - (o->noise_scan ? 1 : 0)) / scan, &moved);
        if (rc != 0)
            return rc;
    }
    float *shifted = o->off_resonance != 0 ? off_resonance_shift(sim, slice, &piece, k) : NULL;
    if (o->off_resonance != 0 && !shifted) {
        phantom_free(moved);
        return err_no_memory("%zu samples", piece.samples);
    }
    phantom_kspace(moved ? moved : sim->phantoms[slice], piece.samples, shifted ? shifted : k, piece.samples, data);
    free(shifted);
    phantom_free(moved);
    float fade = (float)(1 - 0.5 * frame / o->frames);
    for (size_t i = 0; i < count && frame > 0; i++)
        data[i] = (struct c32){fade * data[i].re, fade * data[i].im};
    add_noise(sim, counter, piece.samples, data);
    return 0;
}

int simulation_write_frame(const struct simulation *sim, struct scan_writer *writer, int frame, int slice,
                           uint32_t *counter)
{
    size_t longest = (sim->traj->samples + sim->parts - 1) / sim->parts, each = longest * (size_t)sim->options->coils;
    size_t block = BLOCK_BYTES / (each * sizeof(struct c32)) + 1;
    block = block < sim->pieces ? block : sim->pieces;
    struct c32 *data = malloc(block * each * sizeof *data);
    struct scan_write_acquisition *acquisitions = malloc(block * sizeof *acquisitions);
    int rc = 0;
    if (!data || !acquisitions)
        rc = err_no_memory("%zu readouts of %zu samples", block, longest);
    for (size_t first = 0; first < sim->pieces && rc == 0; first += block) {
        size_t count = sim->pieces - first < block ? sim->pieces - first : block;
        int failed = 0;
#pragma omp parallel for schedule(dynamic) reduction(min : failed)
        for (size_t i = 0; i < count; i++) {
            struct piece piece = piece_of(sim, first + i);
            uint32_t number = *counter + (uint32_t)i;
            set_head(sim, frame, slice, first + i, number, &acquisitions[i].head);
            int made = make_data(sim, frame, slice, first + i, number, data + i * each);
            failed = made < failed ? made : failed;
            size_t columns = (size_t)sim->columns;
            acquisitions[i].traj = (hvl_t){piece.samples * columns,
                                           sim->written + (piece.readout * sim->traj->samples + piece.first) * columns};
            acquisitions[i].data = (hvl_t){2 * piece.samples * (size_t)sim->options->coils, data + i * each};
        }
        rc = failed ? err_no_memory("%d coils of a phantom", sim->options->coils)
                    : scan_writer_append(writer, count, acquisitions);
        *counter += (uint32_t)count;
    }
    free(acquisitions);
    free(data);
    return rc;
}

int simulation_write_noise(const struct simulation *sim, struct scan_writer *writer, uint32_t *counter)
{
    size_t count = NOISE_SAMPLES * (size_t)sim->options->coils;
    struct c32 *data = calloc(count, sizeof *data);
    if (!data)
        return err_no_memory("the noise acquisition");
    struct scan_write_acquisition acquisition = {.data = {2 * count, data}};
    set_common(sim, 0, *counter, NOISE_SAMPLES, &acquisition.head);
    ismrmrd_set_flag(&acquisition.head.flags, ISMRMRD_ACQ_IS_NOISE_MEASUREMENT);
    add_noise(sim, *counter, NOISE_SAMPLES, data);
    int rc = scan_writer_append(writer, 1, &acquisition);
    free(data);
    *counter += 1;
    return rc;
}
