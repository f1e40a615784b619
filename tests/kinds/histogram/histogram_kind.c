#include "tests/kinds/histogram/histogram.h"

#include "gridding/base/err.h"

#include <string.h>
#include <unistd.h>

static const struct param params[] = {
    [HISTOGRAM_BINS] = {"bins", PARAM_INT, .fallback = "10", .min = 1, .max = 1 << 20, .help = "Number of bins."},
    [HISTOGRAM_LOW] = {"low", PARAM_REAL, .fallback = "0", .min = -1e9, .max = 1e9,
                       .help = "Where the first bin begins."},
    [HISTOGRAM_HIGH] = {"high", PARAM_REAL, .fallback = "1", .min = -1e9, .max = 1e9,
                        .help = "Where the last bin ends."},
    [HISTOGRAM_PAUSE] = {"pause", PARAM_INT, .fallback = "0", .min = 0, .max = 60000,
                         .help = "Milliseconds that each number takes."},
    [HISTOGRAM_RESULTS] = {"results", PARAM_SET, PARAM_WORDS("histogram", "counts"), .fallback = "histogram",
                           .help = "Results that are wanted."},
    {.name = NULL},
};

static const struct kind_step steps[] = {
    [HISTOGRAM_READ] = {"read", "The numbers are read.", .share = 0.25},
    [HISTOGRAM_COUNT] = {"count", "Numbers are counted.", .unit = "number", .share = 0.5},
    [HISTOGRAM_WRITE] = {"write", "The results are written.", .share = 0.25, .writes = true},
    {.name = NULL},
};

static const struct kind_input inputs[] = {{"csv", "Numbers with commas or line ends", ".csv", "text/csv"},
                                           {.name = NULL}};

static const struct file_format histogram_formats[] = {
    [HISTOGRAM_JSON] = {"json", "application/json"}, [HISTOGRAM_CSV] = {"csv", "text/csv"}, {.name = NULL}};
const struct result_form histogram_form = {"histogram", histogram_formats, false};

static const struct file_format array_formats[] = {{"npy", "application/x-npy"}, {.name = NULL}};
static const struct result_form array_form = {"array", array_formats, false};

static const struct kind_result results[] = {
    [HISTOGRAM_HISTOGRAM] = {"histogram", "Bins and their counts.", &histogram_form},
    [HISTOGRAM_COUNTS] = {"counts", "The counts alone, int64.", &array_form},
    {.name = NULL},
};

static int sniff(const char **name, int fd, uint64_t bytes)
{
    char head[256];
    ssize_t got = pread(fd, head, bytes < sizeof head ? bytes : sizeof head, 0);
    if (got <= 0)
        return err_set(ERR_EMPTY_BODY, "The file is empty (0 bytes).");
    for (ssize_t i = 0; i < got; i++)
        if (!strchr("0123456789+-.eE,\r\n \t", head[i]) || !head[i])
            return err_set(ERR_UNKNOWN_FORMAT, "The file holds more than numbers: byte %zd is 0x%02x.", i,
                           (unsigned char)head[i]);
    *name = "csv";
    return 0;
}

static int check(const struct param_values *values)
{
    if (values->value[HISTOGRAM_LOW].real < values->value[HISTOGRAM_HIGH].real)
        return 0;
    return err_set(ERR_BAD_PARAMETER, "Parameter low is %g and high is %g; low has to be less.",
                   values->value[HISTOGRAM_LOW].real, values->value[HISTOGRAM_HIGH].real);
}

const struct kind histogram_kind = {
    .name = "histogram",
    .help = "Numbers to their histogram.",
    .params = params,
    .inputs = inputs,
    .sniff = sniff,
    .results = results,
    .steps = steps,
    .check = check,
};
