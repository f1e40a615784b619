/* mrirecon-send (send.h). It enters its sandbox before it connects. */
#include "daemon/send/send.h"
#include "daemon/wire.h"
#include "recon/codec/sandbox.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int answer(const struct send_result *result)
{
    static const char *const types[] = {"delivered", "again", "refused"};
    json_t *message = json_pack("{s:s, s:s, s:I}", "type", types[result->outcome], "answer", result->answer, "after",
                                (json_int_t)result->after);
    int rc = message ? wire_send(WIRE_FD, message, NULL, 0) : ERR_NO_MEMORY;
    json_decref(message);
    return rc;
}

/* The sandbox allows the files that the delivery reads: certificates, and the files of received descriptors. storescu
 * holds a file's elements in memory, some of them twice. */
static int shut_in(const json_t *message, const int *fds, int count, int port, const char *program)
{
    enum { OWN_BYTES = 64 << 20, SPARE_SECONDS = 10 };
    char path[SEND_FILES][24];
    const char *readable[SEND_FILES + 2] = {NULL}, *ca = json_string_value(json_object_get(message, "ca"));
    struct sandbox_sender sender = {.readable = readable, .port = port, .program = program, .heap_bytes = OWN_BYTES};
    int used = 0;
    for (int i = 0; i < count; i++) {
        struct stat about;
        snprintf(path[i], sizeof path[i], "/proc/self/fd/%d", fds[i]);
        readable[used++] = path[i];
        if (fstat(fds[i], &about) == 0)
            sender.heap_bytes += 4 * (uint64_t)about.st_size;
    }
    if (ca && *ca)
        readable[used++] = ca;
    sender.cpu_seconds = (double)json_integer_value(json_object_get(message, "timeout")) + SPARE_SECONDS;
    return sandbox_enter_sender(&sender);
}

static struct send_result failed(enum send_outcome outcome, const char *answer)
{
    struct send_result result = {.outcome = outcome};
    snprintf(result.answer, sizeof result.answer, "%.*s", SEND_ANSWER - 1, answer);
    return result;
}

static struct send_result deliver(const json_t *message, const int *fds, int count)
{
    const char *type = json_string_value(json_object_get(message, "type")),
               *address = json_string_value(json_object_get(message, "address"));
    const bool dicom = type && strcmp(type, "dicom") == 0, stow = type && strcmp(type, "stow") == 0;
    struct send_instance instances[SEND_FILES];
    char host[SEND_HOST];
    const int port = !address ? 0 : dicom ? send_host_split(address, host) : send_url_port(address);
    if (!port)
        return failed(SEND_REFUSED, "The destination's address has no host and port.");
    if (count > SEND_FILES || (count == 0 && (dicom || stow)))
        return failed(SEND_REFUSED, "There are no files to send, or too many.");
    if (shut_in(message, fds, count, port, dicom ? SEND_STORESCU : NULL))
        return failed(SEND_AGAIN, err_last()->text);
    if (send_instances_read(instances, fds, count))
        return failed(SEND_REFUSED, "A file of the job is not a DICOM file.");
    return dicom  ? send_dicom(message, instances, count)
           : stow ? send_stow(message, instances, count)
                  : send_webhook(message);
}

int main(void)
{
    json_t *message = NULL;
    int fds[WIRE_FDS], count = 0;
    sandbox_follow_parent(WIRE_FD);
    signal(SIGPIPE, SIG_IGN);
    if (wire_receive(WIRE_FD, &message, fds, &count)) {
        fprintf(stderr, "mrirecon-send: only mrirecond starts this program: %s\n", err_last()->text);
        return 1;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct send_result result = deliver(message, fds, count);
    json_decref(message);
    return answer(&result) ? 1 : 0;
}
