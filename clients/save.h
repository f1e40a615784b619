/* save.h: a file that appears whole or not at all: written under another name in the same folder, then renamed. */
#ifndef MRIRECON_SAVE_H
#define MRIRECON_SAVE_H

#include "gridding/base/err.h"

struct save;

/* Check whether save_create() would succeed with `path`, before the server computes the result. Fails with ERR_IO. */
int save_check(const char *path);

/* Begin writing `path`. "-" is standard output; an existing path that is no regular file (a pipe, a device) is written
 * directly. Fails with ERR_IO, ERR_NO_MEMORY. */
int save_create(struct save **out, const char *path);

/* The file descriptor to write to; owned by the save. */
int save_fd(const struct save *save);

/* Rename the file into its place. Fails with ERR_IO. */
int save_commit(struct save *save);

/* Removes the file unless it was committed. NULL is allowed. */
void save_free(struct save *save);

#endif
