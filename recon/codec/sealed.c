#include "recon/codec/sealed.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

static int no_room(size_t bytes, const char *what)
{
    return err_set_bytes(ERR_NO_MEMORY, (int64_t)bytes, -1, "The decoded %s (%zu bytes) cannot be mapped (%s).", what,
                         bytes, strerror(errno));
}

/* The decoder may still write to `fd`: each byte is read once. */
static int copy_map(const char **base, size_t bytes, int fd, const char *what, int (*invalid)(const char *reason))
{
    char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (copy == MAP_FAILED)
        return no_room(bytes, what);
    for (size_t at = 0; at < bytes;) {
        const ssize_t got = pread(fd, copy + at, bytes - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            munmap(copy, bytes);
            return invalid("size");
        }
        at += (size_t)got;
    }
    *base = copy;
    return 0;
}

int sealed_map(const char **base, size_t *bytes, int fd, size_t least, const char *what,
               int (*invalid)(const char *reason))
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return err_set(ERR_DECODER_DIED, "The decoder's %s cannot be inspected (%s).", what, strerror(errno));
    const size_t size = (size_t)status.st_size;
    if (size < least)
        return invalid("size");
    *bytes = size;
    if (size <= SEALED_COPIED_BYTES)
        return copy_map(base, size, fd, what, invalid);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return invalid("not sealed");
    /* Private: kernels before 6.7 map no write-sealed memfd shared. Nothing is written, so nothing is copied. */
    const void *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED)
        return no_room(size, what);
    *base = mapped;
    return 0;
}
