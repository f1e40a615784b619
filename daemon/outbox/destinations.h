/* destinations.h: where ended jobs are sent, as the file of the option destinations says.
 *
 * Lines of the file, and comments that begin with #:
 *
 *   destination NAME webhook URL secret=FILE [on=succeeded,failed,canceled] [ca=FILE]
 *   destination NAME dicom HOST:PORT called=TITLE [calling=TITLE]
 *   destination NAME stow URL [login=FILE] [ca=FILE]
 *   destination NAME ... [clients=CLIENT,...] [attempts=N] [retry=S] [retry-most=S] [timeout=S]
 *   rule NAME [kind=KIND] [client=CLIENT] [name=PATTERN]
 *
 * A job that ends is sent to a destination if a rule of it matches, or if its sender asked for it and may
 * (clients=). Addresses come from this file alone, never from a job. Files of secrets are read with it.
 *
 * Any thread; a reload replaces all at once.
 */
#ifndef MRIRECON_DAEMON_DESTINATIONS_H
#define MRIRECON_DAEMON_DESTINATIONS_H

#include "daemon/base/options.h"
#include "daemon/store/deliveries.h"

#include <stdbool.h>

enum destination_type { DESTINATION_WEBHOOK, DESTINATION_DICOM, DESTINATION_STOW, DESTINATION_TYPES };
const char *destination_type_name(enum destination_type type);

enum { DESTINATION_SECRET = 512, DESTINATION_TITLE = 16 + 1 };

struct destination {
    char name[DELIVERY_NAME];
    enum destination_type type;
    char address[OPTION_TEXT];                                  /* a URL; HOST:PORT of type dicom */
    char calling[DESTINATION_TITLE], called[DESTINATION_TITLE]; /* titles of application entities; of type dicom */
    char ca[OPTION_TEXT];            /* file of certificates that are trusted; "": the system's */
    char secret[DESTINATION_SECRET]; /* what the file secret= or login= holds */
    char clients[OPTION_TEXT];       /* that may name it, separated by commas; "*": all; "": none */
    unsigned on;                     /* bits of states: how a job ended that is sent there */
    int64_t attempts;                /* after so many it is a dead letter */
    int64_t retry, retry_most;       /* s after the first failed attempt, doubling; at most */
    int64_t timeout;                 /* s of one attempt */
};

struct destinations;

/* Read the file `path`; "": none. Fails with ERR_IO (also: others may read a secret), ERR_BAD_REQUEST (the sentence
 * names the line), ERR_NO_MEMORY. */
int destinations_create(struct destinations **out, const char *path);
void destinations_free(struct destinations *destinations);
/* Read the file again; after a failure all stays as it was. *count: how many destinations there are. */
int destinations_reload(struct destinations *destinations, int *count);

/* A copy of the destination of this name; false: there is none. */
bool destinations_find(struct destinations *destinations, const char *name, struct destination *out);

/* That a sender may have its job sent to `names`, separated by commas; `all`: it may use every destination. Fails with
 * ERR_BAD_PARAMETER (there is none of the name), ERR_FORBIDDEN. */
int destinations_check(struct destinations *destinations, const char *names, const char *client, bool all);

/* The names of where an ended job is sent: struct store_router. */
json_t *destinations_route(void *destinations, const struct job_end *end);

#endif
