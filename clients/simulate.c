#include "clients/simulate.h"

#include "clients/simulation.h"
#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIPE_ITERATIONS = 15 };

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

/* ---- the file ---- */

static int write_field(const struct simulation *sim, struct scan_writer *writer)
{
    const struct simulate_options *o = sim->options;
    const int *n = o->traj.n;
    const hsize_t size[] = {(hsize_t)o->slices, (hsize_t)n[2], (hsize_t)n[1], (hsize_t)n[0]};
    float *map = malloc((size_t)o->slices * (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * sizeof *map), *to = map;
    if (!map)
        return err_no_memory("a field map");
    for (int s = 0; s < o->slices; s++)
        for (int z = 0; z < n[2]; z++)
            for (int y = 0; y < n[1]; y++)
                for (int x = 0; x < n[0]; x++)
                    *to++ = (float)(simulation_slope(o, s, 0) * (x - n[0] / 2) / n[0] +
                                    simulation_slope(o, s, 1) * (y - n[1] / 2) / n[1]);
    const bool sliced = o->slices > 1;
    int rc = scan_writer_array(writer, "fieldmap", sliced ? 4 : 3, sliced ? size : size + 1, map);
    free(map);
    return rc;
}

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
        rc = simulation_write_noise(sim, writer, &counter);
    for (int frame = 0; frame < o->frames && rc == 0; frame++)
        for (int slice = 0; slice < o->slices && rc == 0; slice++)
            rc = simulation_write_frame(sim, writer, frame, slice, &counter);
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
        rc = simulation_phantom(o, i % o->slices, o->motion > 0 && o->truth_frames > 1 ? middle : 0, &moved);
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
        rc = err_set(ERR_IO, "The true image %s could not be written to its end: %m.", o->truth);
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
        rc = simulation_phantom(o, s, 0, &sim->phantoms[s]);
    return rc;
}

static int simulate(const struct simulate_options *options)
{
    const int *n = options->traj.n;
    struct simulation sim = {.options = options, .noise = options->noise * sqrt((double)n[0] * n[1] * n[2])};
    int rc = traj_create(&sim.traj, &options->traj);
    if (rc == 0) {
        sim.parts = (sim.traj->samples + SIMULATION_LONGEST - 1) / SIMULATION_LONGEST;
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
