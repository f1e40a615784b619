/* notify.h: what the service manager (systemd) is told, and asks for: readiness, a line of status, signs of life.
 *
 * A sign of life is given only where the scheduler has taken a turn since the last: a daemon whose scheduler hangs is
 * restarted, although its main thread runs. Belongs to the main thread. Without a service manager nothing happens.
 */
#ifndef MRIRECON_DAEMON_NOTIFY_H
#define MRIRECON_DAEMON_NOTIFY_H

#include "daemon/http/http.h"

struct notify {
    struct service *service;
    bool ready;      /* told */
    double interval; /* s between two signs of life; 0: none are asked for */
    double asked;    /* clock_seconds() when the scheduler was last woken for one */
    double status_due;
};

void notify_init(struct notify *notify, struct service *service);

/* To be called a few times a second. */
void notify_tick(struct notify *notify);

void notify_reloading(const struct notify *notify);
void notify_reloaded(const struct notify *notify);
void notify_stopping(const struct notify *notify);

#endif
