#include "clients/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

struct journal {
    int fd;
    char *path, *query;
};

static const char *const states[] = {
    [SCAN_SUCCEEDED] = "succeeded", [SCAN_FAILED] = "failed", [SCAN_CANCELED] = "canceled"};

/* ---- reading ---- */

static const char *member_text(const json_t *line, const char *member)
{
    const char *text = json_string_value(json_object_get(line, member));
    return text ? text : "";
}

/* Indices of the entries: by name, and by idempotency key. */
struct index {
    json_t *name, *key;
};

static struct scan_entry *scan_find(json_t *index, const char *called, struct scan_entry *entry)
{
    const json_t *at = json_object_get(index, called);
    return at ? &entry[json_integer_value(at)] : NULL;
}

static void line_take(const json_t *line, const char *query, const struct index *index, struct scan_entry *entry)
{
    const char *key = member_text(line, "key"), *state = member_text(line, "state");
    struct scan_entry *scan = scan_find(index->name, member_text(line, "scan"), entry);
    if (scan) {
        if (json_integer_value(json_object_get(line, "bytes")) == scan->bytes &&
            json_integer_value(json_object_get(line, "changed")) == scan->changed &&
            strcmp(member_text(line, "query"), query) == 0) {
            snprintf(scan->key, sizeof scan->key, "%s", key);
            scan->id[0] = '\0';
            scan->state = SCAN_NEW;
            json_object_set_new(index->key, key, json_integer(scan - entry));
        }
        return;
    }
    scan = scan_find(index->key, key, entry);
    if (!scan || strcmp(scan->key, key) != 0)
        return;
    if (*member_text(line, "id")) {
        snprintf(scan->id, sizeof scan->id, "%s", member_text(line, "id"));
        scan->state = SCAN_SENT;
    }
    for (int i = SCAN_SUCCEEDED; i <= SCAN_CANCELED; i++)
        if (strcmp(state, states[i]) == 0)
            scan->state = (enum scan_state)i;
    if (*state) {
        snprintf(scan->code, sizeof scan->code, "%s", member_text(line, "code"));
        scan->seconds = json_number_value(json_object_get(line, "seconds"));
    }
}

int journal_read(const struct journal *journal, struct scan_entry *entry, int count)
{
    int copy = dup(journal->fd);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "r");
    if (!file) {
        if (copy >= 0)
            close(copy);
        return err_set(ERR_IO, "%s cannot be read: %s.", journal->path, strerror(errno));
    }
    rewind(file);
    struct index index = {json_object(), json_object()};
    for (int i = 0; i < count; i++)
        json_object_set_new(index.name, entry[i].name, json_integer(i));
    char *text = NULL;
    size_t room = 0;
    while (getline(&text, &room, file) >= 0) {
        json_t *line = json_loads(text, 0, NULL);
        if (json_is_object(line))
            line_take(line, journal->query, &index, entry);
        json_decref(line);
    }
    free(text);
    json_decref(index.name);
    json_decref(index.key);
    int rc = ferror(file) ? err_set(ERR_IO, "%s cannot be read: %s.", journal->path, strerror(errno)) : 0;
    fclose(file);
    return rc;
}

int journal_open(struct journal **out, const char *path, const char *query)
{
    struct journal *journal = calloc(1, sizeof *journal);
    if (journal) {
        journal->path = strdup(path);
        journal->query = strdup(query);
        journal->fd = -1;
    }
    int rc = 0;
    if (!journal || !journal->path || !journal->query)
        rc = err_no_memory("the state of the batch");
    if (!rc && (journal->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
        rc = err_set(ERR_IO, "%s, the state of the batch, cannot be written: %s.", path, strerror(errno));
    if (!rc && flock(journal->fd, LOCK_EX | LOCK_NB) < 0)
        rc = errno == EWOULDBLOCK
                 ? err_set(ERR_IO, "%s is in use: another mrirecon is working on this batch.", path)
                 : err_set(ERR_IO,
                           "%s, the state of the batch, cannot be locked: %s. Use --out to give a folder on a file "
                           "system that has locks.",
                           path, strerror(errno));
    if (rc) {
        journal_free(journal);
        return rc;
    }
    *out = journal;
    return 0;
}

void journal_free(struct journal *journal)
{
    if (!journal)
        return;
    if (journal->fd >= 0)
        close(journal->fd);
    free(journal->path);
    free(journal->query);
    free(journal);
}

/* ---- writing ---- */

/* Append a line (taken). It begins with a newline, too, because the previous line may be incomplete. */
static int line_add(const struct journal *journal, json_t *line)
{
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL, *whole = NULL;
    json_decref(line);
    int length = text ? asprintf(&whole, "\n%s\n", text) : -1;
    free(text);
    if (length < 0)
        return err_no_memory("the state of the batch");
    ssize_t done = 0, n = 0;
    while (done < length && (n = write(journal->fd, whole + done, (size_t)(length - done))) > 0)
        done += n; /* the write after a short one fails with the reason */
    bool written = done == length && fdatasync(journal->fd) == 0;
    free(whole);
    return written
               ? 0
               : err_set(ERR_IO, "%s, the state of the batch, cannot be written: %s.", journal->path, strerror(errno));
}

int journal_sending(struct journal *journal, struct scan_entry *entry)
{
    unsigned char random[(JOURNAL_KEY - 1) / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(ERR_INTERNAL, "The system returned no random numbers: %s.", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(entry->key + 2 * i, 3, "%02x", random[i]);
    entry->id[0] = '\0';
    entry->state = SCAN_NEW;
    return line_add(journal,
                    json_pack("{s:s, s:I, s:I, s:s, s:s}", "scan", entry->name, "bytes", (json_int_t)entry->bytes,
                              "changed", (json_int_t)entry->changed, "query", journal->query, "key", entry->key));
}

int journal_sent(struct journal *journal, const struct scan_entry *entry)
{
    return line_add(journal, json_pack("{s:s, s:s}", "key", entry->key, "id", entry->id));
}

int journal_ended(struct journal *journal, const struct scan_entry *entry)
{
    return line_add(journal, json_pack("{s:s, s:s, s:s, s:f}", "key", entry->key, "state", states[entry->state], "code",
                                       entry->code, "seconds", entry->seconds));
}
