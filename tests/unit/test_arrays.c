/* Scans as arrays (.npz): files written by tests/unit/array_files.py, decoded in this process so that sanitizers see
 * the decoder. */
#include "gridding/base/err.h"
#include "recon/scan/scan_build.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* As in array_files.py. */
enum { COILS = 2, ROWS = 3, SAMPLES = 5 };

static char folder[] = "/tmp/test_arrays.XXXXXX";

static int setup(void **state)
{
    char command[256];
    (void)state;
    if (!mkdtemp(folder) || scan_readers_init() != 0)
        return -1;
    snprintf(command, sizeof command, "/usr/bin/python3 tests/unit/array_files.py %s", folder);
    return system(command) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char command[256];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* Decode a file of the folder from a buffer of exactly its length, so that an overrun is detected. */
static int decode(struct scan *scan, const char *name, const struct scan_wanted *wanted)
{
    char path[256];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY | O_CLOEXEC), memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(file >= 0 && memory >= 0 && fstat(file, &status) == 0);
    char *bytes = malloc((size_t)status.st_size);
    assert_non_null(bytes);
    assert_int_equal(read(file, bytes, (size_t)status.st_size), status.st_size);
    int rc = scan_npz_decode(memory, UINT64_C(1) << 30, bytes, (size_t)status.st_size, wanted);
    assert_int_equal(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
    if (rc == 0)
        rc = scan_open(scan, memory, -1);
    free(bytes);
    close(file);
    close(memory);
    return rc;
}

static const struct scan_wanted plane = {.size = {8, 6}, .fov_mm = {80, 90}};

/* Readout r must hold row `row` of the coils from `coil` on, plus `more`. */
static void check_data(const struct scan *s, uint64_t r, int row, int coil, float more)
{
    const struct scan_readout *readout = &s->readouts[r];
    for (int c = 0; c < readout->coils; c++)
        for (int i = 0; i < SAMPLES; i++) {
            struct c32 v = s->data[readout->data + (size_t)(c * SAMPLES + i)];
            assert_true(v.re == (float)(100 * (c + coil) + 10 * row + i) + more && v.im == (float)(-i - 1));
        }
    for (int i = 0; i < SAMPLES; i++) {
        const float *k = s->traj + readout->traj + (size_t)(i * readout->traj_dims);
        assert_true(k[0] == (float)row / 8 && k[1] == (float)i / 16);
    }
}

static void check_good(const char *name, const struct scan *s)
{
    const struct scan_encoding *e = s->encodings;
    assert_int_equal(s->header->readouts, ROWS);
    assert_int_equal(s->header->headless, 1);
    assert_int_equal(s->header->ignored, strcmp(name, "others_too") == 0);
    assert_true(e->matrix[0] == 8 && e->matrix[1] == 6 && e->matrix[2] == 1 && e->fov_mm[0] == 80 &&
                e->fov_mm[1] == 90);
    assert_true(e->recon_matrix[1] == 6 && e->recon_fov_mm[0] == 80 && e->trajectory == SCAN_OTHER);
    for (uint64_t i = 0; i < ROWS; i++) {
        const struct scan_readout *r = &s->readouts[i];
        assert_true(r->samples == SAMPLES && r->coils == COILS && r->traj_dims == 2 && r->acquisition == i);
        assert_true(r->idx[SCAN_STEP1] == i && r->read_dir[0] == 1 && r->phase_dir[1] == 1 && r->slice_dir[2] == 1);
        check_data(s, i, (int)i, 0, 0);
    }
}

static void each_file_gives_the_result_in_the_manifest(void **state)
{
    char path[256], line[512], name[64], code[64], words[128];
    (void)state;
    snprintf(path, sizeof path, "%s/manifest", folder);
    FILE *manifest = fopen(path, "r");
    assert_non_null(manifest);
    int files = 0, bad = 0;
    for (; fgets(line, sizeof line, manifest); files++) {
        assert_int_equal(sscanf(line, "%63[^\t]\t%63[^\t]\t%127[^\n]", name, code, words), 3);
        struct scan scan = {0};
        int rc = decode(&scan, name, &plane);
        const char *seen = rc == 0 ? "ok" : err_name(rc);
        if (strcmp(seen, code) != 0 || (rc != 0 && strcmp(words, "-") != 0 && !strstr(err_last()->text, words))) {
            bad++;
            print_message("# %s: %s: \"%s\"; expected %s with \"%s\"\n", name, seen, rc == 0 ? "" : err_last()->text,
                          code, words);
        } else if (rc == 0) {
            check_good(name, &scan);
        }
        scan_close(&scan);
    }
    fclose(manifest);
    assert_int_equal(bad, 0);
    assert_true(files > 60);
}

static void the_matrix_size_is_required(void **state)
{
    struct scan scan = {0};
    const struct scan_wanted nothing = {.size = {0}};
    (void)state;
    assert_int_equal(decode(&scan, "stored", &nothing), ERR_BAD_PARAMETER);
    assert_non_null(strstr(err_last()->text, "size=X,Y"));
}

static void one_coil_needs_no_coil_axis(void **state)
{
    struct scan scan = {0};
    (void)state;
    assert_int_equal(decode(&scan, "coilless", &plane), 0);
    assert_int_equal(scan.header->readouts, ROWS);
    for (uint64_t i = 0; i < ROWS; i++) {
        assert_int_equal(scan.readouts[i].coils, 1);
        check_data(&scan, i, (int)i, 1, 0);
    }
    scan_close(&scan);
}

static void repetitions_share_the_trajectory(void **state)
{
    struct scan scan = {0};
    (void)state;
    assert_int_equal(decode(&scan, "repeated", &plane), 0);
    assert_int_equal(scan.header->readouts, 2 * ROWS);
    for (uint64_t i = 0; i < 2 * ROWS; i++) {
        assert_int_equal(scan.readouts[i].idx[SCAN_REPETITION], i / ROWS);
        check_data(&scan, i, (int)i % ROWS, 0, i < ROWS ? 0 : 1000);
    }
    scan_close(&scan);
}

/* kx and ky for a 3-D image: the file holds partitions that share the trajectory. */
static void partitions_share_the_trajectory(void **state)
{
    struct scan scan = {0};
    const struct scan_wanted space = {.size = {8, 6, 2}};
    (void)state;
    assert_int_equal(decode(&scan, "repeated", &space), 0);
    assert_int_equal(scan.encodings[0].partition_centre, 1);
    for (uint64_t i = 0; i < 2 * ROWS; i++) {
        assert_int_equal(scan.readouts[i].idx[SCAN_STEP2], i / ROWS);
        assert_int_equal(scan.readouts[i].idx[SCAN_REPETITION], 0);
        check_data(&scan, i, (int)i % ROWS, 0, i < ROWS ? 0 : 1000);
    }
    scan_close(&scan);
}

static void weights_are_a_column(void **state)
{
    struct scan scan = {0};
    (void)state;
    assert_int_equal(decode(&scan, "weighted", &plane), 0);
    for (uint64_t i = 0; i < ROWS; i++) {
        assert_int_equal(scan.readouts[i].traj_dims, 3);
        check_data(&scan, i, (int)i, 0, 0);
        for (int s = 0; s < SAMPLES; s++)
            assert_true(scan.traj[scan.readouts[i].traj + (size_t)(3 * s + 2)] == (float)i + (float)s / 4);
    }
    scan_close(&scan);
}

static void noise_is_flagged(void **state)
{
    struct scan scan = {0};
    (void)state;
    assert_int_equal(decode(&scan, "noisy", &plane), 0);
    const struct scan_readout *noise = scan.readouts;
    assert_int_equal(scan.header->readouts, 1 + ROWS);
    assert_true(noise->flags == 1 << (SCAN_NOISE - 1) && noise->traj_dims == 0 && noise->samples == ROWS * SAMPLES);
    for (int c = 0; c < COILS; c++)
        for (int i = 0; i < ROWS * SAMPLES; i++)
            assert_true(scan.data[noise->data + (size_t)(c * ROWS * SAMPLES + i)].re ==
                        (float)(100 * c + 10 * (i / SAMPLES) + i % SAMPLES + 1));
    for (int i = 0; i < ROWS; i++)
        check_data(&scan, (uint64_t)i + 1, i, 0, 0);
    scan_close(&scan);
}

static void long_readouts_become_segments(void **state)
{
    struct scan scan = {0};
    (void)state;
    assert_int_equal(decode(&scan, "long", &plane), 0);
    assert_int_equal(scan.header->readouts, 2);
    assert_int_equal(scan.readouts[0].samples + scan.readouts[1].samples, 70000);
    assert_int_equal(scan.readouts[1].idx[SCAN_SEGMENT], 1);
    for (size_t i = 0; i < 70000; i++)
        assert_true(scan.data[i].re == (float)i && scan.traj[2 * i] == (float)((double)i / 70000));
    scan_close(&scan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_gives_the_result_in_the_manifest),
        cmocka_unit_test(the_matrix_size_is_required),
        cmocka_unit_test(one_coil_needs_no_coil_axis),
        cmocka_unit_test(repetitions_share_the_trajectory),
        cmocka_unit_test(partitions_share_the_trajectory),
        cmocka_unit_test(weights_are_a_column),
        cmocka_unit_test(noise_is_flagged),
        cmocka_unit_test(long_readouts_become_segments),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
