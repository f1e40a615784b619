#include "daemon/http/tokens.h"

#include "daemon/base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASH = TOKEN_HASH, HASH_TEXT = 2 * HASH };

struct token {
    struct identity identity;
    unsigned char hash[HASH];
};

struct tokens {
    char *path;
    pthread_rwlock_t lock; /* protects the rest */
    struct token *token;
    int count;
    long generation;
};

static const char *const roles[ROLES] = {"nobody", "read", "view", "submit", "admin"};

const char *role_name(enum role role)
{
    return roles[role];
}

int role_find(const char *name)
{
    for (int i = ROLE_READ; i < ROLES; i++)
        if (strcmp(name, roles[i]) == 0)
            return i;
    return -1;
}

bool role_sees_all(enum role role)
{
    return role == ROLE_VIEW || role == ROLE_ADMIN;
}

bool client_fits(const char *client)
{
    size_t length = strlen(client);
    return length > 0 && length < JOB_CLIENT &&
           strspn(client, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@-") == length;
}

static bool hash_read(const char *text, unsigned char hash[HASH])
{
    size_t size = HASH;
    const gnutls_datum_t hex = {(unsigned char *)(uintptr_t)text, HASH_TEXT};
    return strlen(text) == HASH_TEXT && gnutls_hex_decode(&hex, hash, &size) == 0 && size == HASH;
}

/* Read the quotas after the hash; false: malformed. */
static bool quota_read(char **rest, struct quota *quota)
{
    *quota = (struct quota){0, 0};
    for (char *word; (word = strtok_r(NULL, " \t\r\n", rest));) {
        int64_t *place = strncmp(word, "jobs=", 5) == 0    ? &quota->jobs
                         : strncmp(word, "bytes=", 6) == 0 ? &quota->bytes
                                                           : NULL;
        const char *digits = strchr(word, '=');
        if (!place || *place || strspn(digits + 1, "0123456789") != strlen(digits + 1) || strlen(digits + 1) > 18)
            return false;
        *place = strtoll(digits + 1, NULL, 10);
        if (*place < 1)
            return false;
    }
    return true;
}

/* One line of the file; *there: it contains a token. */
static int line_read(char *line, const char *path, int number, struct token *token, bool *there)
{
    char *rest = NULL, *client = strtok_r(line, " \t\r\n", &rest), *role = strtok_r(NULL, " \t\r\n", &rest),
         *hash = strtok_r(NULL, " \t\r\n", &rest);
    bool quota = quota_read(&rest, &token->identity.quota);
    *there = client && *client != '#';
    if (!*there)
        return 0;
    int found = role ? role_find(role) : -1;
    if (!client_fits(client) || found < 0 || !hash || !quota || !hash_read(hash, token->hash))
        return err_set(ERR_BAD_REQUEST,
                       "%s:%d: a line is `CLIENT ROLE HASH [jobs=N] [bytes=N]`, the role one of read, view, submit, "
                       "admin. mrirecond --new-token creates such lines.",
                       path, number);
    token->identity.role = (enum role)found;
    snprintf(token->identity.client, sizeof token->identity.client, "%s", client);
    return 0;
}

/* Open the file, if other users cannot write to it. *out NULL after a failure. */
static int token_file_open(const char *path, FILE **out)
{
    struct stat about;
    int rc = 0;
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &about) < 0)
        rc = err_set(ERR_IO, "The tokens in %s cannot be read: %s.%s", path, strerror(errno),
                     errno == ENOENT   ? " mrirecond --new-token NAME ROLE --tokens FILE creates the file."
                     : errno == EACCES ? " Run chown, to give it to the account that runs mrirecond."
                                       : "");
    else if (about.st_mode & (S_IWGRP | S_IWOTH))
        rc = err_set(ERR_IO, "Other users than its owner can write to %s, and create tokens. Run chmod 600 on it.",
                     path);
    if (rc && file)
        fclose(file);
    *out = rc ? NULL : file;
    return rc;
}

