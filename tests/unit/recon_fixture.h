/* recon_fixture.h: scans of random samples, the pipeline run on them, and direct sums as the reference for its images.
 * Each test program is a single source file that includes this header. */
#ifndef MRIRECON_RECON_FIXTURE_H
#define MRIRECON_RECON_FIXTURE_H

#include "gridding/base/err.h"
#include "recon/image/image.h"
#include "recon/mri/plan_cache.h"
#include "recon/mri/recon_steps.h"
#include "tests/unit/flat_scan.h"

#include <complex.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct dev *dev;

static inline int device_open(void **state)
{
    (void)state;
    return dev_create(&dev, DEV_CPU, 0, 2);
}

static inline int device_close(void **state)
{
    (void)state;
    dev_free(dev);
    return 0;
}

/* ---- scans ---- */

static uint64_t random_state = 1;

static inline int random_reset(void **state)
{
    (void)state;
    random_state = 1;
    return 0;
}

/* -1 .. 1 */
static inline double noise(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(int64_t)random_state / 9.3e18;
}

/* A readout with k uniform in the encoded k-space, weights in 0.5 .. 1.5 if the trajectory has a column more than
 * `dim`, and random data. */
static inline struct scan_readout *random_readout(struct flat *flat, unsigned samples, unsigned coils, unsigned columns,
                                                  unsigned dim)
{
    struct scan_readout *readout = flat_add(flat, samples, coils, columns);
    float *k = flat->traj + readout->traj;
    struct c32 *data = flat->data + readout->data;
    for (unsigned s = 0; s < samples; s++)
        for (unsigned c = 0; c < columns; c++)
            k[s * columns + c] = (float)(c < dim ? 0.4999 * noise() : 1 + 0.5 * noise());
    for (unsigned i = 0; i < samples * coils; i++)
        data[i] = (struct c32){(float)noise(), (float)noise()};
    return readout;
}

/* Straight spokes through 0, golden angle. */
static inline void spokes(struct flat *flat, unsigned count, unsigned samples, unsigned coils)
{
    for (unsigned r = 0; r < count; r++) {
        struct scan_readout *readout = random_readout(flat, samples, coils, 2, 2);
        double angle = r * 111.246117975 * M_PI / 180;
        for (unsigned s = 0; s < samples; s++) {
            double radius = ((double)s - samples / 2) / samples;
            flat->traj[readout->traj + 2 * s] = (float)(radius * cos(angle));
            flat->traj[readout->traj + 2 * s + 1] = (float)(radius * sin(angle));
        }
    }
}

/* ---- the oracle ---- */

/* image[r] = sum w d exp(2 pi i k . r) over the readouts of `mask` (bit i: readout i), r = -floor(N/2).. in steps of
 * `step` pixels of the encoding; one coil. `column` of the trajectory holds the weights (-1: 1). */
static inline double complex *direct(const struct flat *flat, uint64_t mask, int coil, int dim, int column,
                                     const int n[3], const double step[3])
{
    double complex *image = calloc((size_t)(n[0] * n[1] * n[2]), sizeof *image);
    for (size_t i = 0; i < flat->header.readouts; i++) {
        const struct scan_readout *readout = &flat->readouts[i];
        if (!(mask >> i & 1))
            continue;
        for (int s = readout->discard_pre; s < readout->samples - readout->discard_post; s++) {
            const float *k = flat->traj + readout->traj + (size_t)s * readout->traj_dims;
            struct c32 d = flat->data[readout->data + (size_t)coil * readout->samples + (size_t)s];
            double complex value = (d.re + I * d.im) * (column < 0 ? 1.0 : (double)k[column]);
            for (int z = 0; z < n[2]; z++)
                for (int y = 0; y < n[1]; y++)
                    for (int x = 0; x < n[0]; x++) {
                        double phase = k[0] * step[0] * (x - n[0] / 2) + k[1] * step[1] * (y - n[1] / 2);
                        phase += dim == 3 ? k[2] * step[2] * (z - n[2] / 2) : 0;
                        image[(z * n[1] + y) * n[0] + x] += value * cexp(2 * M_PI * I * phase);
                    }
        }
    }
    return image;
}

