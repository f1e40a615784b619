/* Decodes an upload: tells its format by its first bytes, starts mrirecon-codec on it, watches it, and opens what it
 * made. */
#include "recon/scan.h"

#include "gridding/base/err.h"
#include "recon/codec.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- what it is ---- */

enum { SNIFF_BYTES = 560, POLL_MS = 50 };
static const char hdf5_magic[8] = "\x89HDF\r\n\x1a\n";

#define TWIX "The file looks like Siemens raw data (twix .dat): convert it with siemens_to_ismrmrd"

/* Formats told by what stands at the start, and what to say of those that are not read. First match counts. */
static const struct {
    size_t at, length;
    const char *magic, *format; /* NULL: not read */
    const char *sentence;
} magics[] = {
    {0, 8, hdf5_magic, "hdf5", NULL},
    {0, 10, "MATLAB 5.0", NULL, "The file is a MATLAB file (.mat)"},
    {0, 5, "yardl", NULL, "The file is an MRD version 2 (yardl) stream, and only version 1 is read"},
    {0, 3, "CDF", NULL, "The file is a NetCDF file"},
    {0, 2, "\x1f\x8b", NULL, "The file is packed by gzip: unpack it (gunzip) and send what is inside"},
    {0, 4, "PK\x03\x04", NULL, "The file is a ZIP archive: unpack it and send what is inside"},
    {0, 4,
     "\xfd"
     "7zX",
     NULL, "The file is packed by xz: unpack it and send what is inside"},
    {0, 6, "\x93NUMPY", NULL, "The file is a NumPy array, which says nothing of trajectory and geometry"},
    {0, 8, "\x89PNG\r\n\x1a\n", NULL, "The file is a PNG picture"},
    {128, 4, "DICM", NULL, "The file is a DICOM file, which holds images and no k-space"},
    {344, 3, "n+1", NULL, "The file is a NIfTI image"},
    {0, 8, "\0\0\0\0\1\0\0\0", NULL, TWIX},
    {0, 8, "\0\0\0\0\2\0\0\0", NULL, TWIX},
    {0, 2, "\x01\0", "stream", NULL},
    {0, 2, "\x02\0", "stream", NULL},
    {0, 2, "\x03\0", "stream", NULL},
};

static bool is_text(const char *head, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)head[i] < ' ' && !strchr("\t\r\n\f", head[i])) || head[i] == 0x7f || head[i] == '\0')
            return false;
    return true;
}

/* HDF5 may begin with a block of the user's own, of 512 bytes or a power of two times that. */
static bool is_hdf5_behind(int fd, uint64_t bytes)
{
    char head[sizeof hdf5_magic];
    for (uint64_t at = 512; at + sizeof head <= bytes; at *= 2)
        if (pread(fd, head, sizeof head, (off_t)at) == (ssize_t)sizeof head &&
            memcmp(head, hdf5_magic, sizeof head) == 0)
            return true;
    return false;
}

static int unknown(const char *what)
{
    return err_set(ERR_UNKNOWN_FORMAT, "%s. An ISMRMRD scan is expected: an HDF5 file, or an MRD version 1 stream.",
                   what);
}

/* The format's name for mrirecon-codec. */
static int sniff(const char **format, int fd, uint64_t bytes)
{
    char head[SNIFF_BYTES] = "";
    ssize_t got = pread(fd, head, sizeof head, 0);
    if (got < 0)
        return err_set(ERR_IO, "The file cannot be read (%s).", strerror(errno));
    if (got == 0)
        return err_set(ERR_EMPTY_BODY, "The file is empty (0 bytes). Send the scan as the body of the request.");
    bool behind = is_hdf5_behind(fd, bytes);
    if (behind && strncmp(head, "MATLAB", 6) == 0)
        return unknown("The file is a MATLAB 7.3 file (.mat)");
    if (behind) {
        *format = "hdf5";
        return 0;
    }
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        if (magics[i].at + magics[i].length > (size_t)got ||
            memcmp(head + magics[i].at, magics[i].magic, magics[i].length) != 0)
            continue;
        if (!magics[i].format)
            return unknown(magics[i].sentence);
        *format = magics[i].format;
        return 0;
    }
    return unknown(is_text(head, (size_t)got) ? "The file is text" : "The file is of no format that is known here");
}

/* ---- the child ---- */

struct child {
    pid_t pid;
    int report; /* read end of its pipe */
};

