/* Kind "blob": its row of the table of kinds. Plain data, and the checks that follow from it. */
#include "recon/blob/blob.h"

#include "recon/mesh/mesh.h"
#include "recon/particle/particles.h"
#include "recon/volume/volume.h"

static const struct param params[] = {
    [BLOB_RESULTS_WANTED] = {"results", PARAM_SET, PARAM_WORDS("volume", "mesh"), .fallback = "volume",
                             .help = "What the job gives: volume = the density; mesh = its surface at isovalue, as "
                                     "triangles; or both, with a comma between them."},
    [BLOB_BLOBBINESS] = {"blobbiness", PARAM_REAL, .fallback = "-2.5", .min = -8, .max = -0.05,
                         .help = "B of exp(B (r^2/R^2 - 1)): nearer to 0, neighbours melt into each other; further "
                                 "from it, they stay spheres."},
    [BLOB_ISOVALUE] = {"isovalue", PARAM_REAL, .fallback = "1", .min = 1e-3, .max = 1e6,
                       .help = "Density at which the surface lies; a point alone has 1 at its radius."},
    [BLOB_SPACING] = {"spacing", PARAM_REAL, .fallback = "0.5", .min = 0.01, .max = 1000,
                      .help = "Distance between nodes of the lattice, angstroms."},
    [BLOB_PADDING] = {"padding", PARAM_REAL, .fallback = "auto", .min = 0, .max = 10000, PARAM_WORDS("auto"),
                      .help = "Angstroms from the outermost points to the lattice's border; auto = as far as any "
                              "point reaches, so that the surface is closed."},
    [BLOB_RADIUS] = {"radius", PARAM_REAL, .fallback = "given", .min = 0.1, .max = 1000, PARAM_WORDS("given"),
                     .help = "Radius of every point, angstroms; given = the file's radii or, where it has none, the "
                             "van der Waals radii of its elements."},
    [BLOB_FRAMES] = {"frames", PARAM_CHOICE, PARAM_WORDS("each", "mean", "first"), .fallback = "each",
                     .help = "Of a file of several frames (models): each = a volume of each, in one file; mean = the "
                             "mean density; first = the first frame alone."},
    [BLOB_EPS] = {"eps", PARAM_REAL, .fallback = "1e-4", .min = 1e-6, .max = 0.5,
                  .help = "What a point's term has fallen to where it is cut off."},
    [BLOB_TRUNCATION] = {"truncation", PARAM_CHOICE, PARAM_WORDS("cube", "sphere"), .fallback = "cube",
                         .help = "Where a point's term is cut off: cube = beyond the cube around the sphere on which "
                                 "it is eps, which is quicker, and closer to the full sum; sphere = beyond that "
                                 "sphere."},
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

const struct kind blob_kind = {
    .name = "blob",
    .help = "Molecules to a density of blobs (Blinn) and its surface.",
    .params = params,
    .inputs = particles_inputs,
    .sniff = particles_sniff_molecule,
    .results = results,
    .steps = steps,
};
