/* The commands that show: list and show (jobs), kinds and status (the server). */
#include "clients/client.h"
#include "clients/progress.h"

#include <stdlib.h>
#include <string.h>

static void row(const char *name, const char *text)
{
    if (!*text)
        return;
    printf("%-12s", name);
    client_print_text(stdout, text);
    putchar('\n');
}

/* ---- list ---- */

/* Id, kind, priority, state, time, error or progress. */
#define LIST_ROW "%-28s  %-10s  %-8s  %-10s  %-24s  %s\n"

static void list_job(const json_t *job)
{
    const char *state = client_text(job, "state"), *code = client_text(json_object_get(job, "error"), "code");
    char progress[16] = "";
    if (strcmp(state, "running") == 0)
        snprintf(progress, sizeof progress, "%3.0f %%", 100 * json_number_value(json_object_get(job, "progress")));
    printf(LIST_ROW, client_text(job, "id"), client_text(job, "kind"), client_text(job, "priority"), state,
           client_text(job, "created"), *code ? code : progress);
}

int client_list(struct service *service, const struct client_options *options)
{
    enum { PAGE = 100 };
    json_t *all = json_array();
    char *cursor = NULL;
    int failure = all ? 0 : err_set(ERR_NO_MEMORY, "There is no memory for the list.");
    do {
        size_t left = options->limit ? (size_t)options->limit - json_array_size(all) : PAGE;
        json_t *page = NULL;
        char *path = NULL;
        if (failure)
            break;
        if (asprintf(&path, "/v1/jobs?limit=%zu%s%s", left < PAGE ? left : PAGE, cursor ? "&cursor=" : "",
                     cursor ? cursor : "") < 0) {
            failure = err_set(ERR_NO_MEMORY, "There is no memory for a request.");
            break;
        }
        failure = service_call(service, "GET", path, &page);
        free(path);
        free(cursor);
        const char *next = client_text(page, "next");
        cursor = *next ? service_escape(service, next) : NULL;
        json_array_extend(all, json_object_get(page, "jobs"));
        json_decref(page);
    } while (!failure && cursor && (!options->limit || json_array_size(all) < (size_t)options->limit));
    free(cursor);
    if (!failure && options->json) {
        client_print_json(all);
    } else if (!failure && json_array_size(all) > 0) {
        size_t i;
        const json_t *job;
        printf(LIST_ROW, "ID", "KIND", "PRIORITY", "STATE", "CREATED", "");
        json_array_foreach (all, i, job) {
            list_job(job);
        }
    }
    json_decref(all);
    return failure ? client_failed() : CLIENT_OK;
}

/* ---- show ---- */

/* {name: value, ...} on one line. */
static void show_members(const char *name, json_t *object)
{
    const char *key;
    const json_t *value;
    if (json_object_size(object) == 0)
        return;
    printf("%-12s", name);
    json_object_foreach (object, key, value) {
        char *text = json_is_string(value) ? strdup(json_string_value(value))
                                           : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        printf("%s=", key);
        client_print_text(stdout, text ? text : "");
        putchar(' ');
        free(text);
    }
    putchar('\n');
}

/* One line of a list: a sentence, or a decision {what, value, reason}. */
static void show_entry(const char *name, json_t *entry)
{
    if (json_is_string(entry)) {
        row(name, json_string_value(entry));
    } else if (*client_text(entry, "reason")) {
        printf("%-12s%s = %s: ", name, client_text(entry, "what"), client_text(entry, "value"));
        client_print_text(stdout, client_text(entry, "reason"));
        putchar('\n');
    } else {
        show_members(name, entry);
    }
}

static void show_report(json_t *report)
{
    const char *key;
    json_t *value, *entry;
    size_t i;
    json_object_foreach (report, key, value) {
        if (json_is_array(value)) {
            json_array_foreach (value, i, entry) {
                show_entry(i ? "" : key, entry);
            }
        } else if (json_is_object(value)) {
            show_members(key, value);
        } else {
            char *text = json_is_string(value) ? strdup(json_string_value(value))
                                               : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
            row(key, text ? text : "");
            free(text);
        }
    }
}

