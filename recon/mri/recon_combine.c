/* One image from all coils, by maps: sum_c conj(map_c) image_c, with |map|^2 summing to 1. With correct maps its
 * magnitude is that of the root of the sum of squares, without the noise bias in dark regions; its phase is the
 * object's relative to the maps' reference (recon/mri/maps.h). */
#include "recon/mri/recon_gridder.h"

#include "gridding/base/clock.h"
#include "gridding/base/vec.h"
#include "recon/mri/maps.h"

#include <math.h>
#include <string.h>

struct combine_progress {
    const struct gridder *g;
    double base, span;
};

static int combine_tell(void *context, double done)
{
    const struct combine_progress *p = context;
    return recon_tell(p->g->job, RECON_STEP_GRIDDING, p->base + p->span * done, p->g->coils_done, p->g->coils);
}

void gridder_store(const struct gridder *g, size_t f, size_t channel, const struct c32 *pixels)
{
    struct image_series *series = g->job->images;
    float *to = series->data + (f * series->channels + channel) * g->pixels * (series->complex_valued ? 2 : 1);
    if (series->complex_valued)
        memcpy(to, pixels, g->pixels * sizeof *pixels);
    for (size_t i = 0; i < g->pixels && !series->complex_valued; i++)
        to[i] = series->phases ? atan2f(pixels[i].im, pixels[i].re) : hypotf(pixels[i].re, pixels[i].im);
}

/* g->coil = sum_c conj(map_c) image_c */
static int coils_sum(struct gridder *g, int coils)
{
    struct dev *dev = g->job->dev;
    const size_t bytes = g->pixels * sizeof *g->combined;
    int rc = dev_zero(dev, g->combined, bytes);
    if (rc == 0)
        rc = vec_multiply_conj_add(dev, g->pixels, coils, g->maps, g->image, g->combined);
    return rc == 0 ? dev_download(dev, g->coil, g->combined, bytes) : rc;
}

int combine_frame(struct gridder *g, size_t f, double base, double span)
{
    struct recon_job *job = g->job;
    const int coils = job->frames->frame[f].coils;
    const bool sense = recon_choice(job, RECON_COILS) == RECON_COILS_SENSE;
    struct maps_params params = maps_defaults(sense ? MAPS_ESPIRIT : MAPS_WALSH, coils, g->n);
    struct combine_progress progress = {g, base, span};
    const double start = clock_seconds();
    params.progress = combine_tell;
    params.context = &progress;
    double support = 0;
    const bool given = recon_maps_given(job);
    int rc = given ? recon_given_maps(job, coils, g->n, g->maps, &support)
                   : maps_estimate(job->dev, &params, g->image, g->maps, &support);
    if (rc == 0 && job->maps) {
        struct c32 *to = (struct c32 *)job->maps->data + f * job->maps->channels * g->pixels;
        rc = dev_download(job->dev, to, g->maps, (size_t)coils * g->pixels * sizeof *to);
    }
    if (rc == 0)
        rc = coils_sum(g, coils);
    if (rc == 0)
        gridder_store(g, f, 0, g->coil);
    if (rc == 0 && given)
        recon_report_decide(job, "coils", "given",
                            "As requested, with the scan's own maps (sensitivities); they cover %.0f %% of "
                            "the image, and it is 0 elsewhere.",
                            100 * support);
    if (rc == 0 && !given) {
        recon_report_decide(job, "coils", sense ? "sense" : "adaptive",
                            "As requested; maps by %s from the centre of k-space of the coils' own images%s.",
                            sense ? "ESPIRiT" : "Walsh's method",
                            dev_is_gpu(job->dev) && !maps_on_device(job->dev, &params)
                                ? ", on the CPU: there is no GPU implementation"
                                : "");
    }
    recon_report_stage(job, "maps", clock_seconds() - start);
    return rc;
}
