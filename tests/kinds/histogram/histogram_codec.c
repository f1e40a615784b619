/* Runs in the sandbox, on untrusted bytes. */
#include "tests/kinds/histogram/histogram.h"

#include "gridding/base/err.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST = 63, BATCH = 4096 };

struct batch {
    int memory, used;
    uint64_t at, most;
    double number[BATCH];
};

static int batch_write(struct batch *batch)
{
    const size_t bytes = (size_t)batch->used * sizeof *batch->number;
    if (batch->at + bytes > batch->most)
        return err_set_bytes(ERR_LIMIT, (int64_t)(batch->at + bytes), (int64_t)batch->most,
                             "The numbers take more than the %llu bytes that they may.",
                             (unsigned long long)batch->most);
    if (pwrite(batch->memory, batch->number, bytes, (off_t)batch->at) != (ssize_t)bytes)
        return err_set(ERR_IO, "The numbers cannot be written.");
    batch->at += bytes;
    batch->used = 0;
    return 0;
}

/* Add the number in `text`; `which` is its index, from 1, for the error. */
static int number_add(struct batch *batch, const char *text, size_t which)
{
    char *end = NULL;
    const double number = strtod(text, &end);
    while (*end == ' ' || *end == '\t' || *end == '\r')
        end++;
    if (end == text || *end || !isfinite(number))
        return err_set(ERR_MALFORMED_FILE, "Number %zu is \"%.20s\", which is no finite number.", which, text);
    batch->number[batch->used++] = number;
    return batch->used < BATCH ? 0 : batch_write(batch);
}

int histogram_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    (void)wanted;
    static const char crash[] = "1e9999,crash";
    const char *text = file, *const end = text + bytes;
    struct batch batch = {.memory = memory, .at = sizeof(struct histogram_numbers), .most = most_bytes};
    size_t count = 0;
    int rc = 0;
    /* Crash as a library with a bug would, for files that end this way. */
    if (bytes >= sizeof crash - 1 && memcmp(end - (sizeof crash - 1), crash, sizeof crash - 1) == 0)
        raise(SIGABRT);
    while (text < end && rc == 0) {
        char word[LONGEST + 1];
        size_t length = 0;
        while (text + length < end && length < LONGEST && text[length] != ',' && text[length] != '\n')
            length++;
        memcpy(word, text, length);
        word[length] = '\0';
        text += length + 1;
        if (length > 0)
            rc = number_add(&batch, word, ++count);
    }
    if (rc == 0)
        rc = batch_write(&batch);
    if (rc != 0)
        return rc;
    const struct decode_head head = {HISTOGRAM_MAGIC, 1, 0, batch.at};
    return pwrite(memory, &head, sizeof head, 0) == sizeof head ? 0 : err_set(ERR_IO, "No head can be written.");
}

int histogram_convert(int in, int format, int out)
{
    json_error_t error;
    size_t i;
    json_t *histogram = json_loadfd(in, 0, &error), *count;
    int rc = histogram && format == HISTOGRAM_CSV ? 0 : err_set(ERR_MALFORMED_FILE, "The histogram cannot be read.");
    json_array_foreach (json_object_get(histogram, "counts"), i, count)
        if (rc == 0 && dprintf(out, "%lld\n", (long long)json_integer_value(count)) < 0)
            rc = err_set(ERR_IO, "The counts cannot be written.");
    json_decref(histogram);
    return rc;
}
