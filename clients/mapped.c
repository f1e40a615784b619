#include "clients/mapped.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int mapped_open(struct mapped *out, const char *path)
{
    struct stat status;
    void *bytes = MAP_FAILED;
    const char *reason = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &status) == 0) {
        if (!S_ISREG(status.st_mode) || status.st_size == 0)
            reason = "not a regular file, or empty";
        else
            bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (bytes == MAP_FAILED) {
        int rc = err_set(ERR_IO, "%s cannot be read (%s).", path, reason ? reason : strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    close(fd);
    *out = (struct mapped){bytes, (size_t)status.st_size};
    return 0;
}

void mapped_close(struct mapped *mapped)
{
    if (mapped->bytes)
        munmap((void *)(uintptr_t)mapped->bytes, mapped->length);
}
