/* One image from all coils, by maps: sum_c conj(map_c) image_c, with |map|^2 summing to 1. Its magnitude is that of the
 * root of the sum of squares where the maps are right, without the bias of the noise in what is dark; its phase is the
 * object's beside the maps' reference (recon/mri/maps.h). */
#include "recon/mri/recon_gridder.h"

#include "recon/mri/maps.h"
#include "gridding/base/clock.h"

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

/* g->coil[0] = the sum; the other two are room for a coil's image and its map. */
static int coils_sum(struct gridder *g, int coils)
{
    struct c32 *sum = g->coil, *image = g->coil + g->pixels, *map = g->coil + 2 * g->pixels;
    const size_t bytes = g->pixels * sizeof *sum;
    int rc = 0;
    memset(sum, 0, bytes);
    for (int c = 0; c < coils && rc == 0; c++) {
        rc = dev_download(g->job->dev, image, (const struct c32 *)g->image + (size_t)c * g->pixels, bytes);
        if (rc == 0)
            rc = dev_download(g->job->dev, map, g->maps + (size_t)c * g->pixels, bytes);
        for (size_t i = 0; i < g->pixels && rc == 0; i++) {
            sum[i].re += map[i].re * image[i].re + map[i].im * image[i].im;
            sum[i].im += map[i].re * image[i].im - map[i].im * image[i].re;
        }
    }
    return rc;
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
                            "As asked for, with the maps that the scan brings (sensitivities); they cover %.0f %% of "
                            "the image, and it is 0 elsewhere.",
                            100 * support);
    if (rc == 0 && !given) {
        recon_report_decide(job, "coils", sense ? "sense" : "adaptive",
                            "As asked for; maps by %s from the centre of k-space of the coils' own images%s.",
                            sense ? "ESPIRiT" : "Walsh's method",
                            dev_is_gpu(job->dev) ? ", on the CPU: there is no GPU implementation" : "");
    }
    recon_report_stage(job, "maps", clock_seconds() - start);
    return rc;
}
