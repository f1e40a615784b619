#include "clients/simulate_options.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

enum option {
    OPTION_TRAJECTORY,
    OPTION_MATRIX,
    OPTION_COILS,
    OPTION_READOUTS,
    OPTION_SAMPLES,
    OPTION_PHANTOM,
    OPTION_NOISE,
    OPTION_CORRELATION,
    OPTION_NOISE_SCAN,
    OPTION_FRAMES,
    OPTION_MOTION,
    OPTION_OFF_RESONANCE,
    OPTION_SLICES,
    OPTION_WEIGHTS,
    OPTION_UNITS,
    OPTION_FOV,
    OPTION_THICKNESS,
    OPTION_SPACING,
    OPTION_POSITION,
    OPTION_ORIENTATION,
    OPTION_PARTICLES,
    OPTION_POINTS,
    OPTION_SEED,
    OPTION_TRUTH,
    OPTION_TRUTH_FRAMES,
    OPTION_OUT,
    OPTIONS
};

/* value: empty for a switch. */
static const struct {
    const char *name, *value, *fallback, *help;
} rows[OPTIONS] = {
    [OPTION_TRAJECTORY] = {"trajectory", "NAME", "radial",
                           "radial, golden, spiral (2-D); stack-of-stars, kooshball, cones (3-D)"},
    [OPTION_MATRIX] = {"matrix", "N[xN[xN]]", "128", "encoded matrix x, y, z; one number sets all three"},
    [OPTION_COILS] = {"coils", "N", "8", "number of receive coils, 1 to 1024"},
    [OPTION_READOUTS] = {"readouts", "N", "0",
                         "number of spokes, arms, cones (per partition in a stack); 0: fully sampled"},
    [OPTION_SAMPLES] = {"samples", "N", "0", "samples per readout; 0: fully sampled"},
    [OPTION_PHANTOM] = {"phantom", "NAME", "shepp-logan",
                        "shepp-logan, asymmetric, or random (meaningless, but fast to generate)"},
    [OPTION_NOISE] = {"noise", "SD", "0",
                      "noise in the image of a Cartesian scan whose brightest part is 1, std. dev."},
    [OPTION_CORRELATION] = {"noise-correlation", "R", "0",
                            "fraction of the neighbouring coil's noise that a coil picks up, 0 to 0.7"},
    [OPTION_NOISE_SCAN] = {"noise-scan", "", "", "add a noise acquisition, flagged as such"},
    [OPTION_FRAMES] = {"frames", "N", "1",
                       "number of repetitions; the signal decays from frame to frame, to about a half"},
    [OPTION_MOTION] = {"motion", "CYCLES", "0", "the phantom moves so many cycles during the scan, readout by readout"},
    [OPTION_OFF_RESONANCE] =
        {"off-resonance", "HZ", "0",
         "a field map that rises from -HZ in one corner to HZ in the other, x and y alike, of several slices each "
         "towards another corner; written as `fieldmap`"},
    [OPTION_SLICES] = {"slices", "N", "1", "number of slices of a 2-D scan through the 3-D phantom"},
    [OPTION_WEIGHTS] = {"weights", "HOW", "none",
                        "density weights in the trajectory's last column: none, analytic, pipe"},
    [OPTION_UNITS] = {"units", "UNIT", "pixel", "unit of the trajectory: pixel, grid, radians, per-metre"},
    [OPTION_FOV] = {"fov", "MM[xMM[xMM]]", "2 a pixel",
                    "field of view x, y, z; one number sets x, and the others in proportion"},
    [OPTION_THICKNESS] = {"thickness", "MM", "5", "slice thickness"},
    [OPTION_SPACING] = {"spacing", "MM", "10", "distance between the centres of slices"},
    [OPTION_POSITION] = {"position", "X,Y,Z", "0,0,0", "centre of the volume, mm, towards left, posterior, superior"},
    [OPTION_ORIENTATION] = {"orientation", "HOW", "axial",
                            "axial, coronal, sagittal, oblique, or six numbers: read and phase direction"},
    [OPTION_PARTICLES] = {"particles", "NAME", "none",
                          "particles in place of a scan: water (a box of it), chain (protein-like), as PQR; plummer (a "
                          "sphere of stars), zeldovich (a box of waves), as GADGET snapshots; --points, --seed"},
    [OPTION_POINTS] = {"points", "N", "6000", "number of particles, rounded to whole molecules, or to a cube"},
    [OPTION_SEED] = {"seed", "N", "1", "seed of the noise or the particles: the same seed gives the same file"},
    [OPTION_TRUTH] = {"truth", "FILE", "", "write the true magnitude image, float32 npy [slice or z][y][x]"},
    [OPTION_TRUTH_FRAMES] =
        {"truth-frames", "N", "1",
         "with --motion: true images at the middle of N equal parts of the scan, [N][slice or z][y][x]"},
    [OPTION_OUT] = {"out", "FILE", "", "file to write, ISMRMRD, PQR or GADGET; required"},
};

