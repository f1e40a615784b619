/* mrirecon: the command line of mrirecond. One table drives dispatch and help. */
#include "clients/commands.h"
#include "clients/attach.h"
#include "clients/pack.h"
#include "clients/simulate.h"

#include <curl/curl.h>
#include <errno.h>
#include <locale.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SERVER "http://127.0.0.1:8080"

/* ---- the table of options ---- */

enum option_bit {
    OUT = 1,
    FORMAT = 2,
    KIND = 4,
    WAIT = 8,
    JSON = 16,
    LIMIT = 32,
    PRIORITY = 64,
    OLDER = 128,
    RETRY = 256,
    UNNAMED = 512,
    WHICH = 1024,
    RESULT = 2048,
    EVERYWHERE = 4096
};

static const struct option_row option_rows[] = {
    {"--server", "URL", "URL of mrirecond (or MRIRECON_SERVER; " DEFAULT_SERVER ")", EVERYWHERE,
     offsetof(struct client_options, server)},
    {"--token-file", "FILE", "file containing the access token (or MRIRECON_TOKEN: the token itself)", EVERYWHERE,
     offsetof(struct client_options, token_file)},
    {"--cacert", "FILE", "trusted certificates, in PEM (or MRIRECON_CACERT)", EVERYWHERE,
     offsetof(struct client_options, cacert)},
    {"--out", "FILE", "file to write the result to, \"-\": standard output; the extension selects the format", OUT,
     offsetof(struct client_options, out)},
    {"--result", "RESULT", "result to save, of those in the parameter results (the first of them)", RESULT,
     offsetof(struct client_options, result)},
    {"--format", "FORM",
     "format of the result; of an image: h5 (ISMRMRD), nii.gz, png, npy, dcm, dcm.zip, cfl.tar, mrd", FORMAT,
     offsetof(struct client_options, format)},
    {"--kind", "KIND", "kind of job (recon)", KIND, offsetof(struct client_options, kind)},
    {"--priority", "P", "priority of the job: urgent, normal or batch", PRIORITY,
     offsetof(struct client_options, priority)},
    {"--older", "S", "jobs that ended more than S seconds ago", OLDER, offsetof(struct client_options, older)},
    {"--state", "STATE", "jobs in this state: queued, running, canceling, succeeded, failed, canceled", WHICH,
     offsetof(struct client_options, state)},
    {"--client", "NAME", "jobs of this client", WHICH, offsetof(struct client_options, client)},
    {"--name", "TEXT", "jobs whose name contains TEXT", WHICH, offsetof(struct client_options, name)},
    {"--since", "TIME", "jobs submitted or ended since: 90s, 15m, 12h, 7d ago, or 2026-11-22T03:00Z", WHICH,
     offsetof(struct client_options, since)},
    {"--wait", NULL, "wait until the job ends, and show progress", WAIT, offsetof(struct client_options, wait)},
    {"--retry", NULL, "retry the scans that failed in an earlier run", RETRY, offsetof(struct client_options, retry)},
    {"--no-name", NULL, "do not send the file name to the server", UNNAMED, offsetof(struct client_options, unnamed)},
    {"--json", NULL, "print the server's JSON answer", JSON, offsetof(struct client_options, json)},
    {"--limit", "N", "at most N jobs, the newest", LIMIT, offsetof(struct client_options, limit)},
};
enum { OPTION_ROWS = sizeof option_rows / sizeof *option_rows };

/* ---- the table of commands ---- */

