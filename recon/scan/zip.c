/* Sizes and offsets are taken from the central directory only: a writer that cannot seek leaves them out of the local
 * headers. */
#include "recon/scan/zip.h"

#include "gridding/base/err.h"

#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

enum {
    END = 22, /* bytes of the end of the central directory, of Zip64's, and of the locator of that */
    END64 = 56,
    LOCATOR = 20,
    ENTRY = 46,         /* of a member in the central directory, without its name */
    LOCAL = 30,         /* of its local header */
    COMMENT = 65535,    /* at most, behind the end */
    ENCRYPTED = 1 | 64, /* flags */
    STORED = 0,
    DEFLATED = 8
};

static uint16_t u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return le16toh(v);
}

static uint32_t u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static uint64_t u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

static bool within(uint64_t at, uint64_t bytes, uint64_t end)
{
    return at <= end && bytes <= end - at;
}

/* ---- the directory ---- */

struct directory {
    uint64_t at, bytes, entries;
};

/* The offset of the end of the central directory; `bytes`: there is none. */
static uint64_t end_find(const uint8_t *file, uint64_t bytes)
{
    for (uint64_t behind = END; behind <= bytes && behind <= END + COMMENT; behind++) {
        const uint8_t *p = file + bytes - behind;
        if (memcmp(p, "PK\5\6", 4) == 0 && u16(p + 20) == behind - END)
            return bytes - behind;
    }
    return bytes;
}

/* Zip64: numbers that do not fit in the end record are in a record of their own, found through a locator before the end
 * record. */
static int directory_find64(struct directory *out, const struct zip *zip, uint64_t end)
{
    const uint8_t *locator = zip->file + end - LOCATOR;
    if (end < LOCATOR || memcmp(locator, "PK\6\7", 4) != 0 || !within(u64(locator + 8), END64, end) ||
        memcmp(zip->file + u64(locator + 8), "PK\6\6", 4) != 0)
        return err_set(ERR_MALFORMED_FILE, "The ZIP archive's Zip64 directory cannot be found: the file is damaged.");
    const uint8_t *p = zip->file + u64(locator + 8);
    *out = (struct directory){.entries = u64(p + 32), .bytes = u64(p + 40), .at = u64(p + 48)};
    return 0;
}

static int directory_find(struct directory *out, const struct zip *zip)
{
    uint64_t end = end_find(zip->file, zip->bytes);
    if (end == zip->bytes)
        return err_set(ERR_TRUNCATED, "The ZIP archive (.npz) has no end record: the file was cut short, or has other "
                                      "bytes at its end. Send it again.");
    const uint8_t *p = zip->file + end;
    *out = (struct directory){.entries = u16(p + 10), .bytes = u32(p + 12), .at = u32(p + 16)};
    int rc = 0;
    if (out->entries == UINT16_MAX || out->bytes == UINT32_MAX || out->at == UINT32_MAX)
        rc = directory_find64(out, zip, end);
    if (rc == 0 && !within(out->at, out->bytes, end))
        rc = err_set(ERR_MALFORMED_FILE, "The ZIP archive's directory lies outside the file, which is damaged.");
    if (rc == 0 && out->entries > ZIP_MEMBERS)
        rc = err_set(ERR_LIMIT, "The ZIP archive has %llu members; a scan (.npz) has at most %d.",
                     (unsigned long long)out->entries, ZIP_MEMBERS);
    return rc;
}

/* ---- members ---- */

static int member_damaged(const struct zip_member *member)
{
    return err_set(ERR_MALFORMED_FILE, "The member %s of the ZIP archive (.npz) is damaged. Save and send it again.",
                   member->name);
}

/* Numbers that do not fit in an entry are in its extra field, in the same order. */
static bool entry_read64(struct zip_member *member, const uint8_t *extra, size_t bytes)
{
    uint64_t *numbers[] = {&member->unpacked, &member->packed, &member->at};
    bool wanted = false;
    for (int i = 0; i < 3; i++)
        wanted = wanted || *numbers[i] == UINT32_MAX;
    for (size_t at = 0, length; wanted && at + 4 <= bytes; at += 4 + length) {
        length = u16(extra + at + 2);
        if (length > bytes - at - 4)
            return false;
        if (u16(extra + at) != 1)
            continue;
        const uint8_t *p = extra + at + 4, *end = p + length;
        for (int i = 0; i < 3; i++)
            if (*numbers[i] == UINT32_MAX) {
                if (end - p < 8)
                    return false;
                *numbers[i] = u64(p);
                p += 8;
            }
        return true;
    }
    return !wanted;
}

static void name_copy(struct zip_member *member, const uint8_t *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        member->name[i] = name[i] >= ' ' && name[i] <= '~' ? (char)name[i] : '?';
    member->name[length] = '\0';
}

/* The local header gives the offset of the packed bytes, and repeats the name. */
static int local_read(struct zip_member *member, const struct zip *zip, const uint8_t *name, size_t length,
                      uint64_t directory)
{
    if (!within(member->at, LOCAL, directory))
        return member_damaged(member);
    const uint8_t *p = zip->file + member->at;
    uint64_t skipped = LOCAL + (uint64_t)u16(p + 26) + u16(p + 28);
    if (memcmp(p, "PK\3\4", 4) != 0 || u16(p + 26) != length || !within(member->at, skipped, directory) ||
        memcmp(p + LOCAL, name, length) != 0 || u16(p + 8) != member->method)
        return member_damaged(member);
    member->data = member->at + skipped;
    return within(member->data, member->packed, directory) ? 0 : member_damaged(member);
}

