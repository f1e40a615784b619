/* slowwrite.so, to be preloaded: the daemon sees PROCESSORS processors, and each of its writes to an arriving upload
 * takes 10 ms longer; it stops as long as the file $HOLDWRITE exists, and makes $HOLDWRITE.there when it does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_daemon(void)
{
    return strcmp(program_invocation_short_name, "mrirecond") == 0;
}

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set)
{
    int (*next)(pid_t, size_t, cpu_set_t *) =
        (int (*)(pid_t, size_t, cpu_set_t *))dlsym(RTLD_NEXT, "sched_getaffinity");
    const char *count = getenv("PROCESSORS");
    if (!count || !is_daemon())
        return next(process, bytes, set);
    CPU_ZERO_S(bytes, set);
    for (int i = 0; i < atoi(count); i++)
        CPU_SET_S(i, bytes, set);
    return 0;
}

ssize_t write(int fd, const void *data, size_t count)
{
    ssize_t (*next)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char link[32], path[512], there[sizeof path];
    const char *hold = getenv("HOLDWRITE");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = is_daemon() ? readlink(link, path, sizeof path - 1) : 0;
    path[length > 0 ? length : 0] = '\0';
    if (hold && length > 5 && strcmp(path + length - 5, ".part") == 0) {
        snprintf(there, sizeof there, "%s.there", hold);
        if (access(hold, F_OK) == 0)
            close(open(there, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        do
            poll(NULL, 0, 10);
        while (access(hold, F_OK) == 0);
    }
    return next(fd, data, count);
}
