#include "daemon/base/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_type {
    OPTION_IS_TEXT,
    OPTION_IS_COUNT,
    OPTION_IS_SIZE,
    OPTION_IS_SHARE,
    OPTION_IS_SECONDS,
    OPTION_IS_CHOICE
};

static const struct option {
    const char *key, *fallback, *help;
    enum option_type type;
    size_t offset;              /* in struct options */
    int64_t min, max;           /* inclusive; not of texts and choices */
    const char *const *choices; /* NULL-terminated; the value is the index */
    bool live;                  /* SIGHUP changes it; the others need a restart */
} table[] = {
#define AT(member) .offset = offsetof(struct options, member)
#define KIB(n)     ((int64_t)(n) << 10)
    {"listen", "127.0.0.1:8080",
     "Address and port to serve on, as 127.0.0.1:8080 or [::1]:8080. Port 0 takes a free one. An address that other "
     "machines reach takes TLS and tokens.",
     OPTION_IS_TEXT, AT(listen)},
    {"port-file", "", "File to write the port number to once it is served. Empty: none.", OPTION_IS_TEXT,
     AT(port_file)},
    {"tls-certificate", "", "Certificate, with those that sign it, in PEM. Empty: plain HTTP. Read again at SIGHUP.",
     OPTION_IS_TEXT, AT(tls_certificate)},
    {"tls-key", "", "Key of the certificate, in PEM.", OPTION_IS_TEXT, AT(tls_key)},
    {"tokens", "",
     "File of the tokens that clients send; mrirecond --new-token makes them. Empty: everybody who reaches the service "
     "may do everything. Read again at SIGHUP.",
     OPTION_IS_TEXT, AT(tokens)},
    {"state-dir", "/var/lib/mrirecond",
     "Folder of the job store, the uploaded scans and the results. Made where it is missing.", OPTION_IS_TEXT,
     AT(state_dir)},
    {"devices", "auto",
     "One worker process is run for each: auto (all GPUs, one worker each; the CPU where there is none), cpu, gpu:0, "
     "separated by commas.",
     OPTION_IS_TEXT, AT(devices)},
    {"threads", "0", "CPU threads of a worker. 0: one per core.", OPTION_IS_COUNT, AT(threads), 0, 1024},
    {"worker", "", "Path of mrirecon-worker. Empty: beside mrirecond.", OPTION_IS_TEXT, AT(worker)},
    {"codec", "", "Path of mrirecon-codec. Empty: beside mrirecond.", OPTION_IS_TEXT, AT(codec)},
    {"body-limit", "32G", "Largest upload, in bytes (K, M, G, T: powers of 1024).", OPTION_IS_SIZE, AT(body_limit), 1,
     KIB(KIB(KIB(KIB(64))))},
    {"result-limit", "8G",
     "Largest result of a job, in bytes: its images in all forms that are written at once. Known, and refused, before "
     "they are computed. No result takes more than client-bytes or the disk, either. 0: any.",
     OPTION_IS_SIZE, AT(result_limit), 0, KIB(KIB(KIB(KIB(64)))), .live = true},
    {"spool-limit", "0", "Bytes that waiting uploads may take in all. 0: what the disk has.", OPTION_IS_SIZE,
     AT(spool_limit), 0, KIB(KIB(KIB(KIB(1024))))},
    {"spool-reserve", "512M", "Bytes of the state folder's disk that uploads leave free.", OPTION_IS_SIZE,
     AT(spool_reserve), 0, KIB(KIB(KIB(KIB(1024))))},
    {"work-reserve", "64M",
     "Bytes of the state folder's disk below which no job is begun: what waits is held until there is room for "
     "results.",
     OPTION_IS_SIZE, AT(work_reserve), 0, KIB(KIB(KIB(KIB(1024)))), .live = true},
    {"queue-limit", "10000", "Jobs that may wait; more are refused.", OPTION_IS_COUNT, AT(queue_limit), 1, 1000000,
     .live = true},
    {"client-jobs", "0", "Jobs that one client may have waiting; more are answered with 429. 0: any number.",
     OPTION_IS_COUNT, AT(client_jobs), 0, 1000000, .live = true},
    {"client-bytes", "0", "Bytes that the waiting scans of one client may take; more are answered with 429. 0: any.",
     OPTION_IS_SIZE, AT(client_bytes), 0, KIB(KIB(KIB(KIB(1024)))), .live = true},
    {"priority-ageing", "1800",
     "Seconds of waiting that move a job up by one priority, so that batch jobs come to their turn. 0: waiting does "
     "not.",
     OPTION_IS_SECONDS, AT(priority_ageing), 0, 31 * 86400, .live = true},
    {"keep-scans", "failed",
     "Which uploaded scans stay on the disk when their job has ended, so that it can be run again, until the job is "
     "removed: none, failed (and canceled), all. They give way, those that ended first before the others, where "
     "uploads "
     "need the room, and take half of what uploads may at most.",
     OPTION_IS_CHOICE, AT(keep_scans), .choices = (const char *const[]){"none", "failed", "all", NULL}, .live = true},
    {"keep-jobs", "2592000",
     "Seconds that jobs which have ended are kept, with their results and scans (2592000: 30 days). 0: until they are "
     "deleted.",
     OPTION_IS_SECONDS, AT(keep_jobs), 0, INT64_C(3660) * 86400, .live = true},
    {"keep-bytes", "50%",
     "Bytes, or share of the state folder's disk, that results and kept scans of ended jobs may take; beyond it the "
     "jobs that ended first are removed. 0: any.",
     OPTION_IS_SHARE, AT(keep_bytes), 0, KIB(KIB(KIB(KIB(1024)))), .live = true},
    {"job-names", "jobs",
     "Where the names that senders give their jobs, as those of files, are kept and shown: none (they are dropped), "
     "jobs (with the job, until it is deleted), log (there, and in the log).",
     OPTION_IS_CHOICE, AT(job_names), .choices = (const char *const[]){"none", "jobs", "log", NULL}, .live = true},
    {"job-time-limit", "3600", "Seconds that a job may run. 0: any.", OPTION_IS_SECONDS, AT(job_time_limit), 0,
     31 * 86400, .live = true},
    {"decode-time", "5",
     "Seconds of a processor that reading a scan may take, and one more for each MiB of its file; of the clock four "
     "times as many.",
     OPTION_IS_SECONDS, AT(decode_time), 1, 86400},
    {"cancel-grace", "1", "Seconds that a worker has to stop a canceled job before it is killed.", OPTION_IS_SECONDS,
     AT(cancel_grace), 0, 3600, .live = true},
    {"worker-timeout", "30", "Seconds without a sign of life after which a worker is killed.", OPTION_IS_SECONDS,
     AT(worker_timeout), 1, 3600, .live = true},
    {"progress-timeout", "1800",
     "Seconds without progress of its job after which a worker is killed, though it answers; the job is run once more. "
     "0: any.",
     OPTION_IS_SECONDS, AT(progress_timeout), 0, 86400, .live = true},
    {"start-timeout", "120", "Seconds that a worker may take to warm up.", OPTION_IS_SECONDS, AT(start_timeout), 1,
     3600},
    {"drain-time", "30",
     "Seconds that running jobs have to end after SIGTERM; what still runs then goes back into the queue.",
     OPTION_IS_SECONDS, AT(drain_time), 0, 86400, .live = true},
    {"convert-timeout", "120", "Seconds that writing an image in another format may take.", OPTION_IS_SECONDS,
     AT(convert_timeout), 1, 3600},
    {"upload-lifetime", "86400",
     "Seconds after which an upload in pieces that nothing is added to is removed; one of which nothing has arrived, "
     "after "
     "600 at most.",
     OPTION_IS_SECONDS, AT(upload_lifetime), 1, 366 * 86400},
    {"wait-limit", "600", "Most seconds that a request with Prefer: wait is kept waiting.", OPTION_IS_SECONDS,
     AT(wait_limit), 0, 86400, .live = true},
    {"idle-timeout", "60", "Seconds without a byte after which a connection is closed.", OPTION_IS_SECONDS,
     AT(idle_timeout), 1, 86400},
    {"header-timeout", "20",
     "Seconds that a client may take to send the headers of a request, and after which a connection without a request "
     "is "
     "closed.",
     OPTION_IS_SECONDS, AT(header_timeout), 1, 86400},
    {"upload-rate", "1K", "Bytes a second that a body has to have on average; slower connections are closed.",
     OPTION_IS_SIZE, AT(upload_rate), 0, KIB(KIB(KIB(1)))},
    {"host-names", "",
     "Names, separated by commas, by which clients may call the service. Empty: on loopback only localhost and "
     "loopback "
     "addresses, elsewhere any.",
     OPTION_IS_TEXT, AT(host_names)},
    {"connections", "1000", "Connections served at a time.", OPTION_IS_COUNT, AT(connections), 8, 100000},
    {"address-connections", "0",
     "Connections of one address (IPv6: of one /64 network); beyond that its longest idle one is closed, and where all "
     "are busy, only health is answered. 0: nine tenths of connections. A proxy in front is one address.",
     OPTION_IS_COUNT, AT(address_connections), 0, 100000},
    {"http-threads", "4", "Threads that serve connections.", OPTION_IS_COUNT, AT(http_threads), 1, 256},
    {"log-level", "info", "What is logged to stderr: error, warning, info, debug.", OPTION_IS_CHOICE, AT(log_level),
     .choices = (const char *const[]){"error", "warning", "info", "debug", NULL}, .live = true},
    {"log-format", "text",
     "Lines of the log: text (in systemd's journal entries with the fields JOB, CLIENT, CODE), or a JSON object each "
     "(time, level, job, client, code, message).",
     OPTION_IS_CHOICE, AT(log_format), .choices = (const char *const[]){"text", "json", NULL}},
#undef AT
#undef KIB
};
enum { OPTIONS = sizeof table / sizeof *table };

