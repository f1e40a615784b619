/* nolock.so, to be preloaded: a file system whose files cannot be locked, as one of NFS whose lock service is down. */
#include <errno.h>
#include <sys/file.h>

int flock(int fd, int operation)
{
    (void)fd;
    (void)operation;
    errno = ENOLCK;
    return -1;
}
