/* The kinds of job and their parameters: plain data, and the checks that follow from it. Links nothing but err.c. */
#include "recon/recon.h"
#include "recon/mri/recon_job.h"

#include "gridding/base/err.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHOICES(...)                               \
    PARAM_CHOICE, .choices = (const char *const[]) \
    {                                              \
        __VA_ARGS__, NULL                          \
    }

static const struct param recon_params[] = {
    [RECON_METHOD] = {"method", "How the image is made: adjoint = one density-compensated gridding and inverse FFT.",
                      CHOICES("adjoint"), .fallback = "adjoint"},
    [RECON_DCF] =
        {"dcf",
         "Density compensation: given = the scan's extra trajectory column; none; analytic = the formula of a "
         "radial or spiral trajectory; pipe = iterative (Pipe-Menon), for any trajectory; auto = given where "
         "the scan carries weights, else analytic where the trajectory is recognised, else pipe.",
         CHOICES("auto", "given", "none", "analytic", "pipe"), .fallback = "auto"},
    [RECON_DCF_ITERATIONS] = {"dcf_iterations", "Iterations of dcf=pipe.", PARAM_INT, .fallback = "30", .min = 1,
                              .max = 1000},
    [RECON_TRAJ_UNITS] =
        {"traj_units",
         "Unit of the scan's trajectory: pixel = cycles per pixel (-0.5..0.5); grid = cycles per field "
         "of view (-N/2..N/2); radians = per pixel (-pi..pi); per_metre = cycles per metre; auto = "
         "decide where the values leave no doubt, else fail and say what was seen.",
         CHOICES("auto", "pixel", "grid", "radians", "per_metre"), .fallback = "auto"},
    [RECON_KERNEL] = {"kernel",
                      "Gridding kernel: separable = product of 1-D Kaiser-Bessel functions; radial = Kaiser-Bessel "
                      "function of the distance.",
                      CHOICES("separable", "radial"), .fallback = "separable"},
    [RECON_TOLERANCE] = {"tolerance",
                         "Relative error of the image that gridding may cause; picks kernel width and oversampling.",
                         PARAM_REAL, .fallback = "1e-3", .min = 1e-6, .max = 1e-1},
    [RECON_WIDTH] = {"width", "Full width of the kernel in grid cells, 2..10; 0 = what `tolerance` asks for.",
                     PARAM_INT, .fallback = "0", .min = 0, .max = 10},
    [RECON_OVERSAMPLING] = {"oversampling", "Grid size / image size, 1.125..2; 0 = what `tolerance` asks for.",
                            PARAM_REAL, .fallback = "0", .min = 0, .max = 2},
    [RECON_COILS] = {"coils", "Receive coils: rss = root of the sum of squares; none = one image per coil.",
                     CHOICES("rss", "none"), .fallback = "rss"},
    [RECON_OUTPUT] = {"output", "Pixel values: magnitude, or complex (needs coils=none).",
                      CHOICES("magnitude", "complex"), .fallback = "magnitude"},
    [RECON_MATRIX] = {"matrix",
                      "Image size: recon = the scan's reconSpace (cut from the centre of the encoded field of view); "
                      "encoded = all of encodedSpace.",
                      CHOICES("recon", "encoded"), .fallback = "recon"},
    [RECON_AVERAGES] =
        {"averages",
         "Acquisitions that differ only in their average counter: combine = one image of all; separate = "
         "an image for each.",
         CHOICES("combine", "separate"), .fallback = "combine"},
    [RECON_PREWHITEN] =
        {"prewhiten", "Noise decorrelation between coils: auto = where the scan holds enough noise acquisitions; off.",
         CHOICES("auto", "off"), .fallback = "auto"},
    [RECON_ENCODING] =
        {"encoding",
         "Index of the encoding space to reconstruct, from 0; -1 = the first that holds image data with a "
         "trajectory.",
         PARAM_INT, .fallback = "-1", .min = -1, .max = 63},
    [RECON_GROUP] = {"group",
                     "HDF5 group of the scan in its file; empty = `dataset`, or the first group that holds a scan.",
                     PARAM_TEXT, .fallback = "", .max = 127},
    [RECON_BIN_DEPTH] = {"bin_depth",
                         "Samples that a bin of k-space may hold on a GPU, see `overflow`; none = all it holds; auto = "
                         "what is expected "
                         "to be fastest. Has no effect on the CPU.",
                         PARAM_INT, .fallback = "auto", .min = 1, .max = INT_MAX,
                         .choices = (const char *const[]){"auto", "none", NULL}},
    [RECON_OVERFLOW] =
        {"overflow",
         "What becomes of the samples past `bin_depth`: split = the bin is cut into parts that the GPU sums side by "
         "side; cpu = the CPU grids them while the GPU grids the others.",
         CHOICES("split", "cpu"), .fallback = "split"},
    [RECON_PARAMS] = {.name = NULL},
};
_Static_assert((int)RECON_PARAMS < (int)KIND_MAX_PARAMS, "struct param_values holds every parameter");

