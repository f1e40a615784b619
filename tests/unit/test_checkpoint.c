/* Checkpoints: the newer of two states is read, whatever fragment of the next one a killed process left behind. */
#include "gridding/base/err.h"
#include "recon/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROOM = 10000 };

static struct checkpoint file(void)
{
    const struct checkpoint checkpoint = {.fd = memfd_create("checkpoint", 0)};
    assert_true(checkpoint.fd >= 0);
    return checkpoint;
}

static int save(const struct checkpoint *checkpoint, const char *tag, int number)
{
    char text[6000];
    memset(text, number, sizeof text);
    const struct checkpoint_part parts[] = {{&number, sizeof number}, {text, sizeof text}};
    return checkpoint_save(checkpoint, tag, ROOM, parts, 2);
}

/* The number that was saved, or 0 if there is none. */
static int load(const struct checkpoint *checkpoint, const char *tag)
{
    void *state;
    size_t bytes;
    int number = 0;
    assert_int_equal(checkpoint_load(checkpoint, tag, ROOM, &state, &bytes), 0);
    if (!state)
        return 0;
    assert_int_equal(bytes, sizeof number + 6000);
    memcpy(&number, state, sizeof number);
    for (size_t i = sizeof number; i < bytes; i++)
        assert_int_equal(((const char *)state)[i], (char)number);
    free(state);
    return number;
}

static void the_newest_state_with_the_tag_is_read(void **state)
{
    (void)state;
    const struct checkpoint checkpoint = file();
    struct stat there;
    assert_int_equal(load(&checkpoint, "a"), 0);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(save(&checkpoint, "a", i), 0);
        assert_int_equal(load(&checkpoint, "a"), i);
    }
    assert_int_equal(load(&checkpoint, "b"), 0);
    assert_int_equal(save(&checkpoint, "b", 6), 0);
    assert_int_equal(load(&checkpoint, "b"), 6);
    assert_int_equal(load(&checkpoint, "a"), 5);
    assert_int_equal(fstat(checkpoint.fd, &there), 0);
    assert_true((uint64_t)there.st_size <= checkpoint_bytes(ROOM));
    close(checkpoint.fd);
}

/* Damage every byte of the newer state and of its head in turn: the damage is detected, and the older state is read. */
static void a_damaged_state_is_skipped(void **state)
{
    (void)state;
    struct checkpoint checkpoint = file();
    assert_int_equal(save(&checkpoint, "a", 1), 0);
    assert_int_equal(save(&checkpoint, "a", 2), 0);
    struct stat there;
    assert_int_equal(fstat(checkpoint.fd, &there), 0);
    for (off_t at = 0; at < there.st_size; at += at < 128 || (at >= 4096 && at < 4096 + 128) ? 1 : 397) {
        char byte, other;
        assert_int_equal(pread(checkpoint.fd, &byte, 1, at), 1);
        other = (char)(byte ^ 1);
        assert_int_equal(pwrite(checkpoint.fd, &other, 1, at), 1);
        const int found = load(&checkpoint, "a");
        assert_true(found == 1 || found == 2);
        assert_int_equal(pwrite(checkpoint.fd, &byte, 1, at), 1);
    }
    /* The middle of the state's data. */
    const off_t middle = there.st_size - 3000;
    assert_int_equal(pwrite(checkpoint.fd, "?", 1, middle), 1);
    assert_int_equal(load(&checkpoint, "a"), 1);
    /* The next state is written to the other slot, so that the intact one stays until it is complete. */
    assert_int_equal(ftruncate(checkpoint.fd, middle), 0);
    assert_int_equal(load(&checkpoint, "a"), 1);
    close(checkpoint.fd);
}

static void too_large_a_state_is_refused(void **state)
{
    (void)state;
    struct checkpoint checkpoint = file();
    assert_int_equal(save(&checkpoint, "a", 1), 0);
    char large[ROOM + 1] = {0};
    const struct checkpoint_part part = {large, sizeof large};
    assert_int_equal(checkpoint_save(&checkpoint, "a", ROOM, &part, 1), ERR_LIMIT);
    checkpoint.most = checkpoint_bytes(ROOM) - 1;
    assert_int_equal(save(&checkpoint, "a", 2), ERR_LIMIT);
    checkpoint.most++;
    assert_int_equal(load(&checkpoint, "a"), 1);
    assert_int_equal(save(&checkpoint, "a", 3), 0);
    close(checkpoint.fd);
    checkpoint.fd = -1;
    assert_int_equal(save(&checkpoint, "a", 4), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_state_with_the_tag_is_read),
        cmocka_unit_test(a_damaged_state_is_skipped),
        cmocka_unit_test(too_large_a_state_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