const char *simulate_option_name(int i)
{
    return i < OPTIONS ? rows[i].name : NULL;
}

void simulate_options_help(void)
{
    puts("mrirecon simulate --out FILE [OPTION ...]\n"
         "  Simulate a scan of a phantom, with exact k-space and exact coils, as ISMRMRD HDF5; molecules, as PQR;\n"
         "  or bodies, as GADGET snapshots.\n");
    for (int i = 0; i < OPTIONS; i++) {
        printf("  --%-18s %-13s %s", rows[i].name, rows[i].value, rows[i].help);
        const char *fallback = rows[i].fallback;
        if (*fallback != '\0')
            printf(" (%s)", fallback);
        putchar('\n');
    }
    puts("\n  mrirecon simulate --trajectory golden --matrix 256 --coils 12 --noise 0.01 --out scan.h5");
}

/* ---- parsing ---- */

/* The index of `text` in `names`; -1 after err_set: not found. */
static int choice(enum option option, const char *text, const char *const *names)
{
    char list[256] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0)
            return i;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    err_set(ERR_BAD_PARAMETER, "--%s is one of %s, not \"%s\".", rows[option].name, list, text);
    return -1;
}

/* Up to `most` numbers with `separator` between them, each from least to largest. Returns their number, or -1 after
 * err_set. */
static int numbers(enum option option, const char *text, char separator, int most, double least, double largest,
                   double *out)
{
    const char *at = text;
    int count = 0;
    while (count < most) {
        char *end;
        double value = strtod(at, &end);
        if (end == at || !(value >= least && value <= largest) || (*end != '\0' && *end != separator))
            break;
        out[count++] = value;
        if (*end == '\0')
            return count;
        at = end + 1;
    }
    if (most == 1)
        err_set(ERR_BAD_PARAMETER, "--%s is a number from %g to %g, not \"%s\".", rows[option].name, least, largest,
                text);
    else
        err_set(ERR_BAD_PARAMETER, "--%s is up to %d numbers from %g to %g with \"%c\" between them, not \"%s\".",
                rows[option].name, most, least, largest, separator, text);
    return -1;
}

static int real(enum option option, const char *text, double least, double largest, double *out)
{
    return numbers(option, text, ',', 1, least, largest, out) == 1 ? 0 : ERR_BAD_PARAMETER;
}

static int whole(enum option option, const char *text, int least, int largest, int *out)
{
    double value;
    if (real(option, text, least, largest, &value) != 0)
        return ERR_BAD_PARAMETER;
    if (value != floor(value))
        return err_set(ERR_BAD_PARAMETER, "--%s is a whole number, not \"%s\".", rows[option].name, text);
    *out = (int)value;
    return 0;
}

