#include "recon/image/zip_put.h"

#include "gridding/base/err.h"
#include "recon/image/image_leaf.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

enum { DATE = 33 /* 1980-01-01, the first that there is: the same images make the same archive */, VERSION = 20 };

static uint8_t *put16(uint8_t *to, uint16_t value)
{
    value = htole16(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static uint8_t *put32(uint8_t *to, uint32_t value)
{
    value = htole32(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

/* What a file's local header and its entry in the directory have in common: version to name length, extra length. */
static uint8_t *common_put(uint8_t *to, uint32_t crc, uint32_t bytes, size_t name)
{
    to = put16(to, VERSION);
    to = put16(to, 0); /* flags */
    to = put16(to, 0); /* stored */
    to = put16(to, 0); /* time */
    to = put16(to, DATE);
    to = put32(to, crc);
    to = put32(to, bytes);
    to = put32(to, bytes);
    to = put16(to, (uint16_t)name);
    return put16(to, 0);
}

void zip_put_begin(struct zip_put *zip, int fd)
{
    *zip = (struct zip_put){.fd = fd};
}

static int entry_add(struct zip_put *zip, const char *name, uint32_t crc, uint32_t bytes)
{
    const size_t length = strlen(name);
    if (zip->room - zip->used < ZIP_PUT_FILE) {
        const size_t room = 2 * zip->room + 64 * ZIP_PUT_FILE;
        uint8_t *grown = realloc(zip->directory, room);
        if (!grown)
            return err_no_memory("the directory of an archive of %d files", zip->files);
        zip->directory = grown;
        zip->room = room;
    }
    uint8_t *to = put32(zip->directory + zip->used, 0x02014b50);
    to = common_put(put16(to, VERSION), crc, bytes, length);
    to = put16(to, 0); /* comment */
    to = put16(to, 0); /* disk */
    to = put16(to, 0); /* attributes, twice */
    to = put32(to, 0);
    to = put32(to, zip->at);
    memcpy(to, name, length);
    zip->used = (size_t)(to - zip->directory) + length;
    zip->files++;
    return 0;
}

int zip_put_file(struct zip_put *zip, const char *name, const void *head, size_t head_bytes, const void *body,
                 size_t body_bytes)
{
    uint8_t local[30 + ZIP_PUT_NAME];
    const size_t bytes = head_bytes + body_bytes;
    if (zip->files == ZIP_PUT_FILES || (uint64_t)zip->at + zip->used + bytes + 3 * ZIP_PUT_FILE > UINT32_MAX)
        return err_set(ERR_NOT_ACCEPTABLE,
                       "A zip archive holds at most %d files and 4 GB, and the images need more. Ask for dcm, which is "
                       "one file, or for h5 or npy.",
                       ZIP_PUT_FILES);
    const uint32_t crc = (uint32_t)crc32(crc32(0, head, (uInt)head_bytes), body, (uInt)body_bytes);
    uint8_t *to = common_put(put32(local, 0x04034b50), crc, (uint32_t)bytes, strlen(name));
    memcpy(to, name, strlen(name));
    const size_t used = (size_t)(to - local) + strlen(name);
    int rc = entry_add(zip, name, crc, (uint32_t)bytes);
    if (rc == 0)
        rc = image_put(zip->fd, local, used);
    if (rc == 0)
        rc = image_put(zip->fd, head, head_bytes);
    if (rc == 0)
        rc = image_put(zip->fd, body, body_bytes);
    zip->at += (uint32_t)(used + bytes);
    return rc;
}

int zip_put_end(struct zip_put *zip, int rc)
{
    uint8_t end[ZIP_PUT_END];
    uint8_t *to = put32(end, 0x06054b50);
    to = put32(to, 0); /* disks */
    to = put16(to, zip->files);
    to = put16(to, zip->files);
    to = put32(to, (uint32_t)zip->used);
    to = put32(to, zip->at);
    put16(to, 0); /* comment */
    if (rc == 0)
        rc = image_put(zip->fd, zip->directory, zip->used);
    if (rc == 0)
        rc = image_put(zip->fd, end, sizeof end);
    free(zip->directory);
    return rc;
}