/* A whole number, with a unit of 1024s where `units`; false where `text` is none. */
static bool number_read(const char *text, bool units, int64_t *out)
{
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text)
        return false;
    static const char letters[] = "KMGT";
    const char *letter = units && *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
    if (letter) {
        for (const char *l = letters; l <= letter; l++)
            if (__builtin_mul_overflow(value, 1024LL, &value))
                return false;
        end++;
        if (*end == 'i')
            end++;
        if (*end == 'B')
            end++;
    }
    *out = value;
    return !*end;
}

/* "50%": 1 to 100. */
static bool share_read(const char *text, int64_t *out)
{
    char *end;
    size_t digits = strspn(text, "0123456789");
    *out = strtoll(text, &end, 10);
    return digits > 0 && digits < 4 && strcmp(end, "%") == 0 && *out >= 1 && *out <= 100;
}

static void size_print(char *text, size_t size, int64_t bytes)
{
    static const char units[] = "\0KMGT";
    int unit = 0;
    for (; unit < 4 && bytes >= 1024 && bytes % 1024 == 0; unit++)
        bytes /= 1024;
    snprintf(text, size, "%lld%.1s", (long long)bytes, units + unit);
}

static void range_describe(const struct option *option, char *text, size_t size)
{
    char low[32], high[32];
    size_t used = 0;
    switch (option->type) {
    case OPTION_IS_CHOICE:
        for (int i = 0; option->choices[i] && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "one of ", option->choices[i]);
        break;
    case OPTION_IS_SIZE:
        size_print(low, sizeof low, option->min);
        size_print(high, sizeof high, option->max);
        snprintf(text, size, "a number of bytes from %s to %s, as 512M", low, high);
        break;
    case OPTION_IS_SHARE:
        size_print(high, sizeof high, option->max);
        snprintf(text, size, "a number of bytes up to %s, as 512M, or a share of the disk from 1%% to 100%%", high);
        break;
    case OPTION_IS_TEXT:
        snprintf(text, size, "a text of at most %d bytes", OPTION_TEXT - 1);
        break;
    default:
        snprintf(text, size, "a whole number%s from %lld to %lld",
                 option->type == OPTION_IS_SECONDS ? " of seconds" : "", (long long)option->min,
                 (long long)option->max);
    }
}

