/* particles.h: points in space with their charges, radii, masses and velocities, as flat, checked memory: the decoder's
 * output for the kinds of job that work on particles.
 *
 * The decoder (a sandboxed process, mrirecon-codec) turns an uploaded file into one memfd of this layout and seals it;
 * particles_open() maps it and checks every number in it again, because the process that wrote it parsed untrusted
 * bytes.
 *
 *   struct particles_header | a column after the other, each [frames][count], at the offset in the header, a multiple
 *   of 64
 *
 * Lengths are in the file's unit: angstroms in PQR, PDB and XYZ. Real columns are double, so that nothing is rounded
 * before a kind has chosen its origin and unit. Native byte order: both sides run on the same machine.
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
    uint32_t version, frames;      /* frames >= 1 */
    uint64_t total_bytes;          /* total size = that of the memfd */
    uint64_t count;                /* points in each frame; >= 1 */
    uint64_t at[PARTICLE_COLUMNS]; /* byte offsets from the start; 0: no such column. Positions are always present */
    uint64_t ignored;              /* number of lines, columns or arrays of the file that were ignored */
    double box_low[3];             /* origin of the periodic box, if box_placed */
    double box_length[3];          /* 0: the file has no box */
    uint32_t box_placed;           /* 1: the file gives the origin of the box; 0: only its lengths */
    uint32_t box_skewed;           /* 1: the file's box is not rectangular and is left out here */
    double attribute[PARTICLES_ATTRIBUTES]; /* format-specific values that apply to all points */
};

/* Attributes of GADGET snapshots, whose bodies are sorted by type. */
enum particles_gadget {
    PARTICLES_GADGET, /* 1: the file is a GADGET snapshot */
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
 * numbers are finite, radii are not negative. Fails with ERR_DECODER_DIED (a check failed), ERR_NO_MEMORY. */
int particles_open(struct particles *out, int fd);
void particles_close(struct particles *particles);

/* The columns of a PDB file that contain the charges. Few programs write PDB's own (columns 79 to 80, formal). */
enum particles_charges {
    PARTICLES_CHARGES_NONE,
    PARTICLES_CHARGES_OCCUPANCY,
    PARTICLES_CHARGES_BFACTOR,
    PARTICLES_CHARGES_FORMAL
};

/* What a kind needs from a file. All 0: positions, and any other columns that are present. */
struct particles_wanted {
    uint32_t needed;  /* required columns, bits 1 << enum particle_column; a file without one of them is refused, with a
                         sentence on how to send it */
    uint32_t charges; /* enum particles_charges, of PDB */
    /* The columns after x, y, z in tables without column names (npy, XYZ, CSV without a header line), enum
     * particle_column; 0: end. PARTICLE_VELOCITY takes three columns. */
    uint8_t order[PARTICLES_ORDER];
};

/* The formats of molecules, for kind.inputs: PQR, PDB, XYZ, CSV, npy, npz. A kind may have its own list, with rows of
 * this one and others. */
extern const struct kind_input particles_inputs[];

/* Recognise which of `inputs` the file `fd` of `bytes` bytes is, by its contents. Fails as kind.sniff(). */
int particles_sniff(const char **format, int fd, uint64_t bytes, const struct kind_input *inputs);
/* The same for particles_inputs: the sniff() of kinds with these inputs. */
int particles_sniff_molecule(const char **format, int fd, uint64_t bytes);

/* Decode the file in `fd` (a regular file, read-only, of one of `inputs`) in a sandboxed process of `decoder`, and open
 * the result. `canceled` (may be NULL) is polled; non-zero kills the process. Errors in a text file state the line.
 * Fails with the codes of "the file" in err.h, ERR_CANCELED, ERR_NO_MEMORY. */
int particles_decode(struct particles *out, struct decoder *decoder, int fd, const struct kind_input *inputs,
                     const struct particles_wanted *wanted, const struct decode_limits *limits,
                     int (*canceled)(void *context), void *context);

/* The atomic number of a symbol ("Na", "NA"; `length` letters), 0: none; and back ("": none). */
int particle_element(const char *symbol, size_t length);
const char *particle_element_symbol(int number);

/* "charge", "radius": a column's name, as tables have it. */
const char *particle_column_name(enum particle_column column);

#endif
