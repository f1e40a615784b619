/* Damaged files of particles, of each format and layout: whatever the damage, the reader gives particles that a worker
 * accepts, or a failure of the file with a sentence, the same each time, and leaves nothing open in libhdf5.
 *
 * Readers run in processes of this program's own, many mutants in each, so that sanitizers see them. libhdf5 is not
 * this project's code: a mutant of an HDF5 file at which the process dies is read again by the sandboxed
 * mrirecon-codec, which must give a failure (without sanitizers).
 *
 * MRIRECON_MUTANTS=N makes N of each file instead of 300, from MRIRECON_MUTANTS_FROM on (0): the same on every run.
 * MRIRECON_MUTANTS_OF=NAME takes the files whose name contains it. */
#include "gridding/base/err.h"
#include "recon/particle/particles_build.h"
#include "tests/unit/mutants.h"

#include <dirent.h>
#include <fcntl.h>
#include <hdf5.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAP = 4 << 20, SECONDS = 20, SEALED = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

static const struct particles_wanted wanted = {.charges = PARTICLES_CHARGES_BFACTOR,
                                               .order = {PARTICLE_CHARGE, PARTICLE_RADIUS, PARTICLE_ID}};

/* libhdf5 copies from beyond an attribute that is damaged (H5Aexists); of what it reads there nothing is ours. What is
 * found in our code is reported. */
const char *__asan_default_suppressions(void);
const char *__asan_default_suppressions(void)
{
    return "interceptor_via_lib:libhdf5\n";
}

/* An allocation that is too large fails, as it does without sanitizers. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* With sanitizers, mrirecon-codec reports a signal in place of dying of it. */
#ifdef __SANITIZE_ADDRESS__
static const bool confines = false;
#else
static const bool confines = true;
#endif

static const struct kind_input hdf5_input[] = {{"hdf5", "", "", ""}, {.name = NULL}};

