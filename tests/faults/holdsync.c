/* holdsync.so, to be preloaded: a worker stops (SIGSTOP) before its fdatasync() number HOLDSYNC takes effect, in the
 * middle of a checkpoint, for as long as a test needs; or before its sync_file_range() number HOLDRANGE, in the middle
 * of writing a large result. Each later one then takes 100 ms longer. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Stop if this is the call number `variable`; returns whether it is a later one. */
static bool hold(const char *variable, _Atomic int *calls)
{
    const char *at = getenv(variable);
    const bool meant = at && strcmp(program_invocation_short_name, "mrirecon-worker") == 0;
    const int number = meant ? ++*calls : 0;
    if (meant && number == atoi(at))
        raise(SIGSTOP);
    return meant && number > atoi(at);
}

int fdatasync(int file)
{
    static _Atomic int calls;
    hold("HOLDSYNC", &calls);
    return (int)syscall(SYS_fdatasync, file);
}

int sync_file_range(int file, off_t offset, off_t count, unsigned flags)
{
    static _Atomic int calls;
    if (hold("HOLDRANGE", &calls))
        poll(NULL, 0, 100);
    return (int)syscall(SYS_sync_file_range, file, offset, count, flags);
}
