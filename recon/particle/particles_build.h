/* particles_build.h: inside the decoder: builds the flat memory of particles.h; and the reader of each format.
 *
 * Rows are added one by one, frame by frame. Columns are laid out for the largest possible number of rows; pages that
 * are never written take no memory.
 */
#ifndef MRIRECON_PARTICLES_BUILD_H
#define MRIRECON_PARTICLES_BUILD_H

#include "recon/particle/particles.h"

/* One row with all columns; those that the builder does not have are ignored. */
struct particle {
    double position[3], velocity[3], charge, radius, mass;
    uint64_t id;
    uint8_t element;
};

struct particles_builder {
    int fd;
    uint64_t cap;                   /* size limit of the memfd, bytes */
    struct particles_header header; /* .box*, .ignored and .attribute are filled in by the reader */
    unsigned columns;               /* bit mask */
    uint64_t room, rows;            /* rows: limit, and number so far */
    uint64_t frame_began;           /* row */
    size_t pending;                 /* rows not yet written */
    struct particle *batch;
    void *packed; /* one column of the batch */
};

/* Begin a table of `columns` with at most `room` rows. Fails with ERR_LIMIT, ERR_NO_MEMORY. */
int particles_builder_begin(struct particles_builder *b, int fd, uint64_t cap, unsigned columns, uint64_t room);
/* Add a row. Fails with ERR_LIMIT (more than `room` rows), ERR_IO, ERR_NO_MEMORY. */
int particles_builder_add(struct particles_builder *b, const struct particle *row);
/* End a frame; an empty frame is dropped. Fails with ERR_MALFORMED_FILE (its number of rows differs from the first
 * frame's). */
int particles_builder_frame(struct particles_builder *b);
/* End the last frame and write the head. Fails likewise, and with ERR_MALFORMED_FILE (no rows at all). */
int particles_builder_end(struct particles_builder *b);
void particles_builder_free(struct particles_builder *b);

/* Check that all needed columns are present. Fails with ERR_MALFORMED_FILE; `advice`: a sentence on how the format
 * provides the missing ones. */
int particles_needed(const struct particles_wanted *wanted, unsigned columns, const char *advice);
/* Whether the kind reads this column: it is needed, or stands in tables without names. */
bool particles_are_read(const struct particles_wanted *wanted, enum particle_column column);

/* Check a row: numbers are finite, radii not negative. Fails with ERR_MALFORMED_FILE; `where`: "Line 7", "Point 7". */
int particles_row_check(const struct particle *row, unsigned columns, const char *where, uint64_t number);

/* Find a column by its name in CSV or npz ("charge", "q", "x", "vy"). *axis: 0 to 2 for a component of a position or
 * velocity; -1 for all three ("position"). Returns -1 for an unknown name. */
int particles_column_find(const char *name, size_t length, int *axis);
/* Set one number of a row, except the ID. */
void particles_row_set(struct particle *row, enum particle_column column, int axis, double value);

/* Set the attributes from the header of a GADGET snapshot. A box of side 0 means none. */
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
