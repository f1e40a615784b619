/* daemon/queue/convert.h: a result in a further format is written and counted once. The codec is the test program
 * itself, run with "convert". */
#include "daemon/queue/convert.h"
#include "tests/unit/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const char id[] = "00000000000000000000000001", written[] = "converted";

enum { HANGS_SECONDS = 60 }; /* a test that waits longer than this has hung */

struct fixture {
    char folder[FOLDER], program[256];
    struct spool *spool;
    struct store *store;
    struct waiters *waiters;
    struct log log;
    struct converter *converter;
};

/* A job that has succeeded, with its native image. */
static void job_add(struct fixture *f)
{
    struct job job = {.bytes = 1, .client = "one", .kind = "recon", .priority = PRIORITY_NORMAL};
    int file[KIND_MAX_FILES];
    bool found;
    memcpy(job.id, id, sizeof job.id);
    job.parameters = json_object();
    job.formats = json_array();
    assert_int_equal(store_submit(f->store, &job, 10), 0);
    job_clear(&job);
    assert_int_equal(store_claim(f->store, NULL, NULL, &job, &found), 0);
    assert_true(found);
    job_clear(&job);
    json_t *names = json_pack("[s]", "image.h5"), *results = NULL;
    assert_int_equal(spool_results_begin(f->spool, id, names, file), 0);
    json_decref(names);
    assert_int_equal(write(file[0], "image", 5), 5);
    close(file[0]);
    assert_int_equal(spool_results_publish(f->spool, id, kind_find("recon"), 1, &results), 0);
    assert_int_equal(store_succeed(f->store, id, results, NULL), 0);
    json_decref(results);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char path[FOLDER + 16];
    const ssize_t length = readlink("/proc/self/exe", f->program, sizeof f->program - 1);
    if (length <= 0 || !folder_make(f->folder, "convert"))
        return -1;
    log_init(&f->log, (enum log_level) - 1, false);
    *state = f;
    snprintf(path, sizeof path, "%s/jobs.db", f->folder);
    if (spool_create(&f->spool, f->folder, 1 << 20, 0, 0) || store_create(&f->store, path) ||
        waiters_create(&f->waiters) ||
        converter_create(&f->converter, f->program, HANGS_SECONDS, f->spool, f->store, f->waiters, &f->log))
        return -1;
    job_add(f);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    converter_free(f->converter);
    waiters_free(f->waiters);
    store_free(f->store);
    spool_free(f->spool);
    const int result = folder_drop(f->folder);
    free(f);
    return result;
}

static int64_t result_bytes(struct fixture *f)
{
    struct kept kept;
    store_kept(f->store, &kept);
    return kept.result_bytes;
}

/* Ask for a file, and wait for the end of its conversion. */
static void convert(struct fixture *f, const struct conversion *what)
{
    char key[WAITER_KEY];
    uint64_t ticket = 0;
    struct waiter waiter;
    struct pollfd woken = {.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN};
    conversion_key(what, key);
    assert_true(waiters_enter(f->waiters, &waiter, woken.fd, key, INFINITY));
    assert_int_equal(converter_ask(f->converter, what, "one", &ticket), 0);
    assert_int_equal(poll(&woken, 1, 1000 * HANGS_SECONDS), 1);
    close(woken.fd);
}

/* A request that looked for the file just before it was there asks when its conversion has ended. */
static void a_file_that_was_asked_for_too_late_is_counted_once(void **state)
{
    struct fixture *f = *state;
    struct conversion what = {.kind = kind_find("recon"), .file = {0, 1}};
    char name[SPOOL_NAME];
    int fd;
    int64_t bytes, stamp, again;
    memcpy(what.id, id, sizeof what.id);
    conversion_name(&what, name);
    assert_int_equal(result_bytes(f), 5);
    convert(f, &what);
    assert_int_equal(spool_result_open(f->spool, id, name, &fd, &bytes, &stamp), 0);
    close(fd);
    assert_int_equal(bytes, sizeof written - 1);
    assert_int_equal(result_bytes(f), 5 + bytes);
    convert(f, &what);
    assert_int_equal(result_bytes(f), 5 + bytes);
    assert_int_equal(spool_result_open(f->spool, id, name, &fd, &bytes, &again), 0);
    close(fd);
    assert_int_equal(again, stamp); /* the ETag of what was sent stays that of the file */
}

int main(int count, char **arguments)
{
    if (count > 5 && strcmp(arguments[1], "convert") == 0) {
        FILE *out = fopen(arguments[5], "w");
        return !out || fputs(written, out) < 0 || fclose(out) != 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_that_was_asked_for_too_late_is_counted_once, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
