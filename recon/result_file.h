/* result_file.h: writing the file of a result. */
#ifndef MRIRECON_RESULT_FILE_H
#define MRIRECON_RESULT_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    RESULT_PIECE = 4 << 20, /* bytes written between two looks at a cancel */
    RESULT_VALUES = 1 << 20 /* values passed over between two */
};

/* Once *cancel is true, result_put() of the calling thread fails with ERR_CANCELED, and so does writing HDF5
 * (recon/image/image_h5_fd.h). It stays the caller's; NULL, as in a new thread: nothing is canceled. */
void result_cancel_by(const atomic_bool *cancel);
bool result_canceled(void);

/* Whether value i of a pass over all values is to be looked at: false after a cancel, for which it looks at multiples
 * of RESULT_VALUES. What such a pass has computed is of no use then: the next result_put() fails. */
static inline bool result_goes_on(size_t i)
{
    return i % RESULT_VALUES != 0 || !result_canceled();
}

/* Write all of `bytes`. `what` begins the sentence of a failure: "The image". Fails as result_put_failed(), and with
 * ERR_CANCELED. */
int result_put(int fd, const void *bytes, size_t count, const char *what);

/* Set the error of a failed write with errno value `error`: ERR_SPOOL_FULL if no space is left, ERR_CANCELED
 * of ECANCELED, else ERR_IO. */
int result_put_failed(int error, const char *what);

#endif
