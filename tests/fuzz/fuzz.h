/* fuzz.h: shared by the fuzz targets. An input's first byte (from "0" on) selects one of the target's readers; the rest
 * is its text.
 */
#ifndef MRIRECON_TESTS_FUZZ_H
#define MRIRECON_TESTS_FUZZ_H

#include "daemon/http/http_fields.h"
#include "daemon/http/http_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void check(bool holds)
{
    if (!holds)
        abort();
}

/* A refusal must have an error text that is a sentence and safe to put in JSON. */
static inline void check_refused(int code)
{
    const struct err *failure = err_last();
    check(code < 0 && code == failure->code && *failure->text && text_is_clean(failure->text));
    check(strcmp(err_name(code), "internal") != 0);
}

/* Returns whether the call succeeded; if not, checks the refusal as above. */
static inline bool check_result(int code)
{
    if (code)
        check_refused(code);
    return code == 0;
}

typedef void text_reader(const char *text);

/* Pass the text to the reader that the first byte selects, in a buffer of its exact length so that an overrun is
 * detected. */
static inline void fuzz_text(const uint8_t *data, size_t size, text_reader *const readers[], size_t count)
{
    if (size < 1)
        return;
    char *text = malloc(size);
    check(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    readers[(uint8_t)(data[0] - '0') % count](text);
    free(text);
}

#define FUZZ_TEXT(...)                                                    \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)          \
    {                                                                     \
        static text_reader *const readers[] = {__VA_ARGS__};              \
        fuzz_text(data, size, readers, sizeof readers / sizeof *readers); \
        return 0;                                                         \
    }

#endif
