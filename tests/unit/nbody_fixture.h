/* nbody_fixture.h: clouds of bodies, their gravity on the device that the program names by NBODY_DEVICE, and its
 * errors. */
#ifndef MRIRECON_TESTS_NBODY_FIXTURE_H
#define MRIRECON_TESTS_NBODY_FIXTURE_H

#include "gridding/base/err.h"
#include "recon/nbody/nbody_motion.h"
#include "tests/random.h"
#include "tests/unit/allocate.h"
#include "tests/unit/nbody_oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 512 };

struct cloud {
    size_t count;
    double mass[MOST], at[MOST][3], acceleration[MOST][3], potential[MOST];
    double exact[MOST][3], exact_potential[MOST];
};

static inline struct dev *device(int threads)
{
    struct dev *dev = NULL;
    assert_int_equal(dev_create(&dev, NBODY_DEVICE, 0, threads), 0);
    return dev;
}

/* A third anywhere in the box, a third in a clump on its corner, a third in a thin sheet on a face. */
static inline struct cloud *cloud_of(size_t count, double box, uint64_t seed)
{
    struct cloud *cloud = allocate(1, sizeof *cloud);
    cloud->count = count;
    for (size_t i = 0; i < count; i++) {
        cloud->mass[i] = 0.1 + 5 * pow(uniform(seed + 7 * i), 3);
        for (size_t d = 0; d < 3; d++) {
            const double u = uniform(seed + 100 * i + d + 1), n = gaussian(seed + 9000000 + 3 * i + d);
            const double x = i % 3 == 0 ? u : i % 3 == 1 ? 0.04 * n : d == 0 ? 0.01 * n : u;
            cloud->at[i][d] = box * (x - floor(x));
        }
    }
    return cloud;
}

static inline void evaluate(struct cloud *cloud, const struct nbody_setup *setup, int threads)
{
    struct dev *dev = device(threads);
    struct nbody_gravity *gravity = NULL;
    assert_int_equal(nbody_gravity_create(&gravity, dev, setup, cloud->count, cloud->mass), 0);
    assert_int_equal(
        nbody_gravity_evaluate(gravity, (const double(*)[3])cloud->at, cloud->acceleration, cloud->potential, NULL), 0);
    nbody_gravity_free(gravity);
    dev_free(dev);
}

/* Errors relative to the mean |acceleration|, as the reference's: mean and largest; and of potentials, root mean
 * square. */
struct errors {
    double mean, largest, potential;
};

static inline struct errors errors_of(const struct cloud *cloud)
{
    struct errors e = {0, 0, 0};
    double size = 0, squares = 0, differences = 0;
    for (size_t i = 0; i < cloud->count; i++) {
        double error = 0, length = 0;
        for (int d = 0; d < 3; d++) {
            error += pow(cloud->acceleration[i][d] - cloud->exact[i][d], 2);
            length += pow(cloud->exact[i][d], 2);
        }
        e.mean += sqrt(error);
        e.largest = fmax(e.largest, sqrt(error));
        size += sqrt(length);
        differences += pow(cloud->potential[i] - cloud->exact_potential[i], 2);
        squares += pow(cloud->exact_potential[i], 2);
    }
    e.mean /= size;
    e.largest *= (double)cloud->count / size;
    e.potential = sqrt(differences / squares);
    return e;
}

static inline struct nbody_setup p3m(bool periodic, enum nbody_softening softening)
{
    return (struct nbody_setup){.method = NBODY_P3M,
                                .softening = softening,
                                .eps = 0.01,
                                .g = 2.5,
                                .periodic = periodic,
                                .box = 3,
                                .mesh = 16,
                                .split = 1,
                                .cutoff = 6};
}

#endif
