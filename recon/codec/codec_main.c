/* mrirecon-codec: reads and writes file formats in a process of its own, so that neither the daemon nor a worker does.
 */
#include "gridding/base/err.h"
#include "recon/codec/codec.h"
#include "recon/codec/codec_formats.h"
#include "recon/codec/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- decode ---- */

enum { DESCRIPTORS_MOST = 2 }; /* of one message */

struct codec_upload {
    struct codec_request request;
    int file, memory;
};

/* Send the report, and end by _exit(): the file may have corrupted what libhdf5's exit handlers would clean up.
 * `waits`: until the worker ends the process. */
static _Noreturn void report_send(int rc, bool waits)
{
    struct codec_report report = {.head = {CODEC_REPORT_MAGIC, CODEC_VERSION}};
    if (rc != 0)
        report.failure = *err_last();
    ssize_t done = write(CODEC_FD, &report, sizeof report);
    while (waits && read(CODEC_FD, &report, sizeof report) > 0)
        ;
    _exit(done == sizeof report ? rc != 0 : 2);
}

/* Whether this is a request of our version; one of another version is answered with a failure. */
static bool request_is_known(const struct codec_request *request, ssize_t got)
{
    if (got < (ssize_t)sizeof request->head || request->head.magic != CODEC_REQUEST_MAGIC)
        return false;
    if (request->head.version != CODEC_VERSION)
        report_send(err_set(ERR_INTERNAL,
                            "The worker uses protocol version %u, mrirecon-codec version %d: they belong to different "
                            "installations. Install both from the same build.",
                            request->head.version, CODEC_VERSION),
                    false);
    return got == sizeof *request;
}

/* Receive a message of at most `room` bytes, *got of them. False: it does not come with exactly `count` descriptors.
 * The process ends if the socket was closed. */
static bool message_receive(void *to, size_t room, ssize_t *got, int *fds, size_t count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(DESCRIPTORS_MOST * sizeof *fds)];
    } control;
    struct iovec part = {.iov_base = to, .iov_len = room};
    struct msghdr packet = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(count * sizeof *fds)};
    *got = recvmsg(CODEC_FD, &packet, 0);
    if (*got == 0)
        _exit(0);
    struct cmsghdr *head = *got > 0 ? CMSG_FIRSTHDR(&packet) : NULL;
    if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(count * sizeof *fds))
        return false;
    memcpy(fds, CMSG_DATA(head), count * sizeof *fds);
    return true;
}

/* Wait for the upload. The process ends if the socket is closed, or if the message is not a request. */
static void upload_receive(struct codec_upload *upload)
{
    int fds[DESCRIPTORS_MOST] = {-1, -1};
    ssize_t got;
    const bool with_fds = message_receive(&upload->request, sizeof upload->request, &got, fds, DESCRIPTORS_MOST);
    if (!request_is_known(&upload->request, got) || !with_fds)
        _exit(2);
    upload->file = fds[0];
    upload->memory = fds[1];
    const struct sandbox_limits limits = {
        .mapped_bytes = upload->request.file_bytes,
        .heap_bytes = upload->request.heap_bytes,
        .file_bytes = upload->request.most_bytes,
        .cpu_seconds = upload->request.cpu_seconds,
    };
    if (sandbox_limit(&limits) != 0)
        _exit(2);
    if (write(CODEC_FD, CODEC_BEGUN, 1) != 1)
        _exit(2);
}

static const struct codec_reader *reader_find(const struct codec_request *request)
{
    const struct codec_reader *reader = codec_readers;
    while (reader->format &&
           (request->magic != reader->magic || strncmp(request->format, reader->format, sizeof request->format) != 0))
        reader++;
    return reader->format && (!request->arriving || reader->follow) ? reader : NULL;
}

static void follow_done(void)
{
    report_send(0, true);
}

static int upload_decode(const struct codec_upload *upload)
{
    const struct codec_request *request = &upload->request;
    const struct codec_reader *reader = reader_find(request);
    if (!reader)
        return err_set(ERR_INTERNAL, "This decoder reads no files of format \"%.*s\".", (int)sizeof request->format,
                       request->format);
    if (request->arriving)
        return reader->follow(upload->memory, request->most_bytes, upload->file, request->wanted, follow_done);
    size_t bytes = (size_t)request->file_bytes;
    void *file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, upload->file, 0);
    if (file == MAP_FAILED)
        return err_set(ERR_IO, "The file cannot be mapped (%s).", strerror(errno));
    madvise(file, bytes, MADV_SEQUENTIAL);
    return reader->decode(upload->memory, request->most_bytes, file, bytes, request->wanted);
}

/* Enter the sandbox and serve one upload. `rc`: of the libraries' initialisation. */
static _Noreturn void serve(int rc)
{
    struct codec_upload upload;
    if (rc == 0)
        rc = sandbox_enter(CODEC_FD, -1);
    upload_receive(&upload);
    if (rc == 0)
        rc = upload_decode(&upload);
    report_send(rc, false);
}

static void begin(void)
{
    sandbox_follow_parent(CODEC_FD);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* who waits for an upload's next bytes sleeps for so short a time */
    syscall(SYS_close_range, CODEC_FD + 1, ~0U, 0);
}

static _Noreturn void decode(void)
{
    begin();
    int rc = codec_init();
    /* Do not warm up if the upload has already arrived. */
    struct pollfd socket = {.fd = CODEC_FD, .events = POLLIN};
    if (rc == 0 && poll(&socket, 1, 0) == 0)
        rc = codec_warm_up();
    serve(rc);
}

/* ---- template ---- */

