/* libFuzzer target: the headers that decide who somebody is and what they sent (Host, Authorization, Prefer,
 * Content-Digest, Upload-Checksum, Idempotency-Key, tus' numbers), and the two files that an operator writes: tokens
 * and configuration. The input's first byte picks the reader; the rest is its text. What query strings, paths, Accept,
 * Range and ETags say is fuzz_query.c's. */
#include "daemon/digest.h"
#include "daemon/http_parse.h"
#include "daemon/idempotency.h"
#include "daemon/options.h"
#include "daemon/tokens.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKEN "mrt_known"
/* SHA-256 of TOKEN. */
#define TOKEN_HASH "5bbb4d44c3c3d77115e9a4e4e97aaa6b36f485792cb5a93e60bf45996c892dcc"
/* Of nothing. */
#define TOKEN_HASH_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* A file of this text that only its owner may write, by the path that leads to it. */
static int file_make(const char *text, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static void read_host(const char *text)
{
    check(host_is_known(text, "", false));
    if (host_is_known(text, "a.example", true))
        check(strncasecmp(text, "a.example", 9) == 0 && (text[9] == '\0' || text[9] == ':' || text[9] == '.'));
    host_is_known(text, "", true);
}

static void read_prefer(const char *text)
{
    check(prefer_wait(text) >= -1);
    prefer_has(text, "cancel-on-disconnect");
}

static void read_digests(const char *text)
{
    int (*const begin[])(struct digest *, const char *) = {digest_begin_content, digest_begin_tus};
    for (int i = 0; i < 2; i++) {
        struct digest digest;
        if (begin[i](&digest, text) != 0)
            continue;
        check(digest.length <= DIGEST_BYTES);
        bool asked = digest.state;
        digest_add(&digest, text, strlen(text));
        check(!digest_end(&digest) || !asked); /* nobody finds a text that holds its own digest */
    }
}

static void read_number(const char *text)
{
    int64_t number = number_parse(text);
    check(number == -1 || (number >= 0 && number == strtoll(text, NULL, 10)));
}

static void read_key(const char *text)
{
    struct keys *keys = NULL;
    struct idempotency first, second;
    check(keys_create(&keys) == 0);
    if (idempotency_begin(&first, keys, "somebody", text) == 0) {
        check(*first.key && strlen(first.key) < JOB_KEY && text_is_clean(first.key));
        check(idempotency_begin(&second, keys, "somebody", text) == ERR_KEY_IN_USE);
        check(idempotency_begin(&second, keys, "another", text) == 0);
        idempotency_end(&second);
    }
    idempotency_end(&first);
    keys_free(keys);
}

/* The header Authorization against a file with one token: right is the token, and nothing else is. */
static void read_authorization(const char *text)
{
    char path[32];
    int fd = file_make("somebody submit " TOKEN_HASH "\n", path);
    struct tokens *tokens = NULL;
    struct identity who;
    check(tokens_create(&tokens, path) == 0);
    size_t length = strlen(text);
    bool right = length >= 7 + strlen(TOKEN) && strncasecmp(text, "Bearer ", 7) == 0 &&
                 strcmp(text + length - strlen(TOKEN), TOKEN) == 0 &&
                 strspn(text + 7, " ") == length - 7 - strlen(TOKEN);
    int rc = tokens_identify(tokens, text, &who);
    check(right == (rc == 0) && who.role == (right ? ROLE_SUBMIT : ROLE_NOBODY));
    tokens_free(tokens);
    close(fd);
}

/* The lines of a tokens file: none lets in who has no token, and no name is longer than its place. */
static void read_tokens(const char *text)
{
    char path[32];
    int fd = file_make(text, path);
    struct tokens *tokens = NULL;
    struct identity who;
    if (tokens_create(&tokens, path) == 0) {
        check(tokens_identify(tokens, NULL, &who) == ERR_UNAUTHORIZED);
        check(tokens_identify(tokens, "Bearer ", &who) == ERR_UNAUTHORIZED || strcasestr(text, TOKEN_HASH_EMPTY));
        if (tokens_identify(tokens, "Bearer " TOKEN, &who) == 0)
            check(strcasestr(text, TOKEN_HASH) && *who.client && who.role > ROLE_NOBODY && who.role < ROLES);
    }
    tokens_free(tokens);
    close(fd);
}

static void read_configuration(const char *text)
{
    struct options options;
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    if (!file)
        return;
    options_init(&options);
    options_read(&options, file, "fuzz.conf");
    check(strnlen(options.listen, OPTION_TEXT) < OPTION_TEXT && strnlen(options.tokens, OPTION_TEXT) < OPTION_TEXT);
    check(options.connections >= 0 && options.queue_limit >= 0 && options.body_limit >= 0);
    fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(const char *) = {read_host, read_prefer,        read_digests, read_number,
                                                    read_key,  read_authorization, read_tokens,  read_configuration};
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
