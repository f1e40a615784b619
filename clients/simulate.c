#include "clients/simulate.h"

#include "clients/scan_write.h"
#include "clients/simulate_options.h"
#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LONGEST = 65535,        /* samples of an acquisition: 16 bits in its header */
    NOISE_SAMPLES = 2048,   /* of the noise acquisition */
    BLOCK_BYTES = 32 << 20, /* of data computed before they are written */
    PIPE_ITERATIONS = 15,
    SAMPLE_TIME_US = 4,
    TR_TICKS = 2 /* between readouts, of 2.5 ms */
};

/* One acquisition of a trajectory: a readout, or a part of a readout that is too long. */
struct piece {
    size_t readout, part, first, samples;
};

struct simulation {
    const struct simulate_options *options;
    struct traj *traj;
    struct phantom **phantoms; /* [slices]; NULL for random numbers */
    int columns;
    float *written;       /* [readouts][samples][columns]: in the file's unit, with weights */
    size_t parts, pieces; /* of a readout; of a frame of a slice */
    double noise;         /* standard deviation of real and imaginary parts in k-space */
};

/* ---- random numbers ---- */

/* splitmix64 (doi:10.1145/2714064.2660195): a hash of a counter, so that any thread can compute any number. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Complex normal number number `index`, standard deviation 1 in each part (Box and Muller). */
static struct c32 normal(uint64_t seed, uint64_t index)
{
    uint64_t a = mix(seed ^ mix(2 * index)), b = mix(seed ^ mix(2 * index + 1));
    double radius = sqrt(-2 * log(((double)(a >> 11) + 1) * 0x1p-53)), angle = 2 * M_PI * ((double)(b >> 11) * 0x1p-53);
    return (struct c32){(float)(radius * cos(angle)), (float)(radius * sin(angle))};
}

/* data[coils][samples] += noise; `acquisition` gives the position in the stream of random numbers. The noise of a coil
 * is sqrt(1 - R^2) of its own and R of its neighbour's. */
static void add_noise(const struct simulation *sim, uint64_t acquisition, size_t samples, struct c32 *data)
{
    const struct simulate_options *o = sim->options;
    size_t coils = (size_t)o->coils;
    float own = (float)(sim->noise * sqrt(1 - o->correlation * o->correlation)),
          other = (float)(sim->noise * o->correlation);
    uint64_t seed = mix(o->seed), base = acquisition * coils * LONGEST;
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
    uint64_t x = mix(seed ^ mix(acquisition));
    for (size_t i = 0; i < count; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t y = x ^ x >> 29;
        data[i] = (struct c32){(float)(int32_t)y * 0x1p-31f, (float)(int32_t)(y >> 32) * 0x1p-31f};
    }
}

/* ---- the trajectory as written to the file ---- */

static int make_weights(const struct simulate_options *o, const struct traj *traj, float *weights)
{
    size_t samples = traj->readouts * traj->samples;
    if (o->weights == DCF_ANALYTIC) {
        enum traj_shape shape = traj_shape_find(traj->dim, traj->readouts, traj->samples, traj->k);
        if (shape == TRAJ_SHAPE_UNKNOWN)
            return err_set(ERR_BAD_PARAMETER,
                           "There are no analytic weights for this %s trajectory; pass --weights pipe.",
                           traj_kind_name(o->traj.kind));
        return dcf_analytic(shape, traj->dim, traj->readouts, traj->samples, traj->k, weights);
    }
    struct dev *dev = NULL;
    int rc = dev_create(&dev, DEV_CPU, 0, 0);
    if (rc == 0)
        rc = dcf_pipe(dev, traj->dim, o->traj.n, samples, traj->k, NULL, PIPE_ITERATIONS, weights, NULL, NULL);
    dev_free(dev);
    return rc;
}

static double unit_scale(const struct simulate_options *o, int d)
{
    switch (o->unit) {
    case TRAJ_UNIT_GRID:
        return o->traj.n[d];
    case TRAJ_UNIT_RADIANS:
        return 2 * M_PI;
    case TRAJ_UNIT_PER_METRE:
        return o->traj.n[d] / (o->fov_mm[d] * 1e-3);
    default:
        return 1;
    }
}

