/* Results: files of succeeded jobs, whole or in ranges, in any format of their form. */
#include "daemon/http/routes.h"

#include "daemon/base/clock.h"
#include "daemon/http/problem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    ETAG = JOB_ID + SPOOL_NAME + 48,
    HEADERS = 64, /* of an answer: names and values */
    MORE = 16,    /* the most that a caller adds */
    RESULT_LOCATION = JOB_ID + KIND_FILE_NAME + 40,
    WARNINGS = 8,       /* the most in headers; a connection has space for some thousand bytes */
    WARNING_BYTES = 400 /* of each */
};

/* Add a header for each warning of the job's report, in `text`. Returns the number of entries of `headers` used. */
static int warnings_put(const struct job *job, char text[WARNINGS][WARNING_BYTES], const char **headers)
{
    const json_t *warnings = json_object_get(job->report, "warnings");
    int used = 0, count = (int)json_array_size(warnings);
    for (int i = 0; i < count && i < WARNINGS; i++) {
        const char *warning = json_string_value(json_array_get(warnings, (size_t)i));
        char rest[64];
        snprintf(rest, sizeof rest, "%d more warnings are in the job's report.", count - i);
        header_string(i == WARNINGS - 1 && count > WARNINGS ? rest : warning ? warning : "", text[i], WARNING_BYTES);
        headers[used++] = "Mrirecond-Warning";
        headers[used++] = text[i];
    }
    return used;
}

/* The status that If-Match and If-None-Match ask for, of the file with this ETag: 200, 304 or 412. */
static unsigned etag_status(struct request *request, const char *etag)
{
    const char *match = http_header(request, "If-Match"), *none = http_header(request, "If-None-Match");
    if (match && !etag_listed(match, etag, false))
        return 412;
    return none && etag_listed(none, etag, true) ? 304 : 200;
}

/* The bytes that Range and If-Range ask for; of RANGE_WHOLE: all. */
static enum range_kind range_find(struct request *request, const char *etag, int64_t bytes, int64_t *first,
                                  int64_t *last)
{
    const char *tag = http_header(request, "If-Range");
    enum range_kind kind = range_parse(http_header(request, "Range"), bytes, first, last);
    if (tag && strcmp(tag, etag) != 0)
        kind = RANGE_WHOLE;
    if (kind == RANGE_WHOLE) {
        *first = 0;
        *last = bytes - 1;
    }
    return kind;
}

static int range_refuse(struct request *request, const char *id, int64_t bytes)
{
    char range[72];
    snprintf(range, sizeof range, "bytes */%lld", (long long)bytes);
    const char *const headers[] = {"Content-Range", range, NULL};
    err_set(ERR_RANGE, "The result has %lld bytes; the range is outside of it.", (long long)bytes);
    return http_answer_problem(request, problem_pack(err_last(), id), headers);
}

