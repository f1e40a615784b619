/* holdsync.so, to be preloaded: a worker stops (SIGSTOP) before its fdatasync() number HOLDSYNC takes effect, in the
 * middle of a checkpoint, for as long as a test needs. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int file)
{
    static _Atomic int calls;
    const char *at = getenv("HOLDSYNC");
    if (at && strcmp(program_invocation_short_name, "mrirecon-worker") == 0 && ++calls == atoi(at))
        raise(SIGSTOP);
    return (int)syscall(SYS_fdatasync, file);
}
