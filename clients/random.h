/* random.h: pseudo-random numbers that are the same on every machine: splitmix64 (doi:10.1145/2714064.2660195). */
#ifndef MRIRECON_RANDOM_H
#define MRIRECON_RANDOM_H

#include <stdint.h>

#define RANDOM_STEP UINT64_C(0x9e3779b97f4a7c15)

/* A hash of a counter, so that any thread can compute any number. */
static inline uint64_t random_mix(uint64_t x)
{
    x += RANDOM_STEP;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The next number of a sequence: 53 bits, as many as a double has. */
static inline uint64_t random_next(uint64_t *state)
{
    const uint64_t x = random_mix(*state);
    *state += RANDOM_STEP;
    return x >> 11;
}

#endif
