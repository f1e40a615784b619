/* libFuzzer target: authentication: the header Authorization and the names of clients; and the operator's files:
 * tokens, configuration, and the command line. */
#include "daemon/base/options.h"
#include "daemon/http/tokens.h"
#include "tests/fuzz/fuzz.h"

#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "mrt_known"
/* SHA-256 of TOKEN. */
#define TOKEN_HASH "5bbb4d44c3c3d77115e9a4e4e97aaa6b36f485792cb5a93e60bf45996c892dcc"
/* SHA-256 of the empty string. */
#define TOKEN_HASH_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define TOKEN_LINE       "somebody submit " TOKEN_HASH

static void file_write(int fd, const char *text)
{
    check(ftruncate(fd, 0) == 0 && pwrite(fd, text, strlen(text), 0) == (ssize_t)strlen(text));
}

/* Create a file with this text that only its owner may write; `path` gets its path. */
static int file_make(const char *text, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && fchmod(fd, 0600) == 0);
    file_write(fd, text);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

/* Compare with a file that has one token: only that token is accepted. The error for a wrong token is always the same,
 * so that none of its bytes are echoed. */
static void read_authorization(const char *text)
{
    static const char *const wrong[] = {"wrong", "Bearer wrong", "Bearer " TOKEN_HASH, "Bearer mrt_" TOKEN_HASH};
    char path[32], sentence[sizeof err_last()->text];
    int fd = file_make(TOKEN_LINE, path);
    struct tokens *tokens = NULL;
    struct identity who;
    check(tokens_create(&tokens, path) == 0);
    size_t length = strlen(text);
    bool bearer = strncasecmp(text, "Bearer ", 7) == 0;
    bool right = bearer && length >= 7 + strlen(TOKEN) && strcmp(text + length - strlen(TOKEN), TOKEN) == 0 &&
                 strspn(text + 7, " ") == length - 7 - strlen(TOKEN);
    bool let_in = check_result(tokens_identify(tokens, text, &who)), known = let_in;
    check(right == let_in && who.role == (right ? ROLE_SUBMIT : ROLE_NOBODY));
    strcpy(sentence, err_last()->text);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong && !known; i++) {
        check(tokens_identify(tokens, wrong[i], &who) == ERR_UNAUTHORIZED);
        known = bearer == (strncmp(wrong[i], "Bearer ", 7) == 0) && strcmp(sentence, err_last()->text) == 0;
    }
    check(known);
    tokens_free(tokens);
    close(fd);
}

/* No line admits a client without a token, no name exceeds its buffer, no quota is negative. A bad file that replaces a
 * good one changes nothing. */
static void read_tokens(const char *text)
{
    char path[32];
    int fd = file_make(TOKEN_LINE, path), count = -1;
    struct tokens *tokens = NULL;
    struct identity who;
    check(tokens_create(&tokens, path) == 0);
    file_write(fd, text);
    if (check_result(tokens_reload(tokens, &count))) {
        check(tokens_identify(tokens, NULL, &who) == ERR_UNAUTHORIZED);
        check(tokens_identify(tokens, "Bearer ", &who) == ERR_UNAUTHORIZED || strcasestr(text, TOKEN_HASH_EMPTY));
        if (tokens_identify(tokens, "Bearer " TOKEN, &who) == 0)
            check(strcasestr(text, TOKEN_HASH) && *who.client && who.role > ROLE_NOBODY && who.role < ROLES &&
                  strstr(text, who.client) && who.quota.jobs >= 0 && who.quota.bytes >= 0);
    } else {
        check(tokens_identify(tokens, "Bearer " TOKEN, &who) == 0 && who.role == ROLE_SUBMIT);
        check(strcmp(who.client, "somebody") == 0);
    }
    tokens_free(tokens);
    close(fd);
}

/* A new token identifies its client, also in a file whose last line is not terminated; a refused client leaves the file
 * unchanged. */
static void read_client(const char *text)
{
    char path[32], token[TOKEN_TEXT], header[TOKEN_TEXT + 7];
    int fd = file_make(TOKEN_LINE, path);
    struct tokens *tokens = NULL;
    struct identity who;
    bool added = check_result(token_add(path, text, ROLE_READ, token));
    check(tokens_create(&tokens, path) == 0);
    check(tokens_identify(tokens, "Bearer " TOKEN, &who) == 0 && strcmp(who.client, "somebody") == 0);
    if (added) {
        snprintf(header, sizeof header, "Bearer %s", token);
        check(tokens_identify(tokens, header, &who) == 0 && strcmp(who.client, text) == 0 && who.role == ROLE_READ);
    } else {
        check(lseek(fd, 0, SEEK_END) == (off_t)strlen(TOKEN_LINE));
    }
    tokens_free(tokens);
    close(fd);
}

static void check_options(const struct options *options)
{
    check(strnlen(options->listen, OPTION_TEXT) < OPTION_TEXT && strnlen(options->tokens, OPTION_TEXT) < OPTION_TEXT);
    check(options->connections >= 8 && options->queue_limit >= 1 && options->body_limit >= 1);
    check(options->keep_scans >= KEEP_NONE && options->keep_scans <= KEEP_ALL && options->worker_timeout >= 1);
}

/* A refused reload changes nothing; an accepted one does not change options that need a restart. */
static void read_configuration(const char *text)
{
    char path[32], word[] = "mrirecond", option[] = "--config", restart[2048];
    char *const arguments[] = {word, option, path, NULL};
    int fd = file_make(text, path);
    struct options running, asked, before;
    options_init(&before);
    running = asked = before;
    if (check_result(options_reload(&running, &asked, 3, arguments, restart, sizeof restart))) {
        check_options(&asked);
        check(strcmp(running.listen, before.listen) == 0 && running.connections == before.connections);
        check(running.queue_limit == asked.queue_limit && running.keep_jobs == asked.keep_jobs);
        check((strcmp(asked.listen, before.listen) != 0) == (strstr(restart, "listen") != NULL));
    } else {
        check(memcmp(&running, &before, sizeof before) == 0 && memcmp(&asked, &before, sizeof before) == 0);
    }
    close(fd);
}

/* Words of a command line, one per line of the text. The input has no --config files. */
static void read_arguments(const char *text)
{
    enum { MOST = 16 };
    char *copy = strdup(text), *words[MOST + 1] = {copy}, *rest = NULL;
    int count = 1;
    check(copy != NULL);
    for (char *word = strtok_r(copy, "\n", &rest); word && count < MOST; word = strtok_r(NULL, "\n", &rest))
        words[count++] = word;
    struct options options;
    enum options_action action;
    if (!strstr(text, "--config") && check_result(options_parse(&options, count, words, &action)) &&
        action == OPTIONS_RUN)
        check_options(&options);
    free(copy);
}

FUZZ_TEXT(read_authorization, read_tokens, read_configuration, read_client, read_arguments)
