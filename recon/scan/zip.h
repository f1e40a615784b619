/* zip.h: inside the decoder: members of a ZIP archive in memory (APPNOTE.TXT 6.3.10), as numpy.savez writes them:
 * stored or deflated, Zip64 or not, not encrypted.
 *
 * Own code rather than libzip: a scan needs only the central directory and zlib's inflate. libzip would add encryption
 * and the decoders of bzip2, lzma and zstd to the process that reads uploads. */
#ifndef MRIRECON_ZIP_H
#define MRIRECON_ZIP_H

#include <stddef.h>
#include <stdint.h>

enum { ZIP_MEMBERS = 64, ZIP_NAME = 128 };

struct zip_member {
    char name[ZIP_NAME]; /* printable ASCII; other characters become '?' */
    unsigned method;     /* 0: stored, 8: deflated */
    uint32_t crc;
    uint64_t packed, unpacked; /* bytes */
    uint64_t at;               /* of its local header */
    uint64_t data;             /* of its packed bytes */
};

struct zip {
    const uint8_t *file;
    uint64_t bytes;
    int members;
    struct zip_member member[ZIP_MEMBERS]; /* by their offset in the file; none overlaps another */
};

/* Read the central directory of an archive in memory, which outlives *zip. Fails with ERR_TRUNCATED (its end is not
 * there), ERR_MALFORMED_FILE, ERR_HOSTILE_FILE (members that share bytes or a name), ERR_LIMIT. */
int zip_open(struct zip *zip, const void *file, uint64_t bytes);

/* The bytes of a member, after a check of their checksum. Stored: they are in the file. Deflated: in memory, which the
 * caller frees: *memory; at most `most` bytes. Fails with ERR_MALFORMED_FILE, ERR_LIMIT, ERR_NO_MEMORY. */
int zip_read(const struct zip *zip, const struct zip_member *member, uint64_t most, const uint8_t **bytes,
             void **memory);

#endif