/* Answer with an open file (taken), as If-Match, If-None-Match, If-Range and Range ask. */
static int file_answer(struct request *request, const struct job *job, const char *name, int fd, int64_t bytes,
                       int64_t stamp, const char *const *more)
{
    char warnings[WARNINGS][WARNING_BYTES];
    char etag[ETAG], range[72], disposition[SPOOL_NAME + 40];
    snprintf(etag, sizeof etag, "\"%s-%s-%llx-%llx\"", job->id, name, (unsigned long long)bytes,
             (unsigned long long)stamp);
    snprintf(disposition, sizeof disposition, "inline; filename=\"%s\"", name);
    const char *headers[HEADERS] = {"ETag", etag,    "Accept-Ranges", "bytes", "Cache-Control", "private, no-cache",
                                    "Vary", "Accept"};
    int used = 8;
    for (int i = 0; more && more[i] && i < MORE; i++)
        headers[used++] = more[i];
    /* A submission that is answered with its result had nothing to compare with. */
    const unsigned status = strcmp(request->method, "POST") != 0 ? etag_status(request, etag) : 200;
    int64_t first = 0, last = bytes - 1;
    enum range_kind kind = RANGE_WHOLE;
    if (status == 304) /* Content-Length, if there is one, is that of the file: RFC 9110, section 8.6 */
        return http_answer_file(request, status, fd, 0, bytes, headers);
    if (status == 200 && strcmp(request->method, "GET") == 0) /* a HEAD has no ranges: section 14.2 */
        kind = range_find(request, etag, bytes, &first, &last);
    if (status == 412 || kind == RANGE_OUTSIDE)
        close(fd);
    if (status == 412)
        return err_set(ERR_PRECONDITION_FAILED, "The result does not match If-Match; its ETag is %s.", etag);
    if (kind == RANGE_OUTSIDE)
        return range_refuse(request, job->id, bytes);
    if (kind == RANGE_PART) {
        snprintf(range, sizeof range, "bytes %lld-%lld/%lld", (long long)first, (long long)last, (long long)bytes);
        headers[used++] = "Content-Range";
        headers[used++] = range;
    }
    const struct kind *of = kind_find(job->kind);
    struct result_file file;
    if (of && kind_file_find(of, name, &file))
        used += warnings_put(job, warnings, headers + used);
    const char *const own[] = {
        "Content-Type", kind_file_media(of, name), "Content-Disposition", disposition, "X-Job-Id", job->id};
    for (int i = 0; i < 6; i++)
        headers[used++] = own[i];
    headers[used] = NULL;
    return http_answer_file(request, kind == RANGE_PART ? 206 : 200, fd, first, last - first + 1, headers);
}

void result_media(const struct result_form *form, char text[RESULT_MEDIA])
{
    const struct file_format *formats = form->formats;
    size_t used = 0;
    for (int i = 0; formats[i].name && used < RESULT_MEDIA; i++)
        used += (size_t)snprintf(text + used, RESULT_MEDIA - used, "%s%s",
                                 i == 0                ? ""
                                 : formats[i + 1].name ? ", "
                                                       : " and ",
                                 formats[i].media);
}

int result_default(const struct kind *kind, const struct job *job)
{
    return kind_result_default(kind, job_results_asked(job));
}

/* Whether the job has this result, in its native format. */
static bool result_is_there(const struct service *service, const struct job *job, struct result_file file)
{
    char native[KIND_FILE_NAME];
    int fd;
    int64_t bytes, stamp;
    kind_file_name(kind_find(job->kind), (struct result_file){file.result, 0}, native);
    bool there = spool_result_open(service->core.spool, job->id, native, &fd, &bytes, &stamp) == 0;
    if (there)
        close(fd);
    return there;
}

/* The caller's headers, and the path of a file; a view has no path but its own query. */
static void headers_put(const struct conversion *what, char location[RESULT_LOCATION], const char *const *more,
                        const char *headers[MORE])
{
    const struct kind_result *of = &what->kind->results[what->file.result];
    int used = 0;
    if (!*what->view) {
        snprintf(location, RESULT_LOCATION, "/v1/jobs/%s/results/%s?format=%s", what->id, of->name,
                 of->form->formats[what->file.format].name);
        headers[used++] = "Content-Location";
        headers[used++] = location;
    }
    for (int i = 0; more && more[i] && used < MORE - 2; i += 2)
        if (strcmp(more[i], "X-Job-Id") != 0) { /* headers of every file */
            headers[used++] = more[i];
            headers[used++] = more[i + 1];
        }
    headers[used] = NULL;
}

int result_answer_early(struct request *request, const struct job *job, struct result_file file,
                        const char *const *more)
{
    struct conversion what = {.kind = kind_find(job->kind), .file = file};
    char name[SPOOL_NAME], location[RESULT_LOCATION];
    const char *headers[MORE];
    int fd;
    int64_t bytes, stamp;
    memcpy(what.id, job->id, sizeof what.id);
    headers_put(&what, location, more, headers);
    conversion_name(&what, name);
    int rc = spool_result_open(request->service->core.spool, what.id, name, &fd, &bytes, &stamp);
    return rc ? rc : file_answer(request, job, name, fd, bytes, stamp, headers);
}

