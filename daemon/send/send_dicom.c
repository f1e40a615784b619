/* C-STORE by DCMTK's storescu. An instance counts as stored according to the PACS's status for it, which storescu
 * prints in its debug output; storescu's exit status does not distinguish instances (PS3.4, table B.2-1; PS3.7, annex
 * C). */
#include "daemon/send/send.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS = 20 + SEND_FILES, NUMBER = 24, LINE = 512, CONNECT_SECONDS = 15, ASSOCIATE_SECONDS = 30 };

/* ---- files ---- */

/* The value of element (0002,0003), Media Storage SOP Instance UID. */
static int uid_read(int fd, char uid[SEND_UID])
{
    unsigned char head[1024];
    ssize_t length = pread(fd, head, sizeof head, 0);
    uid[0] = '\0';
    if (length < 144 || memcmp(head + 128, "DICM", 4) != 0)
        return -1;
    for (size_t at = 132, end = (size_t)length; at + 8 <= end && head[at] == 2 && head[at + 1] == 0;) {
        const int is_long = memcmp(head + at + 4, "OB", 2) == 0;
        const size_t start = at + (is_long ? 12 : 8);
        if (start > end)
            return -1;
        const size_t bytes = is_long ? (size_t)head[at + 8] | (size_t)head[at + 9] << 8
                                     : (size_t)head[at + 6] | (size_t)head[at + 7] << 8;
        if (head[at + 2] == 3 && head[at + 3] == 0 && bytes < SEND_UID && start + bytes <= end) {
            memcpy(uid, head + start, bytes);
            uid[bytes] = '\0';
            return *uid ? 0 : -1;
        }
        at = start + bytes;
    }
    return -1;
}

int send_instances_read(struct send_instance *instances, const int *fds, int count)
{
    for (int i = 0; i < count; i++) {
        instances[i] = (struct send_instance){.fd = fds[i], .status = SEND_UNTOLD};
        if (uid_read(fds[i], instances[i].uid))
            return -1;
    }
    return 0;
}

void send_status_note(struct send_instance *instances, int count, const char *uid, int status)
{
    for (int i = 0; i < count; i++)
        if (strcmp(instances[i].uid, uid) == 0)
            instances[i].status = status;
}

/* Whether the PACS has the instance: stored, or stored with a warning. */
static int is_stored(int status)
{
    return status == 0 || (status & 0xf000) == 0xb000 || status == 0x0001 || status == 0x0107 || status == 0x0116;
}

/* Whether the PACS may accept it later: it was out of resources, or had an internal failure. */
static int is_passing(int status)
{
    return status == SEND_UNTOLD || (status & 0xff00) == 0xa700 || status == 0x0110 || status == 0x0213;
}

struct send_result send_instances_judge(const struct send_instance *instances, int count, int refused,
                                        const char *reason)
{
    struct send_result result = {.outcome = SEND_DELIVERED};
    int stored = 0, status = SEND_UNTOLD;
    for (int i = 0; i < count; i++) {
        stored += is_stored(instances[i].status);
        if (is_stored(instances[i].status))
            continue;
        if (instances[i].status != SEND_UNTOLD)
            status = instances[i].status;
        if (result.outcome == SEND_DELIVERED || !is_passing(instances[i].status))
            result.outcome = refused || !is_passing(instances[i].status) ? SEND_REFUSED : SEND_AGAIN;
    }
    if (result.outcome == SEND_DELIVERED)
        snprintf(result.answer, sizeof result.answer, "%d instance%s stored.", stored, stored == 1 ? " is" : "s are");
    else if (status != SEND_UNTOLD)
        snprintf(result.answer, sizeof result.answer,
                 "%d of %d instances are stored; one was answered with status %04X.", stored, count, (unsigned)status);
    else
        snprintf(result.answer, sizeof result.answer, "%d of %d instances are stored: %.180s.", stored, count,
                 *reason ? reason : "the destination did not report the others");
    return result;
}

/* ---- storescu ---- */

