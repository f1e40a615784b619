/* The lines along x of a 3-D grid that no sample reaches: where trajectories leave the corners of k-space empty, as
 * spokes do, a fifth of all. Found from the bins when a plan is made. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cstdlib>
#include <cstring>

enum { BLOCK = 256 };

/* Whether each row of bins along x has samples. Blocks of BLOCK; a thread owns a row. */
static __global__ void find_rows(uint32_t rows, uint32_t bins_of_row, const uint32_t *first, uint8_t *occupied)
{
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows)
        occupied[row] = first[row * bins_of_row] != first[(row + 1) * bins_of_row];
}

static int rows_of_bins(struct nufft_gpu *plan, uint32_t rows, uint8_t *occupied)
{
    uint8_t *found = NULL;
    int rc = gpu_array(plan->gpu, rows, &found, "The occupied bins");
    if (!rc) {
        find_rows<<<gpu_blocks(rows, BLOCK), BLOCK, 0, plan->gpu->stream>>>(
            rows, (uint32_t)plan->bins.geometry.axis[0].bins, plan->bins.first, found);
        rc = gpu_launched("Finding the occupied bins");
    }
    if (!rc)
        rc = gpu_download(plan->gpu, occupied, found, rows);
    gpu_release(plan->gpu, found);
    return rc;
}

/* Mark the lines that a row of bins reaches: line (y, z) is reached[z cells_y + y]. */
static void mark_lines(const struct range_geometry *g, int bin_y, int bin_z, uint8_t *reached)
{
    const struct range_axis y = g->axis[1], z = g->axis[2];
    const int first_y = axis_first(y, bin_y), cells_y = axis_size(y, bin_y) + g->width - 1;
    const int first_z = axis_first(z, bin_z), cells_z = axis_size(z, bin_z) + g->width - 1;
    const int before = std::min(cells_y, y.cells - first_y); /* the periodic grid's end */
    for (int j = 0; j < cells_z; j++) {
        uint8_t *plane = reached + (size_t)((first_z + j) % z.cells) * (size_t)y.cells;
        memset(plane + first_y, 1, (size_t)before);
        memset(plane, 1, (size_t)std::min(cells_y - before, y.cells));
    }
}

/* The list, if it is worth it: a pass by list starts with a read more, so at least one line in 32 must be left out. */
static int list_lines(struct nufft_gpu *plan, const uint8_t *reached, uint32_t *list)
{
    const uint32_t all = (uint32_t)plan->shape.grid[1] * (uint32_t)plan->shape.grid[2];
    uint32_t count = 0;
    for (uint32_t i = 0; i < all; i++)
        if (reached[i])
            list[count++] = i;
    if (count == 0 || count > all - all / 32)
        return 0;
    int rc = gpu_array(plan->gpu, count, &plan->lines, "The lines that samples reach");
    plan->line_count = (int)count;
    plan->bytes += count * sizeof *list;
    return rc ? rc : gpu_upload(plan->gpu, plan->lines, list, count * sizeof *list);
}

int nufft_gpu_lines_make(struct nufft_gpu *plan)
{
    const struct range_geometry *g = &plan->bins.geometry;
    /* Lines with samples that the CPU adds are unknown here. */
    if (plan->shape.dim != 3 || plan->overflow || plan->bins.samples == 0)
        return 0;
    const size_t rows = (size_t)g->axis[1].bins * (size_t)g->axis[2].bins;
    const size_t lines = (size_t)plan->shape.grid[1] * (size_t)plan->shape.grid[2];
    uint8_t *occupied = (uint8_t *)malloc(rows), *reached = (uint8_t *)calloc(lines, 1);
    uint32_t *list = (uint32_t *)malloc(lines * sizeof *list);
    int rc = occupied && reached && list ? 0 : err_no_memory("a plan");
    if (!rc)
        rc = rows_of_bins(plan, (uint32_t)rows, occupied);
    for (size_t row = 0; !rc && row < rows; row++)
        if (occupied[row])
            mark_lines(g, (int)(row / (size_t)g->axis[2].bins), (int)(row % (size_t)g->axis[2].bins), reached);
    if (!rc)
        rc = list_lines(plan, reached, list);
    free(occupied);
    free(reached);
    free(list);
    return rc;
}
