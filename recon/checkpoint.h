/* checkpoint.h: the state of a long job, in a file that outlives its attempt: if the worker or the daemon dies, the
 * next attempt continues from it.
 *
 * The file holds two states, written alternately, so one is complete whenever the process is killed; a state is on the
 * disk once checkpoint_save() has returned. A state is used only if its checksum is correct and its tag equals the
 * requested one: the tag identifies everything that a state depends on (the program's version, the parameters).
 */
#ifndef MRIRECON_CHECKPOINT_H
#define MRIRECON_CHECKPOINT_H

#include "gridding/base/num.h"

enum { CHECKPOINT_TAG = 64 };

struct checkpoint {
    int fd;        /* opened for reading and writing; stays the caller's */
    uint64_t most; /* bytes that the file may use; 0: any */
};

/* One piece of memory of a state. */
struct checkpoint_part {
    const void *bytes;
    size_t count;
};

/* Save a state: the concatenated `parts`. `room`: bytes of the job's largest state, the same in all calls. Fails with
 * ERR_IO, ERR_SPOOL_FULL, ERR_LIMIT; the earlier state then stays. */
int checkpoint_save(const struct checkpoint *checkpoint, const char *tag, size_t room,
                    const struct checkpoint_part *parts, int count);

/* The newest complete state with this tag: *state is the caller's to free; NULL: there is none. Fails with
 * ERR_NO_MEMORY. */
int checkpoint_load(const struct checkpoint *checkpoint, const char *tag, size_t room, void **state, size_t *bytes);

/* Bytes of a file for states of at most `room`. */
uint64_t checkpoint_bytes(size_t room);

#endif
