/* Volumes as NumPy's .npy, format 1.0, and back:
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include "recon/volume/volume_leaf.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Each array's head: magic, version 1.0, length of what follows; the dictionary, padded with spaces. */
enum { PREFIX = 10, HEAD = 128 };

struct tail {
    char place_head[HEAD];
    double place[2][3];
    char title_head[HEAD], title[VOLUME_TITLE];
};

static void head_make(char head[HEAD], const char *type, const char *shape)
{
    char text[HEAD - PREFIX];
    int used = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    memset(head, ' ', HEAD);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", PREFIX);
    memcpy(head + PREFIX, text, (size_t)used);
    head[HEAD - 1] = '\n';
}

static void head_of(char head[HEAD], size_t frames, const size_t size[3])
{
    char shape[64];
    if (frames == 1)
        snprintf(shape, sizeof shape, "%zu, %zu, %zu", size[2], size[1], size[0]);
    else
        snprintf(shape, sizeof shape, "%zu, %zu, %zu, %zu", frames, size[2], size[1], size[0]);
    head_make(head, "<f4", shape);
}

static void tail_make(struct tail *tail, const struct volume *volume)
{
    char type[16];
    snprintf(type, sizeof type, "|S%d", VOLUME_TITLE);
    head_make(tail->place_head, "<f8", "2, 3");
    head_make(tail->title_head, type, "");
    memcpy(tail->place[0], volume->origin, sizeof tail->place[0]);
    memcpy(tail->place[1], volume->spacing, sizeof tail->place[1]);
    memset(tail->title, 0, sizeof tail->title);
    snprintf(tail->title, sizeof tail->title, "%s", volume->title);
}

int volume_write_npy(const struct volume *volume, int fd)
{
    char head[HEAD];
    struct tail tail;
    head_of(head, volume->frames, volume->size);
    tail_make(&tail, volume);
    int rc = volume_put(fd, head, sizeof head);
    if (rc == 0)
        rc = volume_put(fd, volume->data, volume_nodes(volume) * sizeof *volume->data);
    return rc == 0 ? volume_put(fd, &tail, sizeof tail) : rc;
}

static int get(int fd, void *to, size_t bytes)
{
    char *at = to;
    while (bytes) {
        ssize_t done = read(fd, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_set(ERR_IO, "The volume cannot be read (%s).", strerror(errno));
        if (done == 0)
            return err_set(ERR_MALFORMED_FILE, "The volume's file is truncated.");
        at += done;
        bytes -= (size_t)done;
    }
    return 0;
}

static int malformed(void)
{
    return err_set(ERR_MALFORMED_FILE, "The file is not a volume written by a job.");
}

/* Read the shape from a head; only heads made by head_of() are accepted. */
static int shape_read(const char head[HEAD], size_t *frames, size_t size[3])
{
    char text[HEAD + 1 - PREFIX], again[HEAD];
    unsigned long long n[4];
    memcpy(text, head + PREFIX, HEAD - PREFIX);
    text[HEAD - PREFIX] = '\0';
    const int axes = sscanf(text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%10llu, %10llu, %10llu, %10llu)",
                            &n[0], &n[1], &n[2], &n[3]);
    if (axes < 3)
        return malformed();
    *frames = axes == 4 ? (size_t)n[0] : 1;
    for (int d = 0; d < 3; d++)
        size[d] = (size_t)n[axes - 1 - d];
    head_of(again, *frames, size);
    bool good = memcmp(again, head, HEAD) == 0 && *frames >= 1;
    for (int d = 0; d < 3; d++)
        good = good && size[d] >= 1 && size[d] <= VOLUME_AXIS_MOST;
    return good ? 0 : malformed();
}

static int tail_read(struct volume *volume, int fd)
{
    struct tail tail, again;
    int rc = get(fd, &tail, sizeof tail);
    if (rc != 0)
        return rc;
    memcpy(volume->origin, tail.place[0], sizeof volume->origin);
    memcpy(volume->spacing, tail.place[1], sizeof volume->spacing);
    if (tail.title[VOLUME_TITLE - 1])
        return malformed();
    memcpy(volume->title, tail.title, VOLUME_TITLE);
    for (const char *c = volume->title; *c; c++)
        if (*c < ' ' || *c > '~')
            return malformed();
    for (int d = 0; d < 3; d++)
        if (!isfinite(volume->origin[d]) || !(volume->spacing[d] > 0 && volume->spacing[d] < INFINITY))
            return malformed();
    tail_make(&again, volume);
    return memcmp(&again, &tail, sizeof tail) == 0 ? 0 : malformed();
}

int volume_read(struct volume **out, int fd)
{
    char head[HEAD];
    size_t frames = 0, size[3] = {0};
    struct volume *volume = NULL;
    int rc = get(fd, head, sizeof head);
    if (rc == 0)
        rc = shape_read(head, &frames, size);
    if (rc == 0)
        rc = volume_create(&volume, frames, size);
    if (rc == 0)
        rc = get(fd, volume->data, volume_nodes(volume) * sizeof *volume->data);
    if (rc == 0)
        rc = tail_read(volume, fd);
    if (rc == 0)
        *out = volume;
    else
        volume_free(volume);
    return rc;
}
