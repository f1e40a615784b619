/* The kind "nbody" as plain data. */
#include "recon/nbody/nbody.h"

#include "gridding/base/err.h"

#include <string.h>

#define LENGTH_MOST 1e30

static const struct param nbody_params[] = {
    [NBODY_FORCES] = {"forces", PARAM_CHOICE, .fallback = "auto", PARAM_WORDS("auto", "p3m", "direct", "short"),
                      .help = "Which forces: p3m, near pairs and a mesh for all that is far; direct, all pairs, in "
                              "open space; short, near pairs alone, once. auto: p3m, of fewer than 16,385 bodies in "
                              "open space direct."},
    [NBODY_LAW] = {"law", PARAM_CHOICE, .fallback = "erfc", PARAM_WORDS("erfc", "polynomial", "cut"),
                   .help = "How near pairs are split from the mesh: erfc, to 1e-6; polynomial, HACC's, to 1.5e-3 and "
                           "faster; with forces=short also cut: no split, all of the softened force up to reach."},
    [NBODY_SOFTENING_FORM] = {"softening_form", PARAM_CHOICE, .fallback = "spline", PARAM_WORDS("spline", "plummer"),
                              .help = "How forces are softened: spline (GADGET's; exact beyond 2.8 softenings) or "
                                      "plummer."},
    [NBODY_SOFTENING] = {"softening", PARAM_REAL, .fallback = "auto", .min = 0, .max = LENGTH_MOST, PARAM_WORDS("auto"),
                         .help = "Softening length. auto: a thirtieth of the mean distance between bodies. 0: none."},
    [NBODY_G] = {"g", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = 1e30, PARAM_WORDS("auto"),
                 .help = "Constant of gravity in the file's units. auto: 1; of GADGET files 43007.1, as their usual "
                         "units (kpc, km/s, 1e10 solar masses) have it."},
    [NBODY_BOUNDARY] = {"boundary", PARAM_CHOICE, .fallback = "auto", PARAM_WORDS("auto", "open", "periodic"),
                        .help = "Whether the box repeats. auto: if the file or parameter box tells its side."},
    [NBODY_BOX] = {"box", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = LENGTH_MOST, PARAM_WORDS("auto"),
                   .help = "Side of the periodic box, which begins at 0. auto: as the file tells."},
    [NBODY_MASS] = {"mass", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = 1e30, PARAM_WORDS("auto"),
                    .help = "Mass of each body, of a file that tells none. auto: all together weigh 1."},
    [NBODY_MESH] = {"mesh", PARAM_INT, .fallback = "auto", .min = NBODY_MESH_LEAST, .max = NBODY_MESH_MOST,
                    PARAM_WORDS("auto"),
                    .help = "Cells of the mesh along an axis, rounded up to an even number of factors 2, 3 and 5. "
                            "auto: 1.6 for each body along an axis, from 16 to 256."},
    [NBODY_SPLIT] = {"split", PARAM_REAL, .fallback = "1", .min = 0.8, .max = 4,
                     .help = "Length by which near and far are split, in cells of the mesh."},
    [NBODY_CUTOFF] = {"cutoff", PARAM_REAL, .fallback = "6", .min = 4, .max = 10,
                      .help = "How far near pairs reach, in lengths of the split."},
    [NBODY_REACH] = {"reach", PARAM_REAL, .fallback = "none", .min = 1e-30, .max = LENGTH_MOST, PARAM_WORDS("none"),
                     .help = "How far pairs reach with law=cut."},
    [NBODY_STEPS] = {"steps", PARAM_INT, .fallback = "0", .min = 0, .max = 10000000,
                     .help = "Steps of the motion; 0: forces and potentials once."},
    [NBODY_DT] = {"dt", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = 1e30, PARAM_WORDS("auto"),
                  .help = "Time of a step. auto: sqrt(0.05 softening / a), a the largest acceleration at the start."},
    [NBODY_RECORD] = {"record", PARAM_INT, .fallback = "auto", .min = 1, .max = 10000000, PARAM_WORDS("auto"),
                      .help = "Every how many steps energy and momentum are recorded. auto: a hundredth of steps."},
    [NBODY_CHECKPOINT] = {"checkpoint", PARAM_INT, .fallback = "auto", .min = 1, .max = 10000000, PARAM_WORDS("auto"),
                          .help = "Every how many steps a checkpoint is kept, from which the job goes on if the "
                                  "server dies. auto: every half minute."},
    [NBODY_PICTURE_SIZE] = {"picture_size", PARAM_INT, .fallback = "512", .min = 16, .max = 4096,
                            .help = "Pixels of the picture along an axis."},
    [NBODY_RESULTS_WANTED] = {"results", PARAM_SET, .fallback = "particles",
                              PARAM_WORDS("particles", "series", "picture"), .help = "Results that are wanted."},
    {.name = NULL},
};

static const struct kind_step nbody_steps[] = {
    [NBODY_STEP_READ] = {"read", "The bodies are read.", .share = 0.05},
    [NBODY_STEP_FORCES] = {"forces", "Forces and potentials are computed.", .share = 0.15},
    [NBODY_STEP_MOVE] = {"move", "The bodies move.", .unit = "step", .share = 0.75},
    [NBODY_STEP_WRITE] = {"write", "The results are written.", .share = 0.05, .writes = true},
    [NBODY_STEPS_ALL] = {.name = NULL},
};

