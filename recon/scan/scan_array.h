/* scan_array.h: inside the decoder: arrays of numbers in memory, as .npy and HDF5 files hold them. */
#ifndef MRIRECON_SCAN_ARRAY_H
#define MRIRECON_SCAN_ARRAY_H

#include "gridding/base/num.h"

enum { SCAN_ARRAY_AXES = 8 };

enum scan_array_number { SCAN_ARRAY_FLOAT, SCAN_ARRAY_SIGNED, SCAN_ARRAY_UNSIGNED };

/* An array of real or complex numbers. The memory is borrowed. */
struct scan_array {
    const char *name;     /* for sentences; static */
    const uint8_t *items; /* NULL: there is no such array */
    bool complex_valued;
    bool swapped; /* in the other byte order than this machine's */
    enum scan_array_number number;
    size_t real_size; /* bytes of a real number: 4 or 8, of integers also 1 or 2; a complex one takes two */
    int axes;         /* 0..SCAN_ARRAY_AXES */
    uint64_t size[SCAN_ARRAY_AXES];
    uint64_t step[SCAN_ARRAY_AXES]; /* items from one index to the next */
};

/* Fill .step, for C order or Fortran order; *items: how many there are. false: they do not fit 64 bits. */
bool scan_array_order(struct scan_array *array, bool fortran, uint64_t *items);

/* Read the .npy file at `bytes` (NEP 1; versions 1 to 3). Its dictionary is read by a parser of its own that knows
 * three keys and literals: nothing is evaluated and nothing is unpickled. scan_array_npy() reads floating-point numbers
 * only, scan_array_npy_any() also integers. Fails with ERR_MALFORMED_FILE, ERR_HOSTILE_FILE (an array of Python
 * objects). */
int scan_array_npy(struct scan_array *array, const char *name, const uint8_t *bytes, uint64_t length);
int scan_array_npy_any(struct scan_array *array, const char *name, const uint8_t *bytes, uint64_t length);

/* Copy `count` items along `axis`, from the one with the indices at[] on, as float32, the reals to every
 * stride-th; or, real ones, as they are. */
void scan_array_reals(const struct scan_array *array, const uint64_t *at, int axis, uint64_t count, float *to,
                      size_t stride);
void scan_array_doubles(const struct scan_array *array, const uint64_t *at, int axis, uint64_t count, double *to);
/* The item with the indices at[], of an array of reals, as a whole number from 0 on, without rounding; false: it is
 * none. */
bool scan_array_whole(const struct scan_array *array, const uint64_t *at, uint64_t *value);
/* Fails with ERR_DATA_NONFINITE: a finite number of complex128 overflows single precision. */
int scan_array_complexes(const struct scan_array *array, const uint64_t *at, int axis, uint64_t count, struct c32 *to);

/* "2 x 64 x 128", for sentences. */
const char *scan_array_shape(const struct scan_array *array, char text[176]);

#endif
