/* The kind "nbody" as plain data. */
#include "recon/nbody/nbody.h"

#include "gridding/base/err.h"

#include <string.h>

#define LENGTH_MOST 1e30

static const struct param nbody_params[] = {
    [NBODY_FORCES] =
        {"forces", PARAM_CHOICE, .fallback = "auto", PARAM_WORDS("auto", "p3m", "direct", "short"),
         .help =
             "How forces are computed: p3m = near pairs, and a mesh for the rest; direct = all pairs, in open space; "
             "short = only near pairs, without motion; auto = direct for up to 16,384 bodies in open space, else p3m."},
    [NBODY_LAW] =
        {"law", PARAM_CHOICE, .fallback = "erfc", PARAM_WORDS("erfc", "polynomial", "cut"),
         .help = "How forces are split between pairs and mesh: erfc = accurate to 1e-6; polynomial = as in HACC, to "
                 "1.5e-3, faster; cut = no split, the full softened force up to `reach` (with forces=short only)."},
    [NBODY_SOFTENING_FORM] =
        {"softening_form", PARAM_CHOICE, .fallback = "spline", PARAM_WORDS("spline", "plummer"),
         .help = "How forces are softened: spline = as in GADGET, exact beyond 2.8 softening lengths; plummer."},
    [NBODY_SOFTENING] = {"softening", PARAM_REAL, .fallback = "auto", .min = 0, .max = LENGTH_MOST, PARAM_WORDS("auto"),
                         .help = "Softening length; auto = a thirtieth of the mean distance between bodies; 0 = none."},
    [NBODY_G] =
        {"g", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = 1e30, PARAM_WORDS("auto"),
         .help = "Gravitational constant in the file's units; auto = 1, for GADGET files 43007.1 (their usual units: "
                 "kpc, km/s, 1e10 solar masses)."},
    [NBODY_BOUNDARY] =
        {"boundary", PARAM_CHOICE, .fallback = "auto", PARAM_WORDS("auto", "open", "periodic"),
         .help = "Boundary condition; auto = periodic if the file or the parameter box gives the side of the box."},
    [NBODY_BOX] = {"box", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = LENGTH_MOST, PARAM_WORDS("auto"),
                   .help = "Side of the periodic box, which begins at 0; auto = taken from the file."},
    [NBODY_MASS] = {"mass", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = 1e30, PARAM_WORDS("auto"),
                    .help = "Mass of each body if the file contains no masses; auto = the total mass is 1."},
    [NBODY_MESH] = {"mesh", PARAM_INT, .fallback = "auto", .min = NBODY_MESH_LEAST, .max = NBODY_MESH_MOST,
                    PARAM_WORDS("auto"),
                    .help = "Cells of the mesh along an axis, rounded up to an even number with prime factors 2, 3 and "
                            "5; auto = 1.6 times the cube root of the number of bodies, from 16 to 256."},
    [NBODY_SPLIT] = {"split", PARAM_REAL, .fallback = "1", .min = 0.8, .max = 4,
                     .help = "Length scale of the split between pairs and mesh, in cells of the mesh."},
    [NBODY_CUTOFF] = {"cutoff", PARAM_REAL, .fallback = "6", .min = 4, .max = 10,
                      .help = "Cut-off distance of near pairs, in units of split."},
    [NBODY_REACH] = {"reach", PARAM_REAL, .fallback = "none", .min = 1e-30, .max = LENGTH_MOST, PARAM_WORDS("none"),
                     .help = "Cut-off distance of pairs with law=cut; pairs at this distance do not count."},
    [NBODY_STEPS] = {"steps", PARAM_INT, .fallback = "0", .min = 0, .max = 10000000,
                     .help = "Number of time steps; 0 = forces and potentials only."},
    [NBODY_DT] = {"dt", PARAM_REAL, .fallback = "auto", .min = 1e-30, .max = 1e30, PARAM_WORDS("auto"),
                  .help = "Time step; auto = sqrt(0.05 softening / a), where a is the largest initial acceleration."},
    [NBODY_RECORD] = {"record", PARAM_INT, .fallback = "auto", .min = 1, .max = 10000000, PARAM_WORDS("auto"),
                      .help = "Number of steps between records of energy and momentum; auto = a hundredth of `steps`."},
    [NBODY_CHECKPOINT] = {"checkpoint", PARAM_INT, .fallback = "auto", .min = 1, .max = 10000000, PARAM_WORDS("auto"),
                          .help = "Number of steps between checkpoints, from which the job resumes if the server or "
                                  "the worker dies; auto = every half minute."},
    [NBODY_PICTURE_SIZE] = {"picture_size", PARAM_INT, .fallback = "512", .min = 16, .max = 4096,
                            .help = "Pixels of the picture along an axis."},
    [NBODY_RESULTS_WANTED] =
        {"results", PARAM_SET, .fallback = "particles", PARAM_WORDS("particles", "series", "picture"),
         .help = "Results of the job: particles = the bodies with their accelerations and potentials; series "
                 "= energy and momentum by time; picture = projected mass; or several, "
                 "separated by commas."},
    {.name = NULL},
};

