/* page.h: the built files of the web page.
 *
 * They are read into memory when the service starts, from one folder without subfolders: a request is a table look-up
 * and opens no file. A file NAME.br or NAME.gz is NAME compressed. Immutable after page_create(); any thread.
 */
#ifndef MRIRECON_DAEMON_PAGE_H
#define MRIRECON_DAEMON_PAGE_H

#include "gridding/base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { PAGE_NAME = 128, PAGE_ETAG = 40 };

/* A file. It belongs to the page. */
struct page_file {
    char name[PAGE_NAME]; /* in the folder: "app-ABCD2345.js.br" */
    const char *coding;   /* Content-Encoding; NULL: none */
    const char *media;
    bool varies;          /* the file exists in several codings */
    bool hashed;          /* its name contains a hash of its contents: NAME-XXXXXXXX.ENDING, of A-Z and 0-9 */
    char etag[PAGE_ETAG]; /* with its quotes */
    unsigned char *bytes;
    size_t length;
};

struct page;

/* Read the folder. Fails with ERR_NOT_FOUND (no such folder, or no index.html in it), ERR_IO, ERR_LIMIT (more than 512
 * files or 64 MiB), ERR_NO_MEMORY. */
int page_create(struct page **out, const char *folder);
void page_free(struct page *page);

/* The file `name` in the coding that an Accept-Encoding header (NULL: not sent) prefers; NULL: not found. `page` may be
 * NULL. */
const struct page_file *page_find(const struct page *page, const char *name, const char *accepted);

#endif
