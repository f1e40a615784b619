/* journal.h: what is known of the scans of a batch, in memory and in a file to which a line is added for each thing
 * that happens, so that a batch that was broken off at any moment goes on where it was.
 *
 * The file holds one JSON object a line: {scan, bytes, changed, query, key} where a scan is about to be sent, {key, id}
 * where it became a job, {key, state, ...} where that ended. A line that breaks off in the middle is passed over. Two
 * batches at a time cannot use one file.
 */
#ifndef MRIRECON_JOURNAL_H
#define MRIRECON_JOURNAL_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { JOURNAL_KEY = 32 + 1, JOURNAL_ID = 64 };

enum scan_state { SCAN_NEW, SCAN_SENT, SCAN_SUCCEEDED, SCAN_FAILED, SCAN_CANCELED };

struct scan_entry {
    char *name;             /* of the file, in the folder of the batch */
    int64_t bytes, changed; /* size, and time of its last change in ns: another scan of the same name is another */
    enum scan_state state;
    char key[JOURNAL_KEY]; /* idempotency key; "": none yet */
    char id[JOURNAL_ID];   /* of the job; "": none yet */
    char code[64];         /* why it failed */
    double seconds;        /* that the job ran */
    /* not in the file: */
    int tries;       /* to send it; then, to fetch its image */
    bool whole_name; /* its image is called by its name with the ending (batch_folder.h) */
};

struct journal;

/* Open or make the file `path`, and fill the states of entries that it knows with this query. Fails with ERR_IO (also:
 * another batch uses it), ERR_NO_MEMORY. */
int journal_open(struct journal **out, const char *path, const char *query, struct scan_entry *entry, int count);
void journal_free(struct journal *journal);

/* A new key for the entry, which is about to be sent; its id, for one that was; its state, for one that ended. On the
 * disk when they return. Fail with ERR_IO, ERR_NO_MEMORY, ERR_INTERNAL. */
int journal_sending(struct journal *journal, struct scan_entry *entry);
int journal_sent(struct journal *journal, const struct scan_entry *entry);
int journal_ended(struct journal *journal, const struct scan_entry *entry);

#endif
