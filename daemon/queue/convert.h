/* convert.h: results of finished jobs in further formats, converted from the native file on request by mrirecon-codec,
 * and kept.
 *
 * Any thread may ask. Conversions run in threads of a pool, at most one per client, clients in turn (pool.h). Requests
 * for the same file share one conversion. A conversion that no request waits for any longer is not started, or is
 * stopped.
 */
#ifndef MRIRECON_DAEMON_CONVERT_H
#define MRIRECON_DAEMON_CONVERT_H

#include "daemon/base/log.h"
#include "daemon/spool/spool.h"
#include "daemon/queue/waiters.h"
#include "recon/recon.h"

#include <stdint.h>

struct converter;

/* `codec` and all pointers must outlive the converter. `seconds`: time limit of one conversion. */
int converter_create(struct converter **out, const char *codec, int64_t seconds, struct spool *spool,
                     struct store *store, struct waiters *waiters, const struct log *log);
/* Stops running conversions. */
void converter_free(struct converter *converter);

/* The subject of a conversion: a job's result in a format that is not the native one, or a view of the result. */
struct conversion {
    char id[JOB_ID];
    const struct kind *kind;
    struct result_file file;
    char view[VIEW_TEXT]; /* of view_print(); "": the whole result, not a view */
};
/* The name of the converted file among the job's results. */
void conversion_name(const struct conversion *conversion, char name[SPOOL_NAME]);
/* The key that is woken at its end. */
void conversion_key(const struct conversion *conversion, char key[WAITER_KEY]);

/* Request a conversion in the turn of `client`. 0: it is in progress, and its key is woken at its end; then either the
 * file exists, or another call fails with the reason (for a few seconds; after that a call starts a new attempt).
 * *ticket (0 at first) identifies the request in further calls. Of the views of a job, the last CONVERT_VIEWS are kept.
 * Fails with ERR_INTERNAL, ERR_SPOOL_FULL, ERR_TIMEOUT, ERR_NOT_FOUND, ERR_NO_MEMORY, ERR_NOT_ACCEPTABLE. */
enum { CONVERT_VIEWS = 64 };
int converter_ask(struct converter *converter, const struct conversion *conversion, const char *client,
                  uint64_t *ticket);
/* The request with this ticket no longer waits. */
void converter_leave(struct converter *converter, uint64_t ticket);

#endif
