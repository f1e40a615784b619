/* particles.h: points in space with their charges, radii, masses and velocities as flat, checked memory: what the
 * decoder hands to kinds of job that work on particles.
 *
 * The decoder (a sandboxed process, mrirecon-codec) turns an uploaded file into one memfd of this layout and seals it;
 * particles_open() maps it and checks every number in it again, because the process that wrote it parsed hostile bytes.
 *
 *   struct particles_header | a column after the other, each [frames][count], at the offset in the header, a multiple
 *   of 64
 *
 * Lengths are in the file's unit: angstroms in PQR, PDB and XYZ. Real columns are double, so that nothing a file says
 * is rounded before a kind has chosen its own origin and unit. Native byte order: both sides run on the same machine.
 *
 * Formats: PQR (Dolinsky et al., doi:10.1093/nar/gkh381; fields between blanks), PDB 3.3 (wwPDB; fixed columns), XYZ
 * with charges and without its two lines of head, CSV, npy, npz, GADGET snapshots of formats 1, 2 and HDF5.
 * docs/kinds.md describes them for users.
 */
#ifndef MRIRECON_PARTICLES_H
#define MRIRECON_PARTICLES_H

#include "recon/codec/decoder.h"
#include "recon/recon.h"

enum { PARTICLES_VERSION = 1, PARTICLES_FRAMES_MOST = 1 << 20, PARTICLES_ORDER = 8, PARTICLES_ATTRIBUTES = 16 };
#define PARTICLES_MOST  (UINT64_C(1) << 31)          /* of all frames together */
#define PARTICLES_MAGIC UINT64_C(0x4c43495452415050) /* "PPARTICL" */

enum particle_column {
    PARTICLE_POSITION, /* double [3] */
    PARTICLE_VELOCITY, /* double [3] */
    PARTICLE_CHARGE,   /* double; of the elementary charge */
    PARTICLE_RADIUS,   /* double; >= 0 */
    PARTICLE_MASS,     /* double */
    PARTICLE_ID,       /* uint64_t */
    PARTICLE_ELEMENT,  /* uint8_t: atomic number; 0: unknown */
    PARTICLE_COLUMNS
};

struct particles_header {
    uint64_t magic;
    uint32_t version, frames; /* frames >= 1 */
    uint64_t total_bytes;     /* of the whole, = the memfd's size */
    uint64_t count;           /* of points in each frame; >= 1 */
    uint64_t
        at[PARTICLE_COLUMNS]; /* byte offsets from the start; 0: the file has no such column. Positions are there */
    uint64_t ignored;         /* lines, columns or arrays of the file that were not read */
    double box_low[3];        /* of the periodic box, where box_placed */
    double box_length[3];     /* 0: the file tells no box */
    uint32_t box_placed;      /* 1: the file tells where the box begins; 0: lengths alone */
    uint32_t box_skewed;      /* 1: the file's box has other than right angles, and is not told here */
    double attribute[PARTICLES_ATTRIBUTES]; /* of the format's own use: what it says once for all points */
};

/* Attributes of GADGET snapshots, whose bodies are in the order of their types. */
enum particles_gadget {
    PARTICLES_GADGET, /* 1: it is one */
    PARTICLES_GADGET_TIME,
    PARTICLES_GADGET_REDSHIFT,
    PARTICLES_GADGET_COUNTS /* of six types */
};

/* Mapped particles. Read-only; pointers into the mapping, [frames][count]; NULL: no such column. */
struct particles {
    const struct particles_header *header;
    size_t frames, count;
    const double *position, *velocity; /* [frames][count][3] */
    const double *charge, *radius, *mass;
    const uint64_t *id;
    const uint8_t *element;
};

/* Map and check the memory in `fd` (which stays the caller's and must be sealed against writing and shrinking): all
 * numbers are finite, radii are not negative. Fails with ERR_DECODER_DIED (not as above), ERR_NO_MEMORY. */
int particles_open(struct particles *out, int fd);
void particles_close(struct particles *particles);

/* Where a PDB file has its charges, whose own (columns 79 to 80, formal) few programs write. */
enum particles_charges {
    PARTICLES_CHARGES_NONE,
    PARTICLES_CHARGES_OCCUPANCY,
    PARTICLES_CHARGES_BFACTOR,
    PARTICLES_CHARGES_FORMAL
};

/* What a kind wants of a file. All 0: positions, and whatever else there is. */
struct particles_wanted {
    uint32_t needed;  /* columns that the kind cannot do without, a bit (1 << enum particle_column) each: a file that
                         lacks one is refused with a sentence that tells how to send it */
    uint32_t charges; /* enum particles_charges, of PDB */
    /* What follows x, y, z where a table does not name its columns (npy, XYZ, CSV without a first line of names), enum
     * particle_column; 0: no more. PARTICLE_VELOCITY takes three. */
    uint8_t order[PARTICLES_ORDER];
};

/* The formats that molecules come in, as kind.inputs: PQR, PDB, XYZ, CSV, npy, npz. A kind may have a list of its own,
 * of rows of this one and others. */
extern const struct kind_input particles_inputs[];

/* Which of `inputs` the file in `fd`, of `bytes`, is, by its contents. Fails as kind.sniff(). */
int particles_sniff(const char **format, int fd, uint64_t bytes, const struct kind_input *inputs);
/* The same of particles_inputs: the sniff() of a kind whose inputs these are. */
int particles_sniff_molecule(const char **format, int fd, uint64_t bytes);

/* Decode the file in `fd` (a regular file, read-only, of one of `inputs`) in a sandboxed process of `decoder`, and open
 * the result. `canceled` (may be NULL) is polled; non-zero kills the process. What is wrong in a text is told with its
 * line. Fails with the codes of "the file" in err.h, ERR_CANCELED, ERR_NO_MEMORY. */
int particles_decode(struct particles *out, struct decoder *decoder, int fd, const struct kind_input *inputs,
                     const struct particles_wanted *wanted, const struct decode_limits *limits,
                     int (*canceled)(void *context), void *context);

/* The atomic number of a symbol ("Na", "NA"; `length` letters), 0: none; and back ("": none). */
int particle_element(const char *symbol, size_t length);
const char *particle_element_symbol(int number);

/* "charge", "radius": a column's name, as tables have it. */
const char *particle_column_name(enum particle_column column);

#endif
