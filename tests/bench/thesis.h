/* thesis.h: shared by the experiments of mrirecond-bench. A failure or a wrong result ends the program. */
#ifndef MRIRECON_THESIS_H
#define MRIRECON_THESIS_H

#include "tests/bench/bench.h"
#include "tests/bench/rival_gpu.h"

/* A data set, on the host and on the GPU, and its expected grid. */
struct scene {
    const struct rival_set *set;
    struct rival_sample *samples;
    struct rival_probe *probe;
    struct c32 *probed; /* [probe->cells] */
    struct rival_kernel kernel;
    struct rival_gpu *gpu;
    double reach; /* of the kernel or law, in bins */
    int runs, threads;
    const char *device; /* name of the device */
};

/* The relative l2 error above which a result is wrong: it allows for float32 sums of tens of thousands of samples of
 * either sign, and for positions that the CPU's engine takes as turns (576 is no power of two, so they err by 3e-5 of a
 * cell). */
#define THESIS_ERROR 1e-4

/* Unlimited depth. */
#define THESIS_ALL UINT32_MAX

enum {
    THESIS_PROBED = 3000,         /* cells compared */
    THESIS_SERIAL_MOST = 4000000, /* the most samples that the CPU bins serially for comparison */
    THESIS_RUNS_MOST = 101
};

void scene_open(struct scene *s, const struct rival_set *set, int runs, int threads, const char *device);
void scene_close(struct scene *s);

/* Median times over the scene's runs, after one run that is not counted. The bins of the last run remain on the
 * device. */
void scene_bin(struct scene *s, const struct rival_recipe *recipe, struct rival_times *times);
double scene_gather(struct scene *s, enum rival_access access);

/* Compare the counts and starts of the bins just made with those of a serial program; a difference ends the program.
 * Large sets, for which this would take seconds, are not compared. */
void scene_check_bins(struct scene *s, const struct rival_recipe *recipe);

/* Samples that overflowed. */
struct rest {
    const struct rival_sample *samples;
    size_t count;
    double ms; /* of copying them to the host */
};
struct rest scene_rest(struct scene *s);

/* The error of the GPU's grid plus `rest`; above THESIS_ERROR it ends the program. Overwrites the grid. */
double scene_check(struct scene *s, const char *what, const struct rival_sample *rest, size_t count);

/* Whether the device has enough memory. If not, prints a line about it. */
bool scene_has_room(struct scene *s, const char *experiment, const char *variant, const struct rival_recipe *recipe);

/* Prints a JSON line: experiment, variant, set, device, and the fields that `format` makes ("\"a\":%d"). */
void line(const struct scene *s, const char *experiment, const char *variant, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A depth as JSON; null means no limit. */
struct depth_text {
    char text[16];
};
struct depth_text depth_text(uint32_t depth);

/* The product on the same samples: a plan and an adjoint through gridding/nufft/nufft.h, including FFT, crop and
 * deapodisation. */
void product(struct scene *s, const char *experiment);

/* The experiments. */
void thesis_access(struct scene *s);
void thesis_binning(struct scene *s);
void thesis_depth(struct scene *s);
void thesis_table(struct scene *s);
void thesis_partition(struct scene *s);

/* The three other applications: thesis_range.c. Names as on the command line; sets may be NULL. */
bool thesis_range_knows_experiment(const char *name, size_t length);
bool thesis_range_knows_set(const char *name, size_t length);
void thesis_range(const char *wanted, const char *sets, int runs, int threads, const char *device);

/* Whether `name` is one of the comma-separated words. */
bool among(const char *words, const char *name);

#endif
