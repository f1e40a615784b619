/* How fast the queue drains, and when who is refused should come back. */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"

#include <math.h>

#define SMOOTHING   (1.0 / 16) /* weight of the last interval in their mean */
#define RETRY_LEAST 1          /* s */
#define RETRY_MOST  120        /* s */

void drain_count(struct store *store, bool left)
{
    struct drain *drain = &store->drain;
    double now = clock_seconds();
    /* Only where the queue was never empty since the one before is the pause one of the machine's, not of its users. */
    if (left && drain->one_left) {
        double pause = now - drain->since;
        drain->pause = drain->pause > 0 ? drain->pause + SMOOTHING * (pause - drain->pause) : pause;
    }
    bool empty = store->counts[JOB_QUEUED] <= 0;
    if (empty || left || drain->since <= 0)
        drain->since = empty ? 0 : now;
    drain->one_left = !empty && (left || drain->one_left);
}

int store_retry_seconds(struct store *store, int code)
{
    if (code != ERR_QUEUE_FULL && code != ERR_QUOTA && code != ERR_SPOOL_FULL)
        return 0;
    pthread_mutex_lock(&store->tally_lock);
    double pause = store->drain.pause, now = clock_seconds();
    /* Slower than ever, or it stands still. */
    if (store->drain.since > 0 && now - store->drain.since > pause)
        pause = now - store->drain.since;
    /* A client's own jobs move when it is its turn, and the others have theirs. */
    if (code == ERR_QUOTA)
        pause *= (double)tally_clients(store);
    pthread_mutex_unlock(&store->tally_lock);
    return pause < RETRY_LEAST ? RETRY_LEAST : pause > RETRY_MOST ? RETRY_MOST : (int)ceil(pause);
}
