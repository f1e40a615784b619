#include "daemon/http/http_fields.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char *space_skip(const char *text)
{
    return text + strspn(text, " \t");
}

/* The weight behind a coding, ";q=0.5", as thousandths; 1000 without one, 0 if it is malformed. */
static int weight_read(const char *text, const char *end)
{
    text = space_skip(text);
    if (text >= end)
        return 1000;
    if (*text != ';')
        return 0;
    text = space_skip(text + 1);
    if (end - text < 3 || tolower((unsigned char)text[0]) != 'q' || text[1] != '=' ||
        (text[2] != '0' && text[2] != '1'))
        return 0;
    int weight = 1000 * (text[2] - '0'), digit = 100;
    if (text[3] == '.')
        for (const char *at = text + 4; at < end && isdigit((unsigned char)*at); at++, digit /= 10)
            weight += digit * (*at - '0');
    return weight < 1000 ? weight : 1000;
}

int coding_quality(const char *header, const char *coding)
{
    int any = 0;
    size_t whole = strlen(coding);
    for (const char *text = header; text && *text;) {
        text = space_skip(text);
        size_t length = strcspn(text, ","), name = strcspn(text, ";, \t");
        const char *end = text + length;
        while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        if (name == whole && strncasecmp(text, coding, whole) == 0)
            return weight_read(text + name, end);
        if (name == 1 && *text == '*')
            any = weight_read(text + name, end);
        text += length;
        text += *text == ',';
    }
    return any;
}
