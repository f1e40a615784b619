/* mrirecon simulate: its files, read back with libismrmrd and compared with the phantom, and its command line. */
#include "clients/phantom.h"
#include "clients/simulate.h"
#include "clients/simulate_options.h"
#include "gridding/base/err.h"

#include <complex.h>
#include <ismrmrd/dataset.h>
#include <libxml/parser.h>
#include <libxml/xmlschemas.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_WORDS = 40 };

struct folder {
    char path[64], scan[96], truth[96];
};

/* Run the command with `line` split at spaces; "--out" is added. */
static int run(const struct folder *folder, const char *line)
{
    char copy[512], *words[MOST_WORDS] = {"simulate"}, out[] = "--out", scan[96], *rest = NULL;
    int count = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL && count < MOST_WORDS - 3;
         word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    snprintf(scan, sizeof scan, "%s", folder->scan);
    words[count++] = out;
    words[count++] = scan;
    return simulate_main(count, words);
}

static void open_scan(const struct folder *folder, ISMRMRD_Dataset *dataset)
{
    assert_int_equal(ismrmrd_init_dataset(dataset, folder->scan, "dataset"), ISMRMRD_NOERROR);
    assert_int_equal(ismrmrd_open_dataset(dataset, false), ISMRMRD_NOERROR);
}

static void read_one(ISMRMRD_Dataset *dataset, uint32_t index, ISMRMRD_Acquisition *acquisition)
{
    assert_int_equal(ismrmrd_init_acquisition(acquisition), ISMRMRD_NOERROR);
    assert_int_equal(ismrmrd_read_acquisition(dataset, index, acquisition), ISMRMRD_NOERROR);
}

static bool has_flag(const ISMRMRD_Acquisition *acquisition, int flag)
{
    return ismrmrd_is_flag_set(acquisition->head.flags, (uint64_t)flag);
}

/* Every acquisition of frames and slices of the asymmetric phantom must match exactly: trajectory, data, geometry,
 * counters, flags. */
static void test_contents(void **state)
{
    const struct folder *folder = *state;
    assert_int_equal(run(folder,
                         "--trajectory golden --matrix 24x16 --readouts 5 --samples 20 --coils 3 --phantom asymmetric "
                         "--frames 2 --slices 3 --spacing 8 --orientation sagittal --position 10,-20,30"),
                     0);
    struct traj *traj = NULL;
    struct traj_params params = {.kind = TRAJ_GOLDEN, .n = {24, 16, 1}, .readouts = 5, .samples = 20};
    assert_int_equal(traj_create(&traj, &params), 0);
    ISMRMRD_Dataset dataset;
    open_scan(folder, &dataset);
    assert_int_equal(ismrmrd_get_number_of_acquisitions(&dataset), 2 * 3 * 5);
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t frame = i / 15, slice = i / 5 % 3, readout = i % 5;
        ISMRMRD_Acquisition acquisition;
        read_one(&dataset, i, &acquisition);
        const ISMRMRD_AcquisitionHeader *head = &acquisition.head;
        assert_int_equal(head->number_of_samples, 20);
        assert_int_equal(head->active_channels, 3);
        assert_int_equal(head->trajectory_dimensions, 2);
        assert_int_equal(head->center_sample, 10);
        assert_int_equal(head->scan_counter, i);
        assert_int_equal(head->idx.repetition, frame);
        assert_int_equal(head->idx.slice, slice);
        assert_int_equal(head->idx.kspace_encode_step_1, readout);
        assert_int_equal(has_flag(&acquisition, ISMRMRD_ACQ_LAST_IN_SLICE), readout == 4);
        assert_int_equal(has_flag(&acquisition, ISMRMRD_ACQ_LAST_IN_REPETITION), readout == 4 && slice == 2);
        assert_int_equal(has_flag(&acquisition, ISMRMRD_ACQ_LAST_IN_MEASUREMENT), i == 29);
        /* Sagittal: read posterior, phase inferior, slices towards the right; read x phase = -x. */
        float position[3] = {10 - 8 * ((float)slice - 1), -20, 30}, read[3] = {0, 1, 0}, phase[3] = {0, 0, -1},
              across[3] = {-1, 0, 0};
        assert_memory_equal(head->position, position, sizeof position);
        assert_memory_equal(head->read_dir, read, sizeof read);
        assert_memory_equal(head->phase_dir, phase, sizeof phase);
        for (int d = 0; d < 3; d++)
            assert_true(head->slice_dir[d] == across[d]);
        assert_memory_equal(acquisition.traj, traj->k + readout * 40, 40 * sizeof(float));

        struct phantom *phantom = NULL;
        struct c32 expected[3 * 20];
        double height = ((int)slice - 1) * 8 / 48.0; /* 2 mm per pixel */
        assert_int_equal(phantom_create(&phantom, PHANTOM_ASYMMETRIC, 2, (int[]){24, 16, 1}, height, 3), 0);
        phantom_kspace(phantom, 20, traj->k + readout * 40, 20, expected);
        phantom_free(phantom);
        float fade = frame == 0 ? 1 : 0.75f;
        for (int s = 0; s < 60; s++) {
            assert_true(crealf(acquisition.data[s]) == fade * expected[s].re);
            assert_true(cimagf(acquisition.data[s]) == fade * expected[s].im);
        }
        ismrmrd_cleanup_acquisition(&acquisition);
    }
    ismrmrd_close_dataset(&dataset);
    traj_free(traj);
}

