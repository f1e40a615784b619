/* mrirecon-codec: reads and writes file formats in a process of its own, so that neither a daemon nor a worker does. */
#include "recon/codec.h"
#include "recon/image.h"
#include "recon/sandbox.h"
#include "recon/scan_build.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- decode ---- */

struct upload {
    struct codec_request request;
    int file, memory;
};

/* Wait for the upload. Where there is none to come, or what comes is no request, the process has no business. */
static void upload_receive(struct upload *upload)
{
    int fds[2];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control;
    struct iovec part = {.iov_base = &upload->request, .iov_len = sizeof upload->request};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(CODEC_FD, &packet, 0);
    if (got == 0)
        _exit(0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    if (got != sizeof upload->request || upload->request.magic != CODEC_REQUEST_MAGIC || !head ||
        head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof fds))
        _exit(2);
    memcpy(fds, CMSG_DATA(head), sizeof fds);
    upload->file = fds[0];
    upload->memory = fds[1];
    if (write(CODEC_FD, CODEC_BEGUN, 1) != 1)
        _exit(2);
}

static int upload_decode(const struct upload *upload)
{
    const struct codec_request *request = &upload->request;
    size_t bytes = (size_t)request->file_bytes;
    void *file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, upload->file, 0);
    if (file == MAP_FAILED)
        return err_set(ERR_IO, "The file cannot be mapped (%s).", strerror(errno));
    madvise(file, bytes, MADV_SEQUENTIAL);
    if (strcmp(request->format, "stream") == 0)
        return scan_stream_decode(upload->memory, request->most_bytes, file, bytes);
    return scan_hdf5_decode(upload->memory, request->most_bytes, file, bytes, *request->group ? request->group : NULL);
}

static int decode(void)
{
    /* Whoever started this is gone: so is the need for it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    syscall(SYS_close_range, CODEC_FD + 1, ~0U, 0);
    struct upload upload;
    int rc = scan_readers_init();
    /* Where the upload is there already, it would have to wait. */
    struct pollfd socket = {.fd = CODEC_FD, .events = POLLIN};
    if (rc == 0 && poll(&socket, 1, 0) == 0)
        rc = scan_hdf5_rehearse();
    if (rc == 0)
        rc = sandbox_enter(CODEC_FD);
    upload_receive(&upload);
    if (rc == 0)
        rc = upload_decode(&upload);
    struct codec_report report = {.magic = CODEC_REPORT_MAGIC};
    if (rc != 0)
        report.failure = *err_last();
    ssize_t done = write(CODEC_FD, &report, sizeof report);
    /* _exit: what libhdf5 would tidy up at exit may be what the file has broken. */
    _exit(done == sizeof report ? rc != 0 : 2);
}

/* ---- convert ---- */

static int convert(char **word)
{
    int format = image_format_find(word[1]);
    if (format < 0)
        return err_set(ERR_BAD_PARAMETER, "There is no image format \"%s\".", word[1]);
    struct image_series *series = NULL;
    int rc = image_read_h5(&series, word[0]);
    if (rc != 0)
        return rc;
    int fd = open(word[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        rc = err_set(ERR_IO, "%s cannot be written (%s).", word[2], strerror(errno));
    else
        rc = image_write(series, (enum image_format)format, fd);
    if (fd >= 0 && rc == 0 && fsync(fd) != 0)
        rc = err_set(ERR_IO, "%s cannot be written (%s).", word[2], strerror(errno));
    if (fd >= 0)
        close(fd);
    image_series_free(series);
    return rc;
}

int main(int count, char **word)
{
    if (count == 2 && strcmp(word[1], "decode") == 0)
        return decode();
    if (count == 5 && strcmp(word[1], "convert") == 0) {
        int rc = convert(word + 2);
        if (rc != 0)
            fprintf(stderr, "mrirecon-codec: %s: %s\n", err_name(rc), err_last()->text);
        return rc == 0 ? 0 : 1;
    }
    fprintf(stderr, "usage: mrirecon-codec convert IMAGE.h5 FORMAT OUTFILE\n"
                    "       (mrirecon-codec decode is started by mrirecon-worker)\n");
    return 2;
}
