/* histogram.h: kind "histogram" of the tests: computes the histogram of numbers in a CSV file, with two results.
 *
 * It follows docs/architecture.md, "A new kind": a folder, a row in the table of kinds and a row in the table of how
 * they are run; and because its formats are new too, a row for the format that it reads and one for the format that it
 * returns.
 */
#ifndef MRIRECON_TESTS_HISTOGRAM_H
#define MRIRECON_TESTS_HISTOGRAM_H

#include "recon/codec/decode.h"
#include "recon/kind_run.h"

extern const struct kind histogram_kind;         /* histogram_kind.c: a plain table, linked into all programs */
extern const struct kind_run histogram_kind_run; /* histogram_run.c: linked into the worker */
extern const struct result_form histogram_form;  /* json, and csv, which is derived from it */

/* histogram_codec.c: linked into the codec. See codec_reader.decode() and codec_converter.convert(). */
int histogram_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int histogram_convert(int in, int format, int out);

/* Indices in the tables. */
enum histogram_param { HISTOGRAM_BINS, HISTOGRAM_LOW, HISTOGRAM_HIGH, HISTOGRAM_PAUSE, HISTOGRAM_RESULTS };
enum histogram_step { HISTOGRAM_READ, HISTOGRAM_COUNT, HISTOGRAM_WRITE };
enum histogram_result { HISTOGRAM_HISTOGRAM, HISTOGRAM_COUNTS };
enum histogram_format { HISTOGRAM_JSON, HISTOGRAM_CSV };

/* The decoded file: a header, followed by finite numbers. */
#define HISTOGRAM_MAGIC UINT64_C(0x4d4152474f545349) /* "ISTOGRAM" */
struct histogram_numbers {
    struct decode_head head;
    double number[];
};

#endif
