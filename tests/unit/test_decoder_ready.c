/* Decoder processes that are started in advance, and the template that they are forked from. */
#include "tests/unit/decode_fixture.h"

#include "recon/codec/codec.h"
#include "recon/codec/sandbox.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* Process ids of this program's children that decode. The template that they are forked from goes to pids[CHILDREN -
 * 1], or 0. */
enum { CHILDREN = 8 };

/* The first bytes of a process's file, as text; false: it has ended, or the file is empty. */
static bool process_read(pid_t pid, const char *name, char *text, size_t room)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

static bool is_template(pid_t pid)
{
    char words[64] = "";
    return process_read(pid, "cmdline", words, sizeof words) && strcmp(words + strlen(words) + 1, CODEC_TEMPLATE) == 0;
}

static bool is_child(pid_t pid)
{
    char line[256];
    int parent = 0;
    const char *name_end = process_read(pid, "stat", line, sizeof line) ? strrchr(line, ')') : NULL;
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 && parent == getpid();
}

/* They are found by their parent's id: the kernel's list of children may leave out a living one while another is reaped
 * (proc(5)). Ascending, as /proc is. */
static int children(pid_t pids[CHILDREN])
{
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    int count = 0;
    assert_non_null(folder);
    while ((entry = readdir(folder)) && count < CHILDREN - 1) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 0 || !is_child(pid))
            continue;
        if (is_template(pid))
            pids[CHILDREN - 1] = pid;
        else
            pids[count++] = pid;
    }
    closedir(folder);
    return count;
}

/* Wait until so many decode: a process that was just forked is listed as a template for a moment. */
static void children_await(pid_t pids[CHILDREN], int count)
{
    for (int ms = 0; children(pids) != count && ms < 60000; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(children(pids), count);
}

static void a_pre_started_decoder_serves_one_upload(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    pid_t pids[CHILDREN] = {0}, before[CHILDREN] = {0};
    int fd = open_file(p, "plain"), wrong = open_file(p, "m2_list_longer_than_head"), open = open_descriptors();
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    children_await(before, 2);
    for (int i = 0; i < 4; i++) { /* two that were started in advance, then fresh ones */
        bool good = i % 2 == 0;
        assert_int_equal(scan_decode(&scan, decoder, good ? fd : wrong, NULL, &roomy, NULL, NULL),
                         good ? 0 : ERR_MALFORMED_FILE);
        scan_close(&scan);
    }
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    children_await(pids, 2);
    for (int i = 0; i < 4; i++)
        assert_true(pids[i / 2] != before[i % 2]);
    assert_int_equal(decoder_prepare(decoder, 99), 0);
    children_await(pids, DECODER_MOST_READY);
    assert_null(decoder_lost(decoder));
    decoder_free(decoder);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* none is left, not even a zombie */
    assert_int_equal(open_descriptors(), open);
    close(wrong);
    close(fd);
}

static void a_pre_started_decoder_that_died_is_replaced_and_reported(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    siginfo_t info;
    pid_t pids[CHILDREN] = {0};
    int fd = open_file(p, "plain"), open = open_descriptors();
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    for (int way = 0; way < 2; way++) { /* the death is noticed by the upload, or when processes are prepared */
        assert_int_equal(decoder_prepare(decoder, 2), 0);
        children_await(pids, 2);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(kill(pids[i], SIGKILL), 0);
            assert_int_equal(waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOWAIT), 0);
        }
        if (way == 1)
            assert_int_equal(decoder_prepare(decoder, 1), 0);
        assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
        scan_close(&scan);
        const char *lost = decoder_lost(decoder);
        assert_non_null(lost);
        assert_non_null(strstr(lost, "2 pre-started decoders"));
        assert_non_null(strstr(lost, "signal 9"));
        assert_null(decoder_lost(decoder));
    }
    decoder_free(decoder);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(open_descriptors(), open);
    close(fd);
}

/* A template that ends is reported and replaced, and nobody waits for a process that it can no longer fork. It is
 * killed between uploads, while it forks nothing, and during a request. Decoders forked before go on serving. */