static int token_append(struct token **tokens, int *count, const struct token *token, const char *path)
{
    struct token *more = realloc(*tokens, ((size_t)*count + 1) * sizeof *more);
    if (!more)
        return err_no_memory("the tokens in %s", path);
    *tokens = more;
    more[(*count)++] = *token;
    return 0;
}

static int token_file_read(const char *path, struct token **out, int *count)
{
    char line[512];
    struct token *tokens = NULL;
    FILE *file;
    int number = 0, rc = token_file_open(path, &file);
    *count = 0;
    while (!rc && fgets(line, sizeof line, file)) {
        struct token token;
        bool there = false;
        if (!strchr(line, '\n') && !feof(file)) {
            rc = err_set(ERR_BAD_REQUEST,
                         "%s:%d: the line is longer than %zu bytes, or holds a NUL byte, as UTF-16 does. Save the "
                         "file as UTF-8.",
                         path, number + 1, sizeof line - 2);
            continue;
        }
        rc = line_read(line, path, ++number, &token, &there);
        if (!rc && there)
            rc = token_append(&tokens, count, &token, path);
    }
    if (!rc && ferror(file))
        rc = err_set(ERR_IO, "The tokens in %s cannot be read: %s.", path, strerror(errno));
    if (file)
        fclose(file);
    if (rc)
        free(tokens);
    else
        *out = tokens;
    return rc;
}

int tokens_reload(struct tokens *tokens, int *count)
{
    struct token *fresh = NULL;
    *count = 0;
    int rc = tokens_wanted(tokens) ? token_file_read(tokens->path, &fresh, count) : 0;
    if (rc)
        return rc;
    pthread_rwlock_wrlock(&tokens->lock);
    struct token *old = tokens->token;
    tokens->token = fresh;
    tokens->count = *count;
    tokens->generation++;
    pthread_rwlock_unlock(&tokens->lock);
    free(old);
    return 0;
}

long tokens_generation(struct tokens *tokens)
{
    pthread_rwlock_rdlock(&tokens->lock);
    long generation = tokens->generation;
    pthread_rwlock_unlock(&tokens->lock);
    return generation;
}

int tokens_create(struct tokens **out, const char *path)
{
    struct tokens *tokens = calloc(1, sizeof *tokens);
    if (!tokens || !(tokens->path = strdup(path))) {
        free(tokens);
        return err_no_memory("the tokens");
    }
    pthread_rwlock_init(&tokens->lock, NULL);
    int count, rc = tokens_reload(tokens, &count);
    if (rc)
        tokens_free(tokens);
    else
        *out = tokens;
    return rc;
}

void tokens_free(struct tokens *tokens)
{
    if (!tokens)
        return;
    pthread_rwlock_destroy(&tokens->lock);
    free(tokens->token);
    free(tokens->path);
    free(tokens);
}

bool tokens_wanted(const struct tokens *tokens)
{
    return *tokens->path;
}

/* The reason for a refusal. It describes only the form of what was sent and repeats none of it, since that may be a
 * secret. */
static int token_refuse(const char *token)
{
    enum { DIGITS = 2 * HASH };
    bool whole = strncmp(token, "mrt_", 4) == 0;
    size_t digits = strspn(token + (whole ? 4 : 0), "0123456789abcdef");
    bool ends = !token[(whole ? 4 : 0) + digits];
    if (whole && ends && digits == DIGITS)
        return err_set(ERR_UNAUTHORIZED, "This token is unknown. It may have been revoked, or belong to another "
                                         "service; mrirecond --new-token creates a new one.");
    if (!whole && ends && digits == DIGITS)
        return err_set(ERR_UNAUTHORIZED,
                       "This token is unknown. It looks like a hash from the server's token file; the token itself "
                       "begins with mrt_ and was printed once, by mrirecond --new-token.");
    return err_set(ERR_UNAUTHORIZED,
                   "This token is unknown, and does not look like one: mrt_ and %d hexadecimal digits, without quotes. "
                   "Check the file or variable that it comes from.",
                   DIGITS);
}

