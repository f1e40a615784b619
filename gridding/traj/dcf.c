/* Analytic density weights: the share of k-space of each sample of spokes and arms. */
#include "gridding/traj/dcf_shape.h"

#include "gridding/base/err.h"

#include <stdlib.h>

/* Sort by place. Most samples are in order already, forwards or backwards, and then nothing is sorted. */
static void order_places(size_t count, struct dcf_place *places)
{
    if (count > 1 && places[0].at > places[count - 1].at)
        for (size_t i = 0; i < count / 2; i++) {
            struct dcf_place swap = places[i];
            places[i] = places[count - 1 - i];
            places[count - 1 - i] = swap;
        }
    for (size_t i = 1; i < count; i++)
        if (places[i].at < places[i - 1].at) {
            qsort(places, count, sizeof *places, dcf_place_order);
            return;
        }
}

/* The integral of F over k-space along one half-spoke is the integral of c t^(dim - 1) F(t) dt, where c is its wedge
 * (2-D) or solid angle (3-D). F is smooth, so the plain sum over samples at a spacing h with weights c t^(dim - 1) h is
 * exact except for the integrand's kink at t = 0, for which the Euler-Maclaurin formula adds c h^dim B_dim(first t / h)
 * / dim, with Bernoulli's polynomials B. A sample at k = 0 of full 2-D spokes therefore gets 2/3 of its disc, pi h^2 /
 * 6 over all spokes. (With the areas of cells, the image's scale has an error of 3 %.) */
static double kink(int dim, double first, double h)
{
    double at = fmin(first / h, 1);
    return dim == 2 ? h * h * (at * at - at + 1.0 / 6) / 2 : h * h * h * (at * at * at - 1.5 * at * at + 0.5 * at) / 3;
}

/* Samples closer together than this share one place. */
static size_t same_place(size_t samples, const struct dcf_place *places, double together, size_t first)
{
    size_t last = first + 1;
    while (last < samples && places[last].at - places[first].at < together)
        last++;
    return last;
}

/* c of the half-spoke at `radius`. The last sample of a short side represents half a step more, so the zone ends there.
 */
static double content_at(const struct sectors *sectors, size_t half, double radius, double step)
{
    int z = 0;
    while (z + 1 < sectors->zones && radius > sectors->until[z] + step / 2)
        z++;
    return sectors->content[z][half];
}

/* Weights of one spoke, computed from its samples' places along it. */
static void spoke_weights(int dim, const struct spoke *spoke, const struct sectors *sectors, size_t r, size_t samples,
                          struct dcf_place *places, float *weights)
{
    order_places(samples, places);
    double together = 1e-4 * (spoke->high - spoke->low) / (double)samples;
    double step = (spoke->high - spoke->low) / (double)samples;
    for (size_t first = 0, before = 0, last; first < samples; before = first, first = last) {
        last = same_place(samples, places, together, first);
        size_t after = last < samples ? last : first;
        double at = places[first].at;
        /* An end sample's cell extends outwards as far as inwards. */
        double in = first > 0 ? at - places[before].at : places[after].at - at;
        double out = after > first ? places[after].at - at : in;
        double weight =
            content_at(sectors, 2 * r + (at < 0), fabs(at), step) * (dim == 2 ? fabs(at) : at * at) * (in + out) / 2;
        bool lowest = first == 0 || places[before].at < -together,
             highest = last == samples || places[after].at > together;
        if (at > -together && lowest && out > 0)
            weight += sectors->content[0][2 * r] * kink(dim, fabs(at), out);
        if (at < together && highest && in > 0)
            weight += sectors->content[0][2 * r + 1] * kink(dim, fabs(at), in);
        for (size_t i = first; i < last; i++)
            weights[places[i].sample] = (float)(weight / (double)(last - first));
    }
}

static int radial_weights(int dim, size_t readouts, size_t samples, const float *k, float *weights)
{
    struct spoke *spokes = dcf_spokes(dim, readouts, samples, k);
    struct sectors sectors = {.memory = NULL};
    int failed = !spokes || dcf_sectors(dim, readouts, spokes, &sectors) < 0;
    if (failed)
        goto out;
#pragma omp parallel reduction(| : failed) if (readouts * samples > DCF_ALONE)
    {
        struct dcf_place *places = malloc(samples * sizeof *places);
        failed |= !places;
#pragma omp for schedule(static)
        for (size_t r = 0; r < readouts; r++) {
            if (!places)
                continue;
            for (size_t i = 0; i < samples; i++) {
                const float *at = k + (r * samples + i) * (size_t)dim;
                double along = 0;
                for (int d = 0; d < dim; d++)
                    along += at[d] * spokes[r].direction[d];
                places[i] = (struct dcf_place){along, i};
            }
            spoke_weights(dim, &spokes[r], &sectors, r, samples, places, weights + r * samples);
        }
        free(places);
    }
out:
    free(sectors.memory);
    free(spokes);
    return failed ? err_no_memory("the density weights of %zu readouts", readouts) : 0;
}

