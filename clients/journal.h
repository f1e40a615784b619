/* journal.h: the state of each scan of a batch, in memory and in a file to which a line is appended for each event, so
 * that a batch that was interrupted at any moment continues where it was. Each line is a JSON object: {scan, bytes,
 * changed, query, key} before a scan is sent, {key, id} when it has become a job, {key, state, ...} when that has
 * ended. An incomplete line is ignored. Only one batch at a time can use a file. */
#ifndef MRIRECON_JOURNAL_H
#define MRIRECON_JOURNAL_H

#include "gridding/base/err.h"

#include <stdbool.h>

enum { JOURNAL_KEY = 32 + 1, JOURNAL_ID = 64 };

enum scan_state { SCAN_NEW, SCAN_SENT, SCAN_SUCCEEDED, SCAN_FAILED, SCAN_CANCELED };

struct scan_entry {
    char *name; /* file name, in the batch's folder */
    int64_t bytes,
        changed; /* size, and modification time in ns: if they differ, a scan of the same name is another scan */
    enum scan_state state;
    char key[JOURNAL_KEY]; /* idempotency key; "": none yet */
    char id[JOURNAL_ID];   /* of the job; "": none yet */
    char code[64];         /* of its failure */
    double seconds;        /* duration of the job */
    /* not in the file: */
    int tries;         /* attempts to send it; then, to download its result */
    bool whole_name;   /* the result keeps the scan's whole name (batch_folder.h) */
    double not_before; /* clock_seconds() of the next attempt to send it, or to download its result */
};

struct journal;

/* Open or create the file `path`, for scans sent with this query. Fails with ERR_IO (also: another batch uses it),
 * ERR_NO_MEMORY. */
int journal_open(struct journal **out, const char *path, const char *query);
void journal_free(struct journal *journal);

/* Fill in the states of those entries that were sent with the journal's query. Fails with ERR_IO. */
int journal_read(const struct journal *journal, struct scan_entry *entry, int count);

/* Record: a new key, before the entry is sent; its id, after that; its state, when it has ended. The record has been
 * synced to the disk when they return. Fail with ERR_IO, ERR_NO_MEMORY, ERR_INTERNAL. */
int journal_sending(struct journal *journal, struct scan_entry *entry);
int journal_sent(struct journal *journal, const struct scan_entry *entry);
int journal_ended(struct journal *journal, const struct scan_entry *entry);

#endif
