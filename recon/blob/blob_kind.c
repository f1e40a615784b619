/* Kind "blob": its row of the table of kinds. Plain data, and the checks that follow from it. */
#include "recon/blob/blob.h"

#include "recon/mesh/mesh.h"
#include "recon/particle/particles.h"
#include "recon/volume/volume.h"

#define WORDS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static const struct param params[] = {
    [BLOB_RESULTS_WANTED] = {"results",
                             "What the job gives: volume = the density; mesh = its surface at isovalue, as triangles; "
                             "or both, with a comma between them.",
                             PARAM_SET, .choices = WORDS("volume", "mesh"), .fallback = "volume"},
    [BLOB_BLOBBINESS] = {"blobbiness",
                         "B of exp(B (r^2/R^2 - 1)): nearer to 0, neighbours melt into each other; further from it, "
                         "they stay spheres.",
                         PARAM_REAL, .fallback = "-2.5", .min = -8, .max = -0.05},
    [BLOB_ISOVALUE] = {"isovalue", "Density at which the surface lies; a point alone has 1 at its radius.", PARAM_REAL,
                       .fallback = "1", .min = 1e-3, .max = 1e6},
    [BLOB_SPACING] = {"spacing", "Distance between nodes of the lattice, angstroms.", PARAM_REAL, .fallback = "0.5",
                      .min = 0.01, .max = 1000},
    [BLOB_PADDING] =
        {"padding",
         "Angstroms from the outermost points to the lattice's border; auto = as far as any point reaches, "
         "so that the surface is closed.",
         PARAM_REAL, .fallback = "auto", .min = 0, .max = 10000, .choices = WORDS("auto")},
    [BLOB_RADIUS] = {"radius",
                     "Radius of every point, angstroms; given = the file's radii or, where it has none, the van der "
                     "Waals radii of its elements.",
                     PARAM_REAL, .fallback = "given", .min = 0.1, .max = 1000, .choices = WORDS("given")},
    [BLOB_FRAMES] = {"frames",
                     "Of a file of several frames (models): each = a volume of each, in one file; mean = the mean "
                     "density; first = the first frame alone.",
                     PARAM_CHOICE, .choices = WORDS("each", "mean", "first"), .fallback = "each"},
    [BLOB_EPS] = {"eps", "What a point's term has fallen to where it is cut off.", PARAM_REAL, .fallback = "1e-4",
                  .min = 1e-6, .max = 0.5},
    [BLOB_TRUNCATION] = {"truncation",
                         "Where a point's term is cut off: cube = beyond the cube around the sphere on which it is "
                         "eps, which is quicker, and closer to the full sum; sphere = beyond that sphere.",
                         PARAM_CHOICE, .choices = WORDS("cube", "sphere"), .fallback = "cube"},
    {.name = NULL},
};

static const struct kind_step steps[] = {
    [BLOB_STEP_READ] = {"read", "The points are read and checked.", .share = 0.2},
    [BLOB_STEP_DENSITY] = {"density", "The density is summed on the lattice.", .unit = "frame", .share = 0.5},
    [BLOB_STEP_SURFACE] = {"surface", "The surface is extracted and measured.", .share = 0.2},
    [BLOB_STEP_WRITE] = {"write", "The results are written.", .share = 0.1, .writes = true},
    {.name = NULL},
};

static const struct kind_result results[] = {
    [BLOB_VOLUME] = {"volume", "The density, on the lattice.", &volume_form},
    [BLOB_MESH] = {"mesh", "The surface at isovalue, as triangles with normals.", &mesh_form},
    {.name = NULL},
};

static int sniff(const char **name, int fd, uint64_t bytes)
{
    return particles_sniff(name, fd, bytes, particles_inputs);
}

/* All that the table takes goes together. */
static int check(const struct param_values *values)
{
    (void)values;
    return 0;
}

const struct kind blob_kind = {
    .name = "blob",
    .help = "Molecules to a density of blobs (Blinn) and its surface.",
    .params = params,
    .inputs = particles_inputs,
    .sniff = sniff,
    .results = results,
    .steps = steps,
    .check = check,
};