/* State of parsing storescu's output. */
struct talk {
    struct send_instance *instances;
    int count;
    int response;          /* within a C-STORE response */
    char uid[SEND_UID];    /* of the response's instance */
    char reason[LINE / 2]; /* the first failures */
    int refused;           /* the association was rejected permanently */
};

static void line_take(struct talk *talk, const char *line)
{
    unsigned status;
    if (strncmp(line, "D: Message Type", 15) == 0) {
        talk->response = strstr(line, ": C-STORE RSP") ? 1 : 0;
        talk->uid[0] = '\0';
    } else if (talk->response && strncmp(line, "D: Affected SOP Instance UID", 28) == 0) {
        if (sscanf(line, "D: Affected SOP Instance UID : %64[0-9.]", talk->uid) != 1)
            talk->uid[0] = '\0';
    } else if (talk->response && sscanf(line, "D: DIMSE Status : 0x%x", &status) == 1) {
        send_status_note(talk->instances, talk->count, talk->uid, (int)(status & 0xffff));
        talk->response = 0;
    } else if ((line[0] == 'F' || line[0] == 'E') && line[1] == ':' && line[2] == ' ' && line[3]) {
        const size_t used = strlen(talk->reason);
        snprintf(talk->reason + used, sizeof talk->reason - used, "%s%s", used ? ", " : "", line + 3);
        talk->refused |= strstr(line, "Rejected Permanent") || strstr(line, "No Acceptable Presentation");
    }
}

/* Parse lines until the end; a line that is too long is cut. */
static void talk_read(struct talk *talk, FILE *from)
{
    char line[LINE];
    for (int whole = 1; fgets(line, sizeof line, from);) {
        const int begins = whole;
        whole = strchr(line, '\n') ? 1 : 0;
        line[strcspn(line, "\r\n")] = '\0';
        if (begins)
            line_take(talk, line);
    }
}

/* In the child. */
static void storescu_run(char *const argv[], int output, const struct send_instance *instances, int count)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    for (int i = 0; i < count; i++)
        fcntl(instances[i].fd, F_SETFD, 0);
    execv(argv[0], argv);
    dprintf(STDERR_FILENO, "F: %s cannot be run: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Run storescu and parse its output. */
static int storescu_talk(char *const argv[], struct talk *talk)
{
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        storescu_run(argv, ends[1], talk->instances, talk->count);
    close(ends[1]);
    FILE *from = pid > 0 ? fdopen(ends[0], "r") : NULL;
    if (from) {
        talk_read(talk, from);
        fclose(from);
    } else {
        close(ends[0]);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return from ? 0 : -1;
}

struct send_result send_dicom(const json_t *message, struct send_instance *instances, int count)
{
    const char *calling = json_string_value(json_object_get(message, "calling")),
               *called = json_string_value(json_object_get(message, "called")),
               *address = json_string_value(json_object_get(message, "address"));
    char host[SEND_HOST], port[NUMBER], connect[NUMBER], associate[NUMBER], reply[NUMBER], path[SEND_FILES][NUMBER];
    struct talk talk = {.instances = instances, .count = count};
    char *argv[ARGUMENTS] = {NULL};
    int used = 0;
    snprintf(port, sizeof port, "%d", send_host_split(address, host));
    snprintf(connect, sizeof connect, "%d", CONNECT_SECONDS);
    snprintf(associate, sizeof associate, "%d", ASSOCIATE_SECONDS);
    snprintf(reply, sizeof reply, "%d", (int)json_integer_value(json_object_get(message, "timeout")));
    const char *const words[] = {SEND_STORESCU, "-d",   "-nh",   "-to",  connect, "-ta", associate, "-td",
                                 reply,         "-aet", calling, "-aec", called,  host,  port};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        argv[used++] = (char *)(uintptr_t)words[i];
    for (int i = 0; i < count; i++) {
        snprintf(path[i], NUMBER, "/proc/self/fd/%d", instances[i].fd);
        argv[used++] = path[i];
    }
    if (storescu_talk(argv, &talk))
        snprintf(talk.reason, sizeof talk.reason, "%s cannot be started: %s", SEND_STORESCU, strerror(errno));
    return send_instances_judge(instances, count, talk.refused, talk.reason);
}