static void a_template_that_ended_is_replaced_and_reported(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    siginfo_t info;
    pid_t pids[CHILDREN] = {0}, ready[CHILDREN] = {0};
    int fd = open_file(p, "plain"), open = open_descriptors();
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    assert_int_equal(decoder_prepare(decoder, 1), 0);
    for (int way = 0; way < 2; way++) {
        children_await(ready, 1);
        pid_t template = ready[CHILDREN - 1];
        assert_true(template > 0);
        assert_int_equal(kill(template, SIGKILL), 0);
        assert_int_equal(waitid(P_PID, (id_t) template, &info, WEXITED | WNOWAIT), 0);
        for (int i = 0; i < 1 + way; i++) { /* a pre-started decoder; then one more, which has to be started */
            assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
            check_good("plain", &scan);
            scan_close(&scan);
        }
        assert_int_equal(decoder_prepare(decoder, 1), 0);
        const char *lost = decoder_lost(decoder);
        assert_non_null(lost);
        assert_non_null(strstr(lost, "The process that decoders are forked from ended (by signal 9)."));
        assert_null(strstr(lost, "pre-started"));
        assert_null(decoder_lost(decoder));
        assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
        scan_close(&scan);
        assert_int_equal(decoder_prepare(decoder, 1), 0);
        children_await(pids, 1);
        assert_true(pids[CHILDREN - 1] > 0 && pids[CHILDREN - 1] != template);
        assert_null(decoder_lost(decoder));
    }
    decoder_free(decoder);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(open_descriptors(), open);
    close(fd);
}

/* An upload's content must not be in the memory of the next decoder: neither the template nor another decoder has it.
 * Search all of a process's readable memory for the bytes. */
static bool memory_has(pid_t pid, const char *needle, size_t bytes)
{
    char path[64], line[512];
    static char block[1 << 20];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(maps && memory >= 0);
    while (fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char rights[5];
        /* Larger mappings are a sanitizer's shadow memory, of terabytes. */
        if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) != 3 || rights[0] != 'r' || end - begin > 1UL << 30)
            continue;
        for (unsigned long at = begin; at < end && !found; at += sizeof block - bytes) {
            const size_t wanted = end - at < sizeof block ? end - at : sizeof block;
            const ssize_t got = pread(memory, block, wanted, (off_t)at);
            found = got > 0 && memmem(block, (size_t)got, needle, bytes) != NULL;
        }
    }
    close(memory);
    fclose(maps);
    return found;
}

static void a_decoder_has_no_memory_of_other_uploads(void **state)
{
    static const char words[] = "ismrmrdHeader";
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    pid_t pids[CHILDREN] = {0};
    int fd = open_file(p, "plain");
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    children_await(pids, 2);
    const char *own = strstr(scan.xml, "propellor");
    assert_non_null(own);
    for (int i = 0; i < 2; i++)
        assert_false(memory_has(pids[i], own, 9));
    assert_false(memory_has(pids[CHILDREN - 1], own, 9));
    assert_true(memory_has(getpid(), own, 9)); /* the search works */
    assert_true(memory_has(pids[0], words, sizeof words - 1));
    scan_close(&scan);
    decoder_free(decoder);
    close(fd);
}

/* Limits are those of the upload, not those at the start of the process. */
static void a_pre_started_decoder_keeps_the_limits(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    struct rlimit limit;
    pid_t pids[CHILDREN] = {0};
    int fd = open_file(p, "plain"), asked = 0;
    char hanging[256];
    struct decode_limits limits = {.bytes = 1 << 20, .seconds = 0.1};
    make_program(p, "waits", "#!/bin/sh\n[ $1 = template ] && exit 1\nwhile :; do :; done\n", hanging);
    assert_int_equal(decoder_create(&decoder, hanging), 0);
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
    limits.seconds = 60;
    assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &limits, yes, &asked), ERR_CANCELED);
    decoder_free(decoder);
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    assert_int_equal(decoder_prepare(decoder, 1), 0);
    limits.bytes = 100;
    assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
    /* It has ended, but was not yet waited for. */
    children_await(pids, 1);
    assert_int_equal(prlimit(pids[0], RLIMIT_FSIZE, NULL, &limit), 0);
    assert_int_equal(limit.rlim_max, 100);
    assert_int_equal(prlimit(pids[0], RLIMIT_CPU, NULL, &limit), 0);
    assert_in_range(limit.rlim_cur, 60, 70); /* rounded up twice on the way */
    decoder_free(decoder);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pre_started_decoder_serves_one_upload),
        cmocka_unit_test(a_pre_started_decoder_that_died_is_replaced_and_reported),
        cmocka_unit_test(a_template_that_ended_is_replaced_and_reported),
        cmocka_unit_test(a_decoder_has_no_memory_of_other_uploads),
        cmocka_unit_test(a_pre_started_decoder_keeps_the_limits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
