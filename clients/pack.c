#include "clients/pack.h"

#include "clients/client.h"
#include "clients/mapped.h"
#include "gridding/base/err.h"
#include "gridding/base/num.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { ARRAYS = 7, BART_AXES = 16, NPY_HEAD = 256 };
static const char *const names[ARRAYS] = {"kspace",        "trajectory", "weights", "noise",
                                          "sensitivities", "fieldmap",   "times"};
enum { KSPACE, TRAJECTORY, WEIGHTS, NOISE, SENSITIVITIES, FIELDMAP, TIMES };

/* An array that becomes a member of the archive. */
struct member {
    struct mapped file;
    bool bart;              /* an array of BART's: complex float32, the first axis fastest */
    size_t size[BART_AXES]; /* bytes of that */
    char head[NPY_HEAD];    /* of an .npy file, before the data; empty: the file has one */
    size_t head_bytes;
    uint32_t crc;
    uint64_t bytes, at; /* of the member; offset of its local header */
};

/* The archive being written. */
struct archive {
    FILE *file;
    uint64_t at;
    struct member *summed; /* not NULL: only add the bytes to this CRC, without writing them */
};

/* ---- files ---- */

/* The sizes in BART's NAME.hdr: "# Dimensions" and a line of numbers. */
static int header_read(struct member *member, const char *base)
{
    char *path = NULL, line[1024] = "";
    if (asprintf(&path, "%s.hdr", base) < 0)
        return err_no_memory("a file's name");
    FILE *file = fopen(path, "re");
    if (!file) {
        int rc = err_set(ERR_IO, "%s, the sizes of %s.cfl, cannot be read (%s).", path, base, strerror(errno));
        free(path);
        return rc;
    }
    bool found = false;
    while (!found && fgets(line, sizeof line, file))
        found = strncmp(line, "# Dimensions", 12) == 0 && fgets(line, sizeof line, file) != NULL;
    fclose(file);
    char *at = line, *end = line;
    size_t items = 1;
    bool fits = found;
    for (int i = 0; i < BART_AXES; i++) {
        unsigned long long size = found ? strtoull(at, &end, 10) : 0;
        member->size[i] = end > at ? (size_t)size : 1;
        fits = fits && member->size[i] > 0 && size_mul(items, member->size[i], &items);
        at = end;
    }
    int rc = 0;
    if (!fits || items > SIZE_MAX / 8 || items * 8 != member->file.length)
        rc = err_set(ERR_MALFORMED_FILE, "%s gives no sizes that fit the %zu bytes of %s.cfl.", path,
                     member->file.length, base);
    free(path);
    return rc;
}

/* ---- BART's axes ---- */

enum { READ, PHASE1, PHASE2, COIL, TIME = 10 };

static int axes_refuse(const char *path, const char *expected)
{
    return err_set(ERR_MALFORMED_FILE, "%s has other axes than %s. Arrange it with bart (transpose, squeeze, slice).",
                   path, expected);
}

/* Every axis but `allowed` has the size 1. */
static bool axes_only(const struct member *member, unsigned allowed)
{
    for (unsigned i = 0; i < BART_AXES; i++)
        if (member->size[i] != 1 && !(allowed >> i & 1))
            return false;
    return true;
}

