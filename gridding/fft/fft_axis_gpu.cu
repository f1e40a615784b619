/* fft_axis_gpu.cu: fft.h on a GPU. */
#include "gridding/fft/fft_gpu.cuh"
#include "gridding/fft/fft_leaf.h"

#include <algorithm>
#include <cstdlib>

/* The longest axis that fits into every GPU's shared memory; sets and columns of a launch. */
static const int LONGEST = 1024, SETS_MOST = 65535, COLUMNS_MOST = 1 << 24;

static bool serves(int n)
{
    int rest = n;
    for (int prime = 2; prime <= 7; prime++)
        while (rest % prime == 0)
            rest /= prime;
    return n >= 2 && n <= LONGEST && rest == 1;
}

static int create(void **state, struct dev *dev, int n)
{
    struct fft_plan *plan = (struct fft_plan *)calloc(1, sizeof *plan);
    if (!plan)
        return err_no_memory("a Fourier transform");
    int rc = gpu_enter(gpu_of(dev));
    if (!rc)
        rc = fft_plan_make(plan, gpu_of(dev), n);
    if (!rc)
        *state = plan;
    else
        free(plan);
    return rc;
}

static void destroy(void *state, struct dev *dev)
{
    if (gpu_enter(gpu_of(dev)) == 0)
        fft_plan_free((struct fft_plan *)state, gpu_of(dev));
    free(state);
}

static int centred(void *state, struct dev *dev, size_t sets, size_t columns, struct c32 *values)
{
    const struct fft_plan *plan = (const struct fft_plan *)state;
    const size_t set = plan->n * columns;
    int rc = gpu_enter(gpu_of(dev));
    for (size_t first = 0; first < sets && !rc; first += SETS_MOST)
        for (size_t column = 0; column < columns && !rc; column += COLUMNS_MOST) {
            struct fft_pass pass = {};
            pass.kind = FFT_BACK;
            pass.out = (float2 *)values + first * set + column;
            pass.in = pass.out;
            pass.in_view = pass.out_view = fft_view{columns, 1, set};
            pass.kept = plan->n;
            pass.lines = (int)std::min(columns - column, (size_t)COLUMNS_MOST);
            pass.sets = (int)std::min(sets - first, (size_t)SETS_MOST);
            rc = fft_run(gpu_of(dev), plan, &pass);
        }
    return rc;
}

extern "C" const struct fft_leaf fft_leaf_gpu;
const struct fft_leaf fft_leaf_gpu = {serves, create, destroy, centred, &fields_leaf_gpu};