/* A readout longer than an acquisition can hold is split into parts without gap or overlap. */
static void test_long(void **state)
{
    const struct folder *folder = *state;
    assert_int_equal(
        run(folder, "--trajectory spiral --matrix 32 --readouts 2 --samples 140001 --coils 2 --phantom random"), 0);
    struct traj *traj = NULL;
    struct traj_params params = {.kind = TRAJ_SPIRAL, .n = {32, 32, 1}, .readouts = 2, .samples = 140001};
    assert_int_equal(traj_create(&traj, &params), 0);
    ISMRMRD_Dataset dataset;
    open_scan(folder, &dataset);
    assert_int_equal(ismrmrd_get_number_of_acquisitions(&dataset), 6);
    size_t at = 0;
    for (uint32_t i = 0; i < 6; i++) {
        ISMRMRD_Acquisition acquisition;
        read_one(&dataset, i, &acquisition);
        assert_int_equal(acquisition.head.idx.kspace_encode_step_1, i / 3);
        assert_int_equal(acquisition.head.idx.segment, i % 3);
        assert_memory_equal(acquisition.traj, traj->k + 2 * at, 2 * acquisition.head.number_of_samples * sizeof(float));
        at += acquisition.head.number_of_samples;
        ismrmrd_cleanup_acquisition(&acquisition);
    }
    assert_int_equal(at, 2 * 140001);
    ismrmrd_close_dataset(&dataset);
    traj_free(traj);
}

/* Units, and the column of weights. */
static void test_columns(void **state)
{
    const struct folder *folder = *state;
    static const char *const units[] = {"pixel", "grid", "radians", "per-metre"};
    const double scales[][2] = {{1, 1}, {24, 16}, {2 * M_PI, 2 * M_PI}, {24 / 0.3, 16 / 0.2}};
    struct traj *traj = NULL;
    struct traj_params params = {.kind = TRAJ_RADIAL, .n = {24, 16, 1}, .readouts = 9, .samples = 20};
    assert_int_equal(traj_create(&traj, &params), 0);
    float weights[180];
    assert_int_equal(dcf_analytic(TRAJ_SHAPE_RADIAL, 2, 9, 20, traj->k, weights), 0);
    for (int u = 0; u < 4; u++) {
        char line[160];
        snprintf(line, sizeof line,
                 "--matrix=24x16 --readouts 9 --samples 20 --coils 1 --fov 300x200 --weights analytic --units %s",
                 units[u]);
        assert_int_equal(run(folder, line), 0);
        ISMRMRD_Dataset dataset;
        open_scan(folder, &dataset);
        for (uint32_t r = 0; r < 9; r++) {
            ISMRMRD_Acquisition acquisition;
            read_one(&dataset, r, &acquisition);
            assert_int_equal(acquisition.head.trajectory_dimensions, 3);
            for (int i = 0; i < 20; i++) {
                for (int d = 0; d < 2; d++) {
                    double expected = traj->k[2 * (r * 20 + (uint32_t)i) + (uint32_t)d] * scales[u][d];
                    assert_true(fabs(acquisition.traj[3 * i + d] - expected) <= 1e-6 * fabs(expected));
                }
                assert_true(acquisition.traj[3 * i + 2] == weights[r * 20 + (uint32_t)i]);
            }
            ismrmrd_cleanup_acquisition(&acquisition);
        }
        ismrmrd_close_dataset(&dataset);
    }
    traj_free(traj);
}