/* Put `text` into its place; false where it is no value of this option. */
static bool value_set(struct options *options, const struct option *option, const char *text)
{
    void *place = (char *)options + option->offset;
    if (option->type == OPTION_IS_TEXT) {
        size_t length = strlen(text);
        if (length >= OPTION_TEXT)
            return false;
        memcpy(place, text, length + 1);
        return true;
    }
    int64_t value = -1;
    if (option->type == OPTION_IS_CHOICE) {
        for (int i = 0; option->choices[i]; i++)
            if (strcmp(option->choices[i], text) == 0)
                value = i;
        if (value < 0)
            return false;
    } else if (option->type == OPTION_IS_SHARE && share_read(text, &value)) {
        value = -value;
    } else if (!number_read(text, option->type == OPTION_IS_SIZE || option->type == OPTION_IS_SHARE, &value) ||
               value < option->min || value > option->max) {
        return false;
    }
    memcpy(place, &value, sizeof value);
    return true;
}

void options_init(struct options *options)
{
    memset(options, 0, sizeof *options);
    for (int i = 0; i < OPTIONS; i++)
        value_set(options, &table[i], table[i].fallback);
}

static int option_find(const char *key)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(table[i].key, key) == 0)
            return i;
    return -1;
}

static int option_unknown(const char *key, const char *where)
{
    return err_set(ERR_UNKNOWN_PARAMETER, "%s: there is no option \"%.64s\". `mrirecond --help` lists all.", where,
                   key);
}