static int collect(int argc, char **argv, const char *values[OPTIONS], bool *help)
{
    for (int i = 0; i < OPTIONS; i++)
        values[i] = rows[i].fallback;
    for (int a = 1; a < argc; a++) {
        if (strcmp(argv[a], "--help") == 0 || strcmp(argv[a], "-h") == 0) {
            *help = true;
            return 0;
        }
        const char *name = strncmp(argv[a], "--", 2) == 0 ? argv[a] + 2 : "";
        size_t length = strcspn(name, "=");
        int option = 0;
        while (option < OPTIONS &&
               (strlen(rows[option].name) != length || strncmp(rows[option].name, name, length) != 0))
            option++;
        if (option == OPTIONS)
            return err_set(ERR_UNKNOWN_PARAMETER, "There is no option \"%s\"; --help lists them.", argv[a]);
        bool is_switch = *rows[option].value == '\0';
        if (is_switch && name[length] == '=')
            return err_set(ERR_BAD_PARAMETER, "--%s takes no value.", rows[option].name);
        if (!is_switch && name[length] != '=' && a + 1 == argc)
            return err_set(ERR_BAD_PARAMETER, "--%s needs a value: %s.", rows[option].name, rows[option].value);
        values[option] = is_switch ? "yes" : name[length] == '=' ? name + length + 1 : argv[++a];
    }
    return 0;
}

/* ---- checks and units ---- */

static int read_matrix(struct simulate_options *out, const char *text)
{
    double n[3];
    int count = numbers(OPTION_MATRIX, text, 'x', 3, 1, 2048, n);
    if (count < 0)
        return ERR_BAD_PARAMETER;
    if (count == 1)
        n[1] = n[2] = n[0];
    if (out->dim == 2 && (count < 3 || n[2] == 1))
        n[2] = 1;
    else if (out->dim == 2)
        return err_set(
            ERR_BAD_PARAMETER,
            "A %s trajectory is 2-D: --matrix has two numbers, not \"%s\". Pass --slices for several slices.",
            traj_kind_name(out->traj.kind), text);
    else if (count == 2)
        return err_set(ERR_BAD_PARAMETER, "A %s trajectory is 3-D: --matrix has one number or three, not \"%s\".",
                       traj_kind_name(out->traj.kind), text);
    for (int d = 0; d < 3; d++) {
        if (n[d] != floor(n[d]))
            return err_set(ERR_BAD_PARAMETER, "--matrix is of whole numbers, not \"%s\".", text);
        out->traj.n[d] = (int)n[d];
    }
    return 0;
}

static int read_fov(struct simulate_options *out, const char *const values[OPTIONS])
{
    double fov[3] = {2.0 * out->traj.n[0]}, thickness;
    int count = 1;
    if (values[OPTION_FOV] != rows[OPTION_FOV].fallback)
        count = numbers(OPTION_FOV, values[OPTION_FOV], 'x', 3, 0.1, 100000, fov);
    if (count < 0 || real(OPTION_THICKNESS, values[OPTION_THICKNESS], 0.01, 1000, &thickness) != 0 ||
        real(OPTION_SPACING, values[OPTION_SPACING], 0.01, 1000, &out->spacing_mm) != 0)
        return ERR_BAD_PARAMETER;
    for (int d = 0; d < 3; d++)
        out->fov_mm[d] = d < count ? fov[d] : fov[0] * out->traj.n[d] / out->traj.n[0];
    if (out->dim == 2 && count < 3)
        out->fov_mm[2] = thickness;
    return 0;
}

