/* service.h: creates and ends what mrirecond consists of. Belongs to the main thread. */
#ifndef MRIRECON_DAEMON_SERVICE_H
#define MRIRECON_DAEMON_SERVICE_H

#include "daemon/http/http.h"
#include "daemon/mrd/mrd.h"

struct servers {
    struct http *http;
    struct mrd_server *mrd;
};

/* Check the configuration and create what it describes (destinations, web page, tokens, TLS), before the state folder
 * is touched. May lower options->connections to the limit on file descriptors. Fails with ERR_BAD_PARAMETER, ERR_IO,
 * and as the modules' functions do; service_stop(), or freeing those four, is due in any case. */
int service_configure(struct service *service, struct options *options);

/* Configure and start, in the order of need: store, spool, queue, servers. service->core.options and .log are set.
 * Fails as service_configure() and the modules' functions do; service_stop() is due in any case. */
int service_start(struct service *service, struct options *options, struct servers *servers);

/* Stop and free, in the opposite order. */
void service_stop(struct service *service, struct servers *servers);

/* Give the store the options it follows: at a start, and after a reload. */
void service_rules_set(struct service *service);

/* Warn in the log of a certificate that expires soon: clients will refuse it, which the daemon would not notice. */
void service_certificate_check(struct service *service);

#endif
