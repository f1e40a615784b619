#include "daemon/base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int child_start(char *const argv[], int socket, pid_t *pid, int *pidfd)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (socket >= 0)
        posix_spawn_file_actions_adddup2(&actions, socket, 3);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    /* A process group of its own: Ctrl-C at a terminal is for the daemon, which lets its children finish. */
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    int failed = posix_spawn(pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return err_set(ERR_WORKER_DIED, "%s cannot be started: %s.", argv[0], strerror(failed));
    *pidfd = pidfd_open(*pid, 0);
    if (*pidfd < 0) {
        int error = errno;
        kill(*pid, SIGKILL);
        waitpid(*pid, NULL, 0);
        return err_set(ERR_WORKER_DIED, "%s cannot be watched: %s.", argv[0], strerror(error));
    }
    return 0;
}

void child_collect(pid_t pid, char *how, size_t size)
{
    int status = 0;
    pid_t got;
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (got == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        snprintf(how, size,
                 "was killed by signal %d (%s): its own filter of system calls, or that of the service's unit or "
                 "container, denied a call; `journalctl -k -g type=1326` shows which",
                 SIGSYS, strsignal(SIGSYS));
    else if (got == pid && WIFSIGNALED(status))
        snprintf(how, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, size, "ended with status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

bool child_end(pid_t pid, int pidfd, double seconds, char *how, size_t size)
{
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    if (poll(&end, 1, (int)(1000 * seconds)) == 0)
        return false;
    child_collect(pid, how, size);
    return true;
}