/* Mean products of the coils' noise over `count` complex samples each. */
static void covariance(const complex_float_t *data, size_t count, double complex out[3][3])
{
    for (size_t a = 0; a < 3; a++)
        for (size_t b = 0; b < 3; b++) {
            out[a][b] = 0;
            for (size_t i = 0; i < count; i++)
                out[a][b] += data[a * count + i] * conj((double complex)data[b * count + i]) / (double)count;
        }
}

/* 2048 samples: means are right to 1 / sqrt(2048) = 2.2 % of the variance; allowed is five times this. Noise 0.1 on a
 * matrix of 16 x 16 is 0.1 * 16 in real and imaginary parts: variance 2 * 2.56. Correlation R = 0.6: neighbours share R
 * sqrt(1 - R^2) = 0.48 of it. */
static void test_noise(void **state)
{
    const struct folder *folder = *state;
    assert_int_equal(run(folder, "--matrix 16 --coils 3 --readouts 4 --samples 16 --noise 0.1 --noise-correlation 0.6 "
                                 "--noise-scan --seed 5"),
                     0);
    ISMRMRD_Dataset dataset;
    open_scan(folder, &dataset);
    assert_int_equal(ismrmrd_get_number_of_acquisitions(&dataset), 5);
    ISMRMRD_Acquisition noise, first, again, clean;
    read_one(&dataset, 0, &noise);
    read_one(&dataset, 1, &first);
    ismrmrd_close_dataset(&dataset);
    assert_true(has_flag(&noise, ISMRMRD_ACQ_IS_NOISE_MEASUREMENT) &&
                !has_flag(&first, ISMRMRD_ACQ_IS_NOISE_MEASUREMENT));
    assert_int_equal(noise.head.trajectory_dimensions, 0);
    assert_int_equal(noise.head.number_of_samples, 2048);
    double complex seen[3][3];
    covariance(noise.data, 2048, seen);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) /* three coils in a ring: each is a neighbour of the others */
            assert_true(cabs(seen[a][b] - 5.12 * (a == b ? 1 : 0.48)) < 5.12 * 0.11);

    /* The same seed gives the same bits. The signal's noise has the same power. The mean power of 48 values, at
     * least 16 of them independent, has a standard error of at most 25 %: a factor of 2.3 is five of these. */
    assert_int_equal(run(folder, "--matrix 16 --coils 3 --readouts 4 --samples 16 --noise 0.1 --noise-correlation 0.6 "
                                 "--noise-scan --seed 5"),
                     0);
    open_scan(folder, &dataset);
    read_one(&dataset, 1, &again);
    ismrmrd_close_dataset(&dataset);
    assert_memory_equal(first.data, again.data, 48 * sizeof *first.data);
    assert_int_equal(run(folder, "--matrix 16 --coils 3 --readouts 4 --samples 16"), 0);
    open_scan(folder, &dataset);
    read_one(&dataset, 0, &clean);
    ismrmrd_close_dataset(&dataset);
    double square = 0;
    for (int i = 0; i < 48; i++)
        square += pow(cabs((double complex)first.data[i] - clean.data[i]), 2) / 48;
    assert_true(square > 5.12 / 2.3 && square < 5.12 * 2.3);
    ismrmrd_cleanup_acquisition(&noise);
    ismrmrd_cleanup_acquisition(&first);
    ismrmrd_cleanup_acquisition(&again);
    ismrmrd_cleanup_acquisition(&clean);
}

/* The true image's file: NumPy's header, the shape, and the phantom's own truth. */
static void test_truth(void **state)
{
    const struct folder *folder = *state;
    char line[256], bytes[128];
    snprintf(line, sizeof line, "--matrix 12x10 --slices 2 --coils 1 --truth %s", folder->truth);
    assert_int_equal(run(folder, line), 0);
    FILE *file = fopen(folder->truth, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, 128, file), 128);
    assert_memory_equal(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
    bytes[127] = '\0';
    assert_non_null(strstr(bytes + 10, "'shape': (2, 10, 12)"));
    float image[240], expected[120], more;
    assert_int_equal(fread(image, sizeof *image, 240, file), 240);
    assert_int_equal(fread(&more, sizeof more, 1, file), 0);
    fclose(file);
    for (int s = 0; s < 2; s++) {
        struct phantom *phantom = NULL;
        assert_int_equal(phantom_create(&phantom, PHANTOM_SHEPP_LOGAN, 2, (int[]){12, 10, 1}, (s - 0.5) * 10 / 24, 1),
                         0);
        assert_int_equal(phantom_truth(phantom, false, expected), 0);
        assert_memory_equal(image + 120 * s, expected, sizeof expected);
        phantom_free(phantom);
    }
    unlink(folder->truth);
}

