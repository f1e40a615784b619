#include "daemon/outbox/outbox_parts.h"

#include "daemon/base/child.h"
#include "daemon/base/clock.h"
#include "daemon/base/thread.h"
#include "daemon/wire.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_SECONDS  5.0  /* longest sleep: the wall clock may be set */
#define FILES_SECONDS 0.1  /* between checks of files being converted */
#define GRACE_SECONDS 10.0 /* that a sender may exceed its time limit */
#define STORE_SECONDS 1.0  /* between attempts to record an outcome while the store fails */

/* s until the next attempt at a destination that is no longer configured: it may be restored */
enum { UNKNOWN_PAUSE = 600 };

/* ---- the end of an attempt ---- */

/* ms until the next attempt after `attempts` failed ones; `asked`: s of the destination's Retry-After, 0: none. */
static int64_t pause_of(const struct destination *to, int64_t attempts, int64_t asked)
{
    uint32_t dice = 0;
    int64_t pause = to->retry < to->retry_most ? to->retry : to->retry_most;
    for (int64_t i = 1; i < attempts && pause < to->retry_most; i++)
        pause = 2 * pause < to->retry_most ? 2 * pause : to->retry_most;
    if (getrandom(&dice, sizeof dice, GRND_NONBLOCK) < 0)
        dice = 0;
    asked = asked < to->retry_most ? asked : to->retry_most;
    pause = 750 * pause + (int64_t)(dice % 501) * pause;
    return pause > 1000 * asked ? pause : 1000 * asked;
}

/* Record the outcome of an attempt that has ended, and free its entry. If the store fails, the entry stays and this is
 * tried again: until then the row says that it is being sent, and nobody else may send it. */
static int outcome_store(struct outbox *outbox, struct sending *sending)
{
    const struct delivery *delivery = &sending->delivery;
    int rc = store_delivery_end(outbox->core.store, delivery, sending->outcome, sending->pause, sending->answer);
    if (!rc || rc == ERR_NOT_FOUND) {
        *sending = (struct sending){.pidfd = -1, .socket = -1};
        return rc;
    }
    if (!sending->ended)
        log_line_about(outbox->core.log, LOG_LEVEL_ERROR, &(struct log_about){delivery->job, delivery->client, 0},
                       "the outcome of its delivery to %s cannot be stored, retrying: %s", delivery->destination,
                       err_last()->text);
    sending->ended = true;
    sending->end = clock_seconds() + STORE_SECONDS;
    return rc;
}

/* An attempt has ended. */
static void sending_end(struct outbox *outbox, struct sending *sending, enum delivery_state state, int64_t asked,
                        const char *answer)
{
    const struct delivery delivery = sending->delivery;
    const struct log *log = outbox->core.log;
    const struct log_about about = {delivery.job, delivery.client, 0};
    char text[DELIVERY_ANSWER];
    snprintf(text, sizeof text, "%s", answer);
    err_clean(text);
    if (state == DELIVERY_PENDING && delivery.attempts >= sending->to.attempts)
        state = DELIVERY_DEAD;
    const int64_t pause = state == DELIVERY_PENDING ? pause_of(&sending->to, delivery.attempts, asked) : 0;
    sending->outcome = state;
    sending->pause = pause;
    memcpy(sending->answer, text, sizeof text);
    files_close(outbox, sending);
    int rc = outcome_store(outbox, sending);
    outbox_count(outbox, delivery.destination, state);
    if (rc == ERR_NOT_FOUND && state != DELIVERY_DELIVERED)
        log_line_about(log, LOG_LEVEL_INFO, &about, "not delivered to %s: the job was deleted meanwhile",
                       delivery.destination);
    else if (state == DELIVERY_DELIVERED)
        log_line_about(log, LOG_LEVEL_INFO, &about, "delivered to %s: %s", delivery.destination, text);
    else if (state == DELIVERY_DEAD)
        log_line_about(log, LOG_LEVEL_WARNING, &about, "gave up delivering to %s after %lld attempts: %s",
                       delivery.destination, (long long)delivery.attempts, text);
    else
        log_line_about(log, LOG_LEVEL_INFO, &about, "not delivered to %s, next attempt in %.0f s: %s",
                       delivery.destination, 1e-3 * (double)pause, text);
}

/* Reap the sender, which has ended or is killed here. */
static void sender_collect(struct sending *sending, char how[CHILD_HOW])
{
    child_collect(sending->pid, how, CHILD_HOW);
    close(sending->pidfd);
    close(sending->socket);
    sending->pid = 0;
    sending->pidfd = sending->socket = -1;
}

