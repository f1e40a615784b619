#include "daemon/outbox/destinations.h"

#include "recon/recon.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORESCU "/usr/bin/storescu"

enum { LINE = 2048 };

struct rule {
    char name[DELIVERY_NAME], kind[32], client[JOB_CLIENT], pattern[JOB_NAME]; /* of the last three "": any */
};

/* The contents of a file. */
struct routing {
    struct destination *destination;
    int destinations;
    struct rule *rule;
    int rules;
};

struct destinations {
    char path[OPTION_TEXT];
    pthread_rwlock_t lock; /* of the rest */
    struct routing routing;
};

static const char *const type_names[DESTINATION_TYPES] = {"webhook", "dicom", "stow"};

const char *destination_type_name(enum destination_type type)
{
    return type_names[type];
}

/* ---- values ---- */

/* The present line, for error messages. */
struct place {
    const char *path;
    int line;
};

static int text_take(const struct place *at, const char *key, const char *value, char *out, size_t size)
{
    if (!*value || strlen(value) >= size)
        return err_set(ERR_BAD_REQUEST, "%s:%d: %s= takes 1 to %zu characters.", at->path, at->line, key, size - 1);
    memcpy(out, value, strlen(value) + 1);
    return 0;
}

/* The first line of a file that only its owner and a group may read. */
static int secret_read(const struct place *at, const char *path, char secret[DESTINATION_SECRET])
{
    struct stat about;
    int rc = 0;
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &about) < 0)
        rc = err_set(ERR_IO, "%s:%d: the file %s cannot be read: %s.", at->path, at->line, path, strerror(errno));
    else if (about.st_mode & (S_IRWXO | S_IWGRP))
        rc = err_set(ERR_IO, "%s:%d: other users may read or change %s, which holds a secret. Run chmod 600 on it.",
                     at->path, at->line, path);
    size_t length = 0;
    if (!rc) {
        /* Not fgets(): it does not tell a NUL in the line from its own. */
        length = fread(secret, 1, DESTINATION_SECRET - 1, file);
        const char *end = memchr(secret, '\n', length);
        if (!end && !feof(file))
            rc = err_set(ERR_BAD_REQUEST, "%s:%d: the first line of %s must hold the secret, of at most %d characters.",
                         at->path, at->line, path, DESTINATION_SECRET - 2);
        length = end ? (size_t)(end - secret) : length;
        if (!rc && memchr(secret, '\0', length))
            rc = err_set(ERR_BAD_REQUEST,
                         "%s:%d: the first line of %s holds a NUL byte; the secret must be text. For a random one: "
                         "openssl rand -hex 32.",
                         at->path, at->line, path);
    }
    if (file)
        fclose(file);
    if (rc)
        return rc;
    secret[length] = '\0';
    secret[strcspn(secret, "\r")] = '\0';
    return *secret ? 0
                   : err_set(ERR_BAD_REQUEST, "%s:%d: the first line of %s is empty; it must hold the secret.",
                             at->path, at->line, path);
}

