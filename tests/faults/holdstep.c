/* holdstep.so, to be preloaded: a worker stops (SIGSTOP) each time it has reported an iteration of a step, as long as a
 * file exists whose name is that of HOLDSTEP, a dot and the step's name. An image that is shown before the job's end
 * counts as a step "shown". The file's content is not used, because the sandbox lets a worker read no file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whether a message (not NUL-terminated) reports an iteration of a step that is to be held. */
static int to_be_held(const char *message, size_t bytes)
{
    char text[1024], step[64], path[512];
    int iteration = 0;
    if (bytes >= sizeof text)
        return 0;
    memcpy(text, message, bytes);
    text[bytes] = '\0';
    const char *at = strstr(text, "\"step\":\"");
    const int shown = strncmp(text, "{\"type\":\"shown\"", 15) == 0;
    if (shown)
        iteration = snprintf(step, sizeof step, "shown");
    else if (!at || sscanf(at, "\"step\":\"%63[a-z]\",\"iteration\":%d", step, &iteration) != 2)
        return 0;
    snprintf(path, sizeof path, "%s.%s", getenv("HOLDSTEP"), step);
    return iteration > 0 && access(path, F_OK) == 0;
}

ssize_t sendmsg(int socket, const struct msghdr *packet, int flags)
{
    ssize_t (*next)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    ssize_t sent = next(socket, packet, flags);
    int error = errno;
    if (getenv("HOLDSTEP") && strcmp(program_invocation_short_name, "mrirecon-worker") == 0 &&
        packet->msg_iovlen == 1 && to_be_held(packet->msg_iov->iov_base, packet->msg_iov->iov_len))
        raise(SIGSTOP);
    errno = error;
    return sent;
}
