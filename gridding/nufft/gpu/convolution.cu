/* convolution.cu: circular convolution of images on the GPU: pruned FFT passes; the last of them forth multiplies
 * by the kernel's transform. */
#include "gridding/fft/fft_gpu.cuh"
#include "gridding/nufft/nufft_leaf.h"

#include <algorithm>
#include <cstdlib>

struct convolution_gpu {
    struct gpu *gpu;
    int dim, n[3], grid[3];
    int group; /* images that the grid holds: one in 3-D */
    size_t cells, pixels;
    struct fft_plan fft[3];
    struct c32 *values; /* [group][cells] */
    float *spectrum;    /* [cells] */
};

static void destroy(void *state)
{
    struct convolution_gpu *c = (struct convolution_gpu *)state;
    if (!c)
        return;
    if (gpu_enter(c->gpu) == 0) {
        for (int d = 0; d < c->dim; d++)
            fft_plan_free(&c->fft[d], c->gpu);
        gpu_release(c->gpu, c->values);
        gpu_release(c->gpu, c->spectrum);
    }
    free(c);
}

/* Half of what is free may be grids: the caller's images need room, too. One is asked for in any case. */
static int make_grids(struct convolution_gpu *c, int batch)
{
    size_t available, total, each = c->cells * sizeof *c->values;
    int rc = gpu_available(c->gpu, &available, &total);
    if (rc)
        return rc;
    size_t fits = std::max((size_t)1, available / 2 / each);
    c->group = c->dim == 3 ? 1 : (int)std::min({fits, (size_t)batch, (size_t)65535});
    rc = gpu_array(c->gpu, c->cells * c->group, &c->values, "The convolution's grid");
    return rc ? rc : gpu_array(c->gpu, c->cells, &c->spectrum, "The convolution's kernel");
}

static int create(void **state, struct dev *dev, int dim, const int n[3], const int grid[3], int batch)
{
    struct gpu *gpu = gpu_of(dev);
    int rc = gpu_enter(gpu);
    if (rc)
        return rc;
    struct convolution_gpu *c = (struct convolution_gpu *)calloc(1, sizeof *c);
    if (!c)
        return err_no_memory("a convolution");
    c->gpu = gpu;
    c->dim = dim;
    c->cells = c->pixels = 1;
    for (int d = 0; d < 3; d++) {
        c->n[d] = n[d];
        c->grid[d] = grid[d];
        c->pixels *= (size_t)n[d];
        c->cells *= (size_t)grid[d];
    }
    for (int d = 0; !rc && d < dim; d++)
        rc = fft_plan_make(&c->fft[d], gpu, grid[d]);
    if (!rc)
        rc = make_grids(c, batch);
    if (rc)
        destroy(c);
    else
        *state = c;
    return rc;
}

static size_t bytes(const void *state)
{
    const struct convolution_gpu *c = (const struct convolution_gpu *)state;
    return c->cells * (c->group * sizeof *c->values + sizeof *c->spectrum);
}

/* The pass along axis d over grids of images of n[]. In 2-D a set is an image. */
static struct fft_pass pass_along(const struct convolution_gpu *c, int d, const int n[3], int images,
                                  enum fft_kind kind)
{
    size_t nx = (size_t)c->grid[0], plane = nx * c->grid[1];
    const struct fft_view view[3] = {{1, nx, plane}, {nx, 1, plane}, {plane, 1, nx}};
    struct fft_pass pass = {};
    pass.kind = kind;
    pass.in = pass.out = (float2 *)c->values;
    pass.in_view = pass.out_view = view[d];
    pass.kept = n[d];
    pass.lines = d == 0 ? c->grid[1] : n[0];
    pass.sets = c->dim == 2 ? images : d == 2 ? n[1] : c->grid[2];
    return pass;
}

static struct fft_view image_view(const struct convolution_gpu *c, const int n[3])
{
    size_t nx = (size_t)n[0], plane = nx * n[1];
    return c->dim == 3 ? fft_view{plane, 1, nx} : fft_view{nx, 1, plane};
}

/* Images of n[] to their transforms, multiplied by the spectrum where one is given. */
static int forth(const struct convolution_gpu *c, const int n[3], int images, const struct c32 *image,
                 const float *spectrum)
{
    int rc = 0;
    for (int d = c->dim - 1; !rc && d >= 0; d--) {
        struct fft_pass pass = pass_along(c, d, n, images, FFT_FORTH);
        if (d == c->dim - 1) {
            pass.in = (const float2 *)image;
            pass.in_view = image_view(c, n);
        }
        if (d == 0 && spectrum) {
            pass.full = spectrum;
            pass.full_view = pass.out_view;
            pass.full_view.set = c->dim == 3 ? pass.out_view.set : 0;
        }
        rc = fft_run(c->gpu, &c->fft[d], &pass);
    }
    return rc;
}

static int back(const struct convolution_gpu *c, int images, struct c32 *result)
{
    int rc = 0;
    for (int d = 0; !rc && d < c->dim; d++) {
        struct fft_pass pass = pass_along(c, d, c->n, images, FFT_BACK);
        if (d == c->dim - 1) {
            pass.out = (float2 *)result;
            pass.out_view = image_view(c, c->n);
        }
        rc = fft_run(c->gpu, &c->fft[d], &pass);
    }
    return rc;
}

/* Blocks of 256; a thread owns one cell. */
static __global__ void real_parts(size_t cells, const float2 *values, float scale, float *to)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < cells)
        to[i] = values[i].x * scale;
}

static int set_kernel(void *state, const int kernel_n[3], const struct c32 *kernel, float scale)
{
    struct convolution_gpu *c = (struct convolution_gpu *)state;
    int rc = gpu_enter(c->gpu);
    if (!rc)
        rc = forth(c, kernel_n, 1, kernel, NULL);
    if (!rc) {
        real_parts<<<gpu_blocks(c->cells, 256), 256, 0, c->gpu->stream>>>(c->cells, (const float2 *)c->values, scale,
                                                                          c->spectrum);
        rc = gpu_launched("Keeping the convolution's kernel");
    }
    return rc ? rc : gpu_finish(c->gpu, "Keeping the convolution's kernel");
}

static int apply(void *state, int batch, const struct c32 *image, struct c32 *result)
{
    struct convolution_gpu *c = (struct convolution_gpu *)state;
    int rc = gpu_enter(c->gpu);
    for (int first = 0; !rc && first < batch; first += c->group) {
        int images = std::min(c->group, batch - first);
        rc = forth(c, c->n, images, image + first * c->pixels, c->spectrum);
        if (!rc)
            rc = back(c, images, result + first * c->pixels);
    }
    return rc ? rc : gpu_finish(c->gpu, "The convolution");
}

extern "C" const struct convolution_leaf convolution_leaf_gpu;
const struct convolution_leaf convolution_leaf_gpu = {create, destroy, bytes, set_kernel, apply, NULL};
