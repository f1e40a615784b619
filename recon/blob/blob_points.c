/* blob_points.c: which points of the input are summed, and with which radii. */
#include "recon/blob/blob_job.h"

#include "gridding/base/err.h"
#include "recon/particle/radii.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int frames_choose(struct blob_job *job)
{
    const enum blob_frames wanted = (enum blob_frames)job->job.request->values->value[BLOB_FRAMES].integer;
    const size_t there = job->particles->frames;
    job->frames = wanted == BLOB_FRAMES_FIRST ? 1 : there;
    job->volumes = wanted == BLOB_FRAMES_MEAN ? 1 : job->frames;
    if (job->volumes > 1 && blob_wants(job, BLOB_MESH))
        return err_set(ERR_BAD_PARAMETER,
                       "The file has %zu frames, but a mesh can be made of one density only. Send frames=first or "
                       "frames=mean, or results=volume.",
                       there);
    return 0;
}

/* Radius of point i; 0: none. */
static double radius_of(const struct blob_job *job, size_t i)
{
    const double given = job->job.request->values->value[BLOB_RADIUS].real;
    const struct particles *p = job->particles;
    return given > 0 ? given : p->radius ? p->radius[i] : p->element ? particle_radius(p->element[i]) : 0;
}

/* Every point needs a known radius. A radius of 0 in the file is accepted (force fields give it to hydrogens); an
 * element without a radius is an error. */
static int radii_check(struct blob_job *job)
{
    const struct particles *p = job->particles;
    const bool given = job->job.request->values->value[BLOB_RADIUS].real > 0;
    if (!given && !p->radius && !p->element)
        return err_set(ERR_MALFORMED_FILE, "The file contains neither radii nor elements. Send a file with a column of "
                                           "radii, or set the parameter radius, which applies to every point.");
    for (size_t i = 0; !given && !p->radius && i < p->count; i++)
        if (particle_radius(p->element[i]) == 0)
            return err_set(ERR_MALFORMED_FILE,
                           "Point %zu (%s) has no van der Waals radius in the table. Send radii (PQR, or a column "
                           "radius), or set the parameter radius, which applies to every point.",
                           i + 1, p->element[i] ? particle_element_symbol(p->element[i]) : "of an unknown element");
    if (!given)
        kind_job_decide(&job->job, "radii", p->radius ? "file" : "van der Waals",
                        p->radius ? "The file contains a radius for each point."
                                  : "The file contains elements but no radii: those of Mantina et al. "
                                    "(doi:10.1021/jp8111556) and Alvarez (doi:10.1039/c3dt50599e) are used.");
    return 0;
}

/* Count the points with a radius above 0. Radii are the same in all frames. */
static size_t points_count(const struct blob_job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->particles->count; i++)
        count += radius_of(job, i) > 0;
    return count;
}

static void points_copy(struct blob_job *job)
{
    const struct particles *p = job->particles;
    size_t to = 0;
    for (size_t frame = 0; frame < job->frames; frame++)
        for (size_t i = 0; i < p->count; i++) {
            const double radius = radius_of(job, i);
            const size_t from = frame * p->count + i;
            if (!(radius > 0))
                continue;
            job->radius[to] = (float)radius;
            memcpy(job->at + 3 * to++, p->position + 3 * from, 3 * sizeof *job->at);
        }
}

int blob_points_choose(struct blob_job *job)
{
    int rc = frames_choose(job);
    if (rc == 0)
        rc = radii_check(job);
    if (rc != 0)
        return rc;
    job->points = points_count(job);
    if (job->points == 0)
        return err_set(
            ERR_MALFORMED_FILE,
            "All %zu points of the file have a radius of 0. Set the parameter radius, which applies to every point.",
            job->particles->count);
    if (job->points < job->particles->count)
        kind_job_warn(&job->job, "%zu of %zu points have a radius of 0 and do not contribute.",
                      job->particles->count - job->points, job->particles->count);
    const size_t all = job->frames * job->points;
    job->at = malloc(3 * all * sizeof *job->at);
    job->radius = malloc(all * sizeof *job->radius);
    if (!job->at || !job->radius)
        return err_no_memory_bytes(all * (3 * sizeof *job->at + sizeof *job->radius), "%zu points", all);
    points_copy(job);
    return 0;
}
