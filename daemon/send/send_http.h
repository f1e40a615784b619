/* send_http.h: what webhooks and STOW-RS share. */
#ifndef MRIRECON_SEND_HTTP_H
#define MRIRECON_SEND_HTTP_H

#include "daemon/send/send.h"

#include <curl/curl.h>

/* A handle for the message's address, ca and timeout: no redirection, no proxy of the environment, http and https
 * alone; what is answered is dropped. NULL: no memory. */
CURL *send_http_make(const json_t *message, char reason[CURL_ERROR_SIZE]);
/* What the end of a request means, by its HTTP status. */
struct send_result send_http_judge(CURL *curl, CURLcode done, const char *reason);

#endif
