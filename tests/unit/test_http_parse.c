/* daemon/http/http_parse.h: queries, paths, Prefer, Accept, Range, ETags, addresses. */
#include "daemon/http/http_fields.h"
#include "daemon/http/http_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static void queries_are_decoded(void **state)
{
    (void)state;
    const char *query = "&kind=recon&&group=a%2Fb+c%c3%a9&empty=&bare&x=y=z";
    static const char *const expected[][2] = {
        {"kind", "recon"}, {"group", "a/b c\xc3\xa9"}, {"empty", ""}, {"bare", ""}, {"x", "y=z"}};
    char name[HTTP_NAME], value[HTTP_VALUE];
    bool found;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(query_next(&query, name, value, &found), 0);
        assert_true(found);
        assert_string_equal(name, expected[i][0]);
        assert_string_equal(value, expected[i][1]);
    }
    assert_int_equal(query_next(&query, name, value, &found), 0);
    assert_false(found);
}

static void broken_queries_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"a=%",         "a=%4",           "a=%zz", "a=%00", "a=%ff", "a=%c3", "a=%c0%80",
                                      "a=%ed%a0%80", "a=%f4%90%80%80", "a=%0a", "%7f=1", "=1",    "a=\xe9"};
    char name[HTTP_NAME], value[HTTP_VALUE], longest[2 * HTTP_VALUE];
    bool found;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *query = bad[i];
        if (query_next(&query, name, value, &found) != ERR_BAD_REQUEST)
            fail_msg("\"%s\" was taken", bad[i]);
    }
    memset(longest, 'v', sizeof longest);
    memcpy(longest, "a=", 2);
    longest[2 + HTTP_VALUE - 1] = '\0';
    const char *query = longest;
    assert_int_equal(query_next(&query, name, value, &found), 0);
    longest[2 + HTTP_VALUE - 1] = 'v';
    longest[2 + HTTP_VALUE] = '\0';
    query = longest;
    assert_int_equal(query_next(&query, name, value, &found), ERR_BAD_REQUEST);
}

static int two_take(void *context, const char *name, const char *value)
{
    int *taken = context;
    assert_int_equal(name[0], 'a' + *taken);
    assert_int_equal(value[0], '1' + *taken);
    return ++*taken < 2 ? 0 : ERR_BAD_PARAMETER;
}

static void a_query_is_parsed_until_a_parameter_is_refused(void **state)
{
    (void)state;
    int taken = 0;
    assert_int_equal(query_each("", two_take, &taken), 0);
    assert_int_equal(query_each("a=1", two_take, &taken), 0);
    assert_int_equal(taken, 1);
    taken = 0;
    assert_int_equal(query_each("a=1&b=2&c=3", two_take, &taken), ERR_BAD_PARAMETER);
    assert_int_equal(taken, 2);
    taken = 0;
    assert_int_equal(query_each("a=1&b=%zz", two_take, &taken), ERR_BAD_REQUEST);
    assert_int_equal(taken, 1);
}