static const struct format {
    const char *name;
    int (*decode)(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
} formats[] = {
    {"pqr", particles_pqr_decode},       {"pdb", particles_pdb_decode},        {"xyz", particles_xyz_decode},
    {"csv", particles_csv_decode},       {"npy", particles_npy_decode},        {"npz", particles_npz_decode},
    {"gadget", particles_gadget_decode}, {"hdf5", particles_gadget_h5_decode},
};

static uint64_t number_of(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

/* What a process tells the one that started it. */
struct tally {
    uint64_t now; /* the mutant that is being read */
    uint64_t particles, failures;
};

/* What a reader gave: the sealed particles, or a failure. */
struct answer {
    int fd;
    size_t bytes;
    struct err failure; /* code 0: none */
};

/* Whether this is one of the two, and whole. `fill`: what fresh memory of the allocator has (not with sanitizers). */
static bool answer_read(const struct format *format, const char *mutant, size_t bytes, int fill, struct answer *out)
{
    struct particles p;
    struct particles_header head = {.total_bytes = 0};
    mallopt(M_PERTURB, fill);
    char *exact = malloc(bytes); /* so that a byte too far is found */
    *out = (struct answer){.fd = memfd_create("mutant", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!exact || out->fd < 0)
        return false;
    memcpy(exact, mutant, bytes);
    const int rc = format->decode(out->fd, CAP, exact, bytes, &wanted);
    free(exact);
    if (H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) != 0)
        return false;
    if (rc != 0) {
        out->failure = *err_last();
        return out->failure.code == rc && err_status(rc) >= 400 && err_status(rc) < 500 &&
               strlen(out->failure.text) > 10;
    }
    if (pread(out->fd, &head, sizeof head, 0) != sizeof head || head.total_bytes > CAP ||
        ftruncate(out->fd, (off_t)head.total_bytes) != 0 || fcntl(out->fd, F_ADD_SEALS, SEALED) != 0 ||
        particles_open(&p, out->fd) != 0)
        return false;
    particles_close(&p);
    out->bytes = head.total_bytes;
    return true;
}

static bool answers_equal(const struct answer *a, const struct answer *b)
{
    if (a->failure.code || b->failure.code)
        return a->failure.code == b->failure.code && strcmp(a->failure.text, b->failure.text) == 0;
    const void *one = mmap(NULL, a->bytes, PROT_READ, MAP_SHARED, a->fd, 0);
    const void *other = mmap(NULL, b->bytes, PROT_READ, MAP_SHARED, b->fd, 0);
    const bool equal =
        one != MAP_FAILED && other != MAP_FAILED && a->bytes == b->bytes && memcmp(one, other, a->bytes) == 0;
    munmap((void *)(uintptr_t)one, a->bytes);
    munmap((void *)(uintptr_t)other, b->bytes);
    return equal;
}

/* A mutant in this process, twice; false: the result is neither, or not the same. */
static bool mutant_read(const struct format *format, const char *mutant, size_t bytes, struct tally *tally)
{
    struct answer first, again = {.fd = -1};
    bool fine = answer_read(format, mutant, bytes, 0x5a, &first) && answer_read(format, mutant, bytes, 0xa5, &again) &&
                answers_equal(&first, &again);
    *(first.failure.code ? &tally->failures : &tally->particles) += 1;
    close(first.fd);
    close(again.fd);
    return fine;
}

/* Read mutants from tally->now on until `end`, in a process of their own. Returns its status. */
static int mutants_read(const struct format *format, const char *content, size_t bytes, uint64_t end,
                        struct tally *tally)
{
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *mutant = malloc(bytes);
        bool fine = mutant != NULL;
        /* As in the sandbox: without the handlers of cmocka and the sanitizers. */
        const struct itimerval limit = {.it_value.tv_sec = SECONDS}; /* of processor time */
        static const int signals[] = {SIGFPE, SIGSEGV, SIGILL, SIGBUS};
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
            signal(signals[i], SIG_DFL);
        H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
        for (; fine && tally->now < end; tally->now += fine) {
            memcpy(mutant, content, bytes);
            mutate(mutant, bytes, tally->now * 1000003 + 17);
            setitimer(ITIMER_VIRTUAL, &limit, NULL);
            fine = mutant_read(format, mutant, bytes, tally);
        }
        free(mutant);
        _exit(fine ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* libhdf5 failed at a mutant: the sandbox must hold it. */
static void mutant_confine(const char *name, const char *content, size_t bytes, uint64_t number, int status)
{
    const struct decode_limits limits = {.bytes = UINT64_C(1) << 30, .seconds = SECONDS};
    struct decoder *decoder = NULL;
    struct particles p;
    char codec[512], *mutant = malloc(bytes);
    const char *bin = getenv("MRIRECON_BIN");
    snprintf(codec, sizeof codec, "%s/mrirecon-codec", bin ? bin : "build/bin");
    assert_int_equal(decoder_create(&decoder, codec), 0);
    memcpy(mutant, content, bytes);
    mutate(mutant, bytes, number * 1000003 + 17);
    int fd = memfd_create("mutant", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, mutant, bytes) == (ssize_t)bytes);
    int rc = particles_decode(&p, decoder, fd, hdf5_input, &wanted, &limits, NULL, NULL);
    print_message("# %s %llu: ended by signal %d; in the sandbox: %s\n", name, (unsigned long long)number,
                  WTERMSIG(status), rc ? err_last()->text : "particles");
    if (rc == 0)
        particles_close(&p);
    else
        assert_true(err_status(rc) >= 400 && err_status(rc) < 500);
    close(fd);
    free(mutant);
    decoder_free(decoder);
}

static void file_try(const struct format *format, const char *name, const char *content, size_t bytes)
{
    const uint64_t mutants = number_of("MRIRECON_MUTANTS", 300), from = number_of("MRIRECON_MUTANTS_FROM", 0);
    struct tally *tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t ended = 0;
    assert_true(tally != MAP_FAILED);
    for (tally->now = from; tally->now < from + mutants;) {
        const int status = mutants_read(format, content, bytes, from + mutants, tally);
        if (status == 0)
            break;
        if (!WIFSIGNALED(status) || strcmp(format->name, "hdf5") != 0)
            fail_msg("%s %llu: the reader ended with status 0x%x", name, (unsigned long long)tally->now, status);
        if (confines)
            mutant_confine(name, content, bytes, tally->now, status);
        tally->now++;
        ended++;
    }
    print_message("# %llu mutants of %s: %llu particles, %llu failures, %llu ended by libhdf5\n",
                  (unsigned long long)mutants, name, (unsigned long long)tally->particles,
                  (unsigned long long)tally->failures, (unsigned long long)ended);
    assert_int_equal(tally->particles + tally->failures + ended, mutants);
    assert_true(tally->failures > 0);
    munmap(tally, sizeof *tally);
}

static void a_damaged_file_is_read_or_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/test_particle_mutants.XXXXXX", command[256];
    unsigned files = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "/usr/bin/python3 tests/unit/particle_files.py %s", folder);
    assert_int_equal(system(command), 0);
    const char *only = getenv("MRIRECON_MUTANTS_OF");
    DIR *list = opendir(folder);
    for (struct dirent *entry; (entry = readdir(list));)
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
            if (strncmp(entry->d_name, formats[i].name, strlen(formats[i].name)) != 0 ||
                (only && !strstr(entry->d_name, only)))
                continue;
            char path[512];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            FILE *file = fopen(path, "rb");
            struct stat status;
            assert_true(file && fstat(fileno(file), &status) == 0);
            char *content = malloc((size_t)status.st_size);
            assert_int_equal(fread(content, 1, (size_t)status.st_size, file), (size_t)status.st_size);
            fclose(file);
            file_try(&formats[i], entry->d_name, content, (size_t)status.st_size);
            free(content);
            files++;
        }
    closedir(list);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_true(files > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_damaged_file_is_read_or_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
