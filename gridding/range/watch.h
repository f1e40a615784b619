/* watch.h: progress and cancellation of work that several threads share. Only the CPU's sums include this.
 *
 * Threads count their completed units. Only the calling thread, thread 0 of the team, calls the listener; the others
 * check whether it canceled. */
#ifndef MRIRECON_WATCH_H
#define MRIRECON_WATCH_H

#include "gridding/base/listener.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdbool.h>

struct watch {
    const struct listener *listener;
    size_t most;
    atomic_size_t done;
    atomic_int rc; /* the listener's non-zero return; 0: continue */
};

static inline void watch_begin(struct watch *w, const struct listener *listener, size_t most)
{
    w->listener = listener;
    w->most = most > 0 ? most : 1;
    atomic_init(&w->done, 0);
    atomic_init(&w->rc, 0);
}

static inline void watch_done(struct watch *w, size_t units)
{
    atomic_fetch_add_explicit(&w->done, units, memory_order_relaxed);
}

static inline int watch_rc(struct watch *w)
{
    return atomic_load_explicit(&w->rc, memory_order_relaxed);
}

/* Whether the work was canceled. */
static inline bool watch_look(struct watch *w)
{
    int rc = watch_rc(w);
    if (rc || !w->listener || omp_get_thread_num() != 0)
        return rc;
    const size_t done = atomic_load_explicit(&w->done, memory_order_relaxed);
    rc = w->listener->progress(w->listener->context, done < w->most ? done : w->most, w->most);
    atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
    return rc;
}

/* The last call of the listener, before memory is freed. */
static inline int watch_end(struct watch *w)
{
    if (!watch_rc(w))
        atomic_store_explicit(&w->done, w->most, memory_order_relaxed);
    watch_look(w);
    return watch_rc(w);
}

enum { COST_ROW = 16, COST_CANDIDATE = 8 }; /* of a row of bins, and of a candidate point */

/* The approximate cost, in ns, of one thread's work since its last check: it checks once per millisecond. */
struct watch_pace {
    struct watch *watch;
    size_t cost;
};

static inline bool watch_pace(struct watch_pace *p, size_t cost)
{
    p->cost += cost;
    if (p->cost < 1000000)
        return watch_rc(p->watch);
    p->cost = 0;
    return watch_look(p->watch);
}

#endif