static int make_columns(struct simulation *sim)
{
    const struct simulate_options *o = sim->options;
    const struct traj *traj = sim->traj;
    size_t samples = traj->readouts * traj->samples, dim = (size_t)traj->dim;
    bool weighted = o->weights != DCF_NONE;
    sim->columns = traj->dim + (weighted ? 1 : 0);
    sim->written = malloc(samples * (size_t)sim->columns * sizeof *sim->written);
    float *weights = weighted ? malloc(samples * sizeof *weights) : NULL;
    int rc = 0;
    if (!sim->written || (weighted && !weights))
        rc = err_no_memory("a trajectory of %zu samples", samples);
    else if (weighted)
        rc = make_weights(o, traj, weights);
    for (size_t m = 0; m < samples && rc == 0; m++) {
        float *row = sim->written + m * (size_t)sim->columns;
        for (size_t d = 0; d < dim; d++)
            row[d] = (float)(traj->k[m * dim + d] * unit_scale(o, (int)d));
        if (weighted)
            row[dim] = weights[m];
    }
    free(weights);
    return rc;
}

/* ---- acquisitions ---- */

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

/* A slice's phantom at a phase of its motion. */
static int phantom_make(const struct simulate_options *o, int slice, double phase, struct phantom **out)
{
    const enum phantom_kind kind = o->object == SIMULATE_ASYMMETRIC ? PHANTOM_ASYMMETRIC : PHANTOM_SHEPP_LOGAN;
    const double height = o->slices > 1 ? (slice - (o->slices - 1) / 2.0) * o->spacing_mm / o->fov_mm[0] : NAN;
    return phantom_create_moved(out, kind, o->dim, o->traj.n, height, o->coils, phase);
}

/* exp(-2 pi i f(r) t) of a field that rises linearly is a shift of k that grows in time: exact. */
static float *off_resonance_shift(const struct simulation *sim, const struct piece *piece, const float *k)
{
    const struct simulate_options *o = sim->options;
    const size_t dim = (size_t)sim->traj->dim;
    float *out = malloc(piece->samples * dim * sizeof *out);
    for (size_t s = 0; s < piece->samples && out; s++) {
        const double seconds = 1e-6 * SAMPLE_TIME_US * (double)(piece->first + s);
        for (size_t d = 0; d < dim; d++)
            out[s * dim + d] = (float)(k[s * dim + d] + (d < 2 ? o->off_resonance * seconds / o->traj.n[d] : 0));
    }
    return out;
}

static int write_field(const struct simulation *sim, struct scan_writer *writer)
{
    const struct simulate_options *o = sim->options;
    const int *n = o->traj.n;
    const hsize_t size[] = {(hsize_t)n[2], (hsize_t)n[1], (hsize_t)n[0]};
    float *map = malloc((size_t)n[0] * (size_t)n[1] * (size_t)n[2] * sizeof *map), *to = map;
    if (!map)
        return err_no_memory("a field map");
    for (int z = 0; z < n[2]; z++)
        for (int y = 0; y < n[1]; y++)
            for (int x = 0; x < n[0]; x++)
                *to++ = (float)(o->off_resonance * ((double)(x - n[0] / 2) / n[0] + (double)(y - n[1] / 2) / n[1]));
    int rc = scan_writer_array(writer, "fieldmap", 3, size, map);
    free(map);
    return rc;
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
        int rc = phantom_make(o, slice, o->motion * (counter - (o->noise_scan ? 1 : 0)) / scan, &moved);
        if (rc != 0)
            return rc;
    }
    float *shifted = o->off_resonance != 0 ? off_resonance_shift(sim, &piece, k) : NULL;
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

