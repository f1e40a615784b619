/* jitter.so, to be preloaded: in mrirecond, a thread that takes or releases a lock, or has just begun, now and then
 * pauses for up to JITTER ms, as it does on a busy machine, and sometimes for much longer. The main thread never does:
 * it stops and frees what the others use, and they are to be late. The thread number NO_THREAD cannot be started. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ONE_OF = 16 /* calls */, LATE_OF = 8 /* pauses */, LATE_TIMES = 16 };

static _Atomic uint64_t calls;
static long longest;       /* ns; 0: no pause */
static int no_thread;      /* 0: every thread can be started */
static uintptr_t from, to; /* address range of the program's own code */

static int program_find(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    (void)context;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD && (object->dlpi_phdr[i].p_flags & PF_X)) {
            from = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            to = from + object->dlpi_phdr[i].p_memsz;
        }
    return 1; /* the first object is the program */
}

__attribute__((constructor)) static void jitter_init(void)
{
    dl_iterate_phdr(program_find, NULL);
    const char *milliseconds = getenv("JITTER"), *number = getenv("NO_THREAD");
    const bool meant = strcmp(program_invocation_short_name, "mrirecond") == 0;
    longest = meant && milliseconds ? 1000000L * atoi(milliseconds) : 0;
    no_thread = meant && number ? atoi(number) : 0;
}

/* splitmix64 of the call's number. */
static uint64_t dice(void)
{
    uint64_t z = (++calls + (uint64_t)pthread_self()) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Pause at random if the program itself made the call: libraries take thousands of locks. */
static void jitter(const void *caller)
{
    const int error = errno;
    const bool own = (uintptr_t)caller >= from && (uintptr_t)caller < to;
    const uint64_t thrown = dice();
    if (longest && own && thrown % ONE_OF == 0 && gettid() != getpid()) {
        const bool late = (thrown >> 32) % LATE_OF == 0;
        const long pause = (long)((thrown >> 8) % (uint64_t)longest) * (late ? LATE_TIMES : 1);
        nanosleep(&(struct timespec){.tv_sec = pause / 1000000000, .tv_nsec = pause % 1000000000}, NULL);
    }
    errno = error;
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (!next)
        next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    jitter(__builtin_return_address(0));
    return next(lock);
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (!next)
        next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    int result = next(lock);
    jitter(__builtin_return_address(0));
    return result;
}

struct start {
    void *(*run)(void *);
    void *context;
};

static void *start_late(void *of)
{
    struct start start = *(struct start *)of;
    free(of);
    jitter((const void *)(uintptr_t)start.run);
    return start.run(start.context);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    static int (*_Atomic next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!next)
        next =
            (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    static _Atomic int threads;
    struct start *start = ++threads == no_thread ? NULL : malloc(sizeof *start);
    if (!start)
        return EAGAIN;
    *start = (struct start){run, context};
    int rc = next(thread, attributes, start_late, start);
    if (rc != 0)
        free(start);
    return rc;
}