static const struct kind_step nbody_steps[] = {
    [NBODY_STEP_READ] = {"read", "The bodies are read.", .share = 0.05},
    /* The shares of these two depend on the number of steps: shares_set() in nbody_run.c. */
    [NBODY_STEP_FORCES] = {"forces", "Forces and potentials are computed.", .share = 0.15},
    [NBODY_STEP_MOVE] = {"move", "The bodies move.", .unit = "step", .share = 0.75},
    [NBODY_STEP_WRITE] = {"write", "The results are written.", .share = 0.05, .writes = true},
    [NBODY_STEPS_ALL] = {.name = NULL},
};

static const struct kind_input nbody_inputs[] = {
    {"hdf5", "GADGET snapshot in HDF5", ".hdf5", "application/x-hdf5"},
    {"gadget", "GADGET snapshot of format 1 or 2", ".gadget", "application/x-gadget"},
    {"csv", "CSV, with or without a header line (x,y,z,vx,vy,vz,mass,id)", ".csv", "text/csv"},
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
                         "The final state of the bodies: positions, velocities, masses, accelerations, potentials.",
                         &bodies_form},
    [NBODY_SERIES] = {"series", "Energy and momentum over time.", &series_form},
    [NBODY_PICTURE] = {"picture", "The bodies projected along z; colours show the logarithm of the mass per pixel.",
                       &projection_form},
    {.name = NULL},
};

bool nbody_given(const struct param_values *values, enum nbody_param param)
{
    return param_changed(&nbody_kind, values, (int)param);
}

static int unused(const struct param_values *values, enum nbody_param param, const char *why)
{
    return nbody_given(values, param) ? err_set(ERR_BAD_PARAMETER, "Parameter %s has no effect with %s. Remove it.",
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
        rc =
            err_set(ERR_BAD_PARAMETER,
                    "Parameter forces=short computes only near pairs and no motion; steps needs forces=p3m or direct.");
    if (rc == 0 && moves && values->value[NBODY_SOFTENING].real == 0 && !nbody_given(values, NBODY_DT))
        rc = err_set(ERR_BAD_PARAMETER,
                     "Parameter dt=auto is derived from the softening, which is 0. Set dt to a number.");
    return rc;
}

static int nbody_check(const struct param_values *values)
{
    const int64_t forces = values->value[NBODY_FORCES].integer;
    const bool cut = values->value[NBODY_LAW].integer == NBODY_CUT, reach = nbody_given(values, NBODY_REACH);
    int rc = 0;
    if (forces == NBODY_FORCES_DIRECT &&
        (values->value[NBODY_BOUNDARY].integer == NBODY_BOUNDARY_PERIODIC || nbody_given(values, NBODY_BOX)))
        rc = err_set(ERR_BAD_PARAMETER, "Parameter forces=direct needs open space: in a periodic box the number of "
                                        "pairs is infinite. Use forces=p3m, or boundary=open without box.");
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
                     "Parameter law=cut computes only pairs up to a distance: use it with forces=short and reach.");
    if (rc == 0 && !cut)
        rc = unused(values, NBODY_REACH, "law=erfc or polynomial, whose reach is cutoff times split");
    return rc == 0 ? check_motion(values) : rc;
}

const struct kind nbody_kind = {
    .name = "nbody",
    .help = "Bodies under their own gravity: forces or motion.",
    .params = nbody_params,
    .inputs = nbody_inputs,
    .sniff = nbody_sniff,
    .results = nbody_results,
    .steps = nbody_steps,
    .check = nbody_check,
    .checkpoints = true,
};
