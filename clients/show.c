/* The commands show (a job), kinds and status (the server). */
#include "clients/client.h"
#include "clients/progress.h"
#include "clients/table.h"

#include <stdlib.h>
#include <string.h>

/* ---- show ---- */

/* Rows to print: names, and texts beside them. If there is no memory, rows are left out, and `failed` is set. */
struct sheet {
    struct table table;
    int failed;
};

static void sheet_add(struct sheet *sheet, const char *name, const char *text)
{
    const char *const cells[] = {name, text};
    if (*text && !sheet->failed)
        sheet->failed = table_add(&sheet->table, cells);
}

/* Print it, and free it. */
static int sheet_end(struct sheet *sheet)
{
    table_print(&sheet->table, stdout);
    table_clear(&sheet->table);
    return sheet->failed;
}

/* A value as text, numbers of `seconds` with their unit; the caller frees it. */
static char *value_text(const json_t *value, bool seconds)
{
    char *text = NULL;
    if (seconds && json_is_number(value))
        return asprintf(&text, "%.4f s", json_number_value(value)) < 0 ? NULL : text;
    return json_is_string(value) ? strdup(json_string_value(value))
                                 : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
}

/* {name: value, ...}, a row each, the values in a column. */
static void show_members(struct sheet *sheet, const char *name, json_t *object)
{
    const bool seconds = strcmp(name, "stages") == 0;
    const char *key, *shown = name; /* in the first row */
    const json_t *value;
    int width = 0;
    json_object_foreach (object, key, value)
        width = text_columns(key) > width ? text_columns(key) : width;
    json_object_foreach (object, key, value) {
        char *text = value_text(value, seconds), *line = NULL;
        if (!text || asprintf(&line, "%s%*s  %s", key, width - text_columns(key), "", text) < 0)
            line = NULL;
        sheet_add(sheet, shown, line ? line : "");
        shown = "";
        free(line);
        free(text);
    }
}

/* One row of a list: a sentence, or a decision {what, value, reason}. */
static void show_entry(struct sheet *sheet, const char *name, json_t *entry)
{
    char *line = NULL;
    if (json_is_string(entry)) {
        sheet_add(sheet, name, json_string_value(entry));
    } else if (*client_text(entry, "reason")) {
        if (asprintf(&line, "%s = %s: %s", client_text(entry, "what"), client_text(entry, "value"),
                     client_text(entry, "reason")) < 0)
            line = NULL;
        sheet_add(sheet, name, line ? line : "");
        free(line);
    } else {
        show_members(sheet, name, entry);
    }
}

static void show_report(struct sheet *sheet, json_t *report)
{
    const char *key;
    json_t *value, *entry;
    size_t i;
    json_object_foreach (report, key, value) {
        if (json_is_array(value)) {
            json_array_foreach (value, i, entry) {
                show_entry(sheet, i ? "" : key, entry);
            }
        } else if (json_is_object(value)) {
            show_members(sheet, key, value);
        } else {
            char *text = value_text(value, false);
            sheet_add(sheet, key, text ? text : "");
            free(text);
        }
    }
}

static void show_job(struct sheet *sheet, const json_t *job)
{
    static const char *const texts[] = {"id",     "name",    "kind",     "state",   "priority",
                                        "client", "created", "deadline", "started", "finished"};
    char text[PROGRESS_TEXT], size[SIZE_TEXT];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        sheet_add(sheet, texts[i], client_text(job, texts[i]));
    if (json_is_number(json_object_get(job, "duration"))) {
        snprintf(text, sizeof text, "%.3f s", json_number_value(json_object_get(job, "duration")));
        sheet_add(sheet, "duration", text);
    }
    sheet_add(sheet, "scan", size_text(size, json_integer_value(json_object_get(job, "bytes"))));
    if (json_is_integer(json_object_get(job, "ahead"))) {
        snprintf(text, sizeof text, "%lld jobs", (long long)json_integer_value(json_object_get(job, "ahead")));
        sheet_add(sheet, "ahead", text);
    }
    if (json_is_object(json_object_get(job, "step"))) {
        progress_step(job, text);
        sheet_add(sheet, "at", text);
    }
    show_members(sheet, "parameters", json_object_get(job, "parameters"));
    const json_t *error = json_object_get(job, "error");
    sheet_add(sheet, "error", client_text(error, "code"));
    sheet_add(sheet, "", client_text(error, "detail"));
}

