/* The service's own documents: kinds, health, metrics. */
#include "daemon/http/routes.h"

#include "recon/recon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *param_value_pack(const struct param *param, const char *text)
{
    char *end = NULL;
    text = param_spelling(param, text);
    json_int_t integer = param->type == PARAM_INT ? strtoll(text, &end, 10) : 0;
    double real = param->type == PARAM_REAL ? strtod(text, &end) : 0;
    if (!end || end == text || *end)
        return json_string(text);
    return param->type == PARAM_INT ? json_integer(integer) : json_real(real);
}

static json_t *param_pack(const struct param *param)
{
    static const char *const types[] = {[PARAM_CHOICE] = "choice",
                                        [PARAM_INT] = "int",
                                        [PARAM_REAL] = "real",
                                        [PARAM_TEXT] = "text",
                                        [PARAM_SET] = "set"};
    json_t *fallback = param_value_pack(param, param->fallback);
    json_t *packed = json_pack("{s:s, s:s, s:o, s:s}", "name", param->name, "type", types[param->type], "default",
                               fallback, "help", param->help);
    if (param->choices) {
        json_t *choices = json_array();
        for (int i = 0; param->choices[i]; i++)
            json_array_append_new(choices, json_string(param->choices[i]));
        json_object_set_new(packed, "choices", choices);
    }
    if (param->type == PARAM_TEXT) {
        json_object_set_new(packed, "max_bytes", json_integer((json_int_t)param->max));
    } else if (param->type != PARAM_CHOICE && param->type != PARAM_SET) {
        bool whole = param->type == PARAM_INT;
        json_object_set_new(packed, "min", whole ? json_integer((json_int_t)param->min) : json_real(param->min));
        json_object_set_new(packed, "max", whole ? json_integer((json_int_t)param->max) : json_real(param->max));
    }
    return packed;
}

static json_t *result_pack(const struct kind_result *result)
{
    json_t *formats = json_array();
    for (const struct file_format *format = result->form->formats; format->name; format++)
        json_array_append_new(formats, json_pack("{s:s, s:s}", "format", format->name, "type", format->media));
    return json_pack("{s:s, s:s, s:b, s:o}", "name", result->name, "help", result->help, "views", result->form->views,
                     "formats", formats);
}

int route_kinds(struct request *request)
{
    json_t *list = json_array();
    for (const struct kind *const *of = kinds, *kind; (kind = *of); of++) {
        json_t *params = json_array(), *inputs = json_array(), *results = json_array(), *steps = json_array();
        for (const struct param *param = kind->params; param->name; param++)
            json_array_append_new(params, param_pack(param));
        for (const struct kind_input *input = kind->inputs; input->name; input++) {
            char text[128];
            snprintf(text, sizeof text, "%s (%s, %s)", input->help, input->ending, input->media);
            json_array_append_new(inputs, json_string(text));
        }
        for (const struct kind_result *result = kind->results; result->name; result++)
            json_array_append_new(results, result_pack(result));
        for (const struct kind_step *step = kind->steps; step->name; step++)
            json_array_append_new(
                steps, json_pack("{s:s, s:s, s:s?}", "name", step->name, "help", step->help, "unit", step->unit));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", kind->name, "help", kind->help,
                                        "parameters", params, "inputs", inputs, "results", results, "steps", steps));
    }
    return http_answer_json(request, 200, json_pack("{s:o}", "kinds", list), NULL);
}

int route_live(struct request *request)
{
    return http_answer_json(request, 200, json_pack("{s:s}", "status", "alive"), NULL);
}

/* Add a check to `checks`: "ok", or what is wrong. */
static bool check(json_t *checks, const char *name, int rc)
{
    json_object_set_new(checks, name, json_string(rc ? err_last()->text : "ok"));
    return !rc;
}