const struct kind_step recon_steps[] = {
    [RECON_STEP_DECODE] = {"decode", "The file is read in the sandbox.", .share = 0.30},
    [RECON_STEP_SORT] = {"sort", "Readouts are selected and sorted into images.", .share = 0.02},
    [RECON_STEP_TRAJECTORY] = {"trajectory", "The trajectory's unit is found and its values are checked.",
                               .share = 0.05},
    [RECON_STEP_NOISE] = {"noise", "The coils' noise is measured, for prewhitening.", .share = 0.03},
    [RECON_STEP_DENSITY] = {"density", "Density weights are taken from the scan or computed.", .unit = "iteration",
                            .share = 0.20},
    [RECON_STEP_PLAN] = {"plan", "The samples are sorted into bins.", .share = 0.05},
    [RECON_STEP_GRIDDING] = {"gridding", "Coils are gridded, Fourier transformed and combined.", .unit = "coil",
                             .share = 0.30},
    [RECON_STEP_WRITE] = {"write", "The images are written.", .share = 0.05},
    [RECON_STEPS] = {.name = NULL},
};

const struct kind recon_kinds[] = {
    {"recon", "Non-Cartesian MRI k-space to images.", recon_params,
     (const char *const[]){"ISMRMRD HDF5 (.h5, application/x-hdf5)", "ISMRMRD stream (.mrd, application/x-ismrmrd)",
                           NULL},
     recon_steps},
    {.name = NULL},
};

const struct kind *recon_kind_find(const char *name)
{
    for (const struct kind *kind = recon_kinds; kind->name; kind++)
        if (strcmp(kind->name, name) == 0)
            return kind;
    return NULL;
}

int kind_steps(const struct kind *kind)
{
    int count = 0;
    while (kind->steps[count].name)
        count++;
    return count;
}

int kind_step_find(const struct kind *kind, const char *name)
{
    for (int i = 0; kind->steps[i].name; i++)
        if (strcmp(kind->steps[i].name, name) == 0)
            return i;
    return -1;
}

