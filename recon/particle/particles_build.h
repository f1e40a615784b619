/* particles_build.h: inside the decoder: builds the flat memory of particles.h, and the readers of each format.
 *
 * Rows are added one after the other, frame by frame. Columns are laid out for as many rows as there may be; pages that
 * are not written take no memory.
 */
#ifndef MRIRECON_PARTICLES_BUILD_H
#define MRIRECON_PARTICLES_BUILD_H

#include "recon/particle/particles.h"

/* A row of all columns; what is not a column of the builder is not looked at. */
struct particle {
    double position[3], velocity[3], charge, radius, mass;
    uint64_t id;
    uint8_t element;
};

struct particles_builder {
    int fd;
    uint64_t cap;                   /* bytes that the memfd may grow to */
    struct particles_header header; /* .box*, .ignored and .attribute are the reader's to fill */
    unsigned columns;               /* a bit each */
    uint64_t room, rows;            /* rows that may come, and that came */
    uint64_t frame_began;           /* row */
    size_t pending;                 /* rows that are not written yet */
    struct particle *batch;
    void *packed; /* a column of the batch */
};

/* Begin memory of `columns` for at most `room` rows. Fails with ERR_LIMIT, ERR_NO_MEMORY. */
int particles_builder_begin(struct particles_builder *b, int fd, uint64_t cap, unsigned columns, uint64_t room);
/* Fails with ERR_LIMIT (more rows than were said), ERR_IO, ERR_NO_MEMORY. */
int particles_builder_add(struct particles_builder *b, const struct particle *row);
/* End a frame; one without rows is none. Fails with ERR_MALFORMED_FILE (its rows are not as many as the first's). */
int particles_builder_frame(struct particles_builder *b);
/* End the last frame and write the head. Fails likewise, and with ERR_MALFORMED_FILE (no rows at all). */
int particles_builder_end(struct particles_builder *b);
void particles_builder_free(struct particles_builder *b);

/* Whether the columns hold all that is needed. Fails with ERR_MALFORMED_FILE; `advice`: a sentence on how the format
 * tells what is missing. */
int particles_needed(const struct particles_wanted *wanted, unsigned columns, const char *advice);

/* Check a row: numbers are finite, radii not negative. Fails with ERR_MALFORMED_FILE; `where`: "Line 7", "Point 7". */
int particles_row_check(const struct particle *row, unsigned columns, const char *where, uint64_t number);

/* Columns by name ("charge", "q", "x", "vy"), as CSV and npz have them. *axis: of a position or velocity, 0 to 2; -1:
 * of all three together ("position"). -1: no column. */
int particles_column_find(const char *name, size_t length, int *axis);
/* Set one number of a row. */
void particles_row_set(struct particle *row, enum particle_column column, int axis, double value);

/* What a GADGET snapshot says of all its bodies, in the attributes. A box of side 0 is none. */
void particles_gadget_header(struct particles_header *header, double time, double redshift, double box,
                             const uint64_t count[6]);

/* As codec_reader.decode(). */
int particles_pqr_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int particles_pdb_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int particles_xyz_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int particles_csv_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int particles_npy_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int particles_npz_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int particles_gadget_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);
int particles_gadget_h5_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);

#endif
