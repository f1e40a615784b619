/* child.h: starting child processes from a program with threads. */
#ifndef MRIRECON_DAEMON_CHILD_H
#define MRIRECON_DAEMON_CHILD_H

#include "gridding/base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/* Start `argv` (argv[0] is the path) in a process group of its own, with no signal blocked or ignored, stdin and stdout
 * on /dev/null, stderr shared, and `socket` (-1: none) as descriptor 3. *pidfd is the caller's to close. Programs of
 * ours end with the thread that started them (sandbox_follow_parent()). Fails with ERR_WORKER_DIED: it cannot be
 * started. */
int child_start(char *const argv[], int socket, pid_t *pid, int *pidfd);

enum { CHILD_HOW = 192 }; /* bytes that take any sentence of how a child ended */

/* Collect a child that has ended; how it ended, for a person ("ended with status 1", "was killed by signal 9
 * (Killed)"). Of a child that a filter of system calls killed (SIGSYS) only the kernel's log tells the call: it says
 * so. */
void child_collect(pid_t pid, char *how, size_t size);

/* Likewise one that was killed, once it has ended; false: it has not after `seconds`, for it hangs in the kernel, as in
 * a device's driver, where no signal reaches it. */
bool child_end(pid_t pid, int pidfd, double seconds, char *how, size_t size);

#endif
