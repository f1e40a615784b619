/* bench.h: shared by the benchmarks: options, time, medians, trajectories with fixed seeds. A failure ends the program.
 */
#ifndef MRIRECON_BENCH_H
#define MRIRECON_BENCH_H

#include "gridding/base/clock.h"
#include "gridding/base/err.h"
#include "gridding/base/num.h"
#include "tests/random.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void must(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s: %s: %s: %s\n", program_invocation_short_name, what, err_name(code), err_last()->text);
        exit(1);
    }
}

/* An option: a flag, or one whose value follows it. */
struct bench_option {
    const char *name;
    bool *flag;
    int *number;
    size_t *size;
    double *real;
    const char **text;
};

/* Read the command line; *known ends with a nameless one. Any other option, or one without its value, ends the program.
 */
static inline void options_read(int argc, char **argv, const struct bench_option *known)
{
    for (int i = 1; i < argc; i++) {
        const struct bench_option *option = known;
        while (option->name && strcmp(option->name, argv[i]) != 0)
            option++;
        if (!option->name || (!option->flag && i + 1 == argc)) {
            fprintf(stderr, "%s: %s %s: see the beginning of tests/bench/%s.c\n", program_invocation_short_name,
                    option->name ? "no value of" : "unknown option", argv[i], program_invocation_short_name);
            exit(2);
        }
        if (option->flag)
            *option->flag = true;
        else if (option->number)
            *option->number = atoi(argv[++i]);
        else if (option->size)
            *option->size = strtoull(argv[++i], NULL, 10);
        else if (option->real)
            *option->real = atof(argv[++i]);
        else
            *option->text = argv[++i];
    }
}

/* The item after this one of a comma-separated list; NULL: it is the last. */
static inline const char *next_of(const char *list)
{
    const char *comma = strchr(list, ',');
    return comma ? comma + 1 : NULL;
}

/* Zeroed memory; the caller frees it. A failed allocation ends the program. */
static inline void *take(size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory)
        must(err_set(ERR_NO_MEMORY, "no memory for %zu bytes", bytes), "calloc");
    return memory;
}

static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

/* Sample m of a golden-means kooshball (doi:10.1002/mrm.21166): full-diameter spokes of `readout` samples, k = 0 in
 * each; x, y, z in [-0.5, 0.5). */
static inline void koosh_sample(size_t readout, size_t m, double k[3])
{
    size_t spoke = m / readout;
    double r = (double)(m % readout) / (double)readout - 0.5, z = fmod((double)spoke * 0.46557123187676802, 1);
    double turn = 2 * M_PI * fmod((double)spoke * 0.68232780382801932, 1), across = sqrt(1 - z * z);
    k[0] = r * across * cos(turn);
    k[1] = r * across * sin(turn);
    k[2] = r * z;
}

/* Sample m of golden-angle spokes in 2-D (doi:10.1109/TMI.2006.885337), likewise. */
static inline void golden_sample(size_t readout, size_t m, double k[2])
{
    double r = (double)(m % readout) / (double)readout - 0.5,
           angle = (double)(m / readout) * 111.246117975 / 180 * M_PI;
    k[0] = r * cos(angle);
    k[1] = r * sin(angle);
}

/* Sample m of random positions, on axis d: uniform in [-0.5, 0.5), or Gaussian if deviation > 0, drawn again if out of
 * range. */
static inline double random_sample(size_t m, int d, double deviation)
{
    uint64_t seed = (m * 3 + (size_t)d) * 64;
    double k = uniform(seed) - 0.5;
    if (deviation > 0)
        do
            k = gaussian(seed++) * deviation;
        while (k < -0.5 || k >= 0.49999);
    return k;
}

/* Number i, both parts in [-1, 1). */
static inline struct c32 random_data(size_t i)
{
    uint64_t bits = splitmix(i + 123456789);
    return (struct c32){(float)(int32_t)bits * 0x1p-31f, (float)(int32_t)(bits >> 32) * 0x1p-31f};
}

#endif
