/* libFuzzer target: request fields: query strings with the parameters of a job (recon/kinds.c), paths, Accept, Range,
 * ETags, Prefer, Host and addresses. */
#include "daemon/http/http_fields.h"
#include "recon/recon.h"
#include "tests/fuzz/fuzz.h"

#include <strings.h>
#include <time.h>

/* Every byte as %XX, which every reader must decode to the same byte. */
static char *escape(char *to, const char *text)
{
    for (; *text; text++)
        to += snprintf(to, 4, "%%%02X", (unsigned char)*text);
    return to;
}

/* A parameter that was accepted has a value within its table's limits, and is accepted again from its own text. */
static void check_parameter(const char *name, const char *value)
{
    const struct kind *kind = kinds[0];
    struct param_values before, after, again;
    param_values_init(kind, &before);
    after = before;
    if (!check_result(param_values_set(kind, &after, name, value))) {
        check(memcmp(&before, &after, sizeof before) == 0);
        return;
    }
    int i = 0;
    while (strcmp(kind->params[i].name, name) != 0)
        i++;
    const struct param *param = &kind->params[i];
    /* A set is stored in the order of its table. */
    const bool same = strcmp(after.value[i].text, param_spelling(param, value)) == 0;
    check(after.value[i].given && (same || (param->type == PARAM_SET && strlen(after.value[i].text) == strlen(value))));
    bool number = param->type == PARAM_REAL || param->type == PARAM_INT;
    for (int j = 0; number && param->choices && param->choices[j]; j++)
        number = strcmp(param->choices[j], after.value[i].text) != 0;
    if (number)
        check(after.value[i].real >= param->min && after.value[i].real <= param->max);
    check_result(kind_check(kind, &after));
    again = after;
    check(param_values_set(kind, &again, name, after.value[i].text) == 0);
    check(memcmp(&after, &again, sizeof after) == 0);
}

