/* iterative_fixture.h: shared by the tests of iterative methods: readouts of a phantom, errors of images, and a
 * listener that counts iterations and cancels. Each test program is a single source file that includes this header. */
#ifndef MRIRECON_ITERATIVE_FIXTURE_H
#define MRIRECON_ITERATIVE_FIXTURE_H

#include "clients/phantom.h"
#include "tests/unit/recon_fixture.h"

/* A device with one thread, which is fastest for images this small; recon_fixture.h's device has two. */
static inline int single_open(void **state)
{
    (void)state;
    return dev_create(&dev, DEV_CPU, 0, 1);
}

/* Fill a readout of `flat` with the phantom's k-space on its trajectory and noise of +-noise_most, times `scale`. */
static inline void phantom_readout(struct flat *flat, const struct scan_readout *readout, const struct phantom *phantom,
                                   double noise_most, float scale)
{
    const size_t samples = readout->samples;
    struct c32 *data = flat->data + readout->data;
    phantom_kspace(phantom, samples, flat->traj + readout->traj, samples, data);
    for (size_t i = 0; i < samples * readout->coils; i++)
        data[i] = (struct c32){scale * (data[i].re + (float)(noise_most * noise())),
                               scale * (data[i].im + (float)(noise_most * noise()))};
}

/* || seen / scale - expected || / || expected || */
static inline double distance(const float *seen, double scale, const float *expected, size_t count)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        difference += pow((double)seen[i] / scale - (double)expected[i], 2);
        norm += pow(expected[i], 2);
    }
    return sqrt(difference / norm);
}

/* A job's progress, which must never fall. The job is canceled at call `stop_at` (0: never). */
struct progress_count {
    int calls, stop_at, solving; /* calls during the iterations of step `solve` */
    double fraction;
};

static inline int progress_count(void *context, const struct step_progress *now)
{
    struct progress_count *count = context;
    assert_true(now->fraction >= count->fraction - 1e-12);
    count->fraction = now->fraction;
    count->solving += now->step == RECON_STEP_SOLVE && now->iteration > 0;
    return ++count->calls == count->stop_at;
}

#endif
