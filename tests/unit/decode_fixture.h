/* decode_fixture.h: the decoder's tests: files written by tests/unit/scan_files.py, decoded with the real
 * mrirecon-codec. */
#ifndef MRIRECON_TESTS_DECODE_FIXTURE_H
#define MRIRECON_TESTS_DECODE_FIXTURE_H

#include "gridding/base/err.h"
#include "recon/codec/decoder.h"
#include "recon/scan/scan.h"

#include <dirent.h>
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

/* Decode with a decoder process started for this call. */
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

/* As in scan_files.py. */
enum { ACQUISITIONS = 21, SAMPLES = 40, COILS = 3, DIMS = 2 };

static inline int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static inline void check_readout(const char *name, const struct scan *s, uint64_t index)
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

static inline void check_good(const char *name, const struct scan *s)
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

/* An executable script, to be run in place of mrirecon-codec. */
static inline void make_program(const struct place *p, const char *name, const char *script, char path[256])
{
    snprintf(path, 256, "%s/%s", p->folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, script, strlen(script)), (ssize_t)strlen(script));
    close(fd);
}

/* Returns 0 on the first call and 1 afterwards. */
static inline int yes(void *context)
{
    ++*(int *)context;
    return *(int *)context > 1;
}

#endif
