/* holdlapse.so, to be preloaded: while the file $HOLDLAPSE exists, the daemon's upkeep stands still where it frees the
 * blocks of an idle upload, for as long as a test needs. It makes $HOLDLAPSE.held when it does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fallocate(int file, int mode, off_t offset, off_t length)
{
    const char *hold = getenv("HOLDLAPSE");
    char held[4096];
    if (hold && mode & FALLOC_FL_PUNCH_HOLE && strcmp(program_invocation_short_name, "mrirecond") == 0 &&
        access(hold, F_OK) == 0) {
        snprintf(held, sizeof held, "%s.held", hold);
        close(open(held, O_WRONLY | O_CREAT, 0600));
        while (access(hold, F_OK) == 0)
            usleep(1000);
    }
    return (int)syscall(SYS_fallocate, file, mode, offset, length);
}
