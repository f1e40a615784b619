/* nbody.h: kind "nbody": bodies under their own gravity, either forces once or a motion of many steps. Declarations
 * shared by the files of recon/nbody/.
 */
#ifndef MRIRECON_NBODY_H
#define MRIRECON_NBODY_H

#include "recon/kind_run.h"
#include "recon/result_file.h"
#include "recon/nbody/nbody_motion.h"
#include "recon/particle/particles.h"

extern const struct kind nbody_kind;         /* nbody_kind.c: plain data; in all programs */
extern const struct kind_run nbody_kind_run; /* nbody_run.c: in the worker */
extern const struct result_form bodies_form; /* h5, and npy, which is derived from it */
extern const struct result_form series_form; /* npy, and csv */

/* As codec_converter.convert(). */
int bodies_convert(int in, int format, int out);
int series_convert(int in, int format, int out);

enum nbody_param {
    NBODY_FORCES,
    NBODY_LAW,
    NBODY_SOFTENING_FORM,
    NBODY_SOFTENING,
    NBODY_G,
    NBODY_BOUNDARY,
    NBODY_BOX,
    NBODY_MASS,
    NBODY_MESH,
    NBODY_SPLIT,
    NBODY_CUTOFF,
    NBODY_REACH,
    NBODY_STEPS,
    NBODY_DT,
    NBODY_RECORD,
    NBODY_CHECKPOINT,
    NBODY_PICTURE_SIZE,
    NBODY_RESULTS_WANTED,
};
enum { NBODY_FORCES_AUTO, NBODY_FORCES_P3M, NBODY_FORCES_DIRECT, NBODY_FORCES_SHORT };
enum { NBODY_BOUNDARY_AUTO, NBODY_BOUNDARY_OPEN, NBODY_BOUNDARY_PERIODIC };
enum nbody_kind_step { NBODY_STEP_READ, NBODY_STEP_FORCES, NBODY_STEP_MOVE, NBODY_STEP_WRITE, NBODY_STEPS_ALL };
enum nbody_result { NBODY_PARTICLES, NBODY_SERIES, NBODY_PICTURE, NBODY_RESULTS };
enum bodies_format { BODIES_H5, BODIES_NPY };
enum series_format { SERIES_NPY, SERIES_CSV };

/* Whether the parameter differs from its default (a job's row holds all parameters). */
bool nbody_given(const struct param_values *values, enum nbody_param param);

/* GADGET's body types; the bodies of a file are ordered by type. */
enum { NBODY_TYPES = 6, NBODY_TYPE_OTHER = 1 };

/* A row of the series, in the layout of the file. */
enum { SERIES_COLUMNS = 11 };
struct nbody_record {
    double step, time, kinetic, potential, energy, momentum[3], angular[3];
};
extern const char *const nbody_record_names[SERIES_COLUMNS];

/* The data of all results, which share it. */
struct nbody_outcome {
    int users;
    bool periodic;
    double box, time;          /* box: side length; 0 in open space */
    size_t types[NBODY_TYPES]; /* number of bodies of each type */
    struct nbody_bodies bodies;
    uint64_t *id;
    struct nbody_record *records;
    size_t record_count, record_room;
    int picture; /* side length of the picture, pixels */
};

int nbody_outcome_create(struct nbody_outcome **out, size_t count, size_t records);
/* Release a reference; the last one frees it. */
void nbody_outcome_free(void *outcome);

/* An upper bound of the size of a result file, for kind_job_promise(). */
uint64_t nbody_file_most(const struct nbody_outcome *outcome, struct result_file file);

/* As job_result.write(). */
int nbody_particles_write(const void *outcome, int format, int fd);
int nbody_series_write(const void *outcome, int format, int fd);
int nbody_picture_write(const void *outcome, int format, int fd);

/* Write all of `bytes`. Fails with ERR_SPOOL_FULL, ERR_IO. */
static inline int nbody_put(int fd, const void *bytes, size_t count)
{
    return result_put(fd, bytes, count, "The result");
}

/* Write the head of a table of doubles as .npy: format 1.0, [rows][columns]; the rows follow. Fails with ERR_IO,
 * ERR_SPOOL_FULL. */
int nbody_npy_head(int fd, size_t rows, size_t columns);
/* Write rows as CSV, with a header line. */
int nbody_csv_write(int fd, const struct nbody_record *records, size_t count);

/* Write the bodies as HDF5 in the layout of GADGET, and read back the columns of the table of bodies: [rows][columns],
 * owned by the caller. Fail with ERR_IO, ERR_SPOOL_FULL, ERR_NO_MEMORY, ERR_MALFORMED_FILE. */
enum { BODIES_COLUMNS = 11 }; /* x y z vx vy vz mass ax ay az potential */
int nbody_h5_write(const struct nbody_outcome *outcome, int fd);
int nbody_h5_read(int fd, double **table, size_t *rows);

#endif
