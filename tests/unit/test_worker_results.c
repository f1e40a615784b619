/* daemon/worker/worker_results.h: how large results reach the disk; results that were written ahead. */
#include "daemon/worker/worker_results.h"
#include "gridding/base/err.h"
#include "recon/recon.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RESULT_BYTES = 200 << 20, HELD_BYTES = 64 << 20 };

/* The end of what was handed to the disk; the job is canceled with the first wait for it. */
static off_t submitted;
static int waits;
static atomic_bool canceled;
static bool cancels;

static struct result_files *asked; /* how much of them is written and synced */
static double least, most, part_at_end;

int sync_file_range(int fd, off_t offset, off_t count, unsigned flags)
{
    (void)fd;
    const off_t end = count ? offset + count : RESULT_BYTES;
    submitted = end > submitted ? end : submitted;
    if (flags & SYNC_FILE_RANGE_WAIT_AFTER) {
        const double part = result_files_part(asked);
        least = part < least ? part : least;
        most = part > most ? part : most;
        waits++;
        canceled = cancels;
    }
    return 0;
}

static int result_write(const void *of, int format, int fd)
{
    (void)of, (void)format;
    return ftruncate(fd, RESULT_BYTES);
}

static int written(bool cancel)
{
    struct result_files files = {.kind = kind_find("recon"), .fds = {memfd_create("result", MFD_CLOEXEC)}, .count = 1};
    struct job_outcome outcome = {
        .result = {{files.kind->results[0].name, NULL, result_write, NULL}}, .results = 1, .report = json_object()};
    atomic_ullong synced = 0;
    files.cancel = &canceled;
    files.most = RESULT_BYTES;
    files.synced = &synced;
    asked = &files;
    least = 1;
    most = 0;
    json_object_set_new(outcome.report, "stages", json_object());
    submitted = waits = 0;
    canceled = false;
    cancels = cancel;
    const int rc = result_files_write(&files, &outcome);
    part_at_end = result_files_part(&files);
    json_decref(outcome.report);
    close(files.fds[0]);
    return rc;
}

/* A disk that is busy with others holds a thread that hands it more: it gets few pieces at a time. */
static void a_cancel_finds_little_of_a_result_on_its_way_to_the_disk(void **state)
{
    (void)state;
    assert_int_equal(written(true), ERR_CANCELED);
    assert_int_equal(waits, 1);
    assert_true(submitted <= HELD_BYTES);
}

static void all_of_a_large_result_is_synced(void **state)
{
    (void)state;
    assert_int_equal(written(false), 0);
    assert_true(submitted >= RESULT_BYTES && waits > 1);
}

/* The first half of the way is the file, the second the disk. */
static void how_much_is_written_is_told(void **state)
{
    (void)state;
    assert_int_equal(written(false), 0);
    assert_true(least == 0.5 && most > 0.9 && most < 1 && part_at_end == 1);
}

static int short_write(const void *of, int format, int fd)
{
    (void)of, (void)format;
    return write(fd, "image", 5) == 5 ? 0 : ERR_INTERNAL;
}

/* A job whose only result is written by short_write(), and *names of its files; its report and they are the caller's.
 */
static struct job_outcome image_outcome(const struct kind *kind, json_t **names)
{
    char name[KIND_FILE_NAME];
    kind_file_name(kind, (struct result_file){0, 0}, name);
    *names = json_pack("[s]", name);
    return (struct job_outcome){.result = {{kind->results[0].name, NULL, short_write, NULL}},
                                .results = 1,
                                .report = json_pack("{s:{}}", "stages")};
}

/* What was written ahead may have been removed; a new file can have the same inode, and is empty. */
static void a_new_file_with_the_inode_of_a_written_one_is_written(void **state)
{
    (void)state;
    struct made_files made;
    struct result_files files;
    struct stat there;
    const struct kind *kind = kind_find("recon");
    json_t *names;
    struct job_outcome outcome = image_outcome(kind, &names);
    const int file = memfd_create("result", MFD_CLOEXEC), own = dup(file);
    assert_int_equal(made_files_create(&made, &files, kind, names, &own, 1), 0);
    assert_int_equal(result_files_write(&files, &outcome), 0);
    made_files_release(&made);
    files.fds[0] = file;
    assert_int_equal(made_files_copy(&made, &files, &outcome), 0);
    assert_true(fstat(file, &there) == 0 && there.st_size == 5);
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    assert_int_equal(made_files_copy(&made, &files, &outcome), 0);
    assert_true(fstat(file, &there) == 0 && there.st_size == 5);
    made_files_free(&made);
    json_decref(outcome.report);
    json_decref(names);
    close(file);
}

/* Writes behind what is there. */
static int rest_write(const void *of, int fd, int64_t at)
{
    (void)of;
    return pwrite(fd, "rest", 4, at) == 4 ? 0 : ERR_INTERNAL;
}

static void contents_are(int file, const char *expected)
{
    char there[16] = "";
    assert_true(pread(file, there, sizeof there - 1, 0) >= 0);
    assert_string_equal(there, expected);
}

/* The job has its own files, or others, when what it began ahead is finished. */
static void what_a_job_began_is_finished(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        struct made_files made;
        struct result_files files, of_job;
        const struct kind *kind = kind_find("recon");
        json_t *names;
        struct job_outcome outcome = image_outcome(kind, &names);
        const int own = memfd_create("result", MFD_CLOEXEC);
        const int file = same ? dup(own) : memfd_create("result", MFD_CLOEXEC);
        assert_int_equal(made_files_create(&made, &files, kind, names, &own, 1), 0);
        const struct job_room room = result_room_read(&files, NULL);
        assert_int_equal(room.fds[0], own);
        assert_int_equal(write(room.fds[0], "begun ", 6), 6);
        room.begun[0] = (struct job_begun){rest_write, 6};
        memcpy(made.begun, files.begun, sizeof files.begun);
        assert_int_equal(result_files_write(&files, &outcome), 0);
        contents_are(own, "begun rest");
        assert_int_equal(result_files_read(&of_job, kind, names, &file, 1), 0);
        made_files_hand(&made, &of_job);
        assert_int_equal(result_files_write(&of_job, &outcome), 0);
        contents_are(file, same ? "begun rest" : "image");
        made_files_free(&made);
        json_decref(outcome.report);
        json_decref(names);
        close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancel_finds_little_of_a_result_on_its_way_to_the_disk),
        cmocka_unit_test(how_much_is_written_is_told),
        cmocka_unit_test(all_of_a_large_result_is_synced),
        cmocka_unit_test(a_new_file_with_the_inode_of_a_written_one_is_written),
        cmocka_unit_test(what_a_job_began_is_finished),
    };
    return cmocka_run_group_tests_name("worker results", tests, NULL, NULL);
}
