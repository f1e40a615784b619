/* What a plan's workspace may take on the device. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

int nufft_gpu_no_room(const struct nufft_gpu *plan, size_t wanted, size_t available)
{
    const int *grid = plan->shape.grid;
    return err_set_bytes(
        ERR_GPU_OOM, (int64_t)wanted, (int64_t)available,
        "Gridding %zu samples to %d x %d x %d cells needs %.1f MB of device memory and %.1f MB are free. Ask for a "
        "smaller matrix or a larger tolerance, or wait until other work on this GPU has ended.",
        plan->samples, grid[0], grid[1], grid[2], (double)wanted / 1e6, (double)available / 1e6);
}

/* What a plan in 3-D keeps on the device, relative to one grid and the samples (place, order and value). Small plans
 * are not held to it. */
#define KEPT_MOST 1.3
static const size_t small_workspace = (size_t)512 << 20;

size_t nufft_gpu_workspace_most(const struct nufft_gpu *plan)
{
    const size_t each = sizeof *plan->bins.points + sizeof *plan->bins.order + sizeof(struct c32);
    double kept = KEPT_MOST * ((double)plan->cells * sizeof(struct c32) + (double)plan->samples * (double)each);
    /* Weights may be set later; the tables of cells take less than a megabyte. */
    double most = kept - (double)plan->bytes - (double)plan->samples * sizeof(float) - 1e6;
    return most > (double)small_workspace ? (size_t)most : small_workspace;
}
