/* tap.h: output of a program of GPU tests (TAP), and its exit on failures. Each program is a single source file that
 * includes it. */
#ifndef MRIRECON_TAP_H
#define MRIRECON_TAP_H

#include "tests/gpu/gpu_or_skip.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    int number, failures;
} tap;

/* why: printed if the test fails. */
static inline void verdict(bool good, const char *name, const char *why)
{
    printf("%s %d - %s\n", good ? "ok" : "not ok", ++tap.number, name);
    if (!good) {
        printf("# %s\n", why);
        tap.failures++;
    }
    fflush(stdout);
}

/* What a call that returned `code` says of that: after a success, err_last() has the text of an older call. */
static inline const char *said_of(int code)
{
    return code ? err_last()->text : "it succeeded";
}

/* A test cannot continue if the machine fails in the middle of it. */
static inline void must(int code, const char *what)
{
    if (code) {
        printf("Bail out! %s: %s\n", what, err_last()->text);
        exit(1);
    }
}

/* Zeroed memory; the caller frees it. */
static inline void *take(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    if (!memory) {
        printf("Bail out! not enough memory\n");
        exit(1);
    }
    return memory;
}

/* The GPU; without one, ends the program as gpu_or_skip() does. */
static inline struct dev *tap_gpu(void)
{
    struct dev *gpu = NULL;
    gpu_or_skip();
    must(dev_create(&gpu, DEV_GPU, 0, 0), "dev_create");
    printf("# %s\n", dev_name(gpu));
    return gpu;
}

/* Prints the TAP plan, and returns the exit status for main(). */
static inline int tap_end(void)
{
    printf("1..%d\n", tap.number);
    return tap.failures != 0;
}

#endif