static const struct command_row command_rows[] = {
    {"submit", "SCAN [PARAM=VALUE ...]",
     "Send a scan (\"-\": standard input); prints the job's id. With --out, waits and saves the result.", 1, 1000,
     OUT | RESULT | FORMAT | KIND | PRIORITY | WAIT | UNNAMED, client_submit},
    {"batch", "DIR [PARAM=VALUE ...]",
     "Send every scan (.h5, .mrd, .npz) of a folder, save the results to --out (DIR/images). The same command resumes "
     "it after an interruption.",
     1, 1000, OUT | RESULT | FORMAT | KIND | PRIORITY | RETRY | UNNAMED, client_batch},
    {"watch", "DIR [PARAM=VALUE ...]",
     "Send each scan that appears or changes in a folder, and save its result to --out (DIR/images); prints the names "
     "of saved files. Ctrl-C ends it; the same command resumes it.",
     1, 1000, OUT | RESULT | FORMAT | KIND | PRIORITY | RETRY | UNNAMED, client_watch},
    {"wait", "ID", "Wait until a job ends. Ctrl-C leaves the job running.", 1, 1, OUT | RESULT | FORMAT, client_wait},
    {"fetch", "ID", "Save a result of a succeeded job; prints the file name.", 1, 1, OUT | RESULT | FORMAT,
     client_fetch},
    {"list", "", "List jobs, newest first.", 0, 0, JSON | LIMIT | WHICH, client_list},
    {"show", "ID", "Show a job: its state, its decisions and its timings.", 1, 1, JSON, client_show},
    {"resubmit", "[ID] [PARAM=VALUE ...]",
     "Run a job again with the scan that the server kept; given parameters replace the job's own. Without an ID, run "
     "all jobs that match --state, --client, --name and --since; the same command resumes it after an interruption.",
     0, 1000, OUT | RESULT | FORMAT | PRIORITY | WAIT | WHICH | LIMIT, client_resubmit},
    {"cancel", "ID", "Stop a job.", 1, 1, 0, client_cancel},
    {"delete", "ID", "Remove a finished job, its scan and its results.", 1, 1, 0, client_delete},
    {"purge", "", "Remove all jobs that ended more than --older seconds ago.", 0, 0, OLDER, client_purge},
    {"deliveries", "[STATE]",
     "List the deliveries of ended jobs to destinations, newest first. STATE: pending, sending, delivered, or dead "
     "(given up).",
     0, 1, JSON | LIMIT, client_deliveries},
    {"deliver", "ID DESTINATION", "Send an ended job to a destination, again or for the first time.", 2, 2, 0,
     client_deliver},
    {"kinds", "[KIND]", "Show the server's kinds of jobs and their parameters.", 0, 1, JSON, client_kinds},
    {"status", "", "Show whether the server is ready for work.", 0, 0, JSON, client_status},
    {"simulate", "...",
     "Simulate a scan of a phantom, molecules, or bodies; see `mrirecon simulate --help`. Needs no "
     "server.",
     0, 0, 0, NULL},
    {"pack",
     "OUT.npz kspace=FILE trajectory=FILE [weights=FILE] [noise=FILE] [sensitivities=FILE] [fieldmap=FILE] "
     "[times=FILE]",
     "Make one scan of arrays in separate files (.npy, or BART's .cfl), to be sent with size=X,Y. Needs no "
     "server.",
     2, 1000, 0, NULL},
    {"attach-trajectory", "SCAN OUT.h5 TRAJECTORY.npy",
     "Add a trajectory [readout, sample, 2 to 4] to a converted scan that has none. Needs no server.", 3, 3, 0, NULL},
    {"completion", "SHELL", "Print the completion script for bash or zsh; use: source <(mrirecon completion bash).", 1,
     1, 0, NULL},
};
enum { COMMAND_ROWS = sizeof command_rows / sizeof *command_rows };

static const struct command_row *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_ROWS; i++)
        if (strcmp(command_rows[i].name, name) == 0)
            return &command_rows[i];
    return NULL;
}

/* ---- help ---- */

enum { HELP_INDENT = 38 };

static void option_print(const struct option_row *option)
{
    printf("  %-12s %-6s ", option->name, option->value ? option->value : "");
    client_print_wrapped(option->help, 22);
}

static void help_command(const struct command_row *command)
{
    printf("mrirecon %s%s%s%s\n  ", command->name, *command->words ? " " : "", command->words,
           command->options ? " [OPTION ...]" : "");
    client_print_wrapped(command->help, 2);
    for (int i = 0; i < OPTION_ROWS && command->run; i++)
        if ((option_rows[i].bit & (command->options | EVERYWHERE)) != 0)
            option_print(&option_rows[i]);
}

static void help(void)
{
    puts("mrirecon: send k-space scans to mrirecond, and get images back.\n\nCommands:");
    for (int i = 0; i < COMMAND_ROWS; i++) {
        const int used = printf("  %-11s %-23s", command_rows[i].name, command_rows[i].words);
        printf(used < HELP_INDENT ? "%*s" : "\n%*s", used < HELP_INDENT ? HELP_INDENT - used : HELP_INDENT, "");
        client_print_wrapped(command_rows[i].help, HELP_INDENT);
    }
    puts("\nOptions:");
    for (int i = 0; i < OPTION_ROWS; i++)
        option_print(&option_rows[i]);
    puts("\nA first scan:\n"
         "  mrirecon simulate --trajectory spiral --out scan.h5\n"
         "  mrirecon submit scan.h5 --out image.png\n\n"
         "Exit status: 0 success, 1 job or server failure, 2 invalid command line, 130 interrupted.\n"
         "`mrirecon COMMAND --help` shows the options of a command.");
}

/* ---- the command line ---- */

