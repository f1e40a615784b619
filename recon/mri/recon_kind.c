/* Kind "recon": its row of the table of kinds. Plain data and checks; links no engine. */
#include "recon/mri/recon_kind.h"

#include "gridding/base/err.h"
#include "gridding/nufft/nufft.h"
#include "gridding/range/kernel.h"
#include "recon/image/image.h"
#include "recon/mri/recon_job.h"
#include "recon/scan/scan.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The program chooses; `as`: the word's spelling in earlier versions. */
#define OR_AUTO(as) PARAM_WORDS("auto"), .former = (as)

enum { DELAY_MOST = 10 };

static const struct param recon_params[] = {
    [RECON_RESULTS_WANTED] = {"results", PARAM_SET, PARAM_WORDS("image", "maps"), .fallback = "image",
                              .help = "What the job gives: image; maps = the coils' maps that coils=adaptive or "
                                      "sense, or an iterative method, combines them with (complex, a channel for "
                                      "each coil); or both, with a comma between them."},
    [RECON_METHOD] = {"method", PARAM_CHOICE,
                      PARAM_WORDS("adjoint", "cg-sense", "l1-wavelet", "tv", "temporal-tv", "llr"),
                      .fallback = "adjoint",
                      .help = "Reconstruction method: adjoint = one density-compensated gridding and inverse FFT. "
                              "Iterative, with coil maps from the scan itself: cg-sense = least squares by conjugate "
                              "gradients; l1-wavelet = sparse in wavelets; tv = total variation, best for few "
                              "spokes. Of all images of a series together: temporal-tv = few changes in time; llr = "
                              "locally of low rank."},
    [RECON_ITERATIONS] = {"iterations", PARAM_INT, .fallback = "auto", .min = 1, .max = 10000, OR_AUTO(NULL),
                          .help = "Maximum number of iterations of an iterative method; auto = the method's own."},
    [RECON_LAMBDA] = {"lambda", PARAM_REAL, .fallback = "auto", .min = 0, .max = 1000, OR_AUTO(NULL),
                      .help = "Weight of an iterative method's regularisation: cg-sense = of |x|^2, relative to the "
                              "largest eigenvalue of the normal operator; others = relative to the image's signal "
                              "level; auto = the method's own."},
    [RECON_STOP_TOLERANCE] = {"stop_tolerance", PARAM_REAL, .fallback = "auto", .min = 0, .max = 1, OR_AUTO(NULL),
                              .help = "An iterative method stops once this is reached: cg-sense = norm of the "
                                      "residual relative to that of the right side; others = change of the image "
                                      "relative to it; auto = the method's own; 0 = never."},
    [RECON_STOP_SECONDS] = {"stop_seconds", PARAM_REAL, .fallback = "none", .min = 0, .max = 1e6, PARAM_WORDS("none"),
                            .help = "An iterative method begins no iteration later than this many seconds after its "
                                    "first; images may then differ from run to run; none = no limit."},
    [RECON_DCF] = {"dcf", PARAM_CHOICE, PARAM_WORDS("auto", "given", "none", "analytic", "pipe", "voronoi"),
                   .fallback = "auto",
                   .help = "Density compensation: given = weights from the scan's extra trajectory column; none; "
                           "analytic = formula for radial and spiral trajectories, stacks of them, and cones; pipe = "
                           "iterative (Pipe-Menon), for any trajectory; voronoi = areas of Voronoi cells, for 2-D "
                           "trajectories of up to 100,000 samples an image; auto = given if the scan contains "
                           "weights, else analytic if the trajectory is recognised, else pipe."},
    [RECON_DCF_ITERATIONS] = {"dcf_iterations", PARAM_INT, .fallback = "auto", .min = 1, .max = 1000, OR_AUTO(NULL),
                              .help = "Number of iterations of dcf=pipe; auto = 10 from the weights of a formula if "
                                      "the trajectory has one, else 30."},
    [RECON_TRAJ_UNITS] = {"traj_units", PARAM_CHOICE,
                          PARAM_WORDS("auto", "pixel", "grid", "radians", "per_metre", "per_cm", "per_mm",
                                      "radians_per_metre", "radians_per_cm", "radians_per_mm"),
                          .fallback = "auto",
                          .help = "Unit of the scan's trajectory: pixel = cycles per pixel (-0.5..0.5); grid = "
                                  "cycles per field of view (-N/2..N/2); radians = per pixel (-pi..pi); per_metre, "
                                  "per_cm, per_mm = cycles, and radians_per_metre, _cm, _mm = radians, per length; "
                                  "auto = determined from the values if they are unambiguous, else the job fails and "
                                  "reports what was found."},
    [RECON_KERNEL] = {"kernel", PARAM_CHOICE, PARAM_WORDS("separable", "radial"), .fallback = "separable",
                      .help = "Gridding kernel: separable = product of 1-D Kaiser-Bessel functions; radial = "
                              "Kaiser-Bessel function of the distance."},
    [RECON_TOLERANCE] = {"tolerance", PARAM_REAL, .fallback = "1e-3", .min = 1e-6, .max = 1e-1,
                         .help = "Maximum relative error of the image due to gridding; determines kernel width and "
                                 "oversampling."},
    [RECON_WIDTH] = {"width", PARAM_INT, .fallback = "auto", .min = KERNEL_MIN_WIDTH, .max = KERNEL_MAX_WIDTH,
                     OR_AUTO("0"),
                     .help = "Full width of the kernel in grid cells; auto = chosen for `tolerance`. If oversampling "
                             "is given too, the kernel is used whatever its error."},
    [RECON_OVERSAMPLING] = {"oversampling", PARAM_REAL, .fallback = "auto", .min = 1.125,
                            .max = KERNEL_MAX_OVERSAMPLING, OR_AUTO("0"),
                            .help = "Grid size / image size, with kernel=radial at least 1.5 (3-D: 1.75 is used "
                                    "below that); auto = chosen for `tolerance`."},
    [RECON_COILS] = {"coils", PARAM_CHOICE, PARAM_WORDS("rss", "adaptive", "sense", "none"), .fallback = "rss",
                     .help = "Receive coils: rss = root of the sum of squares; adaptive = sum weighted by the coils' "
                             "maps (Walsh), which keeps the phase and lowers the background's noise; sense = the "
                             "same with ESPIRiT's maps, 0 outside the object; none = one image per coil."},
    [RECON_VIRTUAL_COILS] =
        {"virtual_coils", PARAM_INT, .fallback = "auto", .min = 1, .max = 1024, PARAM_WORDS("auto", "none"),
         .help = "Coil compression: number of virtual coils, the combinations with the most "
                 "energy, that replace the scan's; none = the scan's own; auto = as many as have 99 % of the energy, "
                 "if maps are used but are not a result, and the scan has more than 12 coils, else none. With "
                 "`window_frames`, the energy is that of the first window."},
    [RECON_OUTPUT] = {"output", PARAM_CHOICE, PARAM_WORDS("magnitude", "complex", "phase"), .fallback = "magnitude",
                      .help = "Pixel values: magnitude, complex, or phase in radians (-pi..pi); the last two need "
                              "coils=none, adaptive or sense."},
    [RECON_MATRIX] = {"matrix", PARAM_CHOICE, PARAM_WORDS("recon", "encoded"), .fallback = "recon",
                      .help = "Image size: recon = the scan's reconSpace (cut from the centre of the encoded field "
                              "of view); encoded = the whole encodedSpace."},
    [RECON_AVERAGES] = {"averages", PARAM_CHOICE, PARAM_WORDS("combine", "separate"), .fallback = "combine",
                        .help = "Acquisitions that differ only in their average counter: combine = one image of all; "
                                "separate = one image for each."},
    [RECON_FRAMES] = {"frames", PARAM_INT, .fallback = "scan", .min = 1, .max = 65535, PARAM_WORDS("scan"),
                      .help = "A series in time: scan = an image for each repetition; a number = as many images, "
                              "into which all readouts are divided in the order in which they were acquired "
                              "(golden-angle series), whatever their repetition and average."},
    [RECON_FRAME_READOUTS] = {"frame_readouts", PARAM_INT, .fallback = "auto", .min = 1, .max = 1 << 26, OR_AUTO(NULL),
                              .help = "The same as `frames`, by the number of readouts from one image to the next; "
                                      "readouts after the last complete image are ignored; auto = by `frames`."},
    [RECON_FRAME_BY] = {"frame_by", PARAM_CHOICE, PARAM_WORDS("count", "time"), .fallback = "count",
                        .help = "Each image of `frames` has: count = equally many readouts; time = those of an equally "
                                "long time, by their time stamps."},
    [RECON_FRAME_WINDOW] = {"frame_window", PARAM_REAL, .fallback = "1", .min = 1, .max = 1000,
                            .help = "The readouts of each image, as a multiple of those from one image to the next, "
                                    "centred on them: above 1, images share readouts (sliding window)."},
    [RECON_WINDOW_FRAMES] = {"window_frames", PARAM_INT, .fallback = "all", .min = 4, .max = 65535, PARAM_WORDS("all"),
                             .help = "Images of a series that temporal-tv and llr solve together: all; a number = "
                                     "windows of so many, which overlap by a quarter, so that memory is bounded, and "
                                     "images are complete while a stream still arrives."},
    [RECON_PREWHITEN] = {"prewhiten", PARAM_CHOICE, PARAM_WORDS("auto", "off"), .fallback = "auto",
                         .help = "Noise decorrelation between coils: auto = if the scan contains enough noise "
                                 "acquisitions; off."},
    [RECON_GRADIENT_DELAY] = {"gradient_delay", PARAM_TEXT, .fallback = "off", .max = 63,
                              .help = "Gradient delays of a radial scan, by which spokes are shifted: off; ring = "
                                      "estimated from where spokes cross (RING; 2-D radial scans through k = 0); or "
                                      "X,Y,XY in samples: a spoke of direction (a, b) is shifted by (X a + XY b, XY "
                                      "a + Y b)."},
    [RECON_OFF_RESONANCE] = {"off_resonance", PARAM_CHOICE, PARAM_WORDS("auto", "off"), .fallback = "auto",
                             .help = "Correction of off-resonance by the scan's field map: auto = by time segments, if "
                                     "the scan has one (`fieldmap`, in Hz); off."},
    [RECON_ENCODING] = {"encoding", PARAM_INT, .fallback = "auto", .min = 0, .max = 63, OR_AUTO("-1"),
                        .help = "Index of the encoding space to reconstruct, from 0; auto = the first with image "
                                "data and a trajectory."},
    [RECON_GROUP] = {"group", PARAM_TEXT, .fallback = "", .max = 127,
                     .help = "HDF5 group that contains the scan; empty = `dataset`, or the first group with a scan."},
    [RECON_SIZE] = {"size", PARAM_TEXT, .fallback = "", .max = 63,
                    .help = "Image size in pixels, X,Y or X,Y,Z, of scans without a header (.npz, HDF5 with rawdata "
                            "and trajectory), which need it; empty for ISMRMRD scans."},
    [RECON_FOV_MM] = {"fov_mm", PARAM_TEXT, .fallback = "", .max = 63,
                      .help = "Field of view in millimetres, X,Y or X,Y,Z, of scans without a header; empty = 1 mm a "
                              "pixel."},
    [RECON_BIN_DEPTH] = {"bin_depth", PARAM_INT, .fallback = "auto", .min = 1, .max = INT_MAX,
                         PARAM_WORDS("auto", "none"),
                         .help = "Maximum number of samples per k-space bin on a GPU, see `overflow`; none = no "
                                 "limit; auto = the value expected to be fastest. Has no effect on the CPU."},
    [RECON_OVERFLOW] = {"overflow", PARAM_CHOICE, PARAM_WORDS("split", "cpu"), .fallback = "split",
                        .help = "Handling of samples beyond `bin_depth`: split = the bin is split into parts that "
                                "the GPU sums in parallel; cpu = the CPU grids them while the GPU grids the others."},
    [RECON_PARAMS] = {.name = NULL},
};
_Static_assert((int)RECON_PARAMS < (int)KIND_MAX_PARAMS, "struct param_values holds every parameter");

