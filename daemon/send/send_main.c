/* mrirecon-send: see send.h. It shuts itself in before it connects. */
#include "daemon/send/send.h"
#include "daemon/wire.h"
#include "recon/codec/sandbox.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int answer(const struct send_result *result)
{
    static const char *const types[] = {"delivered", "again", "refused"};
    json_t *message = json_pack("{s:s, s:s, s:I}", "type", types[result->outcome], "answer", result->answer, "after",
                                (json_int_t)result->after);
    int rc = message ? wire_send(WIRE_FD, message, NULL, 0) : ERR_NO_MEMORY;
    json_decref(message);
    return rc;
}

static struct send_result deliver(const json_t *message)
{
    const char *ca = json_string_value(json_object_get(message, "ca")),
               *address = json_string_value(json_object_get(message, "address"));
    const char *const readable[] = {ca && *ca ? ca : NULL, NULL};
    struct send_result failed = {.outcome = SEND_AGAIN};
    const int port = address ? send_url_port(address) : 0;
    bool landlock;
    if (!port) {
        failed.outcome = SEND_REFUSED;
        snprintf(failed.answer, sizeof failed.answer, "The destination's address is no URL of http or https.");
        return failed;
    }
    if (sandbox_enter_sender(readable, port, &landlock)) {
        snprintf(failed.answer, sizeof failed.answer, "%.*s", SEND_ANSWER - 1, err_last()->text);
        return failed;
    }
    return send_webhook(message);
}

int main(void)
{
    json_t *message = NULL;
    int fds[WIRE_FDS], count = 0;
    sandbox_follow_parent(WIRE_FD);
    signal(SIGPIPE, SIG_IGN);
    if (wire_receive(WIRE_FD, &message, fds, &count)) {
        fprintf(stderr, "mrirecon-send: it is started by mrirecond alone: %s\n", err_last()->text);
        return 1;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct send_result result = deliver(message);
    json_decref(message);
    return answer(&result) ? 1 : 0;
}