/* Parse the option at argv[*at]. CLIENT_OK, or CLIENT_USAGE. */
static int take_option(const struct command_row *command, int argc, char **argv, int *at,
                       struct client_options *options)
{
    char *word = argv[*at], *value = strchr(word, '=');
    size_t length = value ? (size_t)(value - word) : strlen(word);
    const struct option_row *row = NULL;
    for (int i = 0; i < OPTION_ROWS && !row; i++)
        if (strlen(option_rows[i].name) == length && strncmp(option_rows[i].name, word, length) == 0)
            row = &option_rows[i];
    if (!row)
        return client_usage("there is no option %.*s.", (int)length, word);
    if (command && (row->bit & (command->options | EVERYWHERE)) == 0)
        return client_usage("%s is not an option of `mrirecon %s`.", row->name, command->name);
    if (!command && row->bit != EVERYWHERE)
        return client_usage("%s comes after the command.", row->name);
    void *place = (char *)options + row->place;
    if (!row->value) {
        if (value)
            return client_usage("%s takes no value.", row->name);
        *(bool *)place = true;
        return CLIENT_OK;
    }
    if (value)
        value++;
    else if (*at + 1 < argc)
        value = argv[++*at];
    if (!value || !*value)
        return client_usage("%s needs a value: %s.", row->name, row->value);
    if (row->bit == LIMIT) {
        char *end;
        long number = strtol(value, &end, 10);
        if (*end || number < 1 || number > 1000000)
            return client_usage("--limit is a number from 1 to 1000000, not \"%s\".", value);
        options->limit = (int)number;
    } else {
        *(const char **)place = value;
    }
    return CLIENT_OK;
}

/* Commands that parse their own command line. */
static int own_line(const struct command_row *command, int argc, char **argv)
{
    if (strcmp(command->name, "simulate") == 0)
        return simulate_main(argc, argv);
    const struct command_tables tables = {command_rows, COMMAND_ROWS, option_rows, OPTION_ROWS, EVERYWHERE};
    bool asks = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (strcmp(command->name, "pack") == 0 && !asks)
        return pack_main(argc - 1, argv + 1);
    if (strcmp(command->name, "attach-trajectory") == 0 && !asks)
        return attach_main(argc - 1, argv + 1);
    if (asks)
        help_command(command);
    else if (argc != 2)
        return client_usage("use: mrirecon %s %s", command->name, command->words);
    return asks ? CLIENT_OK : completion_print(argv[1], &tables);
}

static int command_run(const struct command_row *command, const struct client_options *options)
{
    struct server *server = NULL;
    if (server_create(&server, options->server))
        return client_failed();
    int status = server_trust(server, getenv("MRIRECON_TOKEN"), options->token_file, options->cacert)
                     ? client_failed()
                     : command->run(server, options);
    server_free(server);
    if (fflush(stdout) != 0 && status == CLIENT_OK) {
        err_set(ERR_IO, "Standard output cannot be written: %s.", strerror(errno));
        return client_failed();
    }
    return status;
}

/* Whether the word asks for the version or for help, of `command` or (NULL) of all; prints that. */
static bool asks_for_text(const char *word, const char *next, const struct command_row *command)
{
    if (!command && strcmp(word, "--version") == 0) {
        puts("mrirecon " MRIRECON_VERSION);
        return true;
    }
    if (!command && strcmp(word, "help") == 0)
        command = next ? find_command(next) : NULL;
    else if (strcmp(word, "--help") != 0 && strcmp(word, "-h") != 0)
        return false;
    if (command)
        help_command(command);
    else
        help();
    return true;
}

/* Parse the command line. *command NULL: no command. false: the program ends with *status. */
static bool words_take(int argc, char **argv, const struct command_row **command, struct client_options *options,
                       int *status)
{
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        if (!only_words && asks_for_text(argv[i], argv[i + 1], *command)) {
            *status = CLIENT_OK;
            return false;
        }
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = true;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            *status = take_option(*command, argc, argv, &i, options);
            if (*status)
                return false;
        } else if (!*command) {
            *command = find_command(argv[i]);
            if (*command && (*command)->run)
                continue;
            *status = *command ? own_line(*command, argc - i, argv + i)
                               : client_usage("there is no command \"%s\".", argv[i]);
            return false;
        } else {
            options->word[options->words++] = argv[i]; /* never beyond i, so argv can hold the list */
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    const char *server = getenv("MRIRECON_SERVER");
    struct client_options options = {.server = server && *server ? server : DEFAULT_SERVER, .word = argv};
    options.cacert = getenv("MRIRECON_CACERT");
    const struct command_row *command = NULL;
    int status = CLIENT_OK;
    setlocale(LC_CTYPE, "");
    if (!words_take(argc, argv, &command, &options, &status))
        return status;
    if (!command)
        return client_usage("a command is missing.");
    if (options.words < command->least || options.words > command->most)
        return client_usage("use: mrirecon %s %s", command->name, command->words);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        err_set(ERR_INTERNAL, "The HTTP library cannot be started.");
        return client_failed();
    }
    status = command_run(command, &options);
    curl_global_cleanup();
    return status;
}
