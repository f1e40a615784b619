#include "gridding/base/err.h"

#include <stdarg.h>
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

static int record(int code, int64_t acquisition, int64_t required, int64_t available, const char *format,
                  va_list arguments)
{
    slot.code = code;
    slot.acquisition = acquisition;
    slot.required = required;
    slot.available = available;
    vsnprintf(slot.text, sizeof slot.text, format, arguments);
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
