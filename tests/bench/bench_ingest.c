/* Ingest: the time to decode a large scan, compared with reading its file and writing its samples flat once.
 *
 *   bench_ingest [ACQUISITIONS]      (20000: 1.4 GB; of 512 samples, 16 coils, 3-D trajectory; chunks of 1 as
 * libismrmrd's)
 *
 * MRIRECON_BIN: folder of mrirecon-codec (build/bin). The file is written under TMPDIR and deleted. One JSON line per
 * run. */
#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "recon/codec/decoder.h"
#include "recon/scan/scan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PIECE = 64 << 10, RUNS = 5 };

/* Processor seconds of this process and its ended children, which do not depend on the load of the machine. */
static double cpu(void)
{
    struct rusage self, children;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return (double)(self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
           1e-6 * (double)(self.ru_utime.tv_usec + self.ru_stime.tv_usec + children.ru_utime.tv_usec +
                           children.ru_stime.tv_usec);
}

/* Read the file as cat does; if `flat` >= 0, also write it into a memfd, which is the least that any flattening
 * does. */
static double copy_time(int fd, int flat)
{
    char *piece = malloc(PIECE);
    double start = clock_seconds();
    off_t at = 0;
    ssize_t got;
    while (piece && (got = pread(fd, piece, PIECE, at)) > 0) {
        if (flat >= 0 && pwrite(flat, piece, (size_t)got, at) != got)
            break;
        at += got;
    }
    free(piece);
    return clock_seconds() - start;
}

static double flatten_time(int fd)
{
    int flat = memfd_create("bench", MFD_CLOEXEC);
    double seconds = copy_time(fd, flat);
    close(flat);
    return seconds;
}

static int run(int fd, const char *codec)
{
    const struct decode_limits limits = {.bytes = UINT64_C(16) << 30, .seconds = 600};
    struct scan scan;
    double cat = copy_time(fd, -1), start_cpu = cpu(), flatten = flatten_time(fd), flatten_cpu = cpu() - start_cpu;
    double start = clock_seconds();
    start_cpu = cpu();
    struct decoder *decoder = NULL;
    int rc = decoder_create(&decoder, codec);
    if (rc == 0)
        rc = scan_decode(&scan, decoder, fd, NULL, &limits, NULL, NULL);
    double decode = clock_seconds() - start;
    decoder_free(decoder);
    double decode_cpu = cpu() - start_cpu;
    if (rc != 0) {
        fprintf(stderr, "%s\n", err_last()->text);
        return rc;
    }
    printf("{\"bench\": \"ingest\", \"bytes\": %llu, \"readouts\": %llu, \"cat_s\": %.3f, \"cat_and_flatten_s\": %.3f, "
           "\"decode_s\": %.3f, \"ratio\": %.2f, \"cat_and_flatten_cpu_s\": %.3f, \"decode_cpu_s\": %.3f, "
           "\"ratio_cpu\": %.2f}\n",
           (unsigned long long)scan.header->total_bytes, (unsigned long long)scan.header->readouts, cat, flatten,
           decode, decode / flatten, flatten_cpu, decode_cpu, decode_cpu / flatten_cpu);
    scan_close(&scan);
    return 0;
}

int main(int count, char **word)
{
    const char *folder = getenv("TMPDIR"), *bin = getenv("MRIRECON_BIN");
    char path[512], command[1024], codec[512];
    snprintf(path, sizeof path, "%s/bench_ingest.%d.h5", folder ? folder : "/tmp", (int)getpid());
    snprintf(codec, sizeof codec, "%s/mrirecon-codec", bin ? bin : "build/bin");
    snprintf(command, sizeof command, "/usr/bin/python3 tests/bench/ingest_file.py '%s' %d", path,
             count > 1 ? atoi(word[1]) : 20000);
    int failed = system(command), fd = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    for (int i = 0; i < RUNS && !failed && fd >= 0; i++)
        failed = run(fd, codec);
    return failed || fd < 0;
}
