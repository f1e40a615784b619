#include "daemon/queue/workers.h"

#include "daemon/base/child.h"
#include "daemon/base/clock.h"
#include "daemon/wire.h"
#include "gridding/base/dev.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_FIRST  0.1  /* s until a worker that died is restarted */
#define PAUSE_LAST   30.0 /* s, after many early ends */
#define STEADY       60.0 /* s of life after which an end does not count as early */
#define PING_SECONDS 5.0
#define END_SECONDS  1.0 /* s to wait for a killed process */
#define SEND_SECONDS 2   /* s to wait for a worker to accept a message */

const char *worker_state_name(enum worker_state state)
{
    static const char *const names[] = {"down", "starting", "idle", "busy"};
    return names[state];
}

void worker_init(struct worker *worker, int index, const char *wanted)
{
    *worker = (struct worker){.index = index, .socket = -1, .pidfd = -1, .pause = PAUSE_FIRST};
    snprintf(worker->wanted, sizeof worker->wanted, "%s", wanted);
}

/* "gpu:0", "gpu:0+1" */
static bool names_gpus(const char *text)
{
    int gpus = 0;
    if (strncmp(text, "gpu:", 4) != 0)
        return false;
    for (text += 4; gpus < DEV_PARTS_MOST; text++) {
        const size_t digits = strspn(text, "0123456789");
        if (digits < 1 || digits > 3)
            return false;
        gpus++;
        text += digits;
        if (*text != '+')
            return *text == '\0';
    }
    return false;
}

int workers_plan(struct worker workers[WORKERS_MAX], int *count, const char *devices)
{
    int found = 0;
    for (const char *text = devices; *text;) {
        size_t length = strcspn(text, ",");
        char wanted[WORKER_TEXT];
        if (found == WORKERS_MAX)
            return err_set(ERR_BAD_PARAMETER, "Option devices names more than %d workers.", WORKERS_MAX);
        snprintf(wanted, sizeof wanted, "%.*s", (int)(length < WORKER_TEXT ? length : 0), text);
        if (strcmp(wanted, "auto") != 0 && strcmp(wanted, "cpu") != 0 && !names_gpus(wanted))
            return err_set(ERR_BAD_PARAMETER,
                           "Option devices is \"%.64s\"; it must be auto, or a list such as cpu, gpu:0,gpu:1, or "
                           "gpu:0+1 for GPUs that share jobs.",
                           devices);
        worker_init(&workers[found], found, wanted);
        found++;
        text += length;
        text += *text == ',';
    }
    if (!found)
        return err_set(ERR_BAD_PARAMETER,
                       "Option devices is empty; it must be auto, or a list such as cpu or gpu:0,gpu:1.");
    *count = found;
    return 0;
}

int worker_start(struct worker *worker, const struct options *options)
{
    int pair[2];
    char threads[24], decode[24];
    if (worker->left && waitpid(worker->left, NULL, WNOHANG) == 0)
        return err_set(ERR_WORKER_DIED,
                       "Its process %d does not end although it was killed: it hangs in the kernel, perhaps in the "
                       "driver of its device. The machine may have to be restarted.",
                       (int)worker->left);
    worker->left = 0;
    snprintf(threads, sizeof threads, "%lld", (long long)options->threads);
    snprintf(decode, sizeof decode, "%lld", (long long)options->decode_time);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(ERR_INTERNAL, "No socket for a worker: %s.", strerror(errno));
    /* A worker that accepts no messages must not block the scheduler. */
    const struct timeval patience = {.tv_sec = SEND_SECONDS};
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    char *const argv[] = {(char *)options->worker, "serve", "--device", worker->wanted,         "--threads", threads,
                          "--decode-seconds",      decode,  "--codec",  (char *)options->codec, NULL};
    int rc = child_start(argv, pair[1], &worker->pid, &worker->pidfd);
    close(pair[1]);
    if (rc) {
        close(pair[0]);
        return rc;
    }
    worker->socket = pair[0];
    worker->state = WORKER_STARTING;
    worker->started = worker->heard = clock_seconds();
    worker->pinged = 0;
    return 0;
}

int worker_send(struct worker *worker, json_t *message, const int *fds, int fd_count)
{
    int rc = message ? wire_send(worker->socket, message, fds, fd_count) : err_no_memory("a message to a worker");
    json_decref(message);
    return rc;
}

