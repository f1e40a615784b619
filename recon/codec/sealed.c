#include "recon/codec/sealed.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

int sealed_map(const char **base, size_t *bytes, int fd, size_t least, const char *what,
               int (*invalid)(const char *reason))
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return err_set(ERR_DECODER_DIED, "The decoder's %s cannot be inspected (%s).", what, strerror(errno));
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return invalid("not sealed");
    const size_t size = (size_t)status.st_size;
    if (size < least)
        return invalid("size");
    /* Private: kernels before 6.7 map no write-sealed memfd shared. Nothing is written, so nothing is copied. */
    const void *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED)
        return err_set_bytes(ERR_NO_MEMORY, (int64_t)size, -1, "The decoded %s (%zu bytes) cannot be mapped (%s).",
                             what, size, strerror(errno));
    *base = mapped;
    *bytes = size;
    return 0;
}
