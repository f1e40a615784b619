/* daemon/http/stream_body.h: when a body is announced to the scheduler, and when the worker is told to forget it. The
 * scheduler and the spool are stood in for here: they note what they are told. */
#include "daemon/http/stream_body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { SCAN = 1234, PIECE_MOST = 500 };

static struct {
    int announced, retracted, reopened, scan;
    enum wire_arriving arriving;
    bool unreadable;
    char id[JOB_ID], name[JOB_NAME], gone[JOB_ID];
    struct scheduler *scheduler;
} told;

void scheduler_announce(struct scheduler *scheduler, const struct job *job, int scan, enum wire_arriving arriving)
{
    told.announced++;
    told.scheduler = scheduler;
    told.scan = scan;
    told.arriving = arriving;
    memcpy(told.id, job->id, sizeof told.id);
    memcpy(told.name, job->name, sizeof told.name);
}

void scheduler_retract(struct scheduler *scheduler, const char *id)
{
    told.retracted++;
    told.scheduler = scheduler;
    memcpy(told.gone, id, strnlen(id, JOB_ID - 1) + 1);
}

int spool_reopen(struct spool_file *file, int *fd)
{
    (void)file;
    told.reopened++;
    *fd = SCAN;
    return told.unreadable ? err_set(ERR_IO, "The scan cannot be opened.") : 0;
}

static struct scheduler *const scheduler = (struct scheduler *)&told; /* only passed on */
static struct spool_file upload = {.id = "20260101-abc"};

/* ---- streams ---- */

static uint8_t stream[8192];
static size_t used, acquired; /* bytes; up to the end of the first acquisition after a header */

static void put(uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        stream[used++] = (uint8_t)(number >> 8 * i);
}

static void header_put(void)
{
    put(MRD_HEADER, 2);
    put(9, 4);
    memcpy(stream + used, "<ismrmrd>", 9);
    used += 9;
}

/* An acquisition of 5 samples, 3 coils and 2 columns of the trajectory. */
static void acquisition_put(void)
{
    uint8_t *head = stream + used + MRD_NUMBER_BYTES;
    put(MRD_ACQUISITION, 2);
    memset(head, 0, MRD_HEAD_MOST);
    head[34] = 5;
    head[38] = 3;
    head[176] = 2;
    used += MRD_HEAD_MOST;
    memset(stream + used, 0x5a, 5 * (2 * 4 + 3 * 8));
    used += 5 * (2 * 4 + 3 * 8);
}

/* A body of a header and three acquisitions, the last of them followed by CLOSE if `closed`. */
static void stream_make(bool closed)
{
    used = 0;
    put(MRD_TEXT, 2);
    put(2, 4);
    put(0x7d7b, 2);
    header_put();
    acquisition_put();
    acquired = used;
    acquisition_put();
    acquisition_put();
    if (closed)
        put(MRD_CLOSE, 2);
}

static struct job job_of(const char *kind)
{
    struct job job = {.name = "a scan"};
    snprintf(job.kind, sizeof job.kind, "%s", kind);
    return job;
}

static void begin(struct stream_body *body, const struct job *job)
{
    memset(&told, 0, sizeof told);
    stream_body_begin(body, scheduler, job, -1);
}

/* ---- tests ---- */

static void a_stream_is_announced_with_its_first_acquisition(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    for (size_t piece = 1; piece < PIECE_MOST; piece++) {
        struct stream_body body;
        stream_make(true);
        begin(&body, &job);
        for (size_t at = 0; at < used; at += piece) {
            const size_t end = at + piece < used ? at + piece : used;
            stream_body_add(&body, &job, &upload, stream + at, end - at);
            assert_int_equal(told.announced, end >= acquired);
        }
        assert_int_equal(told.reopened, 1);
        assert_true(told.scheduler == scheduler && told.scan == SCAN && told.arriving == ARRIVING_STREAM);
        assert_string_equal(told.id, upload.id);
        assert_string_equal(told.name, job.name);
        assert_string_equal(job.id, "");
        stream_body_end(&body);
        assert_int_equal(told.retracted, 0);
        stream_body_drop(&body); /* it becomes no job after all */
        assert_int_equal(told.retracted, 1);
        assert_string_equal(told.gone, upload.id);
        stream_body_drop(&body);
        assert_int_equal(told.retracted, 1);
    }
}