/* Descriptors are moved out of the way of the child's fixed numbers, so that no dup2 lands on one still needed. */
static int move_away(int fd)
{
    enum { FREE_FROM = 16 };
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, FREE_FROM);
    return moved >= 0 ? moved : err_set(ERR_IO, "No more files can be opened (%s).", strerror(errno));
}

static int spawn(pid_t *pid, const char *codec, char *const *words, const int fds[3])
{
    static char *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, fds[i], CODEC_FD_FILE + i);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    int error = posix_spawn(pid, codec, &actions, &attributes, words, no_environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error == 0 ? 0
                      : err_set(ERR_INTERNAL, "The decoder %s cannot be started (%s): is the installation complete?",
                                codec, strerror(error));
}

static int child_start(struct child *child, const char *codec, const char *format, int file, int memory,
                       const char *group, const struct scan_limits *limits)
{
    char most[32], seconds[32];
    snprintf(most, sizeof most, "%llu", (unsigned long long)limits->bytes);
    snprintf(seconds, sizeof seconds, "%.0f", ceil(limits->seconds));
    char *const words[] = {"mrirecon-codec",         "decode", (char *)(uintptr_t)format, most, seconds,
                           (char *)(uintptr_t)group, NULL};
    int pipes[2], fds[3] = {-1, -1, -1};
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return err_set(ERR_IO, "No more files can be opened (%s).", strerror(errno));
    const int from[3] = {file, memory, pipes[1]};
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++) {
        fds[i] = move_away(from[i]);
        rc = fds[i] < 0 ? fds[i] : 0;
    }
    if (rc == 0)
        rc = spawn(&child->pid, codec, words, fds);
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    close(pipes[1]);
    if (rc == 0)
        child->report = pipes[0];
    else
        close(pipes[0]);
    return rc;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Wait for the child's end, or end it. Its pipe wakes us the moment it exits; a child that closes the pipe and lives on
 * is looked at every millisecond until its time is over. Returns 0 with its wait status, or why it was killed. */
static int child_wait(struct child *child, int *status, const struct scan_limits *limits,
                      int (*canceled)(void *context), void *context)
{
    double end = now() + limits->seconds;
    struct pollfd pipe = {.fd = child->report, .events = 0}; /* a hang-up is always reported */
    int rc = 0;
    for (;;) {
        pid_t done = waitpid(child->pid, status, WNOHANG);
        if (done < 0)
            return err_set(ERR_INTERNAL, "The decoder cannot be waited for (%s).", strerror(errno));
        if (done == child->pid)
            return rc;
        double left = end - now();
        if (canceled && canceled(context))
            rc = err_set(ERR_CANCELED, "The job was canceled while its file was read.");
        else if (left <= 0)
            rc = err_set(ERR_LIMIT,
                         "Reading the file took longer than %.0f s and was stopped. The file is larger than this "
                         "service is set up for, or it is built to keep a reader busy.",
                         limits->seconds);
        if (rc != 0) {
            kill(child->pid, SIGKILL);
            while (waitpid(child->pid, status, 0) < 0 && errno == EINTR)
                ;
            return rc;
        }
        int wait_ms = left * 1000 < POLL_MS ? (int)(left * 1000) + 1 : POLL_MS;
        if (pipe.revents & (POLLHUP | POLLERR))
            poll(NULL, 0, 1);
        else
            poll(&pipe, 1, wait_ms);
    }
}

/* ---- what became of it ---- */

/* Text that went through hostile hands: one line of valid UTF-8 without control or formatting characters. */
static void sanitise(char *text, size_t size)
{
    text[size - 1] = '\0';
    unsigned char *to = (unsigned char *)text, *from = to;
    while (*from) {
        unsigned length = *from < 0x80 ? 1 : *from >= 0xc2 && *from < 0xe0 ? 2 : *from >= 0xe0 && *from < 0xf0 ? 3 : 0;
        uint32_t c = length == 1 ? *from : length == 2 ? *from & 0x1fu : *from & 0x0fu;
        bool good = length != 0;
        for (unsigned i = 1; good && i < length; i++) {
            good = (from[i] & 0xc0) == 0x80;
            c = c << 6 | (from[i] & 0x3fu);
        }
        good = good && c >= ' ' && c != 0x7f && !(c >= 0x80 && c < 0xa0) && !(length == 3 && c < 0x800) &&
               !(c >= 0xd800 && c < 0xe000) && !(c >= 0x2000 && c <= 0x206f) && !(c >= 0xe000 && c < 0xf900) &&
               c != 0xfeff && c < 0xfff0;
        if (good) {
            memmove(to, from, length);
            to += length;
            from += length;
        } else {
            *to++ = '?';
            from++;
        }
    }
    *to = '\0';
}

