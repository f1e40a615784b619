/* zip_put.h: a zip archive of stored files (APPNOTE 6.3.3), written to a file one after the other. Only recon/image/
 * includes this. */
#ifndef MRIRECON_ZIP_PUT_H
#define MRIRECON_ZIP_PUT_H

#include <stddef.h>
#include <stdint.h>

enum {
    ZIP_PUT_FILES = 65534,                  /* more, or 4 GB, would need Zip64, which not every reader has */
    ZIP_PUT_NAME = 32,                      /* bytes of a name at most, with its end */
    ZIP_PUT_FILE = 2 * (46 + ZIP_PUT_NAME), /* that a file takes beside its bytes, at most */
    ZIP_PUT_END = 22
};

struct zip_put {
    int fd;
    uint32_t at; /* bytes that are written */
    uint16_t files;
    uint8_t *directory;
    size_t used, room;
};

/* An archive in `fd`, at 0; zip_put_end() writes its directory, and in any case frees what is held. */
void zip_put_begin(struct zip_put *zip, int fd);

/* A file that consists of `head` and `body`. Fails with ERR_NOT_ACCEPTABLE (too many files or bytes), ERR_NO_MEMORY,
 * ERR_SPOOL_FULL, ERR_IO. */
int zip_put_file(struct zip_put *zip, const char *name, const void *head, size_t head_bytes, const void *body,
                 size_t body_bytes);

/* `rc`: what the files' writing came to; if that is not 0, nothing is written. Fails with it, and as image_put(). */
int zip_put_end(struct zip_put *zip, int rc);

#endif