static void paths_are_split(void **state)
{
    (void)state;
    char parts[HTTP_PATH_PARTS][HTTP_PATH_PART];
    int count = -1;
    assert_int_equal(path_split("/", parts, &count), 0);
    assert_int_equal(count, 0);
    assert_int_equal(path_split("/v1/jobs/a%2Db", parts, &count), 0);
    assert_int_equal(count, 3);
    assert_string_equal(parts[0], "v1");
    assert_string_equal(parts[2], "a-b");
    static const char *const bad[] = {"//",      "/v1/",   "/v1//jobs", "/v1/../x", "/.",
                                      "/%2e%2e", "/a%2fb", "/%00",      "/%zz",     "/1/2/3/4/5/6/7"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (path_split(bad[i], parts, &count) != ERR_NOT_FOUND)
            fail_msg("\"%s\" was taken", bad[i]);
}

static void prefer_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int wait;
    } cases[] = {{NULL, -1},
                 {"", -1},
                 {"wait=10", 10},
                 {"respond-async, wait=7", 7},
                 {"Wait = \"8\"; x=1", 8},
                 {"wait", -1},
                 {"wait=", -1},
                 {"wait=-3", -1},
                 {"waiting=5", -1},
                 {"foo=\"a, wait=3\"", -1},
                 {"wait=0", 0},
                 {"wait=99999999999999999999", 1000000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(prefer_wait(cases[i].header), cases[i].wait);
}

static void preferences_without_a_value(void **state)
{
    (void)state;
    assert_true(prefer_has("cancel-on-disconnect", "cancel-on-disconnect"));
    assert_true(prefer_has("wait=60,Cancel-On-Disconnect ", "cancel-on-disconnect"));
    assert_true(prefer_has("cancel-on-disconnect\t, wait=60", "cancel-on-disconnect"));
    assert_false(prefer_has("cancel-on-disconnects", "cancel-on-disconnect"));
    assert_false(prefer_has("cancel-on-disconnect=no", "cancel-on-disconnect"));
    assert_false(prefer_has("foo=\"x, cancel-on-disconnect\"", "cancel-on-disconnect"));
    assert_false(prefer_has("", "cancel-on-disconnect"));
    assert_false(prefer_has(NULL, "cancel-on-disconnect"));
}

static void accept_is_weighed(void **state)
{
    (void)state;
    static const struct {
        const char *header, *media;
        int quality, closeness;
    } cases[] = {
        {NULL, "image/png", 1000, 1},
        {"", "image/png", 1000, 1},
        {"*/*", "image/png", 1000, 1},
        {"image/png", "image/png", 1000, 3},
        {"IMAGE/PNG;q=0.5", "image/png", 500, 3},
        {"image/*;q=0.25, */*;q=0.1", "image/png", 250, 2},
        {"image/*;q=0.25, */*;q=0.1", "application/x-npy", 100, 1},
        {"image/png;q=0, */*", "image/png", 0, 3},
        {"text/html", "image/png", 0, 0},
        {"image/pngx", "image/png", 0, 0},
        {"image/png ; charset=x ; q=0.123", "image/png", 123, 3},
        {"a/b;x=\"image/png,\", image/png;q=0.7", "image/png", 700, 3},
        {"image/png;q=", "image/png", 1000, 3},
        {"image/png;q=x", "image/png", 0, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int closeness, quality = accept_quality(cases[i].header, cases[i].media, &closeness);
        if (quality != cases[i].quality || closeness != cases[i].closeness)
            fail_msg("\"%s\": %d, %d", cases[i].header ? cases[i].header : "NULL", quality, closeness);
    }
}

static void ranges_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t bytes;
        enum range_kind kind;
        int64_t first, last;
    } cases[] = {
        {NULL, 10, RANGE_WHOLE, 0, 0},
        {"bytes=0-0", 10, RANGE_PART, 0, 0},
        {"bytes=2-5", 10, RANGE_PART, 2, 5},
        {"bytes=7-", 10, RANGE_PART, 7, 9},
        {"bytes=7-99", 10, RANGE_PART, 7, 9},
        {"bytes=-3", 10, RANGE_PART, 7, 9},
        {"bytes=-99", 10, RANGE_PART, 0, 9},
        {"bytes=10-", 10, RANGE_OUTSIDE, 0, 0},
        {"bytes=-0", 10, RANGE_OUTSIDE, 0, 0},
        {"bytes=0-", 0, RANGE_OUTSIDE, 0, 0},
        {"bytes=-5", 0, RANGE_OUTSIDE, 0, 0},
        {"bytes=5-2", 10, RANGE_WHOLE, 0, 0},
        {"bytes=a-b", 10, RANGE_WHOLE, 0, 0},
        {"bytes=-", 10, RANGE_WHOLE, 0, 0},
        {"bytes=", 10, RANGE_WHOLE, 0, 0},
        {"bytes", 10, RANGE_WHOLE, 0, 0},
        {"lines=1-2", 10, RANGE_WHOLE, 0, 0},
        {"bytes=1-2,4-5", 10, RANGE_WHOLE, 0, 0},
        {"bytes=1-2x", 10, RANGE_WHOLE, 0, 0},
        {"bytes=99999999999999999999-", 10, RANGE_OUTSIDE, 0, 0},
        {"bytes=1-99999999999999999999", 10, RANGE_PART, 1, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t first = 0, last = 0;
        enum range_kind kind = range_parse(cases[i].header, cases[i].bytes, &first, &last);
        if (kind != cases[i].kind || (kind == RANGE_PART && (first != cases[i].first || last != cases[i].last)))
            fail_msg("\"%s\": kind %d, %lld-%lld", cases[i].header ? cases[i].header : "NULL", (int)kind,
                     (long long)first, (long long)last);
    }
}

static void etags_are_compared(void **state)
{
    (void)state;
    assert_true(etag_listed("\"a\"", "\"a\"", false));
    assert_true(etag_listed("*", "\"a\"", false));
    assert_true(etag_listed("\"b\", \"a\" ", "\"a\"", false));
    assert_true(etag_listed("\"b,\",\"a\"", "\"a\"", false));
    assert_true(etag_listed("W/\"a\"", "\"a\"", true));
    assert_false(etag_listed("W/\"a\"", "\"a\"", false));
    assert_false(etag_listed("\"b\"", "\"a\"", true));
    assert_false(etag_listed("a", "\"a\"", true));
    assert_false(etag_listed("", "\"a\"", true));
    assert_false(etag_listed("\"a", "\"a\"", true));
}

static void addresses_are_split(void **state)
{
    (void)state;
    char host[HTTP_NAME];
    int port;
    assert_int_equal(address_split("127.0.0.1:8080", host, &port), 0);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 8080);
    assert_int_equal(address_split("[::1]:0", host, &port), 0);
    assert_string_equal(host, "::1");
    static const char *const bad[] = {"",     "127.0.0.1", ":80",  "[]:80",   "a:65536",
                                      "a:-1", "a:",        "a:8x", "[::1:80", "a: 8"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (address_split(bad[i], host, &port) != ERR_BAD_PARAMETER)
            fail_msg("\"%s\" was taken", bad[i]);
}

static void queries_are_checked(void **state)
{
    (void)state;
    char many[1000] = "";
    assert_int_equal(query_check(""), 0);
    assert_int_equal(query_check("a=1&b=2&A=3"), 0);
    assert_int_equal(query_check("a=1&b=2&a=1"), ERR_BAD_PARAMETER);
    assert_int_equal(query_check("%61=1&a="), ERR_BAD_PARAMETER);
    assert_int_equal(query_check("a=%zz"), ERR_BAD_REQUEST);
    for (int i = 0; i < 63; i++)
        snprintf(many + strlen(many), 16, "p%d=1&", i);
    assert_int_equal(query_check(many), 0);
    strcat(many, "q=1&r=1");
    assert_int_equal(query_check(many), ERR_BAD_REQUEST);
}

static void hosts_are_compared_with_the_list(void **state)
{
    (void)state;
    static const char *const own[] = {"localhost", "LocalHost:8080", "127.0.0.1",  "127.0.0.1:1",    "127.9.8.7",
                                      "[::1]",     "[::1]:80",       "localhost.", "localhost.:8080"};
    static const char *const other[] = {"",
                                        "evil.example",
                                        "localhost.evil.example",
                                        "127.0.0.1.evil.example",
                                        "[::2]",
                                        "[::1",
                                        "10.0.0.1",
                                        "localhos",
                                        "1127.0.0.1",
                                        "127.0.0.1x",
                                        ":localhost",
                                        "[::1].evil.example",
                                        "localhost:evil.example",
                                        "127.0.0.1:80/",
                                        ".",
                                        "localhost.."};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (!host_is_known(own[i], "", true))
            fail_msg("%s is not accepted", own[i]);
        assert_false(host_is_known(own[i], "recon.example", true));
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        if (host_is_known(other[i], "", true))
            fail_msg("%s is known", other[i]);
        assert_true(host_is_known(other[i], "", false));
    }
    assert_false(host_is_known(NULL, "", true));
    assert_true(host_is_known("Recon.example:8443", "a.example, recon.example", false));
    assert_true(host_is_known("recon.example.:8443", "a.example, recon.example", false));
    assert_true(host_is_known("a.example", "a.example,recon.example", true));
    assert_false(host_is_known("b.example", "a.example,recon.example", false));
    assert_false(host_is_known("a.example:x", "a.example", false));
    assert_false(host_is_known("", ", a.example", false));
    assert_false(host_is_known(NULL, "a.example", false));
}

