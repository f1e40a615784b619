/* destinations.h: the destinations to which ended jobs are sent, from the file of option destinations.
 *
 * Lines of the file, and comments that begin with #:
 *
 *   destination NAME webhook URL secret=FILE [on=succeeded,failed,canceled] [ca=FILE]
 *   destination NAME dicom HOST:PORT called=TITLE [calling=TITLE]
 *   destination NAME stow URL [login=FILE] [ca=FILE]
 *   destination NAME ... [clients=CLIENT,...] [attempts=N] [retry=S] [retry-most=S] [timeout=S]
 *   rule NAME [kind=KIND] [client=CLIENT] [name=PATTERN]
 *
 * An ended job is sent to a destination if one of its rules matches, or if the sender requested it and is permitted to
 * (clients=). Addresses come from this file only, never from a job. Files of secrets are read together with it.
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
    char calling[DESTINATION_TITLE], called[DESTINATION_TITLE]; /* AE titles, of type dicom */
    char ca[OPTION_TEXT];                                       /* file of trusted certificates; "": the system's */
    char secret[DESTINATION_SECRET];                            /* contents of the file of secret= or login= */
    char clients[OPTION_TEXT]; /* clients that may request it, separated by commas; "*": all; "": none */
    unsigned on;               /* bits of the final states in which jobs are sent */
    int64_t attempts;          /* then the delivery is a dead letter */
    int64_t retry, retry_most; /* s after the first failed attempt, doubling; its maximum */
    int64_t timeout;           /* s of one attempt */
};

struct destinations;

/* Read the file `path`; "": none. Fails with ERR_IO (also: others may read a secret), ERR_BAD_REQUEST (the sentence
 * names the line), ERR_NO_MEMORY. */
int destinations_create(struct destinations **out, const char *path);
void destinations_free(struct destinations *destinations);
/* Read the file again; after a failure the old destinations stay. *count: number of destinations. */
int destinations_reload(struct destinations *destinations, int *count);

/* A copy of the destination with this name; false: unknown. */
bool destinations_find(struct destinations *destinations, const char *name, struct destination *out);

/* Check that a sender may request the destinations `names`, separated by commas; `all`: it may use every one. Fails
 * with ERR_BAD_PARAMETER (unknown name), ERR_FORBIDDEN. */
int destinations_check(struct destinations *destinations, const char *names, const char *client, bool all);

/* The names and types of the destinations that this client may request; `all`: of every one. A new reference; NULL: no
 * memory. */
json_t *destinations_list(struct destinations *destinations, const char *client, bool all);

/* The destinations of an ended job, for struct store_router. */
json_t *destinations_route(void *destinations, const struct job_end *end);

#endif
