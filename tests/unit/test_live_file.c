/* daemon/worker/worker_results.h: a live file, to which images are appended in pieces. */
#include "daemon/wire.h"
#include "daemon/worker/worker_results.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* A part is a beginning, in memory of its own, and a body. */
enum { PARTS = 3, BEGINS = 10, BYTES = 40000, ALL = PARTS * BYTES };

struct fixture {
    int memory; /* the file; file.fd becomes -1 where nothing more can be sent */
    struct live_file file;
    int pair[2]; /* the worker's end, and the daemon's */
    unsigned char bytes[ALL], beginning[BEGINS];
    struct job_parts parts;
    size_t broken; /* the part that cannot be sent */
};

static const void *piece(void *of, size_t part, size_t at, size_t *count)
{
    struct fixture *f = of;
    assert_true(part < PARTS && at < BYTES);
    if (part == f->broken)
        return NULL;
    *count = (at < BEGINS ? BEGINS : BYTES) - at;
    if (at >= BEGINS)
        return f->bytes + part * BYTES + at;
    memcpy(f->beginning, f->bytes + part * BYTES, BEGINS);
    return f->beginning + at;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!f || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, f->pair) != 0)
        return -1;
    for (size_t i = 0; i < ALL; i++)
        f->bytes[i] = (unsigned char)(i * i >> 5);
    f->parts = (struct job_parts){BYTES, piece, f};
    f->broken = PARTS;
    f->memory = memfd_create("live", MFD_CLOEXEC);
    f->file = (struct live_file){.fd = f->memory, .socket = f->pair[0], .id = "job"};
    return f->memory < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    close(f->memory);
    close(f->pair[0]);
    close(f->pair[1]);
    free(f);
    return 0;
}

/* Show, and what the daemon is told: so many bytes; -1: nothing. They must be those of the parts. */
static void show(struct fixture *f, size_t count, size_t more, json_int_t told)
{
    json_t *message = NULL;
    int fds[WIRE_FDS], fd_count = 0;
    unsigned char *there = malloc(ALL + 1);
    live_file_show(&f->file, &f->parts, count, more);
    const int rc = wire_receive(f->pair[1], &message, fds, &fd_count);
    if (told < 0) {
        assert_int_not_equal(rc, 0);
    } else {
        assert_int_equal(rc, 0);
        assert_string_equal(json_string_value(json_object_get(message, "type")), "shown");
        assert_string_equal(json_string_value(json_object_get(message, "id")), "job");
        assert_int_equal(json_integer_value(json_object_get(message, "bytes")), told);
        assert_int_equal(pread(f->memory, there, ALL + 1, 0), told);
        assert_memory_equal(there, f->bytes, (size_t)told);
    }
    json_decref(message);
    free(there);
}

static void parts_are_appended_and_told_piece_by_piece(void **state)
{
    struct fixture *f = *state;
    show(f, 0, 5, 5);
    show(f, 0, 5, -1);
    show(f, 0, 20000, 20000);
    show(f, 1, 0, BYTES);
    show(f, 2, 100, 2 * BYTES + 100);
    show(f, 3, 0, ALL);
    show(f, 3, 0, -1);
}

/* A worker that has the job after another one, which has reported `bytes`. */
static void taken_over(struct fixture *f, int64_t bytes)
{
    assert_int_equal(pwrite(f->memory, f->bytes, (size_t)bytes, 0), bytes);
    f->file = (struct live_file){.fd = f->memory, .socket = f->pair[0], .id = "job", .bytes = bytes};
}

static void what_another_attempt_has_sent_goes_on_where_it_ended(void **state)
{
    struct fixture *f = *state;
    static const int64_t ends[] = {0, 5, BEGINS, 30000, BYTES, BYTES + 20000};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        taken_over(f, ends[i]);
        show(f, 0, 4, ends[i] < 4 ? 4 : -1);
        show(f, 2, 0, 2 * BYTES);
        assert_int_equal(ftruncate(f->memory, 0), 0);
    }
}

/* The client has the beginning of an image that is not the one which is made now: it must not get a mixture. */
static void an_image_that_began_with_other_bytes_is_not_continued(void **state)
{
    struct fixture *f = *state;
    static const int64_t at[] = {0, 15, 29999};
    for (size_t i = 0; i < 3; i++) {
        taken_over(f, 30000);
        assert_int_equal(pwrite(f->memory, "\377", 1, at[i]), 1);
        f->bytes[at[i]] = 0;
        show(f, 1, 0, -1);
        assert_int_equal(f->file.fd, -1);
        assert_int_equal(ftruncate(f->memory, 0), 0);
    }
}

/* Within one process, too, an image may be computed anew, of other readouts. */
static void an_image_that_is_computed_anew_is_compared(void **state)
{
    struct fixture *f = *state;
    show(f, 0, 20000, 20000);
    f->bytes[15000]++;
    show(f, 0, 15000, -1);
    show(f, 0, 30000, -1);
    assert_int_equal(f->file.fd, -1);
}

static void a_part_that_cannot_be_sent_ends_it(void **state)
{
    struct fixture *f = *state;
    f->broken = 1;
    show(f, 2, 0, BYTES);
    assert_int_equal(f->file.fd, -1);
    show(f, 3, 0, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_are_appended_and_told_piece_by_piece, setup, teardown),
        cmocka_unit_test_setup_teardown(what_another_attempt_has_sent_goes_on_where_it_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(an_image_that_began_with_other_bytes_is_not_continued, setup, teardown),
        cmocka_unit_test_setup_teardown(an_image_that_is_computed_anew_is_compared, setup, teardown),
        cmocka_unit_test_setup_teardown(a_part_that_cannot_be_sent_ends_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