static void origins_are_hosts(void **state)
{
    (void)state;
    assert_true(origin_is_host("http://localhost:8080", "localhost:8080"));
    assert_true(origin_is_host("https://Recon.example", "recon.example"));
    static const char *const other[] = {"",
                                        "null",
                                        "http://",
                                        "http://localhost:80",
                                        "http://localhost",
                                        "localhost:8080",
                                        "file://",
                                        "http://evil.example",
                                        "http://localhost:8080.evil.example",
                                        "http://localhost:8080/",
                                        "ftp://localhost:8080"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (origin_is_host(other[i], "localhost:8080"))
            fail_msg("%s is of localhost:8080", other[i]);
    assert_false(origin_is_host("http://localhost:8080", NULL));
}

static void targets_are_split(void **state)
{
    (void)state;
    static const struct {
        const char *target, *host, *path, *query; /* path NULL: the target is refused */
    } table[] = {
        {"/", NULL, "/", ""},
        {"/v1/jobs?a=b?c", NULL, "/v1/jobs", "a=b?c"},
        {"/http://other/", NULL, "/http://other/", ""},
        {"http://localhost/livez", "localhost", "/livez", ""},
        {"HTTPS://[::1]:80/v1/jobs?a=http://b/", "[::1]:80", "/v1/jobs", "a=http://b/"},
        {"http://localhost", "localhost", "", ""},
        {"http://a?b", "a", "", "b"},
        {"", NULL, NULL, NULL},
        {"*", NULL, NULL, NULL},
        {"livez", NULL, NULL, NULL},
        {"localhost:80", NULL, NULL, NULL},
        {"http:///livez", NULL, NULL, NULL},
        {"ftp://localhost/", NULL, NULL, NULL},
        {"/li vez", NULL, NULL, NULL},
        {"/livez ", NULL, NULL, NULL},
        {"/livez#a", NULL, NULL, NULL},
        {"/li\tvez", NULL, NULL, NULL},
        {"/livez\x7f", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[64];
        const char *host, *path, *query;
        snprintf(text, sizeof text, "%s", table[i].target);
        int result = target_split(text, &host, &path, &query);
        if (result != (table[i].path ? 0 : ERR_BAD_REQUEST))
            fail_msg("%s gives %d", table[i].target, result);
        if (result)
            continue;
        assert_string_equal(path, table[i].path);
        assert_string_equal(query, table[i].query);
        assert_string_equal(host ? host : "none", table[i].host ? table[i].host : "none");
    }
}

static void tokens_have_no_separators(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", " ", "A ", " A", "A:", "A(B)", "A\tB", "\xc3\xa4", "A/B", "\x01"};
    assert_true(token_is_clean("X-Job-Id"));
    assert_true(token_is_clean("a_1.~!#"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (token_is_clean(wrong[i]))
            fail_msg("\"%s\" is a token", wrong[i]);
}

static void numbers_are_whole(void **state)
{
    (void)state;
    assert_int_equal(number_parse("0"), 0);
    assert_int_equal(number_parse("999999999999999999"), 999999999999999999);
    static const char *const none[] = {"", " 1", "+1", "-1", "1 ", "0x10", "1e3", "1000000000000000000", "12a"};
    assert_int_equal(number_parse(NULL), -1);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(number_parse(none[i]), -1);
}

static void times_are_ages_or_utc_timestamps(void **state)
{
    (void)state;
    const int64_t now = 1800000000000, day = 86400000;
    int64_t time;
    static const struct {
        const char *text;
        int64_t seconds;
    } ages[] = {{"0", 0}, {"90", 90}, {"90s", 90}, {"15m", 900}, {"12h", 43200}, {"7d", 604800}};
    for (size_t i = 0; i < sizeof ages / sizeof *ages; i++) {
        assert_true(since_parse(ages[i].text, now, &time));
        assert_int_equal(time, now - 1000 * ages[i].seconds);
    }
    assert_true(since_parse("999999999d", now, &time));
    assert_int_equal(time, 1); /* not 0, which means any time */
    static const struct {
        const char *text;
        int64_t time; /* ms within the day */
    } times[] = {{"2026-11-22", 0},
                 {"2026-11-22T03:04Z", 11040000},
                 {"2026-11-22T03:04:05Z", 11045000},
                 {"2026-11-22T03:04:05.25Z", 11045250},
                 {"2026-11-22T03:04:05.123456789Z", 11045123}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        assert_true(since_parse(times[i].text, now, &time));
        assert_int_equal(time, 20779 * day + times[i].time); /* date -d 2026-11-22 +%s, in days */
    }
    static const char *const none[] = {"",
                                       "h",
                                       "12 h",
                                       "12H",
                                       "1w",
                                       "-1",
                                       "+5",
                                       "1.5h",
                                       "9999999999",
                                       "1h30m",
                                       "2026-",
                                       "2026-11",
                                       "2026-11-32",
                                       "2026-02-31",
                                       "2026-13-01",
                                       "2026-00-10",
                                       "2026-11-22 03:00",
                                       "2026-11-22T03:00",
                                       "2026-11-22T24:00Z",
                                       "2026-11-22T03:60Z",
                                       "2026-11-22T03:00:60Z",
                                       "2026-11-22T03:00:00.Z",
                                       "2026-11-22T 3:00Z",
                                       "2026-11-22T03:00:00+01:00",
                                       "2026-11-22T03:00Zx",
                                       "1969-12-31",
                                       "yesterday"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (since_parse(none[i], now, &time))
            fail_msg("\"%s\" is a time", none[i]);
}

static void text_becomes_a_quoted_header_string(void **state)
{
    (void)state;
    static const struct {
        const char *text, *string;
    } cases[] = {
        {"", "\"\""},
        {"84 % of k-space, no more.", "\"84 % of k-space, no more.\""},
        {"a \"b\" c\\d", "\"a \\\"b\\\" c\\\\d\""},
        {"two\r\nlines\tand \x7f", "\"two??lines?and ?\""},
        {"M\xc3\xbcller \xe2\x82\xac \xf0\x9f\x92\xa9.", "\"M?ller ? ?.\""},
        {"0123456789012345678901234567", "\"01234567890123456789012345...\""},
        {"01234567890123456789012345", "\"01234567890123456789012345\""},
        {"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"", "\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"\\\"...\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[33];
        memset(out, 'x', sizeof out);
        header_string(cases[i].text, out, 32);
        assert_string_equal(out, cases[i].string);
        assert_int_equal(out[32], 'x');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_are_decoded),
        cmocka_unit_test(broken_queries_are_refused),
        cmocka_unit_test(a_query_is_parsed_until_a_parameter_is_refused),
        cmocka_unit_test(paths_are_split),
        cmocka_unit_test(prefer_is_read),
        cmocka_unit_test(accept_is_weighed),
        cmocka_unit_test(ranges_are_read),
        cmocka_unit_test(etags_are_compared),
        cmocka_unit_test(addresses_are_split),
        cmocka_unit_test(queries_are_checked),
        cmocka_unit_test(hosts_are_compared_with_the_list),
        cmocka_unit_test(origins_are_hosts),
        cmocka_unit_test(preferences_without_a_value),
        cmocka_unit_test(numbers_are_whole),
        cmocka_unit_test(times_are_ages_or_utc_timestamps),
        cmocka_unit_test(targets_are_split),
        cmocka_unit_test(text_becomes_a_quoted_header_string),
        cmocka_unit_test(tokens_have_no_separators),
    };
    return cmocka_run_group_tests_name("http_parse", tests, NULL, NULL);
}
