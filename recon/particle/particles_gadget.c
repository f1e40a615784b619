/* Reads GADGET snapshots of formats 1 and 2 (V. Springel, User guide for GADGET-2, section 6): Fortran records, each
 * between two copies of its length (4 bytes): a header of 256 bytes, then positions, velocities, IDs, and the masses of
 * those types without a mass in the header. In format 2, a record with a name of four letters precedes each. Both byte
 * orders are accepted.
 */
#include "recon/particle/particles_build.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TYPES = 6, HEADER = 256, LABEL = 8, MARK = 4, NAME = 5 };

struct snapshot {
    const uint8_t *file;
    uint64_t bytes, at;
    bool swapped, named;                 /* format 2 */
    uint64_t count[TYPES], all, massive; /* massive: bodies whose masses are in block MASS */
    double mass[TYPES], time, redshift, box;
    uint32_t files;
};

/* A block's items: numbers of 4 or 8 bytes. */
struct block {
    const uint8_t *at; /* NULL: missing */
    int width;
};

static uint64_t number(const struct snapshot *s, const uint8_t *at, int width)
{
    uint64_t value = 0;
    for (int i = 0; i < width; i++)
        value |= (uint64_t)at[s->swapped ? width - 1 - i : i] << (8 * i);
    return value;
}

static double real(const struct snapshot *s, const uint8_t *at, int width)
{
    const uint64_t bits = number(s, at, width);
    const uint32_t low = (uint32_t)bits;
    double wide;
    float narrow;
    memcpy(&wide, &bits, sizeof wide);
    memcpy(&narrow, &low, sizeof narrow);
    return width == 8 ? wide : (double)narrow;
}

/* The next record, of `length` bytes: its contents at *out. */
static int record(struct snapshot *s, const char *name, const uint8_t **out, uint64_t *length)
{
    if (s->bytes - s->at < MARK)
        return err_set(ERR_TRUNCATED, "The snapshot ends at byte %llu, where block %s was expected.",
                       (unsigned long long)s->at, name);
    *length = number(s, s->file + s->at, MARK);
    if (s->bytes - s->at - MARK < *length + MARK)
        return err_set_bytes(
            ERR_TRUNCATED, (int64_t)(s->at + *length + 2 * MARK), (int64_t)s->bytes,
            "Block %s of the snapshot has %llu bytes, but the file ends before that. Send the complete file.", name,
            (unsigned long long)*length);
    *out = s->file + s->at + MARK;
    const uint64_t again = number(s, *out + *length, MARK);
    if (again != *length)
        return err_set(ERR_MALFORMED_FILE,
                       "Block %s of the snapshot begins with a length of %llu and ends with one of %llu, at byte %llu.",
                       name, (unsigned long long)*length, (unsigned long long)again,
                       (unsigned long long)(s->at + MARK + *length));
    s->at += *length + 2 * MARK;
    return 0;
}

/* Format 2: the name of the next block, "" at the end. */
static int label(struct snapshot *s, char name[NAME])
{
    const uint8_t *at;
    uint64_t length;
    name[0] = '\0';
    if (!s->named || s->at == s->bytes)
        return 0;
    int rc = record(s, "with the name of a block", &at, &length);
    if (rc == 0 && length != LABEL)
        rc = err_set(ERR_MALFORMED_FILE,
                     "A block's name is expected at byte %llu of the snapshot, in a record of %d "
                     "bytes; it has %llu.",
                     (unsigned long long)(s->at - length - MARK), LABEL, (unsigned long long)length);
    if (rc != 0)
        return rc;
    memcpy(name, at, NAME - 1);
    name[NAME - 1] = '\0';
    for (int i = NAME - 2; i >= 0 && (name[i] == ' ' || name[i] == '\0'); i--)
        name[i] = '\0';
    for (int i = 0; name[i]; i++)
        if (name[i] < ' ' || name[i] > '~')
            name[i] = '?';
    return 0;
}

static int header_read(struct snapshot *s)
{
    enum { MASSES = 24, TIME = 72, REDSHIFT = 80, FILES = 124, BOX = 128 };
    const uint8_t *at;
    uint64_t length;
    char name[NAME];
    int rc = label(s, name);
    if (rc == 0)
        rc = record(s, "HEAD", &at, &length);
    if (rc == 0 && length != HEADER)
        rc = err_set(ERR_MALFORMED_FILE, "Block HEAD of the snapshot has %llu bytes; %d are expected.",
                     (unsigned long long)length, HEADER);
    if (rc != 0)
        return rc;
    for (int t = 0; t < TYPES; t++) {
        s->count[t] = number(s, at + 4 * t, 4);
        s->mass[t] = real(s, at + MASSES + 8 * t, 8);
        s->all += s->count[t];
        s->massive += s->mass[t] == 0 ? s->count[t] : 0;
        if (!isfinite(s->mass[t]) || s->mass[t] < 0)
            return err_set(ERR_MALFORMED_FILE, "Block HEAD: the mass of bodies of type %d is %g.", t, s->mass[t]);
    }
    s->time = real(s, at + TIME, 8);
    s->redshift = real(s, at + REDSHIFT, 8);
    s->box = real(s, at + BOX, 8);
    s->files = (uint32_t)number(s, at + FILES, 4);
    if (s->files > 1)
        return err_set(ERR_MALFORMED_FILE, "The snapshot is split into %u files. Join them and send the result.",
                       s->files);
    if (s->all == 0)
        return err_set(ERR_MALFORMED_FILE, "Block HEAD: the snapshot has no bodies.");
    if (!isfinite(s->time) || !isfinite(s->redshift) || !(s->box >= 0 && s->box < INFINITY))
        return err_set(ERR_MALFORMED_FILE, "Block HEAD: time %g, redshift %g and box %g must be finite numbers.",
                       s->time, s->redshift, s->box);
    return 0;
}

