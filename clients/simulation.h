/* simulation.h: a simulated scan's acquisitions: their data (phantom, motion, off-resonance, noise) and headers. */
#ifndef MRIRECON_SIMULATION_H
#define MRIRECON_SIMULATION_H

#include "clients/scan_write.h"
#include "clients/simulate_options.h"

enum { SIMULATION_LONGEST = 65535 /* samples of an acquisition: 16 bits in its header */ };

struct simulation {
    const struct simulate_options *options;
    struct traj *traj;
    struct phantom **phantoms; /* [slices]; NULL for random numbers */
    int columns;
    float *written;       /* [readouts][samples][columns]: in the file's unit, with weights */
    size_t parts, pieces; /* of a readout; of a frame of a slice */
    double noise;         /* standard deviation of real and imaginary parts in k-space */
};

/* The phantom of a slice at `phase` of its motion. Fails with ERR_NO_MEMORY. */
int simulation_phantom(const struct simulate_options *options, int slice, double phase, struct phantom **out);

/* Hz by which the field of a slice rises over the field of view along axis d. Slices differ: each one's rises towards
 * the corner that is next, counter-clockwise, to that of the one before. */
double simulation_slope(const struct simulate_options *options, int slice, size_t d);

/* Append the noise acquisition; *counter counts the file's acquisitions. Fails with ERR_NO_MEMORY, ERR_IO. */
int simulation_write_noise(const struct simulation *sim, struct scan_writer *writer, uint32_t *counter);

/* Append one frame of one slice, computed by all threads. Fails with ERR_NO_MEMORY, ERR_IO. */
int simulation_write_frame(const struct simulation *sim, struct scan_writer *writer, int frame, int slice,
                           uint32_t *counter);

#endif
