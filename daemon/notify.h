/* notify.h: messages to the service manager (systemd): readiness, a status line, watchdog keep-alives.
 *
 * A keep-alive is sent only if the scheduler has completed a turn since the last one, so a daemon whose scheduler hangs
 * is restarted although its main thread runs. Belongs to the main thread. Without a service manager nothing happens.
 */
#ifndef MRIRECON_DAEMON_NOTIFY_H
#define MRIRECON_DAEMON_NOTIFY_H

#include "daemon/http/http.h"

struct notify {
    struct service *service;
    bool ready;      /* sent */
    double interval; /* s between two keep-alives; 0: the manager wants none */
    double asked;    /* clock_seconds() when the scheduler was last woken for a keep-alive */
    double status_due;
};

void notify_init(struct notify *notify, struct service *service);

/* Call this a few times a second. */
void notify_tick(struct notify *notify);

void notify_reloading(const struct notify *notify);
void notify_reloaded(const struct notify *notify);
void notify_stopping(const struct notify *notify);

#endif
