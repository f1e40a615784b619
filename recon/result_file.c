#include "recon/result_file.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static _Thread_local const atomic_bool *canceled_by;

void result_cancel_by(const atomic_bool *cancel)
{
    canceled_by = cancel;
}

bool result_canceled(void)
{
    return canceled_by && *canceled_by;
}

int result_put(int fd, const void *bytes, size_t count, const char *what)
{
    const char *at = bytes;
    while (count) {
        if (result_canceled())
            return result_put_failed(ECANCELED, what);
        ssize_t done = write(fd, at, count < RESULT_PIECE ? count : RESULT_PIECE);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return result_put_failed(done < 0 ? errno : EIO, what);
        at += done;
        count -= (size_t)done;
    }
    return 0;
}

int result_put_failed(int error, const char *what)
{
    if (error == ECANCELED)
        return err_set(ERR_CANCELED, "%s was being written when the job was canceled.", what);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return err_set(ERR_SPOOL_FULL, "%s could not be written: %s. Free some space and run the job again.", what,
                       strerror(error));
    return err_set(ERR_IO, "%s could not be written: %s.", what, strerror(error));
}
