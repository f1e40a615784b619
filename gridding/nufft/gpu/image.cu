/* Grid and image: the FFT's passes over one axis after the other, which crop, deapodise and add squares. */
#include "gridding/fft/fft_several.cuh"
#include "gridding/nufft/gpu/nufft_gpu.cuh"

static void image_factors(const struct nufft_gpu *plan, struct fft_pass *pass)
{
    const int *n = plan->shape.n;
    if (plan->deapodise_full) {
        pass->full = plan->deapodise_full;
        pass->full_view =
            plan->shape.dim == 3 ? fft_view{(size_t)n[0] * n[1], 1, (size_t)n[0]} : fft_view{(size_t)n[0], 1, 0};
        return;
    }
    pass->line = plan->deapodise[0];
    pass->element = plan->deapodise[plan->shape.dim - 1];
    pass->set = plan->shape.dim == 3 ? plan->deapodise[1] : NULL;
}

/* The layout of lines for the passes over x, y and z in a grid with rows of nx. In 2-D a set is a transform; in 3-D the
 * passes over x and y have a set for each z of each transform, in order. */
static void grid_views(const struct nufft_gpu *plan, size_t nx, struct fft_view view[3])
{
    size_t plane = nx * plan->shape.grid[1];
    view[0] = fft_view{1, nx, plane};
    view[1] = fft_view{nx, 1, plane};
    view[2] = fft_view{plane, 1, nx};
}

static struct fft_view image_view(const struct nufft_gpu *plan)
{
    size_t nx = (size_t)plan->shape.n[0], plane = nx * plan->shape.n[1];
    return plan->shape.dim == 3 ? fft_view{plane, 1, nx} : fft_view{nx, 1, plane};
}

/* Blocks of 256; a thread owns one pixel and adds the transforms in their order. */
static __global__ void add_squares(int nx, int ny, int grid_x, size_t cells, int transforms, const float2 *grid,
                                   float *squares)
{
    size_t pixel = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (pixel >= (size_t)nx * ny)
        return;
    const float2 *from = grid + pixel / nx * grid_x + pixel % nx;
    float s = squares[pixel];
    for (int t = 0; t < transforms; t++) {
        float2 v = from[t * cells];
        s += v.x * v.x + v.y * v.y;
    }
    squares[pixel] = s;
}

/* Pass d over grids with rows of `row`, in place. With plan->lines, the pass along x has a set for each transform. */
static struct fft_pass axis_pass(const struct nufft_gpu *plan, int d, int transforms, struct c32 *grid, int row)
{
    const int *n = plan->shape.n, *cells = plan->shape.grid, dim = plan->shape.dim;
    struct fft_view view[3];
    struct fft_pass pass = {};
    grid_views(plan, (size_t)row, view);
    pass.in = pass.out = (float2 *)grid;
    pass.in_view = pass.out_view = view[d];
    pass.kept = n[d];
    pass.volume = dim == 3;
    pass.lines = d == 0 ? cells[1] : n[0];
    pass.sets = dim == 2 ? transforms : d == 2 ? n[1] : cells[2] * transforms;
    if (d == dim - 1)
        image_factors(plan, &pass);
    if (d == 0 && plan->lines) {
        pass.list = plan->lines;
        pass.lines = plan->line_count;
        pass.sets = transforms;
        pass.in_view.set = pass.out_view.set = plan->cells;
    }
    return pass;
}

/* Towards the image: the last pass writes images or (image NULL) squares. In 3-D that one has one transform's sets;
 * `several`: of so many transforms, which squares, added up in order, cannot be. */
static int pass_back(struct nufft_gpu *plan, int d, int transforms, int several, struct c32 *grid, int row,
                     struct c32 *image, float *squares)
{
    struct fft_pass pass = axis_pass(plan, d, transforms, grid, row);
    bool last = d == plan->shape.dim - 1;
    pass.kind = last ? FFT_BACK_IMAGE : FFT_BACK;
    if (last && (image || plan->shape.dim == 3)) {
        pass.out = (float2 *)image;
        pass.out_view = image_view(plan);
        pass.squares = image ? NULL : squares;
    }
    return fft_run_several(plan->gpu, &plan->fft[d], &pass, several, plan->cells, plan->pixels);
}

int nufft_gpu_last_passes(struct nufft_gpu *plan, struct c32 *from, struct c32 *image, float *squares)
{
    int rc = pass_back(plan, 1, 1, 1, from, plan->shape.n[0], image, squares);
    return rc ? rc : pass_back(plan, 2, 1, 1, from, plan->shape.n[0], image, squares);
}

/* The passes after that over x. */
static int passes_after_x(struct nufft_gpu *plan, int transforms, struct c32 *image, float *squares)
{
    const int *n = plan->shape.n, *cells = plan->shape.grid, dim = plan->shape.dim;
    int rc = pass_back(plan, 1, transforms, 1, plan->grid, cells[0], image, squares);
    if (!rc && dim == 3 && image)
        return pass_back(plan, 2, 1, transforms, plan->grid, cells[0], image, NULL);
    for (int t = 0; !rc && dim == 3 && t < transforms; t++)
        rc = pass_back(plan, 2, 1, 1, plan->grid + t * plan->cells, cells[0], NULL, squares);
    if (!rc && !image && dim == 2) {
        add_squares<<<gpu_blocks(plan->pixels, 256), 256, 0, plan->gpu->stream>>>(
            n[0], n[1], cells[0], plan->cells, transforms, (const float2 *)plan->grid, squares);
        rc = gpu_launched("Adding squares");
    }
    return rc;
}

int nufft_gpu_grid_to_image(struct nufft_gpu *plan, int transforms, struct c32 *image, float *squares)
{
    int rc = pass_back(plan, 0, transforms, 1, plan->grid, plan->shape.grid[0], image, squares);
    return rc ? rc : passes_after_x(plan, transforms, image, squares);
}

int nufft_gpu_bricks_to_image(struct nufft_gpu *plan, int transforms, const struct bricks *bricks, struct c32 *image,
                              float *squares)
{
    struct fft_pass pass = axis_pass(plan, 0, transforms, plan->grid, plan->shape.grid[0]);
    pass.kind = FFT_BACK_BRICKS;
    pass.bricks = *bricks;
    int rc = fft_run(plan->gpu, &plan->fft[0], &pass);
    return rc ? rc : passes_after_x(plan, transforms, image, squares);
}

int nufft_gpu_image_to_grid(struct nufft_gpu *plan, int transforms, const struct c32 *image)
{
    const int last = plan->shape.dim - 1, several = last == 2 ? transforms : 1;
    struct fft_pass pass = axis_pass(plan, last, transforms, plan->grid, plan->shape.grid[0]);
    pass.kind = FFT_FORTH_IMAGE;
    pass.in = (const float2 *)image;
    pass.in_view = image_view(plan);
    int rc = fft_run_several(plan->gpu, &plan->fft[last], &pass, several, plan->pixels, plan->cells);
    for (int d = last - 1; !rc && d >= 0; d--) {
        pass = axis_pass(plan, d, transforms, plan->grid, plan->shape.grid[0]);
        pass.kind = FFT_FORTH;
        rc = fft_run(plan->gpu, &plan->fft[d], &pass);
    }
    return rc;
}