static const double whole[3] = {1, 1, 1};

/* || seen - expected || / || expected ||. The scale is not fitted, because it is part of the contract. */
static inline double error_of(const float *seen, const double *expected, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (seen[i] - expected[i]) * (seen[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}

/* Error of a series' image against the root of the sum of squares of the coils' direct sums. */
static inline double rss_error(const struct flat *flat, uint64_t mask, int coils, int dim, int column, const int n[3],
                               const double step[3], const float *seen)
{
    size_t pixels = (size_t)(n[0] * n[1] * n[2]);
    double *expected = calloc(pixels, sizeof *expected);
    for (int c = 0; c < coils; c++) {
        double complex *image = direct(flat, mask, c, dim, column, n, step);
        for (size_t i = 0; i < pixels; i++)
            expected[i] += creal(image[i]) * creal(image[i]) + cimag(image[i]) * cimag(image[i]);
        free(image);
    }
    for (size_t i = 0; i < pixels; i++)
        expected[i] = sqrt(expected[i]);
    double error = error_of(seen, expected, pixels);
    free(expected);
    return error;
}

/* ---- running ---- */

/* With tolerance=1e-5 the gridding error averages 1e-5 over images. These tests have few random samples, and more of
 * their energy than usual is at an image's edge, where the error is up to twice as large. A wrong sample, weight or
 * sign gives an error of at least 1e-2. */
#define TOLERANCE 3e-5

static struct recon_cache *cache; /* the cache that jobs are run with; NULL: none */
static struct job_room space;     /* the room, likewise */

/* Run with "NAME=VALUE ..." in addition to tolerance=1e-5 and traj_units=pixel; the units are given because random
 * samples do not reach the edge of k-space exactly. */
static inline int run(struct flat *flat, const char *parameters, struct job_outcome *out,
                      const struct job_listener *listener)
{
    const struct kind *kind = kind_find("recon");
    struct param_values values;
    char text[256], *rest = text;
    param_values_init(kind, &values);
    assert_int_equal(param_values_set(kind, &values, "tolerance", "1e-5"), 0);
    assert_int_equal(param_values_set(kind, &values, "traj_units", "pixel"), 0);
    snprintf(text, sizeof text, "%s", parameters);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        assert_int_equal(param_values_set(kind, &values, word, value), 0);
    }
    const struct job_request request = {.kind = kind, .values = &values, .input = -1, .cache = cache, .room = space};
    return recon_run_scan(out, dev, &request, listener, flat_scan(flat));
}

static inline void succeed(struct flat *flat, const char *parameters, struct job_outcome *out)
{
    int rc = run(flat, parameters, out, NULL);
    if (rc != 0)
        fail_msg("%s: %s", err_name(rc), err_last()->text);
}

static inline void drop(struct job_outcome *out)
{
    job_outcome_free(out);
}

/* The job's images. */
static inline struct image_series *images_of(const struct job_outcome *out)
{
    const struct job_result *result = job_outcome_find(out, "image");
    return result ? result->of : NULL;
}

static inline void refuse(struct flat *flat, const char *parameters, int code, int64_t acquisition)
{
    struct job_outcome out = {0};
    int rc = run(flat, parameters, &out, NULL);
    if (rc != code)
        fail_msg("%s instead of %s: %s", err_name(rc), err_name(code), rc ? err_last()->text : "");
    assert_int_equal(err_last()->acquisition, acquisition);
    assert_true(strlen(err_last()->text) > 30);
    assert_int_equal(out.results, 0);
}

/* The value of a decision in the report, or "" if there is none. */
static inline const char *decided(const struct job_outcome *out, const char *what)
{
    size_t i;
    json_t *entry;
    json_array_foreach (json_object_get(out->report, "decisions"), i, entry) {
        if (strcmp(json_string_value(json_object_get(entry, "what")), what) == 0)
            return json_string_value(json_object_get(entry, "value"));
    }
    return "";
}

static inline int64_t reported(const struct job_outcome *out, const char *name)
{
    return json_integer_value(json_object_get(out->report, name));
}

#endif