void worker_prepare(struct worker *worker, const struct job *job, json_t *names, const int *files, json_t *room,
                    int scan, enum wire_arriving arriving, int live, int64_t shown)
{
    int descriptors[WIRE_FDS] = {scan, live}, count = 1 + (live >= 0);
    for (size_t i = 0; files && i < json_array_size(names); i++)
        descriptors[count++] = files[i];
    if (worker_send(worker,
                    json_pack("{s:s, s:s, s:s, s:O, s:O, s:O, s:s, s:I}", "type", "prepare", "id", job->id, "kind",
                              job->kind, "parameters", job->parameters, "files", names, "room", room, "arriving",
                              wire_arriving_name(arriving), "live", (json_int_t)(live >= 0 ? shown : -1)),
                    descriptors, count) == 0) {
        memcpy(worker->prefetched, job->id, sizeof worker->prefetched);
        worker->prefetched_file = arriving == ARRIVING_FILE;
    }
}

void worker_forget(struct worker *worker)
{
    if (*worker->prefetched)
        worker_send(worker, json_pack("{s:s, s:s}", "type", "forget", "id", worker->prefetched), NULL, 0);
    worker->prefetched[0] = '\0';
}

int worker_hello(struct worker *worker, const json_t *message)
{
    const char *device = json_string_value(json_object_get(message, "device"));
    const char *note = json_string_value(json_object_get(message, "note"));
    json_int_t version = json_integer_value(json_object_get(message, "version"));
    if (version != WIRE_VERSION)
        return err_set(
            ERR_BAD_REQUEST,
            "The worker uses protocol version %lld, the daemon %d. Install both programs from the same build.",
            (long long)version, WIRE_VERSION);
    snprintf(worker->device, sizeof worker->device, "%s", device ? device : "unknown");
    snprintf(worker->note, sizeof worker->note, "%s", note ? note : "");
    worker->gpu = json_is_true(json_object_get(message, "gpu"));
    worker->landlock = json_is_true(json_object_get(message, "landlock"));
    worker->gpus = 0;
    size_t i;
    json_t *gpu;
    json_array_foreach (json_object_get(message, "gpus"), i, gpu)
        if (json_integer_value(gpu) >= 0 && json_integer_value(gpu) < DEV_GPUS_MOST)
            worker->gpus |= (uint64_t)1 << json_integer_value(gpu);
    worker->state = WORKER_IDLE;
    return 0;
}

void worker_proved(struct worker *worker)
{
    worker->pause = PAUSE_FIRST;
}

void worker_end(struct worker *worker, char *how, size_t size)
{
    double now = clock_seconds();
    snprintf(how, size, "could not be started");
    if (worker->state != WORKER_DOWN) {
        kill(worker->pid, SIGKILL);
        if (!child_end(worker->pid, worker->pidfd, END_SECONDS, how, size)) {
            worker->left = worker->pid;
            snprintf(how, size, "was killed and does not end");
        }
        close(worker->pidfd);
        close(worker->socket);
        worker->socket = worker->pidfd = -1;
        if (now - worker->started > STEADY)
            worker->pause = PAUSE_FIRST;
    }
    worker->state = WORKER_DOWN;
    memcpy(worker->suspect, worker->prefetched, sizeof worker->suspect);
    worker->prefetched[0] = '\0';
    worker->restart_at = now + worker->pause;
    worker->pause = worker->pause * 2 < PAUSE_LAST ? worker->pause * 2 : PAUSE_LAST;
}

bool worker_watch(struct worker *worker, const struct options *options, double now, char *reason, size_t size)
{
    if (worker->state == WORKER_DOWN)
        return true;
    if (worker->state == WORKER_STARTING) {
        if (now - worker->started <= (double)options->start_timeout)
            return true;
        snprintf(reason, size, "was not ready after %lld s", (long long)options->start_timeout);
        return false;
    }
    if (worker->pinged > 0 && now - worker->pinged > (double)options->worker_timeout) {
        snprintf(reason, size, "gave no sign of life for %lld s", (long long)options->worker_timeout);
        return false;
    }
    if (worker->pinged == 0 && now - worker->heard > PING_SECONDS) {
        worker->pinged = now;
        if (worker_send(worker, json_pack("{s:s}", "type", "ping"), NULL, 0)) {
            snprintf(reason, size, "accepts no messages");
            return false;
        }
    }
    return true;
}
