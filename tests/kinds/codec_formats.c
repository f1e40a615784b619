/* The formats that build/kinds/mrirecon-codec reads and derives: only those of the tests' kind. */
#include "recon/codec/codec_formats.h"

#include "tests/kinds/histogram/histogram.h"

const struct codec_reader codec_readers[] = {{HISTOGRAM_MAGIC, "csv", histogram_decode, NULL}, {.format = NULL}};
const struct codec_converter codec_converters[] = {{&histogram_form, histogram_convert, NULL}, {.form = NULL}};

int codec_init(void)
{
    return 0;
}

int codec_warm_up(void)
{
    return 0;
}
