/* http_answer.h: answers: texts, JSON, problems, files, streams, with the headers common to all.
 *
 * Each returns 0 once the answer is queued, and fails with ERR_NO_MEMORY.
 */
#ifndef MRIRECON_DAEMON_HTTP_ANSWER_H
#define MRIRECON_DAEMON_HTTP_ANSWER_H

#include "daemon/http/request.h"

/* Answer. `headers`: NULL-terminated pairs {name, value, ..., NULL}. `text` is taken (malloc). */
int http_answer(struct request *request, unsigned status, const char *media, char *text, const char *const *headers);
/* The same with bytes that outlive the server. */
int http_answer_memory(struct request *request, unsigned status, const char *media, const void *bytes, size_t count,
                       const char *const *headers);
/* The text of JSON, which is taken (malloc); NULL: no memory. */
char *http_json_text(json_t *document);
/* The same with JSON, which is taken. */
int http_answer_json(struct request *request, unsigned status, json_t *document, const char *const *headers);
/* Answer with a problem document and the headers of its code. `problem` is taken. */
int http_answer_problem(struct request *request, json_t *problem, const char *const *headers);
/* Part of a file; `fd` is taken. */
int http_answer_file(struct request *request, unsigned status, int fd, int64_t offset, int64_t bytes,
                     const char *const *headers);
/* An answer generated while it is sent: `reader` returns bytes; 0 after suspending the connection (waiters_wait);
 * MHD_CONTENT_READER_END_OF_STREAM at the end. `release` is called when the answer has ended or could not be
 * started. */
int http_answer_stream(struct request *request, unsigned status, const char *media, MHD_ContentReaderCallback reader,
                       void *context, void (*release)(void *context), const char *const *headers);

#endif
