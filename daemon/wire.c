#include "daemon/wire.h"

#include "daemon/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int send_failure(void)
{
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        return err_set(ERR_WORKER_DIED, "The process at the other end of the socket has ended.");
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return err_set(ERR_IO, "The process at the other end of the socket did not take a message in time.");
    return err_set(ERR_IO, "Sending a message between daemon and worker failed: %s.", strerror(errno));
}

static const char *const arriving_names[] = {
    [ARRIVING_NOT] = "no", [ARRIVING_STREAM] = "stream", [ARRIVING_FILE] = "file"};

const char *wire_arriving_name(enum wire_arriving arriving)
{
    return arriving_names[arriving];
}

enum wire_arriving wire_arriving_find(const char *name)
{
    int found = ARRIVING_FILE;
    while (found > ARRIVING_NOT && strcmp(arriving_names[found], name) != 0)
        found--;
    return (enum wire_arriving)found;
}

int wire_send(int socket, json_t *message, const int *fds, int fd_count)
{
    if (fd_count < 0 || fd_count > WIRE_FDS)
        return err_set(ERR_INTERNAL, "A message carries %d file descriptors; %d is the most.", fd_count, WIRE_FDS);
    char *text = json_dumps(message, JSON_COMPACT);
    if (!text)
        return err_no_memory("a message between daemon and worker");
    size_t bytes = strlen(text);
    if (bytes > WIRE_MAX) {
        free(text);
        return err_set(ERR_IO, "A message of %zu bytes between daemon and worker exceeds the limit of %d.", bytes,
                       WIRE_MAX);
    }
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * WIRE_FDS)];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = text, .iov_len = bytes};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        packet.msg_control = control.bytes;
        packet.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * (size_t)fd_count);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &packet, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    int rc = sent < 0 ? send_failure() : 0;
    free(text);
    return rc;
}

/* Take the descriptors out of a received packet; false if its control data are anything else. */
static bool take_fds(struct msghdr *packet, int fds[WIRE_FDS], int *fd_count)
{
    bool clean = !(packet->msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *head = CMSG_FIRSTHDR(packet); head; head = CMSG_NXTHDR(packet, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            clean = false;
            continue;
        }
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (*fd_count < WIRE_FDS) {
                fds[(*fd_count)++] = fd;
            } else {
                close(fd);
                clean = false;
            }
        }
    }
    return clean;
}

/* Receive a packet: *got bytes, at most WIRE_MAX, in `text`, and `*count` descriptors in `taken`, also after a failure.
 */
static int packet_receive(int socket, char text[WIRE_MAX + 1], size_t *got, int taken[WIRE_FDS], int *count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * WIRE_FDS)];
    } control;
    struct iovec part = {.iov_base = text, .iov_len = WIRE_MAX + 1};
    struct msghdr packet = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t bytes;
    *count = 0;
    do
        bytes = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0)
        return send_failure();
    bool clean = take_fds(&packet, taken, count);
    if (bytes == 0)
        return err_set(ERR_WORKER_DIED, "The process at the other end of the socket has ended.");
    if (!clean || (packet.msg_flags & MSG_TRUNC) || bytes > WIRE_MAX)
        return err_set(ERR_BAD_REQUEST, "A message between daemon and worker exceeds %d bytes or %d descriptors.",
                       WIRE_MAX, WIRE_FDS);
    *got = (size_t)bytes;
    return 0;
}

/* The message in a packet. */
static int message_parse(const char *text, size_t bytes, json_t **message)
{
    json_error_t where;
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!object)
        return err_set(ERR_BAD_REQUEST, "A message between daemon and worker is not JSON: %s.", where.text);
    if (!json_is_string(json_object_get(object, "type"))) {
        json_decref(object);
        return err_set(ERR_BAD_REQUEST, "A message between daemon and worker is not a JSON object with a \"type\".");
    }
    *message = object;
    return 0;
}

int wire_receive(int socket, json_t **message, int fds[WIRE_FDS], int *fd_count)
{
    /* One byte more than the limit, to detect longer packets. */
    char *text = malloc(WIRE_MAX + 1);
    int taken[WIRE_FDS], count;
    size_t got = 0;
    if (!text)
        return err_no_memory("a message between daemon and worker");
    int rc = packet_receive(socket, text, &got, taken, &count);
    if (!rc)
        rc = message_parse(text, got, message);
    free(text);
    for (int i = 0; i < count; i++)
        if (rc)
            close(taken[i]);
        else
            fds[i] = taken[i];
    if (!rc)
        *fd_count = count;
    return rc;
}

/* Whether `value` has more than `levels` levels of objects and arrays. */
static bool is_deeper(const json_t *value, int levels)
{
    const char *name;
    size_t i;
    json_t *part;
    bool deeper = levels == 0 && (json_is_object(value) || json_is_array(value));
    if (!deeper)
        json_object_foreach ((json_t *)value, name, part)
            deeper = deeper || is_deeper(part, levels - 1);
    if (!deeper)
        json_array_foreach (value, i, part)
            deeper = deeper || is_deeper(part, levels - 1);
    return deeper;
}

bool wire_report_is_sound(const json_t *report)
{
    return json_is_object(report) && !is_deeper(report, WIRE_REPORT_DEEP) &&
           json_dumpb(report, NULL, 0, JSON_COMPACT) <= WIRE_REPORT_MAX;
}

json_t *wire_error_pack(const struct err *failure)
{
    /* A sentence cut at the buffer's end may end inside a UTF-8 character, which JSON forbids. */
    char text[sizeof failure->text];
    memcpy(text, failure->text, sizeof text);
    text[sizeof text - 1] = '\0';
    json_t *detail = json_string(text);
    for (size_t end = strlen(text), cut = 0; !detail && end > 0 && cut < 4; cut++) {
        text[--end] = '\0';
        detail = json_string(text);
    }
    if (!detail)
        detail = json_string(err_title(failure->code));
    json_t *object = json_object();
    json_object_set_new(object, "code", json_string(err_name(failure->code)));
    json_object_set_new(object, "detail", detail);
    if (failure->acquisition >= 0)
        json_object_set_new(object, "acquisition_index", json_integer(failure->acquisition));
    if (failure->required >= 0)
        json_object_set_new(object, "required_bytes", json_integer(failure->required));
    if (failure->available >= 0)
        json_object_set_new(object, "available_bytes", json_integer(failure->available));
    return object;
}

static int64_t number_or_none(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

void wire_error_unpack(const json_t *object, struct err *failure)
{
    const char *code = json_string_value(json_object_get(object, "code"));
    const char *detail = json_string_value(json_object_get(object, "detail"));
    int known = code ? err_from_name(code) : ERR_INTERNAL;
    *failure = (struct err){
        .code = known ? known : ERR_INTERNAL, /* "ok" is no failure */
        .acquisition = number_or_none(object, "acquisition_index"),
        .required = number_or_none(object, "required_bytes"),
        .available = number_or_none(object, "available_bytes"),
    };
    if (!detail || !*detail)
        detail = err_title(failure->code);
    size_t length = strnlen(detail, sizeof failure->text - 1);
    /* Cut between characters. */
    if (detail[length])
        while (length > 0 && ((unsigned char)detail[length] & 0xc0) == 0x80)
            length--;
    memcpy(failure->text, detail, length);
    failure->text[length] = '\0';
    for (char *c = failure->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
}

json_t *wire_time_pack(int64_t milliseconds)
{
    char text[CLOCK_TEXT];
    if (!milliseconds)
        return json_null();
    clock_print(milliseconds, text);
    return json_string(text);
}
