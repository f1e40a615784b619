/* mrirecon list: the server's jobs, one per line. */
#include "clients/list.h"

#include "clients/table.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 100 };

bool jobs_named(const struct client_options *options)
{
    return options->state || options->client || options->name || options->since;
}

/* The path of a page of up to `count` jobs; the caller frees it. NULL (failure set): no memory. */
static char *page_path(struct server *server, const struct client_options *options, size_t count, const char *cursor)
{
    const struct {
        const char *name, *value;
    } wanted[] = {{"cursor", cursor},
                  {"state", options->state},
                  {"client", options->client},
                  {"name", options->name},
                  {"since", options->since}};
    char *path = NULL;
    size_t length;
    FILE *text = open_memstream(&path, &length);
    bool whole = text && fprintf(text, "/v1/jobs?limit=%zu", count) > 0;
    for (size_t i = 0; whole && i < sizeof wanted / sizeof *wanted; i++) {
        char *value = wanted[i].value ? server_escape(server, wanted[i].value) : NULL;
        whole = !wanted[i].value || (value && fprintf(text, "&%s=%s", wanted[i].name, value) > 0);
        free(value);
    }
    if (text && fclose(text) == 0 && whole)
        return path;
    free(path);
    err_no_memory("a request");
    return NULL;
}

int jobs_find(struct server *server, const struct client_options *options, json_t **out)
{
    json_t *all = json_array(), *page = NULL;
    char *cursor = NULL;
    int rc = all ? 0 : err_no_memory("the list");
    while (!rc) {
        size_t left = options->limit ? (size_t)options->limit - json_array_size(all) : PAGE;
        char *path = page_path(server, options, left < PAGE ? left : PAGE, cursor);
        rc = path ? server_call(server, "GET", path, &page) : ERR_NO_MEMORY;
        free(path);
        free(cursor);
        cursor = NULL;
        if (rc)
            break;
        json_array_extend(all, json_object_get(page, "jobs"));
        const char *next = client_text(page, "next");
        bool more = *next && (!options->limit || json_array_size(all) < (size_t)options->limit);
        if (more && !(cursor = strdup(next)))
            rc = err_no_memory("the list");
        json_decref(page);
        if (!more)
            break;
    }
    free(cursor);
    if (rc)
        json_decref(all);
    else
        *out = all;
    return rc;
}

/* The failure's reason, or the progress. */
static const char *remark(const json_t *job, char *text, size_t size)
{
    const json_t *error = json_object_get(job, "error");
    *text = '\0';
    if (*client_text(error, "code"))
        snprintf(text, size, "%s: %s", client_text(error, "code"), client_text(error, "detail"));
    else if (strcmp(client_text(job, "state"), "running") == 0)
        snprintf(text, size, "%.0f %%", 100 * json_number_value(json_object_get(job, "progress")));
    return text;
}

static int job_row_add(struct table *table, const json_t *job)
{
    const json_t *duration = json_object_get(job, "duration");
    char size[SIZE_TEXT], seconds[24] = "", text[1200];
    size_text(size, json_integer_value(json_object_get(job, "bytes")));
    if (json_is_number(duration))
        snprintf(seconds, sizeof seconds, "%.3f", json_number_value(duration));
    const char *const cells[] = {client_text(job, "id"),
                                 client_text(job, "state"),
                                 client_text(job, "kind"),
                                 client_text(job, "priority"),
                                 client_text(job, "client"),
                                 client_text(job, "created"),
                                 size,
                                 seconds,
                                 client_text(job, "name"),
                                 remark(job, text, sizeof text)};
    return table_add(table, cells);
}

static const char *const heads[] = {"ID",      "STATE", "KIND",    "PRIORITY", "CLIENT",
                                    "CREATED", "SIZE",  "SECONDS", "NAME",     ""};

int client_list(struct server *server, const struct client_options *options)
{
    struct table table = {.columns = sizeof heads / sizeof *heads, .right = 1 << 6 | 1 << 7};
    json_t *all = NULL;
    size_t i;
    const json_t *job;
    int rc = jobs_find(server, options, &all);
    if (!rc && options->json) {
        client_print_json(all);
    } else if (!rc && json_array_size(all) > 0) {
        rc = table_add(&table, heads);
        json_array_foreach (all, i, job) {
            if (!rc)
                rc = job_row_add(&table, job);
        }
        if (!rc)
            table_print(&table, stdout);
    }
    table_clear(&table);
    json_decref(all);
    return rc ? client_failed() : CLIENT_OK;
}