/* Arms that differ only by a rotation cross each circle once each, so a sample owns the part of an annulus between its
 * arm's neighbours, as on a spoke of that wedge. For Archimedean arms |k| d|k| equals Meyer's |g| |sin(angle g - angle
 * k)| times the pitch; computed from |k|, it is also correct if the pitch changes (Hoge 1997,
 * doi:10.1002/mrm.1910380117), and near the centre, where samples are too far apart for differences of g. */
static int spiral_weights(size_t readouts, size_t samples, const float *k, float *weights)
{
    struct dcf_place *places = malloc(samples * sizeof *places);
    double *wedge = malloc(readouts * sizeof *wedge);
    int rc = 0;
    if (!places || !wedge || dcf_arm_wedges(readouts, samples, k, wedge) < 0)
        rc = err_no_memory("the density weights of %zu samples", samples);
    for (size_t r = 0; r < readouts && !rc; r++) {
        double content[2] = {wedge[r], 0};
        const struct sectors own = {.zones = 1, .content = {content}};
        struct spoke arm = {.low = 0};
        for (size_t i = 0; i < samples; i++) {
            places[i] = (struct dcf_place){norm(2, k + 2 * (r * samples + i)), i};
            arm.high = fmax(arm.high, places[i].at);
        }
        spoke_weights(2, &arm, &own, 0, samples, places, weights + r * samples);
    }
    free(wedge);
    free(places);
    return rc;
}

/* Curves on cones cross each sphere about 0 once each, as spokes do. */
static int cone_weights(size_t readouts, size_t samples, const float *k, float *weights)
{
    struct spoke *spokes = dcf_spokes(3, readouts, samples, k);
    struct dcf_place *places = malloc(samples * sizeof *places);
    double *share = malloc(readouts * sizeof *share);
    bool failed = !spokes || !places || !share || dcf_cone_shares(readouts, spokes, share) < 0;
    for (size_t r = 0; r < readouts && !failed; r++) {
        double content[2] = {share[r], 0};
        const struct sectors own = {.zones = 1, .content = {content}};
        struct spoke arm = {.high = spokes[r].high};
        for (size_t i = 0; i < samples; i++)
            places[i] = (struct dcf_place){norm(3, k + 3 * (r * samples + i)), i};
        spoke_weights(3, &arm, &own, 0, samples, places, weights + r * samples);
    }
    free(share);
    free(places);
    free(spokes);
    return failed ? err_no_memory("the density weights of %zu readouts", readouts) : 0;
}

int dcf_weights(enum traj_shape shape, int dim, size_t readouts, size_t samples, const float *k, float *weights)
{
    if (readouts == 0 || samples < 2)
        return err_set(ERR_DCF_INVALID, "Density weights need readouts of at least 2 samples, not %zu of %zu.",
                       readouts, samples);
    int rc;
    if (shape == TRAJ_SHAPE_RADIAL && (dim == 2 || dim == 3))
        rc = radial_weights(dim, readouts, samples, k, weights);
    else if (shape == TRAJ_SHAPE_SPIRAL && dim == 2)
        rc = spiral_weights(readouts, samples, k, weights);
    else if (shape == TRAJ_SHAPE_CONES && dim == 3)
        rc = cone_weights(readouts, samples, k, weights);
    else
        rc = err_set(ERR_DCF_INVALID,
                     "There is no formula for the density weights of this %d-D trajectory, which is neither radial, a "
                     "spiral from the centre, a stack of either, nor cones. Pass dcf=pipe.",
                     dim);
    if (rc)
        return rc;
    double sum = 0;
    for (size_t m = 0; m < readouts * samples; m++)
        sum += weights[m];
    if (!(sum > 0) || !isfinite(sum))
        return err_set(ERR_DCF_INVALID,
                       "The density weights of this trajectory sum to %g: its samples do not spread over k-space.",
                       sum);
    return 0;
}
