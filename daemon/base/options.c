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
    bool live;                  /* changed by SIGHUP; the others need a restart */
} table[] = {
#define AT(member) .offset = offsetof(struct options, member)
#define KIB(n)     ((int64_t)(n) << 10)
    {"listen", "127.0.0.1:8080",
     "Address and port to listen on, e.g. 127.0.0.1:8080 or [::1]:8080. Port 0 picks a free port. An address that "
     "other machines can reach requires TLS and tokens.",
     OPTION_IS_TEXT, AT(listen)},
    {"port-file", "", "File to write the port number to once the service listens. Empty: none.", OPTION_IS_TEXT,
     AT(port_file)},
    {"tls-certificate", "",
     "TLS certificate with its intermediate certificates, in PEM. Empty: plain HTTP. Reread at SIGHUP.", OPTION_IS_TEXT,
     AT(tls_certificate)},
    {"tls-key", "", "Private key of the certificate, in PEM.", OPTION_IS_TEXT, AT(tls_key)},
    {"tokens", "",
     "File of the clients' access tokens; mrirecond --new-token creates them. Empty: everybody who can reach the "
     "service may do everything. Reread at SIGHUP.",
     OPTION_IS_TEXT, AT(tokens)},
    {"mrd-listen", "",
     "Address and port for MRD streams over TCP, the protocol of Gadgetron and Siemens FIRE, e.g. 127.0.0.1:9002. "
     "Empty: none. The protocol has no encryption and no passwords: an address that other machines can reach requires "
     "mrd-clients, and so does any if there are tokens.",
     OPTION_IS_TEXT, AT(mrd_listen)},
    {"mrd-clients", "",
     "Addresses that may send MRD streams, separated by commas: ADDRESS or ADDRESS/BITS, each optionally with =CLIENT, "
     "the client's name for its jobs and quotas (default: the address). Empty: any.",
     OPTION_IS_TEXT, AT(mrd_clients)},
    {"mrd-configs", "",
     "File of the configurations that MRD clients can name: lines of a name and the query of a submission, e.g. `cine "
     "kind=recon&method=llr&frames=20`. Read when a session begins. Empty: none but default and the names of kinds.",
     OPTION_IS_TEXT, AT(mrd_configs)},
    {"destinations", "",
     "File of the destinations to which ended jobs are sent, and of the rules that select the jobs. Empty: none. "
     "Reread at SIGHUP.",
     OPTION_IS_TEXT, AT(destinations)},
    {"mrd-sessions", "16", "Maximum number of simultaneous MRD sessions; one client has at most half of them.",
     OPTION_IS_COUNT, AT(mrd_sessions), 1, 1000},
    {"mrd-idle-timeout", "600",
     "Seconds without a byte after which an MRD session is ended before its scan is complete.", OPTION_IS_SECONDS,
     AT(mrd_idle_timeout), 1, 86400, .live = true},
    {"state-dir", "/var/lib/mrirecond",
     "Folder for the job store, the uploaded scans and the results. Created if it does not exist.", OPTION_IS_TEXT,
     AT(state_dir)},
    {"devices", "auto",
     "Devices, separated by commas; each gets one worker process: auto (every GPU, or the CPU if there is none), cpu, "
     "gpu:0, or gpu:0+1 for GPUs that share large jobs.",
     OPTION_IS_TEXT, AT(devices)},
    {"threads", "0", "CPU threads per worker. 0: one per core.", OPTION_IS_COUNT, AT(threads), 0, 1024},
    {"worker", "", "Path of mrirecon-worker. Empty: in mrirecond's folder.", OPTION_IS_TEXT, AT(worker)},
    {"codec", "", "Path of mrirecon-codec. Empty: in mrirecond's folder.", OPTION_IS_TEXT, AT(codec)},
    {"sender", "", "Path of mrirecon-send. Empty: in mrirecond's folder.", OPTION_IS_TEXT, AT(sender)},
    {"web-dir", "",
     "Folder of the web page's files, which are served at /ui/. Empty: ../share/mrirecond/web beside mrirecond's "
     "folder, if it exists.",
     OPTION_IS_TEXT, AT(web_dir)},
    {"body-limit", "32G", "Maximum size of an upload, in bytes (K, M, G, T: powers of 1024).", OPTION_IS_SIZE,
     AT(body_limit), 1, KIB(KIB(KIB(KIB(64))))},
    {"result-limit", "8G",
     "Maximum size of a job's results, in bytes: the sum of all image formats that are written at once. Larger results "
     "are refused before they are computed. client-bytes and the size of the disk limit them, too. 0: no limit.",
     OPTION_IS_SIZE, AT(result_limit), 0, KIB(KIB(KIB(KIB(64)))), .live = true},
    {"spool-limit", "0", "Maximum total size of waiting uploads, in bytes. 0: limited by the disk only.",
     OPTION_IS_SIZE, AT(spool_limit), 0, KIB(KIB(KIB(KIB(1024))))},
    {"spool-reserve", "512M", "Bytes that uploads leave free on the state folder's disk.", OPTION_IS_SIZE,
     AT(spool_reserve), 0, KIB(KIB(KIB(KIB(1024))))},
    {"work-reserve", "64M",
     "Free bytes on the state folder's disk below which no job starts: waiting jobs are held until there is room for "
     "results.",
     OPTION_IS_SIZE, AT(work_reserve), 0, KIB(KIB(KIB(KIB(1024)))), .live = true},
    {"queue-limit", "10000", "Maximum number of waiting jobs; further ones are refused.", OPTION_IS_COUNT,
     AT(queue_limit), 1, 1000000, .live = true},
    {"client-jobs", "0", "Maximum number of waiting jobs per client; further ones get 429. 0: no limit.",
     OPTION_IS_COUNT, AT(client_jobs), 0, 1000000, .live = true},
    {"client-bytes", "0",
     "Maximum total size of a client's waiting scans, in bytes; further ones get 429. It limits the results of a job, "
     "too. A token's bytes= takes its place. 0: no limit.",
     OPTION_IS_SIZE, AT(client_bytes), 0, KIB(KIB(KIB(KIB(1024)))), .live = true},
    {"priority-ageing", "1800",
     "Seconds of waiting that raise a job by one priority, so that batch jobs are never starved. 0: waiting does not "
     "raise it.",
     OPTION_IS_SECONDS, AT(priority_ageing), 0, 31 * 86400, .live = true},
    {"keep-scans", "failed",
     "Uploaded scans that are kept after their job has ended, until the job is removed, so that the job can be run "
     "again: none, failed (and canceled), all. They take at most half of the space for uploads. If uploads need the "
     "space, the scans of the jobs that ended first are removed first.",
     OPTION_IS_CHOICE, AT(keep_scans), .choices = (const char *const[]){"none", "failed", "all", NULL}, .live = true},
    {"keep-jobs", "2592000",
     "Seconds that ended jobs are kept, with their results and scans (2592000: 30 days). 0: until they are deleted.",
     OPTION_IS_SECONDS, AT(keep_jobs), 0, INT64_C(3660) * 86400, .live = true},
    {"keep-bytes", "50%",
     "Maximum size of the results and kept scans of ended jobs, in bytes or as a share of the state folder's disk; "
     "above it, of the client that keeps most, the jobs that ended first are removed. 0: no limit.",
     OPTION_IS_SHARE, AT(keep_bytes), 0, KIB(KIB(KIB(KIB(1024)))), .live = true},
    {"job-names", "jobs",
     "Storage and display of the names that clients give their jobs, e.g. file names: none (names are discarded), jobs "
     "(with the job, until it is deleted), log (with the job and in the log).",
     OPTION_IS_CHOICE, AT(job_names), .choices = (const char *const[]){"none", "jobs", "log", NULL}, .live = true},
    {"job-time-limit", "3600", "Maximum run time of a job, in seconds. 0: no limit.", OPTION_IS_SECONDS,
     AT(job_time_limit), 0, 31 * 86400, .live = true},
    {"decode-time", "5",
     "CPU seconds that reading a scan may take, plus one per MiB of its file; four times as much in elapsed time.",
     OPTION_IS_SECONDS, AT(decode_time), 1, 86400},
    {"cancel-grace", "1", "Seconds that a worker has to stop a canceled job before it is killed.", OPTION_IS_SECONDS,
     AT(cancel_grace), 0, 3600, .live = true},
    {"worker-timeout", "30", "Seconds without a sign of life after which a worker is killed.", OPTION_IS_SECONDS,
     AT(worker_timeout), 1, 3600, .live = true},
    {"progress-timeout", "1800",
     "Seconds without progress of its job after which a worker is killed, even if it responds; the job is run once "
     "more. 0: no limit.",
     OPTION_IS_SECONDS, AT(progress_timeout), 0, 86400, .live = true},
    {"start-timeout", "120", "Seconds that a worker may take to start and warm up.", OPTION_IS_SECONDS,
     AT(start_timeout), 1, 3600},
    {"drain-time", "30", "Seconds that running jobs have to finish after SIGTERM; unfinished jobs return to the queue.",
     OPTION_IS_SECONDS, AT(drain_time), 0, 86400, .live = true},
    {"convert-timeout", "120", "Seconds that converting an image to another format may take.", OPTION_IS_SECONDS,
     AT(convert_timeout), 1, 3600},
    {"upload-lifetime", "86400",
     "Seconds without new data after which a resumable upload is removed; if it has received no data at all, after 600 "
     "at most.",
     OPTION_IS_SECONDS, AT(upload_lifetime), 1, 366 * 86400},
    {"wait-limit", "600", "Maximum time that a request with Prefer: wait waits, in seconds.", OPTION_IS_SECONDS,
     AT(wait_limit), 0, 86400, .live = true},
    {"idle-timeout", "60", "Seconds without a byte after which a connection is closed.", OPTION_IS_SECONDS,
     AT(idle_timeout), 1, 86400},
    {"header-timeout", "20",
     "Seconds that a client may take to send a request's headers, and after which a connection without a request is "
     "closed.",
     OPTION_IS_SECONDS, AT(header_timeout), 1, 86400},
    {"upload-rate", "1K", "Minimum average rate of a request body, in bytes per second; slower connections are closed.",
     OPTION_IS_SIZE, AT(upload_rate), 0, KIB(KIB(KIB(1)))},
    {"host-names", "",
     "Host names, separated by commas, that requests may use for the service. Empty: on loopback only localhost and "
     "loopback addresses, elsewhere any.",
     OPTION_IS_TEXT, AT(host_names)},
    {"connections", "1000", "Maximum number of simultaneous connections.", OPTION_IS_COUNT, AT(connections), 8, 100000},
    {"address-connections", "0",
     "Maximum number of connections per address (IPv6: per /64 network); above it, the address's connection that has "
     "been idle longest is closed, and if all are busy, only health and metrics requests are answered. 0: nine tenths "
     "of connections. A proxy counts as one address.",
     OPTION_IS_COUNT, AT(address_connections), 0, 100000},
    {"http-threads", "4", "Threads that serve connections.", OPTION_IS_COUNT, AT(http_threads), 1, 256},
    {"log-level", "info", "Level of the messages logged to stderr: error, warning, info, debug.", OPTION_IS_CHOICE,
     AT(log_level), .choices = (const char *const[]){"error", "warning", "info", "debug", NULL}, .live = true},
    {"log-format", "text",
     "Format of log lines: text (journal entries with the fields JOB, CLIENT and CODE under systemd), or json (an "
     "object per line: time, level, job, client, code, message).",
     OPTION_IS_CHOICE, AT(log_format), .choices = (const char *const[]){"text", "json", NULL}},
#undef AT
#undef KIB
};
enum { OPTIONS = sizeof table / sizeof *table };