const struct kind_step recon_steps[] = {
    [RECON_STEP_DECODE] = {"decode", "The file is read in the sandbox.", .share = 0.30},
    [RECON_STEP_SORT] = {"sort", "Readouts are selected and sorted into images.", .share = 0.02},
    [RECON_STEP_TRAJECTORY] = {"trajectory", "The trajectory's unit is found and its values are checked.",
                               .share = 0.05},
    [RECON_STEP_NOISE] =
        {"noise", "The coils' noise is measured, for prewhitening; coils are compressed, gradient delays estimated.",
         .share = 0.03},
    [RECON_STEP_DENSITY] = {"density", "Density weights are taken from the scan or computed.", .unit = "iteration",
                            .share = 0.20},
    [RECON_STEP_PLAN] = {"plan", "The samples are sorted into bins.", .share = 0.05},
    [RECON_STEP_GRIDDING] = {"gridding", "Coils are gridded, Fourier transformed and combined.", .unit = "coil",
                             .share = 0.25},
    [RECON_STEP_SOLVE] = {"solve", "Coil maps are estimated, and an iterative method computes the image.",
                          .unit = "iteration", .share = 0.05},
    [RECON_STEP_WRITE] = {"write", "The images are written.", .share = 0.05, .writes = true},
    [RECON_STEPS] = {.name = NULL},
};