/* An accepted time is an age or a date; printed as a date, it is accepted as the same second. */
static void check_since(const char *text)
{
    const int64_t now = 1800000000000;
    int64_t time, again;
    char date[40];
    if (!since_parse(text, now, &time))
        return;
    check(time >= 1 && (strchr(text, '-') || time <= now));
    const time_t seconds = (time_t)(time / 1000);
    struct tm utc;
    check(gmtime_r(&seconds, &utc) != NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    check(seconds < 1 || (since_parse(date, now, &again) && again / 1000 == time / 1000));
}

static void read_query(const char *text)
{
    char name[HTTP_NAME], value[HTTP_VALUE], name_again[HTTP_NAME], value_again[HTTP_VALUE];
    char escaped[3 * (HTTP_NAME + HTTP_VALUE) + 2];
    bool found = true;
    if (!check_result(query_check(text)))
        return;
    while (query_next(&text, name, value, &found) == 0 && found) {
        check(*name && text_is_clean(name) && text_is_clean(value));
        check_parameter(name, value);
        check_since(value);
        char *to = escape(escaped, name);
        *to++ = '=';
        *escape(to, value) = '\0';
        const char *query = escaped;
        check(query_next(&query, name_again, value_again, &found) == 0 && found && !*query);
        check(strcmp(name, name_again) == 0 && strcmp(value, value_again) == 0);
    }
    check(!found);
}

/* Joining the parts of a target gives the target. */
static void check_target(const char *text)
{
    const char *host, *path, *query;
    size_t scheme = strncasecmp(text, "http://", 7) == 0 ? 7 : strncasecmp(text, "https://", 8) == 0 ? 8 : 0;
    char *uri = strdup(text);
    check(uri != NULL);
    if (check_result(target_split(uri, &host, &path, &query))) {
        check((host != NULL) == (scheme > 0) && (*path == '/' || (host && !*path)) && !strchr(path, '?'));
        text += scheme;
        for (const char *const *part = (const char *const[]){host ? host : "", path, NULL}; *part; part++) {
            check(strncmp(text, *part, strlen(*part)) == 0);
            text += strlen(*part);
        }
        check(strcmp(text + (*text == '?'), query) == 0 && !strchr(query, '#'));
    }
    free(uri);
}

static void read_path(const char *text)
{
    char parts[HTTP_PATH_PARTS][HTTP_PATH_PART], again[HTTP_PATH_PARTS][HTTP_PATH_PART];
    char escaped[HTTP_PATH_PARTS * (1 + 3 * HTTP_PATH_PART) + 1], *to = escaped;
    int count = 0, count_again = 0;
    check_target(text);
    if (!check_result(path_split(text, parts, &count)))
        return;
    for (int i = 0; i < count; i++) {
        check(*parts[i] && strcmp(parts[i], "..") != 0 && !strchr(parts[i], '/') && text_is_clean(parts[i]));
        *to++ = '/';
        to = escape(to, parts[i]);
    }
    *to = '\0';
    check(path_split(escaped, again, &count_again) == 0 && count == count_again);
    for (int i = 0; i < count; i++)
        check(strcmp(parts[i], again[i]) == 0);
}

static void read_accept(const char *text)
{
    int closeness, quality = accept_quality(text, "image/png", &closeness);
    check(quality >= 0 && quality <= 1000 && closeness >= 0 && closeness <= 3 && (closeness > 0 || quality == 0));
}

/* A cookie's value must occur in the header, and contain no character that would end it. */
static void read_cookies(const char *text)
{
    char value[16], name[32] = "m=";
    int count = cookie_find(text, "m", value, sizeof value);
    check(count >= 0 && strlen(value) < sizeof value && !strpbrk(value, "; \t") && (count > 0 || !*value));
    strcat(name, value);
    check(count == 0 || strstr(text, name));
}

/* An accepted view is recovered from its text, which must be safe in a file name; any other text is refused. */
static void read_view(const char *text)
{
    static const char *const names[] = {"frame", "slice", "channel", "size", "window"};
    char told[VIEW_TEXT], again[VIEW_TEXT];
    struct result_view view, back;
    view_init(&view);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_result(view_set(&view, names[i], text));
    view_print(&view, told);
    check(strspn(told, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(told) && view_read(told, &back));
    view_print(&back, again);
    check(strcmp(told, again) == 0);
    if (strlen(text) < VIEW_TEXT && view_read(text, &back)) {
        view_print(&back, again);
        check(strcmp(text, again) == 0);
    }
}

static void read_codings(const char *text)
{
    int gzip = coding_quality(text, "gzip"), other = coding_quality(text, "br");
    check(gzip >= 0 && gzip <= 1000 && other >= 0 && other <= 1000);
}

static void read_etags(const char *text)
{
    char *longer = malloc(strlen(text) + 8);
    check(longer != NULL);
    check(!etag_listed(text, "\"a\"", false) || etag_listed(text, "\"a\"", true));
    sprintf(longer, "\"a\", %s", text);
    check(etag_listed(longer, "\"a\"", false));
    sprintf(longer, "W/\"a\",%s", text);
    check(etag_listed(longer, "\"a\"", true) &&
          etag_listed(longer, "\"a\"", false) == etag_listed(text, "\"a\"", false));
    free(longer);
}

static void read_prefer(const char *text)
{
    int wait = prefer_wait(text);
    char again[32];
    check(wait >= -1 && wait <= 1000000);
    snprintf(again, sizeof again, "wait=%d", wait);
    check(prefer_wait(again) == wait);
    if (prefer_has(text, "cancel-on-disconnect"))
        check(strcasestr(text, "cancel-on-disconnect") != NULL);
}

static void read_range(const char *text)
{
    for (int64_t bytes = 0; bytes < 20; bytes += 7) {
        int64_t first = -1, last = -1, first_again, last_again;
        char again[64];
        if (range_parse(text, bytes, &first, &last) != RANGE_PART) {
            check(first == -1 && last == -1);
            continue;
        }
        check(first >= 0 && first <= last && last < bytes);
        snprintf(again, sizeof again, "bytes=%lld-%lld", (long long)first, (long long)last);
        check(range_parse(again, bytes, &first_again, &last_again) == RANGE_PART && first == first_again &&
              last == last_again);
    }
}

static void read_address(const char *text)
{
    char host[HTTP_NAME], host_again[HTTP_NAME], again[HTTP_NAME + 16];
    int port = -1, port_again;
    if (!check_result(address_split(text, host, &port)))
        return;
    check(port >= 0 && port <= 65535 && *host);
    snprintf(again, sizeof again, *text == '[' ? "[%s]:%d" : "%s:%d", host, port);
    check(address_split(again, host_again, &port_again) == 0 && port == port_again && strcmp(host, host_again) == 0);
}

/* Whether `text` is this name, optionally followed by the root's dot and a port. */
static bool is_host(const char *text, const char *name)
{
    size_t length = strlen(name);
    if (strncasecmp(text, name, length) != 0)
        return false;
    text += length;
    text += *text == '.' && *name != '[';
    return !*text || (*text == ':' && strspn(text + 1, "0123456789") == strlen(text + 1));
}

/* The parts of a target must occur in it, and contain only permitted characters. */
static void read_target(const char *text)
{
    char *copy = strdup(text);
    const char *host, *path, *query;
    if (copy && check_result(target_split(copy, &host, &path, &query))) {
        check(!host || *host);
        check(host ? !*path || *path == '/' : *path == '/');
        check(!strpbrk(path, "?#") && !strchr(query, '#') && strlen(path) + strlen(query) <= strlen(text));
    }
    check(!token_is_clean(text) || !strpbrk(text, " :\t"));
    free(copy);
}

/* A browser may be redirected only to one of the names or to this machine. */
static void read_host(const char *text)
{
    char name[HTTP_NAME];
    check(host_is_known(text, "", false));
    check(host_is_known(text, ", other,a.example", true) == (is_host(text, "other") || is_host(text, "a.example")));
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
    bool is_number = strncmp(name, "127.", 4) == 0 && strspn(name, "0123456789.") == strlen(name);
    if (host_is_known(text, "", true))
        check(is_host(text, "localhost") || is_host(text, "[::1]") || (is_number && is_host(text, name)));
    else
        check(!is_host(text, "localhost") && !is_host(text, "[::1]"));
}

FUZZ_TEXT(read_query, read_path, read_accept, read_range, read_address, read_etags, read_prefer, read_host, read_target,
          read_codings, read_view, read_cookies)
