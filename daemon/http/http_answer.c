#include "daemon/http/http_answer.h"

#include "daemon/http/problem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RETRY_SECONDS = 10, /* Retry-After of errors that do not depend on the queue */
    STREAM_BLOCK = 4096 /* of a streamed answer, produced at a time */
};

static int queue(struct request *request, unsigned status, struct MHD_Response *response, const char *const *headers)
{
    for (int i = 0; headers && headers[i]; i += 2)
        MHD_add_response_header(response, headers[i], headers[i + 1]);
    if (!MHD_get_response_header(response, "Cache-Control"))
        MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (request->route && (request->route->flags & ROUTE_TUS))
        MHD_add_response_header(response, "Tus-Resumable", TUS_VERSION);
    /* The library accepts ends of chunks and trailers that RFC 9112 forbids, and does not report them: nothing after
     * them is read as a request. A surplus connection is closed, too, to make room for the next. */
    if ((http_body_bytes(request) < 0 || request->watch->surplus) && !MHD_get_response_header(response, "Connection"))
        MHD_add_response_header(response, "Connection", "close");
    if (MHD_queue_response(request->connection, status, response) == MHD_YES) {
        request->state = REQUEST_ANSWERED;
        request->status = status;
    }
    MHD_destroy_response(response);
    return 0;
}

int http_answer(struct request *request, unsigned status, const char *media, char *text, const char *const *headers)
{
    if (!text)
        return err_no_memory("the answer; try again later");
    struct MHD_Response *response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return err_no_memory("the answer; try again later");
    }
    if (*media)
        MHD_add_response_header(response, "Content-Type", media);
    return queue(request, status, response, headers);
}

int http_answer_memory(struct request *request, unsigned status, const char *media, const void *bytes, size_t count,
                       const char *const *headers)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(count, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return err_no_memory("the answer; try again later");
    MHD_add_response_header(response, "Content-Type", media);
    return queue(request, status, response, headers);
}

char *http_json_text(json_t *document)
{
    char *text = document ? json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    size_t length = text ? strlen(text) : 0;
    char *ended = text ? realloc(text, length + 2) : NULL;
    json_decref(document);
    if (!ended)
        free(text);
    else
        memcpy(ended + length, "\n", 2);
    return ended;
}

int http_answer_json(struct request *request, unsigned status, json_t *document, const char *const *headers)
{
    return http_answer(request, status, status >= 400 ? PROBLEM_MEDIA : "application/json", http_json_text(document),
                       headers);
}

int http_answer_problem(struct request *request, json_t *problem, const char *const *headers)
{
    unsigned status = (unsigned)json_integer_value(json_object_get(problem, "status"));
    const char *all[16] = {NULL};
    char seconds[16];
    int used = 0;
    for (; headers && headers[used] && used < 12; used++)
        all[used] = headers[used];
    if (status == 503 || status == 507 || status == 429) {
        const char *code = json_string_value(json_object_get(problem, "code"));
        int queue = store_retry_seconds(request->service->core.store, code ? err_from_name(code) : ERR_INTERNAL);
        snprintf(seconds, sizeof seconds, "%d", queue ? queue : RETRY_SECONDS);
        all[used++] = "Retry-After";
        all[used++] = seconds;
    }
    return http_answer_json(request, status, problem, all);
}

int http_answer_file(struct request *request, unsigned status, int fd, int64_t offset, int64_t bytes,
                     const char *const *headers)
{
    struct MHD_Response *response = MHD_create_response_from_fd_at_offset64(
        (uint64_t)bytes, fd, (uint64_t)offset); /* takes fd; sends by sendfile */
    if (!response) {
        close(fd);
        return err_no_memory("the answer; try again later");
    }
    return queue(request, status, response, headers);
}

int http_answer_stream(struct request *request, unsigned status, const char *media, MHD_ContentReaderCallback reader,
                       void *context, void (*release)(void *context), const char *const *headers)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, reader, context, release);
    if (!response) {
        release(context);
        return err_no_memory("the answer; try again later");
    }
    MHD_add_response_header(response, "Content-Type", media);
    /* The library ends a HEAD's chunked answer like that of a GET, with an empty chunk: nothing may follow it. */
    if (strcmp(request->method, "HEAD") == 0)
        MHD_add_response_header(response, "Connection", "close");
    return queue(request, status, response, headers);
}