/* Check that a kernel exists for the tolerance. Refuses the same values as nufft_create(). */
static int kernel_check(const struct param_values *values)
{
    const int width = (int)values->value[RECON_WIDTH].integer;
    const bool radial = values->value[RECON_KERNEL].integer == NUFFT_RADIAL;
    const double oversampling = values->value[RECON_OVERSAMPLING].real, least = kernel_least_oversampling(2, radial);
    const double tolerance = values->value[RECON_TOLERANCE].real;
    const double aliasing = kernel_least_aliasing(width, oversampling, radial);
    if (oversampling != 0 && oversampling < least)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter oversampling is %g; with kernel=radial it takes auto or a number from %g to %d.",
                       oversampling, least, KERNEL_MAX_OVERSAMPLING);
    if (aliasing > tolerance)
        return err_set(
            ERR_BAD_PARAMETER,
            "With %s=%g the gridding error is at least %.2g of the image, above tolerance=%g. Increase tolerance or "
            "%s, or give both width and oversampling: the kernel is then used whatever its error.",
            width ? "width" : "oversampling", width ? width : oversampling, aliasing, tolerance,
            width ? "width" : "oversampling");
    return 0;
}

int recon_lengths(const struct param_values *values, enum recon_param param, double lengths[3])
{
    const char *text = values->value[param].text;
    const double most = param == RECON_SIZE ? NUFFT_SIZE_MOST : 1e5;
    int count = 0;
    if (!*text)
        return 0;
    for (bool valid = true; valid; text++) {
        char *end = NULL;
        lengths[count] = strtod(text, &end);
        valid = count < 3 && (isdigit((unsigned char)*text) || *text == '.') && lengths[count] > 0 &&
                lengths[count] <= most && (param != RECON_SIZE || lengths[count] == floor(lengths[count]));
        count++;
        if (valid && !*end && count > 1)
            return count;
        valid = valid && *end == ',' && count < 3;
        text = end;
    }
    return err_set(ERR_BAD_PARAMETER,
                   param == RECON_SIZE
                       ? "Parameter size is \"%.64s\"; it takes two or three whole numbers from 1 to %.0f "
                         "with commas between them, as in size=256,256."
                       : "Parameter fov_mm is \"%.64s\"; it takes two or three numbers above 0, at most "
                         "%.0f, with commas between them, as in fov_mm=220,220.",
                   values->value[param].text, most);
}

