/* fft_axis_cpu.c: fft.h on the CPU: threads share the columns, and each transforms some at a time in its cache. */
#include "gridding/base/ask.h"
#include "gridding/base/dev_leaf.h"
#include "gridding/base/err.h"
#include "gridding/fft/fft_cpu.h"
#include "gridding/fft/fft_leaf.h"

#include <stdlib.h>
#include <string.h>

enum {
    COLUMNS = 64, /* transformed together: n x 64 x 8 bytes fit into a core's cache */
    PARALLEL_FROM = 1 << 15,
    COST = 8 /* ns of a value, approximately */
};

struct axis {
    int n;
    struct fft_cpu *fft;
};

static bool serves(int n)
{
    return n >= 1;
}

static int create(void **state, struct dev *dev, int n)
{
    (void)dev;
    struct axis *axis = calloc(1, sizeof *axis);
    if (!axis)
        return err_no_memory("a Fourier transform");
    axis->n = n;
    int rc = fft_cpu_create(&axis->fft, n, COLUMNS, 1);
    if (rc == 0)
        *state = axis;
    else
        free(axis);
    return rc;
}

static void destroy(void *state, struct dev *dev)
{
    (void)dev;
    struct axis *axis = state;
    fft_cpu_free(axis->fft);
    free(axis);
}

/* Columns [at, at + count) of values[n][columns]. */
static void panel_transform(const struct axis *axis, size_t columns, size_t at, size_t count, struct c32 *values,
                            struct c32 *work)
{
    const size_t n = (size_t)axis->n, below = n / 2; /* number of z < 0 */
    for (size_t j = 0; j < n; j++) {
        memcpy(work + j * COLUMNS, values + j * columns + at, count * sizeof *work);
        memset(work + j * COLUMNS + count, 0, (COLUMNS - count) * sizeof *work);
    }
    fft_cpu_run(axis->fft, work);
    for (size_t z = 0; z < n; z++)
        memcpy(values + z * columns + at, work + (z + n - below) % n * COLUMNS, count * sizeof *work);
}

static int centred(void *state, struct dev *dev, size_t sets, size_t columns, struct c32 *values)
{
    const struct axis *axis = state;
    const size_t n = (size_t)axis->n, panels = (columns + COLUMNS - 1) / COLUMNS;
    struct asker *asker = dev_asker(dev);
    bool failed = false;
#pragma omp parallel num_threads(dev->threads) reduction(|| : failed) if (sets * n * columns >= PARALLEL_FROM)
    {
        struct c32 *work = aligned_alloc(64, n * COLUMNS * sizeof *work);
        failed = !work;
#pragma omp for schedule(static)
        for (size_t part = 0; part < sets * panels; part++) {
            const size_t at = part % panels * COLUMNS, count = columns - at < COLUMNS ? columns - at : COLUMNS;
            if (work && !asker_stopped(asker, n * COLUMNS * COST))
                panel_transform(axis, columns, at, count, values + part / panels * n * columns, work);
        }
        free(work);
    }
    return failed ? err_no_memory("the transform over %zu points", n) : asker_rc(asker);
}

const struct fft_leaf fft_leaf_cpu = {.serves = serves, .create = create, .destroy = destroy, .centred = centred};