static int states_take(const struct place *at, char *value, unsigned *states)
{
    char *rest = NULL;
    *states = 0;
    for (char *word = strtok_r(value, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int state = job_state_find(word);
        if (state < 0 || !job_state_is_final((enum job_state)state))
            return err_set(ERR_BAD_REQUEST, "%s:%d: on= takes succeeded, failed, canceled, or several with commas.",
                           at->path, at->line);
        *states |= 1u << state;
    }
    return 0;
}

static int number_take(const struct place *at, const char *key, const char *value, int64_t most, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long number = *value >= '0' && *value <= '9' ? strtoll(value, &end, 10) : 0;
    if (errno || !end || *end || number < 1 || number > most)
        return err_set(ERR_BAD_REQUEST, "%s:%d: %s= takes a whole number from 1 to %lld.", at->path, at->line, key,
                       (long long)most);
    *out = number;
    return 0;
}

/* ---- lines ---- */

static bool name_fits(const char *name)
{
    return name && *name && strlen(name) < DELIVERY_NAME &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(name);
}

static const struct destination *found(const struct routing *routing, const char *name)
{
    for (int i = 0; i < routing->destinations; i++)
        if (strcmp(routing->destination[i].name, name) == 0)
            return &routing->destination[i];
    return NULL;
}

static int setting_take(const struct place *at, struct destination *to, const char *key, char *value)
{
    static const int64_t year = INT64_C(366) * 86400;
    const bool dicom = to->type == DESTINATION_DICOM, webhook = to->type == DESTINATION_WEBHOOK;
    if (strcmp(key, webhook ? "secret" : "login") == 0 && !dicom)
        return secret_read(at, value, to->secret);
    if (strcmp(key, "ca") == 0 && !dicom)
        return text_take(at, key, value, to->ca, sizeof to->ca);
    if (strcmp(key, "calling") == 0 && dicom)
        return text_take(at, key, value, to->calling, sizeof to->calling);
    if (strcmp(key, "called") == 0 && dicom)
        return text_take(at, key, value, to->called, sizeof to->called);
    if (strcmp(key, "clients") == 0)
        return text_take(at, key, value, to->clients, sizeof to->clients);
    if (strcmp(key, "on") == 0 && webhook)
        return states_take(at, value, &to->on);
    if (strcmp(key, "attempts") == 0)
        return number_take(at, key, value, 100000, &to->attempts);
    if (strcmp(key, "retry") == 0)
        return number_take(at, key, value, year, &to->retry);
    if (strcmp(key, "retry-most") == 0)
        return number_take(at, key, value, year, &to->retry_most);
    if (strcmp(key, "timeout") == 0)
        return number_take(at, key, value, 86400, &to->timeout);
    return err_set(ERR_BAD_REQUEST, "%s:%d: a destination of type %s has no setting \"%.64s\".", at->path, at->line,
                   destination_type_name(to->type), key);
}

static int address_check(const struct place *at, const struct destination *to)
{
    const char *address = to->address, *colon = strrchr(address, ':');
    if (to->type == DESTINATION_DICOM)
        return !colon || colon == address || atoi(colon + 1) < 1 || atoi(colon + 1) > 65535 || !*to->called
                   ? err_set(ERR_BAD_REQUEST, "%s:%d: the address of %s must be HOST:PORT, and it needs called=TITLE.",
                             at->path, at->line, to->name)
               : access(STORESCU, X_OK) != 0
                   ? err_set(ERR_BAD_REQUEST,
                             "%s:%d: destinations of type dicom need the program " STORESCU ", of Debian's package "
                             "dcmtk, which is not installed.",
                             at->path, at->line)
                   : 0;
    size_t scheme = strncmp(address, "https://", 8) == 0 ? 8 : strncmp(address, "http://", 7) == 0 ? 7 : 0;
    if (!scheme || !address[scheme] || strpbrk(address, "@#"))
        return err_set(ERR_BAD_REQUEST,
                       "%s:%d: the address of %s must be a URL of http or https, without a user or a fragment.",
                       at->path, at->line, to->name);
    if (to->type == DESTINATION_STOW && *to->secret && scheme == 7 && strncmp(address + 7, "127.", 4) != 0 &&
        strncmp(address + 7, "localhost", 9) != 0)
        return err_set(ERR_BAD_REQUEST, "%s:%d: login= needs https, but on this machine: others could read it.",
                       at->path, at->line);
    if (to->type == DESTINATION_WEBHOOK && !*to->secret)
        return err_set(ERR_BAD_REQUEST,
                       "%s:%d: the webhook %s lacks secret=FILE, the file of the key by which its messages are signed.",
                       at->path, at->line, to->name);
    return 0;
}

/* A destination of the type that `type` names, with the type's defaults; DESTINATION_TYPES if there is none. */
static struct destination destination_default(const char *type)
{
    /* A hundred attempts take about four days. */
    struct destination to = {.type = DESTINATION_TYPES,
                             .on = 1u << JOB_SUCCEEDED | 1u << JOB_FAILED,
                             .attempts = 100,
                             .retry = 10,
                             .retry_most = 3600,
                             .timeout = 30};
    for (int i = 0; type && i < DESTINATION_TYPES; i++)
        if (strcmp(type, type_names[i]) == 0)
            to.type = (enum destination_type)i;
    if (to.type != DESTINATION_WEBHOOK) {
        to.on = 1u << JOB_SUCCEEDED;
        to.timeout = 600;
        snprintf(to.calling, sizeof to.calling, "MRIRECOND");
    }
    return to;
}

static int settings_take(const struct place *at, struct destination *to, char *rest)
{
    int rc = 0;
    for (char *word; !rc && (word = strtok_r(NULL, " \t\r\n", &rest));) {
        char *value = strchr(word, '=');
        if (!value)
            return err_set(ERR_BAD_REQUEST, "%s:%d: \"%.64s\" is not a SETTING=VALUE.", at->path, at->line, word);
        *value = '\0';
        rc = setting_take(at, to, word, value + 1);
    }
    return rc;
}

static int destination_line(const struct place *at, struct routing *routing, char *rest)
{
    const char *name = strtok_r(NULL, " \t\r\n", &rest), *type = strtok_r(NULL, " \t\r\n", &rest),
               *address = strtok_r(NULL, " \t\r\n", &rest);
    struct destination to = destination_default(type);
    if (!name_fits(name) || to.type == DESTINATION_TYPES || !address || strlen(address) >= sizeof to.address)
        return err_set(
            ERR_BAD_REQUEST,
            "%s:%d: a destination is `destination NAME webhook|dicom|stow ADDRESS [SETTING=VALUE ...]`, the name of at "
            "most %d letters, digits, dots, dashes and underscores.",
            at->path, at->line, DELIVERY_NAME - 1);
    snprintf(to.name, sizeof to.name, "%s", name);
    snprintf(to.address, sizeof to.address, "%s", address);
    if (found(routing, name))
        return err_set(ERR_BAD_REQUEST, "%s:%d: there are two destinations called %s.", at->path, at->line, name);
    int rc = settings_take(at, &to, rest);
    if (!rc)
        rc = address_check(at, &to);
    struct destination *more =
        rc ? NULL : realloc(routing->destination, ((size_t)routing->destinations + 1) * sizeof *more);
    if (!more)
        return rc ? rc : err_no_memory("the destinations in %s", at->path);
    routing->destination = more;
    more[routing->destinations++] = to;
    return 0;
}

static int rule_line(const struct place *at, struct routing *routing, char *rest)
{
    const char *name = strtok_r(NULL, " \t\r\n", &rest);
    struct rule rule = {.name = ""};
    int rc = 0;
    if (!name || !found(routing, name))
        return err_set(ERR_BAD_REQUEST, "%s:%d: a rule names a destination of an earlier line, not \"%.64s\".",
                       at->path, at->line, name ? name : "");
    snprintf(rule.name, sizeof rule.name, "%s", name);
    for (char *word; !rc && (word = strtok_r(NULL, " \t\r\n", &rest));) {
        const char *value = strchr(word, '=');
        if (value && strncmp(word, "kind=", 5) == 0)
            rc = text_take(at, "kind", value + 1, rule.kind, sizeof rule.kind);
        else if (value && strncmp(word, "client=", 7) == 0)
            rc = text_take(at, "client", value + 1, rule.client, sizeof rule.client);
        else if (value && strncmp(word, "name=", 5) == 0)
            rc = text_take(at, "name", value + 1, rule.pattern, sizeof rule.pattern);
        else
            rc = err_set(ERR_BAD_REQUEST, "%s:%d: a rule takes kind=, client= and name=, not \"%.64s\".", at->path,
                         at->line, word);
    }
    if (!rc && *rule.kind && !kind_find(rule.kind))
        rc = err_set(ERR_BAD_REQUEST, "%s:%d: there is no job kind \"%s\".", at->path, at->line, rule.kind);
    struct rule *more = rc ? NULL : realloc(routing->rule, ((size_t)routing->rules + 1) * sizeof *more);
    if (!more)
        return rc ? rc : err_no_memory("the destinations in %s", at->path);
    routing->rule = more;
    more[routing->rules++] = rule;
    return 0;
}

static int line_read(const struct place *at, struct routing *routing, char *line)
{
    char *rest = NULL;
    const char *word = strtok_r(line, " \t\r\n", &rest);
    if (!word || *word == '#')
        return 0;
    if (strcmp(word, "destination") == 0)
        return destination_line(at, routing, rest);
    if (strcmp(word, "rule") == 0)
        return rule_line(at, routing, rest);
    return err_set(ERR_BAD_REQUEST, "%s:%d: a line begins with destination, rule or #, not \"%.64s\".", at->path,
                   at->line, word);
}

/* ---- the file ---- */

static void routing_free(struct routing *routing)
{
    for (int i = 0; i < routing->destinations; i++)
        explicit_bzero(routing->destination[i].secret, DESTINATION_SECRET);
    free(routing->destination);
    free(routing->rule);
}

static int file_read(const char *path, struct routing *out)
{
    char line[LINE];
    struct stat about;
    struct place at = {path, 0};
    struct routing routing = {.destination = NULL};
    int rc = 0;
    FILE *file = *path ? fopen(path, "re") : NULL;
    if (*path && (!file || fstat(fileno(file), &about) < 0))
        rc = err_set(ERR_IO, "The destinations in %s cannot be read: %s.", path, strerror(errno));
    else if (file && about.st_mode & (S_IWGRP | S_IWOTH))
        rc = err_set(ERR_IO,
                     "Other users than its owner can write to %s, and have images sent elsewhere. Run chmod 644 on it.",
                     path);
    while (!rc && file && fgets(line, sizeof line, file)) {
        at.line++;
        if (!strchr(line, '\n') && !feof(file))
            rc = err_set(ERR_BAD_REQUEST,
                         "%s:%d: the line is longer than %d bytes, or holds a NUL byte, as UTF-16 does. Save the file "
                         "as UTF-8.",
                         path, at.line, LINE - 2);
        else
            rc = line_read(&at, &routing, line);
    }
    if (!rc && file && ferror(file))
        rc = err_set(ERR_IO, "The destinations in %s cannot be read: %s.", path, strerror(errno));
    if (file)
        fclose(file);
    if (rc)
        routing_free(&routing);
    else
        *out = routing;
    return rc;
}

int destinations_create(struct destinations **out, const char *path)
{
    struct destinations *made = calloc(1, sizeof *made);
    if (!made)
        return err_no_memory("the destinations");
    int rc = file_read(path, &made->routing);
    if (rc) {
        free(made);
        return rc;
    }
    snprintf(made->path, sizeof made->path, "%s", path);
    pthread_rwlock_init(&made->lock, NULL);
    *out = made;
    return 0;
}

void destinations_free(struct destinations *destinations)
{
    if (!destinations)
        return;
    pthread_rwlock_destroy(&destinations->lock);
    routing_free(&destinations->routing);
    free(destinations);
}

int destinations_reload(struct destinations *destinations, int *count)
{
    struct routing routing, old;
    int rc = file_read(destinations->path, &routing);
    if (rc)
        return rc;
    pthread_rwlock_wrlock(&destinations->lock);
    old = destinations->routing;
    destinations->routing = routing;
    *count = routing.destinations;
    pthread_rwlock_unlock(&destinations->lock);
    routing_free(&old);
    return 0;
}

/* ---- questions ---- */

bool destinations_find(struct destinations *destinations, const char *name, struct destination *out)
{
    pthread_rwlock_rdlock(&destinations->lock);
    const struct destination *there = found(&destinations->routing, name);
    if (there)
        *out = *there;
    pthread_rwlock_unlock(&destinations->lock);
    return there;
}

/* Whether `name` is in a list that is separated by commas. */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, name, length) == 0)
            return true;
    return false;
}

