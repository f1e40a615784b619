#include "recon/particle/particles_text.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t text_mark(const void *bytes, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t most = sizeof mark - 1;
    return length >= most && memcmp(bytes, mark, most) == 0 ? most : 0;
}

void text_begin(struct text *text, const void *bytes, size_t length)
{
    text->at = bytes;
    text->end = text->at + length;
    text->at += text_mark(bytes, length);
    text->line = 0;
    text->length = 0;
    text->fields = 0;
}

uint64_t text_lines(const void *bytes, size_t length)
{
    const char *at = bytes, *const end = at + length;
    uint64_t lines = 1;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
        lines++;
        at++;
    }
    return lines;
}

int text_next(struct text *text)
{
    if (text->at >= text->end)
        return 0;
    const char *to = memchr(text->at, '\n', (size_t)(text->end - text->at));
    const size_t length = (size_t)((to ? to : text->end) - text->at);
    text->line++;
    if (length > TEXT_LINE)
        return err_set(ERR_MALFORMED_FILE, "Line %llu has %zu characters; the limit is %d.",
                       (unsigned long long)text->line, length, TEXT_LINE);
    memcpy(text->now, text->at, length);
    text->at = to ? to + 1 : text->end;
    text->length = length;
    while (text->length && strchr(" \t\r", text->now[text->length - 1]) && text->now[text->length - 1])
        text->length--;
    text->now[text->length] = '\0';
    for (size_t i = 0; i < text->length; i++)
        if ((unsigned char)text->now[i] < ' ' && text->now[i] != '\t')
            return err_set(ERR_MALFORMED_FILE, "Line %llu: character %zu is 0x%02x, which is not text.",
                           (unsigned long long)text->line, i + 1, (unsigned char)text->now[i]);
    return 1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

int text_split(struct text *text, char separator)
{
    char *at = text->now;
    const bool blanks = is_blank(separator);
    text->fields = 0;
    while (true) {
        while (is_blank(*at))
            at++;
        if (!*at && (blanks || !text->fields))
            return 0;
        if (text->fields == TEXT_FIELDS)
            return err_set(ERR_MALFORMED_FILE, "Line %llu has more than %d columns.", (unsigned long long)text->line,
                           TEXT_FIELDS);
        text->field[text->fields++] = at;
        char *end = at;
        while (*end && (blanks ? !is_blank(*end) : *end != separator))
            end++;
        const bool last = !*end;
        for (char *back = end; back > at && is_blank(back[-1]); back--)
            back[-1] = '\0';
        *end = '\0';
        if (last)
            return 0;
        at = end + 1;
    }
}

bool text_number(const char *field, double *value)
{
    char *end = NULL;
    if (!*field || field[strspn(field, "0123456789+-.eE")])
        return false;
    *value = strtod(field, &end);
    return !*end && isfinite(*value);
}

int text_field_number(const struct text *text, int column, const char *name, double *value)
{
    if (column > text->fields)
        return err_set(ERR_MALFORMED_FILE, "Line %llu ends after column %d; column %d (%s) is expected.",
                       (unsigned long long)text->line, text->fields, column, name);
    if (text_number(text->field[column - 1], value))
        return 0;
    return err_set(ERR_MALFORMED_FILE, "Line %llu, column %d (%s): \"%.32s\" is not a finite number.",
                   (unsigned long long)text->line, column, name, text->field[column - 1]);
}

int text_field_whole(const struct text *text, int column, const char *name, uint64_t *value)
{
    const char *field = text->field[column - 1];
    char *end = NULL;
    double number;
    errno = 0;
    *value = strtoull(field, &end, 10);
    if (*field >= '0' && *field <= '9' && !*end && errno == 0)
        return 0;
    const bool whole = text_number(field, &number) && number >= 0 && number < 0x1p64 && number == floor(number);
    *value = whole ? (uint64_t)number : 0;
    return whole ? 0
                 : err_set(ERR_MALFORMED_FILE,
                           "Line %llu, column %d (%s): \"%.32s\" is not a whole number from 0 to 2^64 - 1.",
                           (unsigned long long)text->line, column, name, field);
}
