/* The density weights of iterative methods. A density weight is the volume of k-space nearest to a sample. If samples
 * are further apart than the field of view resolves, this exceeds the volume about which a sample has information, 1 /
 * n along each axis. Larger weights only increase the normal operator's largest eigenvalue, and with it the number of
 * iterations and the noise from those few samples. There weights are limited:
 *
 *   w_m <= min(distance to the next sample of the readout, 1/n) (1/n)^(dim - 1)
 *
 * in units in which the weights sum to the volume of k-space that the trajectory covers (recon/mri/band.h). */
#include "recon/mri/band.h"
#include "recon/mri/recon_gridder.h"

#include <math.h>

static double distance(const float *a, const float *b, int dim)
{
    double square = 0;
    for (int d = 0; d < dim; d++)
        square += pow((double)a[d] - (double)b[d], 2);
    return sqrt(square);
}

void gridder_limit(struct gridder *g, const struct frame *frame)
{
    struct recon_job *job = g->job;
    const int dim = job->dim;
    const struct band band = band_find(dim, frame->samples, g->k);
    double sum = 0, cells = 1;
    size_t limited = 0;
    for (size_t m = 0; m < frame->samples; m++)
        sum += (double)g->weights[m];
    for (int d = 0; d < dim; d++)
        cells *= g->n[d];
    const double side = pow(cells, -1.0 / dim), scale = sum / band_volume(&band);
    for (size_t r = 0; r < frame->count; r++)
        for (size_t m = g->offsets[r]; m < g->offsets[r + 1]; m++) {
            const bool last = m + 1 == g->offsets[r + 1], alone = last && m == g->offsets[r];
            const size_t next = last ? m - 1 : m + 1;
            const float *k = g->k + m * (size_t)dim;
            const double along = alone ? side : distance(k, g->k + next * (size_t)dim, dim);
            const double most = scale * fmin(along, side) * pow(side, dim - 1);
            if ((double)g->weights[m] > most && along > 0) {
                g->weights[m] = (float)most;
                limited++;
            }
        }
    if (limited)
        recon_report_decide(job, "weights", "limited",
                            "%zu of %zu samples lie further apart than the field of view resolves; an iterative method "
                            "converges faster, and to less noise, with limited density weights for these.",
                            limited, frame->samples);
}