/* The header against the schema of ISMRMRD 1.8, where Debian's ismrmrd-schema is installed. */
static void test_schema(void **state)
{
    const struct folder *folder = *state;
    static const char path[] = "/usr/share/ismrmrd/schema/ismrmrd.xsd";
    static const char *const kinds[] = {"radial", "golden", "spiral", "stack-of-stars", "kooshball", "cones"};
    if (access(path, R_OK) != 0) {
        print_message("%s is not there (package ismrmrd-schema)\n", path);
        skip();
    }
    xmlSchemaParserCtxtPtr parser = xmlSchemaNewParserCtxt(path);
    xmlSchemaPtr schema = xmlSchemaParse(parser);
    assert_non_null(schema);
    for (int k = 0; k < 6; k++) {
        char line[128];
        snprintf(line, sizeof line, "--trajectory %s --matrix 8 --coils 2 --readouts 2 --samples 4", kinds[k]);
        assert_int_equal(run(folder, line), 0);
        ISMRMRD_Dataset dataset;
        open_scan(folder, &dataset);
        char *xml = ismrmrd_read_header(&dataset);
        assert_non_null(xml);
        ismrmrd_close_dataset(&dataset);
        xmlDocPtr document = xmlReadMemory(xml, (int)strlen(xml), NULL, NULL, XML_PARSE_NONET);
        assert_non_null(document);
        xmlSchemaValidCtxtPtr check = xmlSchemaNewValidCtxt(schema);
        assert_int_equal(xmlSchemaValidateDoc(check, document), 0);
        xmlSchemaFreeValidCtxt(check);
        xmlFreeDoc(document);
        free(xml);
    }
    xmlSchemaFree(schema);
    xmlSchemaFreeParserCtxt(parser);
    xmlCleanupParser();
}

static void test_command_line(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"--bogus=1", "no option"},
        {"scan.h5", "no option"},
        {"--matrix=0", "1 to 2048"},
        {"--matrix=12x", "1 to 2048"},
        {"--matrix=1.5", "whole"},
        {"--matrix=8x8x8", "2-D"},
        {"--coils=0", "1 to 1024"},
        {"--noise=nan", "0 to"},
        {"--noise=-1", "0 to"},
        {"--noise=1,2", "is a number"},
        {"--trajectory=star", "radial, golden"},
        {"--phantom=", "shepp-logan"},
        {"--units=feet", "per-metre"},
        {"--orientation=up", "axial"},
        {"--orientation=1,0,0,0.5,0.5,0", "right angle"},
        {"--position=1,2", "three numbers"},
        {"--noise-scan=yes", "no value"},
        {"--noise-scan", "--noise"},
        {"--fov=-3", "0.1 to"},
        {"--frames", "needs a value"},
        {"--truth=a.npy", ""},
        {"--points=5", "--particles"},
        {"--particles=water", "--phantom is of scans"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char name[] = "simulate", out[] = "--out=x.h5", random[] = "--phantom=random", word[64];
        snprintf(word, sizeof word, "%s", wrong[i][0]);
        char *words[] = {name, out, random, word};
        bool help;
        struct simulate_options options;
        int code = simulate_options_read(&options, 4, words, &help);
        if (code == 0 || strstr(err_last()->text, wrong[i][1]) == NULL)
            fail_msg("%s: code %d, %s", word, code, err_last()->text);
    }
    char name[] = "simulate", ask[] = "--help";
    bool help = false;
    struct simulate_options options;
    assert_int_equal(simulate_options_read(&options, 2, (char *[]){name, ask}, &help), 0);
    assert_true(help);
    assert_int_equal(simulate_options_read(&options, 1, (char *[]){name}, &help), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "--out"));
}

static int make_folder(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    if (folder == NULL)
        return -1;
    const char *base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    if (snprintf(folder->path, sizeof folder->path, "%s/simulate-XXXXXX", base) >= (int)sizeof folder->path)
        return -1;
    if (mkdtemp(folder->path) == NULL)
        return -1;
    snprintf(folder->scan, sizeof folder->scan, "%s/scan.h5", folder->path);
    snprintf(folder->truth, sizeof folder->truth, "%s/truth.npy", folder->path);
    *state = folder;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *folder = *state;
    unlink(folder->scan);
    int code = rmdir(folder->path);
    free(folder);
    return code;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),     cmocka_unit_test(test_long),  cmocka_unit_test(test_columns),
        cmocka_unit_test(test_noise),        cmocka_unit_test(test_truth), cmocka_unit_test(test_schema),
        cmocka_unit_test(test_command_line),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