/* Read `text` as a value of `param`; ERR_BAD_PARAMETER, without a sentence, where it is none. */
static int value_parse(const struct param *param, const char *text, int64_t *integer, double *real)
{
    char *end = NULL;
    bool number = *text && !isspace((unsigned char)*text);
    errno = 0;
    switch (param->type) {
    case PARAM_CHOICE:
        for (int i = 0; param->choices[i]; i++)
            if (strcmp(param->choices[i], text) == 0) {
                *integer = i;
                return 0;
            }
        break;
    case PARAM_INT:
        for (int i = 0; param->choices && param->choices[i]; i++)
            if (strcmp(param->choices[i], text) == 0) {
                *integer = -i;
                *real = -i;
                return 0;
            }
        *integer = strtoll(text, &end, 10);
        *real = (double)*integer;
        if (number && !*end && errno == 0 && *real >= param->min && *real <= param->max)
            return 0;
        break;
    case PARAM_REAL:
        *real = strtod(text, &end);
        if (number && !*end && isfinite(*real) && *real >= param->min && *real <= param->max)
            return 0;
        break;
    case PARAM_TEXT: {
        size_t length = strlen(text);
        bool plain = length <= (size_t)param->max;
        for (size_t i = 0; plain && i < length; i++)
            plain = (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
        if (plain)
            return 0;
        break;
    }
    }
    return ERR_BAD_PARAMETER;
}

/* What a parameter takes, for a person: "one of auto, given" or "a number from 1e-06 to 0.1". */
static void range_describe(const struct param *param, char *text, size_t size)
{
    size_t used = 0;
    switch (param->type) {
    case PARAM_CHOICE:
        used = (size_t)snprintf(text, size, "one of ");
        for (int i = 0; param->choices[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", param->choices[i]);
        break;
    case PARAM_INT:
        for (int i = 0; param->choices && param->choices[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", param->choices[i],
                                     param->choices[i + 1] ? ", " : " or ");
        if (used < size)
            snprintf(text + used, size - used, "a whole number from %.0f to %.0f", param->min, param->max);
        break;
    case PARAM_REAL:
        snprintf(text, size, "a number from %g to %g", param->min, param->max);
        break;
    case PARAM_TEXT:
        snprintf(text, size, "a text of at most %.0f bytes without control characters", param->max);
        break;
    }
}

/* Levenshtein's distance of two short names, as a share of the longer one's length, in percent. */
static int name_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1];
    size_t na = strnlen(a, LONGEST), nb = strnlen(b, LONGEST);
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int replaced = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return na || nb ? 100 * row[nb] / (int)(na > nb ? na : nb) : 0;
}

static int name_unknown(const struct kind *kind, const char *name)
{
    char list[512] = "";
    size_t used = 0;
    const char *nearest = NULL;
    int least = 0;
    for (const struct param *param = kind->params; param->name; param++) {
        int distance = name_distance(name, param->name);
        if (!nearest || distance < least) {
            nearest = param->name;
            least = distance;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", param->name);
    }
    /* A name that shares less than half of its letters is no misspelling. */
    if (nearest && least <= 50)
        return err_set(ERR_UNKNOWN_PARAMETER,
                       "Kind %s has no parameter named \"%.64s\". Did you mean \"%s\"? It takes: %s.", kind->name, name,
                       nearest, list);
    return err_set(ERR_UNKNOWN_PARAMETER, "Kind %s has no parameter named \"%.64s\". It takes: %s.", kind->name, name,
                   list);
}

static void value_put(struct param_values *values, size_t i, bool given, int64_t integer, double real, const char *text)
{
    values->value[i].given = given;
    values->value[i].integer = integer;
    values->value[i].real = real;
    snprintf(values->value[i].text, sizeof values->value[i].text, "%s", text);
}

void param_values_init(const struct kind *kind, struct param_values *values)
{
    memset(values, 0, sizeof *values);
    for (size_t i = 0; kind->params[i].name; i++) {
        int64_t integer = 0;
        double real = 0;
        value_parse(&kind->params[i], kind->params[i].fallback, &integer, &real);
        value_put(values, i, false, integer, real, kind->params[i].fallback);
    }
}

int param_values_set(const struct kind *kind, struct param_values *values, const char *name, const char *text)
{
    for (size_t i = 0; kind->params[i].name; i++) {
        const struct param *param = &kind->params[i];
        if (strcmp(param->name, name) != 0)
            continue;
        int64_t integer = 0;
        double real = 0;
        /* Its text is what jobs are kept and handed on by; a part of it would be another value. */
        const size_t room = sizeof values->value[i].text, length = strlen(text);
        if (length >= room)
            return err_set(ERR_BAD_PARAMETER, "Parameter %s has %zu characters; it takes at most %zu.", name, length,
                           room - 1);
        if (value_parse(param, text, &integer, &real) != 0) {
            char range[256];
            range_describe(param, range, sizeof range);
            return err_set(ERR_BAD_PARAMETER, "Parameter %s is \"%.64s\"; it takes %s (default %s).", name, text, range,
                           *param->fallback ? param->fallback : "empty");
        }
        value_put(values, i, true, integer, real, text);
        return 0;
    }
    return name_unknown(kind, name);
}
