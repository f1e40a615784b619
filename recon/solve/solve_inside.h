/* solve_inside.h: what the solvers share. Only recon/solve/ includes this. */
#ifndef MRIRECON_SOLVE_INSIDE_H
#define MRIRECON_SOLVE_INSIDE_H

#include "recon/solve/solve.h"

/* `count` vectors of n elements in one allocation: vector[0 .. count). Release vector[0]. */
int solve_vectors(struct dev *dev, size_t n, int count, struct c32 **vector);

/* Iterate until `stop` says so, once at least: step() computes iteration `done` + 1, residual() is what the tolerance
 * is compared with after it. Fails as these do, and as the listener. */
int solve_iterate(void *of, int (*step)(void *of, int done), double (*residual)(const void *of),
                  const struct solve_stop *stop, const struct solve_listener *listener, struct solve_result *result);

/* 24 pseudo-random bits of the seed, the iteration and the axis: splitmix64 (Steele et al. 2014,
 * doi:10.1145/2660193.2660195). */
static inline uint32_t solve_random(uint64_t seed, int iteration, int axis)
{
    uint64_t z = seed + 0x9e3779b97f4a7c15 * (uint64_t)(4 * iteration + axis + 1);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)((z ^ z >> 31) >> 40);
}

/* A value of iteration `done` is not finite: ERR_DIVERGED with a sentence. image: "", or " of image 7". */
int solve_nonfinite(const char *method, int done, const char *image);

#endif
