/* A plan's workspace on the device: its limit and its allocation. */
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

/* The limit of a 3-D plan's device memory, relative to one grid and the samples (position, order and value). Not for
 * small plans. */
#define KEPT_MOST 1.3
static const size_t small_workspace = (size_t)640 << 20;

size_t nufft_gpu_workspace_most(const struct nufft_gpu *plan)
{
    const size_t each = sizeof *plan->bins.points + sizeof *plan->bins.order + sizeof(struct c32);
    double kept = KEPT_MOST * ((double)plan->cells * sizeof(struct c32) + (double)plan->samples * (double)each);
    /* Weights may be set later; the tables of cells take less than a megabyte. */
    double most = kept - (double)plan->bytes - (double)plan->samples * sizeof(float) - 1e6;
    return most > (double)small_workspace ? (size_t)most : small_workspace;
}

/* The batch is reduced until it needs at most half of the free memory, because the caller's images and samples need
 * memory, too; one group is allocated in any case. */
int nufft_gpu_workspace_make(struct nufft_gpu *plan, size_t sorted, size_t partial, size_t words)
{
    struct gpu *gpu = plan->gpu;
    size_t available, total, group = 1;
    const size_t each = (plan->cells + sorted + partial) * sizeof(struct c32) + words * sizeof(uint32_t);
    int rc = gpu_available(gpu, &available, &total);
    if (rc)
        return rc;
    if (plan->method->group)
        group = plan->method->group(plan, each, available);
    plan->group = plan->together = (int)group;
    if (each * group > available)
        return nufft_gpu_no_room(plan, each * group, available);
    plan->bytes += each * group;
    rc = gpu_array(gpu, partial * group, &plan->partial, "Partial sums");
    if (!rc)
        rc = gpu_array(gpu, plan->cells * group, &plan->grid, "The grid");
    if (!rc)
        rc = gpu_array(gpu, sorted * group, &plan->sorted, "The sorted data");
    if (rc || words == 0)
        return rc;
    rc = gpu_array(gpu, words * group, &plan->largest, "The largest samples");
    return rc ? rc
              : gpu_check(cudaMemsetAsync(plan->largest, 0, words * group * sizeof *plan->largest, gpu->stream),
                          "Preparing the gridding");
}
