/* result_file.h: writing the file of a result. */
#ifndef MRIRECON_RESULT_FILE_H
#define MRIRECON_RESULT_FILE_H

#include <stddef.h>

/* Write all of `bytes`. `what` begins the sentence of a failure: "The image". Fails as result_put_failed(). */
int result_put(int fd, const void *bytes, size_t count, const char *what);

/* Set the error of a failed write with errno value `error`: ERR_SPOOL_FULL if no space is left, else ERR_IO. */
int result_put_failed(int error, const char *what);

#endif
