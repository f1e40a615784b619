/* The thesis' experiments on today's GPU: JSON lines, one per measurement.
 *
 *   mrirecond-bench [--experiments access,binning,...] [--sets koosh-small,...] [--runs 5] [--threads N]
 *
 * On MRI gridding:
 *
 *   access     how bins are read, and their layout in memory (figures 23, 25, 27)
 *   binning    how bins are made (section 4.3.1, the lecture, the lab manual)
 *   depth      the depth of bins, with the overflow on the CPU (figures 30 and 31)
 *   table      the lab manual's tables: capacity and standard deviation; by default for the Gaussian sets
 *   partition  only when asked for: the product's own bin_depth, with either way of overflow: automatic, many depths,
 *              none; the last line of each sweep compares the automatic choice with the best
 *
 * On the Coulombic potential, Blinn's blobs and forces between bodies:
 *
 *   range-statistics  how the sources lie in bins (tables 2 to 4)
 *   range-access      how bins are read, the list of rows in constant memory, the cylinder test (figure 25, the
 *                     lecture)
 *   range-depth       the depth of bins, with the overflow on the CPU (figures 30 and 32 to 34, table 5)
 *
 * Times are in milliseconds, medians of --runs after a warm-up. GPU steps are timed with device events, steps that
 * involve the CPU with the host's clock. Every result is compared with a sum in double precision ("error": relative l2
 * over some 3,000 cells of the grid); bins of sets below 4 million samples also with those of a serial program. A wrong
 * result ends the program. The last line of each comparison is the product's: a whole adjoint, FFT included, or one sum
 * of limited range. */
#include "tests/bench/thesis.h"
#include "gridding/base/err.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct experiment {
    const char *name, *sets; /* used if none are given */
    void (*run)(struct scene *s);
} experiments[] = {
    {"access", "koosh-small,uniform-small,gauss-16,koosh-large", thesis_access},
    {"binning", "koosh-small,uniform-small,gauss-16,koosh-large", thesis_binning},
    {"depth", "koosh-small,uniform-small,gauss-16,koosh-large", thesis_depth},
    {"partition", "koosh-small,uniform-small,gauss-16,koosh-large", thesis_partition},
    {"table", "gauss-16,gauss-32,gauss-48,gauss-64,gauss-80", thesis_table},
};
enum { EXPERIMENTS = sizeof experiments / sizeof *experiments };

bool among(const char *words, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = words; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

static bool known_set(const char *name, size_t length)
{
    if (thesis_range_knows_set(name, length))
        return true;
    for (const struct rival_set *set = rival_sets(); set->name != NULL; set++)
        if (strlen(set->name) == length && strncmp(set->name, name, length) == 0)
            return true;
    return false;
}

static bool known_experiment(const char *name, size_t length)
{
    if (thesis_range_knows_experiment(name, length))
        return true;
    for (int i = 0; i < EXPERIMENTS; i++)
        if (strlen(experiments[i].name) == length && strncmp(experiments[i].name, name, length) == 0)
            return true;
    return false;
}

static void check_words(const char *option, const char *words, bool (*known)(const char *, size_t))
{
    for (const char *at = words; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        size_t length = strcspn(at, ",");
        if (!known(at, length)) {
            fprintf(stderr, "mrirecond-bench: %s has no '%.*s'; tests/bench/thesis_main.c lists the names\n", option,
                    (int)length, at);
            exit(2);
        }
    }
}

static int number(const char *option, const char *text, int most)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > most) {
        fprintf(stderr, "mrirecond-bench: %s takes a number from 1 to %d, not '%s'\n", option, most, text);
        exit(2);
    }
    return (int)n;
}

int main(int argc, char **argv)
{
    const char *wanted = "access,binning,depth,table,range-statistics,range-access,range-depth", *sets = NULL;
    int runs = 5, threads = omp_get_max_threads();
    char device[128];
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--experiments") == 0)
            check_words(argv[i], wanted = value, known_experiment);
        else if (strcmp(argv[i], "--sets") == 0)
            check_words(argv[i], sets = value, known_set);
        else if (strcmp(argv[i], "--runs") == 0)
            runs = number(argv[i], value, THESIS_RUNS_MOST);
        else if (strcmp(argv[i], "--threads") == 0)
            threads = number(argv[i], value, 1024);
        else {
            fprintf(stderr, "mrirecond-bench: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    rival_gpu_describe(device, sizeof device);
    for (const struct rival_set *set = rival_sets(); set->name != NULL; set++) {
        struct scene scene = {0};
        for (int i = 0; i < EXPERIMENTS; i++) {
            if (!among(wanted, experiments[i].name) || !among(sets != NULL ? sets : experiments[i].sets, set->name))
                continue;
            if (scene.set == NULL)
                scene_open(&scene, set, runs, threads, device);
            experiments[i].run(&scene);
        }
        if (scene.set != NULL)
            scene_close(&scene);
    }
    thesis_range(wanted, sets, runs, threads, device);
    return 0;
}