static int workers_check(struct service *service, json_t *list)
{
    struct worker_status status[WORKERS_MAX];
    int count = scheduler_status(service->scheduler, status), ready = 0, told = 0;
    for (int i = 0; i < count; i++) {
        ready += worker_is_ready(&status[i]);
        if (status[i].resting || (!*status[told].note && *status[i].note))
            told = i;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:b}", "wanted", status[i].wanted, "state",
                                              worker_state_name(status[i].state), "device", status[i].device, "note",
                                              status[i].note, "landlock", status[i].landlock));
    }
    if (ready)
        return 0;
    if (!*status[told].note)
        return err_set(ERR_NO_DEVICE, "No worker is ready; each is starting.");
    return err_set(ERR_NO_DEVICE, "No worker is ready. Jobs are kept until one is. Worker %d (%s) %s", told,
                   *status[told].device ? status[told].device : status[told].wanted, status[told].note);
}

/* Readiness: each check, and the state of each worker. A service that accepts scans but starts no job is not ready,
 * whether it lacks a worker or disk space. */
static bool service_is_ready(struct service *service, json_t *checks, json_t *workers)
{
    bool ready = check(checks, "store", store_check(service->core.store));
    ready &= check(checks, "spool", spool_check(service->core.spool));
    ready &= check(checks, "workers", workers_check(service, workers));
    ready &= check(checks, "starting", scheduler_held_check(service->scheduler));
    ready &= check(checks, "accepting", service->draining ? err_set(ERR_DRAINING, "The service is shutting down.") : 0);
    return ready;
}

/* `?verbose`, with or without a value, as Kubernetes' probes send it. */
static int verbose_take(void *verbose, const char *name, const char *value)
{
    (void)value;
    if (strcmp(name, "verbose") != 0)
        return err_set(ERR_UNKNOWN_PARAMETER, "This path takes verbose, not \"%.64s\".", name);
    *(bool *)verbose = true;
    return 0;
}

int route_ready(struct request *request)
{
    struct service *service = request->service;
    bool verbose = false;
    int rc = query_each(request->query, verbose_take, &verbose);
    if (rc)
        return rc;
    json_t *checks = json_object(), *workers = json_array();
    bool ready = service_is_ready(service, checks, workers);
    json_t *document = json_pack("{s:s}", "status", ready ? "ready" : "not ready");
    /* Failed checks are always listed, passed ones only in the verbose form. */
    if (!ready || verbose) {
        json_object_set(document, "checks", checks);
        json_object_set(document, "worker_list", workers);
        json_object_set_new(document, "version", json_string(MRIRECON_VERSION));
        json_object_update_new(document, service_fill_pack(service));
    }
    json_decref(checks);
    json_decref(workers);
    char *text = json_dumps(document, JSON_INDENT(2));
    json_decref(document);
    return http_answer(request, ready ? 200 : 503, "application/json", text, NULL);
}

/* Several workers may share a GPU; each GPU is counted once. */
static int gpus_take(struct metrics_gpu gpus[WORKERS_MAX], const struct worker_status *status, int workers)
{
    int count = 0;
    for (int i = 0, known; i < workers; i++) {
        for (known = 0; known < count && strcmp(gpus[known].device, status[i].device) != 0; known++)
            ;
        if (status[i].gpu && status[i].memory_total > 0 && known == count)
            gpus[count++] = (struct metrics_gpu){status[i].device, status[i].memory_total - status[i].memory_available,
                                                 status[i].memory_total};
    }
    return count;
}

int route_metrics(struct request *request)
{
    struct service *service = request->service;
    struct worker_status status[WORKERS_MAX];
    struct metrics_now now;
    int rc = service_now(service, &now);
    if (rc)
        return rc;
    json_t *checks = json_object(), *list = json_array();
    now.ready = service_is_ready(service, checks, list);
    json_decref(checks);
    json_decref(list);
    now.workers = scheduler_status(service->scheduler, status);
    for (int i = 0; i < now.workers; i++) {
        now.workers_ready += worker_is_ready(&status[i]);
        now.workers_resting += status[i].resting;
    }
    struct metrics_gpu gpus[WORKERS_MAX];
    now.gpus = gpus_take(gpus, status, now.workers);
    now.gpu = gpus;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return err_no_memory("the metrics");
    metrics_print(service->core.metrics, &now, out);
    rc = outbox_metrics_print(service->outbox, out);
    fclose(out);
    return http_answer(request, 200, "text/plain; version=0.0.4; charset=utf-8", text, NULL);
}
