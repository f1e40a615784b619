/* Kind "blob": its row of the table of kinds. Plain data, and the checks that follow from it. */
#include "recon/blob/blob.h"

#include "recon/kind_bins.h"
#include "recon/mesh/mesh.h"
#include "recon/particle/particles.h"
#include "recon/volume/volume.h"

static const struct param params[] = {
    [BLOB_RESULTS_WANTED] = {"results", PARAM_SET, PARAM_WORDS("volume", "mesh"), .fallback = "volume",
                             .help = "Results of the job: volume = the density; mesh = its surface at isovalue, as "
                                     "triangles; or both, separated by a comma."},
    [BLOB_BLOBBINESS] =
        {"blobbiness", PARAM_REAL, .fallback = "-2.5", .min = -8, .max = -0.05,
         .help =
             "B of exp(B (r^2/R^2 - 1)): near 0, neighbouring atoms merge; far from 0, they remain separate spheres."},
    [BLOB_ISOVALUE] = {"isovalue", PARAM_REAL, .fallback = "1", .min = 1e-3, .max = 1e6,
                       .help = "Density at the surface; an isolated atom has a density of 1 at its radius."},
    [BLOB_SPACING] = {"spacing", PARAM_REAL, .fallback = "0.5", .min = 0.01, .max = 1000,
                      .help = "Distance between lattice nodes, angstroms."},
    [BLOB_PADDING] = {"padding", PARAM_REAL, .fallback = "auto", .min = 0, .max = 10000, PARAM_WORDS("auto"),
                      .help = "Margin around the outermost points, angstroms; auto = the reach of the largest point, "
                              "so that the surface is closed."},
    [BLOB_RADIUS] = {"radius", PARAM_REAL, .fallback = "given", .min = 0.1, .max = 1000, PARAM_WORDS("given"),
                     .help = "Radius of every point, angstroms; given = the radii in the file or, if it has none, the "
                             "van der Waals radii of its elements."},
    [BLOB_FRAMES] = {"frames", PARAM_CHOICE, PARAM_WORDS("each", "mean", "first"), .fallback = "each",
                     .help = "For a file with several frames (models): each = one volume per frame, in one file; mean "
                             "= the mean density; first = only the first frame."},
    [BLOB_EPS] = {"eps", PARAM_REAL, .fallback = "1e-4", .min = 1e-6, .max = 0.5,
                  .help = "Value of a point's term where it is cut off."},
    [BLOB_TRUNCATION] =
        {"truncation", PARAM_CHOICE, PARAM_WORDS("cube", "sphere"), .fallback = "cube",
         .help = "Where a point's term is cut off: sphere = outside the sphere on which the term equals eps; cube = "
                 "outside the cube around that sphere, which is faster and closer to the full sum."},
    [BLOB_TOLERANCE] = {"tolerance", PARAM_REAL, .fallback = "5e-4", .min = 0, .max = 0.1,
                        .help = "Relative error (l2) that the density may have. At 5e-4 or more, a GPU sums "
                                "truncation=cube by tensor cores; below, and everywhere else, by float32."},
    [BLOB_BIN_DEPTH] = KIND_BIN_DEPTH,
    [BLOB_OVERFLOW] = KIND_OVERFLOW,
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
    .help = "Molecules to a blob density (Blinn) and its isosurface.",
    .params = params,
    .inputs = particles_inputs,
    .sniff = particles_sniff_molecule,
    .results = results,
    .steps = steps,
};
