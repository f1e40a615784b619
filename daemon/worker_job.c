#include "daemon/worker.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct recon_request worker_request(const struct worker_options *options, const struct kind *kind,
                                    const struct param_values *values, int input, struct decoder *decoder)
{
    return (struct recon_request){
        .kind = kind,
        .values = values,
        .input = input,
        .decoder = decoder,
        .memory_bytes = options->memory_bytes,
        .decode_seconds = options->decode_seconds,
    };
}

static int io_failed(const char *name)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return err_set(ERR_SPOOL_FULL, "%s could not be written: %s. Free some space and run the job again.", name,
                       strerror(errno));
    return err_set(ERR_IO, "%s could not be written: %s.", name, strerror(errno));
}

int worker_image_save(const struct image_series *series, enum image_format format, int folder, const char *name,
                      int64_t *bytes)
{
    /* A job that is run once more meets what its first run left. */
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return io_failed(name);
    struct stat status;
    int rc = image_write(series, format, fd);
    if (rc == 0 && fstat(fd, &status) != 0)
        rc = io_failed(name);
    if (rc == 0)
        *bytes = (int64_t)status.st_size;
    close(fd);
    if (rc != 0)
        unlinkat(folder, name, 0);
    return rc;
}