/* One frame of one slice; *counter counts acquisitions of the file. */
static int write_frame(const struct simulation *sim, struct scan_writer *writer, int frame, int slice,
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

static int write_noise_scan(const struct simulation *sim, struct scan_writer *writer, uint32_t *counter)
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

/* ---- the file ---- */

static void make_xml(const struct simulation *sim, char *xml, size_t size)
{
    static const char *const names[] = {"radial", "goldenangle", "spiral", "goldenangle", "radial", "other"};
    const struct simulate_options *o = sim->options;
    bool stack = o->traj.kind == TRAJ_STACK_OF_STARS;
    size_t spokes = sim->traj->readouts / (stack ? (size_t)o->traj.n[2] : 1);
    char space[512];
    snprintf(space, sizeof space,
             "<matrixSize><x>%d</x><y>%d</y><z>%d</z></matrixSize>"
             "<fieldOfView_mm><x>%.9g</x><y>%.9g</y><z>%.9g</z></fieldOfView_mm>",
             o->traj.n[0], o->traj.n[1], o->traj.n[2], o->fov_mm[0], o->fov_mm[1], o->fov_mm[2]);
#define LIMIT(name) "      <" name "><minimum>0</minimum><maximum>%zu</maximum><center>%zu</center></" name ">\n"
    snprintf(
        xml, size,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<ismrmrdHeader xmlns=\"http://www.ismrm.org/ISMRMRD\">\n"
        "  <acquisitionSystemInformation><systemVendor>mrirecon</systemVendor>"
        "<systemModel>simulate " MRIRECON_VERSION "</systemModel>"
        "<receiverChannels>%d</receiverChannels></acquisitionSystemInformation>\n"
        "  "
        "<experimentalConditions><H1resonanceFrequency_Hz>63870000</H1resonanceFrequency_Hz></experimentalConditions>\n"
        "  <encoding>\n"
        "    <encodedSpace>%s</encodedSpace>\n    <reconSpace>%s</reconSpace>\n"
        "    <encodingLimits>\n" LIMIT("kspace_encoding_step_1") LIMIT("kspace_encoding_step_2") LIMIT("slice")
            LIMIT("repetition") LIMIT("segment") "    </encodingLimits>\n"
                                                 "    <trajectory>%s</trajectory>\n"
                                                 "  </encoding>\n"
                                                 "</ismrmrdHeader>\n",
        o->coils, space, space, (spokes - 1) % 65536, (size_t)0, stack ? (size_t)o->traj.n[2] - 1 : 0,
        stack ? (size_t)o->traj.n[2] / 2 : 0, (size_t)o->slices - 1, (size_t)0, (size_t)o->frames - 1, (size_t)0,
        sim->parts - 1, (size_t)0, names[o->traj.kind]);
#undef LIMIT
}

static int write_scan(const struct simulation *sim)
{
    const struct simulate_options *o = sim->options;
    char xml[4096];
    size_t count;
    if (!size_mul(sim->pieces, (size_t)o->frames * (size_t)o->slices, &count) || count > UINT32_MAX - 1)
        return err_set(ERR_BAD_PARAMETER, "A scan of %d frames, %d slices and %zu readouts each is too large.",
                       o->frames, o->slices, sim->pieces);
    make_xml(sim, xml, sizeof xml);
    struct scan_writer *writer = NULL;
    int rc = scan_writer_create(&writer, o->out, xml, count + (o->noise_scan ? 1 : 0));
    if (rc != 0)
        return rc;
    uint32_t counter = 0;
    if (o->off_resonance != 0)
        rc = write_field(sim, writer);
    if (rc == 0 && o->noise_scan)
        rc = write_noise_scan(sim, writer, &counter);
    for (int frame = 0; frame < o->frames && rc == 0; frame++)
        for (int slice = 0; slice < o->slices && rc == 0; slice++)
            rc = write_frame(sim, writer, frame, slice, &counter);
    return scan_writer_end(writer, o->out, rc);
}

/* NumPy's format 1.0: magic, header padded to 128 bytes, little-endian float32. */
static int write_images(const struct simulation *sim, FILE *file, size_t pixels, float *image)
{
    const struct simulate_options *o = sim->options;
    const int *n = o->traj.n;
    char header[118], frames[16] = "";
    int rc = 0;
    if (o->truth_frames > 1)
        snprintf(frames, sizeof frames, "%d, ", o->truth_frames);
    snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (%s%d, %d, %d), }", frames,
             o->dim == 3 ? n[2] : o->slices, n[1], n[0]);
    fprintf(file, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, header);
    for (int i = 0; i < o->truth_frames * o->slices && rc == 0; i++) {
        struct phantom *moved = NULL;
        const double middle = o->motion * (i / o->slices + 0.5) / o->truth_frames;
        rc = phantom_make(o, i % o->slices, o->motion > 0 && o->truth_frames > 1 ? middle : 0, &moved);
        if (rc == 0)
            rc = phantom_truth(moved, o->traj.kind == TRAJ_STACK_OF_STARS, image);
        if (rc == 0)
            fwrite(image, sizeof *image, pixels, file);
        phantom_free(moved);
    }
    return rc;
}

