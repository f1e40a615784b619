/* The decoder, called as a worker calls it, on files made by tests/unit/scan_files.py, and on mutants and truncations
 * of them. */
#include "tests/unit/decode_fixture.h"

#include "recon/codec/codec.h"
#include "recon/codec/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* As in scan_files.py. */
enum { ACQUISITIONS = 21, SAMPLES = 40, COILS = 3, DIMS = 2 };

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* ---- good files ---- */

static void check_readout(const char *name, const struct scan *s, uint64_t index)
{
    const struct scan_readout *r = &s->readouts[index];
    float a = (float)index;
    bool head = r->acquisition == index && r->flags == index << 33 && r->measurement_uid == 7 &&
                r->scan_counter == index + 100 && r->time_stamp == 3 * index && r->samples == SAMPLES &&
                r->coils == COILS && r->traj_dims == DIMS && r->discard_pre == 2 && r->discard_post == 1 &&
                r->center_sample == 20 && r->encoding == index % 2 && r->sample_time_us == 2.5f;
    for (int i = 0; i < 3; i++) {
        float v = a + (float)i;
        head = head && r->position[i] == v && r->read_dir[i] == v + 10 && r->phase_dir[i] == v + 20 &&
               r->slice_dir[i] == v + 30 && r->table_position[i] == v + 40;
    }
    for (int i = 0; i < SCAN_INDEXES; i++)
        head = head && r->idx[i] == index + (uint64_t)i;
    if (!head)
        fail_msg("%s: head of readout %llu", name, (unsigned long long)index);
    for (int i = 0; i < SAMPLES; i++)
        for (int d = 0; d < DIMS; d++)
            if (s->traj[r->traj + (size_t)(i * DIMS + d)] != a * 16 + (float)i * 0.25f + (float)d * 0.0625f)
                fail_msg("%s: trajectory of readout %llu", name, (unsigned long long)index);
    for (int c = 0; c < COILS; c++)
        for (int i = 0; i < SAMPLES; i++) {
            struct c32 v = s->data[r->data + (size_t)(c * SAMPLES + i)];
            if (v.re != a * 16 + (float)c * 2 + (float)i * 0.125f || v.im != (float)-i - (float)c * 0.5f - a)
                fail_msg("%s: data of readout %llu", name, (unsigned long long)index);
        }
}

static void check_good(const char *name, const struct scan *s)
{
    uint64_t ignored = strcmp(name, "with_waveforms") == 0 ? 5 : strcmp(name, "one_without_samples") == 0 ? 1 : 0;
    if (s->header->readouts != ACQUISITIONS || s->header->ignored != ignored || s->header->encodings != 2)
        fail_msg("%s: %llu readouts, %llu ignored, %u encodings", name, (unsigned long long)s->header->readouts,
                 (unsigned long long)s->header->ignored, s->header->encodings);
    const struct scan_encoding *e = s->encodings;
    assert_int_equal(e[0].trajectory, SCAN_SPIRAL);
    assert_int_equal(e[1].trajectory, SCAN_OTHER);
    assert_string_equal(e[1].trajectory_name, "propellor");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(e[i].matrix[0], 64 + 2 * i);
        assert_int_equal(e[i].matrix[1], 48);
        assert_int_equal(e[i].matrix[2], 1);
        assert_int_equal(e[i].recon_matrix[0], 32);
        assert_true(e[i].fov_mm[0] == 320 && e[i].fov_mm[1] == 240.5f && e[i].recon_fov_mm[1] == 120.0f + (float)i);
    }
    assert_non_null(strstr(s->xml, "ismrmrdHeader"));
    assert_int_equal(strlen(s->xml), s->header->xml_bytes);
    for (uint64_t i = 0; i < ACQUISITIONS; i++)
        check_readout(name, s, i);
}

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

/* A decoder that never ends, and one that dies, in place of mrirecon-codec. */
static void make_program(const struct place *p, const char *name, const char *script, char path[256])
{
    snprintf(path, 256, "%s/%s", p->folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, script, strlen(script)), (ssize_t)strlen(script));
    close(fd);
}

static int yes(void *context)
{
    ++*(int *)context;
    return *(int *)context > 1;
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
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* none is left */
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

/* The start of decoders written in Python, which cannot be forked from a template: they have the upload, and could
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
         PYTHON "os.write(memory, head)\nheld = mmap.mmap(memory, 4096)\nsocket.send(success)\ntime.sleep(60)\n",
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

/* Killed by a process other than its parent, as by the kernel when memory is short: the file is read once more, and
 * nothing of the first attempt is left. After a second kill the error blames the machine, not the file. */
static void one_that_is_killed_from_outside_is_followed_by_another(void **state)
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
    /* The shebang of PYTHON is a comment here. */
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

/* A decoder's stderr is discarded, except in builds with sanitizers, whose reports are kept. */
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

/* ---- processes that are started in advance ---- */

/* Process ids of this program's children that decode, without the template that they are forked from, which goes to
 * pids[CHILDREN - 1], or 0. */
enum { CHILDREN = 8 };

static bool is_template(pid_t pid)
{
    char path[64], words[64] = "";
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, words, sizeof words - 1);
    close(fd);
    return got > 0 && strcmp(words + strlen(words) + 1, CODEC_TEMPLATE) == 0;
}

static int children(pid_t pids[CHILDREN])
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    int count = 0;
    if (fgets(line, sizeof line, file))
        for (char *word = strtok(line, " "); word && count < CHILDREN - 1; word = strtok(NULL, " ")) {
            pid_t pid = (pid_t)atoi(word);
            if (is_template(pid))
                pids[CHILDREN - 1] = pid;
            else
                pids[count++] = pid;
        }
    fclose(file);
    return count;
}