/* Read the sender's answer; only well-formed answers are accepted. */
static void answer_take(struct outbox *outbox, struct sending *sending)
{
    static const struct {
        const char *type;
        enum delivery_state state;
    } known[] = {{"delivered", DELIVERY_DELIVERED}, {"again", DELIVERY_PENDING}, {"refused", DELIVERY_DEAD}, {NULL, 0}};
    json_t *message = NULL;
    int fds[WIRE_FDS], count = 0, i = 0;
    char how[CHILD_HOW], text[CHILD_HOW + 80];
    int rc = wire_receive(sending->socket, &message, fds, &count);
    while (count > 0)
        close(fds[--count]);
    kill(sending->pid, SIGKILL); /* it has finished its work */
    sender_collect(sending, how);
    const char *type = json_string_value(json_object_get(message, "type")),
               *answer = json_string_value(json_object_get(message, "answer"));
    while (!rc && type && known[i].type && strcmp(known[i].type, type) != 0)
        i++;
    if (rc || !type || !known[i].type || !answer) {
        snprintf(text, sizeof text, "The program that sends it %s without an answer.", how);
        sending_end(outbox, sending, DELIVERY_PENDING, 0, text);
    } else {
        const json_int_t asked = json_integer_value(json_object_get(message, "after"));
        sending_end(outbox, sending, known[i].state, asked > 0 ? asked : 0, answer);
    }
    json_decref(message);
}

static void overdue_end(struct outbox *outbox, struct sending *sending)
{
    char how[CHILD_HOW], text[80];
    if (sending->pid) {
        kill(sending->pid, SIGKILL);
        sender_collect(sending, how);
    }
    snprintf(text, sizeof text, "It took longer than %lld s.", (long long)sending->to.timeout);
    sending_end(outbox, sending, DELIVERY_PENDING, 0, text);
}

/* ---- the beginning ---- */

static int sender_start(struct outbox *outbox, struct sending *sending, json_t *message)
{
    int pair[2];
    char *const argv[] = {(char *)(uintptr_t)outbox->program, NULL};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(ERR_NO_DESCRIPTORS, "No socket for a sender: %s.", strerror(errno));
    int rc = child_start(argv, pair[1], &sending->pid, &sending->pidfd);
    close(pair[1]);
    if (rc) {
        close(pair[0]);
        return rc;
    }
    sending->socket = pair[0];
    rc = wire_send(sending->socket, message, sending->file, sending->files);
    if (rc == ERR_WORKER_DIED) /* answer_take() tells how */
        rc = 0;
    if (rc) {
        char how[CHILD_HOW];
        kill(sending->pid, SIGKILL);
        sender_collect(sending, how);
    }
    return rc;
}

/* Start the sender as soon as the files that it sends exist. */
static void sending_go_on(struct outbox *outbox, struct sending *sending)
{
    int rc = sending->to.type == DESTINATION_WEBHOOK ? 0 : outbox_files_open(outbox, sending);
    if (rc == ERR_NOT_DONE)
        return;
    json_t *message = rc ? NULL : outbox_message(outbox, sending);
    if (!rc)
        rc = message ? sender_start(outbox, sending, message) : err_last()->code;
    json_decref(message);
    if (rc)
        sending_end(outbox, sending, rc == ERR_NOT_ACCEPTABLE ? DELIVERY_DEAD : DELIVERY_PENDING, 0, err_last()->text);
}

static void sending_begin(struct outbox *outbox, struct sending *sending)
{
    const struct delivery *delivery = &sending->delivery;
    if (!destinations_find(outbox->destinations, delivery->destination, &sending->to)) {
        sending->to = (struct destination){.attempts = 100, .retry = UNKNOWN_PAUSE, .retry_most = UNKNOWN_PAUSE};
        sending_end(outbox, sending, DELIVERY_PENDING, 0,
                    "The configuration has no destination of this name any more.");
        return;
    }
    sending->end = clock_seconds() + (double)sending->to.timeout + GRACE_SECONDS;
    sending_go_on(outbox, sending);
}

/* ---- the thread ---- */

/* The destinations of deliveries in progress; a new reference. */
static json_t *busy_list(const struct outbox *outbox)
{
    json_t *busy = json_array();
    for (int i = 0; i < OUTBOX_SENDERS; i++)
        if (outbox->sending[i].delivery.sequence)
            json_array_append_new(busy, json_string(outbox->sending[i].delivery.destination));
    return busy;
}

