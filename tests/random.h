/* random.h: pseudo-random numbers for tests and benchmarks: the same on every run and machine. */
#ifndef MRIRECON_RANDOM_H
#define MRIRECON_RANDOM_H

#include <math.h>
#include <stdint.h>

/* splitmix64 (doi:10.1145/2714064.2660195): a hash of a counter, so that any thread can make any number. */
static inline uint64_t splitmix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Uniform in (0, 1), from number `seed`. */
static inline double uniform(uint64_t seed)
{
    return ((double)(splitmix(seed) >> 11) + 0.5) / 9007199254740992.0;
}

/* Gaussian with mean 0 and standard deviation 1, from numbers 2 seed + 1 and 2 seed + 2. */
static inline double gaussian(uint64_t seed)
{
    return sqrt(-2 * log(uniform(2 * seed + 1))) * cos(2 * M_PI * uniform(2 * seed + 2));
}

/* The next number of a sequence in [0, 1) (xorshift64*, doi:10.1145/2845077); the state must not be 0. */
static inline double uniform_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (double)((*state * UINT64_C(2685821657736338717)) >> 11) / 9007199254740992.0;
}

#endif