/* The failures a decoder may report; a hijacked one must not pose as, say, a broken device. */
static bool may_report(int code)
{
    static const int codes[] = {
        ERR_INTERNAL,  ERR_NO_MEMORY,    ERR_IO,    ERR_BAD_PARAMETER,  ERR_UNKNOWN_FORMAT, ERR_MALFORMED_FILE,
        ERR_TRUNCATED, ERR_HOSTILE_FILE, ERR_LIMIT, ERR_HEADER_INVALID, ERR_NO_IMAGE_DATA,  ERR_ENCODING_INVALID,
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == code)
            return true;
    return false;
}

static int report_take(int pipe)
{
    struct codec_report report;
    ssize_t got = read(pipe, &report, sizeof report);
    if (got != sizeof report || report.magic != CODEC_REPORT_MAGIC || !may_report(report.failure.code))
        return err_set(ERR_DECODER_DIED,
                       "The decoder ended without a scan and without a reason. The file is probably damaged: "
                       "export it again.");
    sanitise(report.failure.text, sizeof report.failure.text);
    return err_restore(&report.failure);
}

static int death_tell(int signal)
{
    if (signal == SIGXCPU)
        return err_set(ERR_LIMIT, "Reading the file took more processor time than it may and was stopped.");
    if (signal == SIGSYS)
        return err_set(ERR_DECODER_DIED,
                       "Reading the file made the decoder try something that it may not do, and it was "
                       "stopped. The file is damaged or hostile; nothing outside the decoder was touched.");
    return err_set(
        ERR_DECODER_DIED,
        "Reading the file broke the decoder (signal %d, %s). The file is probably damaged in a way that libhdf5 "
        "does not notice: export it again, and check it with h5dump.",
        signal, strsignal(signal));
}

/* ---- the result ---- */

/* Cut the memfd to what was written, and seal it for good. Its writer is gone. */
static int memory_seal(int memory, uint64_t cap)
{
    struct scan_header header;
    if (pread(memory, &header, sizeof header, 0) != sizeof header || header.magic != SCAN_MAGIC ||
        header.total_bytes > cap || header.total_bytes < sizeof header)
        return err_set(ERR_DECODER_DIED,
                       "The decoder ended well but left no scan. Try again, and report the file if it stays "
                       "so.");
    if (ftruncate(memory, (off_t)header.total_bytes) != 0 ||
        fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return err_set(ERR_IO, "The decoded scan cannot be sealed (%s).", strerror(errno));
    return 0;
}

/* Memory that can grow to `cap` and no further. */
static int memory_create(uint64_t cap)
{
    int memory = memfd_create("mrirecon-scan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0 || ftruncate(memory, (off_t)cap) != 0 || fcntl(memory, F_ADD_SEALS, F_SEAL_GROW) != 0) {
        int rc = err_set(ERR_NO_MEMORY, "No memory can be set aside for the decoded scan (%s).", strerror(errno));
        if (memory >= 0)
            close(memory);
        return rc;
    }
    return memory;
}

static int decode_into(int memory, const char *codec, const char *format, int fd, const char *group,
                       const struct scan_limits *limits, int (*canceled)(void *context), void *context)
{
    struct child child;
    int status = 0, rc = child_start(&child, codec, format, fd, memory, group, limits);
    if (rc != 0)
        return rc;
    rc = child_wait(&child, &status, limits, canceled, context);
    if (rc == 0 && WIFSIGNALED(status))
        rc = death_tell(WTERMSIG(status));
    else if (rc == 0 && WEXITSTATUS(status) != 0)
        rc = report_take(child.report);
    close(child.report);
    return rc == 0 ? memory_seal(memory, limits->bytes) : rc;
}

int scan_decode(struct scan *out, const char *codec, int fd, const char *group, const struct scan_limits *limits,
                int (*canceled)(void *context), void *context)
{
    struct stat status;
    const char *format = NULL;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(ERR_IO, "The scan is no regular file.");
    int rc = sniff(&format, fd, (uint64_t)status.st_size);
    if (rc != 0)
        return rc;
    int memory = memory_create(limits->bytes);
    if (memory < 0)
        return memory;
    rc = decode_into(memory, codec, format, fd, group, limits, canceled, context);
    if (rc == 0)
        rc = scan_open(out, memory);
    /* The mapping keeps the memory. */
    close(memory);
    return rc;
}
