/* daemon/spool/spool_writer.h: the bytes of uploads, their order, failed writes, and calls that wait for them. */
#include "daemon/spool/spool_writer.h"
#include "tests/unit/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BODY = 3 << 20, LIMIT = 64 << 20, PIECE = 100 << 10 };

/* ---- the disk ---- */

/* Writes of *.part by other threads than the test's can be held, slow, or fail. */
static struct disk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t test;
    bool held;
    int slow_ms, fails_at;  /* number of the write of the writer that fails; 0: none */
    int own, behind, stray; /* writes by the test's thread, by others, and to what is no such file */
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool is_part(int fd)
{
    char link[32], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 5 && strcmp(path + length - 5, ".part") == 0;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    pthread_mutex_lock(&disk.lock);
    const bool behind = !pthread_equal(pthread_self(), disk.test);
    const int number = behind ? ++disk.behind : disk.own + is_part(fd);
    if (!behind)
        disk.own = number;
    while (behind && disk.held)
        pthread_cond_wait(&disk.changed, &disk.lock);
    const int ms = behind ? disk.slow_ms : 0;
    const bool fails = behind && number == disk.fails_at;
    pthread_mutex_unlock(&disk.lock);
    usleep((useconds_t)(1000 * ms));
    pthread_mutex_lock(&disk.lock);
    disk.stray += behind && !is_part(fd);
    pthread_mutex_unlock(&disk.lock);
    errno = ENOSPC;
    return fails ? -1 : syscall(SYS_write, fd, data, bytes);
}

