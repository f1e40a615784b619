/* libFuzzer target: scans as arrays (.npz). The first byte selects: a whole archive, or the .npy members of one, which
 * is then built with correct checksums. */
#include "tests/fuzz/fuzz_scan.h"

#include <endian.h>
#include <zlib.h>

enum { CAP = 4 << 20, MEMBERS = 7 };

static const struct scan_wanted plane = {.size = {8, 6}}, space = {.size = {8, 6, 4}, .fov_mm = {1, 2, 3}};

static void decode(int fd, const uint8_t *bytes, size_t length, const struct scan_wanted *wanted)
{
    struct scan scan;
    bool decoded = check_result(scan_npz_decode(fd, CAP, bytes, length, wanted));
    check(fcntl(fd, F_ADD_SEALS, SEALED) == 0);
    check(check_result(scan_open(&scan, fd, -1)) == decoded);
    if (!decoded)
        return;
    check_scan(&scan);
    check(scan.header->total_bytes <= CAP && scan.header->headless == 1);
    scan_close(&scan);
}

static void read_archive(int fd, const uint8_t *bytes, size_t length)
{
    uint8_t *exact = malloc(length ? length : 1); /* an exact buffer, so that an overrun is detected */
    check(exact != NULL);
    memcpy(exact, bytes, length);
    decode(fd, exact, length, &plane);
    free(exact);
}

/* ---- an archive made from the input ---- */

struct archive {
    uint8_t *bytes;
    size_t length;
};

static void append(struct archive *archive, const void *bytes, size_t length)
{
    memcpy(archive->bytes + archive->length, bytes, length);
    archive->length += length;
}

static void append_number(struct archive *archive, uint32_t value, size_t bytes)
{
    value = htole32(value);
    append(archive, &value, bytes);
}

/* The fields that a local header and an entry of the directory share, from the required version to the name's
 * length. */
static void append_fields(struct archive *archive, const char *name, const uint8_t *bytes, size_t length)
{
    append_number(archive, 20, 4); /* version and flags */
    append_number(archive, 0, 2);  /* stored, not compressed */
    append_number(archive, 0, 4);  /* time */
    append_number(archive, (uint32_t)crc32_z(0, bytes, length), 4);
    append_number(archive, (uint32_t)length, 4);
    append_number(archive, (uint32_t)length, 4);
    append_number(archive, (uint32_t)strlen(name), 4); /* and no extra fields */
}

/* The input is divided among the members; a 16-bit length precedes each part. */
static void members_pack(struct archive *archive, const uint8_t *bytes, size_t length)
{
    static const char *const names[MEMBERS] = {"kspace.npy",        "trajectory.npy", "weights.npy", "noise.npy",
                                               "sensitivities.npy", "fieldmap.npy",   "times.npy"};
    const uint8_t *part[MEMBERS];
    size_t size[MEMBERS], at[MEMBERS];
    uint32_t members = 0;
    for (; members < MEMBERS && length >= 2; members++) {
        size[members] = bytes[0] | (size_t)bytes[1] << 8;
        bytes += 2;
        length -= 2;
        size[members] = size[members] < length ? size[members] : length;
        part[members] = bytes;
        bytes += size[members];
        length -= size[members];
        at[members] = archive->length;
        append(archive, "PK\3\4", 4);
        append_fields(archive, names[members], part[members], size[members]);
        append(archive, names[members], strlen(names[members]));
        append(archive, part[members], size[members]);
    }
    size_t directory = archive->length;
    for (uint32_t i = 0; i < members; i++) {
        append(archive, "PK\1\2", 4);
        append_number(archive, 20, 2);
        append_fields(archive, names[i], part[i], size[i]);
        append_number(archive, 0, 4);
        append_number(archive, 0, 4);
        append_number(archive, 0, 2);
        append_number(archive, (uint32_t)at[i], 4);
        append(archive, names[i], strlen(names[i]));
    }
    size_t end = archive->length;
    append(archive, "PK\5\6", 4);
    append_number(archive, 0, 4);
    append_number(archive, members | members << 16, 4);
    append_number(archive, (uint32_t)(end - directory), 4);
    append_number(archive, (uint32_t)directory, 4);
    append_number(archive, 0, 2);
}

static void read_members(int fd, const uint8_t *bytes, size_t length, const struct scan_wanted *wanted)
{
    enum { HEADERS = 1024 };
    struct archive archive = {.bytes = malloc(length + HEADERS)};
    check(archive.bytes != NULL);
    members_pack(&archive, bytes, length);
    decode(fd, archive.bytes, archive.length, wanted);
    free(archive.bytes);
}

static void read_plane(int fd, const uint8_t *bytes, size_t length)
{
    read_members(fd, bytes, length, &plane);
}

static void read_space(int fd, const uint8_t *bytes, size_t length)
{
    read_members(fd, bytes, length, &space);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(int fd, const uint8_t *, size_t) = {read_archive, read_plane, read_space};
    if (size < 1)
        return 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    check(fd >= 0);
    readers[data[0] % (sizeof readers / sizeof *readers)](fd, data + 1, size - 1);
    close(fd);
    return 0;
}
