/* Native files that a GPU's job begins while it computes: a pretended GPU with the CPU's leaves. */
#include "gridding/base/dev_leaf.h"
#include "recon/result_file.h"
#include "tests/unit/recon_fixture.h"

#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NX = 16, NY = 12, COILS = 3 };

/* The files of the next job. */
static const struct result_file named[] = {
    {RECON_RESULT_IMAGE, IMAGE_H5}, {RECON_RESULT_IMAGE, IMAGE_PNG}, {RECON_RESULT_MAPS, IMAGE_H5}};
enum { IMAGE, PICTURE, MAPS, FILES };
static int fds[FILES];
static struct job_begun begun[FILES];

static void files_open(int count)
{
    memset(begun, 0, sizeof begun);
    for (int i = 0; i < count; i++)
        fds[i] = memfd_create("result", MFD_CLOEXEC);
    space = (struct job_room){.files = named, .count = count, .fds = fds, .begun = begun};
}

static void files_close(void)
{
    for (int i = 0; i < space.count; i++)
        close(fds[i]);
    space = (struct job_room){.count = 0};
    assert_int_equal(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
}

static off_t bytes_of(int fd)
{
    return lseek(fd, 0, SEEK_END);
}

/* Two images of three coils, with a header. */
static void scan_make(struct flat *flat)
{
    flat_init(flat, NX, NY, 1);
    flat->scan.xml = "<ismrmrdHeader/>";
    for (int i = 0; i < 6; i++) {
        struct scan_readout *readout = random_readout(flat, 40, COILS, 2, 2);
        readout->idx[SCAN_REPETITION] = (uint16_t)(i / 3);
        readout->position[2] = 7;
        readout->read_dir[0] = readout->phase_dir[1] = readout->slice_dir[2] = 1;
    }
}

static int job_run(struct flat *flat, const char *parameters, struct job_outcome *out,
                   const struct job_listener *listener)
{
    dev->gpu = true;
    int rc = run(flat, parameters, out, listener);
    dev->gpu = false;
    return rc;
}

static void refused_as_truncated(int fd)
{
    struct image_series *none = NULL;
    assert_int_equal(image_read_h5_fd(&none, fd), ERR_MALFORMED_FILE);
}

/* The file has all of the series. */
static void file_has(int fd, const struct image_series *series)
{
    struct image_series *back = NULL;
    assert_int_equal(image_read_h5_fd(&back, fd), 0);
    const size_t values = series->count * series->channels * NX * NY * (series->complex_valued ? 2 : 1);
    assert_true(back->count == series->count && back->channels == series->channels);
    assert_true(back->complex_valued == series->complex_valued && back->phases == series->phases);
    assert_memory_equal(back->size, series->size, sizeof back->size);
    assert_memory_equal(back->data, series->data, values * sizeof(float));
    assert_memory_equal(back->info, series->info, series->count * sizeof *back->info);
    assert_string_equal(back->xml, "<ismrmrdHeader/>");
    image_series_free(back);
}

static void a_begun_file_lacks_only_the_pixels(void **state)
{
    (void)state;
    static const char *const parameters[] = {"dcf=none coils=adaptive results=image,maps",
                                             "dcf=none coils=adaptive results=image,maps output=complex",
                                             "dcf=none coils=adaptive results=image,maps output=phase"};
    struct flat flat;
    scan_make(&flat);
    for (size_t p = 0; p < sizeof parameters / sizeof *parameters; p++) {
        struct job_outcome out = {0};
        files_open(FILES);
        assert_int_equal(job_run(&flat, parameters[p], &out, NULL), 0);
        assert_null(begun[PICTURE].finish);
        assert_int_equal(bytes_of(fds[PICTURE]), 0);
        for (int i = 0; i < FILES; i += MAPS) {
            const struct job_result *result = job_outcome_find(&out, i == IMAGE ? "image" : "maps");
            const int other = memfd_create("whole", MFD_CLOEXEC);
            assert_non_null(begun[i].finish);
            refused_as_truncated(fds[i]);
            assert_int_equal(begun[i].finish(result->of, fds[i], begun[i].at), 0);
            file_has(fds[i], result->of);
            assert_int_equal(result->write(result->of, IMAGE_H5, other), 0);
            file_has(other, result->of);
            assert_int_equal(bytes_of(fds[i]), bytes_of(other));
            close(other);
        }
        drop(&out);
        files_close();
    }
    flat_free(&flat);
}

/* On a CPU; a file that has bytes; a disk that is full: these are written as a whole in the end. */
static void some_are_not_begun(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    scan_make(&flat);
    files_open(1);
    succeed(&flat, "dcf=none", &out);
    assert_null(begun[IMAGE].finish);
    assert_int_equal(bytes_of(fds[IMAGE]), 0);
    drop(&out);
    assert_int_equal(write(fds[IMAGE], "used", 4), 4);
    assert_int_equal(job_run(&flat, "dcf=none", &out, NULL), 0);
    assert_null(begun[IMAGE].finish);
    assert_int_equal(bytes_of(fds[IMAGE]), 4);
    drop(&out);
    close(fds[IMAGE]);
    fds[IMAGE] = open("/dev/full", O_RDWR | O_CLOEXEC);
    assert_int_equal(job_run(&flat, "dcf=none", &out, NULL), 0);
    assert_null(begun[IMAGE].finish);
    drop(&out);
    files_close();
    assert_int_equal(job_run(&flat, "dcf=none", &out, NULL), 0);
    drop(&out);
    flat_free(&flat);
}

/* The disk is full for the pixels only. Then the same may be tried again. */
static void a_disk_that_is_full_in_the_end(void **state)
{
    (void)state;
    struct flat flat;
    struct job_outcome out = {0};
    struct rlimit kept, small;
    scan_make(&flat);
    files_open(1);
    assert_int_equal(job_run(&flat, "dcf=none", &out, NULL), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
    small = kept;
    small.rlim_cur = (rlim_t)begun[IMAGE].at + 100;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int rc = begun[IMAGE].finish(images_of(&out), fds[IMAGE], begun[IMAGE].at);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
    assert_int_equal(rc, ERR_SPOOL_FULL);
    refused_as_truncated(fds[IMAGE]);
    assert_int_equal(begun[IMAGE].finish(images_of(&out), fds[IMAGE], begun[IMAGE].at), 0);
    file_has(fds[IMAGE], images_of(&out));
    drop(&out);
    files_close();
    flat_free(&flat);
}

static int stop_at(void *left, const struct step_progress *now)
{
    (void)now;
    return --*(int *)left < 0;
}

/* Whenever a job is canceled, before its files are begun or after, no HDF5 file stays open, and the files are empty;
 * one whose pixels are canceled cannot be read. */
static void a_cancel_leaves_no_half_of_a_file(void **state)
{
    (void)state;
    struct flat flat;
    int rc = ERR_CANCELED, stopped = 0;
    scan_make(&flat);
    for (int steps = 0; rc == ERR_CANCELED; steps++) {
        struct job_outcome out = {0};
        int left = steps;
        const struct job_listener listener = {&left, stop_at};
        files_open(1);
        rc = job_run(&flat, "dcf=none", &out, &listener);
        assert_true(rc == ERR_CANCELED || rc == 0);
        if (rc == 0)
            refused_as_truncated(fds[IMAGE]);
        else
            assert_true(!begun[IMAGE].finish && bytes_of(fds[IMAGE]) == 0);
        stopped += rc == ERR_CANCELED;
        drop(&out);
        files_close();
    }
    assert_true(stopped > 3);
    const atomic_bool cancel = true;
    struct job_outcome out = {0};
    files_open(1);
    assert_int_equal(job_run(&flat, "dcf=none", &out, NULL), 0);
    result_cancel_by(&cancel);
    assert_int_equal(begun[IMAGE].finish(images_of(&out), fds[IMAGE], begun[IMAGE].at), ERR_CANCELED);
    result_cancel_by(NULL);
    refused_as_truncated(fds[IMAGE]);
    drop(&out);
    files_close();
    flat_free(&flat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_begun_file_lacks_only_the_pixels, random_reset),
        cmocka_unit_test_setup(some_are_not_begun, random_reset),
        cmocka_unit_test_setup(a_disk_that_is_full_in_the_end, random_reset),
        cmocka_unit_test_setup(a_cancel_leaves_no_half_of_a_file, random_reset),
    };
    return cmocka_run_group_tests_name("recon files", tests, device_open, device_close);
}
