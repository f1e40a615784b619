/* daemon/mrd/mrd_images.h and daemon/queue/live.h: images that are sent while their job still runs. */
#include "daemon/mrd/mrd_images.h"
#include "gridding/base/err.h"
#include "tests/unit/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ID "01m82pkds516mzvffjqjcscwxq"

enum { HEAD = 6 + 3, IMAGE = 1000, IMAGES = 3, RESULT = HEAD + IMAGES * IMAGE + 2 };

struct fixture {
    char folder[FOLDER];
    struct core core;
    struct mrd_images images;
    int pair[2]; /* the session's end, and its client's end */
    struct mrd_line line;
    uint8_t result[RESULT]; /* a header, three images and the closing message, as far as the sender reads them */
    int file;               /* descriptor of the result file */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (!folder_make(f->folder, "live") || spool_create(&f->core.spool, f->folder, 1000, 1000, 0) != 0 ||
        live_create(&f->core.live) != 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, f->pair) != 0)
        return -1;
    for (int i = 0; i < RESULT; i++)
        f->result[i] = (uint8_t)(i * i >> 3);
    memcpy(f->result, (const uint8_t[]){3, 0, 3, 0, 0, 0}, 6);
    f->file = spool_live_create(f->core.spool, "result", &f->file) == 0 ? f->file : -1;
    f->line = (struct mrd_line){f->pair[0], eventfd(0, 0), 30};
    mrd_images_begin(&f->images, &f->core, ID);
    return write(f->file, f->result, RESULT) == RESULT && f->images.core ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mrd_images_end(&f->images);
    close(f->file);
    close(f->pair[0]);
    close(f->pair[1]);
    close(f->line.stop);
    live_free(f->core.live);
    spool_free(f->core.spool);
    int result = folder_drop(f->folder);
    free(f);
    return result;
}

/* As a worker does: append images up to `count`, and announce them. */
static void images_append(struct fixture *f, int count)
{
    int64_t shown = -1;
    int file = live_file(f->core.live, ID, &shown);
    assert_true(file >= 0);
    const int64_t bytes = count * IMAGE - shown;
    assert_int_equal(pwrite(file, f->result + HEAD + shown, (size_t)bytes, shown), bytes);
    close(file);
    live_show(f->core.live, ID, count * IMAGE);
}

/* The client must have received so many bytes of the images, and the closing message. */
static void client_expects(struct fixture *f, int64_t from, int64_t bytes)
{
    uint8_t got[RESULT];
    const ssize_t count = recv(f->pair[1], got, sizeof got, 0);
    assert_int_equal(count, bytes);
    assert_memory_equal(got, f->result + HEAD + from, (size_t)bytes);
    assert_int_equal(recv(f->pair[1], got, sizeof got, 0), -1);
}

static void images_are_sent_as_they_are_announced(void **state)
{
    struct fixture *f = *state;
    bool sent = false;
    struct pollfd told = {.fd = f->images.event, .events = POLLIN};
    assert_false(mrd_images_wait(&f->images));
    images_append(f, 1);
    assert_int_equal(poll(&told, 1, 0), 1);
    assert_true(mrd_images_wait(&f->images));
    assert_int_equal(poll(&told, 1, 0), 0);
    assert_true(mrd_images_push(&f->images, &f->line));
    assert_false(mrd_images_wait(&f->images));
    client_expects(f, 0, IMAGE);
    images_append(f, 2);
    assert_true(mrd_images_flush(&f->images, &f->line));
    client_expects(f, IMAGE, IMAGE);
    assert_int_equal(mrd_images_finish(&f->images, &f->line, f->file, RESULT, &sent), 0);
    assert_true(sent);
    client_expects(f, 2 * IMAGE, IMAGE + 2);
}

static void without_early_images_all_are_sent_at_the_end(void **state)
{
    struct fixture *f = *state;
    bool sent = false;
    assert_int_equal(mrd_images_finish(&f->images, &f->line, f->file, RESULT, &sent), 0);
    assert_true(sent);
    client_expects(f, 0, RESULT - HEAD);
}