static void a_stream_that_comes_at_once_is_read_when_it_is_complete(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    struct stream_body body;
    stream_make(true);
    memcpy(stream + used, "more", 4); /* bytes after CLOSE are no message */
    begin(&body, &job);
    stream_body_add(&body, &job, &upload, stream, used + 4);
    stream_body_add(&body, &job, &upload, "more", 4);
    stream_body_end(&body);
    stream_body_drop(&body);
    assert_int_equal(told.announced + told.reopened + told.retracted, 0);
}

/* Neither a header without acquisition, nor the reverse, nor an incomplete acquisition, can be computed. */
static void what_cannot_be_computed_is_not_announced(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    for (int order = 0; order < 3; order++) {
        struct stream_body body;
        used = 0;
        begin(&body, &job);
        if (order == 0)
            acquisition_put();
        header_put();
        if (order == 2)
            acquisition_put();
        stream_body_add(&body, &job, &upload, stream, used - (order == 2));
        assert_int_equal(told.announced, 0);
        const size_t before = used - (order == 2);
        if (order != 2)
            acquisition_put();
        stream_body_add(&body, &job, &upload, stream + before, used - before);
        assert_int_equal(told.announced, 1);
    }
}

static void a_body_without_an_end_is_forgotten(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    struct stream_body body;
    stream_make(false);
    begin(&body, &job);
    stream_body_add(&body, &job, &upload, stream, used);
    assert_int_equal(told.announced, 1);
    assert_int_equal(told.retracted, 0);
    stream_body_end(&body);
    assert_int_equal(told.retracted, 1);
    assert_string_equal(told.gone, upload.id);
}

static void a_body_that_turns_out_to_be_no_stream_is_forgotten(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    struct stream_body body;
    stream_make(false);
    put(4711, 2);
    acquisition_put();
    begin(&body, &job);
    stream_body_add(&body, &job, &upload, stream, acquired);
    assert_int_equal(told.announced, 1);
    stream_body_add(&body, &job, &upload, stream + acquired, used - acquired);
    assert_int_equal(told.retracted, 1);
    stream_body_add(&body, &job, &upload, stream, used); /* nothing brings it back */
    stream_body_end(&body);
    assert_int_equal(told.announced, 1);
    assert_int_equal(told.retracted, 1);
    begin(&body, &job);
    stream_body_add(&body, &job, &upload, "\x89HDF\r\n\x1a\n", 8);
    stream_body_add(&body, &job, &upload, stream, used);
    stream_body_end(&body);
    assert_int_equal(told.announced + told.retracted, 0);
}

/* A body that begins as an HDF5 file of `length` bytes does, in pieces; returns its announcements. */
static int file_pass(struct stream_body *body, const struct job *job, int64_t length, size_t bytes, size_t piece)
{
    static uint8_t file[4096];
    memset(file, 0x5a, sizeof file);
    memcpy(file, "\x89HDF\r\n\x1a\n\0", 9);
    file[13] = sizeof length;
    memcpy(file + 40, &length, sizeof length);
    for (size_t at = 0; at < bytes; at += piece)
        stream_body_add(body, job, &upload, file + at, at + piece < bytes ? piece : bytes - at);
    return told.announced;
}

static void begin_file(struct stream_body *body, const struct job *job, int64_t bytes)
{
    memset(&told, 0, sizeof told);
    stream_body_begin(body, scheduler, job, bytes);
}

static void an_hdf5_file_is_announced_with_its_first_bytes(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    for (size_t piece = 1; piece < 3 * H5_LENGTH_HEAD; piece++) {
        struct stream_body body;
        begin_file(&body, &job, 4096);
        assert_int_equal(file_pass(&body, &job, 4096, 4096, piece), 1);
        assert_true(told.scheduler == scheduler && told.scan == SCAN && told.arriving == ARRIVING_FILE);
        assert_string_equal(told.id, upload.id);
        stream_body_end(&body);
        assert_int_equal(told.retracted, 0);
        begin_file(&body, &job, 4096); /* nothing is announced before the head is there */
        assert_int_equal(file_pass(&body, &job, 4096, H5_LENGTH_HEAD - 1, piece), 0);
    }
}

