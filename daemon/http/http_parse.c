#include "daemon/http/http_parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

bool text_is_clean(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c) {
        int more = *c < 0x80                 ? 0
                   : *c >= 0xc2 && *c < 0xe0 ? 1
                   : *c >= 0xe0 && *c < 0xf0 ? 2
                   : *c >= 0xf0 && *c < 0xf5 ? 3
                                             : -1;
        if (more < 0 || *c < 0x20 || *c == 0x7f)
            return false;
        /* Overlong encodings, surrogates, beyond U+10FFFF. */
        unsigned low = *c == 0xe0   ? 0xa0
                       : *c == 0xf0 ? 0x90
                                    : 0x80,
                 high = *c == 0xed   ? 0x9f
                        : *c == 0xf4 ? 0x8f
                                     : 0xbf;
        for (c++; more > 0; more--, c++) {
            if (*c < low || *c > high)
                return false;
            low = 0x80;
            high = 0xbf;
        }
    }
    return true;
}

/* Whether `text` begins like `shape`, in which 0 is any digit. */
static bool is_shaped(const char *text, const char *shape)
{
    for (; *shape; shape++, text++)
        if (*shape == '0' ? !isdigit((unsigned char)*text) : *text != *shape)
            return false;
    return true;
}

/* "T03:00:00.5Z", "T03:00Z", or nothing after a date: ms of the day. */
static bool time_parse(const char *text, int64_t *out)
{
    int hour, minute, second = 0, thousandths = 0, weight = 100;
    *out = 0;
    if (!*text)
        return true;
    if (!is_shaped(text, "T00:00") || sscanf(text, "T%2d:%2d", &hour, &minute) != 2)
        return false;
    text += 6;
    if (is_shaped(text, ":00")) {
        second = 10 * (text[1] - '0') + text[2] - '0';
        text += 3;
        if (is_shaped(text, ".0"))
            for (text++; isdigit((unsigned char)*text); text++, weight /= 10)
                thousandths += weight * (*text - '0');
    }
    *out = 1000 * (3600 * hour + 60 * minute + second) + thousandths;
    return strcmp(text, "Z") == 0 && hour < 24 && minute < 60 && second < 60;
}

bool since_parse(const char *text, int64_t now, int64_t *out)
{
    static const struct {
        const char *unit;
        int64_t seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text + digits, units[i].unit) == 0) {
            int64_t time = now - 1000 * units[i].seconds * strtoll(text, NULL, 10);
            *out = time > 1 ? time : 1;
            return true;
        }
    struct tm date = {.tm_mday = 0};
    int64_t within;
    if (!is_shaped(text, "0000-00-00") || !time_parse(text + 10, &within) ||
        sscanf(text, "%4d-%2d-%2d", &date.tm_year, &date.tm_mon, &date.tm_mday) != 3)
        return false;
    date.tm_year -= 1900;
    date.tm_mon--;
    const struct tm said = date;
    *out = 1000 * (int64_t)timegm(&date) + within;
    return *out > 0 && date.tm_mday == said.tm_mday && date.tm_mon == said.tm_mon; /* 31 February does not exist */
}

bool token_is_clean(const char *text)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr(others, text[i]))
            return false;
    return length > 0;
}

static int hex(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

/* Decode `length` bytes of percent-encoded text. */
static int percent_decode(const char *text, size_t length, bool plus, char *out, size_t size, const char *what)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '%') {
            int high = i + 1 < length ? hex(text[i + 1]) : -1, low = i + 2 < length ? hex(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return err_set(ERR_BAD_REQUEST, "%s holds a %% that is not followed by two hexadecimal digits.", what);
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if (!c)
            return err_set(ERR_BAD_REQUEST, "%s holds a NUL character.", what);
        if (used + 1 >= size)
            return err_set(ERR_BAD_REQUEST, "%s is longer than %zu bytes.", what, size - 1);
        out[used++] = c;
    }
    out[used] = '\0';
    if (!text_is_clean(out))
        return err_set(ERR_BAD_REQUEST, "%s is not UTF-8 text without control characters.", what);
    return 0;
}

int query_next(const char **query, char name[HTTP_NAME], char value[HTTP_VALUE], bool *found)
{
    const char *text = *query;
    while (*text == '&')
        text++;
    size_t length = strcspn(text, "&");
    *query = text + length;
    *found = length > 0;
    if (!length)
        return 0;
    const char *equals = memchr(text, '=', length);
    size_t first = equals ? (size_t)(equals - text) : length;
    int rc = percent_decode(text, first, true, name, HTTP_NAME, "The name of a parameter");
    if (!rc && !*name)
        rc = err_set(ERR_BAD_REQUEST, "A parameter of the query has no name.");
    if (!rc && equals)
        return percent_decode(equals + 1, length - first - 1, true, value, HTTP_VALUE, "The value of a parameter");
    value[0] = '\0';
    return rc;
}

int query_each(const char *query, int (*take)(void *context, const char *name, const char *value), void *context)
{
    char name[HTTP_NAME], value[HTTP_VALUE];
    bool found;
    for (;;) {
        int rc = query_next(&query, name, value, &found);
        if (rc || !found)
            return rc;
        rc = take(context, name, value);
        if (rc)
            return rc;
    }
}

int query_check(const char *query)
{
    enum { MOST = 64 };
    char names[MOST][HTTP_NAME], value[HTTP_VALUE];
    bool found;
    for (int count = 0;; count++) {
        if (count == MOST)
            return err_set(ERR_BAD_REQUEST, "The query has more than %d parameters.", MOST - 1);
        int rc = query_next(&query, names[count], value, &found);
        if (rc || !found)
            return rc;
        for (int i = 0; i < count; i++)
            if (strcmp(names[i], names[count]) == 0)
                return err_set(ERR_BAD_PARAMETER, "Parameter %s is given twice.", names[i]);
    }
}

