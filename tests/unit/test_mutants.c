/* Damaged scan files: whatever the damage, the result is a scan or a failure of the file, and the same each time.
 *
 * MRIRECON_MUTANTS=N makes N mutants of each file instead of 30, starting with number MRIRECON_MUTANTS_FROM (0); a
 * mutant depends only on its number. MRIRECON_MUTANTS_OF=NAME takes one of the files. MRIRECON_MUTANTS_ONCE=1 reads
 * each mutant once, by a process forked from one template, which makes large numbers affordable. */
#include "tests/unit/decode_fixture.h"
#include "tests/unit/mutants.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const struct decode_limits modest = {.bytes = UINT64_C(1) << 30, .seconds = 2};

/* A decoder's result for a file. */
struct answer {
    int rc;
    char text[sizeof((struct err *)NULL)->text];
    struct scan scan;
};

static void answer_get(struct decoder *decoder, int fd, struct answer *out)
{
    memset(out, 0, sizeof *out);
    const struct scan_wanted plane = {.size = {8, 6}}; /* for those without a header */
    out->rc = scan_decode(&out->scan, decoder, fd, &plane, &modest, NULL, NULL);
    if (out->rc != 0)
        snprintf(out->text, sizeof out->text, "%s", err_last()->text);
}

static bool answers_same(const struct answer *a, const struct answer *b)
{
    return a->rc == b->rc && strcmp(a->text, b->text) == 0 &&
           (a->rc != 0 || (a->scan.header->total_bytes == b->scan.header->total_bytes &&
                           memcmp(a->scan.header, b->scan.header, a->scan.header->total_bytes) == 0));
}

/* The answer must be a scan that scan_open() accepts, or a failure of "the file" with a sentence. */
static void answer_check(const struct answer *answer, const char *what, uint64_t number)
{
    if (answer->rc == 0 && answer->scan.header->readouts < 1)
        fail_msg("%s %llu: a scan without readouts", what, (unsigned long long)number);
    if (answer->rc != 0 && (err_status(answer->rc) < 400 || err_status(answer->rc) >= 500 || strlen(answer->text) < 10))
        fail_msg("%s %llu: %s: %s", what, (unsigned long long)number, err_name(answer->rc), answer->text);
}

static int file_of(const char *bytes, size_t length)
{
    int fd = memfd_create("mutant", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    return fd;
}

/* Counts of results. */
struct tally {
    unsigned scans, failures, deaths, differ, refusals;
};

static void tally_add(struct tally *tally, const char *what, uint64_t number, const struct answer *answer)
{
    if (answer->rc == ERR_DECODER_DIED)
        print_message("# %s %llu: %s\n", what, (unsigned long long)number, answer->text);
    tally->scans += answer->rc == 0;
    tally->failures += answer->rc != 0;
    tally->deaths += answer->rc == ERR_DECODER_DIED;
}

/* Decode with a fresh process, and with two pre-started ones that have already used their memory. */
static void mutant_try(const struct place *p, const char *what, uint64_t number, int fd, struct tally *tally)
{
    struct answer answer[3];
    struct decoder *decoder = NULL;
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    bool same = true;
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            decoder_prepare(decoder, 1);
        answer_get(decoder, fd, &answer[i]);
        answer_check(&answer[i], what, number);
        same = same && answers_same(&answer[0], &answer[i]);
    }
    if (!same)
        print_message("# %s %llu: different answers to the same file: %s / %s / %s\n", what, (unsigned long long)number,
                      answer[0].rc ? answer[0].text : "a scan", answer[1].rc ? answer[1].text : "a scan",
                      answer[2].rc ? answer[2].text : "a scan");
    tally->differ += !same;
    tally_add(tally, what, number, &answer[0]);
    for (int i = 0; i < 3; i++)
        scan_close(&answer[i].scan);
    decoder_free(decoder);
}

/* Decode with a process of `decoder`, forked from its template. */
static void mutant_try_once(struct decoder *decoder, const char *what, uint64_t number, int fd, struct tally *tally)
{
    struct answer answer;
    assert_int_equal(decoder_prepare(decoder, 2), 0);
    answer_get(decoder, fd, &answer);
    answer_check(&answer, what, number);
    tally_add(tally, what, number, &answer);
    scan_close(&answer.scan);
}

