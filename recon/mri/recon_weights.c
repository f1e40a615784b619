/* The meaning of the column after the coordinates: density weights (Gadgetron's convention) if possible; it could also
 * be kz of a 2-D scan, or anything else. */
#include "recon/mri/recon_weights.h"

#include "gridding/base/err.h"

#include <stdlib.h>

static int weights_invalid(const struct recon_job *job, size_t at, float value)
{
    uint32_t acquisition = readout_at(job, at)->acquisition;
    return err_set_acquisition(ERR_DCF_INVALID, acquisition,
                               "Acquisition %u has a density weight of %g; weights are finite and not negative. Pass "
                               "dcf=analytic, pipe or none to ignore the weights.",
                               acquisition, (double)value);
}

/* The third column of a 2-D scan may be kz: summed without it, several planes would become one. */
static int may_be_kz(const struct recon_job *job, const struct extremes *found)
{
    uint32_t acquisition = readout_at(job, found->least_at)->acquisition;
    if (found->level && found->longer)
        return err_set_acquisition(
            ERR_DCF_AMBIGUOUS, acquisition,
            "The third column of this 2-D scan's trajectory is constant along each acquisition, from %g to %g between "
            "them, as kz of a stack is. If it is that, set the encoded matrix's z (now 1) to the number of partitions. "
            "If it holds weights, pass dcf=given; to ignore it, pass dcf=analytic, pipe or none.",
            (double)found->least, (double)found->greatest);
    return err_set_acquisition(
        ERR_DCF_AMBIGUOUS, acquisition,
        "The trajectory of this 2-D scan has a third column with negative values (%g in acquisition %u), as kz of a "
        "3-D scan has and density weights have not. If it is kz, set the encoded matrix's z, which is 1. Pass "
        "dcf=analytic, pipe or none to ignore the column.",
        (double)found->least, acquisition);
}

/* dcf=auto: *used: whether the column is used as weights. */
static int guess(struct recon_job *job, const struct extremes *found, bool *used)
{
    int last = job->columns - 1;
    *used = false;
    if (found->most[last] >= INFINITE_BITS)
        return weights_invalid(job, found->most_at[last], bits_float(found->most[last]));
    if (recon_level(found->least, found->greatest)) {
        recon_report_decide(job, "trajectory column", "ignored",
                            "Column %d of the trajectory is %g throughout, so it contains no weights.", last + 1,
                            (double)found->greatest);
        return 0;
    }
    if (job->dim == 2 && (found->least < 0 || (found->level && found->longer)))
        return may_be_kz(job, found);
    if (found->least < 0 || (found->level && found->longer)) {
        recon_report_decide(job, "trajectory column", "ignored",
                            "Column %d of the trajectory, from %g to %g, contains no weights.", last + 1,
                            (double)found->least, (double)found->greatest);
        recon_report_warn(job,
                          "Column %d of the trajectory was not used: it %s, which density weights do not. Pass "
                          "dcf=given if it holds weights.",
                          last + 1, found->least < 0 ? "has negative values" : "is constant along each acquisition");
        return 0;
    }
    *used = true;
    return 0;
}

int recon_weights_decide(struct recon_job *job, const struct extremes *found)
{
    enum dcf_method asked = (enum dcf_method)recon_choice(job, RECON_DCF);
    int last = job->columns - 1;
    if (job->columns == job->coordinates) {
        if (asked == DCF_GIVEN)
            return err_set(ERR_DCF_MISSING,
                           "Parameter dcf=given, but the trajectory has %d columns for %d dimensions and so contains "
                           "no weights. Pass dcf=auto, analytic or pipe to have them computed.",
                           job->columns, job->dim);
        return 0;
    }
    if (asked == DCF_AUTO)
        return guess(job, found, &job->has_weights);
    if (asked != DCF_GIVEN) {
        recon_report_decide(job, "trajectory column", "ignored", "Column %d of the trajectory is not used: dcf=%s.",
                            last + 1, job->request->values->value[RECON_DCF].text);
        return 0;
    }
    if (found->most[last] >= INFINITE_BITS)
        return weights_invalid(job, found->most_at[last], bits_float(found->most[last]));
    if (found->least < 0)
        return weights_invalid(job, found->least_at, found->least);
    if (found->most[last] == 0)
        return err_set(ERR_DCF_INVALID, "Parameter dcf=given, but all density weights of the scan are 0.");
    job->has_weights = true;
    return 0;
}

/* ---- weights that compensate for nothing ---- */

/* Weights should compensate for the density of samples, so their sums over the inner part of k-space and over an outer
 * shell should be about proportional to the volumes. Windows that fall off towards the edge change this ratio by a
 * factor below 2, missing weights of a radial scan by 6. Radii are fractions of the largest |k| along each axis. */
static const double inner = 0.15, shell[2] = {0.3, 0.6}, most_uneven = 4;

/* Samples of one image. A uniform density in the whole square or cube of k-space has the fraction pi inner^2 / 4 or
 * pi inner^3 / 6 of its samples in the inner part: of these numbers 1158 and 463, more than twice the least, and denser
 * centres have more. So sums over them differ from those over all samples by a few percent, windows and missing weights
 * by factors. */
enum { LEAST_SAMPLES = 200, MOST_SAMPLES_2D = 1 << 16, MOST_SAMPLES_3D = 1 << 18 };

struct balance {
    double inner, shell; /* sums of weights */
    size_t inner_count, shell_count;
};

static void balance_add(const struct recon_job *job, const struct scan_readout *readout, const double largest[3],
                        struct balance *sum)
{
    const float *k = kept_traj(job, readout);
    for (size_t s = 0; s < frames_kept(readout); s++, k += job->columns) {
        double square = 0;
        for (int d = 0; d < job->dim; d++)
            square += largest[d] > 0 ? k[d] / largest[d] * (k[d] / largest[d]) : 0;
        if (square < inner * inner) {
            sum->inner += k[job->dim];
            sum->inner_count++;
        } else if (square >= shell[0] * shell[0] && square < shell[1] * shell[1]) {
            sum->shell += k[job->dim];
            sum->shell_count++;
        }
    }
}

void recon_weights_doubt(struct recon_job *job, const struct extremes *found)
{
    if (!job->has_weights || recon_choice(job, RECON_DCF) != DCF_AUTO)
        return;
    const struct frame *frame = &job->frames->frame[0];
    double largest[3] = {0}, volume = pow(inner, job->dim) / (pow(shell[1], job->dim) - pow(shell[0], job->dim));
    size_t every = frame->samples / (job->dim == 2 ? MOST_SAMPLES_2D : MOST_SAMPLES_3D) + 1;
    struct balance sum = {0};
    for (int d = 0; d < job->dim; d++)
        largest[d] = bits_float(found->most[d]);
    for (size_t i = 0; i < frame->count; i += every)
        balance_add(job, readout_at(job, frame->first + i), largest, &sum);
    if (sum.inner_count < LEAST_SAMPLES || sum.shell_count < LEAST_SAMPLES || !(sum.shell > 0))
        return;
    double ratio = sum.inner / sum.shell / volume;
    if (ratio > most_uneven || ratio < 1 / most_uneven)
        recon_report_warn(
            job,
            "Column %d of the trajectory was taken for density weights, but they weight the centre of k-space %.2g "
            "times too much. If it contains no weights, pass dcf=analytic or pipe; if it does, dcf=given.",
            job->columns, ratio);
}
