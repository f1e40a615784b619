/* A job of kind nbody as a whole: its progress. */
#include "gridding/base/dev.h"
#include "gridding/base/err.h"
#include "recon/nbody/nbody.h"
#include "tests/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { BODIES = 300 };

static int file_of(void)
{
    const int fd = memfd_create("bodies", MFD_CLOEXEC);
    dprintf(fd, "x,y,z,mass\n");
    for (uint64_t i = 0; i < BODIES; i++)
        dprintf(fd, "%.6f,%.6f,%.6f,1\n", uniform(3 * i), uniform(3 * i + 1), uniform(3 * i + 2));
    return fd;
}

/* The last fraction reported of each step. */
struct seen {
    double last[NBODY_STEPS_ALL], before;
};

static int hear(void *context, const struct step_progress *now)
{
    struct seen *seen = context;
    assert_true(now->fraction >= seen->before && now->fraction <= 1);
    seen->last[now->step] = seen->before = now->fraction;
    return 0;
}

static struct seen run(const char *steps)
{
    char codec[256];
    const char *bin = getenv("MRIRECON_BIN");
    const int file = file_of();
    struct param_values values;
    struct decoder *decoder = NULL;
    struct dev *dev = NULL;
    struct job_outcome outcome = {.results = 0};
    struct seen seen = {.before = 0};
    const struct job_listener listener = {&seen, hear};
    param_values_init(&nbody_kind, &values);
    assert_int_equal(param_values_set(&nbody_kind, &values, "forces", "direct"), 0);
    assert_int_equal(param_values_set(&nbody_kind, &values, "softening", "0.1"), 0);
    assert_int_equal(param_values_set(&nbody_kind, &values, "steps", steps), 0);
    assert_int_equal(param_values_set(&nbody_kind, &values, "boundary", "open"), 0);
    snprintf(codec, sizeof codec, "%s/mrirecon-codec", bin ? bin : "build/bin");
    assert_int_equal(decoder_create(&decoder, codec), 0);
    assert_int_equal(dev_create(&dev, DEV_CPU, 0, 1), 0);
    const struct job_request request = {.kind = &nbody_kind, .values = &values, .input = file, .decoder = decoder};
    if (kind_run_job(&outcome, dev, &request, &listener) != 0)
        fail_msg("%s", err_last()->text);
    job_outcome_free(&outcome);
    dev_free(dev);
    decoder_free(decoder);
    close(file);
    return seen;
}

/* The shares of the steps are those of this job, not the table's: one evaluation each. */
static void progress_is_by_evaluations(void **state)
{
    (void)state;
    const double read = nbody_kind.steps[NBODY_STEP_READ].share, write = nbody_kind.steps[NBODY_STEP_WRITE].share;
    const double between = 1 - read - write;
    struct seen seen = run("0");
    assert_true(seen.last[NBODY_STEP_FORCES] > read + 0.8 * between);
    assert_true(seen.last[NBODY_STEP_FORCES] < 1 - write + 1e-9);
    assert_true(seen.last[NBODY_STEP_MOVE] == 0);
    seen = run("9");
    assert_true(seen.last[NBODY_STEP_FORCES] < read + 0.1 * between + 1e-9);
    assert_true(seen.last[NBODY_STEP_MOVE] > read + 0.9 * between);
    assert_true(seen.last[NBODY_STEP_MOVE] < 1 - write + 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(progress_is_by_evaluations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