/* A whole number, with a binary unit (K, M, G, T) if `units`; false: not a number. */
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

static void option_range_describe(const struct option *option, char *text, size_t size)
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

/* Set the option from `text`; false: not a value of this option. */
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
        option_range_describe(&table[i], range, sizeof range);
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
        int rc = options_set(options, key, trim(equals + 1), where);
        if (rc)
            return rc;
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
        return err_set(ERR_BAD_REQUEST, "Command line: \"%.64s\" is not an option; options begin with --. See --help.",
                       word);
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    snprintf(key, OPTION_TEXT, "%.*s", (int)(length < OPTION_TEXT ? length : OPTION_TEXT - 1), word + 2);
    if (option_find(key) < 0 && strcmp(key, "config") != 0)
        return option_unknown(key, "command line");
    if (!equals && *i + 1 == argc)
        return err_set(ERR_BAD_REQUEST, "Command line: --%s needs a value.", key);
    *value = equals ? equals + 1 : argv[++*i];
    return 0;
}

/* Apply the command line's options: only --config if `config`, else all others. */
static int arguments_read(struct options *options, int argc, char *const argv[], bool config)
{
    for (int i = 1; i < argc; i++) {
        char key[OPTION_TEXT];
        const char *value = "";
        int rc = argument_split(argc, argv, &i, key, &value);
        if (rc)
            return rc;
        if ((strcmp(key, "config") == 0) != config)
            continue;
        if (!config) {
            rc = options_set(options, key, value, "command line");
        } else {
            FILE *file = fopen(value, "re");
            if (!file)
                return err_set(ERR_IO, "The configuration %s cannot be read: %s.", value, strerror(errno));
            rc = options_read(options, file, value);
            fclose(file);
        }
        if (rc)
            return rc;
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
    int rc = arguments_read(options, argc, argv, true);
    return rc ? rc : arguments_read(options, argc, argv, false);
}

int options_reload(struct options *options, struct options *asked, int argc, char *const argv[], char *restart,
                   size_t size)
{
    struct options fresh;
    enum options_action action;
    int rc = options_parse(&fresh, argc, argv, &action);
    size_t used = 0;
    restart[0] = '\0';
    for (int i = 0; !rc && i < OPTIONS; i++) {
        const struct option *option = &table[i];
        const void *old = (const char *)asked + option->offset;
        const void *new = (const char *)&fresh + option->offset;
        if (option->type == OPTION_IS_TEXT ? strcmp(old, new) == 0 : *(const int64_t *)old == *(const int64_t *)new)
            continue;
        if (option->live) /* never a text */
            *(_Atomic int64_t *)(void *)((char *)options + option->offset) = *(const int64_t *)new;
        else if (used < size)
            used += (size_t)snprintf(restart + used, size - used, "%s%s", used ? ", " : "", option->key);
    }
    if (!rc)
        *asked = fresh;
    return rc;
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
    fputs(
        "mrirecond: HTTP service that reconstructs images from non-Cartesian MRI scans.\n\n"
        "  mrirecond [--config FILE] [--OPTION VALUE ...]\n"
        "  mrirecond --new-token CLIENT ROLE [--config FILE] [--tokens FILE]\n"
        "  mrirecond --check-config [--config FILE] [--OPTION VALUE ...]\n"
        "  mrirecond --check-state | --repair-state [--config FILE] [--state-dir FOLDER]\n"
        "  mrirecond --help | --sample-config | --version\n\n"
        "--new-token creates a token, prints it once and stores its hash; the roles are read, view, submit and admin.\n"
        "--check-config checks the configuration and the files that it names, as a start would (exit status 0: valid,\n"
        "2: invalid, with the reason).\n"
        "--check-state compares the job store with the files (exit status 0: sound, 3: damaged, 1: not checked).\n"
        "--repair-state saves the readable part of a damaged job store in a new store and keeps the old one.\n"
        "SIGHUP rereads the configuration, the tokens, the destinations and the certificate. SIGTERM stops mrirecond\n"
        "after the running jobs; a second SIGTERM stops it at once.\n\n",
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