static void show_results(struct sheet *sheet, const json_t *results)
{
    const json_t *result;
    size_t i;
    json_array_foreach (results, i, result) {
        char line[256], size[SIZE_TEXT];
        size_text(size, json_integer_value(json_object_get(result, "bytes")));
        snprintf(line, sizeof line, "%s  %s  %s", client_text(result, "file"), client_text(result, "type"), size);
        sheet_add(sheet, i ? "" : "results", line);
    }
}

int client_show(struct server *server, const struct client_options *options)
{
    struct sheet sheet = {.table.columns = 2};
    json_t *job = NULL;
    char *path = NULL, *id = server_escape(server, options->word[0]);
    int rc = 0;
    if (!id || asprintf(&path, "/v1/jobs/%s", id) < 0) {
        path = NULL;
        rc = err_no_memory("a request");
    }
    if (!rc)
        rc = server_call(server, "GET", path, &job);
    free(path);
    free(id);
    if (!rc && options->json) {
        client_print_json(job);
    } else if (!rc) {
        show_job(&sheet, job);
        show_results(&sheet, json_object_get(job, "results"));
        show_report(&sheet, json_object_get(job, "report"));
        rc = sheet_end(&sheet);
    }
    json_decref(job);
    return rc ? client_failed() : CLIENT_OK;
}

/* ---- kinds ---- */

/* The values of a parameter, and its default. */
static void values_print(FILE *out, const json_t *param)
{
    const json_t *choices = json_object_get(param, "choices"), *choice;
    const json_t *min = json_object_get(param, "min"), *max = json_object_get(param, "max");
    size_t i;
    fprintf(out, "%s = ", client_text(param, "name"));
    json_array_foreach (choices, i, choice) {
        fprintf(out, "%s%s", i ? " | " : "", json_string_value(choice));
    }
    if (min && max)
        fprintf(out, "%s%s %.10g .. %.10g", json_array_size(choices) > 0 ? " | " : "", client_text(param, "type"),
                json_number_value(min), json_number_value(max));
    else if (json_array_size(choices) == 0)
        fprintf(out, "%s", client_text(param, "type"));
    char *fallback = NULL;
    const json_t *value = json_object_get(param, "default");
    if (json_is_string(value))
        fallback = strdup(json_string_value(value));
    else if (value)
        fallback = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    fprintf(out, "  (default %s)", fallback && *fallback ? fallback : "empty");
    free(fallback);
}

/* Text of the server's, in lines. `text` (NULL: no memory) is freed. */
static void lines_print(char *text, int indent)
{
    if (text)
        err_clean(text);
    client_print_wrapped(text ? text : "", indent);
    free(text);
}

static void show_parameter(const json_t *param)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (out) {
        values_print(out, param);
        fclose(out);
    }
    printf("  ");
    lines_print(text, 6);
    printf("      ");
    lines_print(strdup(client_text(param, "help")), 6);
}

int client_kinds(struct server *server, const struct client_options *options)
{
    json_t *answer = NULL;
    if (server_call(server, "GET", "/v1/kinds", &answer))
        return client_failed();
    const json_t *kinds = json_object_get(answer, "kinds"), *kind, *param;
    size_t i, j, shown = 0;
    if (options->json)
        client_print_json(answer);
    json_array_foreach (kinds, i, kind) {
        if (options->words > 0 && strcmp(options->word[0], client_text(kind, "name")) != 0)
            continue;
        shown++;
        if (options->json)
            continue;
        printf("%s: %s\n", client_text(kind, "name"), client_text(kind, "help"));
        json_array_foreach (json_object_get(kind, "parameters"), j, param) {
            show_parameter(param);
        }
    }
    json_decref(answer);
    if (shown == 0) {
        fprintf(stderr, "mrirecon: the server has no job kind \"%s\"; `mrirecon kinds` lists the kinds.\n",
                options->words > 0 ? options->word[0] : "at all");
        return CLIENT_FAILED;
    }
    return CLIENT_OK;
}

/* ---- status ---- */

static int64_t member_number(const json_t *object, const char *member)
{
    return json_integer_value(json_object_get(object, member));
}