/* A block with `items` numbers for each of `bodies`. */
static int block_take(struct snapshot *s, const char *name, uint64_t bodies, int items, struct block *out)
{
    uint64_t length;
    int rc = record(s, name, &out->at, &length);
    if (rc != 0)
        return rc;
    out->width = length == bodies * (uint64_t)items * 4 ? 4 : 8;
    if (length != bodies * (uint64_t)items * (uint64_t)out->width)
        return err_set(
            ERR_MALFORMED_FILE,
            "Block %s of the snapshot has %llu bytes; %llu bodies with %d numbers of 4 or 8 bytes each are expected.",
            name, (unsigned long long)length, (unsigned long long)bodies, items);
    return 0;
}

enum { POS, VEL, ID, MASS, BLOCKS };
static const struct {
    const char *name;
    int items;
} blocks[BLOCKS] = {{"POS", 3}, {"VEL", 3}, {"ID", 1}, {"MASS", 1}};

/* In format 1, blocks are in this order and others may follow; in format 2 they are found by name. */
static int blocks_read(struct snapshot *s, struct block block[BLOCKS], uint64_t *ignored)
{
    int rc = 0;
    for (int next = POS; rc == 0 && s->at < s->bytes; next++) {
        char name[NAME];
        const uint8_t *skipped;
        uint64_t length;
        int b = next;
        rc = label(s, name);
        if (rc != 0)
            return rc;
        if (s->named)
            for (b = POS; b < BLOCKS && strcmp(name, blocks[b].name) != 0; b++)
                ;
        if (b == MASS && !s->massive && !s->named)
            b = BLOCKS;
        if (b < BLOCKS && block[b].at)
            return err_set(ERR_MALFORMED_FILE, "The snapshot has two blocks %s.", blocks[b].name);
        if (b < BLOCKS) {
            rc = block_take(s, blocks[b].name, b == MASS ? s->massive : s->all, blocks[b].items, &block[b]);
        } else {
            rc = record(s, s->named ? name : "behind the masses", &skipped, &length);
            ++*ignored;
        }
    }
    if (rc == 0 && !block[POS].at)
        rc = err_set(ERR_MALFORMED_FILE, "The snapshot has no block POS: it ends after its header.");
    if (rc == 0 && s->massive && !block[MASS].at)
        rc = err_set(ERR_MALFORMED_FILE,
                     "The snapshot has no block MASS, and its header gives no mass for %llu of its %llu bodies.",
                     (unsigned long long)s->massive, (unsigned long long)s->all);
    return rc;
}

static int rows_write(const struct snapshot *s, const struct block block[BLOCKS], struct particles_builder *b)
{
    uint64_t i = 0, massive = 0;
    int rc = 0;
    for (int t = 0; t < TYPES; t++)
        for (uint64_t n = 0; n < s->count[t] && rc == 0; n++, i++) {
            struct particle row = {.element = 0, .mass = s->mass[t]};
            for (uint64_t d = 0; d < 3; d++) {
                row.position[d] = real(s, block[POS].at + (3 * i + d) * (uint64_t)block[POS].width, block[POS].width);
                if (block[VEL].at)
                    row.velocity[d] =
                        real(s, block[VEL].at + (3 * i + d) * (uint64_t)block[VEL].width, block[VEL].width);
            }
            if (block[ID].at)
                row.id = number(s, block[ID].at + i * (uint64_t)block[ID].width, block[ID].width);
            if (s->mass[t] == 0) {
                row.mass = real(s, block[MASS].at + massive * (uint64_t)block[MASS].width, block[MASS].width);
                massive++;
            }
            rc = particles_row_check(&row, b->columns, "Body", i + 1);
            if (rc == 0)
                rc = particles_builder_add(b, &row);
        }
    return rc;
}

int particles_gadget_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *of)
{
    struct snapshot s = {.file = file, .bytes = bytes};
    struct block block[BLOCKS] = {{NULL, 0}};
    struct particles_builder b = {.fd = memory};
    uint64_t ignored = 0;
    if (bytes < MARK)
        return err_set(ERR_TRUNCATED, "The snapshot ends before its header.");
    const uint64_t first = number(&s, s.file, MARK);
    s.swapped = first != HEADER && first != LABEL;
    s.named = number(&s, s.file, MARK) == LABEL;
    int rc = header_read(&s);
    if (rc == 0)
        rc = blocks_read(&s, block, &ignored);
    if (rc != 0)
        return rc;
    const unsigned columns = 1U << PARTICLE_POSITION | 1U << PARTICLE_MASS |
                             (block[VEL].at ? 1U << PARTICLE_VELOCITY : 0) | (block[ID].at ? 1U << PARTICLE_ID : 0);
    rc = particles_needed(of, columns, "Snapshots contain positions, velocities, IDs and masses.");
    if (rc == 0)
        rc = particles_builder_begin(&b, memory, most_bytes, columns, s.all);
    if (rc == 0)
        particles_gadget_header(&b.header, s.time, s.redshift, s.box, s.count);
    b.header.ignored = ignored;
    if (rc == 0)
        rc = rows_write(&s, block, &b);
    if (rc == 0)
        rc = particles_builder_end(&b);
    particles_builder_free(&b);
    return rc;
}
