/* Tests whether the device computes correctly. */
#include "daemon/worker/worker.h"

#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"

#include <math.h>
#include <stdlib.h>

#define TOLERANCE 1e-3
/* The test checks one pixel, of value 1; the error bound is relative to the l2 norm of the whole image, which is below
 * 2. */
#define PIXEL_LIMIT (10 * TOLERANCE)

enum { SAMPLES = 1000, NX = 40, NY = 48, AT_X = 7, AT_Y = -11 };

/* Quasi-random k, and samples of an object that is 1 / SAMPLES in the pixel (AT_X, AT_Y): its adjoint image is 1 in
 * that pixel. */
static void samples_fill(float (*k)[2], struct c32 *data)
{
    /* The powers of 1 / 1.3247..., the root of x^3 = x + 1, fill the square evenly (R2 sequence). */
    static const double step[2] = {0.7548776662466927, 0.5698402909980532};
    for (int m = 0; m < SAMPLES; m++) {
        for (int d = 0; d < 2; d++)
            k[m][d] = (float)(fmod(m * step[d], 1) - 0.5);
        double phase = -2 * M_PI * ((double)k[m][0] * AT_X + (double)k[m][1] * AT_Y);
        data[m] = (struct c32){(float)(cos(phase) / SAMPLES), (float)(sin(phase) / SAMPLES)};
    }
}

static int image_compute(struct dev *dev, const float *k, const struct c32 *data, struct c32 *image)
{
    const struct nufft_params params = {.dim = 2, .n = {NX, NY, 1}, .tolerance = TOLERANCE, .batch = 1};
    const size_t data_bytes = SAMPLES * sizeof *data, image_bytes = (size_t)NX * NY * sizeof *image;
    struct nufft *plan = NULL;
    void *there = NULL, *out = NULL;
    int rc = nufft_create(&plan, dev, &params, SAMPLES, k);
    if (rc == 0)
        rc = dev_alloc(dev, data_bytes, &there);
    if (rc == 0)
        rc = dev_alloc(dev, image_bytes, &out);
    if (rc == 0)
        rc = dev_upload(dev, there, data, data_bytes);
    if (rc == 0)
        rc = nufft_adjoint(plan, 1, there, out);
    if (rc == 0)
        rc = dev_download(dev, image, out, image_bytes);
    dev_release(dev, there);
    dev_release(dev, out);
    nufft_free(plan);
    return rc;
}

int worker_probe(struct dev *dev)
{
    float(*k)[2] = malloc(SAMPLES * sizeof *k);
    struct c32 *data = malloc(SAMPLES * sizeof *data), *image = malloc((size_t)NX * NY * sizeof *image);
    int rc = k && data && image ? 0 : err_no_memory("the probe of the device");
    if (rc == 0) {
        samples_fill(k, data);
        rc = image_compute(dev, k[0], data, image);
    }
    if (rc == 0) {
        struct c32 pixel = image[(NY / 2 + AT_Y) * NX + NX / 2 + AT_X];
        double off = hypot((double)pixel.re - 1, (double)pixel.im);
        if (!(off <= PIXEL_LIMIT)) /* also if it is NaN */
            rc = err_set(ERR_DEVICE, "%s computes wrong results: a pixel that should be 1 is %g%+gi. Check the device.",
                         dev_name(dev), (double)pixel.re, (double)pixel.im);
    } else {
        err_prefix("The test of %s failed: ", dev_name(dev));
    }
    free(k);
    free(data);
    free(image);
    return rc;
}