int client_show(struct service *service, const struct client_options *options)
{
    json_t *job = NULL;
    char *path = NULL, *id = service_escape(service, options->word[0]);
    int failure = 0;
    if (!id || asprintf(&path, "/v1/jobs/%s", id) < 0) {
        path = NULL;
        failure = err_set(ERR_NO_MEMORY, "There is no memory for a request.");
    }
    if (!failure)
        failure = service_call(service, "GET", path, &job);
    free(path);
    free(id);
    if (failure)
        return client_failed();
    if (options->json) {
        client_print_json(job);
        json_decref(job);
        return CLIENT_OK;
    }
    static const char *const texts[] = {"id", "kind", "state", "created", "started", "finished"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        row(texts[i], client_text(job, texts[i]));
    if (json_is_object(json_object_get(job, "step"))) {
        char text[PROGRESS_TEXT];
        progress_step(job, text);
        row("at", text);
    }
    show_members("parameters", json_object_get(job, "parameters"));
    const json_t *error = json_object_get(job, "error"), *result;
    row("error", client_text(error, "code"));
    row("", client_text(error, "detail"));
    size_t i;
    json_array_foreach (json_object_get(job, "results"), i, result) {
        printf("%-12s%s  %s  %" JSON_INTEGER_FORMAT " bytes\n", i ? "" : "results", client_text(result, "name"),
               client_text(result, "type"), json_integer_value(json_object_get(result, "bytes")));
    }
    show_report(json_object_get(job, "report"));
    json_decref(job);
    return CLIENT_OK;
}

/* ---- kinds ---- */

static void show_parameter(const json_t *param)
{
    const json_t *choices = json_object_get(param, "choices"), *choice;
    const json_t *min = json_object_get(param, "min"), *max = json_object_get(param, "max");
    size_t i;
    printf("  %s = ", client_text(param, "name"));
    if (json_array_size(choices) > 0) {
        json_array_foreach (choices, i, choice) {
            printf("%s%s", i ? " | " : "", json_string_value(choice));
        }
        if (min && max)
            printf(" | ");
    }
    if (min && max) {
        printf("%s %g .. %g", client_text(param, "type"), json_number_value(min), json_number_value(max));
    } else if (json_array_size(choices) == 0) {
        printf("%s", client_text(param, "type"));
    }
    char *fallback = NULL;
    const json_t *value = json_object_get(param, "default");
    if (json_is_string(value))
        fallback = strdup(json_string_value(value));
    else if (value)
        fallback = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    printf("  (default %s)\n      ", fallback && *fallback ? fallback : "none");
    free(fallback);
    client_print_text(stdout, client_text(param, "help"));
    putchar('\n');
}

int client_kinds(struct service *service, const struct client_options *options)
{
    json_t *answer = NULL;
    if (service_call(service, "GET", "/v1/kinds", &answer))
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
        fprintf(stderr, "mrirecon: the server knows no kind \"%s\"; `mrirecon kinds` lists those there are.\n",
                options->words > 0 ? options->word[0] : "at all");
        return CLIENT_FAILED;
    }
    return CLIENT_OK;
}

/* ---- status ---- */

int client_status(struct service *service, const struct client_options *options)
{
    (void)options;
    char *text = NULL;
    long status;
    if (service_text(service, "/readyz?verbose", &text, &status))
        return client_failed();
    json_t *answer = json_loads(text, 0, NULL);
    if (answer && options->json) {
        client_print_json(answer);
    } else if (answer) {
        row("ready", status == 200 ? "yes" : "no");
        show_report(answer);
    } else {
        fputs(text, stdout);
    }
    json_decref(answer);
    free(text);
    return status == 200 ? CLIENT_OK : CLIENT_FAILED;
}