static uint64_t number_of(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

static bool is_wanted(const char *name)
{
    const char *only = getenv("MRIRECON_MUTANTS_OF");
    return !only || !*only || strcmp(only, name) == 0;
}

/* Mutants of one file. */
static void mutants_try(const struct place *p, struct decoder *decoder, const char *name, struct tally *tally)
{
    const uint64_t mutants = number_of("MRIRECON_MUTANTS", 30), from = number_of("MRIRECON_MUTANTS_FROM", 0);
    size_t bytes;
    char *content = read_file(p, name, &bytes), *mutant = malloc(bytes);
    for (uint64_t i = from; i < from + mutants; i++) {
        memcpy(mutant, content, bytes);
        mutate(mutant, bytes, i * 1000003 + 17);
        int fd = file_of(mutant, bytes);
        if (decoder)
            mutant_try_once(decoder, name, i, fd, tally);
        else
            mutant_try(p, name, i, fd, tally);
        close(fd);
    }
    free(mutant);
    free(content);
}

static void a_damaged_file_has_one_answer(void **state)
{
    static const char *const bases[] = {"plain",      "item_376",  "gzip_shuffle", "contiguous_new_format",
                                        "fixed_xml",  "float64",   "stream",       "rrsg",
                                        "arrays.npz", "packed.npz"};
    const struct place *p = *state;
    struct tally tally = {0};
    struct decoder *decoder = NULL;
    unsigned files = 0;
    if (number_of("MRIRECON_MUTANTS_ONCE", 0))
        assert_int_equal(decoder_create(&decoder, p->codec), 0);
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
        if (is_wanted(bases[b])) {
            mutants_try(p, decoder, bases[b], &tally);
            files++;
        }
    const char *lost = decoder ? decoder_lost(decoder) : NULL;
    print_message("# %u files, their mutants read %s: %u scans, %u failures (%u by the decoder's death), %u with other "
                  "answers%s%s\n",
                  files, decoder ? "once" : "three times", tally.scans, tally.failures, tally.deaths, tally.differ,
                  lost ? "; " : "", lost ? lost : "");
    decoder_free(decoder);
    assert_int_equal(tally.differ, 0);
    assert_true(files == 0 || (tally.failures > 0 && tally.scans > 0));
}

/* ---- arrays that the client packs ---- */

/* Pack k-space and a trajectory; returns the exit status. stderr goes to `said`. */
static int pack_run(const struct place *p, const char *kspace, const char *trajectory, int said)
{
    extern char **environ;
    const char *bin = getenv("MRIRECON_BIN");
    char program[256], out[256], k[256], t[256];
    snprintf(program, sizeof program, "%s/mrirecon", bin ? bin : "build/bin");
    snprintf(out, sizeof out, "%s/out.npz", p->folder);
    snprintf(k, sizeof k, "kspace=%s/%s", p->folder, kspace);
    snprintf(t, sizeof t, "trajectory=%s/%s", p->folder, trajectory);
    unlink(out);
    char name[] = "mrirecon", verb[] = "pack";
    char *const words[] = {name, verb, out, k, t, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, said, 2);
    pid_t pid;
    int status;
    assert_int_equal(posix_spawn(&pid, program, &actions, NULL, words, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("mrirecon pack ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void mutant_write(const struct place *p, const char *name, const char *bytes, size_t length)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    close(fd);
}

/* A file that the client packs is read or refused by the codec; arrays that the client refuses get a sentence. */
static void packed_check(const struct place *p, struct decoder *decoder, const char *what, uint64_t number, int rc,
                         int said, struct tally *tally)
{
    char text[512] = "";
    if (rc == 0) {
        int fd = open_file(p, "out.npz");
        mutant_try_once(decoder, what, number, fd, tally);
        close(fd);
        return;
    }
    tally->refusals++;
    if (pread(said, text, sizeof text - 1, 0) < 20 || !strchr(text, '.') || strstr(text, "Sanitizer"))
        fail_msg("%s %llu: exit status %d: %s", what, (unsigned long long)number, rc, text);
}

static void damaged_arrays_are_packed_or_refused(void **state)
{
    static const char *const bases[] = {"k.hdr", "k.cfl", "k.npy", "t.npy"};
    const struct place *p = *state;
    const uint64_t mutants = number_of("MRIRECON_MUTANTS", 30), from = number_of("MRIRECON_MUTANTS_FROM", 0);
    struct tally tally = {0};
    struct decoder *decoder = NULL;
    assert_int_equal(decoder_create(&decoder, p->codec), 0);
    for (size_t b = 0; b < sizeof bases / sizeof *bases && is_wanted("pack"); b++) {
        size_t bytes;
        char *content = read_file(p, bases[b], &bytes), *mutant = malloc(bytes);
        for (uint64_t i = from; i < from + mutants; i++) {
            memcpy(mutant, content, bytes);
            mutate(mutant, bytes, i * 1000003 + 17);
            mutant_write(p, bases[b], mutant, bytes);
            int said = memfd_create("said", MFD_CLOEXEC);
            assert_true(said >= 0);
            int rc = pack_run(p, b < 2 ? "k.cfl" : "k.npy", "t.npy", said);
            packed_check(p, decoder, bases[b], i, rc, said, &tally);
            close(said);
        }
        mutant_write(p, bases[b], content, bytes);
        free(mutant);
        free(content);
    }
    decoder_free(decoder);
    print_message("# arrays packed: %u scans, %u failures (%u by the decoder's death), %u refused by the client\n",
                  tally.scans, tally.failures, tally.deaths, tally.refusals);
    assert_int_equal(tally.deaths, 0);
    assert_true(!is_wanted("pack") || (tally.scans > 0 && tally.refusals > 0));
}

static void truncated_files_are_reported(void **state)
{
    enum { CUTS = 50 };
    static const char *const bases[] = {"plain", "contiguous_new_format", "stream"};
    const struct place *p = *state;
    for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
        size_t bytes;
        char *content = read_file(p, bases[b], &bytes);
        for (unsigned i = 0; i < CUTS; i++) {
            struct scan scan = {0};
            int fd = file_of(content, bytes * i / CUTS);
            int rc = decode_fd(p, &scan, fd, NULL);
            assert_int_not_equal(rc, 0);
            assert_in_range(err_status(rc), 400, 499);
            close(fd);
        }
        free(content);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncated_files_are_reported),
        cmocka_unit_test(a_damaged_file_has_one_answer),
        cmocka_unit_test(damaged_arrays_are_packed_or_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
