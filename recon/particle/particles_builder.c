/* Writes flat particles. Uses pwrite instead of a mapping, because the memory may be sealed against writing while this
 * process still exists. */
#include "recon/particle/particles_build.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { ALIGNMENT = 64, BATCH = 4096, WIDEST = 3 * sizeof(double) };

static const struct {
    const char *name;
    size_t width, place; /* offset in a row of the memory; in struct particle */
} columns[PARTICLE_COLUMNS] = {
    [PARTICLE_POSITION] = {"position", 3 * sizeof(double), offsetof(struct particle, position)},
    [PARTICLE_VELOCITY] = {"velocity", 3 * sizeof(double), offsetof(struct particle, velocity)},
    [PARTICLE_CHARGE] = {"charge", sizeof(double), offsetof(struct particle, charge)},
    [PARTICLE_RADIUS] = {"radius", sizeof(double), offsetof(struct particle, radius)},
    [PARTICLE_MASS] = {"mass", sizeof(double), offsetof(struct particle, mass)},
    [PARTICLE_ID] = {"id", sizeof(uint64_t), offsetof(struct particle, id)},
    [PARTICLE_ELEMENT] = {"element", sizeof(uint8_t), offsetof(struct particle, element)},
};

const char *particle_column_name(enum particle_column column)
{
    return columns[column].name;
}