/* Read the entry at `p`; `left` bytes of the directory remain. *used: its length. */
static int entry_read(struct zip_member *member, const struct zip *zip, const uint8_t *p, uint64_t left,
                      uint64_t directory, uint64_t *used)
{
    if (left < ENTRY || memcmp(p, "PK\1\2", 4) != 0)
        return err_set(ERR_MALFORMED_FILE, "The ZIP archive's directory is damaged. Save and send the file again.");
    size_t length = u16(p + 28), extra = u16(p + 30);
    *used = ENTRY + length + extra + u16(p + 32);
    if (*used > left)
        return err_set(ERR_MALFORMED_FILE, "The ZIP archive's directory is damaged. Save and send the file again.");
    if (length >= ZIP_NAME)
        return err_set(ERR_LIMIT, "A member of the ZIP archive has a name of %zu bytes; %d are the most.", length,
                       ZIP_NAME - 1);
    *member = (struct zip_member){
        .method = u16(p + 10), .crc = u32(p + 16), .packed = u32(p + 20), .unpacked = u32(p + 24), .at = u32(p + 42)};
    name_copy(member, p + ENTRY, length);
    if (u16(p + 8) & ENCRYPTED)
        return err_set(ERR_MALFORMED_FILE, "The member %s of the ZIP archive is encrypted. Save it without a password.",
                       member->name);
    if (member->method != STORED && member->method != DEFLATED)
        return err_set(ERR_MALFORMED_FILE,
                       "The member %s of the ZIP archive is packed by method %u; numpy.savez and savez_compressed, "
                       "which store or deflate, are read.",
                       member->name, member->method);
    if (!entry_read64(member, p + ENTRY + length, extra) ||
        (member->method == STORED && member->packed != member->unpacked))
        return member_damaged(member);
    return local_read(member, zip, p + ENTRY, length, directory);
}

static int place_order(const void *left, const void *right)
{
    const struct zip_member *a = left, *b = right;
    return (a->at > b->at) - (a->at < b->at);
}

/* Members must not share bytes: an archive could list the same bytes under many names, and so unpack to any length. */
static int members_check(struct zip *zip)
{
    qsort(zip->member, (size_t)zip->members, sizeof *zip->member, place_order);
    for (int i = 0; i < zip->members; i++) {
        const struct zip_member *a = &zip->member[i];
        for (int j = 0; j < i; j++)
            if (strcmp(a->name, zip->member[j].name) == 0)
                return err_set(ERR_HOSTILE_FILE, "The ZIP archive has two members named %s.", a->name);
        if (i > 0 && zip->member[i - 1].data + zip->member[i - 1].packed > a->at)
            return err_set(ERR_HOSTILE_FILE, "The members %s and %s of the ZIP archive overlap.",
                           zip->member[i - 1].name, a->name);
    }
    return 0;
}

int zip_open(struct zip *zip, const void *file, uint64_t bytes)
{
    struct directory directory = {0};
    *zip = (struct zip){.file = file, .bytes = bytes};
    int rc = directory_find(&directory, zip);
    uint64_t at = 0, used = 0;
    for (uint64_t i = 0; rc == 0 && i < directory.entries; i++, at += used)
        rc = entry_read(&zip->member[zip->members++], zip, zip->file + directory.at + at, directory.bytes - at,
                        directory.at, &used);
    return rc == 0 ? members_check(zip) : rc;
}

/* ---- bytes ---- */

/* Inflate `from` into `to`, both of any length: zlib counts in 32 bits. True: it filled `to`, and ended there. */
static bool inflate_whole(const uint8_t *from, uint64_t packed, uint8_t *to, uint64_t unpacked)
{
    enum { TURN = 1 << 30 };
    uint8_t beyond; /* zlib needs space for one byte to detect the end of an empty stream */
    z_stream stream = {.next_in = from};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
        return false;
    uint64_t in = packed, out = unpacked;
    int rc = Z_OK;
    while (rc == Z_OK) {
        uInt give = in < TURN ? (uInt)in : TURN, room = out < TURN ? (uInt)out : TURN;
        stream.avail_in = give;
        stream.next_out = out ? to + (unpacked - out) : &beyond;
        stream.avail_out = out ? room : 1;
        rc = inflate(&stream, Z_NO_FLUSH);
        in -= give - stream.avail_in;
        if (!out && stream.avail_out == 0)
            rc = Z_DATA_ERROR; /* more than announced */
        out -= out ? room - stream.avail_out : 0;
    }
    inflateEnd(&stream);
    return rc == Z_STREAM_END && in == 0 && out == 0;
}

int zip_read(const struct zip *zip, const struct zip_member *member, uint64_t most, const uint8_t **bytes,
             void **memory)
{
    const uint8_t *packed = zip->file + member->data;
    uint8_t *room = NULL;
    *memory = NULL;
    if (member->method == DEFLATED) {
        if (member->unpacked > most)
            return err_set_bytes(
                ERR_LIMIT, member->unpacked > INT64_MAX ? INT64_MAX : (int64_t)member->unpacked, (int64_t)most,
                "The member %s takes %llu MB unpacked; packed members may take %llu MB together. Save "
                "the scan with numpy.savez, which does not compress.",
                member->name, (unsigned long long)member->unpacked >> 20, (unsigned long long)most >> 20);
        room = malloc(member->unpacked + 1);
        if (!room)
            return err_no_memory_bytes(member->unpacked, "the member %s of the ZIP archive", member->name);
        if (!inflate_whole(packed, member->packed, room, member->unpacked)) {
            free(room);
            return member_damaged(member);
        }
    }
    *bytes = room ? room : packed;
    if (crc32_z(0, *bytes, member->unpacked) != member->crc) {
        free(room);
        return member_damaged(member);
    }
    *memory = room;
    return 0;
}