int options_set(struct options *options, const char *key, const char *text, const char *where)
{
    int i = option_find(key);
    if (i < 0)
        return option_unknown(key, where);
    if (!value_set(options, &table[i], text)) {
        char range[200];
        range_describe(&table[i], range, sizeof range);
        return err_set(ERR_BAD_PARAMETER, "%s: %s is \"%.64s\"; it takes %s.", where, key, text, range);
    }
    return 0;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    return text;
}

int options_read(struct options *options, FILE *file, const char *name)
{
    char line[1024], where[OPTION_TEXT + 32];
    bool given[OPTIONS] = {false};
    int number = 0;
    while (fgets(line, sizeof line, file)) {
        snprintf(where, sizeof where, "%s:%d", name, ++number);
        if (!strchr(line, '\n') && !feof(file))
            return err_set(ERR_BAD_REQUEST,
                           "%s: the line is longer than %zu bytes, or holds a NUL byte, as UTF-16 does. Save the file "
                           "as UTF-8.",
                           where, sizeof line - 2);
        char *text = trim(line);
        if (!*text || *text == '#')
            continue;
        char *equals = strchr(text, '=');
        if (!equals)
            return err_set(ERR_BAD_REQUEST, "%s: expected `key = value`, found \"%.64s\".", where, text);
        *equals = '\0';
        char *key = trim(text);
        int result = options_set(options, key, trim(equals + 1), where);
        if (result)
            return result;
        int i = option_find(key);
        if (given[i])
            return err_set(ERR_BAD_REQUEST, "%s: %s is given a second time; keep one of the lines.", where, key);
        given[i] = true;
    }
    if (ferror(file))
        return err_set(ERR_IO, "%s: reading failed: %s.", name, strerror(errno));
    return 0;
}

/* The value of --KEY at argv[*i], in the same word or the next; *i moves to the last word used. */
static int argument_split(int argc, char *const argv[], int *i, char key[OPTION_TEXT], const char **value)
{
    const char *word = argv[*i];
    if (strncmp(word, "--", 2) != 0 || !word[2])
        return err_set(ERR_BAD_REQUEST, "Command line: \"%.64s\" is no option; they begin with --. See --help.", word);
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    snprintf(key, OPTION_TEXT, "%.*s", (int)(length < OPTION_TEXT ? length : OPTION_TEXT - 1), word + 2);
    if (option_find(key) < 0 && strcmp(key, "config") != 0)
        return option_unknown(key, "command line");
    if (!equals && *i + 1 == argc)
        return err_set(ERR_BAD_REQUEST, "Command line: --%s wants a value.", key);
    *value = equals ? equals + 1 : argv[++*i];
    return 0;
}

/* Every option of the command line; only --config where `config`, all but that one where not. */
static int arguments_read(struct options *options, int argc, char *const argv[], bool config)
{
    for (int i = 1; i < argc; i++) {
        char key[OPTION_TEXT];
        const char *value = "";
        int result = argument_split(argc, argv, &i, key, &value);
        if (result)
            return result;
        if ((strcmp(key, "config") == 0) != config)
            continue;
        if (!config) {
            result = options_set(options, key, value, "command line");
        } else {
            FILE *file = fopen(value, "re");
            if (!file)
                return err_set(ERR_IO, "The configuration %s cannot be read: %s.", value, strerror(errno));
            result = options_read(options, file, value);
            fclose(file);
        }
        if (result)
            return result;
    }
    return 0;
}