static const char *token_of(const char *authorization)
{
    return authorization + 7 + strspn(authorization + 7, " ");
}

int tokens_hash(const char *authorization, unsigned char hash[TOKEN_HASH])
{
    if (strncasecmp(authorization, "Bearer ", 7) != 0)
        return err_set(ERR_UNAUTHORIZED, "The header Authorization must be Bearer, a space and a token; other schemes, "
                                         "such as Basic (curl -u), are not supported.");
    const char *token = token_of(authorization);
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, token, strlen(token), hash) != 0)
        return err_set(ERR_INTERNAL, "A token could not be checked. Try again.");
    return 0;
}

bool tokens_find(struct tokens *tokens, const unsigned char hash[TOKEN_HASH], struct identity *out)
{
    *out = (struct identity){.role = ROLE_NOBODY};
    pthread_rwlock_rdlock(&tokens->lock);
    /* Compare with all of them, so that the time does not tell which one matches. */
    for (int i = 0; i < tokens->count; i++)
        if (gnutls_memcmp(hash, tokens->token[i].hash, HASH) == 0)
            *out = tokens->token[i].identity;
    pthread_rwlock_unlock(&tokens->lock);
    return out->role != ROLE_NOBODY;
}

int tokens_identify(struct tokens *tokens, const char *authorization, struct identity *out)
{
    unsigned char hash[HASH];
    *out = (struct identity){.role = ROLE_NOBODY};
    if (!tokens_wanted(tokens)) {
        out->role = ROLE_ADMIN;
        return 0;
    }
    if (!authorization)
        return err_set(ERR_UNAUTHORIZED, "This service requires a token. Send the header Authorization: Bearer TOKEN "
                                         "(mrirecon: --token-file FILE, or MRIRECON_TOKEN).");
    int rc = tokens_hash(authorization, hash);
    if (rc)
        return rc;
    return tokens_find(tokens, hash, out) ? 0 : token_refuse(token_of(authorization));
}

static void hex_print(const unsigned char *bytes, size_t count, char *text)
{
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

int token_add(const char *path, const char *client, enum role role, char token[TOKEN_TEXT])
{
    unsigned char random[HASH], hash[HASH];
    char line[HASH_TEXT + JOB_CLIENT + 32], text[HASH_TEXT + 1];
    if (!client_fits(client))
        return err_set(
            ERR_BAD_PARAMETER,
            "A client's name must have 1 to %d letters, digits, dots, dashes, underscores and @, not \"%.64s\".",
            JOB_CLIENT - 1, client);
    if (!*path)
        return err_set(ERR_BAD_PARAMETER, "There is no file for the token's hash. Set the option tokens.");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(ERR_INTERNAL, "The system returned no random numbers: %s.", strerror(errno));
    memcpy(token, "mrt_", 4);
    hex_print(random, sizeof random, token + 4);
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, token, strlen(token), hash) != 0)
        return err_set(ERR_INTERNAL, "The token cannot be hashed.");
    hex_print(hash, sizeof hash, text);
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    /* If the last line has no newline, add one first. */
    char last = '\n';
    off_t end = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    if (end > 0 && pread(fd, &last, 1, end - 1) != 1)
        last = '\n';
    int length = snprintf(line, sizeof line, "%s%s %s %s\n", last == '\n' ? "" : "\n", client, role_name(role), text);
    size_t put;
    bool written = fd >= 0 && disk_write(fd, line, (size_t)length, &put) == 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0 && !written && ftruncate(fd, end) < 0) /* a part of a line would make the whole file be refused */
        error = errno;
    if (fd >= 0)
        close(fd);
    return written ? 0 : err_set(ERR_IO, "%s cannot be written: %s.", path, strerror(error));
}