json_t *destinations_list(struct destinations *destinations, const char *client, bool all)
{
    json_t *list = json_array();
    pthread_rwlock_rdlock(&destinations->lock);
    const struct routing *routing = &destinations->routing;
    for (int i = 0; i < routing->destinations; i++) {
        const struct destination *to = &routing->destination[i];
        if (all || is_listed(to->clients, "*") || is_listed(to->clients, client))
            json_array_append_new(list,
                                  json_pack("{s:s, s:s}", "name", to->name, "type", destination_type_name(to->type)));
    }
    pthread_rwlock_unlock(&destinations->lock);
    return list;
}

int destinations_check(struct destinations *destinations, const char *names, const char *client, bool all)
{
    int rc = 0;
    for (const char *at = names; *at && !rc; at += strcspn(at, ","), at += *at == ',') {
        char name[DELIVERY_NAME];
        struct destination to;
        const size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (length >= sizeof name || !destinations_find(destinations, name, &to))
            rc = err_set(ERR_BAD_PARAMETER, "There is no destination \"%.*s\"; the service's configuration names them.",
                         (int)(length < 64 ? length : 64), at);
        else if (!all && !is_listed(to.clients, "*") && !is_listed(to.clients, client))
            rc = err_set(ERR_FORBIDDEN,
                         "Client %s may not have jobs sent to %s: the destination's setting clients= does not name it.",
                         client, name);
    }
    return rc;
}

static bool rule_matches(const struct rule *rule, const struct job_end *end)
{
    return (!*rule->kind || strcmp(rule->kind, end->kind) == 0) &&
           (!*rule->client || strcmp(rule->client, end->client) == 0) &&
           (!*rule->pattern || fnmatch(rule->pattern, end->name, 0) == 0);
}

json_t *destinations_route(void *context, const struct job_end *end)
{
    struct destinations *destinations = context;
    json_t *names = NULL;
    pthread_rwlock_rdlock(&destinations->lock);
    const struct routing *routing = &destinations->routing;
    for (int i = 0; i < routing->destinations; i++) {
        const struct destination *to = &routing->destination[i];
        bool wanted = is_listed(end->asked, to->name);
        for (int r = 0; r < routing->rules && !wanted; r++)
            wanted = strcmp(routing->rule[r].name, to->name) == 0 && rule_matches(&routing->rule[r], end);
        if (!wanted || !(to->on >> end->state & 1))
            continue;
        names = names ? names : json_array();
        json_array_append_new(names, json_string(to->name));
    }
    pthread_rwlock_unlock(&destinations->lock);
    return names;
}
