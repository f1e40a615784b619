/* daemon/base/options.h: errors name the line; help, sample and parser come from one table. */
#include "daemon/base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_bytes(struct options *options, const void *bytes, size_t length)
{
    FILE *file = fmemopen((void *)(uintptr_t)bytes, length, "r");
    options_init(options);
    int result = options_read(options, file, "test.conf");
    fclose(file);
    return result;
}

static int read_text(struct options *options, const char *text)
{
    return read_bytes(options, text, strlen(text));
}

static void values_are_read(void **state)
{
    (void)state;
    struct options options;
    assert_int_equal(read_text(&options, "# a comment\n\n listen =  [::1]:0 \nbody-limit=3M\nkeep-scans = failed\n"
                                         "job-time-limit = 0\nspool-reserve = 1KiB\nport-file =\n"),
                     0);
    assert_string_equal(options.listen, "[::1]:0");
    assert_true(options.body_limit == 3 << 20);
    assert_int_equal(options.keep_scans, KEEP_FAILED);
    assert_int_equal(options.job_time_limit, 0);
    assert_int_equal(options.spool_reserve, 1024);
    assert_string_equal(options.port_file, "");
    assert_int_equal(options.queue_limit, 10000); /* not in the file: its default */
    assert_int_equal(options.keep_bytes, -50);    /* half of the disk (per cent are stored as negative numbers) */
    assert_int_equal(read_text(&options, "keep-bytes = 100%\n"), 0);
    assert_int_equal(options.keep_bytes, -100);
    assert_int_equal(read_text(&options, "keep-bytes = 20G\n"), 0);
    assert_true(options.keep_bytes == INT64_C(20) << 30);
}

static void errors_name_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *says[3];
    } cases[] = {
        {"listen = 127.0.0.1:1\nmaxbody = 3\n", ERR_UNKNOWN_PARAMETER, {"test.conf:2:", "maxbody"}},
        {"\n\nbody-limit = 3x\n", ERR_BAD_PARAMETER, {"test.conf:3:", "body-limit", "3x"}},
        {"body-limit = 0", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"body-limit = -1", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"body-limit = 99999999999T", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"http-threads = 1e2", ERR_BAD_PARAMETER, {"test.conf:1:", "from 1 to 256"}},
        {"http-threads = 4 4", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"http-threads =", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"keep-bytes = 0%", ERR_BAD_PARAMETER, {"test.conf:1:", "1% to 100%"}},
        {"keep-bytes = 101%", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"keep-bytes = 5 %", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"keep-bytes = -5", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"spool-limit = 50%", ERR_BAD_PARAMETER, {"test.conf:1:"}},
        {"keep-scans = some", ERR_BAD_PARAMETER, {"test.conf:1:", "none, failed, all"}},
        {"listen\n", ERR_BAD_REQUEST, {"test.conf:1:", "key = value"}},
        {"threads = 1\n# \nthreads = 1\n", ERR_BAD_REQUEST, {"test.conf:3:", "second time"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options options;
        assert_int_equal(read_text(&options, cases[i].text), cases[i].code);
        for (int s = 0; s < 3 && cases[i].says[s]; s++)
            if (!strstr(err_last()->text, cases[i].says[s]))
                fail_msg("\"%s\" does not say \"%s\"", err_last()->text, cases[i].says[s]);
    }
    char longest[1500];
    struct options options;
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "\nlisten = ", 10);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(read_text(&options, longest), ERR_BAD_REQUEST);
    assert_non_null(strstr(err_last()->text, "test.conf:2:"));
    longest[600] = '\0';
    assert_int_equal(read_text(&options, longest), ERR_BAD_PARAMETER);
    static const char wide[] = "\xff\xfet\0h\0r\0e\0a\0d\0s\0=\0001\0\n\0";
    assert_int_equal(read_bytes(&options, wide, sizeof wide - 1), ERR_BAD_REQUEST);
    assert_non_null(strstr(err_last()->text, "UTF-16"));
}

static void command_line_wins_over_the_file(void **state)
{
    (void)state;
    char path[] = "/tmp/test-options-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "threads = 3\nconnections = 9\n", 28), 28);
    close(fd);
    char *const argv[] = {"mrirecond", "--threads=5", "--config", path, NULL};
    struct options options;
    enum options_action action;
    assert_int_equal(options_parse(&options, 4, argv, &action), 0);
    assert_int_equal(action, OPTIONS_RUN);
    assert_int_equal(options.threads, 5);
    assert_int_equal(options.connections, 9);
    unlink(path);
    assert_int_equal(options_parse(&options, 4, argv, &action), ERR_IO);
    assert_non_null(strstr(err_last()->text, path));
}

static void wrong_command_lines_are_refused(void **state)
{
    (void)state;
    char *const lines[][3] = {{"mrirecond", "listen", NULL},   {"mrirecond", "--listen", NULL},
                              {"mrirecond", "--config", NULL}, {"mrirecond", "--", NULL},
                              {"mrirecond", "--lisen", NULL},  {"mrirecond", "--threads=x", NULL}};
    const int codes[] = {ERR_BAD_REQUEST, ERR_BAD_REQUEST,       ERR_BAD_REQUEST,
                         ERR_BAD_REQUEST, ERR_UNKNOWN_PARAMETER, ERR_BAD_PARAMETER};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct options options;
        enum options_action action;
        assert_int_equal(options_parse(&options, 2, lines[i], &action), codes[i]);
        assert_non_null(strstr(err_last()->text, "ommand line"));
    }
    /* The error names the unknown option, not the value after it. */
    char *const behind[] = {"mrirecond", "--lisen", "127.0.0.1:1", NULL};
    struct options options;
    enum options_action action;
    assert_int_equal(options_parse(&options, 3, behind, &action), ERR_UNKNOWN_PARAMETER);
    assert_non_null(strstr(err_last()->text, "lisen"));
}

/* The sample, with every comment sign before an option removed, is a valid configuration equal to the defaults. */
static void sample_is_the_defaults(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    options_sample(out);
    fclose(out);
    int shown = 0;
    for (char *line = text; (line = strchr(line, '\n'));)
        if (*++line == '#' && line[1] != ' ') {
            *line = ' ';
            shown++;
        }
    struct options defaults, sample;
    options_init(&defaults);
    memset(&sample, 0x5a, sizeof sample);
    assert_int_equal(read_text(&sample, text), 0);
    assert_memory_equal(&sample, &defaults, sizeof sample);
    assert_true(shown > 15);
    free(text);
}

static void help_names_every_option_of_the_sample(void **state)
{
    (void)state;
    char *sample = NULL, *help = NULL;
    size_t size;
    FILE *out = open_memstream(&sample, &size);
    options_sample(out);
    fclose(out);
    out = open_memstream(&help, &size);
    options_help(out);
    fclose(out);
    for (char *line = sample; (line = strchr(line, '\n'));) {
        char flag[64];
        if (*++line != '#' || line[1] == ' ')
            continue;
        snprintf(flag, sizeof flag, "--%.*s ", (int)strcspn(line + 1, " "), line + 1);
        if (!strstr(help, flag))
            fail_msg("--help does not name %s", flag);
    }
    free(sample);
    free(help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(errors_name_their_line),
        cmocka_unit_test(command_line_wins_over_the_file),
        cmocka_unit_test(wrong_command_lines_are_refused),
        cmocka_unit_test(sample_is_the_defaults),
        cmocka_unit_test(help_names_every_option_of_the_sample),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
