/* daemon/wire.h: messages and descriptors arrive, malformed input is refused, no descriptor leaks. */
#include "daemon/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair_setup(void **state)
{
    int *pair = malloc(2 * sizeof *pair);
    *state = pair;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int pair_teardown(void **state)
{
    int *pair = *state;
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    free(pair);
    return 0;
}

static int open_fds(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void message_and_descriptors_cross(void **state)
{
    int *pair = *state, files[2], back[WIRE_FDS], count = -1;
    assert_int_equal(pipe(files), 0);
    json_t *job = json_pack("{s:s, s:s, s:{s:s}}", "type", "job", "id", "a7", "parameters", "tolerance", "1e-3");
    assert_int_equal(wire_send(pair[0], job, files, 2), 0);
    json_t *got = NULL;
    assert_int_equal(wire_receive(pair[1], &got, back, &count), 0);
    assert_true(json_equal(job, got));
    assert_int_equal(count, 2);
    /* They are the same pipe, in the same order, and are close-on-exec. */
    char byte = 0;
    assert_int_equal(write(back[1], "x", 1), 1);
    assert_int_equal(read(files[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    assert_true(fcntl(back[0], F_GETFD) & FD_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        close(files[i]);
        close(back[i]);
    }
    json_decref(job);
    json_decref(got);
}

static void largest_message_crosses_and_larger_is_refused(void **state)
{
    int *pair = *state, fds[WIRE_FDS], count;
    size_t frame = strlen("{\"type\":\"done\",\"x\":\"\"}");
    for (int over = 0; over < 2; over++) {
        size_t length = WIRE_MAX - frame + (size_t)over;
        char *text = malloc(length + 1);
        memset(text, 'q', length);
        text[length] = '\0';
        json_t *message = json_pack("{s:s, s:s}", "type", "done", "x", text);
        json_t *got = NULL;
        if (over) {
            assert_int_equal(wire_send(pair[0], message, NULL, 0), ERR_IO);
        } else {
            assert_int_equal(wire_send(pair[0], message, NULL, 0), 0);
            assert_int_equal(wire_receive(pair[1], &got, fds, &count), 0);
            assert_int_equal(count, 0);
            assert_true(json_equal(message, got));
        }
        json_decref(got);
        json_decref(message);
        free(text);
    }
}

static void the_end_of_the_peer_is_worker_died(void **state)
{
    int *pair = *state, fds[WIRE_FDS], count;
    json_t *message = json_pack("{s:s}", "type", "ping"), *got = NULL;
    /* Closing the socket with an unread message makes the kernel answer ECONNRESET, which is reported like any end. */
    assert_int_equal(wire_send(pair[0], message, NULL, 0), 0);
    close(pair[1]);
    pair[1] = -1;
    assert_int_equal(wire_receive(pair[0], &got, fds, &count), ERR_WORKER_DIED);
    assert_int_equal(wire_receive(pair[0], &got, fds, &count), ERR_WORKER_DIED);
    assert_int_equal(wire_send(pair[0], message, NULL, 0), ERR_WORKER_DIED);
    assert_null(got);
    json_decref(message);
}

static void malformed_messages_are_refused(void **state)
{
    static const char *const bad[] = {"x",
                                      "{",
                                      "[]",
                                      "[1]",
                                      "\"type\"",
                                      "{}",
                                      "{\"type\":1}",
                                      "{\"type\":\"a\",\"type\":\"b\"}",
                                      "{\"type\":\"a\"}x",
                                      "{\"type\":\"\xff\"}",
                                      "{\"type\":\"a\\u0000b\"}"};
    int *pair = *state, before = open_fds();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fds[WIRE_FDS] = {-7, -7}, count = -7;
        json_t *got = NULL;
        assert_int_equal(send(pair[0], bad[i], strlen(bad[i]), 0), (int)strlen(bad[i]));
        assert_int_equal(wire_receive(pair[1], &got, fds, &count), ERR_BAD_REQUEST);
        assert_null(got);
        assert_int_equal(count, -7);
    }
    assert_int_equal(open_fds(), before);
}

static void random_bytes_are_refused(void **state)
{
    int *pair = *state;
    unsigned seed = 12345;
    for (int round = 0; round < 2000; round++) {
        unsigned char bytes[64];
        size_t length = 1 + (size_t)rand_r(&seed) % sizeof bytes;
        for (size_t i = 0; i < length; i++)
            bytes[i] = (unsigned char)rand_r(&seed);
        int fds[WIRE_FDS], count;
        json_t *got = NULL;
        assert_int_equal(send(pair[0], bytes, length, 0), (int)length);
        assert_int_equal(wire_receive(pair[1], &got, fds, &count), ERR_BAD_REQUEST);
    }
}

/* Send `text` with `fd_count` copies of the standard input, more than wire_send() allows. */
static void send_raw(int socket, const char *text, int fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 3 * WIRE_FDS)];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (char *)text, .iov_len = strlen(text)};
    struct msghdr packet = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
    for (int i = 0; i < fd_count; i++)
        memcpy(CMSG_DATA(head) + (size_t)i * sizeof(int), &(int){STDERR_FILENO}, sizeof(int));
    assert_true(sendmsg(socket, &packet, 0) > 0);
}

static void descriptors_of_a_refused_message_are_closed(void **state)
{
    int *pair = *state, before = open_fds(), fds[WIRE_FDS], count;
    json_t *got = NULL;
    send_raw(pair[0], "{\"type\":\"job\"}", WIRE_FDS + 1);
    assert_int_equal(wire_receive(pair[1], &got, fds, &count), ERR_BAD_REQUEST);
    send_raw(pair[0], "{\"type\":\"job\"}", 3 * WIRE_FDS);
    assert_int_equal(wire_receive(pair[1], &got, fds, &count), ERR_BAD_REQUEST);
    send_raw(pair[0], "no json", 2);
    assert_int_equal(wire_receive(pair[1], &got, fds, &count), ERR_BAD_REQUEST);
    assert_int_equal(open_fds(), before);
}

static void a_failure_arrives_unchanged(void **state)
{
    (void)state;
    err_set_bytes(ERR_GPU_OOM, 7000000000, 12, "The plan asks for more than is free – by far.");
    json_t *object = wire_error_pack(err_last());
    assert_string_equal(json_string_value(json_object_get(object, "code")), "gpu-oom");
    assert_null(json_object_get(object, "acquisition_index"));
    struct err back;
    wire_error_unpack(object, &back);
    assert_memory_equal(&back.code, &err_last()->code, sizeof back.code);
    assert_string_equal(back.text, err_last()->text);
    assert_true(back.required == 7000000000 && back.available == 12 && back.acquisition == -1);
    json_decref(object);
}

static void a_damaged_failure_is_made_safe(void **state)
{
    (void)state;
    static const char *const texts[] = {"{}", "{\"code\":\"ok\"}", "{\"code\":\"no such code\",\"detail\":3}", "[]",
                                        "{\"required_bytes\":-5,\"acquisition_index\":\"7\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *object = json_loads(texts[i], 0, NULL);
        struct err back;
        wire_error_unpack(object, &back);
        assert_int_equal(back.code, ERR_INTERNAL);
        assert_true(back.text[0] != '\0');
        assert_true(back.required == -1 && back.acquisition == -1 && back.available == -1);
        json_decref(object);
    }
    /* Text longer than its field, of two-byte characters and with a newline: truncated between characters, and made a
     * single line. */
    struct err back, full = {.code = ERR_IO, .acquisition = -1, .required = -1, .available = -1};
    char text[2004] = "\n";
    for (size_t i = 1; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa9", 2);
    json_t *object = json_pack("{s:s, s:s}", "code", "io-error", "detail", text);
    wire_error_unpack(object, &back);
    json_decref(object);
    assert_int_equal(back.code, ERR_IO);
    assert_int_equal(back.text[0], ' ');
    json_t *check = json_string(back.text);
    assert_non_null(check);
    json_decref(check);
    assert_true(strlen(back.text) >= sizeof back.text - 3);
    /* Text that ends with half a character is still packed. */
    memset(full.text, 'a', sizeof full.text - 2);
    full.text[sizeof full.text - 2] = '\xc3';
    object = wire_error_pack(&full);
    assert_int_equal(json_string_length(json_object_get(object, "detail")), sizeof full.text - 2);
    json_decref(object);
}

static void a_report_is_an_object_neither_deep_nor_large(void **state)
{
    (void)state;
    json_t *deep = json_object();
    for (int levels = 1; levels <= WIRE_REPORT_DEEP + 1; levels++) {
        assert_int_equal(wire_report_is_sound(deep), levels <= WIRE_REPORT_DEEP);
        deep = json_pack("{s:o}", "in", deep);
    }
    json_decref(deep);
    deep = json_pack("{s:[[[[[[[[]]]]]]]]}", "in");
    assert_false(wire_report_is_sound(deep));
    json_decref(deep);
    json_t *text = json_string("all is well"), *list = json_array(), *large = json_object();
    assert_false(wire_report_is_sound(NULL));
    assert_false(wire_report_is_sound(text));
    assert_false(wire_report_is_sound(list));
    assert_true(wire_report_is_sound(large));
    char *words = malloc(WIRE_REPORT_MAX + 1);
    memset(words, 'a', WIRE_REPORT_MAX);
    words[WIRE_REPORT_MAX] = '\0';
    json_object_set_new(large, "words", json_string(words + 20));
    assert_true(wire_report_is_sound(large));
    json_object_set_new(large, "words", json_string(words));
    assert_false(wire_report_is_sound(large));
    free(words);
    json_decref(text);
    json_decref(list);
    json_decref(large);
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, pair_setup, pair_teardown)
    const struct CMUnitTest tests[] = {
        WITH_PAIR(message_and_descriptors_cross),
        WITH_PAIR(largest_message_crosses_and_larger_is_refused),
        WITH_PAIR(the_end_of_the_peer_is_worker_died),
        WITH_PAIR(malformed_messages_are_refused),
        WITH_PAIR(random_bytes_are_refused),
        WITH_PAIR(descriptors_of_a_refused_message_are_closed),
        cmocka_unit_test(a_failure_arrives_unchanged),
        cmocka_unit_test(a_damaged_failure_is_made_safe),
        cmocka_unit_test(a_report_is_an_object_neither_deep_nor_large),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