static void head_make(struct member *member, const char *type, const char *shape)
{
    enum { PREFIX = 10 };
    memcpy(member->head, "\x93NUMPY\x01", 8);
    int used = snprintf(member->head + PREFIX, NPY_HEAD - PREFIX,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    member->head_bytes = ((size_t)PREFIX + (size_t)used + 1 + 63) / 64 * 64;
    memset(member->head + PREFIX + used, ' ', member->head_bytes - PREFIX - (size_t)used);
    member->head[member->head_bytes - 1] = '\n';
    member->head[8] = (char)((member->head_bytes - PREFIX) & 0xff);
    member->head[9] = (char)((member->head_bytes - PREFIX) >> 8);
}

/* The shape of an array of BART's in C order: its axes reversed. */
static void bart_shape(const struct member *member, int which, char *shape, size_t size)
{
    const size_t *n = member->size;
    switch (which) {
    case KSPACE:
        if (n[TIME] > 1)
            snprintf(shape, size, "%zu, %zu, %zu, %zu", n[COIL], n[TIME], n[PHASE2], n[PHASE1]);
        else
            snprintf(shape, size, "%zu, %zu, %zu", n[COIL], n[PHASE2], n[PHASE1]);
        break;
    case TRAJECTORY:
        snprintf(shape, size, "%zu, %zu, 3", n[PHASE2], n[PHASE1]);
        break;
    case WEIGHTS:
        snprintf(shape, size, "%zu, %zu", n[PHASE2], n[PHASE1]);
        break;
    case NOISE:
        snprintf(shape, size, "%zu, %zu", n[COIL], n[PHASE2] * n[PHASE1]);
        break;
    case SENSITIVITIES:
        snprintf(shape, size, "%zu, %zu, %zu, %zu", n[COIL], n[PHASE2], n[PHASE1], n[READ]);
        break;
    case FIELDMAP:
        snprintf(shape, size, "%zu, %zu, %zu", n[PHASE2], n[PHASE1], n[READ]);
        break;
    default:
        snprintf(shape, size, "%zu,", n[PHASE1]);
    }
}

/* The .npy header of an array of BART's. */
static int bart_describe(struct member *member, int which, const char *path)
{
    static const struct {
        unsigned axes; /* that may be longer than 1, bits */
        const char *type, *expected;
    } kinds[] = {
        [KSPACE] = {1U << PHASE1 | 1U << PHASE2 | 1U << COIL | 1U << TIME, "<c8",
                    "{1, samples, readouts, coils} (and time as the eleventh)"},
        [TRAJECTORY] = {1U << READ | 1U << PHASE1 | 1U << PHASE2, "<f4", "{3, samples, readouts}"},
        [WEIGHTS] = {1U << PHASE1 | 1U << PHASE2, "<f4", "{1, samples, readouts}"},
        [NOISE] = {1U << PHASE1 | 1U << PHASE2 | 1U << COIL, "<c8", "{1, samples, readouts, coils}"},
        [SENSITIVITIES] = {1U << READ | 1U << PHASE1 | 1U << PHASE2 | 1U << COIL, "<c8", "{x, y, z, coils}"},
        [FIELDMAP] = {1U << READ | 1U << PHASE1 | 1U << PHASE2, "<f4", "{x, y, z}"},
        [TIMES] = {1U << PHASE1, "<f4", "{1, samples}"},
    };
    char shape[128];
    if (!axes_only(member, kinds[which].axes) || (which == TRAJECTORY && member->size[READ] != 3))
        return axes_refuse(path, kinds[which].expected);
    bart_shape(member, which, shape, sizeof shape);
    head_make(member, kinds[which].type, shape);
    return 0;
}

static int member_open(struct member *member, int which, const char *path)
{
    static const char *const endings[] = {".cfl", ".hdr"};
    size_t length = strlen(path);
    char *base = NULL, *data = NULL;
    for (size_t i = 0; i < 2; i++)
        if (length > 4 && strcmp(path + length - 4, endings[i]) == 0)
            base = strndup(path, length - 4);
    if (!base) {
        int rc = mapped_open(&member->file, path);
        if (rc == 0 && (member->file.length < 10 || memcmp(member->file.bytes, "\x93NUMPY", 6) != 0))
            rc = err_set(ERR_UNKNOWN_FORMAT,
                         "%s is neither an .npy file nor a .cfl of BART's. Write it with numpy.save.", path);
        return rc;
    }
    int rc = asprintf(&data, "%s.cfl", base) < 0 ? err_no_memory("a file's name") : mapped_open(&member->file, data);
    member->bart = true;
    if (rc == 0)
        rc = header_read(member, base);
    if (rc == 0)
        rc = bart_describe(member, which, path);
    free(data);
    free(base);
    return rc;
}

/* ---- the archive: stored members, sizes in Zip64 ---- */

static int put(struct archive *archive, const void *bytes, size_t count)
{
    if (archive->summed) {
        archive->summed->crc = (uint32_t)crc32_z(archive->summed->crc, bytes, count);
        archive->summed->bytes += count;
        return 0;
    }
    archive->at += count;
    return fwrite(bytes, 1, count, archive->file) == count
               ? 0
               : err_set(ERR_IO, "The scan cannot be written (%s).", strerror(errno));
}

static int put_number(struct archive *archive, uint64_t value, size_t bytes)
{
    value = htole64(value);
    return put(archive, &value, bytes);
}

struct zip_field {
    uint64_t value;
    size_t bytes;
};

static int put_fields(struct archive *archive, const struct zip_field *field, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = put_number(archive, field[i].value, field[i].bytes);
    return rc;
}
#define PUT_FIELDS(archive, ...)                                 \
    put_fields(archive, (const struct zip_field[]){__VA_ARGS__}, \
               sizeof((const struct zip_field[]){__VA_ARGS__}) / sizeof(struct zip_field))

enum { ZIP64 = 45 }; /* version needed to extract */

static int local_put(struct archive *archive, struct member *member, const char *name)
{
    member->at = archive->at;
    int rc = PUT_FIELDS(archive, {0x04034b50, 4}, {ZIP64, 2}, {0, 2}, {0, 2}, {0x00210000, 4}, {member->crc, 4},
                        {UINT32_MAX, 4}, {UINT32_MAX, 4}, {strlen(name), 2}, {20, 2});
    if (rc == 0)
        rc = put(archive, name, strlen(name));
    return rc == 0 ? PUT_FIELDS(archive, {1, 2}, {16, 2}, {member->bytes, 8}, {member->bytes, 8}) : rc;
}

static int entry_put(struct archive *archive, const struct member *member, const char *name)
{
    int rc = PUT_FIELDS(archive, {0x02014b50, 4}, {ZIP64, 2}, {ZIP64, 2}, {0, 2}, {0, 2}, {0x00210000, 4},
                        {member->crc, 4}, {UINT32_MAX, 4}, {UINT32_MAX, 4}, {strlen(name), 2}, {28, 2}, {0, 2}, {0, 2},
                        {0, 2}, {0, 4}, {UINT32_MAX, 4});
    if (rc == 0)
        rc = put(archive, name, strlen(name));
    return rc == 0 ? PUT_FIELDS(archive, {1, 2}, {24, 2}, {member->bytes, 8}, {member->bytes, 8}, {member->at, 8}) : rc;
}

static int end_put(struct archive *archive, uint64_t directory, uint64_t members)
{
    uint64_t end = archive->at, bytes = end - directory;
    int rc = PUT_FIELDS(archive, {0x06064b50, 4}, {44, 8}, {ZIP64, 2}, {ZIP64, 2}, {0, 4}, {0, 4}, {members, 8},
                        {members, 8}, {bytes, 8}, {directory, 8});
    if (rc == 0)
        rc = PUT_FIELDS(archive, {0x07064b50, 4}, {0, 4}, {end, 8}, {1, 4});
    return rc == 0 ? PUT_FIELDS(archive, {0x06054b50, 4}, {0, 2}, {0, 2}, {UINT16_MAX, 2}, {UINT16_MAX, 2},
                                {UINT32_MAX, 4}, {UINT32_MAX, 4}, {0, 2})
                   : rc;
}

/* ---- the members' data ---- */

/* The real parts of complex numbers. */
static int reals_put(struct archive *archive, const struct mapped *file)
{
    enum { AT_ONCE = 4096 };
    float part[AT_ONCE];
    int rc = 0;
    for (size_t first = 0, items = file->length / 8; first < items && rc == 0; first += AT_ONCE) {
        size_t count = items - first < AT_ONCE ? items - first : AT_ONCE;
        for (size_t i = 0; i < count; i++)
            memcpy(&part[i], file->bytes + 8 * (first + i), sizeof *part);
        rc = put(archive, part, count * sizeof *part);
    }
    return rc;
}

/* k-space: coils before frames; in BART's memory frames come first. */
static int kspace_put(struct archive *archive, const struct member *member)
{
    size_t image = 8 * member->size[PHASE1] * member->size[PHASE2], coils = member->size[COIL];
    int rc = 0;
    for (size_t c = 0; c < coils; c++)
        for (size_t t = 0; t < member->size[TIME] && rc == 0; t++)
            rc = put(archive, member->file.bytes + image * (c + coils * t), image);
    return rc;
}

static int content_put(struct archive *archive, const struct member *member, int which)
{
    int rc = member->head_bytes ? put(archive, member->head, member->head_bytes) : 0;
    if (rc != 0)
        return rc;
    if (member->bart && (which == TRAJECTORY || which == WEIGHTS || which == FIELDMAP || which == TIMES))
        return reals_put(archive, &member->file);
    return member->bart && which != SENSITIVITIES ? kspace_put(archive, member)
                                                  : put(archive, member->file.bytes, member->file.length);
}

static int archive_write(struct archive *archive, struct member members[ARRAYS])
{
    char name[32];
    uint64_t count = 0;
    int rc = 0;
    for (int i = 0; i < ARRAYS && rc == 0; i++) {
        if (!members[i].file.bytes)
            continue;
        archive->summed = &members[i];
        content_put(archive, &members[i], i);
        archive->summed = NULL;
        snprintf(name, sizeof name, "%s.npy", names[i]);
        rc = local_put(archive, &members[i], name);
        if (rc == 0)
            rc = content_put(archive, &members[i], i);
        count++;
    }
    uint64_t directory = archive->at;
    for (int i = 0; i < ARRAYS && rc == 0; i++) {
        snprintf(name, sizeof name, "%s.npy", names[i]);
        if (members[i].file.bytes)
            rc = entry_put(archive, &members[i], name);
    }
    return rc == 0 ? end_put(archive, directory, count) : rc;
}

static int pack(struct member members[ARRAYS], const char *out)
{
    struct archive archive = {.file = fopen(out, "wxe")};
    if (!archive.file)
        return err_set(ERR_IO, "%s cannot be written (%s).", out, strerror(errno));
    int rc = archive_write(&archive, members);
    if (fclose(archive.file) != 0 && rc == 0)
        rc = err_set(ERR_IO, "%s cannot be written (%s).", out, strerror(errno));
    if (rc != 0)
        unlink(out);
    return rc;
}

/* ---- the command ---- */

static int use(void)
{
    return client_usage("use: mrirecon pack OUT.npz kspace=FILE trajectory=FILE [weights=FILE] [noise=FILE] "
                        "[sensitivities=FILE] [fieldmap=FILE] [times=FILE], with .npy files or BART's .cfl.");
}

int pack_main(int argc, char **argv)
{
    struct member members[ARRAYS] = {0};
    int rc = 0;
    if (argc < 1 || strchr(argv[0], '='))
        return use();
    for (int a = 1; a < argc && rc == 0; a++) {
        const char *equals = strchr(argv[a], '=');
        int which = 0;
        while (which < ARRAYS && (!equals || strlen(names[which]) != (size_t)(equals - argv[a]) ||
                                  strncmp(names[which], argv[a], strlen(names[which])) != 0))
            which++;
        if (which == ARRAYS || members[which].file.bytes)
            return use();
        rc = member_open(&members[which], which, equals + 1);
    }
    if (rc == 0 && (!members[KSPACE].file.bytes || !members[TRAJECTORY].file.bytes))
        return use();
    if (rc == 0)
        rc = pack(members, argv[0]);
    for (int i = 0; i < ARRAYS; i++)
        mapped_close(&members[i].file);
    return rc == 0 ? CLIENT_OK : client_failed();
}
