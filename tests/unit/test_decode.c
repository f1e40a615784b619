/* The decoder, called as a worker calls it, on files written by tests/unit/scan_files.py; its limits, and decoders that
 * misbehave. Mutated and truncated files: test_mutants.c. Pre-started decoders: test_decoder_ready.c. */
#include "tests/unit/decode_fixture.h"

#include "recon/codec/sandbox.h"

#include <sys/mman.h>
#include <sys/wait.h>

static void each_file_gives_the_result_in_the_manifest(void **state)
{
    const struct place *p = *state;
    char path[128], line[512], name[64], group[64], code[64], words[128];
    snprintf(path, sizeof path, "%s/manifest", p->folder);
    FILE *manifest = fopen(path, "r");
    assert_non_null(manifest);
    int before = open_descriptors(), files = 0, bad = 0;
    while (fgets(line, sizeof line, manifest)) {
        assert_int_equal(sscanf(line, "%63[^\t]\t%63[^\t]\t%63[^\t]\t%127[^\n]", name, group, code, words), 4);
        struct scan scan = {0};
        int fd = open_file(p, name);
        int rc = decode_fd(p, &scan, fd, strcmp(group, "-") == 0 ? NULL : group);
        close(fd);
        files++;
        const char *seen = rc == 0 ? "ok" : err_name(rc);
        if (strcmp(seen, code) != 0 || (rc != 0 && strcmp(words, "-") != 0 && !strcasestr(err_last()->text, words))) {
            bad++;
            print_message("# %s: %s: \"%s\"; expected %s with \"%s\"\n", name, seen, rc == 0 ? "" : err_last()->text,
                          code, words);
        } else if (rc == 0) {
            check_good(name, &scan);
        }
        if (rc != 0)
            assert_null(strstr(err_last()->text, "root:"));
        scan_close(&scan);
    }
    fclose(manifest);
    assert_int_equal(bad, 0);
    assert_true(files > 60);
    assert_int_equal(open_descriptors(), before - 1);
}

static void a_failure_names_its_acquisition(void **state)
{
    const struct place *p = *state;
    struct scan scan = {0};
    int fd = open_file(p, "m2_list_longer_than_head");
    assert_int_equal(decode_fd(p, &scan, fd, NULL), ERR_MALFORMED_FILE);
    assert_int_equal(err_last()->acquisition, 2);
    close(fd);
}

/* ---- limits ---- */

