/* The rate at which jobs leave the queue. */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"

#define SMOOTHING (1.0 / 16) /* weight of the last interval in their mean */

void drain_count(struct store *store, bool left)
{
    struct drain *drain = &store->drain;
    double now = clock_seconds();
    /* An interval between two jobs measures the machine only if the queue was not empty in between. */
    if (left && drain->one_left) {
        double pause = now - drain->since;
        drain->pause = drain->pause > 0 ? drain->pause + SMOOTHING * (pause - drain->pause) : pause;
    }
    bool empty = store->counts[JOB_QUEUED] <= 0;
    if (empty || left || drain->since <= 0)
        drain->since = empty ? 0 : now;
    drain->one_left = !empty && (left || drain->one_left);
}
