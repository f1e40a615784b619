/* The store's clock. Times of jobs are those of the machine's clock, for people and for the time after a restart; but
 * somebody may set that. Each transaction compares it with a clock that nobody sets, and where it was set, the times of
 * all jobs are moved as far: what a job has waited, has left until its deadline, or is old, stays what it was. */
#include "daemon/store_parts.h"

#include "daemon/clock.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    STEP_LEAST_MS = 500, /* less is left as it is, until it has added up */
    AT_ONCE_MS = 50      /* that reading both clocks may take */
};

/* Where the clock of the machine stands before the one that is never set; *now: where it stands. */
static int64_t offset_read(int64_t *now)
{
    int64_t before, after;
    do {
        before = clock_boot_milliseconds();
        *now = clock_milliseconds();
        after = clock_boot_milliseconds();
    } while (after - before > AT_ONCE_MS);
    return *now - after;
}

void store_clock_start(struct store *store)
{
    store->clock_offset = offset_read(&store->now);
}

bool store_clock_read(struct store *store)
{
    int64_t step = offset_read(&store->now) - store->clock_offset;
    store->clock_step = llabs(step) < STEP_LEAST_MS ? 0 : step;
    return store->clock_step != 0;
}

int store_clock_move(struct store *store)
{
    struct connection *writer = &store->writer;
    int64_t step = store->clock_step;
    if (step == 0)
        return 0;
    return sql_change(writer,
                      sql_prepare(writer,
                                  "UPDATE job SET created = created + ?, started = iif(started > 0, started + ?, 0), "
                                  "finished = iif(finished > 0, finished + ?, 0), "
                                  "deadline = iif(deadline > 0, deadline + ?, 0)",
                                  "iiii", step, step, step, step),
                      NULL);
}

void store_clock_moved(struct store *store)
{
    store->clock_offset += store->clock_step;
    store->clock_moved += store->clock_step;
}

static int time_apply(struct store *store, void *now)
{
    *(int64_t *)now = store->now;
    return 0;
}

int store_time(struct store *store, int64_t *now)
{
    return store_change_soft(store, time_apply, now);
}

int64_t store_clock_set(struct store *store)
{
    return atomic_exchange(&store->clock_moved, 0);
}