int result_answer(struct request *request, const struct job *job, struct result_file file, const char *const *more)
{
    struct service *service = request->service;
    struct conversion what = {.kind = kind_find(job->kind), .file = file};
    char name[SPOOL_NAME], key[WAITER_KEY], location[RESULT_LOCATION], client[JOB_CLIENT];
    int fd = -1;
    int64_t bytes, stamp;
    const char *headers[MORE];
    memcpy(what.id, job->id, sizeof what.id);
    memcpy(what.view, request->view, sizeof what.view);
    headers_put(&what, location, more, headers);
    conversion_name(&what, name);
    conversion_key(&what, key);
    request_turn(request, client);
    int rc = spool_result_open(service->core.spool, what.id, name, &fd, &bytes, &stamp);
    if (!rc)
        return file_answer(request, job, name, fd, bytes, stamp, headers);
    if (rc == ERR_NOT_FOUND && request->waiter.gone)
        return err_set(ERR_CANCELED,
                       "The client closed its connection, or the sending half, before it got the result.");
    if (rc == ERR_NOT_FOUND && (file.format > 0 || *what.view) && result_is_there(service, job, file))
        rc = converter_ask(service->converter, &what, client, &request->conversion);
    if (rc)
        return rc;
    if (!http_wait(request, key, clock_seconds() + 2.0 * (double)service->core.options->convert_timeout))
        return err_set(ERR_DRAINING, "The service is shutting down. Ask again when it is back.");
    /* The job may have ended before http_wait(); then nobody else wakes this request. */
    bool here = spool_result_open(service->core.spool, what.id, name, &fd, &bytes, &stamp) == 0;
    if (here)
        close(fd);
    if (here || converter_ask(service->converter, &what, client, &request->conversion))
        waiters_wake(service->core.waiters, key);
    return 0;
}

/* The format in ?format=; -1: none; and the view, if the query has any parameter of one. */
struct format_query {
    const struct result_form *form;
    int format;
    bool viewed;
    struct result_view view;
};

static int format_take(void *context, const char *name, const char *value)
{
    struct format_query *query = context;
    const struct file_format *formats = query->form->formats;
    char list[128] = "";
    size_t used = 0;
    if (view_has(name)) {
        query->viewed = true;
        return view_set(&query->view, name, value);
    }
    if (strcmp(name, "format") != 0)
        return err_set(ERR_UNKNOWN_PARAMETER,
                       "A result takes the parameters format, frame, slice, channel, size and window, not \"%.64s\".",
                       name);
    query->format = form_format_find(query->form, value);
    if (query->format >= 0)
        return 0;
    for (int i = 0; formats[i].name && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0                ? ""
                                 : formats[i + 1].name ? ", "
                                                       : " and ",
                                 formats[i].name);
    return err_set(ERR_NOT_ACCEPTABLE, "There is no format \"%.64s\"; there %s %s.", value,
                   formats[1].name ? "are" : "is", list);
}

/* Note the view that the query asks for. */
static int view_note(struct request *request, const struct format_query *query)
{
    if (query->format >= 0 && strcmp(query->form->formats[query->format].name, "png") != 0)
        return err_set(ERR_BAD_PARAMETER,
                       "Parameters frame, slice, channel, size and window choose one picture: they need format=png.");
    if (!query->form->views)
        return err_set(ERR_NOT_ACCEPTABLE,
                       "This result has no slices that can be shown; GET /v1/kinds tells which have.");
    view_print(&query->view, request->view);
    return 0;
}

/* The format that ?format= or Accept asks for. */
static int format_read(struct request *request, const struct result_form *form, int *out)
{
    const char *accept = http_header(request, "Accept");
    struct format_query query = {.form = form, .format = -1};
    view_init(&query.view);
    int most = 0, rc = query_each(request->query, format_take, &query);
    *out = query.viewed ? 0 : query.format;
    if (!rc && query.viewed)
        return view_note(request, &query);
    if (rc)
        return rc;
    for (int i = 0, closeness; (*out < 0 || most > 0) && form->formats[i].name; i++) {
        int quality = accept_quality(accept, form->formats[i].media, &closeness);
        if (quality > most) {
            most = quality;
            *out = i;
        }
    }
    if (*out >= 0)
        return 0;
    char media[RESULT_MEDIA];
    result_media(form, media);
    return err_set(ERR_NOT_ACCEPTABLE, "Accept matches none of %s.", media);
}