static void one_that_stands_ready_serves_one_upload(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    pid_t pids[CHILDREN] = {0}, before[CHILDREN] = {0};
    int fd = open_file(p, "plain"), wrong = open_file(p, "m2_list_longer_than_head"), open = open_descriptors();
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    assert_int_equal(children(before), 2);
    for (int i = 0; i < 4; i++) { /* two that were started in advance, then fresh ones */
        bool good = i % 2 == 0;
        assert_int_equal(scan_decode(&scan, decoder, good ? fd : wrong, NULL, &roomy, NULL, NULL),
                         good ? 0 : ERR_MALFORMED_FILE);
        scan_close(&scan);
    }
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    assert_int_equal(children(pids), 2);
    for (int i = 0; i < 4; i++)
        assert_true(pids[i / 2] != before[i % 2]);
    assert_int_equal(decoder_prepare(decoder, 99), 0);
    assert_int_equal(children(pids), DECODER_MOST_READY);
    assert_null(decoder_lost(decoder));
    decoder_free(decoder);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* none is left, not even a zombie */
    assert_int_equal(open_descriptors(), open);
    close(wrong);
    close(fd);
}

static void one_that_died_while_it_stood_ready_is_replaced_and_told(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    siginfo_t info;
    pid_t pids[CHILDREN] = {0};
    int fd = open_file(p, "plain"), open = open_descriptors();
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    for (int way = 0; way < 2; way++) { /* noticed by the upload; noticed when processes are prepared */
        assert_int_equal(decoder_prepare(decoder, 2), 0);
        int count = children(pids);
        for (int i = 0; i < count; i++) {
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

/* A template that ends is told of and replaced, and nobody waits for one that is not there: it is killed between
 * uploads, while it forks nothing, and when it is asked. What it forked before serves on. */
static void a_template_that_ended_is_replaced_and_told(void **state)
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
        assert_int_equal(children(ready), 1);
        pid_t template = ready[CHILDREN - 1];
        assert_true(template > 0);
        assert_int_equal(kill(template, SIGKILL), 0);
        assert_int_equal(waitid(P_PID, (id_t) template, &info, WEXITED | WNOWAIT), 0);
        for (int i = 0; i < 1 + way; i++) { /* of what stands ready; and one more, which has to be started */
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
        assert_int_equal(children(pids), 1);
        assert_true(pids[CHILDREN - 1] > 0 && pids[CHILDREN - 1] != template);
        assert_null(decoder_lost(decoder));
    }
    decoder_free(decoder);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(open_descriptors(), open);
    close(fd);
}

/* What one process read of an upload is not in the memory of the next: neither the template nor a process beside it
 * has it. Both copies of the bytes are looked for in all that is readable of them. */
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
        /* What is larger is the shadow of a sanitizer, of terabytes. */
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

static void what_is_forked_knows_of_no_other_upload(void **state)
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
    assert_int_equal(children(pids), 2);
    const char *own = strstr(scan.xml, "propellor");
    assert_non_null(own);
    for (int i = 0; i < 2; i++)
        assert_false(memory_has(pids[i], own, 9));
    assert_false(memory_has(pids[CHILDREN - 1], own, 9));
    assert_true(memory_has(getpid(), own, 9)); /* the search finds what is there */
    assert_true(memory_has(pids[0], words, sizeof words - 1));
    scan_close(&scan);
    decoder_free(decoder);
    close(fd);
}

/* Limits are the upload's, not those of the start. */
static void one_that_stands_ready_keeps_the_limits(void **state)
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
    /* It has ended, but was not waited for yet. */
    assert_int_equal(children(pids), 1);
    assert_int_equal(prlimit(pids[0], RLIMIT_FSIZE, NULL, &limit), 0);
    assert_int_equal(limit.rlim_max, 100);
    assert_int_equal(prlimit(pids[0], RLIMIT_CPU, NULL, &limit), 0);
    assert_in_range(limit.rlim_cur, 60, 70); /* rounded up twice */
    decoder_free(decoder);
    close(fd);
}

/* The number of allocated pages of memfds, over all descriptors of this process. */
static int64_t pages_aside(void)
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

/* It is allocated in advance with the size of the last scan, serves one scan, and changes neither scan nor limits. */
static void memory_set_aside_serves_one_scan(void **state)
{
    const struct place *p = *state;
    struct decoder *decoder = NULL;
    struct scan scan = {0};
    int fd = open_file(p, "plain"), wrong = open_file(p, "m2_list_longer_than_head"), open = open_descriptors();
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    decoder_prepare_memory(decoder); /* nothing has come yet */
    assert_int_equal(pages_aside(), 0);
    assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
    uint64_t need = scan.header->total_bytes;
    scan_close(&scan);
    for (int round = 0; round < 2; round++) {
        decoder_prepare_memory(decoder);
        decoder_prepare_memory(decoder);
        assert_int_equal(pages_aside(), (need + 4095) / 4096);
        assert_int_equal(scan_decode(&scan, decoder, fd, NULL, &roomy, NULL, NULL), 0);
        assert_int_equal(scan.header->total_bytes, need);
        check_good("plain", &scan);
        scan_close(&scan);
        assert_int_equal(pages_aside(), 0);
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
        cmocka_unit_test(one_that_is_killed_from_outside_is_followed_by_another),
        cmocka_unit_test(one_that_stands_ready_serves_one_upload),
        cmocka_unit_test(one_that_died_while_it_stood_ready_is_replaced_and_told),
        cmocka_unit_test(a_template_that_ended_is_replaced_and_told),
        cmocka_unit_test(what_is_forked_knows_of_no_other_upload),
        cmocka_unit_test(one_that_stands_ready_keeps_the_limits),
        cmocka_unit_test(memory_set_aside_serves_one_scan),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
