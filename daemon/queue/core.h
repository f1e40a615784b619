/* core.h: what everything that works on the queue works with. */
#ifndef MRIRECON_DAEMON_CORE_H
#define MRIRECON_DAEMON_CORE_H

#include "daemon/queue/metrics.h"
#include "daemon/queue/waiters.h"
#include "daemon/spool/spool.h"

/* None of it is owned here: all of it outlives whoever is given it. */
struct core {
    const struct options *options;
    const struct log *log;
    struct store *store;
    struct spool *spool;
    struct metrics *metrics;
    struct waiters *waiters;
};

#endif