/* Check that the job has results. */
static int job_check(const struct job *job)
{
    if (job->state == JOB_FAILED)
        return err_set(ERR_CONFLICT, "Job %s failed and has no results; its document says why.", job->id);
    if (job->state == JOB_CANCELED || job->state == JOB_CANCELING)
        return err_set(ERR_CONFLICT, "Job %s was canceled and has no results.", job->id);
    if (job->state != JOB_SUCCEEDED)
        return err_set(ERR_CONFLICT, "Job %s is %s and has no results yet. Ask again when it has succeeded.", job->id,
                       job_state_name(job->state));
    return 0;
}

/* Answer with the result that the path names. */
static int name_answer(struct request *request, const struct job *job, const char *name)
{
    const struct kind *kind = kind_find(job->kind);
    struct result_file file = {.result = kind ? kind_result_find(kind, name) : -1};
    int fd;
    int64_t bytes, stamp;
    if (file.result >= 0) {
        int rc = format_read(request, kind->results[file.result].form, &file.format);
        return rc ? rc : result_answer(request, job, file, NULL);
    }
    if (kind && kind_file_find(kind, name, &file))
        return result_answer(request, job, file, NULL);
    int rc = spool_result_open(request->service->core.spool, job->id, name, &fd, &bytes, &stamp);
    return rc ? rc : file_answer(request, job, name, fd, bytes, stamp, NULL);
}

/* A format of a result; `bytes` is null until a file of it exists. */
static json_t *format_pack(const struct service *service, const struct job *job, struct result_file file)
{
    const struct kind *kind = kind_find(job->kind);
    const struct kind_result *result = &kind->results[file.result];
    const struct file_format *format = &result->form->formats[file.format];
    char name[KIND_FILE_NAME], href[JOB_ID + KIND_FILE_NAME + 40];
    int fd;
    int64_t bytes, stamp;
    kind_file_name(kind, file, name);
    snprintf(href, sizeof href, "/v1/jobs/%s/results/%s?format=%s", job->id, result->name, format->name);
    bool made = spool_result_open(service->core.spool, job->id, name, &fd, &bytes, &stamp) == 0;
    if (made)
        close(fd);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "format", format->name, "type", format->media, "file", name, "href",
                     href, "bytes", made ? json_integer((json_int_t)bytes) : json_null());
}

/* The job's results, each with its formats. */
static int list_answer(struct request *request, const struct job *job)
{
    const struct kind *kind = kind_find(job->kind);
    json_t *list = json_array();
    for (int i = 0; kind && kind->results[i].name; i++) {
        const struct kind_result *result = &kind->results[i];
        json_t *formats = json_array();
        for (int f = 0; result->form->formats[f].name; f++)
            json_array_append_new(formats, format_pack(request->service, job, (struct result_file){i, f}));
        if (result_is_there(request->service, job, (struct result_file){i, 0}))
            json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:O}", "name", result->name, "help", result->help,
                                                  "views", result->form->views, "formats", formats));
        json_decref(formats);
    }
    return http_answer_json(request, 200, json_pack("{s:s, s:o}", "id", job->id, "results", list), NULL);
}

/* Wait for the job's end if the request asks for that; then answer with the result `name`, or the list of all (NULL).
 */
static int results_answer(struct request *request, const char *name)
{
    struct job job = {.state = JOB_QUEUED};
    int rc = request_job(request, request->part[2], &job);
    if (rc)
        return rc;
    if (request_waits(request, &job)) {
        job_clear(&job);
        return 0;
    }
    rc = job_check(&job);
    if (!rc)
        rc = name ? name_answer(request, &job, name) : list_answer(request, &job);
    job_clear(&job);
    return rc;
}

int route_results(struct request *request)
{
    return results_answer(request, NULL);
}

int route_result(struct request *request)
{
    return results_answer(request, request->part[4]);
}
