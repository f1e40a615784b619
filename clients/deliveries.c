/* mrirecon deliveries, mrirecon deliver. */
#include "clients/client.h"
#include "clients/server.h"

#include <stdlib.h>

static void delivery_print(const json_t *delivery)
{
    printf("%s  %-9s  %3lld  %-16s  %s\n", client_text(delivery, "job"), client_text(delivery, "state"),
           (long long)json_integer_value(json_object_get(delivery, "attempts")), client_text(delivery, "destination"),
           client_text(delivery, "answer"));
}

int client_deliveries(struct server *server, const struct client_options *options)
{
    char *path = NULL, *state = options->words ? server_escape(server, options->word[0]) : NULL;
    json_t *answer = NULL;
    int rc = asprintf(&path, "/v1/deliveries?limit=%lld%s%s", (long long)(options->limit > 0 ? options->limit : 100),
                      state ? "&state=" : "", state ? state : "") < 0
                 ? err_no_memory("a request")
                 : server_call(server, "GET", path, &answer);
    if (!rc)
        free(path);
    free(state);
    if (rc)
        return client_failed();
    size_t i;
    json_t *delivery, *list = json_object_get(answer, "deliveries");
    if (options->json)
        json_dumpf(answer, stdout, JSON_INDENT(2));
    else
        json_array_foreach (list, i, delivery)
            delivery_print(delivery);
    if (options->json)
        putchar('\n');
    json_decref(answer);
    return CLIENT_OK;
}

int client_deliver(struct server *server, const struct client_options *options)
{
    char *path = NULL, *id = server_escape(server, options->word[0]), *to = server_escape(server, options->word[1]);
    json_t *answer = NULL;
    int rc = !id || !to || asprintf(&path, "/v1/jobs/%s/deliveries/%s", id, to) < 0
                 ? err_no_memory("a request")
                 : server_call(server, "POST", path, &answer);
    free(path);
    free(id);
    free(to);
    json_decref(answer);
    return rc ? client_failed() : CLIENT_OK;
}