int options_parse(struct options *options, int argc, char *const argv[], enum options_action *action)
{
    static const char *const actions[] = {
        [OPTIONS_HELP] = "--help", [OPTIONS_SAMPLE] = "--sample-config", [OPTIONS_VERSION] = "--version"};
    *action = OPTIONS_RUN;
    for (int i = 1; i < argc; i++)
        for (int a = OPTIONS_HELP; a <= OPTIONS_VERSION; a++)
            if (strcmp(argv[i], actions[a]) == 0) {
                *action = (enum options_action)a;
                return 0;
            }
    options_init(options);
    int result = arguments_read(options, argc, argv, true);
    return result ? result : arguments_read(options, argc, argv, false);
}

int options_reload(struct options *options, struct options *asked, int argc, char *const argv[], char *restart,
                   size_t size)
{
    struct options fresh;
    enum options_action action;
    int result = options_parse(&fresh, argc, argv, &action);
    size_t used = 0;
    restart[0] = '\0';
    for (int i = 0; !result && i < OPTIONS; i++) {
        const struct option *option = &table[i];
        const void *old = (const char *)asked + option->offset;
        const void *new = (const char *)&fresh + option->offset;
        if (option->type == OPTION_IS_TEXT ? strcmp(old, new) == 0 : *(const int64_t *)old == *(const int64_t *)new)
            continue;
        if (option->live) /* never a text: other threads read it meanwhile */
            __atomic_store_n((int64_t *)((char *)options + option->offset), *(const int64_t *)new, __ATOMIC_RELAXED);
        else if (used < size)
            used += (size_t)snprintf(restart + used, size - used, "%s%s", used ? ", " : "", option->key);
    }
    if (!result)
        *asked = fresh;
    return result;
}

/* Print `text` in lines of at most `width` bytes, each after `lead`. */
static void print_wrapped(FILE *out, const char *lead, const char *text, int width)
{
    while (*text) {
        int length = (int)strlen(text);
        if (length > width) {
            length = width;
            while (length > 0 && text[length] != ' ')
                length--;
        }
        fprintf(out, "%s%.*s\n", lead, length, text);
        text += length;
        while (*text == ' ')
            text++;
    }
}

void options_help(FILE *out)
{
    fputs("mrirecond: takes non-Cartesian MRI scans over HTTP and answers with images.\n\n"
          "  mrirecond [--config FILE] [--OPTION VALUE ...]\n"
          "  mrirecond --new-token CLIENT ROLE [--config FILE] [--tokens FILE]\n"
          "  mrirecond --check-config [--config FILE] [--OPTION VALUE ...]\n"
          "  mrirecond --check-state | --repair-state [--config FILE] [--state-dir FOLDER]\n"
          "  mrirecond --help | --sample-config | --version\n\n"
          "--new-token makes a token, shows it once, and keeps its hash; roles are read, view, submit and admin.\n"
          "--check-config says whether a start would take the configuration, with the files that it names (exit status "
          "0), or what is wrong (2).\n"
          "--check-state compares the job store with the files (exit status 0: sound, 3: damaged, 1: cannot be "
          "looked at).\n"
          "--repair-state saves what can be read of a damaged job store into a new one; the old one is kept.\n"
          "SIGHUP reads configuration, tokens and certificate again. SIGTERM lets running jobs end and stops; a second "
          "one stops at "
          "once.\n\n",
          out);
    for (int i = 0; i < OPTIONS; i++) {
        fprintf(out, "  --%s VALUE  (%s)\n", table[i].key, *table[i].fallback ? table[i].fallback : "empty");
        print_wrapped(out, "        ", table[i].help, 100);
    }
}

void options_sample(FILE *out)
{
    fputs("# Configuration of mrirecond, as `mrirecond --sample-config` prints it: every option with its default.\n",
          out);
    for (int i = 0; i < OPTIONS; i++) {
        fputc('\n', out);
        print_wrapped(out, "# ", table[i].help, 110);
        fprintf(out, "#%s =%s%s\n", table[i].key, *table[i].fallback ? " " : "", table[i].fallback);
    }
}