/* Slice direction = read x phase; the given two must be unit vectors at a right angle, to 0.1 %. */
static int read_orientation(struct simulate_options *out, const char *text)
{
    static const struct {
        const char *name;
        double axes[6];
    } known[] = {
        {"axial", {1, 0, 0, 0, 1, 0}},
        {"coronal", {1, 0, 0, 0, 0, -1}},
        {"sagittal", {0, 1, 0, 0, 0, -1}},
        {"oblique", {2 / 3.0, 1 / 3.0, 2 / 3.0, -2 / 3.0, 2 / 3.0, 1 / 3.0}},
    };
    double axes[6];
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(known[i].name, text) != 0)
        i++;
    if (i < sizeof known / sizeof *known)
        memcpy(axes, known[i].axes, sizeof axes);
    else if (numbers(OPTION_ORIENTATION, text, ',', 6, -1, 1, axes) != 6)
        return err_set(ERR_BAD_PARAMETER,
                       "--orientation is axial, coronal, sagittal, oblique, or six numbers from -1 to 1, not \"%s\".",
                       text);
    const double *r = axes, *p = axes + 3;
    double rr = r[0] * r[0] + r[1] * r[1] + r[2] * r[2], pp = p[0] * p[0] + p[1] * p[1] + p[2] * p[2];
    double rp = r[0] * p[0] + r[1] * p[1] + r[2] * p[2];
    if (fabs(rr - 1) > 2e-3 || fabs(pp - 1) > 2e-3 || fabs(rp) > 1e-3)
        return err_set(ERR_BAD_PARAMETER, "--orientation %s: read and phase must be unit vectors at a right angle.",
                       text);
    for (int d = 0; d < 3; d++) {
        out->direction[0][d] = r[d];
        out->direction[1][d] = p[d];
        out->direction[2][d] = r[(d + 1) % 3] * p[(d + 2) % 3] - r[(d + 2) % 3] * p[(d + 1) % 3];
    }
    return 0;
}

static int read_names(struct simulate_options *out, const char *const values[OPTIONS])
{
    static const char *const kinds[] = {"radial", "golden", "spiral", "stack-of-stars", "kooshball", "cones", NULL};
    static const char *const objects[] = {"shepp-logan", "asymmetric", "random", NULL};
    static const char *const particles[] = {"none", "water", "chain", "plummer", "zeldovich", NULL};
    static const char *const weights[] = {"none", "analytic", "pipe", NULL};
    static const char *const units[] = {"pixel", "grid", "radians", "per-metre", NULL};
    static const enum dcf_method methods[] = {DCF_NONE, DCF_ANALYTIC, DCF_PIPE};
    int kind = choice(OPTION_TRAJECTORY, values[OPTION_TRAJECTORY], kinds);
    int object = kind < 0 ? -1 : choice(OPTION_PHANTOM, values[OPTION_PHANTOM], objects);
    int weight = object < 0 ? -1 : choice(OPTION_WEIGHTS, values[OPTION_WEIGHTS], weights);
    int unit = weight < 0 ? -1 : choice(OPTION_UNITS, values[OPTION_UNITS], units);
    int molecule = unit < 0 ? -1 : choice(OPTION_PARTICLES, values[OPTION_PARTICLES], particles);
    if (molecule < 0)
        return ERR_BAD_PARAMETER;
    out->particles = molecule > 0;
    out->molecule = molecule == 2 ? MOLECULE_CHAIN : MOLECULE_WATER;
    out->are_bodies = molecule > 2;
    out->bodies = molecule == 4 ? BODIES_ZELDOVICH : BODIES_PLUMMER;
    out->traj.kind = (enum traj_kind)kind;
    out->dim = kind <= TRAJ_SPIRAL ? 2 : 3;
    out->object = (enum simulate_object)object;
    out->weights = methods[weight];
    out->unit = (enum traj_unit)(TRAJ_UNIT_PIXEL + unit);
    return 0;
}

