/* The store's clock. Job times are wall-clock times, for people and to survive a restart, but the wall clock may be
 * set. Each transaction compares it with the boot clock; if it was set, the times of all jobs are moved by the same
 * amount, so that waits, deadlines and ages stay what they were. */
#include "daemon/store/store_parts.h"

#include "daemon/base/clock.h"

#include <stdatomic.h>
#include <stdlib.h>

void store_clock_start(struct store *store)
{
    store->clock_offset = clock_offset(&store->now);
}

bool store_clock_read(struct store *store)
{
    int64_t step = clock_offset(&store->now) - store->clock_offset;
    store->clock_step = llabs(step) < CLOCK_STEP_LEAST_MS ? 0 : step;
    return store->clock_step != 0;
}

int store_clock_move(struct store *store)
{
    struct connection *writer = &store->writer;
    int64_t step = store->clock_step;
    if (step == 0)
        return 0;
    int rc = sql_change(writer,
                        sql_prepare(writer,
                                    "UPDATE job SET created = created + ?, started = iif(started > 0, started + ?, 0), "
                                    "finished = iif(finished > 0, finished + ?, 0), "
                                    "deadline = iif(deadline > 0, deadline + ?, 0)",
                                    "iiii", step, step, step, step),
                        NULL);
    if (!rc)
        rc = sql_change(writer,
                        sql_prepare(writer,
                                    "UPDATE delivery SET created = created + ?1, due = due + ?1, "
                                    "ended = iif(ended > 0, ended + ?1, 0)",
                                    "i", step),
                        NULL);
    return rc;
}

void store_clock_moved(struct store *store)
{
    store->clock_offset += store->clock_step;
    store->clock_moved += store->clock_step;
}

int64_t store_clock_set(struct store *store)
{
    return atomic_exchange(&store->clock_moved, 0);
}
