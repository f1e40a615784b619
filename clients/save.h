/* save.h: a file that appears whole or not at all: written under another name in the same folder, then renamed. */
#ifndef MRIRECON_SAVE_H
#define MRIRECON_SAVE_H

#include "gridding/base/err.h"

struct save;

/* Whether save_create() could begin with `path` now: asked before there is something to write, for which a sender
 * waits. Fails with ERR_IO. */
int save_check(const char *path);

/* Begin writing `path`. "-" is standard output; a path that is there and is no regular file (a pipe, a device) is
 * written directly. Fails with ERR_IO, ERR_NO_MEMORY. */
int save_create(struct save **out, const char *path);

/* Where to write; stays the save's. */
int save_fd(const struct save *save);

/* Put the file in its place. Fails with ERR_IO. */
int save_commit(struct save *save);

/* What was not committed is removed. NULL is allowed. */
void save_free(struct save *save);

#endif
