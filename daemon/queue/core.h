/* core.h: shared by all modules that work on the queue. */
#ifndef MRIRECON_DAEMON_CORE_H
#define MRIRECON_DAEMON_CORE_H

#include "daemon/queue/live.h"
#include "daemon/queue/metrics.h"
#include "daemon/queue/waiters.h"
#include "daemon/spool/spool.h"

/* Nothing is owned: all members outlive their users. */
struct core {
    const struct options *options;
    const struct log *log;
    struct store *store;
    struct spool *spool;
    struct metrics *metrics;
    struct waiters *waiters;
    struct live *live;
};

#endif