static const struct kind_input nbody_inputs[] = {
    {"hdf5", "GADGET snapshot in HDF5", ".hdf5", "application/x-hdf5"},
    {"gadget", "GADGET snapshot of format 1 or 2", ".gadget", "application/x-gadget"},
    {"csv", "CSV, with a first line of names (x,y,z,vx,vy,vz,mass,id) or without", ".csv", "text/csv"},
    {"npy", "NumPy array of x, y, z, velocities and masses", ".npy", "application/x-npy"},
    {"npz", "NumPy arrays position, velocity, mass, id, box", ".npz", "application/x-npz"},
    {.name = NULL},
};

static int nbody_sniff(const char **name, int fd, uint64_t bytes)
{
    return particles_sniff(name, fd, bytes, nbody_inputs);
}

static const struct file_format bodies_formats[] = {
    [BODIES_H5] = {"h5", "application/x-hdf5"}, [BODIES_NPY] = {"npy", "application/x-npy"}, {.name = NULL}};
const struct result_form bodies_form = {"bodies", bodies_formats, false};

static const struct file_format series_formats[] = {
    [SERIES_NPY] = {"npy", "application/x-npy"}, [SERIES_CSV] = {"csv", "text/csv"}, {.name = NULL}};
const struct result_form series_form = {"series", series_formats, false};

static const struct file_format projection_formats[] = {{"png", "image/png"}, {.name = NULL}};
static const struct result_form projection_form = {"projection", projection_formats, false};

static const struct kind_result nbody_results[] = {
    [NBODY_PARTICLES] = {"particles",
                         "The bodies at the end: positions, velocities, masses, accelerations, potentials.",
                         &bodies_form},
    [NBODY_SERIES] = {"series", "Energy and momentum over time.", &series_form},
    [NBODY_PICTURE] = {"picture", "The bodies along z: the logarithm of the mass in a pixel, as colours.",
                       &projection_form},
    {.name = NULL},
};

bool nbody_given(const struct param_values *values, enum nbody_param param)
{
    return param_changed(&nbody_kind, values, (int)param);
}

static int unused(const struct param_values *values, enum nbody_param param, const char *why)
{
    return nbody_given(values, param) ? err_set(ERR_BAD_PARAMETER, "Parameter %s has no effect with %s. Leave it out.",
                                                nbody_params[param].name, why)
                                      : 0;
}

static int check_motion(const struct param_values *values)
{
    const bool moves = values->value[NBODY_STEPS].integer > 0;
    int rc = 0;
    for (int i = NBODY_DT; i <= NBODY_CHECKPOINT && rc == 0 && !moves; i++)
        rc = unused(values, (enum nbody_param)i, "steps=0");
    if (rc == 0 && moves && values->value[NBODY_FORCES].integer == NBODY_FORCES_SHORT)
        rc = err_set(ERR_BAD_PARAMETER,
                     "Parameter forces=short is near pairs alone, by which nothing moves; steps needs forces=p3m or "
                     "direct.");
    if (rc == 0 && moves && values->value[NBODY_SOFTENING].real == 0 && !nbody_given(values, NBODY_DT))
        rc = err_set(ERR_BAD_PARAMETER, "Parameter dt=auto follows from the softening, which is 0. Give dt a number.");
    return rc;
}

static int nbody_check(const struct param_values *values)
{
    const int64_t forces = values->value[NBODY_FORCES].integer;
    const bool cut = values->value[NBODY_LAW].integer == NBODY_CUT, reach = nbody_given(values, NBODY_REACH);
    int rc = 0;
    if (forces == NBODY_FORCES_DIRECT &&
        (values->value[NBODY_BOUNDARY].integer == NBODY_BOUNDARY_PERIODIC || nbody_given(values, NBODY_BOX)))
        rc = err_set(ERR_BAD_PARAMETER, "Parameter forces=direct is for open space: in a box that repeats there is no "
                                        "end of pairs. Pass forces=p3m, or boundary=open without box.");
    if (rc == 0 && values->value[NBODY_BOUNDARY].integer == NBODY_BOUNDARY_OPEN)
        rc = unused(values, NBODY_BOX, "boundary=open");
    for (int i = NBODY_MESH; i <= NBODY_CUTOFF && rc == 0; i++)
        rc = forces == NBODY_FORCES_DIRECT ? unused(values, (enum nbody_param)i, "forces=direct")
             : cut                         ? unused(values, (enum nbody_param)i, "law=cut")
                                           : 0;
    if (rc == 0 && forces == NBODY_FORCES_DIRECT)
        rc = unused(values, NBODY_LAW, "forces=direct");
    if (rc == 0 && cut && (forces != NBODY_FORCES_SHORT || !reach))
        rc = err_set(ERR_BAD_PARAMETER,
                     "Parameter law=cut is of pairs alone, up to a distance: pass forces=short and reach.");
    if (rc == 0 && !cut)
        rc = unused(values, NBODY_REACH, "law=erfc or polynomial, whose reach is cutoff times split");
    return rc == 0 ? check_motion(values) : rc;
}

const struct kind nbody_kind = {
    .name = "nbody",
    .help = "Bodies under their own gravity: forces, or a motion.",
    .params = nbody_params,
    .inputs = nbody_inputs,
    .sniff = nbody_sniff,
    .results = nbody_results,
    .steps = nbody_steps,
    .check = nbody_check,
    .checkpoints = true,
};
