/* Shared by all methods of maps.h: checks, the centre of k-space, the phase's reference, devices. */
#include "recon/mri/maps.h"

#include "gridding/base/err.h"
#include "gridding/espirit/espirit.h"
#include "gridding/nufft/nufft.h"
#include "recon/mri/maps_inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REFERENCE_STEPS = 64 /* of power iteration, for one vector */ };

struct maps_params maps_defaults(enum maps_method method, int coils, const int n[3])
{
    const bool volume = n[2] > 1;
    struct maps_params params = {.method = method, .coils = coils, .n = {n[0], n[1], n[2]}};
    /* 24 and kernels of 6 samples are usual in 2-D; a volume has as many equations in 16. */
    params.calibration = volume ? 16 : 24;
    params.width = method == MAPS_ESPIRIT ? (volume ? 5 : 6) : (volume ? 5 : 7);
    params.threshold = 0.03;
    params.crop = 0.8;
    return params;
}

static int params_check(const struct maps_params *p)
{
    for (int d = 0; d < 3; d++)
        if (p->n[d] < 1 || p->n[d] > NUFFT_SIZE_MOST)
            return err_set(ERR_BAD_PARAMETER, "Coil maps of %d x %d x %d pixels cannot be made: each size is 1 to %d.",
                           p->n[0], p->n[1], p->n[2], NUFFT_SIZE_MOST);
    if (p->coils < 1 || p->calibration < 1 || p->width < 1 || !(p->threshold > 0) || !(p->crop >= 0 && p->crop <= 1))
        return err_set(ERR_BAD_PARAMETER,
                       "Coil maps need at least one coil, a centre and a width of at least one sample, a threshold "
                       "above 0 and a crop of 0 to 1; asked for were %d coils, %d, %d, %g and %g.",
                       p->coils, p->calibration, p->width, p->threshold, p->crop);
    return 0;
}

/* Scale the centre so that its largest value is about 1. */
static int centre_scale(struct maps_work *work, size_t count)
{
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        const struct c32 v = work->centre[i];
        finite = finite && isfinite(v.re) && isfinite(v.im);
        largest = fmaxf(largest, fmaxf(fabsf(v.re), fabsf(v.im)));
    }
    if (!finite)
        return err_set(ERR_DATA_NONFINITE,
                       "The coils' images have values that are not finite, so no coil maps can be estimated.");
    const float scale = largest > 0 ? 1 / largest : 0;
    for (size_t i = 0; i < count; i++)
        work->centre[i] = (struct c32){scale * work->centre[i].re, scale * work->centre[i].im};
    return 0;
}

/* The first eigenvector of the coils' covariance over the centre of k-space. */
static int reference_find(struct maps_work *work, size_t size)
{
    const int coils = work->params->coils;
    struct maps_pixel pixel;
    int rc = maps_pixel_create(&pixel, coils);
    if (rc != 0)
        return rc;
    for (int i = 0; i < coils; i++)
        for (int j = 0; j <= i; j++) {
            const struct c32 *a = work->centre + (size_t)i * size, *b = work->centre + (size_t)j * size;
            double re = 0, im = 0;
            for (size_t q = 0; q < size; q++) {
                re += (double)a[q].re * b[q].re + (double)a[q].im * b[q].im;
                im += (double)a[q].im * b[q].re - (double)a[q].re * b[q].im;
            }
            const size_t at = (size_t)j * (size_t)pixel.stride + (size_t)i;
            const size_t mirrored = (size_t)i * (size_t)pixel.stride + (size_t)j;
            pixel.re[at] = pixel.re[mirrored] = (float)re;
            pixel.im[mirrored] = (float)-im;
            pixel.im[at] = i == j ? 0 : (float)im;
        }
    maps_pixel_begin(&pixel);
    for (int step = 0; step < REFERENCE_STEPS; step++)
        maps_pixel_first(&pixel);
    for (int i = 0; i < coils; i++)
        work->reference[i] = (struct c32){pixel.vector_re[i], pixel.vector_im[i]};
    maps_pixel_free(&pixel);
    return 0;
}

static int ask_begun(void *work)
{
    return maps_tell(work, 0);
}

static int estimate(const struct maps_params *params, int threads, const struct c32 *images, struct c32 *maps,
                    double *support)
{
    struct maps_work work = {.params = params, .threads = threads, .pixels = 1, .maps = maps};
    const struct dev_ask ask = {&work, ask_begun};
    size_t size = 1;
    for (int d = 0; d < 3; d++) {
        work.m[d] = maps_centre(params, d);
        work.pixels *= (size_t)params->n[d];
        size *= (size_t)work.m[d];
    }
    int rc = asker_create(&work.asker, &ask);
    work.centre = malloc((size_t)params->coils * size * sizeof *work.centre);
    work.reference = malloc((size_t)params->coils * sizeof *work.reference);
    if (rc == 0 && (!work.centre || !work.reference))
        rc = err_no_memory("the centre of k-space of %d coils", params->coils);
    if (rc == 0)
        rc = maps_tell(&work, 0);
    if (rc == 0)
        rc = maps_analyse(&work, images, work.centre);
    if (rc == 0)
        rc = centre_scale(&work, (size_t)params->coils * size);
    if (rc == 0)
        rc = reference_find(&work, size);
    if (rc == 0)
        rc = params->method == MAPS_ESPIRIT ? maps_espirit(&work) : maps_patch(&work);
    if (rc == 0)
        rc = maps_tell(&work, 1);
    if (rc == 0 && support)
        *support = (double)work.support / (double)work.pixels;
    free(work.reference);
    free(work.centre);
    asker_free(work.asker);
    return rc;
}

