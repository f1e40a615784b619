/* batch_folder.h: the scans of a folder, and the names of their results. */
#ifndef MRIRECON_BATCH_FOLDER_H
#define MRIRECON_BATCH_FOLDER_H

#include "clients/journal.h"

/* The files whose names end in .h5, .mrd or .npz in either case, without hidden ones, sorted by name: *entry (the
 * caller's, folder_free(); also after a failure) and *count. Fails with ERR_IO, ERR_NO_MEMORY. */
int folder_read(const char *folder, struct scan_entry **entry, int *count);
void folder_free(struct scan_entry *entry, int count);

/* FOLDER/NAME; the caller frees it. NULL (failure set): no memory. */
char *folder_path(const char *folder, const char *name);

/* FOLDER/NAME.ENDING: the scan's name with its ending replaced; if another scan of the folder differs only in the
 * ending, `ending` is appended to the whole name instead, so that each scan has a file of its own. The caller frees
 * it. NULL (failure set): no memory. */
char *folder_image_path(const char *folder, const struct scan_entry *scan, const char *ending);

#endif
