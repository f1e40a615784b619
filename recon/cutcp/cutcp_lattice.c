/* The lattice of a job: around its atoms, or the periodic box. */
#include "recon/cutcp/cutcp_job.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct lattice_extent {
    double low[3], high[3];
};

static struct lattice_extent extent_of(const struct cutcp_job *job)
{
    const double *at = job->particles->position;
    const size_t points = job->frames * job->particles->count;
    struct lattice_extent e;
    for (int d = 0; d < 3; d++)
        e.low[d] = e.high[d] = at[d];
    for (size_t i = 0; i < points; i++)
        for (int d = 0; d < 3; d++) {
            const double x = at[3 * i + (size_t)d];
            e.low[d] = x < e.low[d] ? x : e.low[d];
            e.high[d] = x > e.high[d] ? x : e.high[d];
        }
    return e;
}

static int cells_set(struct cutcp_job *job, int d, double cells)
{
    if (!(cells <= VOLUME_AXIS_MOST))
        return err_set(ERR_BAD_PARAMETER,
                       "The lattice would have %.7g points along axis %c; the limit is %d. Choose a larger spacing.",
                       cells, 'x' + d, VOLUME_AXIS_MOST);
    job->box.cells[d] = (int)cells;
    return 0;
}

/* As many points as fit around the atoms; 1e-6 makes this independent of the rounding of the quotient. */
static int open_axis(struct cutcp_job *job, int d, const struct lattice_extent *e)
{
    const double spacing = job->job.request->values->value[CUTCP_SPACING].real;
    const double padding = job->job.request->values->value[CUTCP_PADDING].real;
    job->origin[d] = e->low[d] - padding;
    job->box.spacing[d] = spacing;
    return cells_set(job, d, floor((e->high[d] + padding - job->origin[d]) / spacing + 1e-6) + 1);
}

/* The periodic box; centred on the atoms if the file does not give its origin. */
static int periodic_axis(struct cutcp_job *job, int d, const struct lattice_extent *e, double length)
{
    const struct particles_header *h = job->particles->header;
    const double cells = fmax(1, rint(length / job->job.request->values->value[CUTCP_SPACING].real));
    job->origin[d] = h->box_placed ? h->box_low[d] : (e->low[d] + e->high[d] - length) / 2;
    job->box.spacing[d] = length / cells;
    job->box.periodic[d] = true;
    return cells_set(job, d, cells);
}

static int box_lengths(const struct cutcp_job *job, double length[3])
{
    const struct particles_header *h = job->particles->header;
    bool given;
    int rc = cutcp_box_parse(job->job.request->values, length, &given);
    if (rc != 0 || given)
        return rc;
    memcpy(length, h->box_length, sizeof h->box_length);
    if (length[0] > 0 && length[1] > 0 && length[2] > 0)
        return 0;
    return err_set(
        ERR_BAD_PARAMETER,
        "Parameter periodic=yes needs a box, but the file contains %s. Give its side lengths, as in box=40,40,60.",
        h->box_skewed ? "one whose angles are not all 90 degrees, which is not supported" : "none");
}

static void lattice_report(struct cutcp_job *job, bool periodic)
{
    const double asked = job->job.request->values->value[CUTCP_SPACING].real, *spacing = job->box.spacing;
    char text[96];
    snprintf(text, sizeof text, "%d x %d x %d", job->box.cells[0], job->box.cells[1], job->box.cells[2]);
    kind_job_decide(&job->job, "lattice", text, "From (%.4f, %.4f, %.4f), %s.", job->origin[0], job->origin[1],
                    job->origin[2], periodic ? "one periodic box" : "the outermost atoms and the padding");
    snprintf(text, sizeof text, "%.6g x %.6g x %.6g", spacing[0], spacing[1], spacing[2]);
    for (int d = 0; d < 3; d++)
        if (fabs(spacing[d] / asked - 1) > 1e-9) {
            kind_job_decide(&job->job, "spacing", text, "The spacing nearest to %g that divides the periodic box.",
                            asked);
            return;
        }
}

int cutcp_lattice(struct cutcp_job *job)
{
    const struct param_values *values = job->job.request->values;
    const bool periodic = values->value[CUTCP_PERIODIC].integer != 0;
    const bool all = values->value[CUTCP_FRAMES].integer != CUTCP_FRAMES_FIRST;
    double length[3];
    job->frames = all ? job->particles->frames : 1;
    const struct lattice_extent e = extent_of(job);
    job->box = (struct range_box){.dim = 3};
    int rc = periodic ? box_lengths(job, length) : 0;
    for (int d = 0; d < 3 && rc == 0; d++)
        rc = periodic ? periodic_axis(job, d, &e, length[d]) : open_axis(job, d, &e);
    if (rc == 0)
        lattice_report(job, periodic);
    return rc;
}