/* The Fourier transform of the centre uses two intermediate images, cropped along one axis and along two. */
size_t maps_bytes(const struct maps_params *params, int threads)
{
    struct maps_work work = {.params = params, .threads = threads};
    struct maps_lags lags;
    const int *n = params->n;
    const size_t coils = (size_t)params->coils;
    size_t centre = 1, between;
    for (int d = 0; d < 3; d++) {
        work.m[d] = maps_centre(params, d);
        centre *= (size_t)work.m[d];
    }
    between = coils * (size_t)work.m[0] * ((size_t)n[1] + (size_t)work.m[1]) * (size_t)n[2] * sizeof(struct c32);
    centre *= coils * sizeof(struct c32);
    if (params->method != MAPS_ESPIRIT) /* images of the centre only, and the rows' work space */
        return centre + between + coils * (size_t)n[0] * (size_t)n[1] * (size_t)n[2] * sizeof(struct c32) +
               (size_t)threads * ((size_t)n[0] + 1) * coils * (coils + 1) * sizeof(struct c32);
    const size_t calibration = maps_calibration_bytes(&work, &lags);
    const size_t row = (size_t)lags.count[0] * lags.pairs * ((size_t)lags.count[1] + 3) * sizeof(struct c32);
    const size_t later = calibration + (size_t)threads * row;
    return centre + (between > later ? between : later);
}

/* ---- devices ---- */

static struct espirit_params espirit_params_of(const struct maps_params *params)
{
    struct espirit_params p = {.coils = params->coils, .threshold = params->threshold, .crop = params->crop};
    for (int d = 0; d < 3; d++) {
        p.n[d] = params->n[d];
        p.m[d] = maps_centre(params, d);
        p.width[d] = maps_width(params, d);
    }
    return p;
}

bool maps_on_device(const struct dev *dev, const struct maps_params *params)
{
    const struct espirit_params p = espirit_params_of(params);
    return params->method == MAPS_ESPIRIT && espirit_available(dev, &p);
}

size_t maps_device_bytes(const struct dev *dev, const struct maps_params *params)
{
    const struct espirit_params p = espirit_params_of(params);
    return maps_on_device(dev, params) ? espirit_bytes(dev, &p) : 0;
}

static int device_told(void *context, size_t done, size_t most)
{
    return maps_tell(context, MAPS_CALIBRATED + (1 - MAPS_CALIBRATED) * (double)done / (double)most);
}

static int estimate_device(struct dev *dev, const struct maps_params *params, const struct c32 *images,
                           struct c32 *maps, double *support)
{
    struct maps_work work = {.params = params};
    const struct espirit_params p = espirit_params_of(params);
    const struct listener listener = {&work, device_told};
    size_t count = 0;
    int rc = maps_tell(&work, 0);
    if (rc == 0)
        rc = espirit_estimate(dev, &p, images, maps, &listener, &count);
    if (rc == 0)
        rc = maps_tell(&work, 1);
    if (rc == 0 && support)
        *support = (double)count / ((double)p.n[0] * p.n[1] * p.n[2]);
    return rc;
}

/* Copied through the host's memory. */
static int estimate_remote(struct dev *dev, const struct maps_params *params, const struct c32 *images,
                           struct c32 *maps, double *support)
{
    const size_t bytes =
        (size_t)params->coils * (size_t)params->n[0] * (size_t)params->n[1] * (size_t)params->n[2] * sizeof(struct c32);
    struct c32 *host = malloc(bytes);
    if (!host)
        return err_no_memory_bytes(bytes, "the maps of %d coils", params->coils);
    int rc = dev_download(dev, host, images, bytes);
    if (rc == 0)
        rc = estimate(params, dev_threads(dev), host, host, support);
    if (rc == 0)
        rc = dev_upload(dev, maps, host, bytes);
    free(host);
    return rc;
}

int maps_estimate(struct dev *dev, const struct maps_params *params, const struct c32 *images, struct c32 *maps,
                  double *support)
{
    int rc = params_check(params);
    if (rc != 0)
        return rc;
    if (maps_on_device(dev, params))
        return estimate_device(dev, params, images, maps, support);
    return dev_direct(dev, maps) ? estimate(params, dev_threads(dev), images, maps, support)
                                 : estimate_remote(dev, params, images, maps, support);
}