static int write_at(int fd, const void *from, size_t bytes, uint64_t at)
{
    const char *next = from;
    while (bytes) {
        ssize_t done = pwrite(fd, next, bytes, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return err_set(errno == ENOSPC || errno == ENOMEM ? ERR_NO_MEMORY : ERR_IO,
                           "The decoded particles cannot be stored in memory (%s).", strerror(errno));
        next += done;
        at += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return 0;
}

int particles_builder_begin(struct particles_builder *b, int fd, uint64_t cap, unsigned wanted, uint64_t room)
{
    size_t end = sizeof b->header, bytes;
    *b = (struct particles_builder){.fd = fd, .cap = cap, .columns = wanted, .room = room};
    b->header = (struct particles_header){.magic = PARTICLES_MAGIC, .version = PARTICLES_VERSION};
    if (room > PARTICLES_MOST)
        return err_set(ERR_LIMIT, "The file has up to %llu points; the limit is %llu.", (unsigned long long)room,
                       (unsigned long long)PARTICLES_MOST);
    for (int c = 0; c < PARTICLE_COLUMNS; c++) {
        if (!(wanted >> c & 1))
            continue;
        end = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        b->header.at[c] = end;
        /* At most 2^31 rows of 24 bytes. */
        bytes = (size_t)room * columns[c].width;
        end += bytes;
    }
    b->header.total_bytes = end;
    if (end > cap)
        return err_set_bytes(ERR_LIMIT, (int64_t)end, (int64_t)cap,
                             "%llu points need %zu MB of memory, and this service allows %llu MB for one file. Send "
                             "them in parts, or raise the memory limit.",
                             (unsigned long long)room, end >> 20, (unsigned long long)cap >> 20);
    b->batch = malloc(BATCH * sizeof *b->batch);
    b->packed = malloc((size_t)BATCH * WIDEST);
    return b->batch && b->packed ? 0 : err_no_memory("reading particles");
}

void particles_builder_free(struct particles_builder *b)
{
    free(b->batch);
    free(b->packed);
    b->batch = NULL;
    b->packed = NULL;
}

static int flush(struct particles_builder *b)
{
    const uint64_t first = b->rows - b->pending;
    int rc = 0;
    for (int c = 0; c < PARTICLE_COLUMNS && rc == 0; c++) {
        const size_t width = columns[c].width;
        if (!(b->columns >> c & 1))
            continue;
        for (size_t i = 0; i < b->pending; i++)
            memcpy((char *)b->packed + i * width, (const char *)&b->batch[i] + columns[c].place, width);
        rc = write_at(b->fd, b->packed, b->pending * width, b->header.at[c] + first * width);
    }
    b->pending = 0;
    return rc;
}

int particles_builder_add(struct particles_builder *b, const struct particle *row)
{
    if (b->rows == b->room)
        return err_set(ERR_LIMIT, "The file changed while it was being read: it had %llu points before.",
                       (unsigned long long)b->room);
    b->batch[b->pending++] = *row;
    b->rows++;
    return b->pending < BATCH ? 0 : flush(b);
}

int particles_builder_frame(struct particles_builder *b)
{
    const uint64_t rows = b->rows - b->frame_began;
    struct particles_header *h = &b->header;
    if (!rows)
        return 0;
    if (!h->frames)
        h->count = rows;
    if (rows != h->count)
        return err_set(
            ERR_MALFORMED_FILE,
            "Frame %u has %llu points and frame 1 has %llu; all frames of a file must have the same number of points.",
            h->frames + 1, (unsigned long long)rows, (unsigned long long)h->count);
    if (h->frames == PARTICLES_FRAMES_MOST)
        return err_set(ERR_LIMIT, "The file has more than %d frames.", PARTICLES_FRAMES_MOST);
    h->frames++;
    b->frame_began = b->rows;
    return 0;
}

int particles_builder_end(struct particles_builder *b)
{
    int rc = particles_builder_frame(b);
    if (rc == 0 && !b->rows)
        return err_set(ERR_MALFORMED_FILE, "The file holds no points.");
    if (rc == 0)
        rc = flush(b);
    return rc == 0 ? write_at(b->fd, &b->header, sizeof b->header, 0) : rc;
}

int particles_needed(const struct particles_wanted *wanted, unsigned there, const char *advice)
{
    const unsigned missing = wanted->needed & ~there;
    if (!missing)
        return 0;
    return err_set(ERR_MALFORMED_FILE, "The file does not give the %s of its points, which this kind of job needs. %s",
                   columns[__builtin_ctz(missing)].name, advice);
}

bool particles_are_read(const struct particles_wanted *wanted, enum particle_column column)
{
    bool ordered = false;
    for (int i = 0; i < PARTICLES_ORDER && wanted->order[i]; i++)
        ordered = ordered || wanted->order[i] == column;
    return ordered || wanted->needed >> column & 1;
}

int particles_row_check(const struct particle *row, unsigned wanted, const char *where, uint64_t number)
{
    const double value[] = {row->position[0], row->position[1], row->position[2], row->velocity[0], row->velocity[1],
                            row->velocity[2], row->charge,      row->radius,      row->mass};
    static const enum particle_column of[] = {PARTICLE_POSITION, PARTICLE_POSITION, PARTICLE_POSITION,
                                              PARTICLE_VELOCITY, PARTICLE_VELOCITY, PARTICLE_VELOCITY,
                                              PARTICLE_CHARGE,   PARTICLE_RADIUS,   PARTICLE_MASS};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if ((wanted >> of[i] & 1) && !isfinite(value[i]))
            return err_set(ERR_MALFORMED_FILE, "%s %llu: the %s is not finite.", where, (unsigned long long)number,
                           columns[of[i]].name);
    static const enum particle_column positive[] = {PARTICLE_RADIUS, PARTICLE_MASS};
    const double of_positive[] = {row->radius, row->mass};
    for (int i = 0; i < 2; i++)
        if ((wanted >> positive[i] & 1) && of_positive[i] < 0)
            return err_set(ERR_MALFORMED_FILE, "%s %llu: the %s is %g; it must be 0 or more.", where,
                           (unsigned long long)number, columns[positive[i]].name, of_positive[i]);
    return 0;
}

int particles_column_find(const char *name, size_t length, int *axis)
{
    static const struct {
        const char *name;
        int column, axis;
    } names[] = {
        {"x", PARTICLE_POSITION, 0},
        {"y", PARTICLE_POSITION, 1},
        {"z", PARTICLE_POSITION, 2},
        {"position", PARTICLE_POSITION, -1},
        {"positions", PARTICLE_POSITION, -1},
        {"pos", PARTICLE_POSITION, -1},
        {"xyz", PARTICLE_POSITION, -1},
        {"coordinates", PARTICLE_POSITION, -1},
        {"vx", PARTICLE_VELOCITY, 0},
        {"vy", PARTICLE_VELOCITY, 1},
        {"vz", PARTICLE_VELOCITY, 2},
        {"vel", PARTICLE_VELOCITY, -1},
        {"velocity", PARTICLE_VELOCITY, -1},
        {"velocities", PARTICLE_VELOCITY, -1},
        {"q", PARTICLE_CHARGE, 0},
        {"charge", PARTICLE_CHARGE, 0},
        {"charges", PARTICLE_CHARGE, 0},
        {"r", PARTICLE_RADIUS, 0},
        {"radius", PARTICLE_RADIUS, 0},
        {"radii", PARTICLE_RADIUS, 0},
        {"m", PARTICLE_MASS, 0},
        {"mass", PARTICLE_MASS, 0},
        {"masses", PARTICLE_MASS, 0},
        {"id", PARTICLE_ID, 0},
        {"ids", PARTICLE_ID, 0},
        {"element", PARTICLE_ELEMENT, 0},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == length && strncasecmp(names[i].name, name, length) == 0) {
            *axis = names[i].axis;
            return names[i].column;
        }
    return -1;
}

void particles_row_set(struct particle *row, enum particle_column column, int axis, double value)
{
    switch (column) {
    case PARTICLE_POSITION:
        row->position[axis] = value;
        break;
    case PARTICLE_VELOCITY:
        row->velocity[axis] = value;
        break;
    case PARTICLE_CHARGE:
        row->charge = value;
        break;
    case PARTICLE_RADIUS:
        row->radius = value;
        break;
    case PARTICLE_MASS:
        row->mass = value;
        break;
    case PARTICLE_ELEMENT:
        row->element = value >= 0 && value < 256 ? (uint8_t)value : 0;
        break;
    case PARTICLE_ID: /* whole: readers set it without rounding */
    case PARTICLE_COLUMNS:
        break;
    }
}

void particles_gadget_header(struct particles_header *header, double time, double redshift, double box,
                             const uint64_t count[6])
{
    header->attribute[PARTICLES_GADGET] = 1;
    header->attribute[PARTICLES_GADGET_TIME] = time;
    header->attribute[PARTICLES_GADGET_REDSHIFT] = redshift;
    for (int t = 0; t < 6; t++)
        header->attribute[PARTICLES_GADGET_COUNTS + t] = (double)count[t];
    for (int d = 0; d < 3; d++)
        header->box_length[d] = box;
}