int recon_delay_parse(const char *text, double delay[3])
{
    const char *at = text;
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        delay[i] = strtod(at, &end);
        if (isspace((unsigned char)*at) || end == at || !(fabs(delay[i]) <= DELAY_MOST) || *end != (i < 2 ? ',' : '\0'))
            return err_set(
                ERR_BAD_PARAMETER,
                "Parameter gradient_delay is \"%.64s\"; it takes off, ring, or three numbers of samples from "
                "-%d to %d with commas between them, as in gradient_delay=0.3,-0.1,0.2.",
                text, DELAY_MOST, DELAY_MOST);
        at = end + 1;
    }
    return 0;
}

static int delay_check(const struct param_values *values)
{
    const char *text = values->value[RECON_GRADIENT_DELAY].text;
    double delay[3];
    return strcmp(text, "off") == 0 || strcmp(text, "ring") == 0 ? 0 : recon_delay_parse(text, delay);
}

static int lengths_check(const struct param_values *values)
{
    double lengths[3];
    int sizes = recon_lengths(values, RECON_SIZE, lengths);
    int views = sizes < 0 ? sizes : recon_lengths(values, RECON_FOV_MM, lengths);
    if (sizes < 0 || views < 0)
        return sizes < 0 ? sizes : views;
    if (views && views != sizes)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter fov_mm has %d numbers and size has %d; both give an axis each, as in size=256,256 "
                       "fov_mm=220,220.",
                       views, sizes);
    return 0;
}

