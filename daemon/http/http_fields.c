#include "daemon/http/http_fields.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *skip_space(const char *text)
{
    return text + strspn(text, " \t");
}

/* Length of a list member up to its comma; commas in quoted strings do not count. */
static size_t member_length(const char *text)
{
    bool quoted = false;
    size_t i = 0;
    for (; text[i] && (quoted || text[i] != ','); i++) {
        if (quoted && text[i] == '\\' && text[i + 1])
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
    }
    return i;
}

int prefer_wait(const char *header)
{
    for (const char *text = header; text && *text;) {
        text = skip_space(text);
        size_t length = member_length(text);
        if (length > 4 && strncasecmp(text, "wait", 4) == 0) {
            const char *value = skip_space(text + 4);
            if (*value == '=') {
                value = skip_space(value + 1);
                if (*value == '"')
                    value++;
                if (isdigit((unsigned char)*value)) {
                    long seconds = strtol(value, NULL, 10);
                    return seconds > 1000000 ? 1000000 : (int)seconds;
                }
            }
        }
        text += length;
        text += *text == ',';
    }
    return -1;
}

bool prefer_has(const char *header, const char *preference)
{
    for (const char *text = header; text && *text;) {
        text = skip_space(text);
        size_t length = member_length(text), used = length;
        while (used > 0 && (text[used - 1] == ' ' || text[used - 1] == '\t'))
            used--;
        if (used == strlen(preference) && strncasecmp(text, preference, used) == 0)
            return true;
        text += length;
        text += *text == ',';
    }
    return false;
}

/* The q among the parameters of a media range or coding, in thousandths; `without` one: that. */
static int quality_read(const char *text, size_t length, int without)
{
    for (size_t i = 0; i + 1 < length; i++) {
        if (text[i] != ';')
            continue;
        size_t at = i + 1;
        while (at < length && (text[at] == ' ' || text[at] == '\t'))
            at++;
        if (at + 2 < length && tolower((unsigned char)text[at]) == 'q' && text[at + 1] == '=') {
            int value = 0, scale = 1000;
            at += 2;
            if (!isdigit((unsigned char)text[at]))
                return 0;
            value = (text[at++] - '0') * scale;
            if (at < length && text[at] == '.')
                for (at++; at < length && isdigit((unsigned char)text[at]) && scale > 1; at++)
                    value += (text[at] - '0') * (scale /= 10);
            return value > 1000 ? 1000 : value;
        }
    }
    return without;
}

int accept_quality(const char *header, const char *media, int *closeness)
{
    int best = 0;
    *closeness = 0;
    if (!header || !*skip_space(header)) {
        *closeness = 1;
        return 1000;
    }
    size_t whole = strlen(media), type = strcspn(media, "/") + 1;
    for (const char *text = header; *text;) {
        text = skip_space(text);
        size_t length = member_length(text), name = strcspn(text, ";, \t"); /* a member ends at a comma, too */
        int close = 0;
        if (name == whole && strncasecmp(text, media, whole) == 0)
            close = 3;
        else if (name == type + 1 && text[type] == '*' && strncasecmp(text, media, type) == 0)
            close = 2;
        else if (name == 3 && strncmp(text, "*/*", 3) == 0)
            close = 1;
        if (close > *closeness) {
            *closeness = close;
            best = quality_read(text, length, 1000);
        }
        text += length;
        text += *text == ',';
    }
    return best;
}

int coding_quality(const char *header, const char *coding)
{
    int any = 0;
    size_t whole = strlen(coding);
    for (const char *text = header; text && *text;) {
        text = skip_space(text);
        size_t length = strcspn(text, ","), name = strcspn(text, ";, \t");
        const int without = memchr(text, ';', length) ? 0 : 1000; /* a coding has no other parameters */
        if (name == whole && strncasecmp(text, coding, whole) == 0)
            return quality_read(text, length, without);
        if (name == 1 && *text == '*')
            any = quality_read(text, length, without);
        text += length;
        text += *text == ',';
    }
    return any;
}

/* Digits at *text; -1: none, or more than fits. */
static int64_t digits_read(const char **text)
{
    int64_t value = 0;
    if (!isdigit((unsigned char)**text))
        return -1;
    for (; isdigit((unsigned char)**text); (*text)++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, **text - '0', &value))
            value = INT64_MAX / 16; /* larger than any file */
    return value;
}

enum range_kind range_parse(const char *header, int64_t bytes, int64_t *first, int64_t *last)
{
    if (!header || strncasecmp(header, "bytes=", 6) != 0)
        return RANGE_WHOLE;
    const char *text = skip_space(header + 6);
    int64_t from = digits_read(&text), to;
    if (*text++ != '-')
        return RANGE_WHOLE;
    to = digits_read(&text);
    if (*skip_space(text) || (from < 0 && to < 0))
        return RANGE_WHOLE;
    if (from < 0) { /* the last `to` bytes */
        if (to == 0 || bytes == 0)
            return RANGE_OUTSIDE;
        from = to < bytes ? bytes - to : 0;
        to = bytes - 1;
    } else {
        if (to >= 0 && to < from)
            return RANGE_WHOLE;
        if (from >= bytes)
            return RANGE_OUTSIDE;
        if (to < 0 || to >= bytes)
            to = bytes - 1;
    }
    *first = from;
    *last = to;
    return RANGE_PART;
}

bool etag_listed(const char *header, const char *etag, bool weak)
{
    size_t wanted = strlen(etag);
    for (const char *text = header; *text;) {
        text = skip_space(text);
        size_t length = member_length(text), used = length;
        while (used > 0 && (text[used - 1] == ' ' || text[used - 1] == '\t'))
            used--;
        if (used == 1 && *text == '*')
            return true;
        const char *tag = text;
        bool is_weak = used > 2 && strncmp(tag, "W/", 2) == 0;
        if (is_weak) {
            tag += 2;
            used -= 2;
        }
        if ((weak || !is_weak) && used == wanted && strncmp(tag, etag, wanted) == 0)
            return true;
        text += length;
        text += *text == ',';
    }
    return false;
}

int cookie_find(const char *header, const char *name, char *value, size_t size)
{
    size_t whole = strlen(name);
    int count = 0;
    *value = '\0';
    for (const char *text = header; text && *text;) {
        text += strspn(text, " \t;");
        size_t length = strcspn(text, ";");
        if (length > whole && strncmp(text, name, whole) == 0 && text[whole] == '=') {
            size_t bytes = strcspn(text + whole + 1, "; \t");
            *value = '\0';
            if (count == 0 && bytes < size) {
                memcpy(value, text + whole + 1, bytes);
                value[bytes] = '\0';
            }
            count++;
        }
        text += length;
    }
    return count;
}
