/* mrirecon-codec: reads and writes file formats in a process of its own, so that neither a daemon nor a worker does. */
#include "recon/codec.h"
#include "recon/image.h"
#include "recon/sandbox.h"
#include "recon/scan_build.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- decode ---- */

static int decode_run(const char *format, const char *most_bytes, const char *seconds, const char *group)
{
    enum { HEAP_BYTES = 1 << 30 }; /* an acquisition of 65535 samples and 1024 channels takes 0.5 GB */
    struct stat status;
    if (fstat(CODEC_FD_FILE, &status) != 0)
        return err_set(ERR_IO, "The file cannot be looked at (%s).", strerror(errno));
    size_t bytes = (size_t)status.st_size;
    void *file = mmap(NULL, bytes, PROT_READ, MAP_SHARED, CODEC_FD_FILE, 0);
    if (file == MAP_FAILED)
        return err_set(ERR_IO, "The file cannot be mapped (%s).", strerror(errno));
    madvise(file, bytes, MADV_SEQUENTIAL);
    int rc = scan_readers_init();
    uint64_t cap = strtoull(most_bytes, NULL, 10);
    const struct sandbox_limits limits = {
        .mapped_bytes = bytes,
        .heap_bytes = HEAP_BYTES,
        .file_bytes = cap,
        .cpu_seconds = strtod(seconds, NULL),
    };
    if (rc == 0)
        rc = sandbox_enter(&limits);
    if (rc != 0)
        return rc;
    return strcmp(format, "stream") == 0 ? scan_stream_decode(CODEC_FD_SCAN, cap, file, bytes)
                                         : scan_hdf5_decode(CODEC_FD_SCAN, cap, file, bytes, group);
}

static int decode(int count, char **word)
{
    /* Whoever started this is gone: so is the need for it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    syscall(SYS_close_range, CODEC_FD_REPORT + 1, ~0U, 0);
    int rc = decode_run(word[0], word[1], word[2], count > 3 ? word[3] : NULL);
    if (rc == 0)
        _exit(0);
    struct codec_report report = {.magic = CODEC_REPORT_MAGIC, .failure = *err_last()};
    ssize_t done = write(CODEC_FD_REPORT, &report, sizeof report);
    /* _exit: what libhdf5 would tidy up at exit may be what the file has broken. */
    _exit(done == sizeof report ? 1 : 2);
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
    if (count >= 5 && count <= 6 && strcmp(word[1], "decode") == 0)
        return decode(count - 2, word + 2);
    if (count == 5 && strcmp(word[1], "convert") == 0) {
        int rc = convert(word + 2);
        if (rc != 0)
            fprintf(stderr, "mrirecon-codec: %s: %s\n", err_name(rc), err_last()->text);
        return rc == 0 ? 0 : 1;
    }
    fprintf(stderr, "usage: mrirecon-codec convert IMAGE.h5 FORMAT OUTFILE\n"
                    "       (mrirecon-codec decode ... is started by mrirecon-worker)\n");
    return 2;
}