/* Failed checks, with the reasons. */
static void status_checks(struct sheet *sheet, json_t *checks)
{
    const char *name;
    const json_t *said;
    json_object_foreach (checks, name, said)
        if (json_is_string(said) && strcmp(json_string_value(said), "ok") != 0)
            sheet_add(sheet, name, json_string_value(said));
}

static void status_fill(struct sheet *sheet, const json_t *queue, const json_t *disk, const json_t *kept)
{
    char line[240], size[4][SIZE_TEXT];
    const json_t *waiting = json_object_get(queue, "waiting"), *states = json_object_get(kept, "states");
    int64_t urgent = member_number(waiting, "urgent"), normal = member_number(waiting, "normal"),
            batch = member_number(waiting, "batch");
    const char *oldest = client_text(queue, "oldest");
    bool held = json_is_true(json_object_get(queue, "held"));
    snprintf(line, sizeof line, "%lld waiting (urgent %lld, normal %lld, batch %lld), at most %lld; %lld running%s",
             (long long)(urgent + normal + batch), (long long)urgent, (long long)normal, (long long)batch,
             (long long)member_number(queue, "limit"), (long long)member_number(queue, "running"),
             held ? "; none is started: the disk is full or failing" : "");
    sheet_add(sheet, "queue", queue ? line : "");
    snprintf(line, sizeof line, "the oldest has waited since %s", oldest);
    sheet_add(sheet, "", *oldest ? line : "");
    snprintf(line, sizeof line, "%s of %s free; uploads use %s and may use %s more",
             size_text(size[0], member_number(disk, "free_bytes")), size_text(size[1], member_number(disk, "bytes")),
             size_text(size[2], member_number(disk, "uploads_bytes")),
             size_text(size[3], member_number(disk, "uploads_free_bytes")));
    sheet_add(sheet, "disk", disk ? line : "");
    snprintf(line, sizeof line, "%lld jobs (%lld succeeded, %lld failed, %lld canceled): results %s, %lld scans %s",
             (long long)member_number(kept, "jobs"), (long long)member_number(states, "succeeded"),
             (long long)member_number(states, "failed"), (long long)member_number(states, "canceled"),
             size_text(size[0], member_number(kept, "results_bytes")), (long long)member_number(kept, "scans"),
             size_text(size[1], member_number(kept, "scans_bytes")));
    sheet_add(sheet, "kept", kept ? line : "");
    int64_t bytes = member_number(kept, "limit_bytes"), seconds = member_number(kept, "limit_seconds");
    snprintf(line, sizeof line, "at most %s%s", bytes ? size_text(size[0], bytes) : "any size",
             seconds ? "" : ", until they are deleted");
    if (seconds)
        snprintf(line + strlen(line), sizeof line - strlen(line), ", for %.3g days", (double)seconds / 86400);
    sheet_add(sheet, "", kept ? line : "");
}

static void status_workers(struct sheet *sheet, const json_t *workers)
{
    const json_t *worker;
    size_t i;
    json_array_foreach (workers, i, worker) {
        char name[32], line[600];
        const char *device = client_text(worker, "device"), *note = client_text(worker, "note");
        snprintf(name, sizeof name, "worker %zu", i);
        snprintf(line, sizeof line, "%s, %s%s%s", *device ? device : client_text(worker, "wanted"),
                 client_text(worker, "state"), *note ? ": " : "", note);
        sheet_add(sheet, name, line);
    }
}

int client_status(struct server *server, const struct client_options *options)
{
    struct sheet sheet = {.table.columns = 2};
    char *text = NULL;
    long status;
    if (server_text(server, "/readyz?verbose", &text, &status))
        return client_failed();
    json_t *answer = json_loads(text, 0, NULL);
    int code = status == 200 ? CLIENT_OK : CLIENT_FAILED;
    if (answer && options->json) {
        client_print_json(answer);
    } else if (answer) {
        sheet_add(&sheet, "ready", status == 200 ? "yes" : "no");
        status_checks(&sheet, json_object_get(answer, "checks"));
        status_fill(&sheet, json_object_get(answer, "queue"), json_object_get(answer, "disk"),
                    json_object_get(answer, "kept"));
        status_workers(&sheet, json_object_get(answer, "worker_list"));
        sheet_add(&sheet, "version", client_text(answer, "version"));
        if (sheet_end(&sheet))
            code = client_failed();
    } else {
        fputs(text, stdout);
    }
    json_decref(answer);
    free(text);
    return code;
}
