/* send_http.h: shared by webhooks and STOW-RS. */
#ifndef MRIRECON_SEND_HTTP_H
#define MRIRECON_SEND_HTTP_H

#include "daemon/send/send.h"

#include <curl/curl.h>

/* A handle for the message's address, ca and timeout: no redirection, no proxy from the environment, only http and
 * https; bodies of answers are dropped. NULL: no memory. */
CURL *send_http_make(const json_t *message, char reason[CURL_ERROR_SIZE]);
/* The outcome of a request, by its HTTP status. */
struct send_result send_http_judge(CURL *curl, CURLcode done, const char *reason);

#endif