/* Receive the socket for a new process. The template ends if its parent has ended, or if the message is anything else.
 */
static int fork_receive(void)
{
    int fd = -1;
    ssize_t got;
    struct codec_head request;
    if (!message_receive(&request, sizeof request, &got, &fd, 1) || got != sizeof request ||
        request.magic != CODEC_FORK_MAGIC || request.version != CODEC_VERSION)
        _exit(2);
    return fd;
}

/* Show this process as `mrirecon-codec decode` in ps, by overwriting the template's argument, which is not shorter. */
static void list_as_decoder(char *verb)
{
    memset(verb, 0, strlen(CODEC_TEMPLATE));
    memcpy(verb, CODEC_DECODE, strlen(CODEC_DECODE));
}

/* Fork for each message, by clone() with CLONE_PARENT, so that the child is a child of this process's parent, which
 * reaps it. The template has a single thread, so the child needs none of fork()'s handlers. `verb`: the argument it was
 * started with. */
static _Noreturn void template(char *verb)
{
    begin();
    if (codec_init() != 0 || codec_warm_up() != 0)
        _exit(1);
    /* Return free memory to the kernel: reusing it after a fork would copy each page, while a fresh page is only
     * cleared. */
    malloc_trim(0);
    for (;;) {
        int fd = fork_receive();
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0L, 0L, 0L, 0L);
        if (pid == 0) {
            dup2(fd, CODEC_FD);
            close(fd);
            sandbox_follow_parent(CODEC_FD);
            list_as_decoder(verb); /* who sees a decoder, and stops it, has one that ends with its parent */
            serve(0);
        }
        close(fd);
        const struct codec_forked answer = {{CODEC_FORK_MAGIC, CODEC_VERSION}, pid > 0 ? pid : 0};
        if (send(CODEC_FD, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
            _exit(2);
    }
}

/* ---- convert ---- */

/* Enter the sandbox before reading the native file: a compromised worker may have written it. No format is much larger
 * than the native one. */
static int convert_confine(int in, int out)
{
    enum { SPARE_BYTES = 1 << 30, CPU_SECONDS = 600, BYTES_PER_SECOND = 1 << 20 };
    struct stat status;
    if (fstat(in, &status) != 0)
        return err_set(ERR_IO, "The result cannot be read (%s).", strerror(errno));
    uint64_t bytes = (uint64_t)status.st_size;
    const struct sandbox_limits limits = {
        .heap_bytes = 4 * bytes + SPARE_BYTES,
        .file_bytes = 2 * bytes + SPARE_BYTES,
        .cpu_seconds = CPU_SECONDS + (double)bytes / BYTES_PER_SECOND,
    };
    int rc = codec_init();
    if (rc == 0)
        rc = sandbox_limit(&limits);
    return rc == 0 ? sandbox_enter(-1, out) : rc;
}

static const struct codec_converter *converter_find(const char *form)
{
    const struct codec_converter *converter = codec_converters;
    while (converter->form && strcmp(converter->form->name, form) != 0)
        converter++;
    return converter->form ? converter : NULL;
}

/* `word`: form, native file, format, file to write, and a view or NULL. */
static int convert(char **word)
{
    const struct codec_converter *converter = converter_find(word[0]);
    int format = converter ? form_format_find(converter->form, word[2]) : -1;
    struct result_view view;
    if (word[4] && (!converter || !converter->view || !view_read(word[4], &view)))
        return err_set(ERR_BAD_PARAMETER, "There is no view \"%s\" of results of form \"%s\".", word[4], word[0]);
    if (format < 0)
        return err_set(ERR_BAD_PARAMETER, "There is no format \"%s\" of results of form \"%s\".", word[2], word[0]);
    int in = open(word[1], O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return err_set(ERR_IO, "%s cannot be read (%s).", word[1], strerror(errno));
    int out = open(word[3], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0)
        return err_set(ERR_IO, "%s cannot be written (%s).", word[3], strerror(errno));
    int rc = convert_confine(in, out);
    if (rc == 0)
        rc = word[4] ? converter->view(in, &view, out) : converter->convert(in, format, out);
    if (rc == 0 && fsync(out) != 0)
        rc = err_set(ERR_IO, "%s cannot be written (%s).", word[3], strerror(errno));
    if (rc == ERR_NOT_ACCEPTABLE && write(out, err_last()->text, strnlen(err_last()->text, CODEC_REASON)) < 0)
        rc = err_set(ERR_IO, "%s cannot be written (%s).", word[3], strerror(errno));
    return rc;
}

int main(int count, char **word)
{
    if (count == 2 && strcmp(word[1], CODEC_DECODE) == 0)
        decode();
    if (count == 2 && strcmp(word[1], CODEC_TEMPLATE) == 0)
        template(word[1]);
    if ((count == 6 || count == 7) && strcmp(word[1], "convert") == 0) {
        sandbox_follow_parent(
            -1); /* the files are reached through the daemon's /proc folder, and are gone without it */
        int rc = convert(word + 2);
        if (rc != 0)
            fprintf(stderr, "mrirecon-codec: %s: %s\n", err_name(rc), err_last()->text);
        /* _exit(), because the libraries' exit handlers make calls that the sandbox forbids. */
        _exit(rc == 0 ? 0 : rc == ERR_NOT_ACCEPTABLE ? CODEC_REFUSED : 1);
    }
    fprintf(stderr, "usage: mrirecon-codec convert image IMAGE.h5 FORMAT OUTFILE\n"
                    "       (mrirecon-codec decode and template are started by mrirecon-worker)\n");
    return 2;
}
