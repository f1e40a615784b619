/* clockjump.so, to be preloaded: shifts CLOCK_REALTIME by the number of whole seconds in the file CLOCKJUMP, which is
 * read at each call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*next)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, now);
    const char *path = clock == CLOCK_REALTIME ? getenv("CLOCKJUMP") : NULL;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char text[32] = "";
    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) > 0)
            now->tv_sec += strtoll(text, NULL, 10);
        close(fd);
    }
    return result;
}
