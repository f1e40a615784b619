/* simulate_options.h: the command line of `mrirecon simulate`, checked and converted to numbers. */
#ifndef MRIRECON_SIMULATE_OPTIONS_H
#define MRIRECON_SIMULATE_OPTIONS_H

#include "clients/bodies.h"
#include "clients/molecule.h"
#include "clients/phantom.h"
#include "gridding/traj/traj.h"

enum simulate_object { SIMULATE_SHEPP_LOGAN, SIMULATE_ASYMMETRIC, SIMULATE_RANDOM };

struct simulate_options {
    struct traj_params traj;
    int dim; /* of the encoding */
    enum simulate_object object;
    int coils, frames, slices;
    double motion;        /* cycles during the scan; 0: at rest */
    int truth_frames;     /* true images, at the middle of as many equal parts of the scan */
    double off_resonance; /* Hz at the corner +x +y; its negative at -x -y; linear between; 0: none */
    double noise, correlation;
    bool noise_scan;
    enum dcf_method weights; /* DCF_NONE, DCF_ANALYTIC, DCF_PIPE */
    enum traj_unit unit;
    double fov_mm[3], spacing_mm;
    double position[3], direction[3][3]; /* mm, LPS; directions read, phase, slice */
    bool particles;                      /* write particles instead of a scan: */
    bool are_bodies;                     /* bodies, not a molecule */
    enum molecule molecule;
    enum bodies bodies;
    int points; /* approximate number of atoms or bodies */
    uint64_t seed;
    const char *out, *truth; /* truth may be NULL; both point into argv */
};

/* Parse argv[1..]. `*help` is set if help was asked for; nothing else is filled in then. Fails with
 * ERR_UNKNOWN_PARAMETER, ERR_BAD_PARAMETER. */
int simulate_options_read(struct simulate_options *out, int argc, char **argv, bool *help);

/* The name of each option, without its dashes; NULL after the last. */
const char *simulate_option_name(int i);

/* Print --help. */
void simulate_options_help(void);

#endif
