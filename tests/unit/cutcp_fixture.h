/* cutcp_fixture.h: shared by the tests of kind cutcp (recon/cutcp/): charges as files, jobs, and the sums in double
 * precision to compare with. */
#ifndef MRIRECON_TESTS_CUTCP_FIXTURE_H
#define MRIRECON_TESTS_CUTCP_FIXTURE_H

#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "recon/cutcp/cutcp_kind.h"
#include "recon/kind_run.h"
#include "recon/volume/volume.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"
#include "tests/unit/oracle.h"

#include <fcntl.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { MOST_QUERY = 256 };

struct charges {
    size_t frames, count;
    double *at, *q; /* [frames][count][3], [frames][count] */
};

static inline struct charges charges_create(size_t frames, size_t count)
{
    return (struct charges){frames, count, allocate(3 * frames * count, sizeof(double)),
                            allocate(frames * count, sizeof(double))};
}

static inline void charges_free(struct charges *c)
{
    free(c->at);
    free(c->q);
}

/* Random charges in a box, half of them in one corner; both signs, some 0. */
static inline struct charges charges_random(size_t frames, size_t count, double length, uint64_t seed)
{
    struct charges c = charges_create(frames, count);
    for (size_t i = 0; i < frames * count; i++) {
        for (size_t d = 0; d < 3; d++)
            c.at[3 * i + d] = -4.3 + (i % 2 ? 0.1 : 1) * length * uniform_next(&seed);
        c.q[i] = i % 7 ? 1.7 * uniform_next(&seed) - 0.8 : 0;
    }
    return c;
}

/* As an .npy file, float64 [frames][count][4]. */
static inline int file_of(const struct charges *c)
{
    char head[128] = "\x93NUMPY\x01\x00\x76\x00", text[118];
    int used = snprintf(text, sizeof text, "{'descr': '<f8', 'fortran_order': False, 'shape': (%zu, %zu, 4), }",
                        c->frames, c->count);
    memset(head + 10, ' ', 117);
    memcpy(head + 10, text, (size_t)used);
    head[127] = '\n';
    int fd = memfd_create("charges", MFD_CLOEXEC);
    double *rows = allocate(4 * c->frames * c->count, sizeof *rows);
    for (size_t i = 0; i < c->frames * c->count; i++) {
        memcpy(rows + 4 * i, c->at + 3 * i, 3 * sizeof *rows);
        rows[4 * i + 3] = c->q[i];
    }
    const size_t bytes = 4 * c->frames * c->count * sizeof *rows;
    assert_int_equal(write(fd, head, sizeof head), sizeof head);
    assert_int_equal(write(fd, rows, bytes), (ssize_t)bytes);
    free(rows);
    return fd;
}

/* ---- a job ---- */

struct run {
    struct job_outcome outcome;
    const struct volume *volume;
};

static inline struct param_values values_of(const char *query)
{
    struct param_values values;
    char text[MOST_QUERY], *rest = text;
    param_values_init(&cutcp_kind, &values);
    snprintf(text, sizeof text, "%s", query);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) {
            char *value = strchr(word, '=');
            *value++ = '\0';
            assert_int_equal(param_values_set(&cutcp_kind, &values, word, value), 0);
        }
    return values;
}

static inline int job_run(struct run *run, int file, const char *query, int threads,
                          const struct job_listener *listener, const struct job_room *room)
{
    char codec[256];
    const char *bin = getenv("MRIRECON_BIN");
    const struct param_values values = values_of(query);
    struct decoder *decoder = NULL;
    struct dev *dev = NULL;
    snprintf(codec, sizeof codec, "%s/mrirecon-codec", bin ? bin : "build/bin");
    assert_int_equal(decoder_create(&decoder, codec), 0);
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, threads), 0);
    struct job_request request = {.kind = &cutcp_kind, .values = &values, .input = file, .decoder = decoder};
    if (room)
        request.room = *room;
    *run = (struct run){.volume = NULL};
    int rc = kind_run_job(&run->outcome, dev, &request, listener);
    if (rc == 0) {
        assert_int_equal(run->outcome.results, 1);
        assert_string_equal(run->outcome.result[0].name, "potential");
        run->volume = run->outcome.result[0].of;
    }
    dev_free(dev);
    decoder_free(decoder);
    return rc;
}

