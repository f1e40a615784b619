/* decode_fixture.h: shared by the tests of the decoder: files made by tests/unit/scan_files.py, and decoding them with
 * the real mrirecon-codec. */
#ifndef MRIRECON_TESTS_DECODE_FIXTURE_H
#define MRIRECON_TESTS_DECODE_FIXTURE_H

#include "gridding/base/err.h"
#include "recon/codec/decoder.h"
#include "recon/scan/scan.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct decode_limits roomy = {.bytes = UINT64_C(1) << 30, .seconds = 60};

/* The folder of files and the decoder, made once. */
struct place {
    char folder[64], codec[512];
};

static inline int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    const char *bin = getenv("MRIRECON_BIN");
    char command[256];
    if (!p)
        return -1;
    snprintf(p->folder, sizeof p->folder, "/tmp/test_decode.XXXXXX");
    snprintf(p->codec, sizeof p->codec, "%s/mrirecon-codec", bin ? bin : "build/bin");
    *state = p;
    if (!mkdtemp(p->folder))
        return -1;
    snprintf(command, sizeof command, "/usr/bin/python3 tests/unit/scan_files.py %s", p->folder);
    return system(command) == 0 ? 0 : -1;
}

static inline int teardown(void **state)
{
    struct place *p = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", p->folder);
    int rc = system(command);
    free(p);
    return rc;
}

/* Decode with a decoder process that is started for it. */
static inline int decode_by(const char *codec, struct scan *scan, int fd, const char *group,
                            const struct decode_limits *limits, int (*canceled)(void *context), void *context)
{
    struct decoder *decoder = NULL;
    assert_int_equal(decoder_create(&decoder, codec), 0);
    struct scan_wanted wanted = {.group = ""};
    snprintf(wanted.group, sizeof wanted.group, "%s", group ? group : "");
    int rc = scan_decode(scan, decoder, fd, &wanted, limits, canceled, context);
    decoder_free(decoder);
    return rc;
}

static inline int decode_fd(const struct place *p, struct scan *scan, int fd, const char *group)
{
    return decode_by(p->codec, scan, fd, group, &roomy, NULL, NULL);
}

static inline int open_file(const struct place *p, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* A file's bytes; the caller frees them. */
static inline char *read_file(const struct place *p, const char *name, size_t *bytes)
{
    int fd = open_file(p, name);
    struct stat status;
    assert_int_equal(fstat(fd, &status), 0);
    *bytes = (size_t)status.st_size;
    char *content = malloc(*bytes + 1);
    assert_int_equal(read(fd, content, *bytes), (ssize_t)*bytes);
    close(fd);
    return content;
}

#endif
