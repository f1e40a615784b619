/* libFuzzer target: everything that reads a query string, a path or a header (daemon/http_parse.h), and the parameters
 * of a job (recon/kinds.c). The input's first byte picks the reader; the rest is its text. */
#include "daemon/http_parse.h"
#include "recon/recon.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void read_query(const char *text)
{
    char name[HTTP_NAME], value[HTTP_VALUE];
    struct param_values values;
    bool found = true;
    param_values_init(&recon_kinds[0], &values);
    while (query_next(&text, name, value, &found) == 0 && found) {
        check(*name && text_is_clean(name) && text_is_clean(value));
        param_values_set(&recon_kinds[0], &values, name, value);
    }
}

static void read_path(const char *text)
{
    char parts[HTTP_PATH_PARTS][HTTP_PATH_PART];
    int count = 0;
    if (path_split(text, parts, &count) == 0)
        for (int i = 0; i < count; i++)
            check(*parts[i] && strcmp(parts[i], "..") != 0 && !strchr(parts[i], '/'));
}

static void read_headers(const char *text)
{
    int closeness, quality = accept_quality(text, "image/png", &closeness), wait = prefer_wait(text);
    check(quality >= 0 && quality <= 1000 && closeness >= 0 && closeness <= 3 && wait >= -1 && wait <= 1000000);
    etag_listed(text, "\"a\"", true);
    etag_listed(text, "\"a\"", false);
}

static void read_range(const char *text)
{
    for (int64_t bytes = 0; bytes < 20; bytes += 7) {
        int64_t first = -1, last = -1;
        if (range_parse(text, bytes, &first, &last) == RANGE_PART)
            check(first >= 0 && first <= last && last < bytes);
    }
}

static void read_address(const char *text)
{
    char host[HTTP_NAME];
    int port = -1;
    if (address_split(text, host, &port) == 0)
        check(port >= 0 && port <= 65535 && *host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *) = {read_query, read_path, read_headers, read_range, read_address};
    if (size < 1)
        return 0;
    char *text = malloc(size);
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    readers[data[0] % (sizeof readers / sizeof *readers)](text);
    free(text);
    return 0;
}
