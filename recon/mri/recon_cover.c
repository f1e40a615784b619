/* Detects images of a divided series that cover only a wedge of k-space: spokes in the order of their angles are
 * divided into sectors. */
#include "recon/mri/recon_weights.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdlib.h>

static int angle_compare(const void *pa, const void *pb)
{
    const double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* The direction of a spoke in the plane, in half turns: 0 .. 1, or 0 .. 2 for one that begins at k = 0. Negative: the
 * readout is not a straight line, or has no length. */
static double direction(const struct recon_job *job, const struct scan_readout *readout)
{
    const size_t samples = frames_kept(readout);
    const float *k = kept_traj(job, readout);
    double at[3][2];
    if (samples < 3)
        return -1;
    for (int i = 0; i < 3; i++)
        for (size_t d = 0; d < 2; d++)
            at[i][d] = (double)k[(i == 0   ? 0
                                  : i == 1 ? samples / 2
                                           : samples - 1) *
                                     readout->traj_dims +
                                 d] *
                       job->scale[d];
    const double x = at[2][0] - at[0][0], y = at[2][1] - at[0][1], length = hypot(x, y);
    const double across = fabs((at[1][0] - at[0][0]) * y - (at[1][1] - at[0][1]) * x);
    if (!(length > 0) || across > 1e-2 * length * length)
        return -1;
    const double turns = atan2(y, x) / M_PI; /* -1 .. 1 */
    const bool half = hypot(at[0][0], at[0][1]) < 0.1 * length;
    return half ? (turns < 0 ? turns + 2 : turns) : turns - floor(turns);
}

/* The largest gap between the directions of readouts [first, first + count), as a share of the circle; 0: they are not
 * spokes.
 */
static double gap_find(const struct recon_job *job, size_t first, size_t count, double *angles)
{
    double most = 0;
    bool whole = false;
    for (size_t i = 0; i < count; i++) {
        angles[i] = direction(job, readout_at(job, first + i));
        if (angles[i] < 0)
            return 0;
        whole = whole || angles[i] >= 1;
    }
    const double all = whole ? 2 : 1;
    qsort(angles, count, sizeof *angles, angle_compare);
    for (size_t i = 0; i < count; i++)
        most = fmax(most, (i + 1 < count ? angles[i + 1] : angles[0] + all) - angles[i]);
    return most / all;
}

/* Even angles have gaps of 1 / count; golden angles have gaps of at most 2.62 times the smallest, less than twice the
 * mean. A gap of three times the mean, and of three times the largest gap of all readouts together, is a wedge. */
int recon_cover_warn(struct recon_job *job)
{
    const struct frames *frames = job->frames;
    double worst = 0;
    size_t wedges = 0;
    double *angles = malloc(frames->used * sizeof *angles);
    if (!angles)
        return err_no_memory("the directions of %zu readouts", frames->used);
    const double all = gap_find(job, 0, frames->used, angles);
    for (size_t f = 0; f < frames->count && all > 0; f++) {
        const struct frame *frame = &frames->frame[f];
        const double gap = frame->count > 2 ? gap_find(job, frame->first, frame->count, angles) : 0;
        wedges += gap > 3 / (double)frame->count && gap > 3 * all;
        worst = fmax(worst, gap);
    }
    free(angles);
    if (wedges)
        recon_report_warn(job,
                          "%zu of %zu images lack a wedge of k-space, of up to %.0f %% of all directions: the readouts "
                          "that the series is divided into follow each other by their angles, so that each image has a "
                          "sector of them. Only readouts of which any number in a row covers k-space evenly "
                          "(golden angles) can be divided so; take whole turns an image (frame_readouts).",
                          wedges, frames->count, 100 * worst);
    return 0;
}