int target_split(char *uri, const char **host, const char **path, const char **query)
{
    size_t scheme = strncasecmp(uri, "http://", 7) == 0 ? 7 : strncasecmp(uri, "https://", 8) == 0 ? 8 : 0;
    *host = NULL;
    for (const char *c = uri; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || *c == '#')
            return err_set(ERR_BAD_REQUEST, "The target of the request contains a space, a control character or a #. "
                                            "Encode them, as %%20 and %%23.");
    char *rest = uri;
    if (scheme) {
        size_t length = strcspn(uri + scheme, "/?");
        rest = uri + scheme + length;
        memmove(uri, uri + scheme, length);
        uri[length] = '\0';
        *host = uri;
    }
    if (scheme ? !*uri : *uri != '/')
        return err_set(ERR_BAD_REQUEST, "The target of the request is neither a path, which begins with \"/\", nor an "
                                        "address such as http://HOST/PATH.");
    char *mark = rest + strcspn(rest, "?");
    *query = *mark ? mark + 1 : mark;
    *mark = '\0';
    *path = rest;
    return 0;
}

int path_split(const char *path, char parts[HTTP_PATH_PARTS][HTTP_PATH_PART], int *count)
{
    int found = 0;
    while (*path == '/' && (path[1] || found > 0)) {
        size_t length = strcspn(++path, "/");
        if (found == HTTP_PATH_PARTS || percent_decode(path, length, false, parts[found], HTTP_PATH_PART, "The path") ||
            !parts[found][0] || strspn(parts[found], ".") == strlen(parts[found]) || strchr(parts[found], '/'))
            return err_set(ERR_NOT_FOUND, "There is nothing at this path. GET / lists the paths.");
        found++;
        path += length;
    }
    *count = found;
    return 0;
}

int address_split(const char *text, char host[HTTP_NAME], int *port)
{
    const char *colon = strrchr(text, ':');
    const char *from = text, *to = colon;
    if (colon && *text == '[') {
        from++;
        to = colon > from && colon[-1] == ']' ? colon - 1 : NULL;
    }
    char *end = NULL;
    long number = colon && isdigit((unsigned char)colon[1]) ? strtol(colon + 1, &end, 10) : -1;
    if (!to || to <= from || (size_t)(to - from) >= HTTP_NAME || number < 0 || number > 65535 || *end)
        return err_set(ERR_BAD_PARAMETER, "\"%.64s\" is not an address and port such as 127.0.0.1:8080 or [::1]:8080.",
                       text);
    memcpy(host, from, (size_t)(to - from));
    host[to - from] = '\0';
    *port = (int)number;
    return 0;
}

/* Whether `name` (of `length`) is localhost or a loopback address. */
static bool name_is_loopback(const char *name, size_t length)
{
    if (length == 9 && strncasecmp(name, "localhost", 9) == 0)
        return true;
    if (length == 5 && strncmp(name, "[::1]", 5) == 0)
        return true;
    return length >= 7 && length <= 15 && strncmp(name, "127.", 4) == 0 && strspn(name, "0123456789.") >= length;
}

bool host_is_known(const char *header, const char *names, bool local)
{
    if (!*names && !local)
        return true;
    if (!header)
        return false;
    size_t length = *header == '[' ? strcspn(header, "]") + 1 : strcspn(header, ":");
    if (length > strlen(header))
        return false;
    const char *port = header + length;
    if (*port && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1)))
        return false;
    if (length > 1 && header[length - 1] == '.') /* "localhost." is localhost */
        length--;
    if (!*names)
        return name_is_loopback(header, length);
    for (const char *name = names + strspn(names, ", "); *name; name += strspn(name, ", ")) {
        size_t named = strcspn(name, ", ");
        if (named == length && strncasecmp(name, header, length) == 0)
            return true;
        name += named;
    }
    return false;
}

bool origin_is_host(const char *origin, const char *host)
{
    size_t scheme = strncasecmp(origin, "http://", 7) == 0 ? 7 : strncasecmp(origin, "https://", 8) == 0 ? 8 : 0;
    return scheme && host && strcasecmp(origin + scheme, host) == 0;
}

int64_t number_parse(const char *text)
{
    char *end;
    if (!text || *text < '0' || *text > '9' || strlen(text) > 18)
        return -1;
    long long value = strtoll(text, &end, 10);
    return *end ? -1 : value;
}

bool number_in(const char *text, int64_t most, int64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9' || strlen(text) > 18)
        return false;
    *out = strtoll(text, &end, 10);
    return !*end && *out >= 1 && *out <= most;
}

void header_string(const char *text, char *out, size_t size)
{
    static const char more[] = "...";
    char *to = out, *end = out + size - sizeof more - 1; /* space for the dots, the quote and the NUL */
    *to++ = '"';
    for (; *text; text++) {
        bool quoted = *text == '"' || *text == '\\';
        if ((*text & 0xc0) == 0x80) /* a continuation byte of UTF-8 */
            continue;
        if (to + quoted >= end)
            break;
        if (quoted)
            *to++ = '\\';
        *to++ = (unsigned char)*text < ' ' || (unsigned char)*text > '~' ? '?' : *text;
    }
    if (*text)
        to += strlen(strcpy(to, more));
    strcpy(to, "\"");
}
