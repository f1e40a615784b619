/* mutants.h: damaged files, the same on every run: shared by the tests of readers. */
#ifndef MRIRECON_TESTS_MUTANTS_H
#define MRIRECON_TESTS_MUTANTS_H

#include <stdint.h>
#include <stdlib.h>

/* splitmix64. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Change up to 8 bytes of `mutant`. */
static inline void mutate(char *mutant, size_t bytes, uint64_t seed)
{
    uint64_t random = seed;
    for (uint64_t n = 1 + random_next(&random) % 8; n; n--) {
        /* Runs of zeros are mostly padding: damage a byte with content. */
        size_t at;
        do
            at = random_next(&random) % bytes;
        while (mutant[at] == 0 && random_next(&random) % 8);
        static const char edges[] = {0, 1, 0x7f, (char)0x80, (char)0xff};
        uint64_t how = random_next(&random);
        mutant[at] = how % 3 == 0   ? (char)(mutant[at] ^ (1 << (how >> 8) % 8))
                     : how % 3 == 1 ? edges[(how >> 8) % sizeof edges]
                                    : (char)(how >> 8);
    }
}

#endif