/* The division of a series, from one parameter. */
static int frames_check(const struct param_values *values)
{
    const bool images = values->value[RECON_FRAMES].integer > 0, each = values->value[RECON_FRAME_READOUTS].integer > 0;
    const bool by_time = values->value[RECON_FRAME_BY].integer == RECON_FRAME_BY_TIME;
    if (images && each)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameters frames and frame_readouts both say how the series is divided. Pass one of them.");
    if (by_time && !images)
        return err_set(ERR_BAD_PARAMETER, "Parameter frame_by=time needs frames: the number of images.");
    if (values->value[RECON_FRAME_WINDOW].real > 1 && !images && !each)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter frame_window=%s needs frames or frame_readouts, which divide the series.",
                       values->value[RECON_FRAME_WINDOW].text);
    if (values->value[RECON_WINDOW_FRAMES].integer > 0 &&
        values->value[RECON_METHOD].integer < RECON_METHOD_TEMPORAL_TV)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter window_frames=%s is for methods that solve for the images of a series together: pass "
                       "method=temporal-tv or llr, or leave it out.",
                       values->value[RECON_WINDOW_FRAMES].text);
    if ((images || each) && values->value[RECON_AVERAGES].integer == RECON_AVERAGES_SEPARATE)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter averages=separate makes an image of each average; %s divides the series whatever its "
                       "averages. Leave one of them out.",
                       images ? "frames" : "frame_readouts");
    return 0;
}

static int recon_check(const struct param_values *values)
{
    const bool iterates = values->value[RECON_METHOD].integer != RECON_METHOD_ADJOINT;
    if (iterates && values->value[RECON_COILS].integer == RECON_COILS_NONE)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter method=%s makes one image of all coils; coils=none needs method=adjoint.",
                       values->value[RECON_METHOD].text);
    for (int i = RECON_ITERATIONS; i <= RECON_STOP_SECONDS && !iterates; i++)
        if (param_changed(&recon_kind, values, i))
            return err_set(ERR_BAD_PARAMETER,
                           "Parameter %s is for iterative methods, and method=adjoint has no iterations. Leave it out, "
                           "or pass method=cg-sense.",
                           recon_params[i].name);
    int rc = lengths_check(values);
    if (rc == 0)
        rc = frames_check(values);
    if (rc == 0)
        rc = delay_check(values);
    if (rc != 0)
        return rc;
    if (!iterates && values->value[RECON_OUTPUT].integer != RECON_OUTPUT_MAGNITUDE &&
        values->value[RECON_COILS].integer == RECON_COILS_RSS)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter output=%s needs coils=none, adaptive or sense: the root of the sum of squares over "
                       "coils has no phase.",
                       values->value[RECON_OUTPUT].text);
    if (!iterates && values->value[RECON_RESULTS_WANTED].integer >> RECON_RESULT_MAPS & 1 &&
        values->value[RECON_COILS].integer != RECON_COILS_ADAPTIVE &&
        values->value[RECON_COILS].integer != RECON_COILS_SENSE)
        return err_set(ERR_BAD_PARAMETER, "Parameter results=%s needs coils=adaptive or sense: coils=%s makes no maps.",
                       values->value[RECON_RESULTS_WANTED].text, values->value[RECON_COILS].text);
    if (values->value[RECON_VIRTUAL_COILS].integer > 0 && values->value[RECON_COILS].integer == RECON_COILS_NONE)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameter virtual_coils=%s needs coils that are combined; coils=none gives an image of each of "
                       "the scan's own.",
                       values->value[RECON_VIRTUAL_COILS].text);
    return kernel_check(values);
}

static const struct kind_input recon_inputs[] = {
    {"hdf5", "ISMRMRD HDF5", ".h5", "application/x-hdf5"},
    {"stream", "ISMRMRD stream", ".mrd", "application/x-ismrmrd"},
    {"npz", "NumPy arrays kspace and trajectory", ".npz", "application/x-npz"},
    {"hdf5", "HDF5 with rawdata and trajectory (RRSG challenge)", ".h5", "application/x-hdf5"},
    {.name = NULL},
};

static const struct kind_result recon_results[] = {
    [RECON_RESULT_IMAGE] = {"image", "The reconstructed images.", &image_form},
    [RECON_RESULT_MAPS] = {"maps", "The coils' maps: complex images, a channel for each coil.", &image_form},
    {.name = NULL},
};

const struct kind recon_kind = {
    .name = "recon",
    .help = "Non-Cartesian MRI k-space to images.",
    .params = recon_params,
    .inputs = recon_inputs,
    .sniff = scan_sniff,
    .results = recon_results,
    .steps = recon_steps,
    .check = recon_check,
};