/* Start due deliveries while entries are free; *next: time of the next one, ms since 1970, 0: none. */
static int due_begin(struct outbox *outbox, int64_t *next)
{
    bool found = true;
    int rc = 0;
    *next = 0;
    for (int i = 0; i < OUTBOX_SENDERS && found && !rc; i++) {
        struct sending *sending = &outbox->sending[i];
        if (sending->delivery.sequence)
            continue;
        json_t *busy = busy_list(outbox);
        struct delivery delivery;
        rc = store_delivery_claim(outbox->core.store, busy, &delivery, &found);
        if (!rc && found) {
            *sending = (struct sending){.delivery = delivery, .pidfd = -1, .socket = -1};
            sending_begin(outbox, sending);
        } else if (!rc) {
            rc = store_delivery_next(outbox->core.store, busy, next);
        }
        json_decref(busy);
    }
    if (rc && !outbox->troubled)
        log_line(outbox->core.log, LOG_LEVEL_ERROR, NULL, "deliveries are suspended, because the store fails: %s",
                 err_last()->text);
    outbox->troubled = rc != 0;
    return rc;
}

/* ms until the next action. */
static int sleep_of(const struct outbox *outbox, int rc, int64_t next)
{
    double pause = rc ? 1 : LOOK_SECONDS;
    const double due = 1e-3 * (double)(next - clock_milliseconds());
    if (!rc && next && due < pause)
        pause = due > 0 ? due : 0;
    for (int i = 0; i < OUTBOX_SENDERS; i++) {
        const struct sending *sending = &outbox->sending[i];
        if (sending->delivery.sequence && sending->end - clock_seconds() < pause)
            pause = sending->end - clock_seconds();
        if (sending->delivery.sequence && !sending->pid && !sending->ended && pause > FILES_SECONDS)
            pause = FILES_SECONDS;
    }
    return pause > 0 ? (int)(1000 * pause) + 1 : 0;
}

static void senders_wait(struct outbox *outbox, int milliseconds)
{
    struct pollfd fds[OUTBOX_SENDERS + 1] = {{.fd = outbox->wake, .events = POLLIN}};
    eventfd_t count;
    for (int i = 0; i < OUTBOX_SENDERS; i++)
        fds[i + 1] = (struct pollfd){.fd = outbox->sending[i].socket, .events = POLLIN};
    if (poll(fds, OUTBOX_SENDERS + 1, milliseconds) < 0)
        return;
    if (fds[0].revents)
        eventfd_read(outbox->wake, &count);
    for (int i = 0; i < OUTBOX_SENDERS; i++) {
        struct sending *sending = &outbox->sending[i];
        const bool due = clock_seconds() >= sending->end;
        if (fds[i + 1].revents)
            answer_take(outbox, sending);
        else if (sending->ended && due)
            outcome_store(outbox, sending);
        else if (sending->delivery.sequence && !sending->ended && due)
            overdue_end(outbox, sending);
        else if (sending->delivery.sequence && !sending->ended && !sending->pid)
            sending_go_on(outbox, sending);
    }
}

static void *outbox_run(void *context)
{
    struct outbox *outbox = context;
    while (!outbox->stopping) {
        int64_t next = 0;
        int rc = due_begin(outbox, &next);
        senders_wait(outbox, sleep_of(outbox, rc, next));
    }
    /* Rows stay "sending", of deliveries that are stopped or cannot be stored; the next start makes them pending. */
    for (int i = 0; i < OUTBOX_SENDERS; i++) {
        struct sending *sending = &outbox->sending[i];
        char how[CHILD_HOW];
        if (sending->ended)
            outcome_store(outbox, sending);
        else if (sending->pid) {
            kill(sending->pid, SIGKILL);
            sender_collect(sending, how);
        }
        files_close(outbox, sending);
    }
    return NULL;
}

int outbox_create(struct outbox **out, const struct core *core, struct destinations *destinations,
                  struct converter *converter, const char *program)
{
    struct outbox *outbox = calloc(1, sizeof *outbox);
    if (!outbox)
        return err_no_memory("the outbox");
    outbox->core = *core;
    outbox->destinations = destinations;
    outbox->converter = converter;
    outbox->program = program;
    for (int i = 0; i < OUTBOX_SENDERS; i++)
        outbox->sending[i] = (struct sending){.pidfd = -1, .socket = -1};
    pthread_mutex_init(&outbox->lock, NULL);
    outbox->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = outbox->wake < 0 ? err_set(ERR_INTERNAL, "No eventfd for the outbox: %s.", strerror(errno))
                              : thread_start(&outbox->thread, outbox_run, outbox, "delivers what is in the outbox");
    if (rc) {
        if (outbox->wake >= 0)
            close(outbox->wake);
        pthread_mutex_destroy(&outbox->lock);
        free(outbox);
        return rc;
    }
    *out = outbox;
    return 0;
}

void outbox_wake(struct outbox *outbox)
{
    eventfd_write(outbox->wake, 1);
}

void outbox_stop(struct outbox *outbox)
{
    outbox->stopping = true;
    outbox_wake(outbox);
    pthread_join(outbox->thread, NULL);
}

void outbox_free(struct outbox *outbox)
{
    if (!outbox)
        return;
    close(outbox->wake);
    pthread_mutex_destroy(&outbox->lock);
    free(outbox);
}