static void hold(bool held)
{
    pthread_mutex_lock(&disk.lock);
    disk.held = held;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

/* ---- the tests ---- */

struct fixture {
    char folder[FOLDER];
    struct spool *spool;
    uint8_t *body;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    f->body = malloc(BODY);
    for (int i = 0; i < BODY; i++)
        f->body[i] = (uint8_t)(i * 7 + i / 256 + i / 65521);
    disk.test = pthread_self();
    disk.held = false;
    disk.slow_ms = disk.fails_at = disk.own = disk.behind = disk.stray = 0;
    return folder_make(f->folder, "writer") ? spool_create(&f->spool, f->folder, BODY, LIMIT, 0) : -1;
}

/* No byte went to the descriptor of a file that was closed, or to a file that had its final name. */
static int teardown(void **state)
{
    struct fixture *f = *state;
    spool_free(f->spool);
    const int stray = disk.stray, result = folder_drop(f->folder);
    free(f->body);
    free(f);
    return stray ? -1 : result;
}

static bool is_whole(const struct fixture *f, int fd, int64_t bytes)
{
    struct stat there;
    uint8_t *back = malloc((size_t)bytes);
    const bool whole = fstat(fd, &there) == 0 && there.st_size == bytes && pread(fd, back, (size_t)bytes, 0) == bytes &&
                       memcmp(back, f->body, (size_t)bytes) == 0;
    free(back);
    close(fd);
    return whole;
}

static bool is_kept(const struct fixture *f, const struct spool_file *file, int64_t bytes)
{
    int fd;
    return spool_open(f->spool, file->id, &fd) == 0 && is_whole(f, fd, bytes);
}

/* Append the next `bytes` of the body. */
static int add(const struct fixture *f, struct spool_file *file, int64_t bytes)
{
    return spool_append(file, f->body + file->bytes, (size_t)bytes);
}

/* An upload of BODY bytes begins; its first bytes are there. */
static void begin(const struct fixture *f, struct spool_file *file)
{
    assert_int_equal(spool_begin(f->spool, BODY, file), 0);
    const int before = disk.own;
    assert_int_equal(add(f, file, 1000), 0);
    assert_int_equal(disk.own, before + 1);
}

static void the_bytes_stay_in_order(void **state)
{
    struct fixture *f = *state;
    struct spool_file file;
    assert_int_equal(spool_writer_start(f->spool), 0);
    begin(f, &file);
    for (int64_t i = 0, step; file.bytes < BODY; i++) {
        step = i % 5 == 4 ? 700 << 10 : 1 + i * 7919 % PIECE; /* also more than a buffer at a time */
        assert_int_equal(add(f, &file, step < BODY - file.bytes ? step : BODY - file.bytes), 0);
    }
    assert_int_equal(spool_finish(&file), 0);
    assert_true(is_kept(f, &file, BODY));
    assert_true(disk.behind > 10 && disk.own == 1);
    assert_true(f->spool->used == BODY);
}

static void bytes_arrive_while_others_are_written(void **state)
{
    struct fixture *f = *state;
    struct spool_file file;
    int fd;
    assert_int_equal(spool_writer_start(f->spool), 0);
    begin(f, &file);
    hold(true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(add(f, &file, PIECE), 0);
    assert_true(file.bytes == 1000 + 4 * PIECE);
    disk.slow_ms = 5;
    hold(false);
    assert_int_equal(spool_reopen(&file, &fd), 0); /* all that has arrived is there to be read */
    assert_true(is_whole(f, fd, file.bytes));
    assert_int_equal(add(f, &file, BODY - file.bytes), 0);
    assert_int_equal(spool_finish(&file), 0);
    assert_true(is_kept(f, &file, BODY));
}

static void small_uploads_and_those_of_unknown_length_are_written_at_once(void **state)
{
    struct fixture *f = *state;
    struct spool_file small, unknown;
    assert_int_equal(spool_writer_start(f->spool), 0);
    assert_int_equal(spool_begin(f->spool, SPOOL_BEHIND_LEAST - 1, &small), 0);
    assert_int_equal(spool_begin(f->spool, -1, &unknown), 0);
    for (int i = 0; i < 4; i++)
        assert_true(add(f, &small, PIECE) == 0 && add(f, &unknown, PIECE) == 0);
    assert_true(disk.own == 8 && disk.behind == 0);
    spool_abort(&small);
    spool_abort(&unknown);
}

static void without_a_writer_all_are(void **state)
{
    struct fixture *f = *state;
    struct spool_file file;
    begin(f, &file);
    assert_int_equal(add(f, &file, BODY - 1000), 0);
    assert_int_equal(spool_finish(&file), 0);
    assert_true(is_kept(f, &file, BODY) && disk.behind == 0);
}

static bool tells_of_the_disk(int rc)
{
    return rc == ERR_SPOOL_FULL && err_last()->code == ERR_SPOOL_FULL && strstr(err_last()->text, "disk");
}

static void a_failed_write_is_told_by_the_next_call(void **state)
{
    struct fixture *f = *state;
    int fd;
    assert_int_equal(spool_writer_start(f->spool), 0);
    for (int which = 0; which < 3; which++) {
        struct spool_file file;
        begin(f, &file);
        disk.behind = 0;
        disk.fails_at = 2;
        hold(true);
        for (int i = 0; i < 4; i++)
            assert_int_equal(add(f, &file, PIECE), 0);
        hold(false);
        err_set(ERR_INTERNAL, "Another failure of this thread.");
        if (which == 0) {
            int rc = 0; /* or by one after that: bytes may find a place before the write fails */
            for (int i = 0; i < 8 && !rc; i++)
                rc = add(f, &file, PIECE);
            assert_true(tells_of_the_disk(rc));
        } else {
            assert_true(tells_of_the_disk(which == 1 ? spool_reopen(&file, &fd) : spool_finish(&file)));
        }
        assert_true(tells_of_the_disk(add(f, &file, 1)));
        assert_true(tells_of_the_disk(spool_finish(&file)));
        assert_int_equal(disk.behind, 2); /* what waited then was not written */
        assert_true(spool_is_suspect(f->spool));
        char id[JOB_ID];
        memcpy(id, file.id, sizeof id);
        spool_abort(&file);
        assert_true(f->spool->used == 0);
        assert_int_equal(spool_open(f->spool, id, &fd), ERR_SCAN_GONE);
    }
    struct spool_file file; /* the writer writes on */
    begin(f, &file);
    assert_int_equal(add(f, &file, BODY - 1000), 0);
    assert_int_equal(spool_finish(&file), 0);
    assert_true(is_kept(f, &file, BODY));
}

static int parts_count(const struct fixture *f)
{
    char command[128];
    int count = -1;
    snprintf(command, sizeof command, "ls %s/spool | wc -l", f->folder);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    assert_int_equal(fscanf(list, "%d", &count), 1);
    pclose(list);
    return count;
}

static void an_upload_is_given_up_or_finished_while_its_bytes_wait(void **state)
{
    struct fixture *f = *state;
    struct spool_file file;
    assert_int_equal(spool_writer_start(f->spool), 0);
    disk.slow_ms = 5;
    begin(f, &file);
    assert_int_equal(add(f, &file, 3 * PIECE), 0);
    spool_abort(&file);
    assert_true(f->spool->used == 0);
    assert_int_equal(parts_count(f), 0);
    begin(f, &file);
    assert_int_equal(add(f, &file, BODY - 1000), 0);
    assert_int_equal(spool_finish(&file), 0);
    assert_true(is_kept(f, &file, BODY));
}

static void other_uploads_are_written_by_their_own_threads_while_it_is_taken(void **state)
{
    struct fixture *f = *state;
    struct spool_file files[3];
    assert_int_equal(spool_writer_start(f->spool), 0);
    for (int i = 0; i < 3; i++)
        begin(f, &files[i]);
    disk.own = 0;
    hold(true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(add(f, &files[i], i ? PIECE : 1 << 20), 0); /* of the first all that can wait */
    assert_int_equal(disk.own, 2);
    hold(false);
    assert_int_equal(spool_settle(&files[0]), 0);
    /* Nothing of the first waits any more: the writer is free for another, and then taken for the first. */
    hold(true);
    assert_int_equal(add(f, &files[1], 2 * PIECE), 0);
    assert_int_equal(disk.own, 2);
    assert_int_equal(add(f, &files[0], PIECE), 0);
    assert_int_equal(disk.own, 3);
    /* Who has no piece there waits for none, also to be given up. */
    assert_int_equal(spool_settle(&files[0]), 0);
    spool_abort(&files[2]);
    hold(false);
    assert_int_equal(add(f, &files[1], BODY - files[1].bytes), 0);
    assert_int_equal(spool_finish(&files[1]), 0);
    assert_int_equal(add(f, &files[0], BODY - files[0].bytes), 0);
    assert_int_equal(disk.own, 3);
    assert_int_equal(spool_finish(&files[0]), 0);
    assert_true(is_kept(f, &files[0], BODY) && is_kept(f, &files[1], BODY));
    assert_true(f->spool->used == 2 * BODY);
}

static void *upload_run(void *context)
{
    const struct fixture *f = context;
    for (int turn = 0; turn < 6; turn++) {
        struct spool_file file;
        const bool whole = turn % 3 != 2;
        int rc = spool_begin(f->spool, BODY, &file);
        for (int i = 0; !rc && file.bytes < (whole ? BODY : BODY / 2); i++) {
            const int64_t step = 1 + (i * 37 + turn) * 7919LL % (2 * PIECE), left = BODY - file.bytes;
            rc = add(f, &file, step < left ? step : left);
        }
        if (!rc && whole)
            rc = spool_finish(&file);
        if (rc || (whole && !is_kept(f, &file, BODY)))
            return "an upload is not as it was sent";
        char id[JOB_ID];
        memcpy(id, file.id, sizeof id);
        if (whole)
            spool_remove(f->spool, id);
        else
            spool_abort(&file);
    }
    return NULL;
}

static void many_uploads_share_the_writer(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[5];
    assert_int_equal(spool_writer_start(f->spool), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, upload_run, f), 0);
    for (int i = 0; i < 5; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_true(f->spool->used == 0);
    assert_int_equal(parts_count(f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_bytes_stay_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_arrive_while_others_are_written, setup, teardown),
        cmocka_unit_test_setup_teardown(small_uploads_and_those_of_unknown_length_are_written_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_writer_all_are, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_is_told_by_the_next_call, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_is_given_up_or_finished_while_its_bytes_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(other_uploads_are_written_by_their_own_threads_while_it_is_taken, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(many_uploads_share_the_writer, setup, teardown),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
