/* Kind "cutcp": its row of the table of kinds. Plain data, and the checks that follow from it; links no engine. */
#include "recon/cutcp/cutcp_job.h"

#include "gridding/base/err.h"
#include "gridding/range/sums.h"
#include "recon/kind_bins.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct param params[] = {
    [CUTCP_SPACING] = {"spacing", PARAM_REAL, .fallback = "0.5", .min = 0.01, .max = 100,
                       .help = "Distance between lattice points, angstroms."},
    [CUTCP_CUTOFF] = {"cutoff", PARAM_REAL, .fallback = "12", .min = 0.1, .max = 1000,
                      .help = "Distance beyond which a charge has no effect, angstroms."},
    [CUTCP_PADDING] =
        {"padding", PARAM_REAL, .fallback = "0.5", .min = 0, .max = 1000,
         .help = "Margin of the lattice around the outermost atoms, angstroms. Not used with a periodic box."},
    [CUTCP_EXCLUSION] = {"exclusion", PARAM_REAL, .fallback = "1", .min = 0, .max = 100,
                         .help =
                             "Lattice points closer than this to a charged atom are set to 0, angstroms; 0 = none."},
    [CUTCP_FORM] = {"form", PARAM_CHOICE, PARAM_WORDS("thesis", "taylor2"), .fallback = "thesis",
                    .help = "How the potential of a charge falls to 0 at the cutoff: thesis = (1 - r^2/rc^2)^2 / r; "
                            "taylor2 = the short-range part of multilevel summation, 1/r minus its smooth part."},
    [CUTCP_UNITS] = {"units", PARAM_CHOICE, PARAM_WORDS("e/A", "kT/e"), .fallback = "e/A",
                     .help = "Unit of the potential: e/A = elementary charges per angstrom; kT/e = at 298 K."},
    [CUTCP_PERIODIC] = {"periodic", PARAM_CHOICE, PARAM_WORDS("no", "yes"), .fallback = "no",
                        .help = "yes = the box given by the file or the parameter box repeats along all axes; the "
                                "spacing is adjusted to divide it."},
    [CUTCP_BOX] = {"box", PARAM_TEXT, .fallback = "", .max = 96,
                   .help = "Side lengths of the periodic box, angstroms, separated by commas (40,40,60); empty = taken "
                           "from the file."},
    [CUTCP_FRAMES] = {"frames", PARAM_CHOICE, PARAM_WORDS("each", "mean", "first"), .fallback = "each",
                      .help = "For a file with several frames: each = one potential per frame; mean = their mean; "
                              "first = only the first frame."},
    [CUTCP_CHARGES] = {"charges", PARAM_CHOICE, PARAM_WORDS("none", "occupancy", "bfactor", "formal"),
                       .fallback = "none", .help = "Which columns of a PDB file contain the charges."},
    [CUTCP_TOLERANCE] = {"tolerance", PARAM_REAL, .fallback = "0", .min = 0, .max = 10,
                         .help = "Error that the potential may have, root mean square over the lattice, e/A: a near "
                                 "and a smooth part are summed if that is quicker; 0 = the direct sum, in float32."},
    [CUTCP_BIN_DEPTH] = KIND_BIN_DEPTH,
    [CUTCP_OVERFLOW] = KIND_OVERFLOW,
    {.name = NULL},
};

static const struct kind_step steps[] = {
    [CUTCP_STEP_READ] = {"read", "The particles are read.", .share = 0.05},
    [CUTCP_STEP_POTENTIAL] = {"potential", "The charges are summed on the lattice.", .unit = "frame", .share = 0.85},
    [CUTCP_STEP_WRITE] = {"write", "The potential is written.", .share = 0.1, .writes = true},
    {.name = NULL},
};

static const struct kind_result results[] = {
    {"potential", "The electrostatic potential on a lattice.", &volume_form},
    {.name = NULL},
};

int cutcp_box_parse(const struct param_values *values, double length[3], bool *given)
{
    const char *at = values->value[CUTCP_BOX].text;
    *given = *at != '\0';
    for (int d = 0; d < 3 && *given; d++) {
        char *end = NULL;
        length[d] = strtod(at, &end);
        if (end == at || !(length[d] > 0 && length[d] <= 1e6) || *end != (d < 2 ? ',' : '\0'))
            return err_set(ERR_BAD_PARAMETER,
                           "Parameter box is \"%s\"; three lengths separated by commas are expected, each above 0 and "
                           "at most 1000000, as in box=40,40,60.",
                           values->value[CUTCP_BOX].text);
        at = end + 1;
    }
    return 0;
}

static int check(const struct param_values *values)
{
    const double spacing = values->value[CUTCP_SPACING].real, cutoff = values->value[CUTCP_CUTOFF].real;
    double length[3];
    bool given;
    int rc = cutcp_box_parse(values, length, &given);
    if (rc != 0)
        return rc;
    if (given && !values->value[CUTCP_PERIODIC].integer)
        return err_set(ERR_BAD_PARAMETER, "Parameter box needs periodic=yes. Add it, or remove box.");
    if (values->value[CUTCP_EXCLUSION].real >= cutoff)
        return err_set(ERR_BAD_PARAMETER, "Parameter exclusion (%g) must be less than cutoff (%g).",
                       values->value[CUTCP_EXCLUSION].real, cutoff);
    if (cutoff > RANGE_CELLS_MOST * spacing)
        return err_set(ERR_BAD_PARAMETER, "Parameter cutoff is %g, more than %d times the spacing of %g.", cutoff,
                       RANGE_CELLS_MOST, spacing);
    return 0;
}

const struct kind cutcp_kind = {
    .name = "cutcp",
    .help = "Charges to their electrostatic potential on a lattice, with a cutoff.",
    .params = params,
    .inputs = particles_inputs,
    .sniff = particles_sniff_molecule,
    .results = results,
    .steps = steps,
    .check = check,
};