static void a_result_that_differs_from_sent_images_is_an_error(void **state)
{
    struct fixture *f = *state;
    bool sent = false;
    images_append(f, 2);
    assert_true(mrd_images_flush(&f->images, &f->line));
    client_expects(f, 0, 2 * IMAGE);
    assert_int_equal(pwrite(f->file, "x", 1, HEAD + 2 * IMAGE - 1), 1);
    assert_int_equal(mrd_images_finish(&f->images, &f->line, f->file, RESULT, &sent), ERR_INTERNAL);
    assert_false(sent);
    /* A result that is shorter than what was already sent. */
    assert_int_equal(mrd_images_finish(&f->images, &f->line, f->file, HEAD + IMAGE, &sent), ERR_INTERNAL);
}

static void announced_sizes_are_limited_by_the_file(void **state)
{
    struct fixture *f = *state;
    images_append(f, 1);
    live_show(f->core.live, ID, 2 * IMAGE);
    assert_int_equal(live_shown(f->core.live, ID), IMAGE);
    live_show(f->core.live, ID, IMAGE / 2);
    assert_int_equal(live_shown(f->core.live, ID), IMAGE);
    live_show(f->core.live, "01m82pkds516mzvffjqjcscwxr", IMAGE);
    assert_int_equal(live_shown(f->core.live, "01m82pkds516mzvffjqjcscwxr"), 0);
}

static void a_session_that_has_ended_has_no_file(void **state)
{
    struct fixture *f = *state;
    int64_t shown;
    mrd_images_end(&f->images);
    assert_int_equal(live_file(f->core.live, ID, &shown), -1);
    live_show(f->core.live, ID, 1);
    live_close(f->core.live, ID);
    assert_false(mrd_images_wait(&f->images));
    assert_true(mrd_images_flush(&f->images, &f->line));
}

/* Without an eventfd, the caller wakes the waiters. The entry ends with its last holder; its file may be closed before.
 */
static void an_entry_lasts_as_long_as_its_holders(void **state)
{
    static const char id[] = "01m82pkds516mzvffjqjcscwxs";
    struct fixture *f = *state;
    int64_t shown;
    int file;
    assert_int_equal(spool_live_create(f->core.spool, id, &file), 0);
    assert_int_equal(live_open(f->core.live, id, file, -1), 0);
    close(file);
    assert_true(live_hold(f->core.live, id));
    live_close(f->core.live, id);
    file = live_file(f->core.live, id, &shown);
    assert_true(file >= 0);
    assert_int_equal(write(file, "image", 5), 5);
    close(file);
    assert_true(live_show(f->core.live, id, 5));
    assert_false(live_show(f->core.live, id, 5)); /* nothing new */
    assert_int_equal(live_shown(f->core.live, id), 5);
    live_close(f->core.live, id);
    assert_false(live_hold(f->core.live, id));
    assert_int_equal(live_file(f->core.live, id, &shown), -1);
    assert_false(live_show(f->core.live, ID, 0)); /* a session's entry has an eventfd */
}

/* A client does not read: what fits into the socket is sent, and the rest when there is room again. */
static void sending_does_not_block(void **state)
{
    struct fixture *f = *state;
    enum { MANY = 400 * IMAGE };
    uint8_t *zeros = calloc(MANY, 1), *got = malloc(MANY);
    int64_t shown, taken = 0;
    int file = live_file(f->core.live, ID, &shown);
    assert_non_null(zeros);
    assert_non_null(got);
    assert_int_equal(write(file, zeros, MANY), MANY);
    close(file);
    live_show(f->core.live, ID, MANY);
    assert_true(mrd_images_push(&f->images, &f->line));
    assert_true(f->images.sent > 0 && f->images.sent < MANY);
    while (taken < MANY) {
        ssize_t count = recv(f->pair[1], got, MANY, 0);
        taken += count > 0 ? count : 0;
        assert_true(mrd_images_push(&f->images, &f->line));
    }
    assert_int_equal(taken, MANY);
    close(f->pair[1]);
    f->pair[1] = socket(AF_UNIX, SOCK_STREAM, 0);
    live_show(f->core.live, ID, MANY);
    f->images.sent = 0;
    assert_false(mrd_images_push(&f->images, &f->line));
    free(zeros);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(images_are_sent_as_they_are_announced, setup, teardown),
        cmocka_unit_test_setup_teardown(without_early_images_all_are_sent_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(a_result_that_differs_from_sent_images_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(announced_sizes_are_limited_by_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_that_has_ended_has_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(an_entry_lasts_as_long_as_its_holders, setup, teardown),
        cmocka_unit_test_setup_teardown(sending_does_not_block, setup, teardown),
    };
    signal(SIGPIPE, SIG_IGN); /* as in the daemon */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
