#include "tests/kinds/histogram/histogram.h"

#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "recon/codec/sealed.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- read ---- */

struct input {
    const struct histogram_numbers *numbers; /* mapped */
    size_t bytes, count;
};

static int numbers_invalid(const char *reason)
{
    return err_set(ERR_DECODER_DIED, "The decoder returned invalid numbers (%s).", reason);
}

static int input_read(void **out, const struct job_request *request, const struct job_listener *listener)
{
    struct stat there;
    const char *base;
    size_t bytes;
    int memory = -1;
    const struct decode_limits limits = job_decode_limits(request);
    struct decode_request decode = {.file = request->input,
                                    .magic = HISTOGRAM_MAGIC,
                                    .limits = &limits,
                                    .canceled = job_decode_canceled,
                                    .context = (void *)(uintptr_t)listener};
    struct input *input = calloc(1, sizeof *input);
    if (!input)
        return err_no_memory("numbers");
    int rc = fstat(request->input, &there) < 0
                 ? err_set(ERR_IO, "The file cannot be read.")
                 : request->kind->sniff(&decode.format, request->input, (uint64_t)there.st_size);
    if (rc == 0)
        rc = decode_file(&memory, request->decoder, &decode);
    if (rc == 0)
        rc = sealed_map(&base, &bytes, memory, sizeof *input->numbers, "numbers", numbers_invalid);
    if (rc == 0) {
        input->numbers = (const void *)base;
        input->bytes = bytes;
        input->count = (bytes - sizeof *input->numbers) / sizeof *input->numbers->number;
    }
    if (memory >= 0)
        close(memory);
    if (rc == 0)
        *out = input;
    else
        free(input);
    return rc;
}

static void input_free(void *of)
{
    struct input *input = of;
    if (!input)
        return;
    munmap((void *)(uintptr_t)input->numbers, input->bytes);
    free(input);
}

/* ---- run ---- */

struct counts {
    int users; /* number of results that share it */
    int64_t bins, *count;
    double low, high;
};

static int histogram_write(const void *of, int format, int fd)
{
    const struct counts *counts = of;
    json_t *list = json_array();
    int rc = 0;
    for (int64_t i = 0; i < counts->bins; i++)
        if (format == HISTOGRAM_JSON)
            json_array_append_new(list, json_integer(counts->count[i]));
        else if (rc == 0 && dprintf(fd, "%lld\n", (long long)counts->count[i]) < 0)
            rc = ERR_IO;
    json_t *whole = json_pack("{s:f, s:f, s:o}", "low", counts->low, "high", counts->high, "counts", list);
    if (format == HISTOGRAM_JSON && json_dumpfd(whole, fd, JSON_COMPACT) != 0)
        rc = ERR_IO;
    json_decref(whole);
    return rc == 0 ? 0 : err_set(rc, "The histogram cannot be written.");
}

static int counts_write(const void *of, int format, int fd)
{
    (void)format;
    const struct counts *counts = of;
    const size_t bytes = (size_t)counts->bins * sizeof *counts->count;
    char head[128] = "\x93NUMPY\x01\x00\x76\x00", text[119];
    int length = snprintf(text, sizeof text, "{'descr': '<i8', 'fortran_order': False, 'shape': (%lld,), }",
                          (long long)counts->bins);
    memset(head + 10, ' ', sizeof head - 10);
    memcpy(head + 10, text, (size_t)length);
    head[sizeof head - 1] = '\n';
    bool written = write(fd, head, sizeof head) == sizeof head && write(fd, counts->count, bytes) == (ssize_t)bytes;
    return written ? 0 : err_set(ERR_IO, "The counts cannot be written.");
}

static void counts_free(void *of)
{
    struct counts *counts = of;
    if (--counts->users > 0)
        return;
    free(counts->count);
    free(counts);
}

static int count(struct counts *counts, const struct input *input, const struct job_request *request,
                 const struct job_listener *listener)
{
    const int64_t pause = request->values->value[HISTOGRAM_PAUSE].integer;
    for (size_t i = 0; i < input->count; i++) {
        const struct step_progress now = {HISTOGRAM_COUNT, 0.25 + 0.5 * (double)i / (double)input->count, (int64_t)i,
                                          (int64_t)input->count};
        if (listener && listener->progress(listener->context, &now) != 0)
            return err_set(ERR_CANCELED, "The job was canceled while it was running.");
        if (pause > 0)
            nanosleep(&(struct timespec){pause / 1000, pause % 1000 * 1000000}, NULL);
        const double at = (input->numbers->number[i] - counts->low) / (counts->high - counts->low);
        if (at >= 0 && at < 1)
            counts->count[(int64_t)(at * (double)counts->bins)]++;
    }
    return 0;
}

/* An upper bound of the files' size, checked against the room that is left. */
static int promise(const struct job_request *request, int64_t bins, uint64_t *bytes)
{
    const struct job_room *room = &request->room;
    *bytes = (uint64_t)(room->count ? room->count : 1) * (uint64_t)(1024 + 24 * bins);
    if (!room->most || *bytes <= room->most)
        return 0;
    return err_set_bytes(ERR_RESULT_TOO_LARGE, (int64_t)*bytes, (int64_t)room->most,
                         "The results would take %llu bytes; they may take %llu (%s).", (unsigned long long)*bytes,
                         (unsigned long long)room->most, room->most_of);
}

static int run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
               const struct job_listener *listener, const void *input)
{
    static const struct job_result made[] = {
        [HISTOGRAM_HISTOGRAM] = {"histogram", NULL, histogram_write, counts_free},
        [HISTOGRAM_COUNTS] = {"counts", NULL, counts_write, counts_free},
    };
    const struct param_values *values = request->values;
    const unsigned wanted = kind_results_wanted(request->kind, values->value[HISTOGRAM_RESULTS].text);
    struct counts *counts = calloc(1, sizeof *counts);
    uint64_t bytes = 0;
    if (!counts)
        return err_no_memory("a histogram");
    *counts = (struct counts){.bins = values->value[HISTOGRAM_BINS].integer,
                              .low = values->value[HISTOGRAM_LOW].real,
                              .high = values->value[HISTOGRAM_HIGH].real};
    counts->count = calloc((size_t)counts->bins, sizeof *counts->count);
    int rc =
        counts->count ? promise(request, counts->bins, &bytes) : err_no_memory("%lld bins", (long long)counts->bins);
    if (rc == 0)
        rc = count(counts, input, request, listener);
    if (rc != 0) {
        counts_free(counts);
        return rc;
    }
    *out = (struct job_outcome){.most_bytes = bytes};
    for (int i = 0; i < 2; i++)
        if (wanted >> i & 1) {
            out->result[out->results] = made[i];
            out->result[out->results++].of = counts;
            counts->users++;
        }
    out->report = json_pack("{s:{}, s:[], s:[s], s:s}", "stages", "decisions", "warnings", "It is a test.", "device",
                            dev_name(dev));
    return 0;
}

const struct kind_run histogram_kind_run = {
    .kind = &histogram_kind, .read = input_read, .input_free = input_free, .run = run};
