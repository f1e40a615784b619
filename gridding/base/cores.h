/* cores.h: the processors that this process may use. */
#ifndef MRIRECON_CORES_H
#define MRIRECON_CORES_H

#include <sched.h>
#include <unistd.h>

static inline int cores_available(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

#endif