static void an_hdf5_file_that_ends_too_early_is_forgotten(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    struct stream_body body;
    begin_file(&body, &job, 4096);
    assert_int_equal(file_pass(&body, &job, 4096, 4095, 1000), 1);
    stream_body_end(&body);
    assert_int_equal(told.retracted, 1);
}

/* Of a body whose length is unknown (the file's may be undefined, -1), is not the file's, or is large; which is there
 * at once, or of a kind that would read it otherwise. */
static void other_hdf5_files_are_read_when_they_are_complete(void **state)
{
    (void)state;
    const struct {
        const char *kind;
        int64_t body, file;
        size_t piece;
    } cases[] = {{"recon", -1, 4096, 100},   {"recon", 4096, 4095, 100},
                 {"recon", 4096, 8192, 100}, {"recon", INT64_C(1) << 30, INT64_C(1) << 30, 100},
                 {"recon", -1, -1, 100},     {"recon", 4096, 4096, 4096},
                 {"nbody", 4096, 4096, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct job job = job_of(cases[i].kind);
        struct stream_body body;
        begin_file(&body, &job, cases[i].body);
        assert_int_equal(file_pass(&body, &job, cases[i].file, 4096, cases[i].piece), 0);
        stream_body_end(&body);
        stream_body_drop(&body);
        assert_int_equal(told.retracted, 0);
    }
}

static void kinds_that_read_no_streams_announce_nothing(void **state)
{
    (void)state;
    static const char *const others[] = {"nbody", "no such kind"};
    stream_make(false);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct job job = job_of(others[i]);
        struct stream_body body;
        begin(&body, &job);
        stream_body_add(&body, &job, &upload, stream, used);
        stream_body_end(&body);
        stream_body_drop(&body);
        assert_int_equal(told.announced + told.reopened + told.retracted, 0);
    }
}

/* Without a descriptor nothing is announced, and nothing is to be forgotten; the next bytes try again. */
static void a_file_that_cannot_be_opened_again_is_announced_later(void **state)
{
    (void)state;
    const struct job job = job_of("recon");
    struct stream_body body;
    stream_make(true);
    begin(&body, &job);
    told.unreadable = true;
    stream_body_add(&body, &job, &upload, stream, acquired);
    assert_int_equal(told.reopened, 1);
    assert_int_equal(told.announced, 0);
    told.unreadable = false;
    stream_body_add(&body, &job, &upload, stream + acquired, 1);
    assert_int_equal(told.announced, 1);
    stream_body_add(&body, &job, &upload, stream + acquired + 1, used - acquired - 1);
    stream_body_end(&body);
    assert_int_equal(told.announced, 1);
    assert_int_equal(told.retracted, 0);
}

static void a_body_of_zeroes_can_be_dropped(void **state)
{
    (void)state;
    struct stream_body body = {.scheduler = NULL};
    memset(&told, 0, sizeof told);
    stream_body_drop(&body);
    stream_body_end(&body);
    assert_int_equal(told.retracted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_announced_with_its_first_acquisition),
        cmocka_unit_test(a_stream_that_comes_at_once_is_read_when_it_is_complete),
        cmocka_unit_test(what_cannot_be_computed_is_not_announced),
        cmocka_unit_test(a_body_without_an_end_is_forgotten),
        cmocka_unit_test(a_body_that_turns_out_to_be_no_stream_is_forgotten),
        cmocka_unit_test(an_hdf5_file_is_announced_with_its_first_bytes),
        cmocka_unit_test(an_hdf5_file_that_ends_too_early_is_forgotten),
        cmocka_unit_test(other_hdf5_files_are_read_when_they_are_complete),
        cmocka_unit_test(kinds_that_read_no_streams_announce_nothing),
        cmocka_unit_test(a_file_that_cannot_be_opened_again_is_announced_later),
        cmocka_unit_test(a_body_of_zeroes_can_be_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