static void memory_is_limited(void **state)
{
    const struct place *p = *state;
    struct scan scan = {0};
    int fd = open_file(p, "plain");
    assert_int_equal(decode_fd(p, &scan, fd, NULL), 0);
    uint64_t need = scan.header->total_bytes;
    scan_close(&scan);
    struct decode_limits limits = {.bytes = need, .seconds = 60};
    assert_int_equal(decode_by(p->codec, &scan, fd, NULL, &limits, NULL, NULL), 0);
    scan_close(&scan);
    limits.bytes = need - 1;
    assert_int_equal(decode_by(p->codec, &scan, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
    assert_int_equal(err_last()->available, need - 1);
    assert_true(err_last()->required >= (int64_t)need);
    limits.bytes = 100;
    assert_int_equal(decode_by(p->codec, &scan, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
    close(fd);
}

static void time_is_limited_and_a_job_can_be_canceled(void **state)
{
    const struct place *p = *state;
    char hanging[256], closed[256];
    struct scan scan = {0};
    int fd = open_file(p, "plain"), asked = 0;
    struct decode_limits limits = {.bytes = 1 << 20, .seconds = 0.1};
    make_program(p, "hanging", "#!/bin/sh\nwhile :; do :; done\n", hanging);
    make_program(p, "closed", "#!/bin/sh\nexec 3>&-\nwhile :; do :; done\n", closed);
    assert_int_equal(decode_by(hanging, &scan, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
    assert_int_equal(decode_by(closed, &scan, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
    limits.seconds = 60;
    assert_int_equal(decode_by(hanging, &scan, fd, NULL, &limits, yes, &asked), ERR_CANCELED);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child process is left */
    close(fd);
}

/* B-trees of some kilobytes with 10^15 leaves. */
static void a_file_that_keeps_its_reader_busy_is_stopped(void **state)
{
    static const char *const bombs[] = {"chunk_bomb", "group_bomb"};
    const struct place *p = *state;
    const struct decode_limits limits = {.bytes = 1 << 20, .seconds = 0.1};
    for (size_t i = 0; i < 2; i++) {
        struct scan scan = {0};
        int fd = open_file(p, bombs[i]);
        assert_int_equal(decode_by(p->codec, &scan, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
        assert_non_null(strstr(err_last()->text, "decode-time"));
        close(fd);
    }
}

/* The preamble of decoders written in Python, which cannot be forked from a template. They have the upload, and could
 * report success. */
#define PYTHON                                                                   \
    "#!/usr/bin/python3\n"                                                       \
    "import array, mmap, os, socket as s, struct, sys, time\n"                   \
    "if sys.argv[1] == 'template':\n    sys.exit(1)\n"                           \
    "socket = s.socket(fileno=3)\n"                                              \
    "data, fds, flags, address = s.recv_fds(socket, 4096, 2)\n"                  \
    "file, memory = fds\n"                                                       \
    "success = struct.pack('IIi4xqqq768s', 0x5052434d, 4, 0, -1, -1, -1, b'')\n" \
    "head = struct.pack('QIIQ', 0x4e4143534952524d, 1, 1, 4096)\n"

static void a_decoder_that_misbehaves_is_an_error(void **state)
{
    static const struct {
        const char *name, *script;
        int code;
    } programs[] = {
        {"dies", "#!/bin/sh\nkill -SEGV $$\n", ERR_DECODER_DIED},
        {"fails", "#!/bin/sh\nexit 1\n", ERR_DECODER_DIED},
        {"lies", "#!/bin/sh\nexit 0\n", ERR_DECODER_DIED},
        {"babbles", "#!/bin/sh\nhead -c 3000 /dev/urandom >&3\nexit 1\n", ERR_DECODER_DIED},
        {"writes", PYTHON "os.write(memory, os.urandom(3000))\nsocket.send(success)\n", ERR_DECODER_DIED},
        {"grows", PYTHON "os.write(memory, bytes(3000000))\nsocket.send(success)\n", ERR_DECODER_DIED},
        {"boasts", PYTHON "socket.send(success)\n", ERR_DECODER_DIED},
        {"holds",
         PYTHON "os.write(memory, head[:16] + struct.pack('Q', 1 << 19))\nheld = mmap.mmap(memory, 1 << 19)\n"
                "socket.send(success)\ntime.sleep(60)\n",
         ERR_DECODER_DIED},
        {"mutters", PYTHON "socket.send(success[:-1])\n", ERR_DECODER_DIED},
        {"gossips", PYTHON "socket.send(success + b'x')\n", ERR_DECODER_DIED},
        {"newer", PYTHON "socket.send(struct.pack('II', 0x5052434d, 5) + bytes(2000))\n", ERR_INTERNAL},
    };
    const struct place *p = *state;
    const struct decode_limits limits = {.bytes = 1 << 20, .seconds = 60};
    struct scan scan = {0};
    char path[256];
    int fd = open_file(p, "plain"), before = open_descriptors();
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        make_program(p, programs[i].name, programs[i].script, path);
        assert_int_equal(decode_by(path, &scan, fd, NULL, &limits, NULL, NULL), programs[i].code);
    }
    assert_non_null(strstr(err_last()->text, "protocol version 5, this program version 4"));
    assert_int_equal(decode_by("/nonexistent", &scan, fd, NULL, &limits, NULL, NULL), ERR_INTERNAL);
    assert_int_equal(open_descriptors(), before);
    close(fd);
}

/* Killed by a process other than its parent, as the kernel does when memory is short: the file is read once more, and
 * nothing of the first attempt is kept. After a second kill the error blames the machine, not the file. */
static void a_decoder_killed_from_outside_is_retried_once(void **state)
{
    const struct place *p = *state;
    char script[2048], once[256], always[256];
    struct decoder *decoder = NULL;
    struct scan expected = {0}, scan = {0};
    int fd = open_file(p, "plain");
    snprintf(script, sizeof script,
             "#!/usr/bin/python3\nimport os, sys\nif sys.argv[1] == 'template':\n    sys.exit(1)\ntry:\n    "
             "os.mkdir('%s/tried')\nexcept FileExistsError:\n"
             "    os.execv('%s', ['mrirecon-codec', 'decode'])\n" PYTHON
             "os.pwrite(memory, b'x' * (1 << 20), 0)\nsocket.send(b'b')\nos.kill(os.getpid(), 9)\n",
             p->folder, p->codec);
    /* PYTHON's shebang is only a comment here. */
    make_program(p, "once", script, once);
    make_program(p, "always", PYTHON "socket.send(b'b')\nos.kill(os.getpid(), 9)\n", always);
    const struct decode_limits limits = {.bytes = 1 << 20, .seconds = 60};
    assert_int_equal(decode_by(p->codec, &expected, fd, NULL, &limits, NULL, NULL), 0);
    for (int ready = 0; ready < 2; ready++) {
        char command[128];
        assert_int_equal(decoder_create(&decoder, once), 0);
        assert_int_equal(decoder_prepare(decoder, ready), 0);
        assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &limits, NULL, NULL), 0);
        assert_memory_equal(scan.header, expected.header, expected.header->total_bytes);
        assert_non_null(strstr(decoder_lost(decoder), "1 decoder was killed from outside"));
        assert_null(decoder_lost(decoder));
        decoder_free(decoder);
        scan_close(&scan);
        snprintf(command, sizeof command, "rmdir %s/tried", p->folder);
        assert_int_equal(system(command), 0);
        assert_int_equal(decoder_create(&decoder, always), 0);
        assert_int_equal(decoder_prepare(decoder, ready), 0);
        assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &limits, NULL, NULL), ERR_NO_MEMORY);
        assert_non_null(strstr(decoder_lost(decoder), "2 decoders were killed from outside"));
        decoder_free(decoder);
    }
    scan_close(&expected);
    close(fd);
}

/* A decoder's stderr is discarded, except in sanitized builds, whose reports are kept. */
static void reports_of_sanitizers_are_seen(void **state)
{
    const struct place *p = *state;
    char path[256], said[64] = "";
    struct scan scan = {0};
    int fd = open_file(p, "plain"), before = dup(2), seen = memfd_create("stderr", MFD_CLOEXEC);
    make_program(p, "reports", "#!/bin/sh\necho report >&2\nexit 1\n", path);
    assert_true(before >= 0 && seen >= 0 && dup2(seen, 2) == 2);
    int rc = decode_by(path, &scan, fd, NULL, &roomy, NULL, NULL);
    assert_int_equal(dup2(before, 2), 2);
    assert_int_equal(rc, ERR_DECODER_DIED);
    assert_true(pread(seen, said, sizeof said - 1, 0) >= 0);
    assert_string_equal(said, SANDBOX_SANITIZED ? "report\n" : "");
    close(seen);
    close(before);
    close(fd);
}

/* The number of allocated pages of memfds, over all descriptors of this process. */
static int64_t preallocated_pages(void)
{
    int64_t pages = 0;
    for (int fd = 0; fd < 64; fd++) {
        struct stat status;
        char link[64], name[64] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, "memfd:mrirecon-scan") && fstat(fd, &status) == 0)
            pages += status.st_blocks / 8;
    }
    return pages;
}

/* Memory is allocated in advance, with the size of the last scan. It serves one scan, and changes neither the scan nor
 * its limits. */
static void preallocated_memory_serves_one_scan(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    int fd = open_file(p, "plain"), wrong = open_file(p, "m2_list_longer_than_head"), open = open_descriptors();
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    decoder_prepare_memory(decoder); /* nothing was decoded yet */
    assert_int_equal(preallocated_pages(), 0);
    assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
    uint64_t need = scan.header->total_bytes;
    scan_close(&scan);
    for (int round = 0; round < 2; round++) {
        decoder_prepare_memory(decoder);
        decoder_prepare_memory(decoder);
        assert_int_equal(preallocated_pages(), (need + 4095) / 4096);
        assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
        assert_int_equal(scan.header->total_bytes, need);
        check_good("plain", &scan);
        scan_close(&scan);
        assert_int_equal(preallocated_pages(), 0);
    }
    struct decode_limits limits = {.bytes = need - 1, .seconds = 60};
    decoder_prepare_memory(decoder);
    assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &limits, NULL, NULL), ERR_LIMIT);
    decoder_prepare_memory(decoder);
    assert_int_equal(scan_decode(&scan, decoder, wrong, NULL, &roomy, NULL, NULL), ERR_MALFORMED_FILE);
    decoder_prepare_memory(decoder);
    decoder_free(decoder);
    assert_int_equal(open_descriptors(), open);
    close(wrong);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_gives_the_result_in_the_manifest),
        cmocka_unit_test(a_failure_names_its_acquisition),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(time_is_limited_and_a_job_can_be_canceled),
        cmocka_unit_test(a_file_that_keeps_its_reader_busy_is_stopped),
        cmocka_unit_test(a_decoder_that_misbehaves_is_an_error),
        cmocka_unit_test(reports_of_sanitizers_are_seen),
        cmocka_unit_test(a_decoder_killed_from_outside_is_retried_once),
        cmocka_unit_test(preallocated_memory_serves_one_scan),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
