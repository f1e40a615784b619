/* blob_surface.c: the isosurface of the density, and its area and volume. */
#include "recon/blob/blob_job.h"

#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"

#include <jansson.h>
#include <stdio.h>

static int surface_tell(void *context, double done)
{
    const struct blob_job *job = context;
    return kind_job_tell(&job->job, BLOB_STEP_SURFACE, 0.8 * done, 0, 0);
}

static bool surface_most(const void *of, int format, size_t *bytes)
{
    const struct mesh *mesh = of;
    return mesh_file_most(mesh->vertices, mesh->triangles, (enum mesh_format)format, bytes);
}

/* Check the size of the mesh's files, now that the number of triangles is known. */
static int surface_promise(struct blob_job *job)
{
    char what[96];
    snprintf(what, sizeof what, "a surface of %zu triangles", job->mesh->triangles);
    return kind_job_promise(&job->job, BLOB_MESH, surface_most, job->mesh, what, "Choose a larger spacing.");
}

static int surface_report(struct blob_job *job)
{
    struct mesh_measure measure;
    int rc = mesh_measure(&measure, job->mesh);
    if (rc != 0)
        return rc;
    json_t *surface = json_pack("{s:I, s:I, s:f, s:b, s:I}", "vertices", (json_int_t)job->mesh->vertices, "triangles",
                                (json_int_t)job->mesh->triangles, "area", measure.area, "closed", measure.closed,
                                "pieces", (json_int_t)measure.pieces);
    if (measure.closed) {
        json_object_set_new(surface, "volume", json_real(measure.volume));
        json_object_set_new(surface, "euler", json_integer((json_int_t)measure.euler));
    }
    json_object_set_new(job->job.report, "surface", surface);
    if (job->mesh->triangles == 0)
        kind_job_warn(&job->job, "There is no surface: the density does not cross the isovalue of %g.",
                      job->job.request->values->value[BLOB_ISOVALUE].real);
    else if (!measure.closed)
        kind_job_warn(
            &job->job,
            "The surface is cut off at the lattice's border and therefore has no volume; a larger padding closes it.");
    return 0;
}

int blob_surface(struct blob_job *job)
{
    const struct volume *volume = job->volume;
    struct mesh_field field = {.value = volume->data};
    const struct mesh_watch watch = {
        .threads = dev_threads(job->job.dev),
        .most_bytes = host_memory_available(),
        .progress = surface_tell,
        .context = job,
    };
    for (int d = 0; d < 3; d++) {
        field.nodes[d] = volume->size[d];
        field.origin[d] = volume->origin[d];
        field.spacing[d] = volume->spacing[d];
    }
    int rc = mesh_surface(&job->mesh, &field, job->job.request->values->value[BLOB_ISOVALUE].real, &watch);
    if (rc == 0)
        rc = surface_promise(job);
    if (rc == 0)
        rc = kind_job_tell(&job->job, BLOB_STEP_SURFACE, 0.8, 0, 0);
    return rc == 0 ? surface_report(job) : rc;
}