static inline struct run run_charges(const struct charges *c, const char *query)
{
    struct run run;
    int fd = file_of(c), rc = job_run(&run, fd, query, 2, NULL, NULL);
    if (rc != 0)
        print_message("%s\n", err_last()->text);
    assert_int_equal(rc, 0);
    close(fd);
    return run;
}

static inline const char *warning_of(const struct run *run)
{
    const char *text = json_string_value(json_array_get(json_object_get(run->outcome.report, "warnings"), 0));
    return text ? text : "";
}

/* ---- the oracle ---- */

struct oracle {
    double cutoff, exclusion;
    bool taylor2;
    double box[3]; /* 0: open */
};

struct exact {
    double value, most; /* most: bound of the float32 error */
    bool excluded;
};

/* Add one charge at distance r. float32's error: a few roundings of 1 / r and of the polynomial, plus one rounding of
 * the coordinate (at most `length`) times the slope, at most 3 / r^2. */
ORACLE static inline void add_charge(struct exact *e, const struct oracle *o, double q, double r2, double length)
{
    if (r2 > 1.001 * o->cutoff * o->cutoff)
        return;
    const double r = sqrt(r2), u2 = r2 / (o->cutoff * o->cutoff);
    if (q != 0 && o->exclusion > 0 && r < o->exclusion)
        e->excluded = true;
    if (!(r < o->cutoff) || r == 0 || q == 0)
        return;
    const double smooth = (15.0 / 8 - 5.0 / 4 * u2 + 3.0 / 8 * u2 * u2) / o->cutoff;
    e->value += q * (o->taylor2 ? 1 / r - smooth : (1 - u2) * (1 - u2) / r);
    e->most += fabs(q) * (16 * FLT_EPSILON / r + 3 / r2 * 2 * FLT_EPSILON * length);
}

ORACLE static inline struct exact exact_at(const struct oracle *o, const struct charges *c, size_t frame,
                                           const double node[3], double length)
{
    struct exact e = {0};
    long images[3];
    for (int d = 0; d < 3; d++)
        images[d] = o->box[d] > 0 ? (long)ceil((o->cutoff + 20) / o->box[d]) + 1 : 0;
    for (size_t i = frame * c->count; i < (frame + 1) * c->count; i++)
        for (long z = -images[2]; z <= images[2]; z++)
            for (long y = -images[1]; y <= images[1]; y++)
                for (long x = -images[0]; x <= images[0]; x++) {
                    const long image[3] = {x, y, z};
                    double r2 = 0;
                    for (int d = 0; d < 3; d++) {
                        const double away = c->at[3 * i + (size_t)d] + (double)image[d] * o->box[d] - node[d];
                        r2 += away * away;
                    }
                    add_charge(&e, o, c->q[i], r2, length);
                }
    return e;
}

/* Every `step`-th lattice point of each frame. */
static inline void compare(const struct run *run, const struct oracle *o, const struct charges *c, size_t step)
{
    const struct volume *v = run->volume;
    const size_t nodes = v->size[0] * v->size[1] * v->size[2];
    double length = 0;
    for (int d = 0; d < 3; d++)
        length = fmax(length, (double)v->size[d] * v->spacing[d]);
    for (size_t i = 0; i < v->frames * nodes; i += step) {
        const size_t place[3] = {i % v->size[0], i / v->size[0] % v->size[1], i % nodes / (v->size[0] * v->size[1])};
        double node[3];
        for (int d = 0; d < 3; d++)
            node[d] = v->origin[d] + (double)place[d] * v->spacing[d];
        const struct exact e = exact_at(o, c, i / nodes, node, length);
        if (e.excluded)
            assert_true(v->data[i] == 0);
        else if (!(fabs((double)v->data[i] - e.value) <= e.most))
            fail_msg("point %zu is %.9g; %.9g is expected, to %.2g", i, (double)v->data[i], e.value, e.most);
    }
}

#endif
