#include "gridding/base/ask.h"

#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"

#include <omp.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, PIECE = 1 << 20, PIECE_COST = 500000 /* bytes, ns */ };

/* The parts that are apart are on cache lines of their own: thread 0 writes the cost all the time. */
struct asker {
    struct dev_ask ask;        /* ask.ask NULL: nobody is asked */
    alignas(LINE) size_t cost; /* of thread 0's work since it asked last, in ns, approximately */
    alignas(LINE) atomic_int rc;
};

int asker_create(struct asker **out, const struct dev_ask *ask)
{
    struct asker *asker = aligned_alloc(LINE, sizeof *asker);
    if (!asker)
        return err_no_memory("a question");
    *asker = (struct asker){.ask = ask ? *ask : (struct dev_ask){.ask = NULL}};
    *out = asker;
    return 0;
}

void asker_free(struct asker *asker)
{
    free(asker);
}

struct asker *dev_asker(const struct dev *dev)
{
    return dev->gpu ? NULL : dev->state;
}

void dev_ask_set(struct dev *dev, const struct dev_ask *ask)
{
    for (int p = 0; p < dev->parts; p++) {
        struct asker *asker = dev_asker(p == 0 ? dev : dev->part[p - 1]);
        if (asker)
            *asker = (struct asker){.ask = ask ? *ask : (struct dev_ask){.ask = NULL}};
    }
}

int asker_rc(const struct asker *asker)
{
    return asker ? atomic_load_explicit(&asker->rc, memory_order_relaxed) : 0;
}

bool asker_stopped(struct asker *asker, size_t cost)
{
    if (!asker || !asker->ask.ask)
        return false;
    if (asker_rc(asker) != 0)
        return true;
    if (omp_get_thread_num() != 0 || (asker->cost += cost) < ASK_EVERY)
        return false;
    asker->cost = 0;
    const int rc = asker->ask.ask(asker->ask.context);
    atomic_store_explicit(&asker->rc, rc, memory_order_relaxed);
    return rc != 0;
}

int asker_zero(struct asker *asker, void *to, size_t bytes)
{
    char *at = to;
    for (size_t done = 0; done < bytes; done += PIECE) {
        if (bytes > PIECE && asker_stopped(asker, PIECE_COST))
            return asker_rc(asker);
        memset(at + done, 0, bytes - done < PIECE ? bytes - done : PIECE);
    }
    return 0;
}

int asker_copy(struct asker *asker, void *to, const void *from, size_t bytes)
{
    char *at = to;
    const char *source = from;
    for (size_t done = 0; done < bytes; done += PIECE) {
        if (bytes > PIECE && asker_stopped(asker, PIECE_COST))
            return asker_rc(asker);
        memcpy(at + done, source + done, bytes - done < PIECE ? bytes - done : PIECE);
    }
    return 0;
}
