#include "gridding/base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *title;
    int status;
} table[] = {{"ok", "No error", 200},
#define ERR_ROW(name, status, text, title) {text, title, status},
             ERR_TABLE(ERR_ROW)
#undef ERR_ROW
};

static _Thread_local struct err slot = {.acquisition = -1, .required = -1, .available = -1};

static int row_of(int code)
{
    return code <= 0 && code > -ERR_COUNT ? -code : ERR_INTERNAL_INDEX;
}

/* Bytes of the UTF-8 character at `text`; 0: invalid, or a control or formatting character. */
static size_t character(const unsigned char *text)
{
    size_t length = *text < 0x80                    ? 1
                    : *text >= 0xc2 && *text < 0xe0 ? 2
                    : *text >= 0xe0 && *text < 0xf0 ? 3
                    : *text >= 0xf0 && *text < 0xf5 ? 4
                                                    : 0;
    static const uint32_t least[] = {0, ' ', 0xa0, 0x800, 0x10000}, lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = *text & lead[length];
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (text[i] & 0x3fu);
    }
    bool formats = c == 0x61c || (c >= 0x200b && c < 0x2010) || (c >= 0x2028 && c < 0x202f) ||
                   (c >= 0x2060 && c < 0x2070) || c == 0xfeff || c >= 0xe0000;
    return c < least[length] || c == 0x7f || (c >= 0xd800 && c < 0xe000) || formats ? 0 : length;
}

/* Sentences quote text from outside, and a quotation may be cut inside a character. */
void err_clean(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at;) {
        size_t length = character(at);
        if (!length)
            *at = '?';
        at += length ? length : 1;
    }
}

static int record(int code, int64_t acquisition, int64_t required, int64_t available, const char *format,
                  va_list arguments)
{
    slot.code = code;
    slot.acquisition = acquisition;
    slot.required = required;
    slot.available = available;
    vsnprintf(slot.text, sizeof slot.text, format, arguments);
    err_clean(slot.text);
    return code;
}

int err_set(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(code, -1, -1, -1, format, arguments);
    va_end(arguments);
    return code;
}

int err_set_acquisition(int code, int64_t acquisition, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(code, acquisition, -1, -1, format, arguments);
    va_end(arguments);
    return code;
}

int err_set_bytes(int code, int64_t required, int64_t available, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(code, -1, required, available, format, arguments);
    va_end(arguments);
    return code;
}

static int no_memory(int64_t required, const char *what, va_list arguments)
{
    char words[sizeof slot.text];
    vsnprintf(words, sizeof words, what, arguments);
    return err_set_bytes(ERR_NO_MEMORY, required, -1, "Not enough memory for %s.", words);
}

int err_no_memory(const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    int code = no_memory(-1, what, arguments);
    va_end(arguments);
    return code;
}

int err_no_memory_bytes(size_t required, const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    int code = no_memory((int64_t)required, what, arguments);
    va_end(arguments);
    return code;
}

int err_prefix(const char *format, ...)
{
    char words[sizeof slot.text], rest[sizeof slot.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    memcpy(rest, slot.text, sizeof rest);
    size_t used = strlen(words);
    memcpy(slot.text, words, used);
    snprintf(slot.text + used, sizeof slot.text - used, "%s", rest);
    err_clean(slot.text);
    return slot.code;
}

const struct err *err_last(void)
{
    return &slot;
}

int err_restore(const struct err *failure)
{
    if (failure != &slot)
        slot = *failure;
    slot.text[sizeof slot.text - 1] = '\0';
    err_clean(slot.text);
    return slot.code;
}

const char *err_name(int code)
{
    return table[row_of(code)].name;
}

int err_status(int code)
{
    return table[row_of(code)].status;
}

const char *err_title(int code)
{
    return table[row_of(code)].title;
}

int err_from_name(const char *name)
{
    for (int i = 0; i < ERR_COUNT; i++)
        if (strcmp(table[i].name, name) == 0)
            return -i;
    return ERR_INTERNAL;
}
