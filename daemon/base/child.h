/* child.h: starting child processes from a program with threads. */
#ifndef MRIRECON_DAEMON_CHILD_H
#define MRIRECON_DAEMON_CHILD_H

#include "gridding/base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/* Start `argv` (argv[0] is the path) in a process group of its own, with no signal blocked or ignored, stdin and stdout
 * on /dev/null, stderr shared, and `socket` (-1: none) as descriptor 3. *pidfd is the caller's to close. Our own
 * programs end with the thread that started them (sandbox_follow_parent()). Fails with ERR_WORKER_DIED: it cannot be
 * started. */
int child_start(char *const argv[], int socket, pid_t *pid, int *pidfd);

enum { CHILD_HOW = 192 }; /* bytes for the sentence of how a child ended */

/* Reap a child that has ended. `how`: how, for a person ("ended with status 1", "was killed by signal 9 (Killed)"). For
 * a child killed by a system-call filter (SIGSYS) it points to the kernel's log, which alone names the call. */
void child_collect(pid_t pid, char *how, size_t size);

/* The same for a child that was sent SIGKILL. false: it has not ended after `seconds`; it hangs in the kernel, for
 * example in a device driver. */
bool child_end(pid_t pid, int pidfd, double seconds, char *how, size_t size);

#endif