static int read_numbers(struct simulate_options *out, const char *const values[OPTIONS])
{
    double seed;
    if (whole(OPTION_COILS, values[OPTION_COILS], 1, 1024, &out->coils) != 0 ||
        whole(OPTION_READOUTS, values[OPTION_READOUTS], 0, 1 << 24, &out->traj.readouts) != 0 ||
        whole(OPTION_SAMPLES, values[OPTION_SAMPLES], 0, 1 << 24, &out->traj.samples) != 0 ||
        whole(OPTION_FRAMES, values[OPTION_FRAMES], 1, 65535, &out->frames) != 0 ||
        whole(OPTION_SLICES, values[OPTION_SLICES], 1, 65535, &out->slices) != 0 ||
        whole(OPTION_TRUTH_FRAMES, values[OPTION_TRUTH_FRAMES], 1, 65535, &out->truth_frames) != 0 ||
        real(OPTION_MOTION, values[OPTION_MOTION], 0, 10000, &out->motion) != 0 ||
        real(OPTION_OFF_RESONANCE, values[OPTION_OFF_RESONANCE], -1e5, 1e5, &out->off_resonance) != 0 ||
        real(OPTION_NOISE, values[OPTION_NOISE], 0, 1e6, &out->noise) != 0 ||
        real(OPTION_CORRELATION, values[OPTION_CORRELATION], 0, 0.7, &out->correlation) != 0 ||
        whole(OPTION_POINTS, values[OPTION_POINTS], 1, 100000000, &out->points) != 0 ||
        real(OPTION_SEED, values[OPTION_SEED], 0, 9007199254740992.0, &seed) != 0)
        return ERR_BAD_PARAMETER;
    if (numbers(OPTION_POSITION, values[OPTION_POSITION], ',', 3, -1e5, 1e5, out->position) != 3)
        return err_set(ERR_BAD_PARAMETER, "--position is three numbers, mm, with \",\" between them, not \"%s\".",
                       values[OPTION_POSITION]);
    out->seed = (uint64_t)seed;
    return 0;
}

/* Scans and particles share few options; another one would be forgotten without a word. */
static int check_used(const char *const values[OPTIONS], bool particles)
{
    for (int i = 0; i < OPTIONS; i++) {
        const bool of_both = i == OPTION_PARTICLES || i == OPTION_SEED || i == OPTION_OUT;
        if (of_both || particles == (i == OPTION_POINTS) || strcmp(values[i], rows[i].fallback) == 0)
            continue;
        return particles
                   ? err_set(ERR_BAD_PARAMETER, "--%s is of scans and has no effect on --particles %s. Remove it.",
                             rows[i].name, values[OPTION_PARTICLES])
                   : err_set(ERR_BAD_PARAMETER, "--%s is of particles: choose which by --particles, such as water.",
                             rows[i].name);
    }
    return 0;
}

int simulate_options_read(struct simulate_options *out, int argc, char **argv, bool *help)
{
    const char *values[OPTIONS];
    struct simulate_options options = {0};
    *help = false;
    int rc = collect(argc, argv, values, help);
    if (rc != 0 || *help)
        return rc;
    if ((rc = read_names(&options, values)) != 0 || (rc = read_numbers(&options, values)) != 0 ||
        (rc = read_matrix(&options, values[OPTION_MATRIX])) != 0 || (rc = read_fov(&options, values)) != 0 ||
        (rc = read_orientation(&options, values[OPTION_ORIENTATION])) != 0)
        return rc;
    options.noise_scan = *values[OPTION_NOISE_SCAN] != '\0';
    options.out = values[OPTION_OUT];
    options.truth = *values[OPTION_TRUTH] != '\0' ? values[OPTION_TRUTH] : NULL;
    if (*options.out == '\0')
        return err_set(ERR_BAD_PARAMETER, "--out is missing: say which file to write.");
    if ((rc = check_used(values, options.particles)) != 0)
        return rc;
    if (options.slices > 1 && options.dim == 3)
        return err_set(ERR_BAD_PARAMETER,
                       "A %s trajectory is 3-D and has no slices; --matrix says how many partitions.",
                       traj_kind_name(options.traj.kind));
    if (options.noise_scan && options.noise == 0)
        return err_set(ERR_BAD_PARAMETER, "--noise-scan needs --noise above 0.");
    if (options.motion > 0 && options.object == SIMULATE_RANDOM)
        return err_set(ERR_BAD_PARAMETER, "--motion: the random phantom has no parts that could move.");
    if (options.off_resonance != 0 && options.object == SIMULATE_RANDOM)
        return err_set(ERR_BAD_PARAMETER, "--off-resonance: the random phantom is no image that could be turned.");
    if (options.truth_frames > 1 && (options.motion == 0 || !options.truth))
        return err_set(ERR_BAD_PARAMETER, "--truth-frames needs --motion and --truth.");
    if (options.truth && options.object == SIMULATE_RANDOM)
        return err_set(ERR_BAD_PARAMETER, "--truth: the random phantom has none.");
    *out = options;
    return 0;
}
