/* checkpoint.h: what a long job has reached, in a file that outlives its attempt: a job whose worker or daemon died
 * goes on from there.
 *
 * The file holds two states, written by turns: the newer is complete, whenever the process was killed, and on the disk
 * once checkpoint_save() returned. A state is believed if its checksum is right and its tag is the one asked for: a tag
 * tells what wrote it (the program's version, the parameters) as far as it matters.
 */
#ifndef MRIRECON_CHECKPOINT_H
#define MRIRECON_CHECKPOINT_H

#include "gridding/base/num.h"

enum { CHECKPOINT_TAG = 64 };

struct checkpoint {
    int fd;        /* opened for reading and writing; stays the caller's */
    uint64_t most; /* bytes that it may take; 0: any */
};

/* One piece of memory of a state. */
struct checkpoint_part {
    const void *bytes;
    size_t count;
};

/* Save a state: `parts` one after the other. `room`: bytes of the largest state of this job, the same in all its calls.
 * Fails with ERR_IO, ERR_SPOOL_FULL, ERR_LIMIT: what was saved before stays. */
int checkpoint_save(const struct checkpoint *checkpoint, const char *tag, size_t room,
                    const struct checkpoint_part *parts, int count);

/* The newest complete state of this tag: *state is the caller's, to be freed; NULL: there is none. Fails with
 * ERR_NO_MEMORY. */
int checkpoint_load(const struct checkpoint *checkpoint, const char *tag, size_t room, void **state, size_t *bytes);

/* Bytes of a file for states of at most `room`. */
uint64_t checkpoint_bytes(size_t room);

#endif