static int write_truth(const struct simulation *sim)
{
    const struct simulate_options *o = sim->options;
    size_t pixels = (size_t)o->traj.n[0] * (size_t)o->traj.n[1] * (size_t)o->traj.n[2];
    float *image = malloc(pixels * sizeof *image);
    if (!image)
        return err_no_memory("the true image of %zu pixels", pixels);
    FILE *file = fopen(o->truth, "wb");
    if (!file) {
        free(image);
        return err_set(ERR_IO, "The true image %s cannot be written: %m.", o->truth);
    }
    int rc = write_images(sim, file, pixels, image);
    bool broken = ferror(file) != 0;
    broken = fclose(file) != 0 || broken;
    if (rc == 0 && broken)
        rc = err_set(ERR_IO, "The true image %s could not be written to its end: is the disk full?", o->truth);
    if (rc != 0)
        unlink(o->truth);
    free(image);
    return rc;
}

static int make_phantoms(struct simulation *sim)
{
    const struct simulate_options *o = sim->options;
    if (o->object == SIMULATE_RANDOM)
        return 0;
    sim->phantoms = calloc((size_t)o->slices, sizeof *sim->phantoms);
    if (!sim->phantoms)
        return err_no_memory("%d slices", o->slices);
    int rc = 0;
    for (int s = 0; s < o->slices && rc == 0; s++)
        rc = phantom_make(o, s, 0, &sim->phantoms[s]);
    return rc;
}

static int simulate(const struct simulate_options *options)
{
    const int *n = options->traj.n;
    struct simulation sim = {.options = options, .noise = options->noise * sqrt((double)n[0] * n[1] * n[2])};
    int rc = traj_create(&sim.traj, &options->traj);
    if (rc == 0) {
        sim.parts = (sim.traj->samples + LONGEST - 1) / LONGEST;
        sim.pieces = sim.traj->readouts * sim.parts;
        rc = make_columns(&sim);
    }
    if (rc == 0)
        rc = make_phantoms(&sim);
    if (rc == 0 && options->truth)
        rc = write_truth(&sim);
    if (rc == 0) {
        rc = write_scan(&sim);
        if (rc != 0 && options->truth)
            unlink(options->truth);
    }
    for (int s = 0; s < options->slices && sim.phantoms; s++)
        phantom_free(sim.phantoms[s]);
    free(sim.phantoms);
    free(sim.written);
    traj_free(sim.traj);
    return rc;
}

int simulate_main(int argc, char **argv)
{
    struct simulate_options options;
    bool help;
    int rc = simulate_options_read(&options, argc, argv, &help);
    if (rc == 0 && help) {
        simulate_options_help();
        return 0;
    }
    bool wrong = rc != 0;
    if (rc == 0)
        rc = options.are_bodies  ? bodies_write(options.bodies, options.points, options.seed, options.out)
             : options.particles ? molecule_write(options.molecule, options.points, options.seed, options.out)
                                 : simulate(&options);
    if (rc == 0)
        return 0;
    fprintf(stderr, "mrirecon simulate: %s\n", err_last()->text);
    return wrong || rc == ERR_BAD_PARAMETER ? 2 : 1;
}
